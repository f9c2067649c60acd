"""What a soft-margin job knows between two scans, and how it is written to a checkpoint."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Literal

import numpy as np
from numpy.typing import NDArray

from coremargin.problems.common.stored import arrays_of, fields_of, part_of
from coremargin.problems.common.zone import Zone
from coremargin.problems.soft.block_state import BlockPass
from coremargin.problems.soft.rows_with_c import RowsWithC
from coremargin.problems.soft.start import BINS

Array = NDArray[np.float64]
Status = Literal["running", "certified", "stalled"]
STATUSES: tuple[Status, ...] = ("running", "certified", "stalled")


@dataclass(frozen=True)
class Bounds:
    """What is proven: primal from above, by the best hypothesis, and dual from below.

    reference (d + 1,): the hypothesis that the dual point belongs to; near_ids, near_signs, near_duals (m,): with
    hinge, the duals of the rows near the margin (all others have c if they lose at ``reference``, else 0).
    """

    primal: float
    dual: float
    reference: Array
    near_ids: NDArray[np.int64]
    near_signs: NDArray[np.int8]
    near_duals: Array

    @classmethod
    def nothing(cls, reference: Array) -> Bounds:
        """Before the first scan."""
        none = np.zeros(0)
        return cls(np.inf, 0.0, reference, none.astype(np.int64), none.astype(np.int8), none)


@dataclass(frozen=True)
class RowCache:
    """Rows in the driver.

    sample: those that stand for rows far from the margin; cached: those that no scan needs to send; cached_duals (m,):
    their duals where they are all rows, else none: in segments all rows have theirs in ``SoftState.block_pass``.
    """

    sample: RowsWithC
    cached: RowsWithC
    cached_duals: Array


@dataclass(frozen=True)
class LastScan:
    """What the last scan saw: rows that were sent, rows with margins below 1 (None: no scan yet).

    histogram (2, bins) of the margins of both classes over [low, high].
    """

    near_rows: int
    histogram: NDArray[np.int64]
    low: float
    high: float
    rows_below: int | None

    @classmethod
    def nothing(cls, low: float, high: float) -> LastScan:
        """Before the first scan."""
        return cls(0, np.zeros((2, BINS), np.int64), low, high, None)


@dataclass(frozen=True)
class SoftState:
    """Between two scans.

    newest (d + 1,): the (w, b) that the next scan is about; best: the one behind the bound from above, None before the
    first scan. total_rows: of both classes; sample_bytes: read before the first scan, or between two. block_pass: where
    rows are scanned a segment at a time (block_minimisation.py).
    """

    round: int
    status: Status
    newest: Array
    best: Array | None
    bounds: Bounds
    rows: RowCache
    zone: Zone
    last_scan: LastScan
    total_rows: int
    sample_bytes: int
    block_pass: BlockPass | None = None

    @property
    def lower(self) -> float:
        """The dual bound, under the name that all problems share."""
        return self.bounds.dual

    @property
    def upper(self) -> float:
        """The primal bound, under the name that all problems share."""
        return self.bounds.primal

    @property
    def histogram(self) -> NDArray[np.int64]:
        """Of the margins in the last scan, as all problems have it."""
        return self.last_scan.histogram

    @property
    def low(self) -> float:
        """The histogram's lower end, as all problems have it."""
        return self.last_scan.low

    @property
    def high(self) -> float:
        """The histogram's upper end, as all problems have it."""
        return self.last_scan.high

    def to_arrays(self) -> dict[str, NDArray[Any]]:
        """Plain arrays, exact: ``from_arrays`` gives the same bits back."""
        return arrays_of(self, STATUSES)

    @classmethod
    def from_arrays(cls, arrays: Mapping[str, NDArray[Any]]) -> SoftState:
        """Inverse of ``to_arrays``."""
        makers = {
            "bounds": part_of(Bounds), "zone": part_of(Zone), "last_scan": part_of(LastScan, may_lack=("rows_below",)),
            "block_pass": BlockPass.from_arrays,
            "rows": part_of(RowCache, {"sample": RowsWithC.from_arrays, "cached": RowsWithC.from_arrays}),
        }  # fmt: skip
        return cls(**fields_of(cls, arrays, makers, STATUSES, may_lack=("best",)))
