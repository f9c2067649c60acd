"""What a machine on the pool's rows proves: the lower bound of its duals, the upper one of a scan. Rounded outward.

For duals a with 0 <= a_i <= c_i (hinge) or 0 <= a_i (squared hinge, hard margin) and r = sum y_i a_i the value of every
(f, b) is at least

    sum a - 1/2 ||sum a y k(x, .)||^2 - sum a^2 / (4 c) (squared hinge)  -  |r| |b|

since the Lagrangian that has its minimum there contains - r b. Some best b is no larger than 1 + max |f(x_i)|: beyond
that one class has no loss at all, and b may come back. And |f(x)| <= ||f|| sqrt(k(x, x)), 1/2 ||f||^2 at most the value
of any hypothesis. So a sum that float64 leaves near 0 costs a little, and no weight has to be moved.
"""

from __future__ import annotations

import math
from functools import partial
from typing import TYPE_CHECKING

import numpy as np
from numpy.typing import NDArray

from coremargin.maths.breakdown import exact_sum
from coremargin.maths.kernel.functions import located

if TYPE_CHECKING:
    from coremargin.maths.kernel.functions import Kernel, Lengths, Points
    from coremargin.maths.kernel.machine import Side

Array = NDArray[np.float64]

EPS = float(np.finfo(np.float64).eps)
#: What bounds give away of themselves. Whoever checks them has roundings of a handful of operations, too, and has to
#: find no less: where kernel values lose next to nothing, nothing else makes room for that.
GIVEN = 128 * EPS


def square(kernel: Kernel, points: Points, weights: Array, lengths: Lengths) -> tuple[float, float]:
    """||sum_j weights_j k(z_j, .)||^2 of rows (m, d) with weights (m,), and a bound on what rounding did to it.

    lengths: of the rows that carry this function and those beside it. Raises KernelFault.
    """
    used = np.flatnonzero(weights)
    some, own = points.take(used), weights[used]
    values = located(partial(kernel.sums, some, some, own[:, None]), used)
    size = np.array([np.abs(own).sum()])
    errors = kernel.sums_error(some, lengths, size, len(used))
    exact = exact_sum((own * values[:, 0]).tolist())
    lost = float(np.abs(own) @ (errors[:, 0] + EPS * np.abs(values[:, 0])))
    return max(0.0, exact), kernel.room * lost


def lower_bound(side: Side, duals: Array, norm: tuple[float, float], reach: float, value: float) -> float:
    """What no value is below, of duals (p,) that are feasible; norm: ``square`` of them.

    reach: a bound on sqrt(k(x, x)) of all rows; value: of any hypothesis over all rows; infinite: not known yet.
    """
    used = np.flatnonzero(duals)
    own, signs = duals[used], side.signs[used]
    total = exact_sum(own.tolist())
    curved = exact_sum((0.5 * (side.ridge[used] * own) * own).tolist())
    left = abs(exact_sum((signs * own).tolist())) if side.intercept else 0.0
    largest = 1.0 + math.sqrt(2.0 * value) * reach if left else 0.0
    rounded = GIVEN * (total + norm[0] + curved)
    return float(total - 0.5 * (norm[0] + norm[1]) - curved - 2.0 * left * largest - rounded)


def upper_bound(norm: tuple[float, float], losses: float, smallest: float, rows: int, *, hard: bool) -> float:
    """The value of a hypothesis: losses over all rows, of so many; of a hard margin, its smallest margin.

    norm: as for ``lower_bound``.
    """
    length = norm[0] + norm[1]
    if hard:
        ratio = math.sqrt(length) / smallest if smallest > 0 else math.inf
        return 0.5 * ratio * ratio * (1 + GIVEN)
    return (0.5 * length + losses * (1 + (rows + 64) * EPS)) * (1 + GIVEN)
