"""The near-margin method where d x d sums fit: the bound that a scan proves, and the exact minimiser of its model."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np
from numpy.typing import NDArray

from coremargin.maths import rows as row_ops
from coremargin.maths.interior import HingeModel, minimise_hinge
from coremargin.maths.margin import is_certified
from coremargin.maths.newton import Quadratic, Rows, minimise_squared_hinge
from coremargin.problems.soft.ahead import bound_ahead
from coremargin.problems.soft.bounds import hinge_bound, squared_bound
from coremargin.problems.soft.probe import decisions, distances

if TYPE_CHECKING:
    from coremargin.problems.soft.objective import Objective
    from coremargin.problems.soft.rows_with_c import RowsWithC
    from coremargin.problems.soft.state import SoftState
    from coremargin.problems.soft.summary import NearMarginSummary

Array = NDArray[np.float64]


def signed(rows: row_ops.Rows, signs: NDArray[np.int8], intercept: bool) -> row_ops.Rows:
    """y (x, 1) (m, d + 1); the last column is zero without an intercept."""
    return row_ops.signed_points(rows, signs, float(intercept))


def filled(rows: row_ops.Rows, signs: NDArray[np.int8], intercept: bool) -> Array:
    """The same, dense, as the hinge's steps have them."""
    return row_ops.dense(signed(rows, signs, intercept))


def first_step(objective: Objective, some: RowsWithC, near: Array) -> Array:
    """The minimiser over some rows; near (d + 1,): a solution to start from."""
    p = len(near)
    if objective.loss.curves:
        rows = signed(some.rows, some.signs, objective.intercept)
        model = Rows(rows, some.row_c, rows @ near)
        return minimise_squared_hinge(near, objective.metric, Quadratic.zero(p), model)[0]
    every = filled(some.rows, some.signs, objective.intercept)
    hinge = HingeModel(objective.metric, np.zeros(p), every, some.row_c, np.zeros(len(some)))
    return minimise_hinge(hinge, tolerance=1e-9 if len(some) <= 1000 else 1e-6)[0]  # few: perhaps all there are


def crossed(state: SoftState, summary: NearMarginSummary) -> float:
    """Share of the near-margin rows whose margins at the best and the newest hypothesis are on different sides of 1."""
    if state.best is None or not len(summary.row_id):
        return 0.0
    base = np.column_stack([state.newest, state.best])
    return float((distances(decisions(summary.row_x, base) * summary.row_sign) < 0).mean())


def squared_step(objective: Objective, state: SoftState, summary: NearMarginSummary) -> tuple[Array, SoftState]:
    """The exact minimiser of the model (Newton), and the dual bounds of the scan's hypothesis and of this one."""
    state = squared_bound(objective, state, summary)
    curve, slope = summary.far_curve.copy(), -2.0 * summary.far_slope
    if not objective.intercept:
        curve[-1], curve[:, -1], slope[-1] = 0.0, 0.0, 0.0
    rows = signed(summary.row_x, summary.row_sign, objective.intercept)
    model = Rows(rows, summary.row_c, rows @ state.newest)
    far = Quadratic(float(summary.far_value[0]), slope, curve)
    step, _ = minimise_squared_hinge(state.newest, objective.metric, far, model)
    return step, bound_ahead(objective, state, summary, model, curve, step)


def hinge_step(objective: Objective, state: SoftState, summary: NearMarginSummary) -> tuple[Array, SoftState]:
    """The dual bound of the near-margin model, which underestimates the value everywhere, and its minimiser."""
    rows = filled(summary.row_x, summary.row_sign, objective.intercept)
    row_c = summary.row_c
    linear = summary.far_linear.copy()
    if not objective.intercept:
        linear[-1] = 0.0
    free = HingeModel(objective.metric, linear, rows, row_c, np.zeros(len(rows)))
    sample = state.rows.sample
    away = sample.take(np.flatnonzero(np.isin(sample.ids, summary.row_id, invert=True)))
    far_c = float(summary.total_c.sum() - row_c.sum())
    if objective.intercept and not balances(free):
        ahead = guarded(objective, free, away, far_c, state.newest, None)
        return ahead if ahead is not None else minimise_hinge(free)[0], state
    step, duals = minimise_hinge(free)
    near_margin = (summary.row_id, summary.row_sign, row_c)
    state = hinge_bound(objective, state, summary, near_margin, duals, lambda a: rows[:, :-1].T @ a)
    if is_certified(state.lower, state.upper, objective.epsilon):
        return step, state
    ahead = guarded(objective, free, away, far_c, state.newest, step)
    return ahead if ahead is not None else step, state


def balances(free: HingeModel) -> bool:
    """False where no duals near the margin make up for the linear term of the intercept: the model has no minimum."""
    wanted = -float(free.linear[-1])
    room = float(free.right[free.rows[:, -1] * wanted > 0].sum())
    return abs(wanted) <= room


def guarded(
    objective: Objective, free: HingeModel, away: RowsWithC, far_c: float, near: Array, step: Array | None
) -> Array | None:  # fmt: skip
    """The step again, with a loss for far rows that change sides, where rows of a sample show that some would.

    away: far rows of the sample, which stand for all of them, of a sum of c of far_c; near (d + 1,): the hypothesis
    that the model was made at; step: its minimiser, None where it has no minimum.
    """
    rows = filled(away.rows, away.signs, objective.intercept)
    was = rows @ near < 1.0
    if not len(rows) or (step is not None and np.array_equal(was, rows @ step < 1.0)):
        return None
    row_c = away.row_c * (far_c / float(away.row_c.sum()))
    nothing = np.zeros(len(row_c))
    guard = HingeModel(
        free.metric, free.linear, np.vstack([free.rows, rows]),
        np.concatenate([free.right, np.where(was, nothing, row_c)]),
        np.concatenate([free.left, np.where(was, row_c, nothing)]),
    )  # fmt: skip
    return minimise_hinge(guard, tolerance=1e-7)[0]
