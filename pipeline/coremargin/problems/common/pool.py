"""The pool: candidate rows in the driver's memory, bounded."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from coremargin.maths.rows import Rows, as_float64, concatenate, from_arrays, nothing, take, to_arrays

if TYPE_CHECKING:
    from collections.abc import Mapping

    from coremargin.maths.margin import Array


@dataclass(frozen=True)
class Pool:
    """Rows in order of ids: ids (m,) int64, rows (m, d) float64, signs (m,) int8, weights (m,) of the last solve.

    The rows are dense or sparse, as the source has them.
    """

    ids: NDArray[np.int64]
    rows: Rows
    signs: NDArray[np.int8]
    weights: Array

    @classmethod
    def nothing(cls, features: int, *, sparse: bool = False) -> Pool:
        """An empty pool."""
        return cls(np.zeros(0, np.int64), nothing(features, sparse=sparse), np.zeros(0, np.int8), np.zeros(0))

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

    def add(self, ids: NDArray[np.int64], rows: Rows, signs: NDArray[np.int8]) -> Pool:
        """With these rows too (weight zero); rows that are here already are passed over."""
        fresh = np.isin(ids, self.ids, invert=True)
        all_ids = np.concatenate([self.ids, ids[fresh]])
        order = np.argsort(all_ids, kind="stable")
        return Pool(
            all_ids[order],
            take(concatenate([self.rows, as_float64(take(rows, fresh))]), order),
            np.concatenate([self.signs, signs[fresh]])[order],
            np.concatenate([self.weights, np.zeros(int(fresh.sum()))])[order],
        )

    def take(self, positions: NDArray[np.intp]) -> Pool:
        """Only the rows at these positions (increasing)."""
        return Pool(self.ids[positions], take(self.rows, positions), self.signs[positions], self.weights[positions])

    def to_arrays(self, name: str) -> dict[str, NDArray[Any]]:
        """Plain arrays ``NAME_ids``, ``NAME_rows`` or its parts, and so on; exact."""
        plain = {f"{name}_{field}": getattr(self, field) for field in ("ids", "signs", "weights")}
        return plain | to_arrays(f"{name}_rows", self.rows)

    @classmethod
    def from_arrays(cls, name: str, arrays: Mapping[str, NDArray[Any]]) -> Pool:
        """Inverse of ``to_arrays``."""
        ids, signs, weights = (arrays[f"{name}_{field}"] for field in ("ids", "signs", "weights"))
        return cls(ids, from_arrays(f"{name}_rows", arrays), signs, weights)

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
