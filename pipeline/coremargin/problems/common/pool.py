"""The pool: candidate rows in the driver's memory, bounded."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np
from numpy.typing import NDArray

from coremargin.maths.rows import as_float64, is_sparse
from coremargin.problems.common.driver_rows import SignedRows
from coremargin.problems.common.ids import among

if TYPE_CHECKING:
    from coremargin.maths.margin import Array
    from coremargin.maths.rows import Rows
    from coremargin.problems.common.sent import SentRows


@dataclass(frozen=True)
class Pool(SignedRows):
    """Rows in the order in which they came: ids (m,) int64, rows (m, d), signs (m,) int8.

    weights (m,): the dual weights of the last solve. Rows are dense, in the source's precision, or sparse, in float64,
    which saves copies where they are multiplied.
    """

    weights: Array

    @property
    def both_classes(self) -> bool:
        """True when rows of both signs are here."""
        return bool((self.signs > 0).any() and (self.signs < 0).any())

    @property
    def support(self) -> NDArray[np.intp]:
        """Positions of the rows with non-zero weight."""
        return np.flatnonzero(self.weights > 0)

    def add(self, coming: SentRows) -> Pool:
        """With these rows too (weight zero); rows that are here already are passed over."""
        fresh = coming.where(~among(coming.ids, self.ids))
        if not len(fresh) and len(self):
            return self
        return Pool.joined([self, *(Pool.of(*part) for part in fresh.parts)])

    @classmethod
    def of(cls, ids: NDArray[np.int64], rows: Rows, signs: NDArray[np.int8]) -> Pool:
        """Rows of weight zero."""
        return cls(ids, as_float64(rows) if is_sparse(rows) else rows, signs, np.zeros(len(ids)))

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
