"""What selective block minimisation does with the rows at hand: their part of the dual is solved, all others fixed."""

from __future__ import annotations

from dataclasses import fields, replace
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from coremargin.maths import soft_margin as soft
from coremargin.maths.breakdown import exact_sum
from coremargin.maths.rows import as_float64, row_sizes, take, weighted_sum
from coremargin.problems.soft import row_steps
from coremargin.problems.soft.rows_with_c import RowsWithC
from coremargin.problems.soft.start import thinned

if TYPE_CHECKING:
    from coremargin.problems.soft.block_state import BlockPass
    from coremargin.problems.soft.objective import Objective
    from coremargin.problems.soft.probe import NearMarginProbe
    from coremargin.problems.soft.summary import NearMarginSummary

Array = NDArray[np.float64]

#: A solve leaves this share of what the last one gained, or of the gap that is asked for.
LEFT = 0.5


def solved(objective: Objective, some: RowsWithC, block_pass: BlockPass, sharper: int) -> tuple[BlockPass, Array]:
    """With the best duals of these rows, all others fixed, and the rows' margins (m,) there.

    sharper: by so many powers of ten than at first.
    """
    loss = objective.loss
    before = block_pass.duals[some.ids] * some.signs
    model = row_steps.model_of(objective, some, block_pass.dual_sum)
    dual_sum = block_pass.dual_sum - model.dual_sum(before)
    rest = block_pass.dual_total - loss.dual_total(before, some.row_c)
    model = replace(model, linear=row_steps.within_reach(dual_sum, model), constant=rest)
    share = LEFT * 0.1**sharper * max(1.0, min(1.0, block_pass.gain) / objective.epsilon)
    at, duals = row_steps.minimum(objective, model, block_pass.at, before, share)
    if not loss.names_duals:
        duals = model.duals(model.margins(at))
    every = block_pass.duals.copy()
    every[some.ids] = duals * some.signs
    after = replace(
        block_pass, duals=every, dual_sum=dual_sum + model.dual_sum(duals), at=at,
        dual_total=rest + loss.dual_total(duals, some.row_c),
    )  # fmt: skip
    value = after.value
    after = replace(after, gain=max(0.0, value - block_pass.value) / value if value > 0 else 1.0)
    return after, model.margins(at)


def joined(cached: RowsWithC, summary: NearMarginSummary) -> RowsWithC:
    """The cached rows and after them, in no order of ids, those that were sent."""
    coming = RowsWithC(summary.row_id, as_float64(summary.row_x), summary.row_sign, summary.row_c)
    return RowsWithC.concatenate([cached, coming])


def by_use(objective: Objective, some: RowsWithC, margins: Array, duals: Array) -> NDArray[np.intp]:
    """The rows by how much the next solves need them: those with margins (m,) near 1 first.

    duals: of all rows. Where they must be in balance, and all margins are alike to the last bits, rows whose duals can
    go both ways are those that balance what others gain.
    """
    order = np.lexsort([some.ids, np.abs(margins - 1.0)])
    if not (objective.loss.names_duals and objective.intercept):
        return order
    own = np.abs(duals[some.ids[order]])
    return np.asarray(order[np.argsort((own == 0.0) | (own == some.row_c[order]), kind="stable")])


def first(some: RowsWithC, order: NDArray[np.intp], room: int) -> RowsWithC:
    """The first rows in this order, as many as have room in so many bytes, by their ids."""
    fits = order[: int(np.searchsorted(np.cumsum(row_sizes(some.rows)[order]), room, side="right"))]
    return some.take(fits[np.argsort(some.ids[fits])])


def spread(some: RowsWithC, room: int) -> RowsWithC:
    """All rows or, of more than have room in so many bytes, some evenly spread within each class."""
    sizes, chosen = row_sizes(some.rows), np.arange(len(some))
    while len(chosen) > 2 and sizes[chosen].sum() > room:
        chosen = thinned(some.signs, min(len(chosen) - 1, len(chosen) * room // int(sizes[chosen].sum())))
    return some if len(chosen) == len(some) else some.take(chosen)


def balanced(cached: RowsWithC, block_pass: BlockPass) -> BlockPass:
    """With the duals of cached rows moved so that sum a y is 0: those between their limits, else any, else none."""
    excess = exact_sum(block_pass.duals)
    if excess == 0:
        return block_pass
    duals = block_pass.duals[cached.ids] * cached.signs
    for free in (np.flatnonzero((duals > 0) & (duals < cached.row_c)), np.arange(len(duals))):
        moved = soft.balanced(duals[free], cached.signs[free], cached.row_c[free], excess)
        if moved is not None:
            break
    else:
        return block_pass
    every = block_pass.duals.copy()
    every[cached.ids[free]] = moved * cached.signs[free]
    change = (moved - duals[free]) * cached.signs[free]
    dual_sum = block_pass.dual_sum + np.append(weighted_sum(take(cached.rows, free), change), change.sum())
    return replace(
        block_pass,
        duals=every,
        dual_sum=dual_sum,
        dual_total=block_pass.dual_total + float((moved - duals[free]).sum()),
    )


def fields_of(probe: NearMarginProbe) -> dict[str, Any]:
    """What a question says, for one of another kind about the same."""
    return {field.name: getattr(probe, field.name) for field in fields(probe)}
