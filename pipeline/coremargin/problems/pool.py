"""The pool: candidate rows in the driver's memory, bounded."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

if TYPE_CHECKING:
    from coremargin.maths.margin import Array


@dataclass(frozen=True)
class Pool:
    """Rows in order of ids: ids (m,) int64, rows (m, d) float64, signs (m,) int8, weights (m,) of the last solve."""

    ids: NDArray[np.int64]
    rows: Array
    signs: NDArray[np.int8]
    weights: Array

    @classmethod
    def nothing(cls, features: int) -> Pool:
        """An empty pool."""
        return cls(np.zeros(0, np.int64), np.zeros((0, features)), np.zeros(0, np.int8), np.zeros(0))

    def __len__(self) -> int:
        return len(self.ids)

    @property
    def both_classes(self) -> bool:
        """True when rows of both signs are here."""
        return bool((self.signs > 0).any() and (self.signs < 0).any())

    @property
    def support(self) -> NDArray[np.intp]:
        """Positions of the rows with non-zero weight."""
        return np.flatnonzero(self.weights > 0)

    def add(self, ids: NDArray[np.int64], rows: NDArray[np.floating[Any]], signs: NDArray[np.int8]) -> Pool:
        """With these rows too (weight zero); rows that are here already are passed over."""
        fresh = np.isin(ids, self.ids, invert=True)
        all_ids = np.concatenate([self.ids, ids[fresh]])
        order = np.argsort(all_ids, kind="stable")
        return Pool(
            all_ids[order],
            np.concatenate([self.rows, rows[fresh].astype(np.float64)])[order],
            np.concatenate([self.signs, signs[fresh]])[order],
            np.concatenate([self.weights, np.zeros(int(fresh.sum()))])[order],
        )

    def take(self, positions: NDArray[np.intp]) -> Pool:
        """Only the rows at these positions (increasing)."""
        return Pool(self.ids[positions], self.rows[positions], self.signs[positions], self.weights[positions])

    def weighted(self, weights: Array) -> Pool:
        """The same rows with other weights."""
        return Pool(self.ids, self.rows, self.signs, weights)

    def lowest(self, margins: Array, limit: int) -> NDArray[np.intp]:
        """Positions (increasing) of at most ``limit`` rows: those with weight always, then the lowest margins."""
        if len(self) <= limit:
            return np.arange(len(self))
        rank = np.where(self.weights > 0, -np.inf, margins)
        keep = max(limit, int((self.weights > 0).sum()))
        return np.sort(np.lexsort([self.ids, rank])[:keep])
