"""Both losses on many features: a semi-smooth Newton method that stores no matrix besides the rows.

    minimise 1/2 ||w||^2 - linear term.p + sum_i phi_i(target_i - s_i),     s_i = y_i (w.x_i + b),     p = (w, b)

    phi_i(t) = max over a in [0, limit_i] of a t - a^2 / (2 curvature_i),  best at a_i = clip(curvature_i t, 0, limit_i)

The squared hinge with C = c has curvatures 2 c without a limit; curvatures c / mu and limit c is the hinge, smoothed by
mu. a is the dual point. Newton's systems, E + K' diag(curvatures) K over the rows K within their limits (E: ones, and 0
for the intercept), are solved by the Gram matrix of K if it has few rows, else by conjugate gradients with a diagonal
preconditioner or, with not too many features, directly; always restricted to the features that occur in K. Line
searches are exact (Keerthi, DeCoste 2005 for the squared hinge).

Dense columns far from the origin are centred first, for which a free intercept compensates: otherwise products of their
values would lose all digits of their differences.

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
#: Newton's systems are solved to FORCING of their right side, stages to STAGE of the remaining gap.
FORCING, STAGE = 0.1, 0.1
#: Relative rounding error of a sum of many rows: smaller tolerances cannot be reached.
ROUNDED = 64 * float(np.finfo(np.float64).eps)
#: A move along the intercept is accepted if it leaves at most this share of the slope.
LEFT = 1e-3
#: Rows with margins more than AWAY beyond 1 are skipped in a stage, if at most the share MOST remains.
AWAY, MOST = 0.5, 0.5
#: Up to this many rows within their limits, a dense system of that size is solved directly.
FEW = 1000
#: Up to NARROW features, the system is solved directly if conjugate gradients would cost more: they take DENSE_TURN or
#: #: SPARSE_TURN times its floating-point operations for each value of the rows and iteration. Measured on one core.
NARROW, DENSE_TURN, SPARSE_TURN = 2000, 30.0, 50.0
#: From this many values on, compiled code is used: loading it takes 0.7 s per process, like Newton steps on them.
MANY = 1 << 20


#: Columns with a mean of DISTANT times their spread, and the usual one, are centred; estimated from TELLING rows.
DISTANT, TELLING = 16.0, 256
#: The method ends after this many stages in a row that reach the step limit before their minimum.
VAIN = 2
#: After this many steps in a row without a lower value, float64 resolves no further progress.
LEVEL = 10


#: (p, s, a, gradient) -> whether p is accurate enough.
Enough = Callable[[Array, Array, Array, Array], bool]


def minimise_squared_hinge(model: RowModel, point: Array, tolerance: float) -> Array:
    """The minimiser p (d + 1,) of a model without limits, to ``tolerance`` of the value, from ``point``."""

    def enough(p: Array, s: Array, a: Array, gradient: Array) -> bool:
        value = narrow.far(p) + 0.5 * float(a @ (model.target - s))
        return _missing(gradient) <= tolerance * abs(value) and _in_balance(a, gradient, tolerance)

    narrow, used = _narrowed(model)
    start = descended(narrow)[0] if _needs_starting_point(narrow, point) else point[used]
    narrow, centre = _centred(narrow)
    return _widened(model, _shifted(_minimise(narrow, _shifted(start, centre), enough)[0], -centre), used)


def minimise_hinge(model: RowModel, point: Array, duals: Array | None, tolerance: float) -> tuple[Array, Array]:
    """The minimiser p (d + 1,) and duals a (m,) of sum limit max(0, target - s), to a gap ``tolerance`` of the value.

    ``curvatures`` is not used. duals: a of a nearby minimum, as a warm start; None without one.
    """
    tolerance = max(tolerance, ROUNDED)
    whole, (model, used) = model, _narrowed(model)
    p = point[used]
    if duals is None and _needs_starting_point(model, p):
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
    """The model with dense columns far from the origin centred; and their means (d,), 0 for other columns."""
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


def _needs_starting_point(model: RowModel, point: Array) -> bool:
    """Whether sparse rows have no warm start, and are so many that ``coordinates`` should find a starting point."""
    rows, features = model.rows, model.rows.shape[1]
    return is_sparse(rows) and features > NARROW and rows.nnz >= MANY and not point.any()


def _narrowed(model: RowModel) -> tuple[RowModel, NDArray[np.intp] | slice]:
    """The model on the features that occur in its rows, and their places in (w, b).

    The best weights of all other features are those of the linear term; their value becomes part of the constant.
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
    """Rows with a loss now, or perhaps later in the stage; the gap counts losses of the others, which have no duals."""
    near = np.flatnonzero((model.target - s > -AWAY) | (a > 0))
    return near if len(near) < MOST * len(s) else np.arange(len(s))


def _gap(model: RowModel, p: Array, s: Array, a: Array) -> tuple[float, float]:
    """The duality gap of the hinge at a point with zero gradient, and the value."""
    t = model.target - s
    exact = model.limit * np.maximum(t, 0.0)
    return float((exact - a * t).sum()), model.far(p) + float(exact.sum())


def _value(model: RowModel, p: Array, s: Array, a: Array) -> float:
    """The objective at p, with margins s and duals a there."""
    used = np.flatnonzero(a)
    bent = a[used] * (model.target[used] - s[used] - 0.5 * a[used] / model.curvatures[used])
    return model.far(p) + float(bent.sum())


def _missing(gradient: Array) -> float:
    """Upper bound on the value minus its minimum over w, by strong convexity."""
    return float(0.5 * gradient[:-1] @ gradient[:-1])


def _in_balance(a: Array, gradient: Array, tolerance: float) -> bool:
    """Whether the slope of the intercept is small relative to the duals in its sum."""
    return abs(float(gradient[-1])) <= 0.1 * tolerance * float(a.sum())


def _minimise(model: RowModel, point: Array, enough: Enough) -> tuple[Array, Array, int]:
    """p, its duals and the number of steps; ends when ``enough``, or when no step decreases the value in float64.

    The number is MAX_STEPS also if the value no longer decreases: predicted gains are then rounding errors, of rows
    that float64 hardly distinguishes, or of terms of very different sizes.
    """
    p, s = point, model.margins(point)
    a = model.duals(s)
    if enough(p, s, a, model.gradient(p, a)):
        return p, a, 0  # already a solution
    p, s, a = _with_balanced_intercept(model, p, s)
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
        p, s, a = _with_balanced_intercept(model, p + t * step, s + t * change)
    return p, a, MAX_STEPS


def _with_balanced_intercept(model: RowModel, p: Array, s: Array) -> tuple[Array, Array, Array]:
    """p, its margins and duals after the best move along the intercept, which needs no products.

    If all duals are at their limits, rounding may leave a slope that no move removes: then p does not change.
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
    part, step = model.some(near), -gradient  # no near row has stored values
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
    # Without curvature along the intercept, any positive one gives a step.
    edge = part.curvatures.sum() if part.intercept and rows else 1.0
    diagonal = np.append(1.0 + square_sums(part.rows, part.curvatures), edge)
    flat = np.append(np.ones(len(gradient) - 1), 0.0 if part.intercept and rows else 1.0)

    def product(v: Array) -> Array:
        return np.asarray(flat * v + part.dual_sum(part.curvatures * part.margins(v)))

    turns = _most_turns(part) if rows else MAX_TURNS
    step, found = conjugate_gradients(product, -gradient, FORCING**2, turns, diagonal=diagonal)
    return step if found or features > NARROW else _by_hessian(part, -gradient)


def _most_turns(part: RowModel) -> int:
    """The number of conjugate-gradient iterations at the cost of a direct solve, which is better from then on."""
    rows, features = part.rows, part.rows.shape[1]
    if features > NARROW:
        return MAX_TURNS
    turn = rows.nnz * SPARSE_TURN if is_sparse(rows) else rows.shape[0] * features * DENSE_TURN
    return max(1, int(features**2 * (rows.shape[0] + features) / max(turn, 1.0)))


def _by_hessian(part: RowModel, right: Array) -> Array:
    """(w, b) from the system with an equation for each feature: accurate for any units of the features."""
    features = part.rows.shape[1]
    system = np.eye(features + 1)
    system[:-1, :-1] += curvature(part.rows, part.curvatures)
    if part.intercept:
        system[-1, :-1] = system[:-1, -1] = weighted_sum(part.rows, part.curvatures)
        system[-1, -1] = part.curvatures.sum()
    return solve(system, right)


def _by_gram(part: RowModel, right: Array) -> Array:
    """(w, b) with w + K'a = right_w, y.a = right_b for a = curvatures (K w + y b): one equation for each row."""
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
