"""The rows whose labels are known, with the dual weights that they have in each hyperplane."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np
from numpy.typing import NDArray

from coremargin.maths.rows import as_float64, nothing, take
from coremargin.problems.common.driver_rows import DriverRows, WorkingSet

if TYPE_CHECKING:
    from coremargin.maths.margin import Array
    from coremargin.maths.rows import Rows


@dataclass(frozen=True)
class Answered(DriverRows):
    """Rows in order of ids: rows (m, d) float64, codes (m,) int32 of their classes, weights (m, k) of the last solve.

    Of two classes one hyperplane (k = 1) has the second on its positive side; of more each has one for itself.
    """

    codes: NDArray[np.int32]
    weights: Array

    @classmethod
    def nothing(cls, features: int, planes: int, *, sparse: bool = False) -> Answered:
        """No answers."""
        return cls(
            np.zeros(0, np.int64), nothing(features, sparse=sparse), np.zeros(0, np.int32), np.zeros((0, planes))
        )

    @property
    def planes(self) -> int:
        """How many hyperplanes there are."""
        return int(self.weights.shape[1])

    @property
    def seen(self) -> NDArray[np.int32]:
        """The classes that there are answers of."""
        return np.unique(self.codes)

    @property
    def both_classes(self) -> bool:
        """True when there are answers of two classes, or of more."""
        return len(self) > 0 and bool((self.codes != self.codes[0]).any())

    @property
    def support(self) -> NDArray[np.intp]:
        """Positions of the rows with a weight in any hyperplane."""
        return np.flatnonzero((self.weights > 0).any(axis=1))

    def add(self, ids: NDArray[np.int64], rows: Rows, codes: NDArray[np.int32]) -> Answered:
        """With these rows too (weight zero); rows that are here already are passed over."""
        fresh = np.isin(ids, self.ids, invert=True)
        weights = np.zeros((int(fresh.sum()), self.planes))
        coming = Answered(ids[fresh], as_float64(take(rows, fresh)), codes[fresh].astype(np.int32), weights)
        return Answered.concatenate([self, coming]).in_order()

    def weighted(self, weights: Array) -> Answered:
        """The same rows with other weights (m, k)."""
        return Answered(self.ids, self.rows, self.codes, weights)

    def signs(self, plane: int) -> NDArray[np.int8]:
        """On which side of a hyperplane they are to lie, 1 or -1."""
        positive = self.codes == (1 if self.planes == 1 else plane)
        return np.where(positive, 1, -1).astype(np.int8)

    def against(self, plane: int) -> WorkingSet:
        """As one hyperplane has them."""
        return WorkingSet(self.ids, self.rows, self.signs(plane), self.weights[:, plane])
