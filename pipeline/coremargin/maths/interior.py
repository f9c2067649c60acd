"""The hinge band model by a primal-dual interior-point method (Mehrotra 1992; Ferris, Munson 2002 for this structure).

    minimise 1/2 p.Rp - u.p + sum_i [ right_i max(0, 1 - s_i) + left_i max(0, s_i - 1) ],     s = K p

with duals a_i in [-left_i, right_i]. Band rows have left = 0, right = c_i. Far rows are in u; a sample of them may be
given with the price of crossing to the other side (left or right), which keeps the step where the model is true.
Every iteration solves one p x p system, however many rows there are. Before that, prices and columns are brought to one
scale, and columns are centred against a last column that is not penalised (an intercept): neither changes the
problem, and rows far from the origin or in odd units are solved as well as others.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import scipy.linalg as sla
from numpy.typing import NDArray

Array = NDArray[np.float64]


@dataclass(frozen=True)
class HingeModel:
    """metric (p,), zero for an intercept; push u (p,); rows K (m, p) signed; right, left (m,) >= 0, not both zero."""

    metric: Array
    push: Array
    rows: Array
    right: Array
    left: Array


@dataclass
class _Iterate:
    x: Array
    a: Array
    low: Array  # a + left
    high: Array  # right - a
    z_low: Array
    z_high: Array


def minimise_hinge(model: HingeModel, *, tolerance: float = 1e-9, max_steps: int = 500) -> tuple[Array, Array]:
    """The minimiser p (p,) and duals a (m,) within their box; complementarity at most ``tolerance`` of the value."""
    unit = float(max(model.right.max(), model.left.max()))
    edge = model.rows[:, -1]
    free = model.metric[-1] == 0 and edge.any()
    centre = edge @ model.rows[:, :-1] / (edge @ edge) if free else np.zeros(model.rows.shape[1] - 1)
    rows = np.column_stack([model.rows[:, :-1] - np.outer(edge, centre), edge]) if free else model.rows
    push = np.append(model.push[:-1] - centre * model.push[-1], model.push[-1]) / unit
    metric = model.metric / unit
    size = np.hypot(np.sqrt(metric), np.sqrt(np.einsum("ij,ij->j", rows, rows)))
    idle = size == 0  # a column that is all zero, and free: it stays where it is
    size[idle] = 1.0
    metric = np.where(idle, 1.0, metric / size / size)
    scaled = HingeModel(metric, push / size, rows / size, model.right / unit, model.left / unit)
    with np.errstate(over="ignore", invalid="ignore", divide="ignore"):  # a step that is not finite is the last one
        x, a = _minimise(scaled, tolerance, max_steps)
    x = x / size
    x[-1] -= centre @ x[:-1]
    return x, np.clip(a * unit, -model.left, model.right)


def _minimise(model: HingeModel, tolerance: float, max_steps: int) -> tuple[Array, Array]:
    """The same for a model of moderate numbers."""
    now = _begin(model)
    best, least, idle = (now.x, now.a), np.inf, 0
    for _ in range(max_steps):
        dual_residual = model.metric * now.x - model.push - model.rows.T @ now.a
        s = model.rows @ now.x
        primal_residual = 1.0 - s - now.z_high + now.z_low
        value = 0.5 * (model.metric * now.x) @ now.x - model.push @ now.x
        value += model.right @ np.maximum(1.0 - s, 0.0) + model.left @ np.maximum(s - 1.0, 0.0)
        gap = float(now.low @ now.z_low + now.high @ now.z_high)
        size = np.abs(model.push).max(initial=1.0) + np.abs(model.right).max() + np.abs(model.left).max()
        residual = float(np.abs(dual_residual).max()) / float(size)
        left = gap + residual  # not relative to a value that may be small only because the iterate is far from done
        idle = 0 if left < least else idle + 1
        if left < least:
            best, least = (now.x, now.a), left
        error = max(gap / max(abs(float(value)), 1e-300), residual)
        if error <= tolerance or idle > 8 or not np.isfinite(error):  # rounding has the last word
            break
        try:
            _advance(model, now, dual_residual, primal_residual, gap / (2 * len(s)))
        except sla.LinAlgError:  # so near to the end that float64 sees no curvature
            break
    return best


def _begin(model: HingeModel) -> _Iterate:
    a = 0.5 * (model.right - model.left)
    m = len(a)
    return _Iterate(np.zeros(len(model.metric)), a, a + model.left, model.right - a, np.ones(m), np.full(m, 2.0))


def _advance(model: HingeModel, now: _Iterate, dual_residual: Array, primal_residual: Array, mu: float) -> None:
    """Predictor, corrector, and a common step that stays inside."""
    scale = now.z_low / now.low + now.z_high / now.high
    hessian = (model.rows.T / scale) @ model.rows
    hessian[np.diag_indices_from(hessian)] += model.metric + 1e-14 * np.trace(hessian) / len(hessian)
    factor = sla.cho_factor(hessian, check_finite=False)

    def direction(to_low: Array, to_high: Array) -> tuple[Array, Array, Array, Array]:
        right_side = primal_residual - to_high / now.high + to_low / now.low
        g = model.rows.T @ (right_side / scale) - dual_residual
        dx = sla.cho_solve(factor, g, check_finite=False)
        dx += sla.cho_solve(factor, g - hessian @ dx, check_finite=False)  # one refinement: the scales span 1e10
        da = (right_side - model.rows @ dx) / scale
        return dx, da, (to_low - now.z_low * da) / now.low, (to_high + now.z_high * da) / now.high

    dx, da, d_low, d_high = direction(-now.low * now.z_low, -now.high * now.z_high)
    t = min(_reach(now.low, da), _reach(now.high, -da), _reach(now.z_low, d_low), _reach(now.z_high, d_high))
    ahead = (now.low + t * da) @ (now.z_low + t * d_low) + (now.high - t * da) @ (now.z_high + t * d_high)
    target = mu * (float(ahead) / (2 * len(da)) / mu) ** 3
    dx, da, d_low, d_high = direction(
        target - now.low * now.z_low - da * d_low, target - now.high * now.z_high + da * d_high
    )
    t = min(_reach(now.low, da), _reach(now.high, -da), _reach(now.z_low, d_low), _reach(now.z_high, d_high))
    t *= min(0.9995, max(0.9, 1.0 - mu))  # never onto the boundary
    now.x = now.x + t * dx
    now.a, now.low, now.high = now.a + t * da, now.low + t * da, now.high - t * da
    now.z_low, now.z_high = now.z_low + t * d_low, now.z_high + t * d_high


def _reach(values: Array, change: Array) -> float:
    """The largest step in [0, 1] that keeps ``values`` from becoming negative."""
    falling = change < 0
    return min(1.0, float((-(values[falling] / change[falling])).min())) if falling.any() else 1.0
