"""What a job with a kernel hands over when it ends."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Literal, cast

import numpy as np
from numpy.typing import NDArray

from coremargin.problems.common.result import STOPPED
from coremargin.problems.kernel.spec import HELP

if TYPE_CHECKING:
    from coremargin.formats.model_record import Known
    from coremargin.maths.kernel.functions import Kernel
    from coremargin.problems.common.driver_rows import ClassRows
    from coremargin.problems.kernel.state import KernelState, Machine

Array = NDArray[np.float64]

#: Why a job ended without a proof.
REASONS = STOPPED | {
    "full": f"the pool is full: more rows carry weight than memory holds kernel values of; more memory, or {HELP}",
    "stalled": "float64 cannot tell the remaining rows apart: kernel values or costs are too many powers of ten "
    "apart; scale the features, use a smaller degree or gamma, or weights and a C that differ less from 1",
    "inseparable": "nothing separates the rows of the pool: with a loss rows may lie on the wrong side",
}


@dataclass(frozen=True)
class KernelResult:
    """Functions, their bounds, and what is needed to check them again.

    rows, duals (m, k): what carries them; offsets (k,); lowers, uppers (k,): of each column, about margins without a
    loss, else about values, NaN where nothing is known; lower, upper: of all together.
    """

    status: Literal["certified", "not_separable", "stopped"]
    reason: str
    kind: Known
    kernel: Kernel
    rows: ClassRows
    duals: Array
    offsets: Array
    lowers: Array
    uppers: Array
    confusion: NDArray[np.int64]
    undecided: int
    final: bool

    @property
    def lower(self) -> float | None:
        """Of all columns."""
        return bounds_of_all(self.lowers, hard=self.kind == "margin")

    @property
    def upper(self) -> float | None:
        """Of all columns."""
        return bounds_of_all(self.uppers, hard=self.kind == "margin")


def bounds_of_all(each: Array, *, hard: bool) -> float | None:
    """Of bounds (k,) of the columns the sum of values, the smallest of margins; None where one is not known."""
    if not np.isfinite(each).all():
        return None
    return float(each.min() if hard else each.sum())


def column_bounds(machine: Machine, *, hard: bool) -> tuple[Array, Array]:
    """Bounds (k,), (k,) of each column: of a hard margin, on 1 / ||f|| at margins of 1, rounded; NaN for nothing known.

    A column that no scan was about has no bounds.
    """
    known = np.isfinite(machine.upper)
    if not hard:
        return np.where(known, machine.lower, np.nan), np.where(known, machine.upper, np.nan)
    eps = float(np.finfo(np.float64).eps)
    with np.errstate(divide="ignore"):
        low, high = np.sqrt(0.5 / machine.upper) * (1 - 4 * eps), np.sqrt(0.5 / machine.lower) * (1 + 4 * eps)
    return np.where(known, low, np.nan), np.where(known & (machine.lower > 0), high, np.nan)


def margins_of(machine: Machine) -> tuple[float, float]:
    """Bounds on the smallest margin of all columns, of a hard margin."""
    lowers, uppers = column_bounds(machine, hard=True)
    lower, upper = float(lowers.min(initial=np.inf)), float(uppers.min(initial=np.inf))
    return (lower if np.isfinite(lower) else -np.inf), (upper if np.isfinite(upper) else np.inf)


def result(state: KernelState, kernel: Kernel, epsilon: float, *, hard: bool) -> KernelResult:
    """The model that a state stands for: what was proven, or before any scan what was solved."""
    known = bool(np.isfinite(state.best.upper).all())
    machine = state.best if known else state.newest
    used = np.flatnonzero(machine.duals.any(axis=1))
    lowers, uppers = column_bounds(machine, hard=hard)
    status = "certified" if state.best.certified(epsilon, margins=hard).all() else "stopped"
    return KernelResult(
        status=cast("Any", status), reason=REASONS.get(state.status, state.status),
        kind="margin" if hard else "duality_gap", kernel=kernel, rows=state.pool.take(used),
        duals=machine.duals[used], offsets=machine.offsets, lowers=lowers, uppers=uppers, confusion=state.confusion,
        undecided=int(state.undecided.sum()),
        final=np.array_equal(machine.duals, state.newest.duals),
    )  # fmt: skip
