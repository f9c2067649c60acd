"""Rows in memory as a source: the same protocol as a store, for small data, tests and the Python API."""

from __future__ import annotations

from dataclasses import fields
from typing import Any

import numpy as np

from coremargin.data.format import CHUNK_BYTES, chunks_of, default_chunk_rows, store_digest
from coremargin.data.labels import LabelCoder
from coremargin.data.rows import as_rows, in_memory_dtype
from coremargin.data.statistics import ChunkScalars, ChunkStatistics, concatenate, measure
from coremargin.errors import LabelError, StoreError, UsageError


class ArraySource:
    """Rows X (n, d) and labels y (n,) in memory; row ids are row numbers."""

    def __init__(
        self, X: Any, y: Any = None, *, classes: tuple[Any, ...] | None = None, chunk_rows: int | None = None
    ) -> None:
        """X: any real numbers; y: labels of one kind, None or NaN where unlabelled; classes: an order of codes to keep.

        float32 and float64 keep their precision; smaller kinds become float32; integers become float32 where that is
        exact and float64 otherwise. Arrays are not copied where they fit as they are: leave them alone while in use.
        Raises BadRow, LabelError, StoreError (no rows, no features).
        """
        self.name = "arrays"
        dtype = in_memory_dtype(X)
        rows = as_rows(X, dtype=dtype, place="X")
        if rows.shape[0] == 0 or rows.shape[1] == 0:
            raise StoreError(f"X: expected at least one row and one feature, got shape {rows.shape}")
        coder = LabelCoder(classes or ())
        codes = coder.encode(y, len(rows), "y")
        if classes is not None and len(coder.classes) > len(classes):
            raise LabelError(f"y: expected labels among {classes}, got also {coder.classes[len(classes) :]}")
        self._X, self._y = np.ascontiguousarray(rows).view(), codes  # a view: the caller's array stays writable
        self._X.flags.writeable = self._y.flags.writeable = False
        self.rows, self.features = self._X.shape
        self.dtype, self.classes = self._X.dtype, tuple(coder.classes)
        if chunk_rows is not None and chunk_rows < 1:
            raise UsageError(f"chunk_rows: expected at least 1, got {chunk_rows}")
        self.chunk_rows = chunk_rows or min(self.rows, default_chunk_rows(self.features, self.dtype.name, CHUNK_BYTES))
        self.chunks = chunks_of(self.rows, self.chunk_rows)
        parts = [measure(*self.read(chunk), len(self.classes)) for chunk in range(self.chunks)]
        self._statistics = concatenate(parts, len(self.classes))
        self.digest = store_digest(
            features=self.features,
            dtype=self.dtype.name,
            classes=self.classes,
            rows=self._statistics.rows.tolist(),
            digests=self._statistics.digest.tolist(),
        )

    def __repr__(self) -> str:
        return f"ArraySource({self.rows:,} rows, {self.features:,} features, {len(self.classes)} classes)"

    @property
    def nbytes(self) -> int:
        """Bytes of all rows and labels."""
        return self._X.nbytes + self._y.nbytes

    def span(self, chunk: int) -> tuple[int, int]:
        """Row ids ``[start, stop)`` of a chunk."""
        if not 0 <= chunk < self.chunks:
            raise IndexError(f"{self.name}: expected a chunk from 0 to {self.chunks - 1}, got {chunk}")
        return chunk * self.chunk_rows, min(self.rows, (chunk + 1) * self.chunk_rows)

    def read(self, chunk: int) -> tuple[np.ndarray, np.ndarray]:
        """Rows (n, d) and codes (n,) int32 of a chunk, read-only."""
        start, stop = self.span(chunk)
        return self._X[start:stop], self._y[start:stop]

    def labels(self, chunk: int) -> np.ndarray:
        """Codes (n,) int32 of a chunk, read-only, without its rows."""
        return self._y[slice(*self.span(chunk))]

    def rows_at(self, ids: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        """Rows (m, d) float64 and codes (m,) int32 of the given row ids, in the order given."""
        ids = checked_ids(ids, self.rows, self.name)
        return self._X[ids].astype(np.float64), self._y[ids]

    def statistics(self, start: int = 0, stop: int | None = None) -> ChunkStatistics:
        """What was counted, per chunk of [start, stop)."""
        known = self._statistics
        return ChunkStatistics(**{field.name: getattr(known, field.name)[start:stop] for field in fields(known)})

    def scalars(self) -> ChunkScalars:
        """The entries of ``statistics`` that are a number per chunk or per class and chunk."""
        return ChunkScalars(**{field.name: getattr(self._statistics, field.name) for field in fields(ChunkScalars)})

    def centres(self, start: int = 0, stop: int | None = None) -> np.ndarray:
        """Mean rows (stop - start, d) float64 of the chunks [start, stop)."""
        return self._statistics.centre[start:stop]

    def handle(self) -> ArraySource:
        """Itself: arrays have no other place to be fetched from."""
        return self


def checked_ids(ids: np.ndarray, rows: int, name: str) -> np.ndarray:
    """Row ids (m,) as int64, all of them rows of the source; UsageError otherwise."""
    ids = np.asarray(ids)
    if ids.ndim != 1 or (ids.size and ids.dtype.kind not in "iu"):
        raise UsageError(f"{name}: expected row ids as a vector of whole numbers, got {ids.dtype} of shape {ids.shape}")
    ids = ids.astype(np.int64)
    if ids.size and (ids.min() < 0 or ids.max() >= rows):
        raise UsageError(f"{name}: expected row ids from 0 to {rows - 1}, got {ids.min()} to {ids.max()}")
    return ids
