"""What a problem with one hyperplane between two classes hands over when a job ends."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Literal, Protocol

import numpy as np
from numpy.typing import NDArray

from coremargin.engine.problem import A_contra, Problem, S

if TYPE_CHECKING:
    from coremargin.formats.model_record import Known
    from coremargin.problems.common.pool import Pool

Array = NDArray[np.float64]

#: Why a run ended without a proof, by the state's word.
STOPPED = {
    "running": "a limit was reached",
    "stalled": "float64 cannot tell the remaining rows apart: numbers are too many powers of ten apart; scale the "
    "features, or use weights and a C that differ less from 1",
}


@dataclass(frozen=True)
class Result:
    """A hypothesis, its bounds, and what is needed to check them again.

    status and reason: how it ended, as a word and for people. kind: what the bounds are about, "margin" (lower: proven
    on all rows, upper: from the dual weights), "not_separable" or "duality_gap" (upper: the value of the hypothesis on
    all rows, lower: from the dual). w (d,), b; proof: the rows that carry it with their dual weights, rows (m, 0) where
    the rows themselves are not needed; extra: further arrays that the model keeps. final: the last scan was about this
    very hypothesis; staged: of its stages each was about its own. word: how it ended, where a kind has more words for
    it than there are of status.
    """

    status: Literal["certified", "not_separable", "stopped"]
    reason: str
    kind: Known
    w: Array
    b: float
    lower: float | None
    upper: float | None
    proof: Pool
    final: bool
    staged: bool = False
    extra: Mapping[str, NDArray[Any]] = field(default_factory=dict)
    word: str = ""


class OneProblem(Problem[S, A_contra], Protocol[S, A_contra]):
    """A problem with one hyperplane between two classes as its result; a fleet has many."""

    @property
    def codes(self) -> tuple[int, int]:
        """Label codes of the positive and the negative class. Raises LabelError, StoreError."""

    def result(self, state: S) -> Result:
        """The model that a state stands for."""
