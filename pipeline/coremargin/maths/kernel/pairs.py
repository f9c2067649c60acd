"""Sequential minimal optimisation on a kernel matrix: the pool's problem, to any accuracy.

    minimise  1/2 sum_ij a_i a_j y_i y_j K_ij + 1/2 sum_i ridge_i a_i^2 - sum_i a_i,  0 <= a_i <= most_i
    and, with an intercept, sum_i y_i a_i = 0

which is the dual of all three: the hinge (most = c, ridge = 0), the squared hinge (no most, ridge = 1 / (2 c)) and the
hard margin (neither). With an intercept two weights move at a time, the one that violates most and the one with which
it gains most to second order (Fan, Chen, Lin 2005: LIBSVM's choice); without one a single weight moves.

Written in loops, in the subset of Python that numba compiles: some 10^5 steps of 10^4 numbers each.
"""

from __future__ import annotations

import numpy as np

#: Curvatures below this share of the values that they are made of are taken as that: of equal rows they are nothing.
FLAT = 1e-12


def pairwise(matrix, rows, unit, tolerance, steps):  # type: ignore[no-untyped-def]
    """Moves weights, and their gradient, in place until no pair violates by more than ``tolerance``.

    rows (5, p): signs, most, ridge, duals a, and the gradient; unit: the size of values, for rows that have none of
    their own. Returns how many steps were made, ``steps`` at most, and by how much the worst pair violated in the last.
    """
    signs, most, ridge, duals, gradient = rows[0], rows[1], rows[2], rows[3], rows[4]
    count = len(signs)
    for step in range(steps):
        first, high = -1, -np.inf
        for t in range(count):
            if (signs[t] > 0 and duals[t] < most[t]) or (signs[t] < 0 and duals[t] > 0):
                value = -signs[t] * gradient[t]
                if value > high:
                    first, high = t, value
        second, low, best = -1, np.inf, 0.0
        for t in range(count):
            if (signs[t] > 0 and duals[t] > 0) or (signs[t] < 0 and duals[t] < most[t]):
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
        move = min(move, most[first] - duals[first] if signs[first] > 0 else duals[first])
        move = min(move, duals[second] if signs[second] > 0 else most[second] - duals[second])
        one, two = duals[first], duals[second]
        duals[first] = min(max(one + signs[first] * move, 0.0), most[first])
        duals[second] = min(max(two - signs[second] * move, 0.0), most[second])
        if duals[first] == one and duals[second] == two:
            return step, high - low  # float64 can move them no more
        moved, other = signs[first] * (duals[first] - one), signs[second] * (duals[second] - two)
        for t in range(count):
            gradient[t] += signs[t] * (moved * matrix[first, t] + other * matrix[second, t])
        gradient[first] += ridge[first] * (duals[first] - one)
        gradient[second] += ridge[second] * (duals[second] - two)
    return steps, np.inf


def singly(matrix, rows, unit, tolerance, steps):  # type: ignore[no-untyped-def]
    """The same without an intercept: the weight moves whose move gains most."""
    signs, most, ridge, duals, gradient = rows[0], rows[1], rows[2], rows[3], rows[4]
    count = len(signs)
    for step in range(steps):
        first, best, worst = -1, 0.0, 0.0
        for t in range(count):
            slope = -gradient[t]
            if (slope > 0 and duals[t] < most[t]) or (slope < 0 and duals[t] > 0):
                worst = max(worst, abs(slope))
                gain = slope * slope / max(matrix[t, t] + ridge[t], FLAT * unit)
                if gain > best:
                    first, best = t, gain
        if first < 0 or worst <= tolerance:
            return step, worst
        was = duals[first]
        move = -gradient[first] / max(matrix[first, first] + ridge[first], FLAT * unit)
        duals[first] = min(max(was + move, 0.0), most[first])
        moved = duals[first] - was
        if moved == 0:
            return step, worst
        for t in range(count):
            gradient[t] += signs[t] * signs[first] * moved * matrix[first, t]
        gradient[first] += ridge[first] * moved
    return steps, np.inf
