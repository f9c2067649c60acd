"""The near-margin method where d x d sums do not fit, or rows are sparse: the same models, kept as rows.

Rows that were sent stay: the scans sum up all others. Where all rows fit they are read before the first scan, which is
then the proof. Otherwise rows of the sample stand for those that no one holds, corrected so that the model has the
slope that the scan found; what bends is exact for cached rows, and an estimate for the others.
"""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

import numpy as np
from numpy.typing import NDArray

from coremargin.maths.margin import is_certified
from coremargin.maths.rows import as_float64, products, row_sizes, weighted_sum
from coremargin.maths.smooth import RowModel, minimise_hinge, minimise_squared_hinge
from coremargin.problems.common.pool import Pool
from coremargin.problems.soft.bounds import hinge_bound, sided, squared_bound

if TYPE_CHECKING:
    from coremargin.problems.soft.objective import Objective
    from coremargin.problems.soft.state import SoftState
    from coremargin.problems.soft.summary import NearMarginSummary

Array = NDArray[np.float64]

#: What a model's solution may leave of the gap that is asked for: before the first scan, and after it.
FIRST_SHARE, LATER_SHARE = 0.02, 0.002


def first_step(objective: Objective, pool: Pool, row_c: Array, near: Array, duals: Array | None) -> tuple[Array, Array]:
    """The minimiser (d + 1,) over some rows with these row_c, and with the hinge its duals (m,), else zeros.

    near, duals: to start from, None: nothing is known of the duals.
    """
    return minimum(objective, model_of(objective, pool, row_c, np.zeros(len(near))), near, duals, FIRST_SHARE)


def model_of(objective: Objective, pool: Pool, row_c: Array, linear: Array) -> RowModel:
    """The losses of rows with these row_c (m,), and a linear term (d + 1,) for all others."""
    squared = objective.squared
    linear = linear if objective.intercept else np.append(linear[:-1], 0.0)
    return RowModel(
        linear=linear, rows=pool.rows, signs=pool.signs, intercept=objective.intercept, target=np.ones(len(pool)),
        curvatures=2.0 * row_c if squared else row_c, limit=np.full(len(pool), np.inf) if squared else row_c,
    )  # fmt: skip


def within_reach(linear: Array, model: RowModel) -> Array:
    """The linear term, of which these rows can balance no more for the intercept: with more the model has no minimum.

    The other duals are in balance but for what solves leave, and rows of one class may all be at their limits.
    """
    positive, negative = (float(model.limit[model.signs == sign].sum()) for sign in (1, -1))
    return np.append(linear[:-1], np.clip(linear[-1], -positive, negative))


def minimum(
    objective: Objective, model: RowModel, near: Array, duals: Array | None, share: float
) -> tuple[Array, Array]:
    """The minimiser (d + 1,) to a share of the gap that is asked for, and with the hinge its duals (m,), else zeros."""
    if objective.squared:
        return minimise_squared_hinge(model, near, share * objective.epsilon), np.zeros(len(model.signs))
    return minimise_hinge(model, near, duals, share * objective.epsilon)


def step(
    objective: Objective, state: SoftState, summary: NearMarginSummary, room: int | None
) -> tuple[Array, SoftState]:
    """The dual bound, the next hypothesis, and the cached rows for the next scan: of ``room`` bytes, None: all."""
    state = _grown(state, summary)
    pool, duals = state.rows.cached, state.rows.cached_duals
    if objective.squared:
        state, linear = squared_bound(objective, state, summary), 2.0 * summary.far_slope
    else:
        state, linear = _bound(objective, state, summary, duals), summary.far_linear
    if is_certified(state.lower, state.upper, objective.epsilon):
        return state.newest, state
    ahead, duals = state.newest, state.rows.cached_duals
    if not objective.squared or not summary.far_c[0] > 0:
        ahead, duals = minimum(objective, model_of(objective, pool, pool.weights, linear), ahead, duals, LATER_SHARE)
        if not objective.squared:
            state = _bound(objective, state, summary, duals)
    guarded = _guarded(objective, state, summary, linear, ahead, duals)
    if guarded is not None:
        ahead, duals = guarded
        if not objective.squared:
            state = _bound(objective, state, summary, duals)
    return ahead, _kept(_with(state, pool, duals), ahead, room)


def _bound(objective: Objective, state: SoftState, summary: NearMarginSummary, duals: Array) -> SoftState:
    """With the dual bound of these duals (m,) of the cached rows; those with the dual of their side are not named."""
    far = sided(objective.magnitudes, state.newest, state.rows.cached, duals)
    better = _bound_naming(objective, state, summary, duals, far)
    if better is state and far.any():  # the others alone may have no room to put the duals in balance
        better = _bound_naming(objective, state, summary, duals, np.zeros(len(far), bool))
    return better


def _bound_naming(
    objective: Objective, state: SoftState, summary: NearMarginSummary, duals: Array, far: NDArray[np.bool_]
) -> SoftState:
    pool, near = state.rows.cached, state.rows.cached.take(np.flatnonzero(~far))
    signed_duals: Array = np.where(far, duals * pool.signs, 0.0)
    also = (float(duals[far].sum()), np.append(weighted_sum(pool.rows, signed_duals), signed_duals.sum()), len(pool))
    rows = (near.ids, near.signs, near.weights)
    return hinge_bound(
        objective, state, summary, rows, duals[~far], lambda a: weighted_sum(near.rows, a * near.signs), also
    )  # fmt: skip


def _grown(state: SoftState, summary: NearMarginSummary) -> SoftState:
    """The cached rows with those that the scan sent, whose duals are those of their side."""
    if not len(summary.row_id):
        return state
    rows = as_float64(summary.row_x)
    margins = summary.row_sign * (products(rows, state.newest[:-1, None])[0] + state.newest[-1])
    coming = Pool(summary.row_id, rows, summary.row_sign, summary.row_c)
    pool = Pool.joined([state.rows.cached, coming])
    order = np.argsort(pool.ids, kind="stable")
    side = np.where(margins < 1.0, summary.row_c, 0.0)
    return _with(state, pool.take(order), np.concatenate([state.rows.cached_duals, side])[order])


def _with(state: SoftState, cached: Pool, duals: Array) -> SoftState:
    """The state with these cached rows, and their duals (m,)."""
    return replace(state, rows=replace(state.rows, cached=cached, cached_duals=duals))


def _guarded(
    objective: Objective, state: SoftState, summary: NearMarginSummary, linear: Array, ahead: Array, duals: Array
) -> tuple[Array, Array] | None:
    """The step again, with rows of the sample for those not cached; None where nothing speaks against the one ahead.

    The scan says how the value of all rows changes at the newest hypothesis: the stand-ins only how that will change.
    """
    sample, pool = state.rows.sample, state.rows.cached
    away = np.flatnonzero(np.isin(sample.ids, pool.ids, invert=True))
    missing = float(summary.total_c.sum() - pool.weights.sum())
    if not len(away) or not missing > 0:
        return None
    sample = sample.take(away)
    row_c = sample.weights * (missing / float(sample.weights.sum()))
    far = model_of(objective, sample, row_c, np.zeros(len(linear)))
    was, would = far.margins(state.newest), far.margins(ahead)
    if not objective.squared:
        if not ((was < 1.0) != (would < 1.0)).any():
            return None
        sample_duals = np.where(was < 1.0, row_c, 0.0)
    else:
        sample_duals = far.duals(was)
    both = Pool.joined([pool, sample.weighted(row_c)])
    model = model_of(objective, both, both.weights, linear - far.dual_sum(sample_duals))
    ahead, found = minimum(objective, model, state.newest, np.concatenate([duals, sample_duals]), FIRST_SHARE)
    return ahead, found[: len(pool)]


def _kept(state: SoftState, ahead: Array, room: int | None) -> SoftState:
    """Only so many bytes of the cached rows, None: all: those nearest to the margin at the next hypothesis."""
    pool = state.rows.cached
    if room is None:
        return state
    margins = pool.signs * (products(pool.rows, ahead[:-1, None])[0] + ahead[-1])
    order = np.lexsort([pool.ids, np.abs(margins - 1.0)])
    fits = int(np.searchsorted(np.cumsum(row_sizes(pool.rows)[order]), room, side="right"))
    kept = np.sort(order[:fits])
    return _with(state, pool.take(kept), state.rows.cached_duals[kept])
