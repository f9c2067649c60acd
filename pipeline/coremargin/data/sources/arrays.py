"""Arrays from Python: NumPy, SciPy sparse, Dask, and batches of these. Dask is not imported here."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from typing import TYPE_CHECKING, Any

import numpy as np

from coremargin.data.labels import label_vector
from coremargin.data.sources.base import (
    BATCH_BYTES,
    REAL,
    Batch,
    RowSource,
    batch_rows,
    check_matrix,
    is_bfloat16,
    plain_array,
)
from coremargin.data.sources.memory import refuse_beyond_memory
from coremargin.data.sources.options import SourceOptions, refuse_options
from coremargin.data.sparse import check_structure
from coremargin.data.tables.batches import is_pair
from coremargin.errors import BadRow, DataError, NoRows, UsageError
from coremargin.formats.row_types import common_row_type
from coremargin.maths.rows import is_sparse

if TYPE_CHECKING:
    from coremargin.data.labels import LabelCoder
    from coremargin.data.tables.batches import Batches


class ArrayRows(RowSource):
    """Rows of a NumPy array (memory maps included) or of a SciPy sparse matrix, which stay sparse."""

    def __init__(self, array: Any, options: SourceOptions, *, name: str = "array", kind: str = "") -> None:
        """kind: what the array comes from, for messages about options."""
        self.name = name
        refuse_options(options, kind or name, knows=())
        self.sparse = is_sparse(array)
        found = array if self.sparse else plain_array(array, name)
        check_matrix(tuple(found.shape), found.dtype, name)
        self._array: Any = _as_csr(found, name) if self.sparse else found
        self.row_type = common_row_type([found.dtype.name])
        self.rows = int(self._array.shape[0])
        self.features = int(self._array.shape[1])
        self.total_bytes = _stored_bytes(self._array)

    def batches(self, coder: LabelCoder) -> Iterator[Batch]:
        """Slices of the array."""
        return array_batches(self._array, self.name)

    def refuse_repeated(self, stored: int) -> None:
        """Raise BadRow when an index of a sparse row occurs twice; ``stored``: values before they became CSR."""
        if self._array.nnz < stored:  # SciPy has added some up
            raise BadRow(f"{self.name}: an index occurs twice in a row, expected once; correct the matrix")
        refuse_repeated_indices(self._array, self.name)


class DaskRows(RowSource):
    """Rows of a Dask array, computed block by block in order; blocks should fit in memory."""

    def __init__(self, array: Any, options: SourceOptions) -> None:
        self.name = "Dask array"
        refuse_options(options, "a Dask array", knows=())
        if array.ndim != 2 or array.shape[1] != array.shape[1]:
            raise UsageError(
                f"Dask array of shape {array.shape}: expected (rows, features) with a known number of features"
            )
        known = array.shape[0] == array.shape[0]  # NaN: blocks of unknown length
        check_matrix((int(array.shape[0]) if known else 1, int(array.shape[1])), array.dtype, self.name)
        self._array = array.rechunk({1: -1})
        self.row_type = common_row_type([array.dtype.name])
        self.rows = int(array.shape[0]) if known else None
        self.features = int(array.shape[1])
        self.total_bytes = int(array.nbytes) if known else None

    def batches(self, coder: LabelCoder) -> Iterator[Batch]:
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
        block = compute(self._array.blocks[number], place)
        block = block if is_sparse(block) else plain_array(block, place)
        shape = tuple(block.shape)
        if len(shape) != 2 or shape[1] != self.features or (promised == promised and shape[0] != promised):
            rows = "any number of" if promised != promised else f"{promised:.0f}"
            raise DataError(
                f"{place}: found shape {shape}, expected {rows} rows of {self.features} features; correct the graph"
            )
        if block.dtype.kind not in REAL and not is_bfloat16(block.dtype):
            raise DataError(f"{place}: found values of type {block.dtype}, expected real numbers; correct the graph")
        return _as_csr(block, place) if is_sparse(block) else block


def compute(array: Any, place: str) -> Any:
    """The values of a Dask array; whatever its graph raises becomes DataError with the place."""
    try:
        return array.compute()
    except Exception as error:  # a graph runs any code
        raise DataError(f"{place}: cannot be computed: {_describe(error)}; correct the graph") from error


def _describe(error: Exception) -> str:
    """Another library's exception in one line."""
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
        if is_bfloat16(rows.dtype):
            rows = rows.astype(np.float32)
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


def refuse_repeated_indices(rows: Any, name: str, first: int = 0) -> None:
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


def is_array(batch: Any) -> bool:
    """Whether a batch is an array of two dimensions or a sparse matrix, alone or with labels."""
    rows = batch[0] if is_pair(batch) else batch
    return is_sparse(rows) or (isinstance(rows, np.ndarray) and rows.ndim == 2)


class ArrayBatches(RowSource):
    """Rows of arrays or matrices, each small enough for memory; the first one says how many features there are."""

    def __init__(self, batches: Batches, options: SourceOptions) -> None:
        self.name, self._batches = batches.name, batches
        refuse_options(options, batches.name, knows=())
        first, labels = _split_labels(batches.first)
        self.label_from = None if labels is None else "the batches"
        if labels is not None and options.unlabelled:
            raise UsageError(f"{self.name}: labels come with the rows: leave --labels and --unlabelled out")
        self.sparse, self.features = is_sparse(first), int(first.shape[1])
        self._options = options

    def batches(self, coder: LabelCoder) -> Iterator[Batch]:
        """All rows in order."""
        rows = 0
        for name, batch in self._batches.named():
            found, labels = self._part(name, batch)
            start = 0
            for part in [] if found is None else found.batches(coder):
                codes = None
                if labels is not None:
                    mine = labels[start : start + part.count]
                    codes = coder.encode_values(mine, part.place)
                start += part.count
                yield replace(part, codes=codes, done_bytes=0)
            rows += start
        if not rows:
            raise NoRows(f"{self.name}: no rows: expected at least one")

    def _part(self, name: str, batch: Any) -> tuple[ArrayRows | None, np.ndarray | None]:
        """The rows of a batch, None of one without, and its labels."""
        if not is_array(batch):
            found = type(batch[0] if is_pair(batch) else batch).__name__
            raise UsageError(f"{name}: found {found}, expected an array of two dimensions or a CSR matrix as the first")
        rows, labels = _split_labels(batch)
        if (labels is None) != (self.label_from is None):
            found, wanted = ("no labels", "labels") if labels is None else ("labels", "none")
            raise DataError(f"{name}: found {found}, expected {wanted} as in the first batch; give all of one kind")
        if rows.shape[1] != self.features:
            raise DataError(
                f"{name}: found {rows.shape[1]} features, expected {self.features} as in the first batch; give all of "
                "one kind"
            )
        column = None if labels is None else label_vector(labels, f"{name}, labels")
        if column is not None and column.shape != (rows.shape[0],):
            raise DataError(
                f"{name}: holds {rows.shape[0]:,} rows, labels of shape {column.shape}: expected as many; check both"
            )
        return ArrayRows(rows, self._options, name=name) if rows.shape[0] else None, column


def _split_labels(batch: Any) -> tuple[Any, Any]:
    return batch if is_pair(batch) else (batch, None)
