"""Arrays from Python: NumPy, SciPy sparse, Dask. Dask is not imported here: its arrays are met, not needed."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING, Any

import numpy as np

from coremargin.data.sources.base import (
    BATCH_BYTES,
    REAL,
    Batch,
    SourceOptions,
    batch_rows,
    check_matrix,
    plain_array,
    refuse_options,
)
from coremargin.data.sources.memory import refuse_beyond_memory
from coremargin.data.sparse import check_structure
from coremargin.errors import BadRow, DataError, NoRows, UsageError
from coremargin.maths.rows import is_sparse

if TYPE_CHECKING:
    from coremargin.data.sources.vocabulary import Vocabulary
    from coremargin.formats.columns import ColumnsRecord


class ArrayRows:
    """Rows of a NumPy array (memory maps included) or of a SciPy sparse matrix, which stay sparse."""

    label_from: str | None = None
    weight_from: str | None = None
    columns: ColumnsRecord | None = None

    def __init__(self, array: Any, options: SourceOptions, *, name: str = "array") -> None:
        self.name = name
        refuse_options(options, name, knows=())
        self.sparse = is_sparse(array)
        found = array if self.sparse else plain_array(array, name)
        check_matrix(tuple(found.shape), found.dtype, name)
        self._array: Any = _as_csr(found, name) if self.sparse else found
        self.rows: int | None = int(self._array.shape[0])
        self.features = int(self._array.shape[1])
        self.total_bytes: int | None = _stored_bytes(self._array)

    def batches(self, vocabulary: Vocabulary) -> Iterator[Batch]:
        """Slices of the array."""
        return array_batches(self._array, self.name)

    def refuse_repeated(self, stored: int) -> None:
        """Raise BadRow when an index of a sparse row occurs twice; ``stored``: values before they became CSR."""
        if self._array.nnz < stored:  # SciPy has added some up
            raise BadRow(f"{self.name}: an index occurs twice in a row, expected once; correct the matrix")
        refuse_repeated(self._array, self.name)


class DaskRows:
    """Rows of a Dask array, computed block by block in order; blocks should fit in memory."""

    label_from: str | None = None
    weight_from: str | None = None
    columns: ColumnsRecord | None = None

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
        for number, promised in enumerate(self._array.chunks[0]):
            block = self._block(number, promised)
            yield from array_batches(block, self.name, start=start, done=done)
            start += block.shape[0]
            done = start * self.features * self._array.dtype.itemsize
        if self.rows is None and start == 0:
            raise NoRows(f"{self.name}: no rows: expected at least one")

    def _block(self, number: int, promised: float) -> Any:
        """A block as an array or CSR, with the features and rows (NaN: any number of them) that were promised."""
        place = f"{self.name}, block {number}"
        block = computed(self._array.blocks[number], place)
        block = block if is_sparse(block) else plain_array(block, place)
        shape = tuple(block.shape)
        if len(shape) != 2 or shape[1] != self.features or (promised == promised and shape[0] != promised):
            rows = "any number of" if promised != promised else f"{promised:.0f}"
            raise DataError(
                f"{place}: found shape {shape}, expected {rows} rows of {self.features} features; correct the graph"
            )
        if block.dtype.kind not in REAL:
            raise DataError(f"{place}: found values of type {block.dtype}, expected real numbers; correct the graph")
        return _as_csr(block, place) if is_sparse(block) else block


def computed(array: Any, place: str) -> Any:
    """The values of a Dask array; whatever its graph raises becomes DataError with the place."""
    try:
        return array.compute()
    except Exception as error:  # a graph runs what people have put into it
        raise DataError(f"{place}: cannot be computed: {_told(error)}; correct the graph") from error


def _told(error: Exception) -> str:
    """An exception of others in one line."""
    return f"{type(error).__name__}: {' '.join(str(error).split())}"


def _as_csr(matrix: Any, name: str) -> Any:
    """A SciPy matrix of any kind as CSR, when there is memory for that."""
    if matrix.format in ("csr", "csc", "bsr") and {matrix.indptr.dtype.kind, matrix.indices.dtype.kind} != {"i"}:
        found = f"{matrix.indptr.dtype} and {matrix.indices.dtype}"
        raise DataError(
            f"{name}: found row starts and indices of types {found}, expected signed integers; convert them"
        )
    check_structure(matrix, name)
    if matrix.format != "csr":
        needed = matrix.nnz * (matrix.dtype.itemsize + 8) + (matrix.shape[0] + 1) * 8
        refuse_beyond_memory(
            needed, f"{name}: {matrix.nnz:,} values in {matrix.shape[0]:,} rows as CSR", "give fewer rows"
        )
    return matrix.tocsr()


def array_batches(array: Any, name: str, *, start: int = 0, done: int = 0) -> Iterator[Batch]:
    """Slices of ``array`` (n, d), NumPy or CSR; row numbers in messages count from ``start``."""
    count, features = array.shape
    step = batch_rows(features)
    if is_sparse(array):
        step = max(1, count * BATCH_BYTES // (8 * max(1, array.nnz)))
    for low in range(0, count, step):
        rows = array[low : low + step]
        share = (low + rows.shape[0]) / count
        yield row_batch(rows, name, start + low, done + int(share * _stored_bytes(array)))


def row_batch(rows: Any, name: str, first: int, done_bytes: int) -> Batch:
    """A batch of rows (m, d), NumPy or CSR, without labels, the first of which is number ``first``."""
    return Batch(
        rows=rows,
        codes=None,
        origin=name,
        place=lambda row: f"{name}, row {first + row}",
        column=lambda feature: f"feature {feature}",
        done_bytes=done_bytes,
        unsorted=_unsorted(rows) if is_sparse(rows) else 0,
    )


def refuse_repeated(rows: Any, name: str, first: int = 0) -> None:
    """Raise BadRow for a row of a CSR matrix that has an index twice; ``first`` is the number of its first row."""
    steps, row = _steps(rows)
    if (steps > 0).all():
        return
    ordered = rows.copy()
    ordered.has_sorted_indices = False  # whatever it says
    ordered.sort_indices()
    steps, row = _steps(ordered)
    if not steps.all():
        at = int(np.argmax(steps == 0))
        raise BadRow(
            f"{name}, row {first + row[at]}: index {ordered.indices[at]} occurs twice, expected once; correct the "
            "matrix"
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


def is_dask(array: Any) -> bool:
    """Whether this is a Dask array (or looks like one)."""
    return hasattr(array, "__dask_graph__") and hasattr(array, "blocks") and hasattr(array, "ndim")
