"""The variance of all numbers of a store, zeros that sparse rows do not name included: what gamma "scale" is about."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Any

import numpy as np
from scipy.sparse import issparse

from coremargin.verify.sums import SLAB_ROWS
from coremargin.verify.sums import gamma as rounding

_RUN = 1 << 15  # numbers that are added to each other before they are added to a sum
_CLOSE = 1e-5  # of a variance that trainers combine from chunks, of rows that they do not read for it


@dataclass(frozen=True)
class Spread:
    """count: of numbers; mean; squares: the sum of their squared distances from the mean."""

    count: float
    mean: float
    squares: float

    @classmethod
    def nothing(cls) -> Spread:
        """Of no number."""
        return cls(0.0, 0.0, 0.0)

    @classmethod
    def of(cls, x: Any) -> Spread:
        """Of rows (n, d)."""
        count = float(x.shape[0]) * x.shape[1]
        named = x.data if issparse(x) else x
        mean = float(named.sum(dtype=np.float64)) / count
        away = named.astype(np.float64) - mean
        return cls(count, mean, float((away * away).sum()) + (count - away.size) * mean * mean)

    def joined(self, other: Spread) -> Spread:
        """Of both (Chan, Golub, LeVeque 1979)."""
        count = self.count + other.count
        move, share = other.mean - self.mean, other.count / count
        squares = self.squares + other.squares + move * move * self.count * share
        return Spread(count, self.mean + move * share, squares)

    def is_scale(self, gamma: float, features: int, moved: np.ndarray) -> bool:
        """Whether gamma is 1 / (d var), up to what a mean may be off, here and where it was made, by plain sums.

        moved (d,), or none: what scaling has taken from the columns, whose means were made before that.
        """
        wanted = self.scale(features)
        if abs(gamma / wanted - 1.0) <= _CLOSE:
            return True
        if not (0 < gamma < np.inf and self.squares > 0):
            return False
        found, claimed = math.sqrt(self.squares / self.count), math.sqrt(1.0 / gamma / features)
        mean = abs(self.mean) + float(np.abs(moved).max(initial=0.0))
        return abs(found - claimed) <= 2 * rounding(SLAB_ROWS + 16 + int(self.count / _RUN)) * mean

    def scale(self, features: int) -> float:
        """1 / (d var)."""
        return self.count / (features * self.squares) if self.squares > 0 else float("inf")
