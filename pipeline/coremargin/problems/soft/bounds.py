"""What a soft-margin scan proves: the value of the hypothesis from above, the dual from below, each rounded outward.

Given away is what whoever checks a claim in float64, in sums of their own, may lose once more.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

import numpy as np
from numpy.typing import NDArray

from coremargin.maths import soft_margin as soft
from coremargin.maths.margin import gamma
from coremargin.maths.rows import products
from coremargin.problems.soft.objective import LONG
from coremargin.problems.soft.state import Bounds

if TYPE_CHECKING:
    from coremargin.problems.soft.objective import Magnitudes, Objective
    from coremargin.problems.soft.rows_with_c import RowsWithC
    from coremargin.problems.soft.state import SoftState
    from coremargin.problems.soft.summary import NearMarginSummary

Array = NDArray[np.float64]

#: Share of the duals' sum that may have to be moved to put them in balance, in sums of one's own.
BALANCE = 2.0**-46


def best_point(objective: Objective, points: Array, state: SoftState, summary: NearMarginSummary) -> SoftState:
    """The primal bound from the best of the points (k,) that the scan summed up, rounded up."""
    best, least, total_c = state.best, state.upper, float(summary.total_c.sum())
    for k, t in enumerate(points):
        at, size = state.newest, np.abs(state.newest)
        if t != 1 and state.best is not None:  # margins there are those of both ends: so are their errors
            at, size = t * at + (1 - t) * state.best, t * size + (1 - t) * np.abs(state.best)
        value = rounded_up(objective, soft.penalty(at, objective.metric) + float(summary.losses[k]), size, total_c)
        if value < least:
            best, least = at, value
    return replace(state, best=best, bounds=replace(state.bounds, primal=least))


def rounded_up(objective: Objective, value: float, size: Array, total_c: float) -> float:
    """The value and what float64 may have lost: in each margin, and in the sums; size (d + 1,): |(w, b)|.

    total_c: sum of c of all rows.
    """
    margin = gamma(len(size) + 8) * (objective.magnitudes.reach(size[:-1]) + float(size[-1]) + 1.0)
    lost = objective.loss.lost(margin, value, total_c)
    return value * (1.0 + 4.0 * objective.magnitudes.sum_error) + 4.0 * lost


def squared_bound(objective: Objective, state: SoftState, summary: NearMarginSummary) -> SoftState:
    """With the dual bound that the newest hypothesis suggests, of the squared hinge."""
    share = 16.0 * objective.magnitudes.sum_error
    size = objective.magnitudes.reach(np.abs(state.newest[:-1])) + abs(float(state.newest[-1])) + 1.0
    least = float(summary.slack.min() if objective.intercept else summary.slack.sum())
    otherwise = slack_error(size, float(summary.below_c[0]), least)
    errors: list[Array | float] = [(share + 2.0 * otherwise) * objective.magnitudes.longest]
    if objective.magnitudes.longest > LONG and summary.slack.all():
        slack, squares = summary.slack, float(objective.class_c.max()) * summary.squares
        if not objective.intercept:
            slack, squares = slack.sum(keepdims=True), squares.sum(keepdims=True)
        each = [objective.magnitudes.sizes(1.0, square / unit**2) for unit, square in zip(slack, squares, strict=True)]
        below_c = float(summary.below_c[0])
        moved = otherwise / below_c * objective.magnitudes.sizes(below_c, float(objective.class_c.max()) * below_c)
        errors.append(np.asarray(share * np.sum(each, axis=0) + 2.0 * moved))
    sums = (summary.slack, summary.squares, summary.dual_sum)
    dual = max(
        soft.squared_hinge_dual(*sums, objective.metric[:-1], objective.intercept, error=error, share=share)
        for error in errors
    )
    dual *= max(0.0, 1.0 - otherwise)
    if not dual > state.lower:
        return state
    return replace(state, bounds=Bounds.at(state.newest, state.upper, dual))


def slack_error(size: float, below_c: float, slack: float) -> float:
    """How far another's duals may be off, relatively, because they are made of slacks that were rounded otherwise.

    Theirs are a dual point as well, whose sum is less by no more than this share, and whose combination of the rows is
    off by no more than this share of the longest. size: of the terms of a margin; below_c: sum of c of the rows that
    have slack, slack: their sum of c xi.
    """
    return 2.0**-48 * size * below_c / slack if slack > 0 else 0.0


def sided(magnitudes: Magnitudes, at: Array, cached: RowsWithC, duals: Array) -> NDArray[np.bool_]:
    """Cached rows (m,) that nobody has to name: far enough from the margin at ``at``, with their side's dual there."""
    margins = cached.signs * (products(cached.rows, at[:-1, None])[0] + at[-1])
    error = gamma(len(at) + 2) * (magnitudes.longest * float(np.linalg.norm(at[:-1])) + abs(float(at[-1])) + 1.0)
    side = np.where(margins < 1.0, cached.row_c, 0.0)
    return np.asarray((np.abs(margins - 1.0) > 4.0 * error) & (duals == side))


def hinge_bound(
    objective: Objective,
    state: SoftState,
    summary: NearMarginSummary,
    rows: tuple[NDArray[np.int64], NDArray[np.int8], Array],
    duals: Array,
    dual_sum: Callable[[Array], Array],
    also: tuple[float, Array, int] | None = None,
) -> SoftState:
    """With the dual bound of the scan's model, which holds for all rows however far a step leads, of the hinge.

    rows: ids, signs and row_c (m,) of those that are not far; duals (m,) theirs, in their box; dual_sum: sum a y x
    (d,). also: of rows that are far too, though not in the summary: their sums of c and c y (x, 1), and their number.
    """
    ids, signs, row_c = rows
    far_c, linear, terms = float(summary.far_c[0]), summary.far_linear, len(duals)
    if also is not None:
        far_c, linear, terms = far_c + also[0], linear + also[1], terms + also[2]
    if objective.intercept:
        moved = soft.balanced(duals, signs, row_c, float(linear[-1] + duals @ signs))
        if moved is None:
            return state
        duals = moved
    return dual_bound(objective, state, DualSums(far_c, linear[:-1] + dual_sum(duals), terms), (ids, signs, duals))


@dataclass(frozen=True)
class DualSums:
    """Of duals a: others, their sum over rows that are not named; dual_sum (d,): sum of a y x over all rows.

    terms: rows that were summed up on the driver; taken: duals of rows that were summed up and taken out again.
    """

    others: float
    dual_sum: Array
    terms: int
    taken: float = 0.0


def dual_bound(
    objective: Objective,
    state: SoftState,
    sums: DualSums,
    named: tuple[NDArray[np.int64], NDArray[np.int8], Array],
    reference: tuple[Array, NDArray[np.int64]] | None = None,
) -> SoftState:
    """With the dual bound of duals in balance: those of a hypothesis, the newest, but for the rows named.

    named: ids, signs, duals. reference: the hypotheses (s, d + 1), and of each chunk (c,) which of them, where it is
    not the newest for all.
    """
    ids, signs, duals = named
    at, of = reference or (state.newest, np.zeros(0, np.int64))
    total, v = sums.others + float(duals.sum()), sums.dual_sum
    value = soft.hinge_dual(total, v, objective.metric[:-1])
    error = 8.0 * (objective.magnitudes.sum_error + gamma(sums.terms))
    summed = total + 2.0 * sums.taken
    value -= error * summed + _dual_sum_error(objective, v, summed, error)
    moved = BALANCE * total * objective.magnitudes.longest
    value -= moved * (float(np.linalg.norm(v)) + moved)
    if not value > state.lower:
        return state
    return replace(state, bounds=Bounds(state.upper, value, at, ids, signs, duals, of))


def _dual_sum_error(objective: Objective, v: Array, total: float, error: float) -> float:
    """How much 1/2 ||v||^2 may be off, v (d,) being a sum of rows whose duals add up to ``total``, each off by a share.

    error: that share. Bounded by the longest row or, where that is large, feature by feature. Squares of errors count:
    beside long rows v may be nothing, and they all that there is. They count twice, so that another error may be added.
    """
    length = error * total * objective.magnitudes.longest
    by_length = length * (float(np.linalg.norm(v)) + length)
    if by_length <= error * total * LONG:
        return by_length
    each = error * objective.magnitudes.sizes(total, float(objective.class_c.max()) * total)
    return min(by_length, float(np.abs(v) @ each + each @ each))
