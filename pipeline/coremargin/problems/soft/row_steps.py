"""The near-margin method where all rows are cached: they are read before the first scan, which is then the proof.

And what it shares with block minimisation: a model of some rows, kept as rows, and its minimiser.
"""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

import numpy as np
from numpy.typing import NDArray

from coremargin.maths.margin import is_certified
from coremargin.maths.row_model import RowModel
from coremargin.maths.rows import weighted_sum
from coremargin.problems.soft.bounds import hinge_bound, sided, squared_bound

if TYPE_CHECKING:
    from coremargin.problems.soft.objective import Objective
    from coremargin.problems.soft.rows_with_c import RowsWithC
    from coremargin.problems.soft.state import SoftState
    from coremargin.problems.soft.summary import NearMarginSummary

Array = NDArray[np.float64]

#: What a model's solution may leave of the gap that is asked for: before the first scan, and after it.
FIRST_SHARE, LATER_SHARE = 0.25, 0.002


def first_step(objective: Objective, some: RowsWithC, near: Array, duals: Array | None) -> tuple[Array, Array]:
    """The minimiser (d + 1,) over some rows, and with the hinge its duals (m,), else zeros.

    near, duals: to start from, None: nothing is known of the duals.
    """
    return minimum(objective, model_of(objective, some, np.zeros(len(near))), near, duals, FIRST_SHARE)


def model_of(objective: Objective, some: RowsWithC, linear: Array) -> RowModel:
    """The losses of some rows, and a linear term (d + 1,) for all others."""
    curvatures, limit = objective.loss.bends(some.row_c)
    linear = linear if objective.intercept else np.append(linear[:-1], 0.0)
    return RowModel(
        linear=linear, rows=some.rows, signs=some.signs, intercept=objective.intercept, target=np.ones(len(some)),
        curvatures=curvatures, limit=limit,
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
    return objective.loss.minimum(model, near, duals, share * objective.epsilon)


def step(objective: Objective, state: SoftState, summary: NearMarginSummary) -> tuple[Array, SoftState]:
    """The dual bound that a scan proves, and the next hypothesis: all rows once more, solved more sharply."""
    cached, duals = state.rows.cached, state.rows.cached_duals
    state = (_bound if objective.loss.names_duals else squared_bound)(objective, state, summary)
    if is_certified(state.lower, state.upper, objective.epsilon):
        return state.newest, state
    model = model_of(objective, cached, np.zeros(len(state.newest)))
    ahead, duals = minimum(objective, model, state.newest, duals, LATER_SHARE)
    state = replace(state, rows=replace(state.rows, cached_duals=duals))
    return ahead, _bound(objective, state, summary) if objective.loss.names_duals else state


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
    cached, duals = state.rows.cached, state.rows.cached_duals
    near = cached.take(np.flatnonzero(~far))
    linear: Array = np.where(far, duals * cached.signs, 0.0)
    also = (float(duals[far].sum()), np.append(weighted_sum(cached.rows, linear), linear.sum()), len(cached))
    rows = (near.ids, near.signs, near.row_c)
    return hinge_bound(
        objective, state, summary, rows, duals[~far], lambda a: weighted_sum(near.rows, a * near.signs), also
    )  # fmt: skip
