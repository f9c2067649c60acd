"""What people say of columns of a table: which are categories, dates or text, and what becomes of missing values."""

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
MOST_ONE_HOT = 1000  #: values of a column of categories that have a feature each; more are hashed

ColumnNames = tuple[str, ...]


@dataclass(frozen=True, slots=True)
class ColumnOptions:
    """What was said; nothing of what may be said.

    categorical, dates, text: columns by name or number; "auto" among them: all that are of no other kind. missing: what
    becomes of missing values, a policy for each named column and one under "" for all others. unknown: what becomes of
    categories that come later. categories: how many values of a column have a feature each, the most frequent ones;
    None: up to 1,000 all have, and more are hashed. date_format: of ``strptime``, "" for ISO 8601. decimal, thousands,
    na_values, keep_default_na: how delimited text is written; None was not said.
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

    def text_format(self, known: TextFormat | None = None) -> TextFormat:
        """How a text is written: as was said, else as the store's columns were. Raises UsageError."""
        from msgspec import structs

        from coremargin.formats.columns import TextFormat

        found = known or TextFormat()
        said = {
            "decimal": self.decimal,
            "thousands": self.thousands,
            "na_values": self.na_values,
            "keep_default_na": self.keep_default_na,
        }
        try:
            return structs.replace(found, **{name: value for name, value in said.items() if value is not None})
        except ValueError as error:
            raise UsageError(f"--decimal, --thousands: {error}") from error

    @property
    def on_text(self) -> bool:
        """Whether it was said how delimited text is written."""
        return any(value is not None for value in (self.decimal, self.thousands, self.na_values, self.keep_default_na))

    def resolved(self, name: Callable[[str], str]) -> ColumnOptions:
        """The same with columns by their own names; ``name`` finds one, whatever people called it."""

        def all_of(columns: ColumnNames) -> ColumnNames:
            return tuple(column if column == AUTO else name(column) for column in columns)

        missing = tuple((column and name(column), policy) for column, policy in self.missing)
        return replace(
            self,
            categorical=all_of(self.categorical),
            dates=all_of(self.dates),
            text=all_of(self.text),
            missing=missing,
        )

    def __bool__(self) -> bool:
        """Whether anything was said of what becomes of columns."""
        plain = replace(self, decimal=None, thousands=None, na_values=None, keep_default_na=None)
        return plain != NO_COLUMN_OPTIONS

    @property
    def columns(self) -> ColumnNames:
        """All that are named."""
        named = (*self.categorical, *self.dates, *self.text, *(column for column, _ in self.missing))
        return tuple(name for name in named if name not in ("", AUTO))

    @property
    def policy(self) -> str | None:
        """What becomes of values that are missing in columns that are not named."""
        return dict(self.missing).get("")


NO_COLUMN_OPTIONS = ColumnOptions()


class ColumnArguments(TypedDict, total=False):
    """The words as people give them, to ``ingest`` for instance: columns are one text, between commas, or several."""

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


def parse_column_options(**given: Unpack[ColumnArguments]) -> ColumnOptions:
    """Words as people give them. Raises UsageError, and TypeError for one that there is not."""
    strange = sorted(given.keys() - set(COLUMN_ARGUMENTS))
    if strange:
        raise TypeError(f"found the word {strange[0]!r}, expected some of {', '.join(COLUMN_ARGUMENTS)}")
    unknown, categories = given.get("unknown", "other"), given.get("categories")
    policies = tuple(_parse_policy(word) for word in _split_names(given.get("missing", ())))
    if len(dict(policies)) < len(policies):
        raise UsageError("--missing: expected one policy for each column and one for all others, found a second one")
    if unknown not in UNKNOWN:
        raise UsageError(f"--unknown {unknown!r}: expected one of {', '.join(UNKNOWN)}")
    if categories is not None and categories < 1:
        raise UsageError(f"--categories {categories}: expected at least 1")
    lists = {
        "categorical": given.get("categorical", ()),
        "dates": given.get("dates", ()),
        "text": given.get("text", ()),
    }
    named = {name: _split_names(columns) for name, columns in lists.items()}
    if AUTO in named["text"]:
        raise UsageError("--text auto: expected names of columns: whether words or categories, only you can say")
    every = [name for names in named.values() for name in names if name != AUTO]
    twice = next((name for name in every if every.count(name) > 1), None)
    if twice is not None:
        raise UsageError(f"column {twice!r}: named twice by --categorical, --dates or --text: choose one")
    form = given.get("date_format", "")
    decimal, thousands = given.get("decimal"), given.get("thousands")
    if decimal not in (None, ".", ","):
        raise UsageError(f"--decimal {decimal!r}: expected . or ,")
    if thousands is not None:
        thousands = {" ": "space", "\u00a0": "space", "\u202f": "space", "\u2019": "'"}.get(thousands, thousands)
        if thousands not in THOUSANDS:
            raise UsageError(f"--thousands {thousands!r}: expected one of {' '.join(THOUSANDS)}")
    na_values = given.get("na_values")
    found = ColumnOptions(
        **named,
        missing=policies,
        unknown=unknown,
        categories=categories,
        date_format=form,
        decimal=decimal,
        thousands=thousands,
        na_values=None if na_values is None else _split_names(na_values),
        keep_default_na=given.get("keep_default_na"),
    )
    if found.decimal is not None and found.decimal == found.thousands:
        raise UsageError(f"--decimal and --thousands are both {decimal!r}: expected different characters")
    return found


def option_name(name: str, position: int) -> str:
    """A column as options name it: by its number where its name cannot stand between commas."""
    return name if name and name == name.strip() and "," not in name else f"{position}"


def quote_columns(columns: Sequence[str]) -> str:
    """Columns as a command line has them after an option."""
    return shlex.quote(",".join(columns))


def _split_names(words: Sequence[str] | str) -> ColumnNames:
    return tuple(word.strip() for word in words.split(",")) if isinstance(words, str) else tuple(map(str, words))


def _parse_policy(word: str) -> tuple[str, str]:
    column, _, policy = word.rpartition("=")
    if policy not in POLICIES:
        raise UsageError(f"--missing {word!r}: expected one of {', '.join(POLICIES)}, for one column as COLUMN=POLICY")
    return column, policy
