"""The hinge loss with bounded decision values (Shivaswamy, Jebara 2010).

    minimise 1/2 ||w||^2 + sum_i c_i max(0, 1 - y_i f_i)     subject to |f_i| <= B,     f = w.x + b,  B > 1

With one number g_i for each row and v = sum_i g_i y_i x_i, the dual is

    D(g) = sum_i phi_i(g_i) - 1/2 ||v||^2,     sum_i g_i y_i = 0 for a free intercept

    phi_i(g) = B g (g < 0),   g (0 <= g <= c_i),   c_i - B (g - c_i) (g > c_i)

since g < 0 pulls a row back from y f = B, and g > c_i one from y f = -B. Any g in balance is feasible: no value is
below D(g).
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import scipy.linalg as sla
from numpy.typing import NDArray

from coremargin.maths.rows import curvature
from coremargin.maths.stopping import may_stop

Array = NDArray[np.float64]

#: Steps at most; the method ends after IDLE steps in a row that brought nothing nearer, once the duals fit together.
STEPS, IDLE, FITTING = 150, 10, 1e-3
#: Largest relative residual of the hypothesis as the sum of the duals.
RESIDUAL = 1e-9
#: Rows of each side that are constrained at first, and the most that each of TURNS turns adds; rows beyond the bound by
#: less than the share BEYOND are not added. A multiplier below the share LIGHT of the largest weight of any row is 0.
FIRST_CONSTRAINED, TURNS, BEYOND, LIGHT = 500, 12, 1e-8, 1e-8


@dataclass(frozen=True)
class Pieces:
    """minimise 1/2 p.Rp - u.p + sum_i c_i max(0, t_i - s_i), s = K p.

    metric R (p,), zero for an intercept; linear u (p,); rows K (m, p), targets t (m,), costs c (m,) > 0. An infinite
    cost makes s_i >= t_i a condition; p = 0 has to meet all of them.
    """

    metric: Array
    linear: Array
    rows: Array
    targets: Array
    costs: Array


def phi(g: Array, costs: Array, bound: float) -> Array:
    """phi_i(g_i) (m,)."""
    return np.asarray(np.where(g < 0, bound * g, np.minimum(g, costs) - bound * np.maximum(g - costs, 0.0)))


def minimise_pieces(model: Pieces, tolerance: float = 1e-9) -> tuple[Array, Array]:
    """The minimiser p (p,) and the duals (m,) in [0, c].

    The interior point method of interior.py (Mehrotra 1992), in which the duals of conditions have no upper limit.
    Every step solves one p x p system, for any number of rows.
    """
    boxed = np.isfinite(model.costs)
    unit = float(model.costs[boxed].max(initial=0.0)) or 1.0
    rows = model.rows.copy()
    edge = rows[:, -1]
    free = model.metric[-1] == 0 and edge.any()
    centre = edge @ rows[:, :-1] / (edge @ edge) if free else np.zeros(rows.shape[1] - 1)
    rows[:, :-1] -= np.outer(edge, centre)
    linear = np.append(model.linear[:-1] - centre * model.linear[-1], model.linear[-1]) / unit
    metric = model.metric / unit
    size = np.hypot(np.sqrt(metric), np.sqrt(np.einsum("ij,ij->j", rows, rows)))
    idle = size == 0  # a free column of zeros: its entry stays 0
    size[idle] = 1.0
    rows /= size
    scaled = Pieces(np.where(idle, 1.0, metric / size / size), linear / size, rows, model.targets, model.costs / unit)
    with np.errstate(over="ignore", invalid="ignore", divide="ignore"):  # a step that is not finite is the last one
        p, a = _interior(scaled, boxed, tolerance)
    p = p / size
    p[-1] -= centre @ p[:-1]
    return p, np.clip(a * unit, 0.0, model.costs)


@dataclass
class _Iterate:
    """p, the duals a and their distances ``high`` from the limits, and the multipliers of both.

    boxed (m,): where there is a limit; elsewhere ``high`` is 1 and ``z_high`` 0, so that their products vanish.
    """

    boxed: NDArray[np.bool_]
    p: Array
    a: Array
    high: Array
    z_low: Array
    z_high: Array

    @property
    def mu(self) -> float:
        """The mean of all products."""
        pairs = len(self.a) + np.count_nonzero(self.boxed)
        return float(self.a @ self.z_low + self.high @ self.z_high) / pairs


def _begin(model: Pieces, boxed: NDArray[np.bool_]) -> _Iterate:
    limit = np.where(boxed, model.costs, 0.0)
    # Conditions share what the sums of the other rows leave unbalanced.
    shared = float(np.abs(model.linear).max(initial=0.0)) / max(1, int(np.count_nonzero(~boxed)))
    a = np.where(boxed, 0.5 * limit, 0.5 * max(1.0, shared))
    z_low = np.where(boxed, np.maximum(1.0, 1.0 - model.targets), -model.targets)
    z_high = np.where(boxed, z_low + model.targets, 0.0)
    return _Iterate(boxed, np.zeros(len(model.metric)), a, np.where(boxed, limit - a, 1.0), z_low, z_high)


def _interior(model: Pieces, boxed: NDArray[np.bool_], tolerance: float) -> tuple[Array, Array]:
    now, limit = _begin(model, boxed), np.where(boxed, model.costs, 0.0)
    best, least, idle = (now.p, now.a), np.inf, 0
    for _ in range(STEPS):
        may_stop()
        s = model.rows @ now.p
        primal_residual = model.targets - s - now.z_high + now.z_low
        dual_residual = model.metric * now.p - model.linear - now.a @ model.rows
        gap = float(now.a @ (now.z_low + np.abs(primal_residual)) + now.high @ now.z_high)
        losses = float(limit @ np.maximum(model.targets - s, 0.0))
        value = float(0.5 * (model.metric * now.p) @ now.p - model.linear @ now.p) + losses
        scale = 1.0 + float(np.abs(model.linear).max(initial=0.0) + now.a.max(initial=0.0))
        residual, share = float(np.abs(dual_residual).max()) / scale, gap / max(abs(value), 1e-300)
        left = min(share, 1e6) + residual
        if not np.isfinite(left):
            break
        idle = 0 if left < least or residual > FITTING else idle + 1
        if left < least:
            best, least = (now.p, now.a), left
        if (share <= tolerance and residual <= min(tolerance, RESIDUAL)) or idle > IDLE:
            break
        try:
            _advance(model, now, primal_residual, dual_residual)
        except (sla.LinAlgError, ValueError):  # so near to the minimum that float64 resolves no curvature
            break
    return best


def _advance(model: Pieces, now: _Iterate, primal_residual: Array, dual_residual: Array) -> None:
    """Predictor, corrector, and a common step that stays inside."""
    rows, boxed, mu = model.rows, now.boxed, now.mu
    weights = 1.0 / (now.z_low / now.a + now.z_high / now.high)
    hessian = curvature(rows, weights)
    hessian[np.diag_indices_from(hessian)] += model.metric + 1e-14 * np.trace(hessian) / len(hessian)
    factor = sla.cho_factor(hessian)

    def direction(to_low: Array, to_high: Array) -> tuple[Array, Array, Array, Array]:
        right_side = primal_residual - to_high / now.high + to_low / now.a
        g = (right_side * weights) @ rows - dual_residual
        dp = sla.cho_solve(factor, g)
        dp += sla.cho_solve(factor, g - hessian @ dp)  # one refinement: the scales span 1e10
        da = (right_side - rows @ dp) * weights
        return dp, da, (to_low - now.z_low * da) / now.a, (to_high + now.z_high * da) / now.high

    def reach(da: Array, d_low: Array, d_high: Array) -> float:
        changes = (da / now.a, -(da / now.high)[boxed], d_low / now.z_low, (d_high / now.z_high)[boxed])
        fastest = min(float(np.fmin.reduce(change, initial=0.0)) for change in changes)
        return 1.0 / -fastest if fastest < -1.0 else 1.0

    dp, da, d_low, d_high = direction(-now.a * now.z_low, -now.high * now.z_high)
    t = reach(da, d_low, d_high)
    high = np.where(boxed, now.high - t * da, 1.0)
    ahead = _Iterate(boxed, now.p, now.a + t * da, high, now.z_low + t * d_low, now.z_high + t * d_high)
    aim = mu * (max(ahead.mu, 0.0) / mu) ** 3
    to_high = np.where(boxed, aim - now.high * now.z_high + da * d_high, 0.0)
    dp, da, d_low, d_high = direction(aim - now.a * now.z_low - da * d_low, to_high)
    t = reach(da, d_low, d_high) * min(0.9995, max(0.9, 1.0 - mu))  # never onto the boundary
    now.p, now.a = now.p + t * dp, now.a + t * da
    now.high = np.where(boxed, now.high - t * da, 1.0)
    now.z_low, now.z_high = now.z_low + t * d_low, now.z_high + t * d_high


@dataclass(frozen=True)
class BoundedMinimum:
    """The minimiser p (p,) of pieces, their duals (m,), and the rows that the bound holds back.

    active (k,): positions of these rows; sides (k,): 1 at f = B, -1 at f = -B; multipliers (k,) > 0: of their
    constraints, by which g y of the row is lower on side 1 and higher on side -1. within: whether all rows keep the
    bound.
    """

    point: Array
    duals: Array
    active: NDArray[np.intp]
    sides: Array
    multipliers: Array
    within: bool


def minimise_within(pieces: Pieces, rows: Array, start: Array, bound: float, tolerance: float = 1e-9) -> BoundedMinimum:
    """Minimise pieces subject to |rows p| <= bound for rows (n, p), of which few will lie at the bound.

    start (p,): the rows with the largest and smallest values there are constrained first; rows that turn out to
    lie beyond the bound follow.
    """
    decisions = rows @ start
    order = np.argsort(decisions, kind="stable")
    constrained = np.concatenate([order[-FIRST_CONSTRAINED:], order[:FIRST_CONSTRAINED]])
    sides = np.repeat([1.0, -1.0], [len(order[-FIRST_CONSTRAINED:]), len(order[:FIRST_CONSTRAINED])])
    turn = 0
    while True:
        turn += 1
        every = Pieces(
            pieces.metric,
            pieces.linear,
            np.concatenate([pieces.rows, (-sides / bound)[:, None] * rows[constrained]]),
            np.concatenate([pieces.targets, np.full(len(constrained), -1.0)]),
            np.concatenate([pieces.costs, np.full(len(constrained), np.inf)]),
        )
        point, a = minimise_pieces(every, tolerance)
        decisions = rows @ point
        beyond = np.abs(decisions) > bound * (1.0 + BEYOND)
        known = np.zeros((len(rows), 2), bool)
        known[constrained, (sides > 0).astype(np.intp)] = True
        fresh = np.flatnonzero(beyond & ~np.where(decisions > 0, known[:, 1], known[:, 0]))
        if not len(fresh) or turn == TURNS:
            break
        if len(fresh) > FIRST_CONSTRAINED:
            fresh = fresh[np.argsort(-np.abs(decisions[fresh]), kind="stable")[:FIRST_CONSTRAINED]]
        constrained, sides = np.concatenate([constrained, fresh]), np.concatenate([sides, np.sign(decisions[fresh])])
    duals, multipliers = a[: len(pieces.costs)], a[len(pieces.costs) :] / bound
    active = np.flatnonzero(multipliers > LIGHT * max(multipliers.max(initial=0.0), duals.max(initial=0.0)))
    return BoundedMinimum(point, duals, constrained[active], sides[active], multipliers[active], not beyond.any())
