"""What a soft-margin job knows between two scans, and how it is written to a checkpoint."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, fields
from typing import Any, Literal

import numpy as np
from numpy.typing import NDArray

from coremargin.problems.common.state_arrays import part_from_arrays, state_from_arrays, state_to_arrays
from coremargin.problems.common.zone import Zone
from coremargin.problems.soft.block_state import BlockPass
from coremargin.problems.soft.far_rows import FarRows
from coremargin.problems.soft.rows_with_c import RowsWithC
from coremargin.problems.soft.start import BINS

Array = NDArray[np.float64]
Status = Literal["running", "certified", "stalled"]
STATUSES: tuple[Status, ...] = ("running", "certified", "stalled")


@dataclass(frozen=True)
class Bounds:
    """What is proven: primal from above, by the best hypothesis, and dual from below.

    reference (d + 1,): the hypothesis that the dual point belongs to; near_ids, near_signs, near_duals (m,): with
    hinge, the duals of the rows near the margin (all others have c if they lose at ``reference``, else 0). Where
    chunks were read in stages, reference (s, d + 1) and reference_of (c,): which of them is that of a chunk. ramp: of
    the squared hinge's corrected dual point (squared_bounds.py), 0 where its duals are in proportion to slacks.
    """

    primal: float
    dual: float
    reference: Array
    near_ids: NDArray[np.int64]
    near_signs: NDArray[np.int8]
    near_duals: Array
    reference_of: NDArray[np.int64]
    ramp: float = 0.0

    @classmethod
    def nothing(cls, reference: Array) -> Bounds:
        """Before the first scan."""
        return cls.at(reference, np.inf, 0.0)

    @classmethod
    def at(cls, reference: Array, primal: float, dual: float) -> Bounds:
        """Of the duals that a hypothesis gives all rows."""
        none = np.zeros(0, np.int64)
        return cls(primal, dual, reference, none, none.astype(np.int8), np.zeros(0), none)


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
class Terms:
    """What rows are and what they cost: codes (2,) of the positive and of the negative class, class_c (2,) c of a row
    of weight 1, and how rows are scaled, digest (32,).
    """

    codes: NDArray[np.int64]
    class_c: Array
    scaling: NDArray[np.uint8]

    def to_arrays(self, name: str) -> dict[str, NDArray[Any]]:
        """Plain arrays, exact."""
        return {f"{name}_{f.name}": getattr(self, f.name) for f in fields(self)}

    @classmethod
    def from_arrays(cls, name: str, arrays: Mapping[str, NDArray[Any]]) -> Terms:
        """Inverse of ``to_arrays``."""
        return cls(**{f.name: arrays[f"{name}_{f.name}"] for f in fields(cls)})


@dataclass(frozen=True)
class Reading:
    """The first read, in stages: what is known of far rows; home: near rows, in the driver.

    stage: so many are over; of (c,): which stage each chunk belongs to; again (s,): those that are to be read once
    more. move (d + 1,): how far the hypothesis is going to move; spread: how far margins are, by the root of the mean
    square; seen: share of the chunks that the hypothesis before the last move was made of. terms: what sums are about.
    """

    far: FarRows
    home: RowsWithC
    stage: int
    of: NDArray[np.int64]
    again: NDArray[np.bool_]
    move: Array
    spread: float
    seen: float
    terms: Terms

    @property
    def count(self) -> int:
        """How many stages there are."""
        return len(self.again)

    @property
    def over(self) -> bool:
        """Whether all of them were read."""
        return self.stage == self.count

    @property
    def asked(self) -> NDArray[np.intp]:
        """The chunks of the next stage, or those that are to be read again."""
        return np.flatnonzero(self.again[self.of] if self.over else self.of == self.stage)

    def to_arrays(self, name: str) -> dict[str, NDArray[Any]]:
        """Plain arrays, exact."""
        plain = {
            f"{name}_{part}": np.asarray(getattr(self, part))
            for part in ("stage", "of", "again", "move", "spread", "seen")
        }
        parts = self.far.to_arrays(f"{name}_far") | self.home.to_arrays(f"{name}_home")
        return parts | self.terms.to_arrays(f"{name}_terms") | plain

    @classmethod
    def from_arrays(cls, name: str, arrays: Mapping[str, NDArray[Any]]) -> Reading | None:
        """Inverse of ``to_arrays``; None where there is none."""
        if f"{name}_stage" not in arrays:
            return None
        return cls(
            FarRows.from_arrays(f"{name}_far", arrays), RowsWithC.from_arrays(f"{name}_home", arrays),
            int(arrays[f"{name}_stage"]), arrays[f"{name}_of"], arrays[f"{name}_again"], arrays[f"{name}_move"],
            float(arrays[f"{name}_spread"]), float(arrays[f"{name}_seen"]),
            Terms.from_arrays(f"{name}_terms", arrays),
        )  # fmt: skip


@dataclass(frozen=True)
class SoftState:
    """Between two scans.

    newest (d + 1,): the (w, b) that the next scan is about; best: the one behind the bound from above, None before the
    first scan. total_rows: of both classes; sample_bytes: read before the first scan, or between two. block_pass: where
    rows are scanned a segment at a time (block_minimisation.py). reading: while the first read is made in ``stages``,
    and as long as what it found is all that is known; 0 where it is not.
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
    reading: Reading | None = None
    stages: int = 0

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
        return state_to_arrays(self, STATUSES)

    @classmethod
    def from_arrays(cls, arrays: Mapping[str, NDArray[Any]]) -> SoftState:
        """Inverse of ``to_arrays``."""
        makers = {
            "bounds": part_from_arrays(Bounds), "zone": part_from_arrays(Zone),
            "last_scan": part_from_arrays(LastScan, may_lack=("rows_below",)),
            "block_pass": BlockPass.from_arrays, "reading": Reading.from_arrays,
            "rows": part_from_arrays(RowCache, {"sample": RowsWithC.from_arrays, "cached": RowsWithC.from_arrays}),
        }  # fmt: skip
        return cls(**state_from_arrays(cls, arrays, makers, STATUSES, may_lack=("best",)))
