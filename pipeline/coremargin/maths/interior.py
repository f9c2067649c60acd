"""The hinge's near-margin model by a primal-dual interior-point method (Mehrotra 1992; Ferris, Munson 2002).

    minimise 1/2 p.Rp - u.p + sum_i [ right_i max(0, 1 - s_i) + left_i max(0, s_i - 1) ],     s = K p

with duals a_i in [-left_i, right_i]. Near-margin rows have left = 0, right = c_i. Far rows are in u; a sample of them
may be given with the loss of crossing to the other side (left or right), which keeps the step where the model is true.
Every iteration solves one p x p system, for any number of rows. Rows whose duals are nearly at a bound leave the system
during the iterations; a check at the end shows whether that was correct. First, right, left and columns are scaled, and
columns are centred if the last column is not penalised (an intercept): neither changes the problem, and rows far from
the origin or in odd units are solved as well as others.

Why no general QP solver: the small system is the only one to solve, removing rows from it saved 40 to 61 % of the
hinge's CPU time (three stores), and its scales span 1e10, so every solve is in float64 and refined once.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import scipy.linalg as sla
from numpy.typing import NDArray

from coremargin.maths.rows import curvature, tiles
from coremargin.maths.stopping import may_stop

Array = NDArray[np.float64]

#: A dual this close to a bound, as a share of the way from bound to bound, leaves the system ...
PLACED = 0.03
#: ... if at least the share LEAVING of the rows leaves at once, and at least STAYING rows per column stay.
LEAVING, STAYING = 0.15, 5
#: A solve in which rows left is repeated if its gap exceeds LOOSE times the tolerance; the last of TURNS keeps all
#: rows.
LOOSE, TURNS = 10.0, 3
#: Largest relative residual of the hypothesis as the sum of the duals, for any tolerance of the value.
RESIDUAL = 1e-9


@dataclass(frozen=True)
class HingeModel:
    """metric (p,), zero for an intercept; linear u (p,); rows K (m, p) signed; right, left (m,) >= 0, not both zero."""

    metric: Array
    linear: Array
    rows: Array
    right: Array
    left: Array

    def without(self, rest: NDArray[np.bool_], duals: Array) -> HingeModel:
        """The model of the other rows, with those of ``rest`` fixed at ``duals`` (m,)."""
        stay, gone = np.flatnonzero(~rest), np.flatnonzero(rest)
        linear = self.linear + duals[gone] @ self.rows.take(gone, axis=0)
        return HingeModel(self.metric, linear, self.rows.take(stay, axis=0), self.right[stay], self.left[stay])


@dataclass
class _Iterate:
    x: Array
    a: Array
    low: Array  # a + left
    high: Array  # right - a
    z_low: Array
    z_high: Array

    def take(self, stay: NDArray[np.bool_]) -> _Iterate:
        """The same for some of the rows."""
        return _Iterate(self.x, self.a[stay], self.low[stay], self.high[stay], self.z_low[stay], self.z_high[stay])


def minimise_hinge(model: HingeModel, *, tolerance: float = 1e-9, max_steps: int = 500) -> tuple[Array, Array]:
    """The minimiser p (p,) and duals a (m,) within their box; complementarity at most ``tolerance`` of the value."""
    unit = float(max(model.right.max(), model.left.max()))
    edge = model.rows[:, -1]
    free = model.metric[-1] == 0 and edge.any()
    centre = edge @ model.rows[:, :-1] / (edge @ edge) if free else np.zeros(model.rows.shape[1] - 1)
    rows = model.rows.copy()
    for tile in tiles(rows) if free else ():
        rows[tile, :-1] -= edge[tile, None] * centre
    linear = np.append(model.linear[:-1] - centre * model.linear[-1], model.linear[-1]) / unit
    metric = model.metric / unit
    size = np.hypot(np.sqrt(metric), np.sqrt(np.einsum("ij,ij->j", rows, rows)))
    idle = size == 0  # a free column of zeros: its entry stays 0
    size[idle] = 1.0
    metric = np.where(idle, 1.0, metric / size / size)
    rows /= size
    scaled = HingeModel(metric, linear / size, rows, model.right / unit, model.left / unit)
    with np.errstate(over="ignore", invalid="ignore", divide="ignore"):  # a step that is not finite is the last one
        x, a = _checked(scaled, tolerance, max_steps)
    x = x / size
    x[-1] -= centre @ x[:-1]
    return x, np.clip(a * unit, -model.left, model.right)


def _checked(model: HingeModel, tolerance: float, max_steps: int) -> tuple[Array, Array]:
    """The same for a scaled model. If rows left the system wrongly, they stay in it in the next solve."""
    stay = np.zeros(len(model.right), bool)
    x, a, gone = _minimise(model, tolerance, max_steps, stay)
    for turn in range(1, TURNS):
        s, dual_sum = _both_ways(model.rows, x, a)
        lost = model.right * np.maximum(1.0 - s, 0.0) + model.left * np.maximum(s - 1.0, 0.0) - a * (1.0 - s)
        good = float(lost.sum()) <= LOOSE * tolerance * abs(_value(model, x, s))
        residual = _largest(model, model.metric * x - model.linear - dual_sum)
        if not gone.any() or (good and residual <= LOOSE * max(tolerance, RESIDUAL)):
            break
        wrong = gone & (lost > 0)
        stay |= wrong | (turn == TURNS - 1 or not wrong.any())
        x, a, gone = _minimise(model, tolerance, max_steps, stay)
    return x, a


def _largest(model: HingeModel, residual: Array) -> float:
    """The largest of a residual (p,), as a share of the linear term and right, left."""
    size = np.abs(model.linear).max(initial=1.0) + np.abs(model.right).max() + np.abs(model.left).max()
    return float(np.abs(residual).max() / size)


def _value(model: HingeModel, x: Array, s: Array) -> float:
    value = 0.5 * (model.metric * x) @ x - model.linear @ x
    return float(value + model.right @ np.maximum(1.0 - s, 0.0) + model.left @ np.maximum(s - 1.0, 0.0))


def _minimise(
    model: HingeModel, tolerance: float, max_steps: int, stay: NDArray[np.bool_]
) -> tuple[Array, Array, NDArray[np.bool_]]:
    """The minimiser, duals, and the rows (m,) that have left the system; those of ``stay`` (m,) cannot leave."""
    now, duals = _begin(model), np.empty(len(model.right))
    inside, gone = np.arange(len(duals)), np.zeros(len(duals), bool)
    best, least, idle = (now.x, now.a), np.inf, 0
    for _ in range(max_steps):
        may_stop()
        s, dual_sum = _both_ways(model.rows, now.x, now.a)
        dual_residual = model.metric * now.x - model.linear - dual_sum
        gap = float(now.low @ now.z_low + now.high @ now.z_high)
        residual = _largest(model, dual_residual)
        left = gap + residual  # not relative to a value that may be small only because the iterate is far from done
        idle = 0 if left < least else idle + 1
        if left < least:
            best, least = (now.x, now.a), left
        open_share = gap / max(abs(_value(model, now.x, s)), 1e-300)
        if (open_share <= tolerance and residual <= min(tolerance, RESIDUAL)) or idle > 8:
            break  # no further progress in float64
        if not np.isfinite(max(open_share, residual)):
            break
        try:
            _advance(model, now, s, dual_residual, gap / (2 * len(s)))
        except sla.LinAlgError:  # so near to the minimum that float64 resolves no curvature
            break
        placed = (np.minimum(now.low, now.high) < PLACED * (now.low + now.high)) & ~stay[inside]
        if LEAVING * len(inside) < np.count_nonzero(placed) <= len(inside) - STAYING * len(now.x):
            bound = np.where(now.high < now.low, model.right, -model.left)
            duals[inside[placed]], gone[inside[placed]] = bound[placed], True
            model, now, inside = model.without(placed, bound), now.take(~placed), inside[~placed]
            best, least, idle = (now.x, now.a), np.inf, 0
    duals[inside] = best[1]
    return best[0], duals, gone


def _begin(model: HingeModel) -> _Iterate:
    a = 0.5 * (model.right - model.left)
    m = len(a)
    return _Iterate(np.zeros(len(model.metric)), a, a + model.left, model.right - a, np.ones(m), np.full(m, 2.0))


def _both_ways(rows: Array, x: Array, a: Array) -> tuple[Array, Array]:
    """rows @ x (m,) and a @ rows (p,), reading the rows once."""
    s, dual_sum = np.empty(len(rows)), np.zeros(rows.shape[1])
    for tile in tiles(rows):
        np.dot(rows[tile], x, out=s[tile])
        dual_sum += a[tile] @ rows[tile]
    return s, dual_sum


def _advance(model: HingeModel, now: _Iterate, s: Array, dual_residual: Array, mu: float) -> None:
    """Predictor, corrector, and a common step that stays inside. s (m,): margins."""
    weights = 1.0 / (now.z_low / now.low + now.z_high / now.high)
    hessian = curvature(model.rows, weights)
    hessian[np.diag_indices_from(hessian)] += model.metric + 1e-14 * np.trace(hessian) / len(hessian)
    factor = sla.cho_factor(hessian, check_finite=False)
    primal_residual = 1.0 - s - now.z_high + now.z_low

    def direction(to_low: Array, to_high: Array) -> tuple[Array, Array, Array, Array]:
        right_side = primal_residual - to_high / now.high + to_low / now.low
        g = (right_side * weights) @ model.rows - dual_residual
        dx = sla.cho_solve(factor, g, check_finite=False)
        dx += sla.cho_solve(factor, g - hessian @ dx, check_finite=False)  # one refinement: the scales span 1e10
        da = (right_side - model.rows @ dx) * weights
        return dx, da, (to_low - now.z_low * da) / now.low, (to_high + now.z_high * da) / now.high

    dx, da, d_low, d_high = direction(-now.low * now.z_low, -now.high * now.z_high)
    t = min(_reach(now.low, da), _reach(now.high, -da), _reach(now.z_low, d_low), _reach(now.z_high, d_high))
    ahead = (now.low + t * da) @ (now.z_low + t * d_low) + (now.high - t * da) @ (now.z_high + t * d_high)
    row_c = model.right + model.left
    share = row_c / float(row_c.mean())  # a row with large C counts like several rows
    target = share * (mu * (float(ahead) / (2 * len(da)) / mu) ** 3)
    dx, da, d_low, d_high = direction(
        target - now.low * now.z_low - da * d_low, target - now.high * now.z_high + da * d_high
    )
    t = min(_reach(now.low, da), _reach(now.high, -da), _reach(now.z_low, d_low), _reach(now.z_high, d_high))
    t *= min(0.9995, max(0.9, 1.0 - mu))  # never onto the boundary
    now.x = now.x + t * dx
    now.a, now.low, now.high = now.a + t * da, now.low + t * da, now.high - t * da
    now.z_low, now.z_high = now.z_low + t * d_low, now.z_high + t * d_high


def _reach(values: Array, change: Array) -> float:
    """The largest step in [0, 1] that keeps ``values``, which are positive, from becoming negative."""
    fastest = float(np.fmin.reduce(change / values))
    return 1.0 / -fastest if fastest < -1.0 else 1.0
