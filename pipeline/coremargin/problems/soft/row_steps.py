"""The near-margin method where all rows are cached: they are read before the first scan, which is then the proof.

And what it shares with block minimisation: a model of some rows, kept as rows, and its minimiser.
"""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

import numpy as np
from numpy.typing import NDArray

from coremargin.maths.margin import is_certified
from coremargin.maths.rows import weighted_sum
from coremargin.maths.smooth import RowModel, minimise_hinge, minimise_squared_hinge
from coremargin.problems.soft.bounds import hinge_bound, sided, squared_bound

if TYPE_CHECKING:
    from coremargin.problems.common.pool import Pool
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
    """The linear term, of which these rows can balance no more on the intercept: with more the model falls without end.

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


def step(objective: Objective, state: SoftState, summary: NearMarginSummary) -> tuple[Array, SoftState]:
    """The dual bound that a scan proves, and the next hypothesis: all rows once more, solved more sharply."""
    pool, duals = state.rows.cached, state.rows.cached_duals
    state = (squared_bound if objective.squared else _bound)(objective, state, summary)
    if is_certified(state.lower, state.upper, objective.epsilon):
        return state.newest, state
    model = model_of(objective, pool, pool.weights, np.zeros(len(state.newest)))
    ahead, duals = minimum(objective, model, state.newest, duals, LATER_SHARE)
    state = replace(state, rows=replace(state.rows, cached_duals=duals))
    return ahead, state if objective.squared else _bound(objective, state, summary)


def _bound(objective: Objective, state: SoftState, summary: NearMarginSummary) -> SoftState:
    """With the dual bound of the duals of the cached rows; those with the dual of their side are not named."""
    far = sided(objective.magnitudes, state.newest, state.rows.cached, state.rows.cached_duals)
    better = _bound_naming(objective, state, summary, far)
    if better is state and far.any():  # the others alone may have no room to put the duals in balance
        better = _bound_naming(objective, state, summary, np.zeros(len(far), bool))
    return better


def _bound_naming(
    objective: Objective, state: SoftState, summary: NearMarginSummary, far: NDArray[np.bool_]
) -> SoftState:
    pool, duals, near = state.rows.cached, state.rows.cached_duals, state.rows.cached.take(np.flatnonzero(~far))
    linear: Array = np.where(far, duals * pool.signs, 0.0)
    also = (float(duals[far].sum()), np.append(weighted_sum(pool.rows, linear), linear.sum()), len(pool))
    rows = (near.ids, near.signs, near.weights)
    return hinge_bound(
        objective, state, summary, rows, duals[~far], lambda a: weighted_sum(near.rows, a * near.signs), also
    )  # fmt: skip
