"""The hyperplanes of the answered rows: the largest margins, or with a loss the least values, and their bounds."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Literal, cast

import numpy as np
from numpy.typing import NDArray

from coremargin.maths.breakdown import exact_sum
from coremargin.maths.hard_margin import hulls_meet, solve_hard_margin
from coremargin.maths.kesler import solve_kesler
from coremargin.maths.margin import gamma
from coremargin.maths.multiclass import meets, upper_bound
from coremargin.maths.row_model import RowModel
from coremargin.maths.rows import lengths, take, weighted_sum
from coremargin.maths.soft_margin import balanced, hinge_dual, penalty, relative_gap
from coremargin.maths.span import span_of
from coremargin.problems.active.hypothesis import Hypothesis, margin_below, margins_below
from coremargin.problems.active.strategies import METHODS
from coremargin.problems.soft.losses.table import LOSSES
from coremargin.problems.soft.magnitudes import LONG

if TYPE_CHECKING:
    from coremargin.formats.choices import Loss, Method
    from coremargin.maths.margin import Array
    from coremargin.problems.active.state import Answered
    from coremargin.problems.active.strategies import Centred
    from coremargin.problems.common.driver_rows import WorkingSet

#: Of the value: what a soft margin's solve may leave between its bounds, much less than any epsilon.
TOLERANCE = 1e-9
#: Of the value: with a larger gap than this another way is tried.
ENOUGH = 1e-6
#: Of the terms of a bound: more than any order of its sums can change, unless rows lie far from the origin.
ROUNDING = 1e-10
#: Of the terms of a bound, besides the errors of margins or of the sum of rows.
SUMMED = 4e-12


@dataclass(frozen=True)
class Fitted:
    """Hyperplanes, the dual weights (m, k) of the rows answered, and the bounds lower (s,) and upper (s,) of each slab.

    Without a loss both are of margins: that of the rows answered, and the largest that any hyperplane has there; with
    one of values: what none is below, and that of these. failed: the place of a hyperplane that does not exist,
    because answers contradict each other, or that float64 does not find; the others are not solved then.
    """

    hypothesis: Hypothesis
    weights: Array
    lower: Array
    upper: Array
    failed: int | None = None
    status: Literal["running", "contradiction", "stalled"] = "running"


def largest_margins(
    answered: Answered, last: Hypothesis, method: Method, *, intercept: bool, epsilon: float, centre: bool = False
) -> Fitted:
    """The hyperplanes of the method; a class without answers claims no row, one with all answers claims all.

    centre: those at the centre of the method, as far as epsilon allows.
    """
    k, d = answered.planes, answered.rows.shape[1]
    found, weights = Hypothesis.empty(d, k, soft=False), answered.weights.copy()
    lower, upper = np.zeros(k), np.full(k, np.inf)
    for plane in range(k):
        working_set = answered.against(plane)
        if not working_set.both_classes:
            found.b[plane] = float(working_set.signs[0])
            continue
        solution = METHODS[method].solve(working_set, intercept=intercept, epsilon=epsilon)
        meet, solution = hulls_meet(working_set.rows, working_set.signs, solution, intercept=intercept)
        weights[:, plane], upper[plane] = solution.weights, solution.upper
        if solution.status == "zero":
            return Fitted(last, weights, lower, upper, plane, "contradiction" if meet else "stalled")
        if centre:
            by = cast("Centred", METHODS[method])
            solution = by.toward_centre(working_set, solution, intercept=intercept, epsilon=epsilon)
        found.w[plane], found.b[plane] = solution.w, solution.b
        found.slab[plane] = (1.0 - epsilon) * solution.upper
        lower[plane] = margin_below(working_set.rows, working_set.signs, solution.w, solution.b)
    return Fitted(found, weights, lower, upper)


def margin_at_once(answered: Answered, last: Hypothesis, constant: float, *, intercept: bool, epsilon: float) -> Fitted:
    """The largest margin of all classes at once, of rows whose last entry is ``constant`` (maths/multiclass.py).

    Duals are of pairs of a row and a rival. Classes without answers are rivals like any other.
    """
    rows, codes, k = answered.rows, answered.codes, answered.planes
    if not answered.both_classes:
        alone = Hypothesis.empty(rows.shape[1], k, soft=False, at_once=True)
        alone.b[:] = np.where(np.arange(k) == codes[0], 1.0, -1.0)
        return Fitted(alone, answered.weights, np.zeros(1), np.full(1, np.inf))
    span = span_of(rows, constant)
    best = solve_kesler(span.flat, codes, k, tolerance=min(1e-6, 1e-3 * epsilon))
    used = np.flatnonzero(best.weights.any(axis=1))
    proof, duals = take(rows, used), best.weights[used]
    upper = np.array([upper_bound(proof, codes[used], duals, constant)])
    at = span.up(best.at)
    size = float(np.linalg.norm(at))
    if best.status == "zero" or not size > 0:
        meet = best.status == "zero" and meets(proof, codes[used], duals, intercept=intercept)
        return Fitted(last, best.weights, np.zeros(1), upper, 0, "contradiction" if meet else "stalled")
    at = at / size
    found = Hypothesis(at[:, :-1], constant * at[:, -1], (1.0 - epsilon) * upper, soft=False)
    lower = margins_below(rows, codes, found.decisions(rows), found.w, found.b).min()
    return Fitted(found, best.weights, np.array([lower]), upper)


def least_values(answered: Answered, last: Hypothesis, loss: Loss, cost: float, *, intercept: bool) -> Fitted:
    """The soft margins of the rows answered, each weighing 1; their slab is |w.x + b| < 1."""
    k, d = answered.planes, answered.rows.shape[1]
    found, weights = Hypothesis.empty(d, k, soft=True), np.zeros(answered.weights.shape)
    lower, upper = np.zeros(k), np.full(k, np.inf)
    for plane in range(k):
        working_set = answered.against(plane)
        if not working_set.both_classes:
            found.b[plane] = float(working_set.signs[0])
            continue
        begin = np.append(last.w[plane], last.b[plane] if intercept else 0.0) if last.soft else np.zeros(d + 1)
        best = _minimum(working_set, begin, loss, cost, intercept=intercept)
        if best.gap > ENOUGH:  # C is so large that nothing but the margin counts, where there is one
            best = min([best, *_by_margin(working_set, loss, cost, intercept=intercept)], key=lambda found: found.gap)
        found.w[plane], found.b[plane], found.slab[plane] = best.point[:-1], best.point[-1], 1.0
        weights[:, plane], lower[plane], upper[plane] = best.duals, best.lower, best.upper
    return Fitted(found, weights, lower, upper)


@dataclass(frozen=True)
class _Soft:
    """A hypothesis (w, b) with dual weights (m,), and the bounds of both."""

    point: Array
    duals: Array
    lower: float
    upper: float

    @classmethod
    def of(
        cls, working_set: WorkingSet, point: Array, duals: Array, loss: Loss, cost: float, *, intercept: bool
    ) -> _Soft:
        """With its bounds."""
        upper = _value_above(working_set, point, loss, cost)
        lower = _bound_below(working_set, duals, loss, cost, intercept=intercept)
        return cls(point, duals, min(lower, upper), upper)

    @property
    def gap(self) -> float:
        """Of the value, what is not proven to be needed."""
        return relative_gap(self.upper, self.lower)


def _minimum(working_set: WorkingSet, begin: Array, loss: Loss, cost: float, *, intercept: bool) -> _Soft:
    """The least value; dual weights are in balance where there is an intercept."""
    kind, row_c = LOSSES[loss], np.full(len(working_set), cost)
    curvatures, limit = kind.curvature(row_c)
    model = RowModel(
        np.zeros(len(begin)),
        working_set.rows,
        working_set.signs,
        intercept,
        np.ones(len(working_set)),
        curvatures,
        limit,
    )
    point, duals = kind.minimise(model, begin, None, TOLERANCE)
    if not kind.names_duals:
        duals = model.duals(model.margins(point))
    duals = np.clip(duals, 0.0, limit)
    if intercept:
        fitting = balanced(
            duals, working_set.signs, np.minimum(limit, 2 * duals.max(initial=0.0)), float(working_set.signs @ duals)
        )
        duals = np.zeros(len(duals)) if fitting is None else np.clip(fitting, 0.0, limit)
    point = point if intercept else np.append(point[:-1], 0.0)
    found = _Soft.of(working_set, point, duals, loss, cost, intercept=intercept)
    if found.gap > ENOUGH and intercept and not kind.curves:  # where C is small b decides, and hardly changes the value
        offset = _best_offset(working_set.signs, working_set.rows @ point[:-1])
        other = _Soft.of(working_set, np.append(point[:-1], offset), duals, loss, cost, intercept=True)
        found = min(found, other, key=lambda one: one.gap)
    return found


def _best_offset(signs: NDArray[np.int8], values: Array) -> float:
    """The b of the least sum of hinges, at w.x (m,): each row's begins, or ends, where y (w.x + b) = 1."""
    ends = signs - values
    order = np.argsort(ends, kind="stable")
    slope = np.cumsum(np.ones(len(ends))) - np.count_nonzero(signs > 0)  # behind each end, from left to right
    return float(ends[order][int(np.argmax(slope >= 0))])


def _by_margin(working_set: WorkingSet, loss: Loss, cost: float, *, intercept: bool) -> list[_Soft]:
    """The hypothesis of the largest margin, so long that no row loses; none where no hyperplane separates the rows."""
    hard = solve_hard_margin(working_set.rows, working_set.signs, intercept=intercept)
    margin = margin_below(working_set.rows, working_set.signs, hard.w, hard.b) if hard.status != "zero" else 0.0
    if not margin > 0:
        return []
    v = weighted_sum(working_set.rows, working_set.signs * hard.weights)
    duals = hard.weights * (2.0 if intercept else 1.0) / float(v @ v)
    if loss == "hinge" and duals.max() > cost:
        return []
    point = np.append(hard.w, hard.b) / margin
    point *= 1.0 + 1.1 * float(_margin_errors(working_set, point).max())  # so that no margin can be found below 1
    return [_Soft.of(working_set, point, duals, loss, cost, intercept=intercept)]


def _value_above(working_set: WorkingSet, point: Array, loss: Loss, cost: float) -> float:
    """The value of a hypothesis, rounded up: by more than its margins may be off where they are added up otherwise."""
    margins = working_set.signs * (working_set.rows @ point[:-1] + point[-1])
    shrinkage = penalty(point[:-1], np.ones(len(point) - 1))

    def value(margins: Array) -> float:
        return shrinkage + cost * float(LOSSES[loss].value(margins).sum())

    return max(value(margins) * (1 + ROUNDING), value(margins - _margin_errors(working_set, point)) * (1 + SUMMED))


def _margin_errors(working_set: WorkingSet, point: Array) -> Array:
    """Bounds (m,) on the error of margins, here and in the verifier, which allows as much again."""
    sizes = lengths(working_set.rows) * float(np.linalg.norm(point[:-1]))
    sizes = np.where(sizes > LONG, np.minimum(sizes, abs(working_set.rows) @ np.abs(point[:-1])), sizes)
    return np.asarray(3.0 * gamma(len(point) + 8) * (sizes + abs(point[-1]) + 1.0))


def _bound_below(working_set: WorkingSet, duals: Array, loss: Loss, cost: float, *, intercept: bool) -> float:
    """The lower bound that dual weights prove, rounded down; at least 0.

    For rows far from the origin their sum loses digits, and so does the imbalance of the weights.
    """
    total = LOSSES[loss].dual_total(duals, np.full(len(duals), cost))
    v, sizes = weighted_sum(working_set.rows, working_set.signs * duals), lengths(working_set.rows)
    terms = 2 * float(duals.sum()) + float(v @ v)
    apart = abs(exact_sum((working_set.signs * duals).tolist())) if intercept else 0.0
    off = gamma(len(duals) + 8) * float(duals @ sizes) + 1.01 * apart * float(sizes.max(initial=0.0))
    lost = 1.01 * apart + off * (float(np.linalg.norm(v)) + 0.5 * off)
    return max(0.0, hinge_dual(total, v, np.ones(len(v))) - max(ROUNDING * terms, lost + SUMMED * terms))
