"""Both losses on many features: a semi-smooth Newton method that keeps no matrix but the rows themselves.

    minimise 1/2 ||w||^2 - linear term.p + sum_i phi_i(target_i - s_i),     s_i = y_i (w.x_i + b),     p = (w, b)

    phi_i(t) = max over a in [0, limit_i] of a t - a^2 / (2 curvature_i),  best at a_i = clip(curvature_i t, 0, limit_i)

The squared hinge with C = c has curvatures 2 c without a limit; curvatures c / mu and limit c is the hinge, smoothed by
mu. a is the dual point. Newton's systems, E + K' diag(curvatures) K over the rows K within their limits (E: ones, and 0
for the intercept), are solved by their Gram matrix where K is short, else by conjugate gradients with a diagonal
preconditioner or, of not too many features, as they are; in either case on the features that occur in K. Steps are
exact along their line (Keerthi, DeCoste 2005 for the squared hinge).

Dense columns that lie far from the origin are centred first, which a free intercept makes up for: products of their
values would leave no digit of how they differ.

The hinge itself is reached by the method of multipliers: the targets of a stage are shifted by the duals of the last
one, so that mu need not vanish (Rockafellar 1976; Yan, Li 2020 for support vector machines). Rows are dense or sparse.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import TYPE_CHECKING

import numpy as np
import scipy.linalg as sla
from numpy.typing import NDArray

from coremargin.maths.conjugate import conjugate_gradients
from coremargin.maths.coordinates import descended
from coremargin.maths.newton import root, solve
from coremargin.maths.occurring import on_occurring
from coremargin.maths.rows import curvature, gram, is_sparse, products, signed, square_sums, weighted_sum
from coremargin.maths.stopping import may_stop

if TYPE_CHECKING:
    from coremargin.maths.row_model import RowModel

Array = NDArray[np.float64]

MAX_STEPS, MAX_STAGES, MAX_TURNS = 200, 60, 5000
#: mu of the first stage in units of the margin, with and without duals to start from; how it falls, and where it stays.
FIRST, WARM, SHRINK, LEAST = 2.0, 0.1, 0.4, 1e-6
#: Newton's systems are solved to this share of their right side, stages to this share of the gap that they leave.
FORCING, STAGE = 0.1, 0.1
#: No sum of many rows is known to a smaller share of its size: to ask for more is to ask for noise, step after step.
ROUNDED = 64 * float(np.finfo(np.float64).eps)
#: A move along the intercept leaves at most this share of the slope, or is none.
LEFT = 1e-3
#: Rows further from losing than this wait for the next stage, where no more than a share MOST is left.
AWAY, MOST = 0.5, 0.5
#: So many rows within their limits are few: a dense system of that size is solved exactly.
FEW = 1000
#: A matrix of so many features is solved, where conjugate gradients do not get there at the cost of that: they take so
#: many times its floating point operations for each value of the rows and turn. Measured on one core.
NARROW, DENSE_TURN, SPARSE_TURN = 2000, 30.0, 50.0
#: So many values are many: what is compiled takes 0.7 s to load, once a process, as Newton's steps over them do.
MANY = 1 << 20


#: Columns whose mean is so many times their spread, and the usual one, are far from the origin, judged by so many rows.
DISTANT, TELLING = 16.0, 256
#: So many stages in a row whose steps are used up without a minimum are the last ones.
VAIN = 2
#: After so many steps in a row by which the value has not fallen, float64 resolves no further progress.
LEVEL = 10


#: (p, s, a, gradient) -> True when that is good enough.
Enough = Callable[[Array, Array, Array, Array], bool]


def minimise_squared_hinge(model: RowModel, point: Array, tolerance: float) -> Array:
    """The minimiser p (d + 1,) of a model without limits, to ``tolerance`` of the value, from ``point``."""

    def enough(p: Array, s: Array, a: Array, gradient: Array) -> bool:
        value = narrow.far(p) + 0.5 * float(a @ (model.target - s))
        return _missing(gradient) <= tolerance * abs(value) and _in_balance(a, gradient, tolerance)

    narrow, used = _narrowed(model)
    start = descended(narrow)[0] if _from_nothing(narrow, point) else point[used]
    narrow, centre = _centred(narrow)
    return _widened(model, _shifted(_minimise(narrow, _shifted(start, centre), enough)[0], -centre), used)


def minimise_hinge(model: RowModel, point: Array, duals: Array | None, tolerance: float) -> tuple[Array, Array]:
    """The minimiser p (d + 1,) and duals a (m,) of sum limit max(0, target - s), to a gap ``tolerance`` of the value.

    ``curvatures`` is not looked at. duals: a of another minimum that may be near, None where nothing is known.
    """
    tolerance = max(tolerance, ROUNDED)
    whole, (model, used) = model, _narrowed(model)
    p = point[used]
    if duals is None and _from_nothing(model, p):
        p, duals = descended(model)
    model, centre = _centred(model)
    p, vain = _shifted(p, centre), 0
    mu, shift = (FIRST, np.zeros(len(model.limit))) if duals is None else (WARM, duals)
    s, a = model.margins(p), shift
    for _ in range(MAX_STAGES):
        near = _reachable(model, s, shift)
        part, moved = model.some(near), shift[near]
        curvatures = part.limit / mu
        stage = replace(part, curvatures=curvatures, target=part.target + moved / curvatures)

        def enough(p: Array, s: Array, a: Array, gradient: Array, part: RowModel = part) -> bool:
            left, value = _gap(part, p, s, a)
            small = max(STAGE * left, 0.1 * tolerance * abs(value))
            return _missing(gradient) <= small and _in_balance(a, gradient, small / abs(value) if value else 0.0)

        p, found, steps = _minimise(stage, p, enough)
        s, a = model.margins(p), np.zeros(len(model.limit))
        a[near] = found
        left, value = _gap(model, p, s, a)
        vain = vain + 1 if steps == MAX_STEPS else 0
        if left <= tolerance * abs(value) or vain == VAIN:
            break
        shift, mu = a, max(SHRINK * mu, LEAST)
    return _widened(whole, _shifted(p, -centre), used), a


def _centred(model: RowModel) -> tuple[RowModel, Array]:
    """The model with dense columns that are far from the origin about their mean, and these means (d,), 0 of others."""
    rows, centre = model.rows, np.zeros(model.rows.shape[1])
    if not model.intercept or is_sparse(rows) or len(rows) == 0:
        return model, centre
    some = np.asarray(rows[:: -(-len(rows) // TELLING)], np.float64)
    mean, spread = some.mean(axis=0), some.std(axis=0)
    distant = np.abs(mean) > DISTANT * np.maximum(spread, np.median(spread))
    if not distant.any() or not np.isfinite(mean[distant]).all():
        return model, centre
    centre[distant] = mean[distant]
    linear = np.append(model.linear[:-1] - model.linear[-1] * centre, model.linear[-1])
    return replace(model, rows=rows - centre, linear=linear), centre


def _shifted(p: Array, centre: Array) -> Array:
    """p (d + 1,) for rows less ``centre`` (d,)."""
    return np.append(p[:-1], p[-1] + centre @ p[:-1]) if centre.any() else p


def _from_nothing(model: RowModel, point: Array) -> bool:
    """Whether nothing is known of the minimum of sparse rows, of which there are enough to be worth finding a start."""
    rows, features = model.rows, model.rows.shape[1]
    return is_sparse(rows) and features > NARROW and rows.nnz >= MANY and not point.any()


def _narrowed(model: RowModel) -> tuple[RowModel, NDArray[np.intp] | slice]:
    """The model on the features that occur in its rows, and their places in (w, b): of all others only ``linear`` says.

    Their best weights are those of the linear term, whose value becomes part of the constant.
    """
    found = on_occurring(model.rows)
    if found is None:
        return model, slice(None)
    rows, used = found
    places = np.append(used, len(model.linear) - 1)
    others = model.linear[:-1].copy()
    others[used] = 0.0
    constant = model.constant - 0.5 * float(others @ others)
    return replace(model, rows=rows, linear=model.linear[places], constant=constant), places


def _widened(model: RowModel, p: Array, used: NDArray[np.intp] | slice) -> Array:
    """The minimiser (d + 1,) of a model from that of the narrowed one."""
    if isinstance(used, slice):
        return p
    wide = model.linear.copy()
    wide[used] = p
    return wide


def _reachable(model: RowModel, s: Array, a: Array) -> NDArray[np.intp]:
    """Rows that lose, or may on the way: the others have no duals in a stage, and what they lose counts in its gap."""
    near = np.flatnonzero((model.target - s > -AWAY) | (a > 0))
    return near if len(near) < MOST * len(s) else np.arange(len(s))


def _gap(model: RowModel, p: Array, s: Array, a: Array) -> tuple[float, float]:
    """The duality gap of the hinge where the gradient vanishes, and the value."""
    t = model.target - s
    exact = model.limit * np.maximum(t, 0.0)
    return float((exact - a * t).sum()), model.far(p) + float(exact.sum())


def _value(model: RowModel, p: Array, s: Array, a: Array) -> float:
    """What is minimised, at p with margins s and duals a there."""
    used = np.flatnonzero(a)
    bent = a[used] * (model.target[used] - s[used] - 0.5 * a[used] / model.curvatures[used])
    return model.far(p) + float(bent.sum())


def _missing(gradient: Array) -> float:
    """By how much the value can be above its minimum over w, which bends by at least 1 everywhere."""
    return float(0.5 * gradient[:-1] @ gradient[:-1])


def _in_balance(a: Array, gradient: Array, tolerance: float) -> bool:
    """Whether the intercept's slope is small against the duals that make it."""
    return abs(float(gradient[-1])) <= 0.1 * tolerance * float(a.sum())


def _minimise(model: RowModel, point: Array, enough: Enough) -> tuple[Array, Array, int]:
    """p, duals there and the steps taken; ends when enough, or when no step goes down in float64.

    MAX_STEPS also where the value no longer falls, whatever the steps promise: of rows that float64 hardly tells apart,
    or of sizes too many for one sum, they are made of rounding.
    """
    p, s = point, model.margins(point)
    a = model.duals(s)
    if enough(p, s, a, model.gradient(p, a)):
        return p, a, 0  # a solution stays as it is
    p, s, a = _in_the_middle(model, p, s)
    best, level = np.inf, 0
    for step_number in range(MAX_STEPS):
        may_stop()
        gradient = model.gradient(p, a)
        if enough(p, s, a, gradient):
            return p, a, step_number
        value = _value(model, p, s, a)
        best, level = (value, 0) if value < best - ROUNDED * abs(value) else (best, level + 1)
        if level == LEVEL:
            break
        step = _newton_step(model, s, gradient)
        change = model.margins(step)
        t = root(_slope_along(model, p, s, step, change)) if float(gradient @ step) < 0 else 0.0
        if not t > 0:
            return p, a, step_number
        p, s, a = _in_the_middle(model, p + t * step, s + t * change)
    return p, a, MAX_STEPS


def _in_the_middle(model: RowModel, p: Array, s: Array) -> tuple[Array, Array, Array]:
    """p, its margins and duals after the best move along the intercept, for which nothing has to be multiplied.

    Where all duals are at their ends, rounding may leave a slope that no move makes up for: then p stays.
    """
    a = model.duals(s)
    slope = -float(model.linear[-1]) - float(model.signs @ a)
    if not model.intercept or abs(slope) <= ROUNDED * float(a.sum()):
        return p, s, a
    edge = np.zeros(len(p))
    edge[-1] = -np.sign(slope)
    change = edge[-1] * model.signs
    t = root(_slope_along(model, p, s, edge, change))
    moved = s + t * change
    found = model.duals(moved)
    if not abs(float(model.linear[-1]) + float(model.signs @ found)) <= LEFT * abs(slope):
        return p, s, a
    return p + t * edge, moved, found


def _slope_along(model: RowModel, p: Array, s: Array, step: Array, change: Array) -> Callable[[float], float]:
    """The slope at p + t step in direction step: increasing and piecewise linear in t."""
    bend = np.append(step[:-1], 0.0)
    constant, linear = float(bend @ p - model.linear @ step), float(bend @ step)

    def slope(t: float) -> float:
        return constant + t * linear - float(model.duals(s + t * change) @ change)

    return slope


def _newton_step(model: RowModel, s: Array, gradient: Array) -> Array:
    """About -H^-1 gradient."""
    a = model.curvatures * (model.target - s)
    near = np.flatnonzero((a >= 0) & (a <= model.limit))
    part, step = model.some(near), -gradient  # where no near row has a value
    found = on_occurring(part.rows)
    if found is None:
        return _of_system(part, gradient)
    rows, used = found
    places = np.append(used, len(gradient) - 1)
    step[places] = _of_system(replace(part, rows=rows, linear=part.linear[places]), gradient[places])
    return step


def _of_system(part: RowModel, gradient: Array) -> Array:
    """About -H^-1 gradient, these being the rows within their limits."""
    rows, features = part.rows.shape
    if 0 < rows <= FEW and (rows <= features or features > NARROW):
        try:
            return _by_gram(part, -gradient)
        except sla.LinAlgError:  # rows that float64 cannot distinguish
            pass
    # Where nothing bends along the intercept any curvature makes a step of it.
    edge = part.curvatures.sum() if part.intercept and rows else 1.0
    diagonal = np.append(1.0 + square_sums(part.rows, part.curvatures), edge)
    flat = np.append(np.ones(len(gradient) - 1), 0.0 if part.intercept and rows else 1.0)

    def product(v: Array) -> Array:
        return np.asarray(flat * v + part.dual_sum(part.curvatures * part.margins(v)))

    turns = _most_turns(part) if rows else MAX_TURNS
    step, found = conjugate_gradients(product, -gradient, FORCING**2, turns, diagonal=diagonal)
    return step if found or features > NARROW else _by_hessian(part, -gradient)


def _most_turns(part: RowModel) -> int:
    """So many turns of conjugate gradients cost what the system itself does, which is the better choice by then."""
    rows, features = part.rows, part.rows.shape[1]
    if features > NARROW:
        return MAX_TURNS
    turn = rows.nnz * SPARSE_TURN if is_sparse(rows) else rows.shape[0] * features * DENSE_TURN
    return max(1, int(features**2 * (rows.shape[0] + features) / max(turn, 1.0)))


def _by_hessian(part: RowModel, right: Array) -> Array:
    """(w, b) from the system of one equation a feature: exact in any units of the features."""
    features = part.rows.shape[1]
    system = np.eye(features + 1)
    system[:-1, :-1] += curvature(part.rows, part.curvatures)
    if part.intercept:
        system[-1, :-1] = system[:-1, -1] = weighted_sum(part.rows, part.curvatures)
        system[-1, -1] = part.curvatures.sum()
    return solve(system, right)


def _by_gram(part: RowModel, right: Array) -> Array:
    """(w, b) with w + K'a = right_w, y.a = right_b for a = curvatures (K w + y b): a system of one equation a row."""
    system = gram(signed(part.rows, part.signs))
    system[np.diag_indices_from(system)] += 1.0 / part.curvatures
    factor = sla.cho_factor(system, check_finite=False, overwrite_a=True)
    a, b = sla.cho_solve(factor, part.signs * products(part.rows, right[:-1, None])[0], check_finite=False), 0.0
    if part.intercept:
        edge = part.signs.astype(np.float64)
        free = sla.cho_solve(factor, edge, check_finite=False)
        b = float((right[-1] - edge @ a) / (edge @ free))
        a = a + b * free
    return np.append(right[:-1] - weighted_sum(part.rows, part.signs * a), b)
