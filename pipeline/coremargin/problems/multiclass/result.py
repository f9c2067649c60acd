"""What a job about several classes hands over when it ends."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Literal, cast

import numpy as np
from numpy.typing import NDArray

from coremargin.engine.problem import Round
from coremargin.problems.common.result import STOPPED
from coremargin.problems.common.zone import REASONS

if TYPE_CHECKING:
    from coremargin.formats.model_record import Known
    from coremargin.problems.common.driver_rows import ClassRows
    from coremargin.problems.multiclass.state import ClassesState

Array = NDArray[np.float64]


@dataclass(frozen=True)
class ClassesResult:
    """A hypothesis about several classes, its bounds, and what is needed to check them again.

    status, reason, kind, lower, upper: as in ``Result``. hypothesis (K, d + 1), of which the last column times
    ``constant`` are the intercepts; rows, duals (m, K): what carries the proof, rows without features where those are
    not needed; reference (K, d + 1): the hypothesis that gives all other rows their duals (zero for the hard margin).
    confusion (K, K): of the last scan, about this very hypothesis if ``final``.
    """

    status: Literal["certified", "not_separable", "stopped"]
    reason: str
    kind: Known
    hypothesis: Array
    constant: float
    lower: float | None
    upper: float | None
    rows: ClassRows
    duals: Array
    reference: Array
    confusion: NDArray[np.int64]
    final: bool


def round_of(state: ClassesState) -> Round:
    """What is told of a state; before the first scan nothing is proven."""
    return Round(
        number=state.round, status=state.status, lower=state.lower if state.round else -np.inf,
        lower_now=state.lower_now, upper=state.upper, pool_rows=state.pool_rows, coreset_rows=len(state.proof),
        new_rows=state.new_rows, rows_below=state.rows_below,
    )  # fmt: skip


def result(state: ClassesState, constant: float, *, soft: bool) -> ClassesResult:
    """The model that a state stands for."""
    at = state.newest if state.best is None else state.best
    reasons, meet = REASONS if soft else STOPPED, state.status == "not_separable"
    return ClassesResult(
        status="stopped" if state.status in STOPPED else cast("Any", state.status),
        reason=reasons.get(state.status, state.status),
        kind="duality_gap" if soft else "not_separable" if meet else "margin",
        hypothesis=at, constant=constant, lower=state.lower if state.round and not meet else None, upper=state.upper,
        rows=state.proof, duals=state.duals, reference=state.reference, confusion=state.confusion,
        final=bool(np.allclose(at, state.newest, rtol=0.0, atol=1e-12 * float(np.abs(at).max()))),
    )  # fmt: skip
