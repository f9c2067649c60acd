"""What every kind of source has in common: batches of rows that can name their place."""

from __future__ import annotations

import re
from collections.abc import Callable, Collection, Iterator
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Protocol

import numpy as np

from coremargin.data.tables.column_options import NOTHING_SAID, Words, spoken
from coremargin.errors import BadRow, DataError, NoRows, UsageError
from coremargin.formats.limits import MOST_FEATURES
from coremargin.maths.rows import Rows, is_sparse

if TYPE_CHECKING:
    from coremargin.data.sources.vocabulary import Vocabulary
    from coremargin.formats.columns import ColumnsRecord, TextFormat

BATCH_BYTES = 8 * 2**20  #: a batch holds about this much as float64, whatever the source
_COLUMN = re.compile(r"[+-]?[0-9]{1,18}")  # a column by its number
REAL = "fiub"  #: kinds of NumPy's types that are real numbers


@dataclass(frozen=True, slots=True)
class Batch:
    """Rows (m, d) of any real dtype, an array or CSR, their label codes, their weights and their places.

    codes (m,) int32 index the vocabulary, -1 is a missing label; None when the source carries no labels. weights (m,)
    float64, None when the source carries none. keys (m, 2) as ``Keys`` has them, None when it carries none.
    """

    rows: Rows
    codes: np.ndarray | None
    origin: str  #: the file or array that the rows come from
    place: Callable[[int], str]  #: names row i of the batch as a person would look it up: "train.csv, line 17"
    column: Callable[[int], str]  #: names feature j likewise: "column 'age'"
    done_bytes: int  #: bytes of the source consumed so far
    weights: np.ndarray | None = None
    keys: np.ndarray | None = None
    unsorted: int = 0  #: rows whose indices were not in order, and have been sorted

    @property
    def count(self) -> int:
        """How many rows these are."""
        return int(self.rows.shape[0])


@dataclass(frozen=True, slots=True)
class Progress:
    """How far an ingest has come. ``total_bytes`` is None where it cannot be known."""

    stage: str  #: "first pass" or "writing"
    rows: int
    done_bytes: int
    total_bytes: int | None


OnProgress = Callable[[Progress], None]


class RowSource(Protocol):
    """Rows that can be read once, in order, in bounded memory."""

    name: str
    features: int
    rows: int | None  #: None when only reading tells
    total_bytes: int | None
    label_from: str | None  #: where the labels come from, for the report; None when the source carries none
    weight_from: str | None  #: where the weights come from; None when the source carries none
    sparse: bool  #: rows are best kept sparse
    columns: ColumnsRecord | None  #: the columns that the features come from; None where they have no names

    def batches(self, vocabulary: Vocabulary) -> Iterator[Batch]:
        """All rows in order; raises DataError with the place of what cannot be read."""


@dataclass(frozen=True, slots=True)
class SourceOptions:
    """How to read a source; what a kind of source does not know is refused, never ignored."""

    format: str | None = None  #: "npy", "csv", "parquet" or "svmlight"; None: by name and content
    label: str | int | None = None  #: label column by name or number (from 0, negative from the end)
    drop: tuple[str | int, ...] = ()  #: columns to leave out
    delimiter: str | None = None
    header: bool | None = None
    features: int | None = None  #: SVMlight: the number of features
    zero_based: bool | None = None  #: SVMlight: whether the first feature has index 0
    unlabelled: bool = False  #: the source carries no labels (or they come from elsewhere)
    weights: str | int | None = None  #: column of the weights, by name or number
    key: str | int | None = None  #: column of the keys, by name or number
    columns: ColumnsRecord | None = None  #: the columns that the rows are to have, in whatever order they come
    columns_of: str = ""  #: whose columns these are, for messages
    label_may_lack: bool = False  #: rows to be predicted: their label's column need not be there, and is not read
    words: Words = NOTHING_SAID  #: what is to become of columns that are no numbers, and of values that are not there

    @property
    def text_format(self) -> TextFormat:
        """How delimited text is written: as was said, else as that of the columns that rows are to have."""
        return self.words.text_format(None if self.columns is None else self.columns.text)

    @property
    def names(self) -> frozenset[str]:
        """By which columns are asked for; a number is none."""
        found = {self.label, self.weights, self.key, *self.drop, *self.words.columns}
        if self.columns is not None and self.columns.named:
            found |= {*self.columns.names, *self.columns.beside}
        return frozenset(name for name in found if isinstance(name, str) and not _COLUMN.fullmatch(name))


def batch_rows(features: int) -> int:
    """Rows of ``features`` float64 values that make one batch."""
    return max(1, BATCH_BYTES // (8 * features))


def plain_array(values: Any, name: str) -> np.ndarray:
    """Anything like an array as a NumPy array. UsageError: ragged, without values, or some of them masked."""
    if isinstance(values, np.ma.MaskedArray) and np.ma.is_masked(values):
        raise UsageError(f"{name}: some values are masked, expected all to be there; fill them in first")
    try:
        return np.asarray(values)
    except (ValueError, TypeError, OverflowError) as error:
        raise UsageError(f"{name}: expected an array, found a {type(values).__name__} that is none: {error}") from error


def check_matrix(shape: tuple[int, ...], dtype: np.dtype[Any], name: str) -> None:
    """Refuse what is not a table of real numbers with at least one row and one feature."""
    if len(shape) != 2:
        raise UsageError(f"{name}: shape {shape}: expected two dimensions (rows, features); reshape it first")
    if dtype.kind not in REAL:
        raise UsageError(f"{name}: dtype {dtype}: expected real numbers; convert it, for instance to float32, first")
    check_width(shape[1], name)
    if shape[0] == 0:
        raise NoRows(f"{name}: no rows: expected at least one")


def check_width(features: int, name: str) -> None:
    """Refuse no features, and more of them than a store takes."""
    if features == 0:
        raise DataError(f"{name}: zero features: expected at least one column of numbers")
    if features > MOST_FEATURES:
        raise DataError(f"{name}: found {features:,} features, expected at most {MOST_FEATURES:,}; give fewer columns")


def first_bad(rows: Rows, dtype: np.dtype[Any]) -> tuple[int, int, str] | None:
    """(row, feature, what was found) of the first value that is not finite in ``dtype``, or None."""
    values = np.asarray(rows.data) if is_sparse(rows) else rows
    with np.errstate(over="ignore", invalid="ignore"):
        cast = values.astype(dtype, copy=False)
    # A sum that is finite proves every term finite, at the cost of one pass without a temporary.
    with np.errstate(over="ignore", invalid="ignore"):
        if np.isfinite(np.sum(cast, dtype=np.float64)):
            return None
    bad = ~np.isfinite(cast)
    if not bad.any():
        return None
    at = int(np.argmax(bad))
    value = float(values.reshape(-1)[at])
    row, feature = position(rows, at)
    if np.isfinite(value):
        return row, feature, f"{value:.6g}, too large for {dtype}; scale the column or use --dtype float64"
    advice = "remove the row or fill in the value first"
    return row, feature, f"{'NaN' if np.isnan(value) else 'infinity'}, expected a finite number; {advice}"


def position(rows: Rows, at: int) -> tuple[int, int]:
    """Row and feature of the value that is number ``at`` in the order in which rows (n, d) are kept."""
    if is_sparse(rows):
        return int(np.searchsorted(rows.indptr, at, side="right")) - 1, int(rows.indices[at])
    row, feature = np.unravel_index(at, rows.shape)
    return int(row), int(feature)


def refuse_bad(batch: Batch, dtype: np.dtype[Any]) -> None:
    """Raise BadRow with the place of the first value of the batch that is not finite in ``dtype``."""
    found = first_bad(batch.rows, dtype)
    if found is not None:
        row, feature, what = found
        raise BadRow(f"{batch.place(row)}, {batch.column(feature)}: found {what}")


def refuse_options(options: SourceOptions, kind: str, *, knows: tuple[str, ...]) -> None:
    """Raise UsageError for an option that this kind of source cannot use."""
    default = SourceOptions()
    for field in ("label", "drop", "delimiter", "header", "features", "zero_based", "weights", "key"):
        if field not in knows and getattr(options, field) != getattr(default, field):
            option = "--" + field.replace("_", "-")
            why = ", which has no columns but features" if field == "key" else ""
            raise UsageError(f"{option} does not apply to {kind}{why}: leave it out")
    if options.words.on_text and "text" not in knows:
        raise UsageError(
            f"--decimal, --thousands, --na-values and --no-default-na say how delimited text is written, and do not "
            f"apply to {kind}: leave them out"
        )
    if options.words and "words" not in knows:
        raise UsageError(
            f"--categorical, --dates, --text and --missing do not apply to {kind}, whose columns are numbers: leave "
            "them out"
        )


def find_column(wanted: str | int, names: tuple[str, ...] | None, width: int, *, place: str) -> int:
    """Position of a column given by name or by number (from 0, negative from the end)."""
    if isinstance(wanted, str) and names is not None and wanted in names:
        if names.count(wanted) > 1:
            raise UsageError(f"{place}: {names.count(wanted)} columns are named {wanted!r}: give the number instead")
        return names.index(wanted)
    if isinstance(wanted, str) and not _COLUMN.fullmatch(wanted):  # int would take 1_0 for 10
        known = f"the columns are {shorten(names)}" if names else "the file has no header line, so give a number from 0"
        raise UsageError(f"{place}: no column named {wanted[:80]!r}: {known}")
    number = int(wanted)
    if not -width <= number < width:
        raise UsageError(f"{place}: no column {number}: there are {width}, numbered from 0 (or from -1 backwards)")
    return number % width


def shorten(names: tuple[str, ...], limit: int = 8) -> str:
    """The first few names, for messages."""
    shown = ", ".join(repr(name) for name in names[:limit])
    return f"{shown}, ... ({len(names)} in all)" if len(names) > limit else shown


LABEL_NAMES = ("label", "target", "class", "y")  #: columns that hold the label unless another one is named


def is_label_name(name: str) -> bool:
    """Whether a column is called like a label, also behind the mark of a comment, as the first one may be."""
    return name.lstrip("# ").strip().lower() in LABEL_NAMES


def label_column(
    label: str | int | None,
    names: tuple[str, ...] | None,
    width: int,
    *,
    place: str,
    others: Collection[int] = (),
) -> int:
    """Position of the label column: the one named, else the one called like a label, else the last.

    others: columns that are something else, whatever they are called. Raises UsageError where several are called like
    labels: one may be a copy of another.
    """
    if label is not None:
        return find_column(label, names, width, place=place)
    called = [column for column, name in enumerate(names or ()) if column not in others and is_label_name(name)]
    if names is not None and len({names[column] for column in called}) > 1:
        shown = [repr(names[column]) for column in called]
        raise UsageError(
            f"{place}: columns {', '.join(shown[:-1])} and {shown[-1]} are called like labels, expected one; name it "
            "with --label, and leave out with --drop what is a copy of it"
        )
    return called[0] if called else width - 1


def option_word(names: tuple[str, ...] | None, position: int) -> str:
    """A column as options of a command line find it: by its name, or else by a number that is no column's name."""
    if names is None:
        return f"{position}"
    name = names[position]
    if spoken(name, position) == name and names.count(name) == 1:
        return name
    return f"{position}" if f"{position}" not in names else f"{position - len(names)}"
