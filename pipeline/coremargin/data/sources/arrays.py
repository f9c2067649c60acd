"""Arrays from Python: NumPy, SciPy sparse, Dask. Dask is not imported here: its arrays are met, not needed."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING, Any

import numpy as np

from coremargin.data.sources.base import BATCH_BYTES, Batch, SourceOptions, batch_rows, check_matrix, refuse_options
from coremargin.data.sparse import check_structure
from coremargin.errors import BadRow, DataError, UsageError
from coremargin.maths.rows import is_sparse

if TYPE_CHECKING:
    from coremargin.data.sources.vocabulary import Vocabulary


class ArrayRows:
    """Rows of a NumPy array (memory maps included) or of a SciPy sparse matrix, which stay sparse."""

    label_from: str | None = None
    weight_from: str | None = None

    def __init__(self, array: Any, options: SourceOptions, *, name: str = "array") -> None:
        self.name = name
        refuse_options(options, name, knows=())
        self.sparse = is_sparse(array)
        if is_sparse(array):
            check_structure(array, self.name)
            self._array = array.tocsr()
        else:
            self._array = np.asarray(array)
        check_matrix(tuple(self._array.shape), self._array.dtype, self.name)
        self.rows: int | None = int(self._array.shape[0])
        self.features = int(self._array.shape[1])
        self.total_bytes: int | None = _stored_bytes(self._array)

    def batches(self, vocabulary: Vocabulary) -> Iterator[Batch]:
        """Slices of the array."""
        return array_batches(self._array, self.name)


class DaskRows:
    """Rows of a Dask array, computed block by block in order; blocks should fit in memory."""

    label_from: str | None = None
    weight_from: str | None = None

    def __init__(self, array: Any, options: SourceOptions) -> None:
        self.name = "Dask array"
        self.sparse = False
        refuse_options(options, "a Dask array", knows=())
        if array.ndim != 2 or array.shape[1] != array.shape[1]:
            raise UsageError(
                f"Dask array of shape {array.shape}: expected (rows, features) with a known number of features"
            )
        known = array.shape[0] == array.shape[0]  # NaN: blocks of unknown length
        check_matrix((int(array.shape[0]) if known else 1, int(array.shape[1])), array.dtype, self.name)
        self._array = array.rechunk({1: -1})
        self.rows: int | None = int(array.shape[0]) if known else None
        self.features = int(array.shape[1])
        self.total_bytes: int | None = int(array.nbytes) if known else None

    def batches(self, vocabulary: Vocabulary) -> Iterator[Batch]:
        """Batches of one computed block after the other."""
        start = done = 0
        for number in range(self._array.numblocks[0]):
            block = self._array.blocks[number].compute()
            block = block.tocsr() if hasattr(block, "tocsr") else np.asarray(block)
            yield from array_batches(block, self.name, start=start, done=done)
            start += block.shape[0]
            done = start * self.features * self._array.dtype.itemsize
        if self.rows is None and start == 0:
            raise DataError(f"{self.name}: no rows: expected at least one")


def array_batches(array: Any, name: str, *, start: int = 0, done: int = 0) -> Iterator[Batch]:
    """Slices of ``array`` (n, d), NumPy or CSR; row numbers in messages count from ``start``."""
    count, features = array.shape
    step = batch_rows(features)
    if is_sparse(array):
        step = max(1, count * BATCH_BYTES // (8 * max(1, array.nnz)))
    for low in range(0, count, step):
        rows = array[low : low + step]
        share = (low + rows.shape[0]) / count
        yield Batch(
            rows=rows,
            codes=None,
            origin=name,
            place=_place(name, start + low),
            column=lambda feature: f"feature {feature}",
            done_bytes=done + int(share * _stored_bytes(array)),
            unsorted=_unsorted(rows) if is_sparse(array) else 0,
        )


def refuse_repeated(array: Any, stored: int, name: str) -> None:
    """Raise BadRow for a row of a CSR matrix, made from so many stored values, that has an index twice."""
    if array.nnz != stored:
        raise BadRow(f"{name}: an index occurs twice in a row, expected once; correct the matrix")
    ordered = array if array.has_canonical_format else array.copy()
    ordered.sort_indices()
    steps, row = _steps(ordered)
    if not steps.all():
        at = int(np.argmin(steps != 0))
        raise BadRow(
            f"{name}, row {row[at]}: index {ordered.indices[at]} occurs twice, expected once; correct the matrix"
        )


def _unsorted(rows: Any) -> int:
    steps, row = _steps(rows)
    return len(np.unique(row[steps < 0]))


def _steps(rows: Any) -> tuple[np.ndarray, np.ndarray]:
    """From each value of CSR rows to the next one of the same row: the step of the index, and the row; else 1."""
    row = np.repeat(np.arange(rows.shape[0]), np.diff(rows.indptr))
    return np.where(np.diff(row) == 0, np.diff(rows.indices.astype(np.int64)), 1), row[:-1]


def _stored_bytes(array: Any) -> int:
    """Bytes of the values of a NumPy array or a CSR matrix."""
    return int((array.data if hasattr(array, "tocsr") else array).nbytes)


def _place(name: str, first: int) -> Any:
    return lambda row: f"{name}, row {first + row}"


def is_dask(array: Any) -> bool:
    """Whether this is a Dask array (or looks like one)."""
    return hasattr(array, "__dask_graph__") and hasattr(array, "blocks") and hasattr(array, "ndim")
