"""A hard-margin state as figures for people and as a result."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, cast

import numpy as np

from coremargin.engine.problem import Round
from coremargin.problems.common.result import STOPPED, Result
from coremargin.problems.common.stages import place_of

if TYPE_CHECKING:
    from coremargin.problems.hard.state import HardMarginState, Hypothesis


def round_of(state: HardMarginState) -> Round:
    """What is told of a state."""
    return Round(
        status=state.status, lower=state.lower, lower_now=state.lower_now, upper=state.upper,
        pool_rows=len(state.known), coreset_rows=len(state.coreset), new_rows=state.new_rows,
        rows_below=state.rows_below,
        **place_of(state.round, state.stage, state.stages, going_on=state.reading and state.status == "running"),
    )  # fmt: skip


def result(state: HardMarginState) -> Result:
    """The model that a state stands for."""
    hypothesis = state.best or state.newest
    meet = state.status == "not_separable"
    status = "stopped" if state.status in STOPPED else state.status
    return Result(
        status=cast("Any", status), reason=STOPPED.get(state.status, state.status),
        kind="not_separable" if meet else "margin", w=hypothesis.w, b=hypothesis.b,
        lower=None if meet else state.lower, upper=state.upper, proof=state.coreset,
        final=_same(state.best, state.newest) and not state.in_stages, staged=state.in_stages,
        extra={
            "ledger_floor": state.ledger.floor, "ledger_which": state.ledger.which,
            "ledger_directions": state.ledger.directions, "ledger_pool_ids": state.known,
        },
    )  # fmt: skip


def _same(best: Hypothesis | None, newest: Hypothesis) -> bool:
    """True but for rounding: the direction that proves the bound was brought to length 1 once more."""
    return best is not None and np.allclose(best.w, newest.w, rtol=0.0, atol=1e-12)
