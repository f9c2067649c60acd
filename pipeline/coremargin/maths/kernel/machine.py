"""Support vector machines between two classes on rows in memory, given their kernel matrix.

Primal, with the hinge or the squared hinge:

    1/2 ||f||^2 + sum_i c_i loss(1 - y_i (f(x_i) + b)),   f = sum_j a_j y_j k(x_j, .)

and without a loss the f of least norm with y_i (f(x_i) + b) >= 1 for all rows. The dual of all three is

    minimise  1/2 sum_ij a_i a_j y_i y_j K_ij + 1/2 sum_i ridge_i a_i^2 - sum_i a_i,  0 <= a_i <= upper_i
    and, with an intercept, sum_i y_i a_i = 0

with upper = c, ridge = 0 for the hinge, no upper and ridge = 1 / (2 c) for the squared hinge, and neither for the hard
margin. It is solved by sequential minimal optimisation, with Newton steps on the free duals in between, until its value
proves that nothing is below (1 - tolerance) of the primal value.

With an intercept two duals change in a step: the one that violates optimality most, and the one with which it gains
most to second order (Fan, Chen, Lin 2005, as in LIBSVM). Without an intercept one dual changes.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import cache
from typing import Any

import numpy as np
from numpy.linalg import LinAlgError
from numpy.typing import NDArray
from scipy.linalg import cho_factor, cho_solve

from coremargin.formats.choices import Loss
from coremargin.maths.jit import Compiled, jit
from coremargin.maths.stopping import may_stop

Array = NDArray[np.float64]

#: Tolerated violation of optimality at first, its divisor while the gap is too large, and its smallest value.
VIOLATION, SHARPER, LEAST_VIOLATION = 1e-2, 8.0, 1e-14
#: A sweep that lowers the dual by less than this share, or this part of the tolerance, makes no progress.
GAIN, PART = 1e-13, 0.01
#: Steps of a sweep, after which the solve may be interrupted, and the most sweeps: four times LIBSVM's 10^7 steps, but
#: for few rows no more sweeps than rows. Without a limit the dual could grow forever, a little in each sweep, if kernel
#: values differ by too many powers of ten.
STEPS, SWEEPS, FEW_SWEEPS = 20_000, 2000, 50
#: Newton steps move at most this many duals; this share of the largest diagonal entry is added to their Hessian.
MOST_FREE, REGULAR = 4000, 1e-13
#: A hard margin is infeasible if a dual exceeds this value over the largest k(x, x): the dual is then unbounded.
ENDLESS = 1e9
#: Smallest curvature of a step, relative to k(x, x) + k(z, z): equal rows have none.
FLAT = 1e-12


@dataclass(frozen=True)
class Side:
    """The problem of one column: signs (p,) of the rows, 0 for rows that take no part, and costs (p,).

    gains (p,) or a number: the linear term of the dual, which is 1 for machines between classes. bound: of the decision
    values of a relative margin, which relative_machine.py solves.
    """

    signs: Array
    costs: Array
    loss: Loss | None
    intercept: bool
    gains: Array | float = 1.0
    bound: float = np.inf

    @property
    def upper(self) -> Array:
        """Upper bounds (p,) of the duals."""
        return self.costs if self.loss == "hinge" else np.where(self.signs == 0, 0.0, np.inf)

    @property
    def ridge(self) -> Array:
        """The addition (p,) to the diagonal: the squared hinge is a hard margin with a slack for each row."""
        if self.loss != "squared_hinge":
            return np.zeros(len(self.signs))
        return np.divide(0.5, self.costs, out=np.zeros(len(self.signs)), where=self.signs != 0)

    def losses(self, slack: Array) -> Array:
        """c loss (p,) of rows with these slacks, 1 minus their margins."""
        return weighted_losses(self.loss, self.costs, slack)


@dataclass(frozen=True)
class Solution:
    """duals (p,), the intercept, and the values of the primal (``value``) and the dual (``bound``) on these rows.

    separable: False if the dual of a hard margin is unbounded. scale: brings all decision values within the bound of a
    relative margin.
    """

    duals: Array
    offset: float
    value: float
    bound: float
    separable: bool = True
    scale: float = 1.0


def weighted_losses(loss: Loss | None, costs: Array, slack: Array) -> Array:
    """c loss of slacks, for arrays that broadcast; 0 without a loss, infinite where it overflows."""
    if loss is None:
        return np.zeros(np.broadcast_shapes(np.shape(costs), np.shape(slack)))
    short = np.maximum(slack, 0.0)
    with np.errstate(over="ignore", invalid="ignore"):
        return np.asarray(np.where(costs > 0, costs * (short if loss == "hinge" else short * short), 0.0))


def solve(matrix: NDArray[Any], side: Side, duals: Array, tolerance: float) -> Solution:
    """Solve the problem on p rows from feasible duals (p,); matrix[:p, :p]: the kernel values."""
    duals, signs, ridge, violation = duals.copy(), side.signs, side.ridge, VIOLATION
    unit = float(matrix.diagonal()[: len(duals)].max(initial=0.0)) or 1.0
    while True:
        progress = reduce_violation(matrix, side, duals, unit, violation, max(GAIN, PART * tolerance))
        gradient = dual_gradient(matrix, side, duals)
        found = _evaluate(side, duals, signs * (gradient + 1.0 - ridge * duals), gradient, ENDLESS / unit)
        proven = found.value - found.bound <= tolerance * found.value
        if proven or not progress or not found.separable or violation <= LEAST_VIOLATION:
            return found
        violation /= SHARPER


def reduce_violation(
    matrix: NDArray[Any],
    side: Side,
    duals: Array,
    unit: float,
    violation: float,
    least: float,
    gradient: Array | None = None,
) -> bool:
    """Update duals in place until the largest violation is at most ``violation``; gradient (p,): if it is known.

    Pairwise steps soon find which duals are free, and are slow to place these: that is a linear system, which Newton
    steps solve. Returns False if a sweep lowers the dual by a smaller share than ``least``, or after too many sweeps.
    """
    step = compiled_step("pairwise_step" if side.intercept else "single_step")
    gradient = dual_gradient(matrix, side, duals) if gradient is None else gradient
    rows = np.stack([side.signs, side.upper, side.ridge, duals, gradient])
    cost = _dual_cost(rows, side)
    for _ in range(min(SWEEPS, max(FEW_SWEEPS, len(duals)))):
        may_stop()
        steps, _ = step(matrix, rows, unit, violation, STEPS)
        duals[:] = rows[3]
        if steps < STEPS or (side.loss is None and duals.max(initial=0.0) > ENDLESS / unit):
            return True
        _newton(matrix, side, rows[3], rows[4])
        before, cost = cost, _dual_cost(rows, side)
        if not cost < before - least * abs(before):
            return False
    return False


def _dual_cost(rows: Array, side: Side) -> float:
    """The minimised value, from duals and their gradient."""
    return float(0.5 * rows[3] @ (rows[4] - side.gains))


def _newton(matrix: NDArray[Any], side: Side, duals: Array, gradient: Array) -> None:
    """Move free duals in place to the minimum over these, or up to the first bound.

    Those that reach a bound are fixed and the others move on. Each step lowers the cost, whatever rounding and the
    regularisation of singular matrices do to its direction.
    """
    upper = side.upper
    free = np.flatnonzero((duals > 0) & (duals < upper))
    while 0 < len(free) <= MOST_FREE:
        may_stop()
        move = _newton_direction(matrix, side, free, gradient[free])
        if move is None:
            return
        with np.errstate(divide="ignore", invalid="ignore"):
            reach = np.where(
                move < 0, -duals[free] / move, np.where(move > 0, (upper[free] - duals[free]) / move, np.inf)
            )
        step = min(1.0, float(reach.min()))
        bound = reach <= step
        duals[free] = np.where(bound, np.where(move < 0, 0.0, upper[free]), duals[free] + step * move)
        gradient[:] = dual_gradient(matrix, side, duals)
        if step == 1.0:
            return
        free = free[~bound]


def _newton_direction(matrix: NDArray[Any], side: Side, free: NDArray[np.intp], slope: Array) -> Array | None:
    """The unconstrained step (m,) of the free duals; None if the Hessian is not positive definite."""
    signs = side.signs[free]
    hessian = matrix[np.ix_(free, free)].astype(np.float64) * signs[:, None] * signs[None, :]
    hessian[np.diag_indices_from(hessian)] += side.ridge[free] + REGULAR * float(hessian.diagonal().max())
    try:
        factor = cho_factor(hessian, lower=True, overwrite_a=True, check_finite=False)
    except LinAlgError:
        return None
    move = cho_solve(factor, -slope, check_finite=False)
    if side.intercept:
        across = cho_solve(factor, signs, check_finite=False)
        move -= across * float(signs @ move) / float(signs @ across)
    return np.asarray(move) if np.isfinite(move).all() else None


def dual_gradient(matrix: NDArray[Any], side: Side, duals: Array) -> Array:
    """Gradient (p,) of the dual, computed from the duals: the one that steps update accumulates rounding errors."""
    return np.asarray(side.signs * kernel_sums(matrix, duals * side.signs) + side.ridge * duals - side.gains)


def kernel_sums(matrix: NDArray[Any], weights: Array) -> Array:
    """Sums (p,) over the rows of a kernel matrix with these weights (p,), in float64."""
    used, sums = np.flatnonzero(weights), np.zeros(len(weights))
    for first in range(0, len(used), 1024):
        part = used[first : first + 1024]
        sums += matrix[part, : len(weights)].T.astype(np.float64, copy=False) @ weights[part]
    return sums


def _evaluate(side: Side, duals: Array, sums: Array, gradient: Array, endless: float) -> Solution:
    """The solution of these duals; sums (p,): f(x) without the intercept; endless: larger duals are unbounded."""
    offset = _offset(side, duals, gradient) if side.intercept else 0.0
    margins = side.signs * (sums + offset)
    square = float((duals * side.signs) @ sums)
    bound = float(duals.sum()) - 0.5 * square - 0.5 * float((side.ridge * duals) @ duals)
    if side.loss is None:
        least = float(margins.min(initial=np.inf, where=side.signs != 0))
        value = 0.5 * square / least**2 if least > 0 else np.inf
        return Solution(duals, offset, value, bound, separable=least > 0 or duals.max(initial=0.0) <= endless)
    value = 0.5 * square + float(side.losses(1.0 - margins).sum())
    return Solution(duals, offset, value, bound)


def _offset(side: Side, duals: Array, gradient: Array) -> float:
    """The middle of the interval that the optimality conditions leave to the intercept."""
    values, upper = -side.signs * gradient, side.upper
    up = ((side.signs > 0) & (duals < upper)) | ((side.signs < 0) & (duals > 0))
    down = ((side.signs > 0) & (duals > 0)) | ((side.signs < 0) & (duals < upper))
    high, low = values[up].max(initial=-np.inf), values[down].min(initial=np.inf)
    if not np.isfinite(high) or not np.isfinite(low):
        return float(high if np.isfinite(high) else low if np.isfinite(low) else 0.0)
    return float(0.5 * (high + low))


# The steps are loops in the subset of Python that numba compiles: about 10^5 steps over 10^4 numbers each.


@cache
def compiled_step(name: str) -> Compiled:
    """``pairwise_step`` or ``single_step``, compiled when it is first needed."""
    return jit(globals()[name])


def pairwise_step(matrix, rows, unit, tolerance, steps):  # type: ignore[no-untyped-def]
    """Update duals and gradient in place until no pair violates optimality by more than ``tolerance``.

    rows (5, p): signs, upper, ridge, duals a, gradient. unit: the scale of kernel values, used where both rows have
    none. Returns the number of steps, at most ``steps``, and the largest violation at the last.
    """
    signs, upper, ridge, duals, gradient = rows[0], rows[1], rows[2], rows[3], rows[4]
    count = len(signs)
    for step in range(steps):
        first, high = -1, -np.inf
        for t in range(count):
            if (signs[t] > 0 and duals[t] < upper[t]) or (signs[t] < 0 and duals[t] > 0):
                value = -signs[t] * gradient[t]
                if value > high:
                    first, high = t, value
        second, low, best = -1, np.inf, 0.0
        for t in range(count):
            if (signs[t] > 0 and duals[t] > 0) or (signs[t] < 0 and duals[t] < upper[t]):
                value = -signs[t] * gradient[t]
                low = min(low, value)
                if value < high:
                    curve = matrix[first, first] + matrix[t, t] - 2.0 * matrix[first, t] + ridge[first] + ridge[t]
                    flat = FLAT * (matrix[first, first] + matrix[t, t])
                    gain = (high - value) * (high - value) / max(curve, flat if flat > 0 else FLAT * unit)
                    if gain > best:
                        second, best = t, gain
        if second < 0 or high - low <= tolerance:
            return step, max(0.0, high - low)
        curve = matrix[first, first] + matrix[second, second] - 2.0 * matrix[first, second]
        flat = FLAT * (matrix[first, first] + matrix[second, second])
        curve = max(curve + ridge[first] + ridge[second], flat if flat > 0 else FLAT * unit)
        move = (high + signs[second] * gradient[second]) / curve
        move = min(move, upper[first] - duals[first] if signs[first] > 0 else duals[first])
        move = min(move, duals[second] if signs[second] > 0 else upper[second] - duals[second])
        one, two = duals[first], duals[second]
        duals[first] = min(max(one + signs[first] * move, 0.0), upper[first])
        duals[second] = min(max(two - signs[second] * move, 0.0), upper[second])
        if duals[first] == one and duals[second] == two:
            return step, high - low  # below the precision of float64
        moved, other = signs[first] * (duals[first] - one), signs[second] * (duals[second] - two)
        for t in range(count):
            gradient[t] += signs[t] * (moved * matrix[first, t] + other * matrix[second, t])
        gradient[first] += ridge[first] * (duals[first] - one)
        gradient[second] += ridge[second] * (duals[second] - two)
    return steps, np.inf


def single_step(matrix, rows, unit, tolerance, steps):  # type: ignore[no-untyped-def]
    """The same without an intercept: each step changes the single dual that gains most."""
    signs, upper, ridge, duals, gradient = rows[0], rows[1], rows[2], rows[3], rows[4]
    count = len(signs)
    for step in range(steps):
        first, best, worst = -1, 0.0, 0.0
        for t in range(count):
            slope = -gradient[t]
            if (slope > 0 and duals[t] < upper[t]) or (slope < 0 and duals[t] > 0):
                worst = max(worst, abs(slope))
                gain = slope * slope / max(matrix[t, t] + ridge[t], FLAT * unit)
                if gain > best:
                    first, best = t, gain
        if first < 0 or worst <= tolerance:
            return step, worst
        was = duals[first]
        move = -gradient[first] / max(matrix[first, first] + ridge[first], FLAT * unit)
        duals[first] = min(max(was + move, 0.0), upper[first])
        moved = duals[first] - was
        if moved == 0:
            return step, worst
        for t in range(count):
            gradient[t] += signs[t] * signs[first] * moved * matrix[first, t]
        gradient[first] += ridge[first] * moved
    return steps, np.inf
