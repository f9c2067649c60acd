"""What a soft-margin scan leads to: the dual bound that it proves, and the next hypothesis."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

import numpy as np
from numpy.typing import NDArray

from coremargin.maths import soft_margin as soft
from coremargin.maths.interior import HingeModel, minimise_hinge
from coremargin.maths.margin import gamma
from coremargin.maths.newton import Quadratic, Rows, minimise_squared_hinge

if TYPE_CHECKING:
    from coremargin.problems.band_summary import BandSummary
    from coremargin.problems.soft_margin import SoftMargin
    from coremargin.problems.soft_state import SoftState

Array = NDArray[np.float64]


def squared_step(problem: SoftMargin, state: SoftState, summary: BandSummary) -> tuple[Array, SoftState]:
    """The dual bound of the scan's hypothesis, and the exact minimiser of its band model (Newton)."""
    dual = soft.squared_hinge_dual(
        summary.slack, summary.squares, summary.pull, problem.metric[:-1], problem.intercept,
        error=_pull_error(problem), share=16.0 * problem.sum_error,
    )  # fmt: skip
    dual *= max(0.0, 1.0 - _slack_error(problem, state.newest, summary))
    if dual > state.dual:
        state = replace(state, dual=dual, reference=state.newest)
    curve, slope = summary.far_curve.copy(), -2.0 * summary.far_slope
    if not problem.intercept:
        curve[-1], curve[:, -1], slope[-1] = 0.0, 0.0, 0.0
    rows = problem.signed(summary.row_x, summary.row_sign)
    model = Rows(rows, summary.row_price, rows @ state.newest)
    far = Quadratic(float(summary.far_value[0]), slope, curve)
    step, _ = minimise_squared_hinge(state.newest, problem.metric, far, model)
    return step, state


def _pull_error(problem: SoftMargin) -> float:
    """Bound on the rounding error of ``pull / slack``: a mean of rows."""
    return 16.0 * problem.sum_error * float(problem.source.scalars().max_norm.max())


def _slack_error(problem: SoftMargin, at: Array, summary: BandSummary) -> float:
    """How far another's duals may be off, relatively, because they are made of slacks that were rounded otherwise.

    Theirs are as good a dual point, near a maximum: what they lose is less than this share of the value.
    """
    size = float(problem.source.scalars().max_norm.max()) * float(np.linalg.norm(at[:-1])) + abs(float(at[-1])) + 1.0
    slack = float(summary.slack.min() if problem.intercept else summary.slack.sum())
    return 2.0**-48 * size * float(summary.at_stake[0]) / slack if slack > 0 else 0.0


def hinge_step(problem: SoftMargin, state: SoftState, summary: BandSummary) -> tuple[Array, SoftState]:
    """The dual bound of the band model, which underestimates the value everywhere, and its minimiser."""
    rows, prices = problem.signed(summary.row_x, summary.row_sign), summary.row_price
    push = summary.far_push.copy()
    if not problem.intercept:
        push[-1] = 0.0
    free = HingeModel(problem.metric, push, rows, prices, np.zeros(len(rows)))
    step, duals = minimise_hinge(free)
    state = _hinge_dual(problem, state, summary, rows, push, duals, prices)
    guarded = _guarded(problem, state, summary, free, step)
    return guarded if guarded is not None else step, state


def _hinge_dual(
    problem: SoftMargin, state: SoftState, summary: BandSummary, rows: Array, push: Array, duals: Array, prices: Array
) -> SoftState:
    """The dual bound of the scan's model: it holds for all rows, however far the step."""
    if problem.intercept:
        moved = soft.balanced(duals, summary.row_sign, prices, float(push[-1] + duals @ summary.row_sign))
        if moved is None:
            return state
        duals = moved
    v = push[:-1] + rows[:, :-1].T @ duals
    total = float(summary.far_price[0] + duals.sum())
    value = soft.hinge_dual(total, v, problem.metric[:-1])
    longest = float(problem.source.scalars().max_norm.max())
    error = problem.sum_error + gamma(len(duals))
    lost = 8.0 * error * total * (1.0 + longest * float(np.linalg.norm(v)))
    if value - lost > state.dual:
        state = replace(
            state,
            dual=value - lost,
            reference=state.newest,
            band_ids=summary.row_id,
            band_signs=summary.row_sign,
            band_duals=duals,
        )
    return state


def _guarded(
    problem: SoftMargin, state: SoftState, summary: BandSummary, free: HingeModel, step: Array
) -> Array | None:
    """The step again, with a price on far rows that change sides, where rows of the sample show that some would."""
    away = np.isin(state.sample.ids, summary.row_id, invert=True)
    signed = problem.signed(state.sample.rows[away], state.sample.signs[away])
    was, would = signed @ state.newest < 1.0, signed @ step < 1.0
    if not (was != would).any():
        return None
    prices = state.sample.weights[away]
    prices = prices * float(summary.mass.sum() - summary.row_price.sum()) / float(prices.sum())
    nothing = np.zeros(len(prices))
    guard = HingeModel(
        free.metric, free.push, np.vstack([free.rows, signed]),
        np.concatenate([free.right, np.where(was, nothing, prices)]),
        np.concatenate([free.left, np.where(was, prices, nothing)]),
    )  # fmt: skip
    return minimise_hinge(guard, tolerance=1e-7)[0]
