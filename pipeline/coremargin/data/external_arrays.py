"""Rows that lie elsewhere as a source: Dask arrays, Zarr arrays, anything with a shape and slices of rows.

Nothing of them is held but the labels' codes (4 bytes a row) and what was counted: every chunk is computed or decoded
when it is read, and again in the next scan. Neither Dask nor Zarr is imported here: their arrays are met, not needed.
"""

from __future__ import annotations

import os
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import numpy as np

from coremargin.data.arrays import ArraySource, checked_ids, read_only
from coremargin.data.digest import Digested
from coremargin.data.labels import LabelCoder
from coremargin.data.rows import as_rows, refuse_rounded
from coremargin.data.sizes import CHUNK_BYTES, chunks_of, default_chunk_rows
from coremargin.data.sparse import as_sparse_rows
from coremargin.data.statistics import ChunkStatistics, chunk_digest, chunk_marks, concatenate, measure
from coremargin.data.weights import all_weights
from coremargin.errors import DamagedChunk, StoreError, UsageError
from coremargin.maths.rows import as_float64, nothing, take
from coremargin.maths.rows import concatenate as concatenate_rows


class LazySource(ArraySource):
    """Rows X (n, d) that are read in slices, and labels y (n,); row ids are row numbers.

    Made by one pass over X, which counts what ingest counts for a store (``measure``). A chunk is a run of whole blocks
    of X, of 8 MiB or one block, whichever is larger; where blocks differ in length, those that cross the end of a chunk
    are read for both. Only this process reads them: a scheduler that X belongs to computes for itself.
    """

    def __init__(
        self,
        X: Any,
        y: Any,
        *,
        weights: Any = None,
        classes: tuple[Any, ...] | None = None,
        chunk_rows: int | None = None,
    ) -> None:
        """X: two dimensions, real numbers, slices by rows; y: labels of one kind, weights: as for ``ArraySource``.

        y and weights are arrays of any of these kinds and are read at once. float32 and smaller kinds of X are read as
        float32, all others as float64. classes: an order of codes to keep. chunk_rows: rows read at a time, instead of
        the choice above.
        Raises UsageError (shape, blocks of unknown length), BadRow, LabelError, StoreError (no rows, no features).
        """
        self.name, self.columns = f"{type(X).__module__.split('.')[0]} array", None
        self.rows, self.features = _shape(X, self.name)
        self.sparse = hasattr(getattr(X, "_meta", None), "tocsr")
        self._weights = None if weights is None else all_weights(at_once(weights), self.rows, "weights")
        self._X, self.dtype = X, _precision(X, self.name)
        coder = LabelCoder(classes or ())
        self._y = coder.encode(at_once(y), self.rows, "y")
        self._y.flags.writeable = False
        self.classes = tuple(coder.classes)
        self.chunk_rows = min(self.rows, chunk_rows or self._whole_blocks())
        self.chunks = chunks_of(self.rows, self.chunk_rows)
        with ThreadPoolExecutor(min(self.chunks, os.cpu_count() or 1)) as threads:
            self._statistics = concatenate(list(threads.map(self._measured, range(self.chunks))), len(self.classes))
        self.digested = Digested.of(self._statistics)

    def __repr__(self) -> str:
        return f"LazySource({self.name}, {self.rows:,} rows, {self.features:,} features, {len(self.classes)} classes)"

    def read(self, chunk: int) -> tuple[Any, np.ndarray]:
        """Rows (n, d), an array or csr_array, and codes (n,) int32 of a chunk, read-only.

        Raises DamagedChunk when they are not what they were in the first pass: then no two scans are about the same.
        """
        rows, codes = self._fetched(chunk)
        same = chunk_digest(rows, codes) == int(self._statistics.digest[chunk])
        if not same or (chunk_marks(rows, self.weights(chunk)) != self._statistics.marks[chunk]).any():
            first, last = self.span(chunk)[0], self.span(chunk)[1] - 1
            raise DamagedChunk(
                f"{self.name}, rows {first} to {last}: expected the values of the first reading, got others; "
                f"keep it with .persist(), or ingest it into a store"
            )
        return rows, codes

    def rows_at(self, ids: np.ndarray) -> tuple[Any, np.ndarray]:
        """Rows (m, d) float64 and codes (m,) int32 of the given row ids, in the order given; each chunk read once."""
        ids = checked_ids(ids, self.rows, self.name)
        order = np.argsort(ids, kind="stable")
        chunks, starts = np.unique(ids[order] // self.chunk_rows, return_index=True)
        found = [nothing(self.features, sparse=self.sparse)]
        for chunk, mine in zip(chunks.tolist(), np.split(ids[order], starts[1:]), strict=False):
            found.append(as_float64(take(self.read(chunk)[0], mine - chunk * self.chunk_rows)))
        return take(concatenate_rows(found), np.argsort(order)), self._y[ids]

    def _fetched(self, chunk: int) -> tuple[Any, np.ndarray]:
        start, stop = self.span(chunk)
        part = computed(self._X[start:stop])
        refuse_rounded(part, self.name, start)
        facts = {"dtype": self.dtype, "place": self.name, "features": self.features, "first": start}
        if self.sparse:
            rows = read_only(as_sparse_rows(part, **facts))
        else:
            rows = np.ascontiguousarray(as_rows(part, **facts)).view()
            rows.flags.writeable = False
        if rows.shape[0] != stop - start:
            raise UsageError(f"{self.name}: expected {stop - start} rows from row {start}, got {rows.shape[0]}")
        return rows, self._y[start:stop]

    def _whole_blocks(self) -> int:
        """Rows of as many whole blocks as a chunk of a store holds bytes; at least those of the longest block.

        Blocks of sparse rows stay as they are: how many bytes they have is not known yet.
        """
        X = self._X
        along = (getattr(X, "shards", None) or X.chunks or (1,))[0]  # Zarr: a number; Dask: the lengths of all blocks
        block = max(1, int(max(along) if isinstance(along, tuple) else along))
        most = 0 if self.sparse else default_chunk_rows(self.features, self.dtype.name, CHUNK_BYTES)
        return block * max(1, most // block)

    def _measured(self, chunk: int) -> ChunkStatistics:
        return measure(*self._fetched(chunk), len(self.classes), self.weights(chunk))


def computed(part: Any) -> Any:
    """A slice as an array, or a SciPy sparse matrix: of a Dask array computed, of a Zarr array decoded."""
    part = part.compute() if hasattr(part, "compute") else part
    return part if hasattr(part, "tocsr") else np.asarray(part)


def is_lazy(X: Any) -> bool:
    """True for rows in blocks that are computed or decoded when they are sliced: Dask arrays, Zarr arrays."""
    return not isinstance(X, np.ndarray) and all(hasattr(X, name) for name in ("shape", "dtype", "chunks", "ndim"))


def _shape(X: Any, name: str) -> tuple[int, int]:
    if X.ndim != 2:
        raise UsageError(f"{name}: expected rows and features, got an array of shape {tuple(X.shape)}")
    if any(size != size for size in X.shape):  # Dask's NaN: not known before it is computed
        raise UsageError(
            f"{name} of shape {tuple(X.shape)}: expected blocks of known length; call X.compute_chunk_sizes() first"
        )
    rows, features = (int(size) for size in X.shape)
    if rows == 0 or features == 0:
        raise StoreError(f"{name}: expected at least one row and one feature, got shape ({rows}, {features})")
    return rows, features


def _precision(X: Any, name: str) -> np.dtype[Any]:
    dtype = np.dtype(X.dtype)
    if dtype.kind not in "biuf":
        raise UsageError(f"{name}: expected real numbers, got values of type {dtype}; convert the columns first")
    exact = dtype.itemsize <= (4 if dtype.kind == "f" else 2)
    return np.dtype(np.float32 if exact else np.float64)


def at_once(values: Any) -> Any:
    """All labels, or weights, as they are or computed."""
    return computed(values[:]) if is_lazy(values) else values
