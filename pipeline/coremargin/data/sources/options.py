"""How to read a source. Options that a kind of source does not know are refused, never ignored."""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import TYPE_CHECKING

from coremargin.data.tables.column_options import NO_COLUMN_OPTIONS, ColumnOptions
from coremargin.errors import UsageError

if TYPE_CHECKING:
    from coremargin.formats.columns import ColumnsRecord, TextFormat

COLUMN_NUMBER = re.compile(r"[+-]?[0-9]{1,18}")  # a column by its number


@dataclass(frozen=True, slots=True)
class SourceOptions:
    """The options of ``ingest`` that are about reading."""

    format: str | None = None  #: "npy", "csv", "parquet", "svmlight" or "conll"; None: by name and content
    label: str | int | None = None  #: label column by name or number (from 0, negative from the end)
    drop: tuple[str | int, ...] = ()  #: columns to leave out
    delimiter: str | None = None
    header: bool | None = None
    features: int | None = None  #: SVMlight: the number of features
    zero_based: bool | None = None  #: SVMlight: whether the first feature has index 0
    unlabelled: bool = False  #: the source carries no labels (or they come from elsewhere)
    weights: str | int | None = None  #: column of the weights, by name or number
    key: str | int | None = None  #: column of the keys, by name or number
    group: str | int | None = None  #: column of the groups, by name or number; of SVMlight "qid"
    groups_before: int = 0  #: how many groups there are in the store that rows are appended to
    columns: ColumnsRecord | None = None  #: the columns that the rows must have, in any order
    columns_of: str = ""  #: what has these columns, for messages
    label_optional: bool = False  #: rows to be predicted: the label's column may be missing, and is not read
    column_options: ColumnOptions = (
        NO_COLUMN_OPTIONS  #: what becomes of columns that are no numbers, and of missing values
    )

    @property
    def text_format(self) -> TextFormat:
        """How delimited text is written: by the options, else as the columns that the rows must have."""
        return self.column_options.text_format(None if self.columns is None else self.columns.text)

    @property
    def names(self) -> frozenset[str]:
        """Names of columns that the options name."""
        found = {self.label, self.weights, self.key, self.group, *self.drop, *self.column_options.columns}
        if self.columns is not None and self.columns.named:
            found |= {*self.columns.names, *self.columns.other_names}
        return frozenset(name for name in found if isinstance(name, str) and not COLUMN_NUMBER.fullmatch(name))


def refuse_options(options: SourceOptions, kind: str, *, knows: tuple[str, ...]) -> None:
    """Raise UsageError for an option that this kind of source cannot use."""
    default = SourceOptions()
    for field in ("label", "drop", "delimiter", "header", "features", "zero_based", "weights", "key", "group"):
        if field not in knows and getattr(options, field) != getattr(default, field):
            option = "--" + field.replace("_", "-")
            why = ", which has no columns but features" if field == "key" else ""
            raise UsageError(f"{option} does not apply to {kind}{why}: leave it out")
    if options.column_options.on_text and "text" not in knows:
        raise UsageError(
            f"--decimal, --thousands, --na-values and --no-default-na say how delimited text is written, and do not "
            f"apply to {kind}: leave them out"
        )
    if options.column_options and "column_options" not in knows:
        raise UsageError(
            f"--categorical, --dates, --text and --missing do not apply to {kind}, whose columns are numbers: leave "
            "them out"
        )
