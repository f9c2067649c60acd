"""A soft-margin state as figures for people and as a result."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np

from coremargin.engine.result import STOPPED, Result

if TYPE_CHECKING:
    from coremargin.problems.soft.state import SoftState

REASONS = STOPPED | {"stalled": "more scans would not narrow the gap, more memory may"}


def figures(state: SoftState) -> dict[str, Any]:
    """What a round is described by: the dual below, the primal above."""
    return {
        "lower": state.dual if state.round else -np.inf, "lower_now": state.dual if state.round else -np.inf,
        "upper": state.primal, "pool_rows": len(state.held) or state.band_rows, "coreset_rows": len(state.band_ids),
        "new_rows": state.band_rows, "rows_below": None if state.rows_below < 0 else state.rows_below,
    }  # fmt: skip


def result(state: SoftState) -> Result:
    """The model that a state stands for."""
    best = state.newest if state.best is None else state.best
    certified = state.status == "certified"
    return Result(
        status="certified" if certified else "stopped",
        reason=REASONS.get(state.status, state.status), kind="duality_gap", w=best[:-1], b=float(best[-1]),
        lower=state.dual if state.round else None, upper=state.primal, ids=state.band_ids, signs=state.band_signs,
        weights=state.band_duals, rows=np.zeros((len(state.band_ids), 0)),
        final=np.array_equal(best, state.newest), extra={"ledger_reference": state.reference},
    )  # fmt: skip
