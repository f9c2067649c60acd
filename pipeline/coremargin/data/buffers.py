"""Rows in batches of any size on their way into whole chunks."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np

from coremargin.data.format import UNLABELLED
from coremargin.data.sizes import WEIGHT_DTYPE, entry_bytes
from coremargin.data.sparse import csr_slice
from coremargin.maths.rows import Rows, nothing
from coremargin.maths.rows import concatenate as stacked

if TYPE_CHECKING:
    from scipy.sparse import csr_array

Content = tuple[Rows, np.ndarray, np.ndarray | None]  #: rows (n, d), codes (n,), weights (n,) or None


class DenseBuffer:
    """One chunk of dense rows, filled in place."""

    def __init__(self, chunk_rows: int, features: int, dtype: np.dtype[Any], *, weighted: bool) -> None:
        self.chunk_rows, self.fill = chunk_rows, 0
        self._X = np.empty((chunk_rows, features), dtype=dtype)
        self._y = np.full(chunk_rows, UNLABELLED, dtype=np.int32)
        self._weights = np.empty(chunk_rows, dtype=WEIGHT_DTYPE) if weighted else None

    @property
    def full(self) -> bool:
        """No more rows fit."""
        return self.fill == self.chunk_rows

    def add(self, content: Content, start: int) -> int:
        """Copy rows from ``start`` on, as many as fit. Returns how many."""
        rows, codes, weights = content
        step = min(int(rows.shape[0]) - start, self.chunk_rows - self.fill)
        here, there = slice(self.fill, self.fill + step), slice(start, start + step)
        self._X[here], self._y[here] = rows[there], codes[there]
        if self._weights is not None and weights is not None:
            self._weights[here] = weights[there]
        self.fill += step
        return step

    def content(self) -> Content:
        """What is in it."""
        here = slice(0, self.fill)
        return self._X[here], self._y[here], None if self._weights is None else self._weights[here]

    def fresh(self, chunk_rows: int) -> DenseBuffer:
        """An empty one of its kind."""
        weighted = self._weights is not None
        return DenseBuffer(chunk_rows, self._X.shape[1], self._X.dtype, weighted=weighted)


class SparseBuffer:
    """One chunk of sparse rows, collected in parts; the number of rows of a chunk is not known at first."""

    def __init__(self, chunk_rows: int, features: int, dtype: np.dtype[Any], chunk_bytes: int | None) -> None:
        """chunk_bytes: it is full with so many bytes of values and indices, too; None: by its rows alone."""
        self.chunk_rows, self.fill = chunk_rows, 0
        self._features, self._dtype, self._chunk_bytes = features, dtype, chunk_bytes
        self._bytes = 0
        self._parts: list[Content] = []

    @property
    def full(self) -> bool:
        """No more rows are to be added."""
        return self.fill == self.chunk_rows or (self._chunk_bytes is not None and self._bytes >= self._chunk_bytes)

    def add(self, content: Content, start: int) -> int:
        """Copy rows from ``start`` on, as many as fit. Returns how many."""
        rows, codes, weights = content
        step = min(int(rows.shape[0]) - start, self.chunk_rows - self.fill)
        part: csr_array = csr_slice(rows, start, start + step).copy()
        there = slice(start, start + step)
        self._parts.append((part, codes[there].copy(), None if weights is None else weights[there].copy()))
        self.fill += step
        self._bytes += part.nnz * entry_bytes(self._dtype)
        return step

    def content(self) -> Content:
        """What is in it."""
        if not self._parts:
            return nothing(self._features, self._dtype, sparse=True), np.empty(0, np.int32), None
        if len(self._parts) > 1:
            rows, codes, weights = zip(*self._parts, strict=True)
            known = [part for part in weights if part is not None]
            self._parts = [(stacked(rows), np.concatenate(codes), np.concatenate(known) if known else None)]
        return self._parts[0]

    def fresh(self, chunk_rows: int) -> SparseBuffer:
        """An empty one of its kind, full by its rows alone."""
        return SparseBuffer(chunk_rows, self._features, self._dtype, None)
