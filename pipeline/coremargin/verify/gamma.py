"""Check the claimed gamma of a kernel or map; "scale" is 1 / (d var) of the store's numbers."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Any

import numpy as np
from scipy.sparse import issparse

from coremargin.verify.checks import Check
from coremargin.verify.sums import SLAB_ROWS
from coremargin.verify.sums import gamma as rounding

_RUN = 1 << 15  # numbers that are added to each other before they are added to a sum
_RARE = 40.0  # honest random frequencies are rejected with probability exp(-_RARE)
_CLOSE = 1e-5  # relative, of a variance that trainers combine from chunks that they do not read for it


@dataclass(frozen=True)
class Variance:
    """The variance of all numbers, including zeros that sparse rows do not store.

    count: of numbers; mean; squares: the sum of their squared distances from the mean.
    """

    count: float = 0.0
    mean: float = 0.0
    squares: float = 0.0

    @classmethod
    def of(cls, x: Any) -> Variance:
        """The variance of rows (n, d)."""
        count = float(x.shape[0]) * x.shape[1]
        stored = x.data if issparse(x) else x
        mean = float(stored.sum(dtype=np.float64)) / count
        away = stored.astype(np.float64) - mean
        return cls(count, mean, float((away * away).sum()) + (count - away.size) * mean * mean)

    def merge(self, other: Variance) -> Variance:
        """The variance of the numbers of both (Chan, Golub, LeVeque 1979)."""
        count = self.count + other.count
        move, share = other.mean - self.mean, other.count / count
        squares = self.squares + other.squares + move * move * self.count * share
        return Variance(count, self.mean + move * share, squares)

    def scale(self, features: int) -> float:
        """1 / (d var)."""
        return self.count / (features * self.squares) if self.squares > 0 else float("inf")

    def is_scale(self, gamma: float, features: int, shift: np.ndarray) -> bool:
        """Whether gamma is 1 / (d var), up to the error that plain sums leave in a mean, here and in the trainer.

        shift (d,), or none: what scaling subtracted from the columns, whose means were computed before that.
        """
        wanted = self.scale(features)
        if abs(gamma / wanted - 1.0) <= _CLOSE:
            return True
        if not (0 < gamma < np.inf and self.squares > 0):
            return False
        found, claimed = math.sqrt(self.squares / self.count), math.sqrt(1.0 / gamma / features)
        mean = abs(self.mean) + float(np.abs(shift).max(initial=0.0))
        return abs(found - claimed) <= 2 * rounding(SLAB_ROWS + 16 + int(self.count / _RUN)) * mean

    def scale_check(self, gamma: float, features: int, shift: np.ndarray) -> Check:
        """The same as a check."""
        ok, text = self.is_scale(gamma, features, shift), f"1 / (d var) of all rows is {self.scale(features):.6g}"
        return Check("gamma", ok, text if ok else f"model claims scale, {gamma:.6g}; {text}")


def frequencies_check(weights: np.ndarray, gamma: float) -> Check:
    """Whether normal numbers of variance 2 gamma may have such a sum of squares: all but one of 10^17 draws do.

    For k numbers it is 2 gamma times one of chi-squared with k degrees of freedom, which is above k + 2 sqrt(k t) + 2 t
    or below k - 2 sqrt(k t) with a probability of exp(-t) at most (Laurent, Massart 2000).
    """
    k, found = weights.size, float((weights * (weights / (2.0 * gamma))).sum())
    wide = 2.0 * math.sqrt(k * _RARE)
    text = f"frequencies have {found / k:.4g} times the mean square that gamma {gamma:.6g} gives"
    ok = k - wide <= found <= k + wide + 2.0 * _RARE
    return Check("gamma", ok, text if ok else f"{text}: they were drawn for another gamma")
