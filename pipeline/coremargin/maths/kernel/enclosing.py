"""The smallest and the soft ball around rows in a kernel's feature space, given their kernel matrix K.

For boxes C_i > 0 that sum to at least 1, over centres p and squares r of radii, and over weights a,

    P(p, r) = r + sum_i C_i (||phi(x_i) - p||^2 - r)_+
    D(a)    = sum_i a_i k_ii - a' K a,    0 <= a_i <= C_i,  sum_i a_i = 1,

P >= D, with equality for p = sum_i a_i phi(x_i) at the best weights. With C_i = 1 no box binds: P is the largest square
of a distance, and the ball is the smallest one that contains all rows (Tax, Duin 2004; Tsang, Kwok, Cheung 2005). Up to
the linear term, the dual is that of a machine between classes (machine.py) with all rows on one side and a sum of 1,
which its steps preserve.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from coremargin.maths.kernel.machine import (
    GAIN,
    LEAST_VIOLATION,
    PART,
    SHARPER,
    VIOLATION,
    Side,
    dual_gradient,
    reduce_violation,
)
from coremargin.maths.soft_ball import best_square

if TYPE_CHECKING:
    from coremargin.maths.kernel.expansion import Expansion
    from coremargin.maths.kernel.functions import Kernel, Points

Array = NDArray[np.float64]

EPS = float(np.finfo(np.float64).eps)
#: Share of the tolerance at which the next violation aims.
AIM = 0.25


@dataclass(frozen=True)
class Solution:
    """weights (p,), the square r of the radius, and the values of P (``value``) and D (``bound``) on these rows.

    r: no row whose weight is below its box is outside.
    """

    weights: Array
    square: float
    value: float
    bound: float


def solve_kernel_ball(matrix: NDArray[Any], boxes: Array, start: Array, tolerance: float) -> Solution:
    """Solve the problem on p rows to a gap of a share ``tolerance`` of its value; matrix[:p, :p]: the kernel values.

    start (p,): weights from which to begin, none below 0; they need not fit the boxes (p,), whose sum is at least 1.
    """
    diagonal = matrix.diagonal()[: len(boxes)].astype(np.float64)
    side = Side(np.ones(len(boxes)), boxes, "hinge", intercept=True, gains=0.5 * diagonal)
    weights = _feasible_weights(matrix, side, start)
    found, gradient = _evaluate(matrix, side, weights)
    scale = max(found.value, float(np.finfo(np.float64).tiny))
    unit, violation = float(diagonal.max(initial=0.0)) or 1.0, VIOLATION
    while found.value - found.bound > tolerance * found.value and violation > LEAST_VIOLATION:
        least = max(GAIN, PART * tolerance)
        progress = reduce_violation(matrix, side, weights, unit, violation * scale, least, gradient)
        found, gradient = _evaluate(matrix, side, weights)
        if not progress:
            break
        left = max(found.value - found.bound, 0.0)
        # The gap shrinks about as the violation does, and each new one costs two products with all weights.
        violation *= min(1.0 / SHARPER, AIM * tolerance * found.value / left if left else 1.0)
    return found


def _feasible_weights(matrix: NDArray[Any], side: Side, start: Array) -> Array:
    """Weights in their boxes with a sum of 1: ``start`` cut to the boxes, and more for the rows farthest from it.

    Without any start the rows farthest from the mean of all have the weights, as on the way to the solution.
    """
    weights = np.minimum(start, side.costs)
    total = float(weights.sum())
    if total > 1.0:
        return np.asarray(weights / total)
    if total > 0:
        slope = dual_gradient(matrix, side, weights / total)  # sum_j a_j K_ij - k_ii / 2
    else:
        slope = matrix[: len(weights), : len(weights)].mean(axis=0, dtype=np.float64) - side.gains
    order = np.argsort(slope, kind="stable")
    room = (side.costs - weights)[order]
    before = np.concatenate([[0.0], np.cumsum(room)[:-1]])
    weights[order] += np.clip(1.0 - total - before, 0.0, room)
    return np.asarray(weights)


def _evaluate(matrix: NDArray[Any], side: Side, weights: Array) -> tuple[Solution, Array]:
    """The solution of these weights, and the gradient (p,) of the dual."""
    gains, gradient = np.asarray(side.gains), dual_gradient(matrix, side, weights)
    sums = gradient + gains
    norm, total = float(weights @ sums), float(weights.sum())
    squares = np.maximum(2.0 * (gains - sums) + norm, 0.0)
    inside = weights < side.costs
    square = float(squares[inside].max()) if inside.any() else best_square(squares, side.costs)
    value = square + float(side.costs @ np.maximum(squares - square, 0.0))
    return Solution(weights.copy(), square, value, 2.0 * float(weights @ gains) - norm / total), gradient


def squared_distances(centre: Expansion, norm: tuple[float, float], x: Points) -> tuple[Array, Array]:
    """||phi(x) - p||^2 (n,) of rows x from the centre p = sum_j weights_j phi(z_j), and bounds (n,) on their errors.

    norm: ||p||^2 and a bound on its error. Values may be below 0 by their errors.
    """
    kernel, size = centre.kernel, np.abs(centre.weights).sum(axis=0)
    sums = centre.values(x)[:, 0]
    # Without an offset there is none of the error that ``Expansion.errors`` adds for it, in units of a margin of 1.
    lost = kernel.SAFETY * kernel.sums_error(x, centre.lengths, size, len(centre.points))[:, 0]
    own = kernel.diagonal(x)
    found = own - 2.0 * sums + norm[0]
    rounded = 8 * EPS * (own + 2.0 * np.abs(sums) + norm[0])
    return found, diagonal_error(kernel, x) + 2.0 * lost + norm[1] + rounded


def diagonal_error(kernel: Kernel, x: Points) -> Array:
    """Bounds (n,) on the rounding errors of k(x, x), in whatever order squares are summed; 0 for rbf, where it is 1."""
    if kernel.name == "rbf":
        return np.zeros(len(x))
    return np.asarray(kernel.SAFETY * kernel.value_error(x.lengths, x.lengths, x.terms))
