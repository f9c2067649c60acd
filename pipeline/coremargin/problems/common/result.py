"""Problems with one hyperplane between two classes, and their results."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Literal, Protocol

import numpy as np
from numpy.typing import NDArray

from coremargin.engine.problem import A_contra, BaseProblem, Problem, S
from coremargin.problems.common.classes import two_classes

if TYPE_CHECKING:
    from coremargin.formats.model_record import Known
    from coremargin.problems.common.driver_rows import WorkingSet

Array = NDArray[np.float64]

#: Why a run ended without a proof, by the state's status.
STOPPED = {
    "running": "a limit was reached",
    "converged": 'the strategy has ended by its own rule; strategy "fast" proves more',
    "full": "the working set has no room for the row that the strategy needs next; give more memory, or use strategy "
    '"fast"',
    "stalled": "float64 cannot distinguish the remaining rows: numbers are too many powers of ten apart; scale the "
    "features, or use weights and a C that differ less from 1",
}


@dataclass(frozen=True)
class TwoClassProblem(BaseProblem[S, A_contra]):
    """A problem about the rows of two classes."""

    @property
    def codes(self) -> tuple[int, int]:
        """Label codes of the positive and the negative class. Raises LabelError, StoreError."""
        return two_classes(self.source)

    def check(self) -> None:
        """Raise LabelError for stores without exactly two classes, and StoreError."""
        two_classes(self.source)


@dataclass(frozen=True)
class Result:
    """A hypothesis, its bounds, and their proof.

    status and reason: how the run ended, for programs and for people; word: the same for kinds that distinguish more
    endings than ``status`` does. kind: what the bounds are about, "margin" (lower: proven on all rows, upper: from the
    dual weights), "not_separable" or "duality_gap" (upper: the value of the hypothesis on all rows, lower: from the
    dual). w (d,), b. proof: the rows that carry it with their dual weights; rows (m, 0) if the rows themselves are not
    needed. final: the last scan was at this hypothesis; staged: its stages were at different ones. extra: further
    arrays of the model.
    """

    status: Literal["certified", "not_separable", "stopped"]
    reason: str
    kind: Known
    w: Array
    b: float
    lower: float | None
    upper: float | None
    proof: WorkingSet
    final: bool
    staged: bool = False
    extra: Mapping[str, NDArray[Any]] = field(default_factory=dict)
    word: str = ""


class OneProblem(Problem[S, A_contra], Protocol[S, A_contra]):
    """A problem with one hyperplane between two classes as its result."""

    @property
    def codes(self) -> tuple[int, int]:
        """Label codes of the positive and the negative class. Raises LabelError, StoreError."""

    def result(self, state: S) -> Result:
        """The result of a state."""
