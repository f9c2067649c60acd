"""The Bayes point by expectation propagation (Minka 2001, section 5: a step for each row, a normal prior).

The prior N(0, I) is rotationally symmetric like the ball, so that within the planes both have their centre of gravity
in the same direction; the result is scaled to the length for the ball. Each row's step function is replaced by a normal
factor, and factors are refined in turn until none changes. It is an approximation: exact for orthogonal planes, some
degrees off for others.
"""

from __future__ import annotations

import math
from typing import TYPE_CHECKING

import numpy as np
from numpy.typing import NDArray
from scipy.special import gammaln, log_ndtr

if TYPE_CHECKING:
    from coremargin.maths.active.version_space import VersionSpace
    from coremargin.maths.margin import Array

#: Iterations end when all factors change by less than SETTLED, or after ROUNDS rounds.
SETTLED, ROUNDS = 1e-5, 200
#: A factor leaves at least this share of a variance, because of rounding at very unlikely rows.
LEAST_VARIANCE = 1e-12


def bayes_point(space: VersionSpace) -> Array:
    """The mean (q,) of the unit ball within the planes, by EP."""
    q = space.dimensions
    mean = expectation(space.planes)[0]
    normal = math.sqrt(2.0) * math.exp(gammaln((q + 1) / 2) - gammaln(q / 2))  # the mean length under N(0, I)
    return np.asarray(mean * (q / (q + 1)) / normal)


def expectation(planes: Array) -> tuple[Array, Array]:
    """Mean (q,) and covariance (q, q) of N(0, I) within {v: a.v >= 0 for all planes (m, q)}, by EP."""
    m, q = planes.shape
    precisions, shifts = np.zeros(m), np.zeros(m)
    mean: Array = np.zeros(q)
    spread: NDArray[np.floating] = np.eye(q)
    for _ in range(ROUNDS):
        before = precisions.copy()
        for k, plane in enumerate(planes):
            along = spread @ plane
            variance, place = float(plane @ along), float(plane @ mean)
            precision, shift = _factor(variance, place, float(precisions[k]), float(shifts[k]))
            more = precision - precisions[k]
            spread -= np.outer(along, along) * (more / (1.0 + more * variance))
            mean = mean + along * ((shift - shifts[k] - more * place) / (1.0 + more * variance))
            precisions[k], shifts[k] = precision, shift
        spread = np.linalg.inv(np.eye(q) + (planes.T * precisions) @ planes)  # without update errors
        mean = spread @ (planes.T @ shifts)
        if np.abs(precisions - before).max() <= SETTLED * precisions.max():
            break
    return mean, np.asarray(spread)


def _factor(variance: float, place: float, precision: float, shift: float) -> tuple[float, float]:
    """Precision and shift of the normal factor of a step function; N(place, variance) includes the old factor.

    Without the old factor the mean is c and the variance s; the part above 0 of that normal distribution has the mean
    c + sqrt(s) r and the variance s (1 - r (z + r)), z = c / sqrt(s), r = N(z) / Phi(z).
    """
    rest, push = 1.0 / variance - precision, place / variance - shift
    z = push / math.sqrt(rest)
    r = math.exp(-z * z / 2 - float(log_ndtr(z))) / math.sqrt(2.0 * math.pi)
    mean = (push / math.sqrt(rest) + r) / math.sqrt(rest)
    left = max(1.0 - r * (z + r), LEAST_VARIANCE) / rest
    return 1.0 / left - rest, mean / left - push
