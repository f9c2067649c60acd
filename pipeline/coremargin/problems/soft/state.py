"""What a soft-margin job knows between two scans, and how it is written to a checkpoint."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Literal

import numpy as np
from numpy.typing import NDArray

from coremargin.problems.common.pool import Pool
from coremargin.problems.common.stored import arrays_of, fields_of
from coremargin.problems.soft.block_state import Sweep

Array = NDArray[np.float64]
Status = Literal["running", "certified", "stalled"]
STATUSES: tuple[Status, ...] = ("running", "certified", "stalled")


@dataclass(frozen=True)
class SoftState:
    """Between two scans.

    newest (d + 1,): the (w, b) that the next scan is about; best: the one behind ``primal``, None before the first
    scan. dual: the best lower bound; reference (d + 1,): the hypothesis that its dual point belongs to; band_ids,
    band_signs, band_duals (m,): with hinge, the duals of the rows near the margin (all others have c if they lose at
    ``reference``, else 0).
    sample: rows that stand for those far from the margin; held: rows that no scan needs to send, held_duals (m,)
    theirs; the weights of both are prices. widen: how much wider than at first the band is; idle: scans
    in a row that hardly narrowed the gap. sweep: where rows are scanned a segment at a time (block_minimisation.py).
    """

    round: int
    status: Status
    newest: Array
    best: Array | None
    primal: float
    dual: float
    reference: Array
    band_ids: NDArray[np.int64]
    band_signs: NDArray[np.int8]
    band_duals: Array
    sample: Pool
    held: Pool
    held_duals: Array
    total_rows: int
    widen: int
    idle: int
    band_rows: int
    gap_now: float
    histogram: NDArray[np.int64]
    low: float
    high: float
    rows_below: int
    sample_bytes: int
    sweep: Sweep | None = None

    @property
    def lower(self) -> float:
        """The dual bound, under the name that all problems share."""
        return self.dual

    @property
    def upper(self) -> float:
        """The primal bound, under the name that all problems share."""
        return self.primal

    def to_arrays(self) -> dict[str, NDArray[Any]]:
        """Plain arrays, exact: ``from_arrays`` gives the same bits back."""
        return arrays_of(self, STATUSES)

    @classmethod
    def from_arrays(cls, arrays: Mapping[str, NDArray[Any]]) -> SoftState:
        """Inverse of ``to_arrays``."""
        return cls(
            **fields_of(
                cls, arrays, {"sample": Pool.from_arrays, "held": Pool.from_arrays, "sweep": Sweep.from_arrays},
                STATUSES, may_lack=("best",),
            )
        )  # fmt: skip
