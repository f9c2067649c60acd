"""Columns of a table by their kinds: which features each of them becomes, and how they are called."""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Iterator
from typing import Annotated, ClassVar, TypeAlias

from msgspec import Meta, field
from msgspec.structs import replace

from coremargin.formats.limits import MOST_FEATURES, MOST_ROWS
from coremargin.formats.model_record import Number as Value
from coremargin.formats.model_record import Strict

LONGEST_NAME = 1000  #: characters
LONGEST_CATEGORY = 1000  #: characters
MOST_CATEGORIES = 1 << 18  #: of one column

Name = Annotated[str, Meta(max_length=LONGEST_NAME)]
Category = Annotated[str, Meta(max_length=LONGEST_CATEGORY)]
Width = Annotated[int, Meta(ge=1, le=MOST_FEATURES)]
Rows = Annotated[int, Meta(ge=0, le=MOST_ROWS)]
WEEKDAYS = ("Monday", "Tuesday", "Wednesday", "Thursday", "Friday", "Saturday", "Sunday")


class Base(Strict, frozen=True, kw_only=True, tag_field="kind", omit_defaults=True):
    """A column by its name in the table."""

    WORD: ClassVar[str]  #: what such columns are, for people

    name: Name

    @property
    def word(self) -> str:
        """What it is, for people."""
        return self.WORD

    @property
    @abstractmethod
    def features(self) -> Iterator[str]:
        """Names of its features."""

    @property
    def width(self) -> int:
        """How many features it becomes."""
        return sum(1 for _ in self.features)

    @property
    def filled(self) -> int:
        """How many of its features are not 0 in a row, about."""
        return self.width

    @property
    def meaning(self) -> Base:
        """What its features mean: the column without what is filled in, which is in the features already."""
        return self

    @property
    def plain(self) -> bool:
        """Its values are the features, and all of them must be there."""
        return False


class Numbers(Base, frozen=True, kw_only=True, tag="number"):
    """A feature, and with ``indicator`` a second one, 1 where the value is missing.

    fill: the value where none is there; None: that is refused. boolean: values are true or false in the table. unit:
    the sign of a currency or of percent that every value of a text has.
    """

    WORD = "numbers"

    fill: Value | None = None
    indicator: bool = False
    boolean: bool = False
    unit: Annotated[str, Meta(max_length=10)] = ""

    @property
    def word(self) -> str:
        """What it is, for people."""
        return f"{self.WORD} ({self.unit})" if self.unit else self.WORD

    @property
    def meaning(self) -> Numbers:
        """Numbers, whatever stood for those that were missing, and for true and false."""
        return replace(self, fill=None, boolean=False)

    @property
    def features(self) -> Iterator[str]:
        """The column's name."""
        yield self.name
        if self.indicator:
            yield missing_name(self.name)

    @property
    def plain(self) -> bool:
        """Nothing is filled in, and nothing is a word."""
        return self.fill is None and not self.indicator and not self.boolean and not self.unit


class Lists(Base, frozen=True, kw_only=True, tag="list"):
    """Lists of numbers, all of one length: a feature for each place."""

    WORD = "lists of numbers"

    length: Width

    @property
    def features(self) -> Iterator[str]:
        """The places, from 0."""
        return (f"{self.name}[{place}]" for place in range(self.length))

    @property
    def plain(self) -> bool:
        """As they are."""
        return True


class Categories(Base, frozen=True, kw_only=True, tag="categories"):
    """A feature for each of ``values``: 1 where the value is that one, else 0.

    other: a feature for all other values; without it they are 0 throughout, or refused with ``refuse``. fill: the value
    where none is there; missing: a feature for that; with neither it is refused.
    """

    WORD = "categories"

    values: Annotated[list[Category], Meta(max_length=MOST_CATEGORIES)]
    other: bool = False
    refuse: bool = False
    fill: Category | None = None
    missing: bool = False

    def __post_init__(self) -> None:
        """Raises ValueError for values that are there twice, or nothing to become a feature."""
        if len(set(self.values)) < len(self.values):
            raise ValueError(f"column {self.name!r}: expected different values, found one twice")
        if not self.values and not self.other and not self.missing:
            raise ValueError(f"column {self.name!r}: expected values, found none")

    @property
    def filled(self) -> int:
        """One."""
        return 1

    @property
    def meaning(self) -> Categories:
        """The values, whatever stood for those that were missing or unknown."""
        return replace(self, fill=None, refuse=False)

    @property
    def features(self) -> Iterator[str]:
        """As scikit-learn's DictVectorizer names them."""
        yield from (f"{self.name}={value}" for value in self.values)
        if self.other:
            yield f"{self.name} (other)"
        if self.missing:
            yield missing_name(self.name)


class Hashed(Base, frozen=True, kw_only=True, tag="hashed"):
    """Categories too many for a feature each: 1 or -1 in one of ``buckets``, as scikit-learn's FeatureHasher does it.

    What is missing is 0 throughout with ``missing``, which has a feature for it; else it is refused.
    """

    WORD = "categories, hashed"

    buckets: Width
    missing: bool = False

    @property
    def filled(self) -> int:
        """One."""
        return 1

    @property
    def features(self) -> Iterator[str]:
        """The buckets, by number."""
        yield from (f"{self.name}#{bucket}" for bucket in range(self.buckets))
        if self.missing:
            yield missing_name(self.name)


class Dates(Base, frozen=True, kw_only=True, tag="date"):
    """Dates, or dates with times: the years since 2000, where in the year, the day of the week, and where in the day.

    The year and the day are circles: each is a sine and a cosine. format: of ``strptime``, "" for ISO 8601. time: some
    date has a time. zoned: they have a time zone, and become UTC; else none has. fill: seconds since 1970 where none is
    there; None: that is refused. indicator: a feature for it.
    """

    WORD = "dates"

    format: Annotated[str, Meta(max_length=100)] = ""
    time: bool = False
    zoned: bool = False
    fill: Value | None = None
    indicator: bool = False

    @property
    def word(self) -> str:
        """What it is, for people."""
        return "dates with time zones" if self.zoned else self.WORD

    @property
    def meaning(self) -> Dates:
        """Dates, however they were written."""
        return replace(self, format="", fill=None)

    @property
    def features(self) -> Iterator[str]:
        """What each of them is."""
        parts = ["years since 2000", "sine of the year", "cosine of the year", *WEEKDAYS]
        parts += ["sine of the day", "cosine of the day"] if self.time else []
        yield from (f"{self.name} ({part})" for part in parts)
        if self.indicator:
            yield missing_name(self.name)


class Texts(Base, frozen=True, kw_only=True, tag="text"):
    """Words, and runs of up to ``ngrams`` of them, hashed into ``buckets`` as by scikit-learn's HashingVectorizer.

    frequencies: in how many of ``rows`` each bucket occurred; its TfidfTransformer weighs by them. Each row has length
    1. What is missing has no words.
    """

    WORD = "text"

    buckets: Width
    ngrams: Annotated[int, Meta(ge=1, le=5)] = 1
    rows: Rows = 0
    frequencies: list[Rows] = field(default_factory=list)

    def __post_init__(self) -> None:
        """Raises ValueError for frequencies that are none of these buckets, or of more rows than there were."""
        if self.frequencies and (len(self.frequencies) != self.buckets or max(self.frequencies) > self.rows):
            raise ValueError(f"column {self.name!r}: expected {self.buckets:,} frequencies of up to {self.rows:,}")

    @property
    def filled(self) -> int:
        """A few dozen words."""
        return min(self.buckets, 64)

    @property
    def features(self) -> Iterator[str]:
        """The buckets, by number."""
        return (f"{self.name}#{bucket}" for bucket in range(self.buckets))


Column: TypeAlias = Numbers | Lists | Categories | Hashed | Dates | Texts


def missing_name(name: str) -> str:
    """The feature that says that a column's value is missing."""
    return f"{name} (missing)"
