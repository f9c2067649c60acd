"""Bounds that a machine on the working set proves: the lower one from its duals, the upper one from a scan.

For duals a with 0 <= a_i <= c_i (hinge) or 0 <= a_i (squared hinge, hard margin) and r = sum y_i a_i, the value of
every (f, b) is at least

    sum a - 1/2 ||sum a y k(x, .)||^2 - sum a^2 / (4 c) (squared hinge)  -  |r| |b|

since the Lagrangian whose minimum this is contains - r b. Some optimal b is at most 1 + max |f(x_i)|: beyond that, one
class has no loss, and b may move back. Moreover |f(x)| <= ||f|| sqrt(k(x, x)), and 1/2 ||f||^2 is at most the value of
any hypothesis. So an r that float64 leaves near 0 costs little, and no dual has to be changed. All bounds are rounded
outward.

With a relative margin B a dual may be any number, and the first term is sum phi(a) (maths/relative_margin.py) in place
of sum a: the minimum of the Lagrangian over all functions within the bound. Each of these has |b| <= B + max |f(x_i)|.
"""

from __future__ import annotations

import math
from functools import partial
from typing import TYPE_CHECKING

import numpy as np
from numpy.typing import NDArray

from coremargin.maths.breakdown import exact_sum
from coremargin.maths.kernel.functions import relocate_faults
from coremargin.maths.relative_margin import phi

if TYPE_CHECKING:
    from coremargin.maths.kernel.functions import Kernel, Lengths, Points
    from coremargin.maths.kernel.machine import Side

Array = NDArray[np.float64]

EPS = float(np.finfo(np.float64).eps)
#: Share by which bounds are widened, so that a verifier with rounding errors of its own confirms them even where kernel
#: values have nearly none.
WIDENED = 128 * EPS


def squared_norm(kernel: Kernel, points: Points, weights: Array, lengths: Lengths) -> tuple[float, float]:
    """||sum_j weights_j k(z_j, .)||^2 of rows (m, d) with weights (m,), and a bound on its rounding error.

    lengths: of the rows of this function and those next to it. Raises KernelFault.
    """
    used = np.flatnonzero(weights)
    some, own = points.take(used), weights[used]
    values = relocate_faults(partial(kernel.sums, some, some, own[:, None]), used)
    size = np.array([np.abs(own).sum()])
    errors = kernel.sums_error(some, lengths, size, len(used))
    exact = exact_sum((own * values[:, 0]).tolist())
    lost = float(np.abs(own) @ (errors[:, 0] + EPS * np.abs(values[:, 0])))
    return max(0.0, exact), kernel.SAFETY * lost


def lower_bound(side: Side, duals: Array, norm: tuple[float, float], reach: float, value: float) -> float:
    """The lower bound of feasible duals (p,); norm: their ``squared_norm``.

    reach: a bound on sqrt(k(x, x)) of all rows; value: of any hypothesis over all rows, infinite if not yet known.
    """
    used = np.flatnonzero(duals)
    own, signs, beyond = duals[used], side.signs[used], 1.0
    total = sizes = exact_sum(own.tolist())
    if math.isfinite(side.bound):
        beyond, costs = side.bound, side.costs[used]
        total = exact_sum(phi(own, costs, beyond).tolist())
        outer = (own < 0) | (own > costs * (1.0 - WIDENED))  # where phi multiplies rounding by the bound
        sizes = exact_sum(np.where(outer, beyond * (np.abs(own) + costs), own).tolist())
    curved = exact_sum((0.5 * (side.ridge[used] * own) * own).tolist())
    residual = abs(exact_sum((signs * own).tolist())) if side.intercept else 0.0
    largest = beyond + math.sqrt(2.0 * value) * reach if residual else 0.0
    rounded = WIDENED * (sizes + norm[0] + curved)
    return float(total - 0.5 * (norm[0] + norm[1]) - curved - 2.0 * residual * largest - rounded)


def upper_bound(norm: tuple[float, float], losses: float, smallest: float, rows: int, *, hard: bool) -> float:
    """The value of a hypothesis, from its losses over ``rows`` rows, or for a hard margin from its smallest margin.

    norm: as for ``lower_bound``.
    """
    length = norm[0] + norm[1]
    if hard:
        ratio = math.sqrt(length) / smallest if smallest > 0 else math.inf
        return 0.5 * ratio * ratio * (1 + WIDENED)
    return (0.5 * length + losses * (1 + (rows + 64) * EPS)) * (1 + WIDENED)


def claimed_bounds(lower: Array, upper: Array, *, hard: bool) -> tuple[Array, Array]:
    """The bounds (k,) that a record claims: of values, or for a hard margin of margins; NaN where nothing is known.

    lower, upper (k,): of the values of the columns. A value v of a hard margin is a margin of sqrt(1 / (2 v)).
    """
    known = np.isfinite(upper)
    if not hard:
        return np.where(known, lower, np.nan), np.where(known, upper, np.nan)
    with np.errstate(divide="ignore"):
        low, high = np.sqrt(0.5 / upper) * (1 - 4 * EPS), np.sqrt(0.5 / lower) * (1 + 4 * EPS)
    return np.where(known, low, np.nan), np.where(known & (lower > 0), high, np.nan)


def total_bound(each: Array, *, hard: bool) -> float | None:
    """The sum of bounds (k,) on values, or the smallest of bounds on margins; None if one is not known."""
    if not np.isfinite(each).all():
        return None
    return float(each.min() if hard else each.sum())


def round_bounds(lower: Array, upper: Array, *, hard: bool) -> tuple[float, float]:
    """Bounds on the sum of the columns' values, or on their smallest margin; infinite where nothing is known."""
    if hard:
        low, high = (float(each.min(initial=np.inf)) for each in claimed_bounds(lower, upper, hard=True))
        return (low if np.isfinite(low) else -np.inf), (high if np.isfinite(high) else np.inf)
    total = float(upper.sum())
    return (float(lower.sum()) if np.isfinite(total) else -np.inf), total
