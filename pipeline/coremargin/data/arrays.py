"""Rows in memory as a source: the same protocol as a store, for small data, tests and the Python API."""

from __future__ import annotations

from dataclasses import fields
from functools import cached_property
from typing import TYPE_CHECKING, Any

import numpy as np

from coremargin.data.digest import Digested, store_digest
from coremargin.data.groups import ArrayGroups, array_groups
from coremargin.data.labels import LabelCoder
from coremargin.data.rows import as_numbers, as_rows, in_memory_dtype, refuse_rounded
from coremargin.data.sizes import CHUNK_BYTES, chunks_of, default_chunk_rows, scanned_bytes, sparse_chunk_rows
from coremargin.data.sparse import as_sparse_rows, csr_rows, csr_slice
from coremargin.data.statistics import ChunkScalars, ChunkStatistics, concatenate, measure
from coremargin.data.weights import all_weights, as_weights
from coremargin.errors import LabelError, StoreError, UsageError
from coremargin.maths.rows import as_float64, is_sparse, take

if TYPE_CHECKING:
    from coremargin.formats.columns import ColumnsRecord


class ArraySource:
    """Rows X (n, d) and labels y (n,) in memory; row ids are row numbers."""

    groups: ArrayGroups | None = None

    def __init__(  # noqa: PLR0913 - rows, what belongs to them, and how they are cut; all but one with a default
        self,
        X: Any,
        y: Any = None,
        *,
        weights: Any = None,
        groups: Any = None,
        classes: tuple[Any, ...] | None = None,
        chunk_rows: int | None = None,
        name: str | None = None,
        first: int = 0,
        columns: ColumnsRecord | None = None,
        part: bool = False,
    ) -> None:
        """X: real numbers, an array or a SciPy sparse matrix; y: labels of one kind, None or NaN where unlabelled.

        weights: one per row, finite, not negative, not all zero. classes: an order of codes to keep. float32 and
        float64 keep their precision; smaller kinds become float32; integers become float32 where that is exact and
        float64 otherwise. Sparse rows are made canonical: sorted, duplicates summed, explicit zeros dropped. Arrays are
        not copied where they fit as they are: leave them alone while in use. name, first: for messages, what the rows
        are part of, and the number of the first of them there. columns: what the features come from. part: of more
        rows, so that all of these may have weight 0. groups: the id of each row's group, a text or a whole number; rows
        of a group come one after the other, and have one weight.
        Raises BadRow, LabelError, StoreError (no rows, no features).
        """
        self.name, self.sparse, self.columns = name or "arrays", is_sparse(X), columns
        self._X = _checked_rows(X, name or "X", first)
        self.rows, self.features = self._X.shape
        coder = LabelCoder(classes or ())
        self._y = coder.encode(y, self.rows, "y")
        if classes is not None and len(coder.classes) > len(classes):
            raise LabelError(f"y: expected labels among {classes}, got also {coder.classes[len(classes) :]}")
        checked = as_weights if part else all_weights
        self._weights = None if weights is None else checked(weights, self.rows, "weights")
        self._y.flags.writeable = False
        self.dtype, self.classes = self._X.dtype, tuple(coder.classes)
        if chunk_rows is not None and chunk_rows < 1:
            raise UsageError(f"chunk_rows: expected at least 1, got {chunk_rows}")
        self.chunk_rows = chunk_rows or min(self.rows, self._default_chunk_rows())
        self.chunks = chunks_of(self.rows, self.chunk_rows)
        self.groups = None if groups is None else array_groups(groups, self._weights, self.rows, self.chunk_rows)
        parts = [Digested.of_rows(*self.read(chunk), self.weights(chunk)) for chunk in range(self.chunks)]
        self.digested = Digested.joined(parts)

    @cached_property
    def digest(self) -> str:
        """Identity of the content, that of a store of the same rows; batches that wait are not asked for theirs."""
        return store_digest(
            features=self.features,
            dtype=self.dtype.name,
            classes=self.classes,
            chunks=self.digested,
            sparse=self.sparse,
            weighted=self._weights is not None,
            groups=None if self.groups is None else self.groups.columns(),
        )

    @cached_property
    def _statistics(self) -> ChunkStatistics:
        """Counted on demand: waiting batches of ``partial_fit`` never need it."""
        classes = len(self.classes)
        parts = [measure(*self.read(chunk), classes, self.weights(chunk)) for chunk in range(self.chunks)]
        return concatenate(parts, classes)

    def __repr__(self) -> str:
        return f"ArraySource({self.rows:,} rows, {self.features:,} features, {len(self.classes)} classes)"

    def _default_chunk_rows(self) -> int:
        if not self.sparse:
            return default_chunk_rows(self.features, self.dtype.name, CHUNK_BYTES)
        return sparse_chunk_rows(self.rows, self._X.nnz, self.dtype.name, CHUNK_BYTES)

    @property
    def nbytes(self) -> int:
        """Bytes of all rows, labels and weights, as those of a store are counted."""
        weighted, itemsize = self._weights is not None, self.dtype.itemsize
        if self.sparse:
            nonzeros = int(self.digested.nonzeros.sum())
            return scanned_bytes(self.rows, itemsize, nonzeros=nonzeros, weighted=weighted)
        return scanned_bytes(self.rows, self.features * itemsize, weighted=weighted)

    def span(self, chunk: int) -> tuple[int, int]:
        """Row ids ``[start, stop)`` of a chunk."""
        if not 0 <= chunk < self.chunks:
            raise IndexError(f"{self.name}: expected a chunk from 0 to {self.chunks - 1}, got {chunk}")
        return chunk * self.chunk_rows, min(self.rows, (chunk + 1) * self.chunk_rows)

    def read(self, chunk: int) -> tuple[Any, np.ndarray]:
        """Rows (n, d), an array or csr_array, and codes (n,) int32 of a chunk, read-only."""
        start, stop = self.span(chunk)
        rows = csr_slice(self._X, start, stop) if self.sparse else self._X[start:stop]
        return rows, self._y[start:stop]

    def in_memory(self, chunk: int) -> bool:
        """Always."""
        return True

    def labels(self, chunk: int) -> np.ndarray:
        """Codes (n,) int32 of a chunk, read-only, without its rows."""
        return self._y[slice(*self.span(chunk))]

    def weights(self, chunk: int) -> np.ndarray | None:
        """Sample weights (n,) float64 of a chunk; None: all are 1."""
        start, stop = self.span(chunk)
        return None if self._weights is None else self._weights[start:stop]

    def rows_at(self, ids: np.ndarray) -> tuple[Any, np.ndarray]:
        """Rows (m, d) float64, an array or csr_array, and codes (m,) int32 of the row ids, in the order given."""
        ids = checked_ids(ids, self.rows, self.name)
        return as_float64(take(self._X, ids)), self._y[ids]

    def statistics(self, start: int = 0, stop: int | None = None) -> ChunkStatistics:
        """What was counted, per chunk of [start, stop)."""
        known = self._statistics
        return ChunkStatistics(**{field.name: getattr(known, field.name)[start:stop] for field in fields(known)})

    def scalars(self) -> ChunkScalars:
        """The entries of ``statistics`` that are a number per chunk or per class and chunk."""
        return self._statistics.scalars

    def centres(self, start: int = 0, stop: int | None = None) -> np.ndarray:
        """Mean rows (stop - start, d) float64 of the chunks [start, stop)."""
        centres = self._statistics.centre[start:stop]
        return centres.toarray() if is_sparse(centres) else np.asarray(centres)

    def handle(self) -> ArraySource:
        """Itself: arrays have no other place to be fetched from."""
        return self


def _checked_rows(X: Any, place: str, first: int) -> Any:
    """Finite rows (n, d) float32 or float64, C order or canonical CSR, read-only; at least one row and one feature."""
    X = X if is_sparse(X) else as_numbers(X, place)
    if len(X.shape) == 2 and 0 in X.shape:
        raise StoreError(f"{place}: expected at least one row and one feature, got shape {X.shape}")
    if is_sparse(X):
        plain = isinstance(getattr(X, "data", None), np.ndarray) and X.data.dtype != object
        values = X.data if plain else X.tocsr().data  # dictionaries and lists of lists keep theirs elsewhere
        refuse_rounded(X, place, first)
        rows = as_sparse_rows(X, dtype=in_memory_dtype(values.reshape(1, -1), place), place=place, first=first)
        return read_only(rows)
    refuse_rounded(X, place, first)
    rows = as_rows(X, dtype=in_memory_dtype(X, place), place=place, first=first)
    dense = np.ascontiguousarray(rows).view()  # the caller's stays writable
    dense.flags.writeable = False
    return dense


def read_only(rows: Any) -> Any:
    """The same canonical CSR rows with arrays that cannot be written to; the caller's stay as they are."""
    parts = [part.view() for part in (rows.data, rows.indices, rows.indptr)]
    for part in parts:
        part.flags.writeable = False
    return csr_rows(parts[0], parts[1], parts[2], rows.shape[1])


def checked_ids(ids: np.ndarray, rows: int, name: str) -> np.ndarray:
    """Row ids (m,) as int64, all of them rows of the source; UsageError otherwise."""
    ids = np.asarray(ids)
    if ids.ndim != 1 or (ids.size and ids.dtype.kind not in "iu"):
        raise UsageError(f"{name}: expected row ids as a vector of whole numbers, got {ids.dtype} of shape {ids.shape}")
    ids = ids.astype(np.int64)
    if ids.size and (ids.min() < 0 or ids.max() >= rows):
        raise UsageError(f"{name}: expected row ids from 0 to {rows - 1}, got {ids.min()} to {ids.max()}")
    return ids
