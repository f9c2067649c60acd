"""The band method where d x d sums fit: the bound that a scan proves, and the exact minimiser of its band model."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np
from numpy.typing import NDArray

from coremargin.maths import rows as some
from coremargin.maths.interior import HingeModel, minimise_hinge
from coremargin.maths.margin import is_certified
from coremargin.maths.newton import Quadratic, Rows, minimise_squared_hinge
from coremargin.problems.soft.ahead import bound_ahead
from coremargin.problems.soft.bounds import hinge_bound, squared_bound
from coremargin.problems.soft.probe import decisions, distances

if TYPE_CHECKING:
    from coremargin.problems.common.pool import Pool
    from coremargin.problems.soft.job import SoftJob
    from coremargin.problems.soft.state import SoftState
    from coremargin.problems.soft.summary import BandSummary

Array = NDArray[np.float64]


def _signed(problem: SoftJob, rows: some.Rows, signs: NDArray[np.int8]) -> some.Rows:
    """y (x, 1) (m, d + 1); the last column is zero without an intercept."""
    return some.signed_points(rows, signs, float(problem.intercept))


def first_step(problem: SoftJob, pool: Pool, prices: Array, near: Array) -> Array:
    """The minimiser over some rows, at these prices; near (d + 1,): a solution to start from."""
    rows = _signed(problem, pool.rows, pool.signs)
    p = rows.shape[1]
    if problem.loss == "squared_hinge":
        model = Rows(rows, prices, rows @ near)
        return minimise_squared_hinge(near, problem.metric, Quadratic.zero(p), model)[0]
    hinge = HingeModel(problem.metric, np.zeros(p), np.asarray(rows, np.float64), prices, np.zeros(len(pool)))
    return minimise_hinge(hinge, tolerance=1e-9 if len(pool) <= 1000 else 1e-6)[0]  # few: perhaps all there are


def crossed(state: SoftState, summary: BandSummary) -> float:
    """Share of the band's rows whose margins at the best and the newest hypothesis are on different sides of 1."""
    if state.best is None or not len(summary.row_id):
        return 0.0
    base = np.column_stack([state.newest, state.best])
    return float((distances(decisions(summary.row_x, base) * summary.row_sign) < 0).mean())


def squared_step(problem: SoftJob, state: SoftState, summary: BandSummary) -> tuple[Array, SoftState]:
    """The exact minimiser of the band model (Newton), and the dual bounds of the scan's hypothesis and of this one."""
    state = squared_bound(problem, state, summary)
    curve, slope = summary.far_curve.copy(), -2.0 * summary.far_slope
    if not problem.intercept:
        curve[-1], curve[:, -1], slope[-1] = 0.0, 0.0, 0.0
    rows = _signed(problem, summary.row_x, summary.row_sign)
    model = Rows(rows, summary.row_price, rows @ state.newest)
    far = Quadratic(float(summary.far_value[0]), slope, curve)
    step, _ = minimise_squared_hinge(state.newest, problem.metric, far, model)
    return step, bound_ahead(problem, state, summary, model, curve, step)


def hinge_step(problem: SoftJob, state: SoftState, summary: BandSummary) -> tuple[Array, SoftState]:
    """The dual bound of the band model, which underestimates the value everywhere, and its minimiser."""
    rows = np.asarray(_signed(problem, summary.row_x, summary.row_sign), np.float64)
    prices = summary.row_price
    push = summary.far_push.copy()
    if not problem.intercept:
        push[-1] = 0.0
    free = HingeModel(problem.metric, push, rows, prices, np.zeros(len(rows)))
    if not _balances(problem, free):
        guarded = _guarded(problem, state, summary, free, None)
        return guarded if guarded is not None else minimise_hinge(free)[0], state
    step, duals = minimise_hinge(free)
    band = (summary.row_id, summary.row_sign, prices)
    state = hinge_bound(problem, state, summary, band, duals, lambda a: rows[:, :-1].T @ a)
    if is_certified(state.dual, state.primal, problem.epsilon):
        return step, state
    guarded = _guarded(problem, state, summary, free, step)
    return guarded if guarded is not None else step, state


def _balances(problem: SoftJob, free: HingeModel) -> bool:
    """False where no duals of the band make up for the push on the intercept: the model falls without end."""
    wanted = -float(free.push[-1])
    room = float(free.right[free.rows[:, -1] * wanted > 0].sum())
    return not problem.intercept or abs(wanted) <= room


def _guarded(
    problem: SoftJob, state: SoftState, summary: BandSummary, free: HingeModel, step: Array | None
) -> Array | None:
    """The step again, with a price on far rows that change sides, where rows of the sample show that some would.

    step: None, where the model without such prices has no minimum.
    """
    away = np.isin(state.sample.ids, summary.row_id, invert=True)
    rows = _signed(problem, state.sample.rows[away], state.sample.signs[away])
    was = rows @ state.newest < 1.0
    if not len(rows) or (step is not None and np.array_equal(was, rows @ step < 1.0)):
        return None
    prices = state.sample.weights[away]
    prices = prices * float(summary.mass.sum() - summary.row_price.sum()) / float(prices.sum())
    nothing = np.zeros(len(prices))
    guard = HingeModel(
        free.metric, free.push, np.vstack([free.rows, rows]),
        np.concatenate([free.right, np.where(was, nothing, prices)]),
        np.concatenate([free.left, np.where(was, prices, nothing)]),
    )  # fmt: skip
    return minimise_hinge(guard, tolerance=1e-7)[0]
