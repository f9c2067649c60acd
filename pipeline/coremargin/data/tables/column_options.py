"""Options of columns of a table: which are categories, dates or text, and what becomes of missing values."""

from __future__ import annotations

import shlex
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, TypedDict, Unpack

from coremargin.errors import UsageError

if TYPE_CHECKING:
    from coremargin.formats.columns import TextFormat

AUTO = "auto"
THOUSANDS = (",", ".", "space", "'", "_")
POLICIES = ("mean", "median", "most-frequent", "indicator", "refuse")
UNKNOWN = ("other", "refuse")
ColumnNames = tuple[str, ...]
_TEXT_FIELDS = ("decimal", "thousands", "na_values", "keep_default_na")
_SPACES = {" ": "space", "\u00a0": "space", "\u202f": "space", "\u2019": "'"}


@dataclass(frozen=True, slots=True)
class Vocabulary:
    """How many values of a column of categories have features.

    one_hot: each of up to so many has one; more are hashed into ``buckets``, at the latest beyond ``counted``. least:
    values that occur less often share a feature.
    """

    one_hot: int = 1000
    counted: int = 1 << 14
    least: int = 1
    buckets: int = 1 << 10


@dataclass(frozen=True, slots=True)
class ColumnOptions:
    """The options, checked; the defaults stand for none.

    categorical, dates, text: columns by name or number; "auto" among them: all that are of no other kind. missing: what
    becomes of missing values, a policy for each named column and one under "" for all others. unknown: what becomes of
    categories that come later. categories: how many values of a column have a feature each, the most frequent ones;
    None: up to 1,000 all have, and more are hashed. date_format: of ``strptime``, "" for ISO 8601. decimal, thousands,
    na_values, keep_default_na: how delimited text is written, as in ``pandas.read_csv``; None: not given. vocabulary:
    of columns of categories, which no option changes.
    """

    categorical: ColumnNames = ()
    dates: ColumnNames = ()
    text: ColumnNames = ()
    missing: tuple[tuple[str, str], ...] = ()
    unknown: str = "other"
    categories: int | None = None
    date_format: str = ""
    decimal: str | None = None
    thousands: str | None = None
    na_values: ColumnNames | None = None
    keep_default_na: bool | None = None
    vocabulary: Vocabulary = Vocabulary()

    def text_format(self, known: TextFormat | None = None) -> TextFormat:
        """How a text is written: by these options, else as the store's columns were. Raises UsageError."""
        from msgspec import structs

        from coremargin.formats.columns import TextFormat

        given = {name: getattr(self, name) for name in _TEXT_FIELDS if getattr(self, name) is not None}
        try:
            return structs.replace(known or TextFormat(), **given)
        except ValueError as error:
            raise UsageError(f"--decimal, --thousands: {error}") from error

    @property
    def on_text(self) -> bool:
        """Whether some option is about how delimited text is written."""
        return any(getattr(self, name) is not None for name in _TEXT_FIELDS)

    def without_text(self) -> ColumnOptions:
        """The same without options about how delimited text is written."""
        return replace(self, decimal=None, thousands=None, na_values=None, keep_default_na=None)

    def resolved(self, find_name: Callable[[str], str]) -> ColumnOptions:
        """The same with columns by their own names; ``find_name`` finds that of a name or number."""

        def names(columns: ColumnNames) -> ColumnNames:
            return tuple(column if column == AUTO else find_name(column) for column in columns)

        return replace(
            self,
            categorical=names(self.categorical),
            dates=names(self.dates),
            text=names(self.text),
            missing=tuple((column and find_name(column), policy) for column, policy in self.missing),
        )

    def __bool__(self) -> bool:
        """Whether some option is about how columns become features."""
        return self.without_text() != NO_COLUMN_OPTIONS

    @property
    def columns(self) -> ColumnNames:
        """All that are named."""
        named = (*self.categorical, *self.dates, *self.text, *(column for column, _ in self.missing))
        return tuple(name for name in named if name not in ("", AUTO))


NO_COLUMN_OPTIONS = ColumnOptions()


class ColumnArguments(TypedDict, total=False):
    """The options as arguments, of ``ingest`` for instance: columns are one text, between commas, or several."""

    categorical: Sequence[str] | str
    dates: Sequence[str] | str
    text: Sequence[str] | str
    missing: Sequence[str] | str  #: "median", or "COLUMN=median" for one column
    unknown: str
    categories: int | None
    date_format: str
    decimal: str | None  #: of delimited text, as the next three: "." or ","
    thousands: str | None  #: ",", ".", "space", "'" or "_"
    na_values: Sequence[str] | str | None
    keep_default_na: bool | None


COLUMN_ARGUMENTS = tuple(ColumnArguments.__annotations__)  #: what these are called


def parse_column_options(**arguments: Unpack[ColumnArguments]) -> ColumnOptions:
    """Check arguments. Raises UsageError, and TypeError for an unknown one."""
    unknown_argument = min(arguments.keys() - set(COLUMN_ARGUMENTS), default=None)
    if unknown_argument is not None:
        raise TypeError(f"found the option {unknown_argument!r}, expected some of {', '.join(COLUMN_ARGUMENTS)}")
    missing = tuple(_parse_policy(text) for text in _split_names(arguments.get("missing", ())))
    if len(dict(missing)) < len(missing):
        raise UsageError("--missing: expected one policy for each column and one for all others, found a second one")
    thousands, na_values = arguments.get("thousands"), arguments.get("na_values")
    options = ColumnOptions(
        categorical=_split_names(arguments.get("categorical", ())),
        dates=_split_names(arguments.get("dates", ())),
        text=_split_names(arguments.get("text", ())),
        missing=missing,
        unknown=arguments.get("unknown", "other"),
        categories=arguments.get("categories"),
        date_format=arguments.get("date_format", ""),
        decimal=arguments.get("decimal"),
        thousands=None if thousands is None else _SPACES.get(thousands, thousands),
        na_values=None if na_values is None else _split_names(na_values),
        keep_default_na=arguments.get("keep_default_na"),
    )
    if options.unknown not in UNKNOWN:
        raise UsageError(f"--unknown {options.unknown!r}: expected one of {', '.join(UNKNOWN)}")
    if options.categories is not None and options.categories < 1:
        raise UsageError(f"--categories {options.categories}: expected at least 1")
    if AUTO in options.text:
        raise UsageError("--text auto: expected names of columns: whether words or categories, only you can say")
    named = [name for name in (*options.categorical, *options.dates, *options.text) if name != AUTO]
    twice = next((name for name in named if named.count(name) > 1), None)
    if twice is not None:
        raise UsageError(f"column {twice!r}: named twice by --categorical, --dates or --text: choose one")
    if options.decimal not in (None, ".", ","):
        raise UsageError(f"--decimal {options.decimal!r}: expected . or ,")
    if options.thousands is not None and options.thousands not in THOUSANDS:
        raise UsageError(f"--thousands {options.thousands!r}: expected one of {' '.join(THOUSANDS)}")
    if options.decimal is not None and options.decimal == options.thousands:
        raise UsageError(f"--decimal and --thousands are both {options.decimal!r}: expected different characters")
    return options


def option_name(name: str, position: int) -> str:
    """A column as options name it: by its number where its name cannot stand between commas."""
    return name if name and name == name.strip() and "," not in name else f"{position}"


def quote_columns(columns: Sequence[str]) -> str:
    """Columns as a command line has them after an option."""
    return shlex.quote(",".join(columns))


def _split_names(names: Sequence[str] | str) -> ColumnNames:
    return tuple(name.strip() for name in names.split(",")) if isinstance(names, str) else tuple(map(str, names))


def _parse_policy(text: str) -> tuple[str, str]:
    column, _, policy = text.rpartition("=")
    if policy not in POLICIES:
        raise UsageError(f"--missing {text!r}: expected one of {', '.join(POLICIES)}, for one column as COLUMN=POLICY")
    return column, policy
