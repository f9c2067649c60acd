"""A soft-margin state as figures for people and as a result."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from coremargin.engine.problem import Round
from coremargin.problems.common.driver_rows import WorkingSet
from coremargin.problems.common.result import Result
from coremargin.problems.common.stages import scan_position
from coremargin.problems.common.zone import REASONS

if TYPE_CHECKING:
    from coremargin.problems.soft.state import SoftState


def round_of(state: SoftState) -> Round:
    """What is told of a state: the dual below, the primal above; before the first scan nothing is proven."""
    last_scan, lower = state.last_scan, state.lower if np.isfinite(state.upper) else -np.inf
    held, going_on = len(state.rows.cached) or last_scan.near_rows, state.status == "running"
    if state.reading is not None:
        held = len(state.reading.home)
    return Round(
        status=state.status, lower=lower, lower_now=lower, upper=state.upper,
        pool_rows=held, coreset_rows=len(state.bounds.near_ids),
        new_rows=last_scan.near_rows, rows_below=last_scan.rows_below,
        **scan_position(state.round, state.round, state.stages, going_on=state.reading is not None and going_on),
    )  # fmt: skip


def result(state: SoftState) -> Result:
    """The model that a state stands for."""
    best, bounds = state.newest if state.best is None else state.best, state.bounds
    certified = state.status == "certified"
    more = {"reference_of": bounds.reference_of} if len(bounds.reference_of) else {}
    if bounds.ramp:
        more["ramp"] = np.array([bounds.ramp])
    none = np.zeros((len(bounds.near_ids), 0))  # whoever checks the proof has these rows from the store
    return Result(
        status="certified" if certified else "stopped",
        reason=REASONS.get(state.status, state.status), kind="duality_gap", w=best[:-1], b=float(best[-1]),
        lower=bounds.dual if np.isfinite(bounds.primal) else None, upper=bounds.primal,
        proof=WorkingSet(bounds.near_ids, none, bounds.near_signs, bounds.near_duals),
        final=np.array_equal(best, state.newest) and state.reading is None, staged=state.reading is not None,
        extra={"reference": bounds.reference} | more,
    )  # fmt: skip
