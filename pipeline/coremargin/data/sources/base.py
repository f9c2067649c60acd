"""What every kind of source has in common: batches of rows that can name their place."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from types import MappingProxyType
from typing import TYPE_CHECKING, Any

import numpy as np

from coremargin.data.narrow_rows import describe_unfit, first_unfit, is_narrow
from coremargin.errors import BadRow, DataError, NoRows, UsageError
from coremargin.formats.limits import MOST_FEATURES
from coremargin.formats.row_types import common_row_type, stored_dtype
from coremargin.maths.rows import Rows, is_sparse

if TYPE_CHECKING:
    from coremargin.data.labels import LabelCoder
    from coremargin.formats.columns import ColumnsRecord

BATCH_BYTES = 8 * 2**20  #: a batch holds about this much as float64, whatever the source
REAL = "fiub"  #: kinds of NumPy's types that are real numbers


@dataclass(frozen=True, slots=True)
class Batch:
    """Rows (m, d) of any real dtype, an array or CSR, their label codes, their weights and their places.

    codes (m,) int32 are places in the coder's classes, -1 is a missing label; None when the source carries no labels.
    weights (m,) float64, keys (m, 2), as ``Keys`` has them, and groups (m,), ids of any kind, are None when it carries
    none.
    """

    rows: Rows
    codes: np.ndarray | None
    origin: str  #: the file or array that the rows come from
    place: Callable[[int], str]  #: where row i of the batch is, for messages: "train.csv, line 17"
    column: Callable[[int], str]  #: what feature j is called, for messages: "column 'age'"
    done_bytes: int  #: bytes of the source consumed so far
    weights: np.ndarray | None = None
    keys: np.ndarray | None = None
    groups: np.ndarray | None = None
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


class RowSource(ABC):
    """Rows that can be read once, in order, in bounded memory."""

    name: str
    features: int
    rows: int | None = None  #: None when only reading tells
    total_bytes: int | None = None
    label_from: str | None = None  #: where the labels come from, for the report; None when the source carries none
    weight_from: str | None = None  #: where the weights come from; None when the source carries none
    group_from: str | None = None  #: where the groups come from; None when the source carries none
    sparse: bool = False  #: rows are best kept sparse
    row_type: str = "float32"  #: stored type that rows are best kept in: a narrow one where all come in it
    columns: ColumnsRecord | None = None  #: the columns that the features come from; None where they have no names
    excluded: Mapping[str, str] = MappingProxyType({})  #: columns that are no features unless asked for: what each is

    @abstractmethod
    def batches(self, coder: LabelCoder) -> Iterator[Batch]:
        """All rows in order; raises DataError with the place of what cannot be read."""


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
    if dtype.kind not in REAL and not is_bfloat16(dtype):
        lost = dtype == np.dtype("V2")  # what NumPy writes of bfloat16
        hint = "; if these are bfloat16, save X.astype(float32) and give --dtype bfloat16" if lost else ""
        wanted = "expected real numbers; convert it, for instance to float32, first"
        raise UsageError(f"{name}: dtype {dtype}: {wanted}{hint}")
    check_width(shape[1], name)
    if shape[0] == 0:
        raise NoRows(f"{name}: no rows: expected at least one")


def is_bfloat16(dtype: np.dtype[Any]) -> bool:
    """Whether a dtype is the bfloat16 of ml_dtypes, which converts it to float32."""
    return dtype.name == "bfloat16"


def check_width(features: int, name: str) -> None:
    """Refuse no features, and more of them than a store takes."""
    if features == 0:
        raise DataError(f"{name}: zero features: expected at least one column of numbers")
    if features > MOST_FEATURES:
        raise DataError(f"{name}: found {features:,} features, expected at most {MOST_FEATURES:,}; give fewer columns")


def find_not_finite(rows: Rows, dtype: np.dtype[Any]) -> tuple[int, int, str] | None:
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
    row, feature = row_and_feature(rows, at)
    if np.isfinite(value):
        return row, feature, f"{value:.6g}, too large for {dtype}; scale the column or use --dtype float64"
    advice = "remove the row or fill in the value first"
    return row, feature, f"{'NaN' if np.isnan(value) else 'infinity'}, expected a finite number; {advice}"


def _find_unfit(rows: Rows, name: str) -> tuple[int, int, str] | None:
    values = np.asarray(rows.data) if is_sparse(rows) else rows
    at = first_unfit(values, name)
    return None if at is None else (*row_and_feature(rows, at), describe_unfit(values.reshape(-1)[at], name))


def row_and_feature(rows: Rows, at: int) -> tuple[int, int]:
    """Row and feature of the value that is number ``at`` in the order in which rows (n, d) are stored."""
    if is_sparse(rows):
        return int(np.searchsorted(rows.indptr, at, side="right")) - 1, int(rows.indices[at])
    row, feature = np.unravel_index(at, rows.shape)
    return int(row), int(feature)


def refuse_unfit(batch: Batch, name: str) -> None:
    """Raise BadRow with the place of the first value of the batch that a stored type does not hold."""
    dtype = stored_dtype(name)
    found = _find_unfit(batch.rows, name) if is_narrow(dtype) else find_not_finite(batch.rows, dtype)
    if found is not None:
        row, feature, what = found
        raise BadRow(f"{batch.place(row)}, {batch.column(feature)}: found {what}")


class Chain(RowSource):
    """Several files read one after the other as one source. Raises DataError for other numbers of features."""

    def __init__(self, parts: Sequence[RowSource]) -> None:
        first, self._parts = parts[0], parts
        for part in parts[1:]:
            if part.features != first.features:
                raise DataError(
                    f"{part.name}: found {part.features} features, expected {first.features} as in {first.name}; "
                    "ingest files of one kind only"
                )
        self.name = first.name if len(parts) == 1 else f"{len(parts)} files ({first.name}, ...)"
        self.features, self.sparse, self.columns = first.features, first.sparse, first.columns
        self.row_type = common_row_type(part.row_type for part in parts)
        self.label_from, self.weight_from = first.label_from, first.weight_from
        self.group_from = first.group_from
        self.excluded = {name: what for part in parts for name, what in part.excluded.items()}
        self.rows = sum_if_known([part.rows for part in parts])
        self.total_bytes = sum_if_known([part.total_bytes for part in parts])

    def batches(self, coder: LabelCoder) -> Iterator[Batch]:
        """All batches of all files, in the order of the files."""
        before = 0
        for part in self._parts:
            for batch in part.batches(coder):
                yield replace(batch, done_bytes=before + batch.done_bytes)
            before += part.total_bytes or 0


def sum_if_known(counts: Sequence[int | None]) -> int | None:
    """The sum of some counts; None where one of them is not known."""
    known = [count for count in counts if count is not None]
    return sum(known) if len(known) == len(counts) else None


class AscendingNumbers(Sequence[int]):
    """The numbers ``first + i`` of those i where ``present`` (m,) is true, in a bit each.

    Such numbers name rows, and may be kept for as long as all rows are read.
    """

    def __init__(self, first: int, present: np.ndarray) -> None:
        self._first, self._bits, self._count = first, np.packbits(present), int(np.count_nonzero(present))

    def __len__(self) -> int:
        return self._count

    def __iter__(self) -> Iterator[int]:
        return iter(self._numbers().tolist())

    def __getitem__(self, at: Any) -> Any:
        return self._numbers()[at].tolist()

    def _numbers(self) -> np.ndarray:
        return self._first + np.flatnonzero(np.unpackbits(self._bits))
