"""What a problem hands over when a job ends: the same shape for every problem."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Literal

import numpy as np
from numpy.typing import NDArray

if TYPE_CHECKING:
    from coremargin.maths.rows import Rows

Array = NDArray[np.float64]


@dataclass(frozen=True)
class Result:
    """A hypothesis, its bounds, and what is needed to check them again.

    status and reason: how it ended, as a word and for people. kind: what the bounds are about, "margin" (lower: proven
    on all rows, upper: from the dual weights), "not_separable" or "duality_gap" (upper: the value of the hypothesis on
    all rows, lower: from the dual). w (d,), b; ids, signs, weights (m,) and rows (m, d) of the rows that carry the
    proof, (m, 0) where the rows themselves are not needed; extra: further arrays that the model keeps. final: the last
    scan was about this very hypothesis.
    """

    status: Literal["certified", "not_separable", "stopped"]
    reason: str
    kind: Literal["margin", "not_separable", "duality_gap"]
    w: Array
    b: float
    lower: float | None
    upper: float | None
    ids: NDArray[np.int64]
    signs: NDArray[np.int8]
    weights: Array
    rows: Rows
    final: bool
    extra: Mapping[str, NDArray[Any]] = field(default_factory=dict)


STOPPED = {"running": "a limit was reached", "stalled": "float64 cannot tell the remaining rows apart"}
