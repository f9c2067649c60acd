"""The definitions of the soft margin: primal, dual, certificates, and C.

    f(w, b) = 1/2 sum_j R_j w_j^2 + sum_i c_i loss(1 - y_i (w.x_i + b))

with loss(t) = max(0, t) (hinge) or max(0, t)^2 (squared hinge) and an intercept that is not penalised.
c_i = C times the weight of the row's class times the row's own (sample) weight; one of weight 0 does not count. Class
weights "balanced" are sum s / (2 sum of s over the class), s being the sample weights, as in ``LinearSVC``; ``SVC``
counts rows regardless of their weights. R_j = 1, or scale_j^2 where features are scaled: a hyperplane v in scaled
features (x - mean) / scale is w_j = v_j / scale_j in x, so that scaling is a metric and no row is rewritten.

This C is that of scikit-learn's ``SVC(kernel="linear", C=C)`` (hinge, intercept not penalised) and LIBLINEAR's ``-c``.
``LinearSVC`` penalises its intercept and solves the same problem only without one.

Dual: a_i >= 0, with intercept sum_i a_i y_i = 0; v = sum_i a_i y_i x_i:

    hinge          D(a) = sum_i a_i - 1/2 sum_j v_j^2 / R_j                            a_i <= c_i
    squared hinge  D(a) = sum_i a_i - sum_i a_i^2 / (4 c_i) - 1/2 sum_j v_j^2 / R_j

D(a) <= f* <= f(w, b) for every feasible a and every (w, b). Certified: f - D <= epsilon f (``margin.is_certified``).
(Shalev-Shwartz, Zhang 2013 for the pair; the balancing of the classes for a free intercept is ours.)
"""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

Array = NDArray[np.float64]


def relative_gap(primal: float, dual: float) -> float:
    """(primal - dual) / primal: a bound on the relative improvement of any hypothesis; inf without bounds."""
    if not np.isfinite(primal) or not np.isfinite(dual):
        return np.inf
    return max(0.0, primal - dual) / primal if primal > 0 else 0.0


def penalty(w: Array, metric: Array) -> float:
    """1/2 sum_j R_j w_j^2."""
    return float(0.5 * (metric * w) @ w)


def squared_hinge_dual(
    slack: Array,
    squares: Array,
    dual_sum: Array,
    metric: Array,
    intercept: bool,
    error: Array | float = 0.0,
    share: float = 1e-9,
) -> float:
    """The best D over duals a_i proportional to c_i xi_i within each class, xi being the slacks at a hypothesis.

    Over the rows of the positive class (index 0) and the negative one (1), with xi_i = max(0, 1 - y_i (w.x_i + b)):
    slack (2,) sum c xi, squares (2,) sum c xi^2, dual_sum (2, d) sum c xi x. With an intercept each class gets a total
    t, a_i = t c_i xi_i / slack, and D(t) = 2 t - A t^2; without one a_i = t c_i xi_i. The best t is in closed form.
    error: bound on the rounding error of ``dual_sum / slack``, of its length or, (d,), of each entry; share: on the
    relative one of ``squares / slack^2``; the result is rounded down by them.
    """
    if not slack.sum() > 0 or (intercept and not (slack > 0).all()):
        return 0.0
    unit = slack[:, None] if intercept else slack.sum()
    v = dual_sum[0] / unit[0] - dual_sum[1] / unit[1] if intercept else (dual_sum[0] - dual_sum[1]) / unit
    if np.size(error) > 1:
        v, error = np.abs(v) + error, 0.0
    length = float(np.sqrt(v @ (v / metric))) + float(np.max(error)) / float(np.sqrt(metric.min()))
    spread = float((squares / slack**2).sum()) if intercept else float(squares.sum() / slack.sum() ** 2)
    if intercept:
        return 1.0 / (0.5 * length**2 + 0.25 * spread * (1 + share)) * (1 - 1e-14)
    return 1.0 / (2.0 * length**2 + spread * (1 + share)) * (1 - 1e-14)


def hinge_dual(total: float, dual_sum: Array, metric: Array) -> float:
    """D for duals with sum ``total`` and v = ``dual_sum`` (d,); feasibility is the caller's."""
    return float(total - 0.5 * dual_sum @ (dual_sum / metric))


def balanced(weights: Array, signs: NDArray[np.integer], limits: Array, excess: float) -> Array | None:
    """Weights (m,) in [0, limits], moved by a common share of their room, so that sum a y decreases by ``excess``.

    None if the room is not enough.
    """
    if excess == 0:
        return weights
    down = signs * excess > 0
    room = np.where(down, weights, limits - weights)
    total = float(room.sum())
    if abs(excess) > total:
        return None
    move = room * (abs(excess) / total)
    return np.asarray(np.where(down, weights - move, weights + move))
