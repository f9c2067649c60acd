"""Relative margin machines (Shivaswamy, Jebara 2010) on rows in memory, given their kernel matrix.

    minimise 1/2 ||f||^2 + sum_i c_i max(0, 1 - y_i (f(x_i) + b))     subject to |f(x_i) + b| <= B,  B > 1

The dual has one number g_i for each row, f = sum_i g_i y_i k(x_i, .), and with an intercept sum_i g_i y_i = 0:

    maximise D(g) = sum_i phi_i(g_i) - 1/2 ||f||^2     (phi as in maths/relative_margin.py)

phi is piecewise linear with break points at 0 and c_i. Sequential minimal optimisation moves the pair (without an
intercept, the row) that violates optimality most and gains most to second order, up to the next break point of either.
Newton steps on the rows between break points place these exactly, as in machine.py. A solution that leaves the bound
by a share is scaled back into it: its primal value is that of the scaled function, so that the gap of a solve is proven
for the rows of the matrix.
"""

from __future__ import annotations

from functools import cache
from typing import Any

import numpy as np
from numpy.linalg import LinAlgError
from numpy.typing import NDArray
from scipy.linalg import cho_factor, cho_solve

from coremargin.maths.jit import Compiled, jit
from coremargin.maths.kernel.machine import FLAT, MOST_FREE, REGULAR, Side, Solution, kernel_sums
from coremargin.maths.relative_margin import phi
from coremargin.maths.stopping import may_stop

Array = NDArray[np.float64]

#: Tolerated violation of optimality at first, its divisor while the gap is too large, and its smallest value.
VIOLATION, SHARPER, LEAST_VIOLATION = 0.1, 8.0, 1e-14
#: Steps of a sweep, after which Newton steps follow, and the most sweeps of a solve.
STEPS, SWEEPS = 5_000, 4000
#: A sweep that raises the dual by less than this share, or this part of the tolerance, makes no progress.
GAIN, PART = 1e-14, 1e-3


def solve_within(matrix: NDArray[Any], side: Side, duals: Array, tolerance: float) -> Solution:
    """Solve the problem on p rows from balanced g (p,); matrix[:p, :p]: the kernel values; side: hinge, and a bound.

    The solution's value is that of f + b times its ``scale``, and its bound is D(scale g).
    """
    rows, violation = np.stack([side.signs, side.costs, duals, kernel_sums(matrix, side.signs * duals)]), VIOLATION
    while True:
        progress = _reduce_violation(matrix, side, rows, violation, max(GAIN, PART * tolerance))
        found = _evaluate(side, rows)
        proven = found.value - found.bound <= tolerance * found.value
        if proven or not progress or violation <= LEAST_VIOLATION:
            return found
        violation /= SHARPER


def _reduce_violation(matrix: NDArray[Any], side: Side, rows: Array, violation: float, least: float) -> bool:
    """Update rows (4, p), as for ``pairwise_step``, until no violation is larger than ``violation``.

    Returns False without progress.
    """
    step = compiled_step("pairwise_step" if side.intercept else "single_step")
    unit, value = float(matrix.diagonal()[: rows.shape[1]].max(initial=0.0)) or 1.0, _dual_value(side.bound, rows)
    for _ in range(SWEEPS):
        may_stop()
        steps, left = step(matrix, rows, side.bound, unit, violation, STEPS)
        rows[3] = kernel_sums(matrix, rows[0] * rows[2])  # the steps' own sums accumulate rounding errors
        if steps < STEPS:
            return bool(left <= violation)
        _newton(matrix, side.bound, rows, intercept=side.intercept)
        before, value = value, _dual_value(side.bound, rows)
        if not value > before + least * abs(before):
            return False
    return False


def _dual_value(bound: float, rows: Array) -> float:
    signs, costs, duals, sums = rows
    return float(phi(duals, costs, bound).sum() - 0.5 * (signs * duals) @ sums)


def _newton(matrix: NDArray[Any], bound: float, rows: Array, *, intercept: bool) -> None:
    """Move the duals between break points in place to the maximum over these, or up to the first break point.

    Those that reach one are fixed and the others move on.
    """
    signs, costs, duals, sums = rows
    free = np.flatnonzero((duals != 0) & (duals != costs) & (signs != 0))
    while 0 < len(free) <= MOST_FREE:
        may_stop()
        own, c, y = duals[free], costs[free], signs[free]
        hessian = matrix[np.ix_(free, free)].astype(np.float64)
        hessian[np.diag_indices_from(hessian)] += REGULAR * float(hessian.diagonal().max())
        try:
            factor = cho_factor(hessian, lower=True, overwrite_a=True, check_finite=False)
        except LinAlgError:
            return
        slope = np.where(own < 0, bound, np.where(own < c, 1.0, -bound))
        move = cho_solve(factor, y * slope - sums[free], check_finite=False)
        if intercept:
            across = cho_solve(factor, np.ones(len(free)), check_finite=False)
            move -= across * float(move.sum() / across.sum())
        if not np.isfinite(move).all():
            return
        change = y * move
        ends = np.where(own < 0, 0.0, np.where((own < c) & (change < 0), 0.0, c))
        leaves = ((own < 0) & (change < 0)) | ((own > c) & (change > 0))  # pieces without an end there
        with np.errstate(divide="ignore", invalid="ignore"):
            reach = np.where(leaves | (change == 0), np.inf, (ends - own) / change)
        step = min(1.0, float(reach.min()))
        stopped = reach <= step
        duals[free] = np.where(stopped, ends, own + step * change)
        sums[:] = kernel_sums(matrix, signs * duals)
        if step == 1.0:
            return
        free = free[~stopped]


def _evaluate(side: Side, rows: Array) -> Solution:
    """The solution of these rows: the intercept in the middle of what optimality leaves it, scaled into the bound."""
    bound, (signs, costs, duals, sums) = side.bound, rows
    counted = signs != 0
    offset = 0.0
    if side.intercept and counted.any():
        right = np.where(duals < 0, bound, np.where(duals < costs, 1.0, -bound))
        left = np.where(duals <= 0, bound, np.where(duals <= costs, 1.0, -bound))
        up, down = np.where(signs > 0, right, -left) - sums, np.where(signs > 0, left, -right) - sums
        offset = 0.5 * float(up[counted].max() + down[counted].min())
    decisions = sums + offset
    largest = float(np.abs(decisions[counted]).max(initial=0.0))
    scale = bound / largest if largest > bound else 1.0
    square = scale * scale * float((signs * duals) @ sums)
    value = 0.5 * square + float(side.losses(np.where(counted, 1.0 - scale * signs * decisions, 0.0)).sum())
    lower = float(phi(scale * duals, costs, bound).sum()) - 0.5 * square
    return Solution(duals.copy(), offset, value, lower, scale=scale)


# The steps are loops in the subset of Python that numba compiles.


@cache
def compiled_step(name: str) -> Compiled:
    """``pairwise_step`` or ``single_step``, compiled when it is first needed."""
    return jit(globals()[name])


def pairwise_step(matrix, rows, bound, unit, tolerance, steps):  # type: ignore[no-untyped-def]
    """Update g and sums in place until no pair violates optimality by more than ``tolerance``.

    rows (4, p): signs, costs, g, sums f. unit: the scale of kernel values, used where both rows have none. Returns the
    number of steps, at most ``steps``, and the largest violation at the last.
    """
    signs, costs, duals, sums = rows[0], rows[1], rows[2], rows[3]
    count = len(signs)
    for step in range(steps):
        # g y of the first row grows, that of the second falls by as much: sum g y stays
        first, high = -1, -np.inf
        for t in range(count):
            if signs[t] > 0:
                slope = bound if duals[t] < 0 else (1.0 if duals[t] < costs[t] else -bound)
            elif signs[t] < 0:
                slope = -bound if duals[t] <= 0 else (-1.0 if duals[t] <= costs[t] else bound)
            else:
                continue
            if slope - sums[t] > high:
                first, high = t, slope - sums[t]
        second, low, best, value = -1, np.inf, 0.0, 0.0
        for t in range(count):
            if signs[t] > 0:
                slope = bound if duals[t] <= 0 else (1.0 if duals[t] <= costs[t] else -bound)
            elif signs[t] < 0:
                slope = -bound if duals[t] < 0 else (-1.0 if duals[t] < costs[t] else bound)
            else:
                continue
            own = slope - sums[t]
            low = min(low, own)
            if own < high and t != first:
                curve = matrix[first, first] + matrix[t, t] - 2.0 * matrix[first, t]
                flat = FLAT * (matrix[first, first] + matrix[t, t])
                gain = (high - own) * (high - own) / max(curve, flat if flat > 0 else FLAT * unit)
                if gain > best:
                    second, best, value = t, gain, own
        if second < 0 or high - low <= tolerance:
            return step, max(0.0, high - low)
        curve = matrix[first, first] + matrix[second, second] - 2.0 * matrix[first, second]
        flat = FLAT * (matrix[first, first] + matrix[second, second])
        move = (high - value) / max(curve, flat if flat > 0 else FLAT * unit)
        one, two = duals[first], duals[second]
        if signs[first] > 0:
            end_one = 0.0 if one < 0 else (costs[first] if one < costs[first] else np.inf)
        else:
            end_one = costs[first] if one > costs[first] else (0.0 if one > 0 else -np.inf)
        if signs[second] > 0:
            end_two = costs[second] if two > costs[second] else (0.0 if two > 0 else -np.inf)
        else:
            end_two = 0.0 if two < 0 else (costs[second] if two < costs[second] else np.inf)
        room_one, room_two = abs(end_one - one), abs(end_two - two)
        move = min(move, room_one, room_two)
        duals[first] = end_one if move == room_one else one + signs[first] * move
        duals[second] = end_two if move == room_two else two - signs[second] * move
        moved, other = signs[first] * (duals[first] - one), signs[second] * (duals[second] - two)
        if moved == 0 and other == 0:
            return step, high - low  # below the precision of float64
        for t in range(count):
            sums[t] += moved * matrix[first, t] + other * matrix[second, t]
    return steps, np.inf


def single_step(matrix, rows, bound, unit, tolerance, steps):  # type: ignore[no-untyped-def]
    """The same without an intercept: each step changes the single g that gains most."""
    signs, costs, duals, sums = rows[0], rows[1], rows[2], rows[3]
    count = len(signs)
    for step in range(steps):
        first, best, worst, ahead = -1, 0.0, 0.0, 0.0
        for t in range(count):
            if signs[t] == 0:
                continue
            margin = signs[t] * sums[t]
            right = bound if duals[t] < 0 else (1.0 if duals[t] < costs[t] else -bound)
            left = bound if duals[t] <= 0 else (1.0 if duals[t] <= costs[t] else -bound)
            slope = right - margin if right > margin else (left - margin if left < margin else 0.0)
            worst = max(worst, abs(slope))
            gain = slope * slope / max(matrix[t, t], FLAT * unit)
            if gain > best:
                first, best, ahead = t, gain, slope
        if first < 0 or worst <= tolerance:
            return step, worst
        was, move = duals[first], ahead / max(matrix[first, first], FLAT * unit)
        if move > 0:
            end = 0.0 if was < 0 else (costs[first] if was < costs[first] else np.inf)
            duals[first] = min(was + move, end)
        else:
            end = costs[first] if was > costs[first] else (0.0 if was > 0 else -np.inf)
            duals[first] = max(was + move, end)
        moved = signs[first] * (duals[first] - was)
        if moved == 0:
            return step, worst
        for t in range(count):
            sums[t] += moved * matrix[first, t]
    return steps, np.inf
