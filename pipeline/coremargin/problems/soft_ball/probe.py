"""What a worker does with a chunk: send the rows nearest to a sphere, and sum up those outside of it.

Distances are computed in float64. The rows inside that are not sent have no dual weight and no loss, so that only
those outside are summed up.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from coremargin.data.parts import kept_of, parts_of
from coremargin.maths.rows import take
from coremargin.maths.soft_ball import squares_to, sums_about
from coremargin.problems.common.sent import SentRows
from coremargin.problems.common.state_arrays import state_from_arrays, state_to_arrays
from coremargin.problems.one_class.rows import enclosed

if TYPE_CHECKING:
    from coremargin.data.parts import Part
    from coremargin.data.source import Source
    from coremargin.engine.protocols import Block
    from coremargin.maths.margin import Array


@dataclass(frozen=True)
class SphereSummary:
    """Sums over the rows of some blocks.

    Of the rows outside of the sphere that are not ``sent``, about its centre c: mass (1,) sum C_i, pull (d,)
    sum C_i (x_i - c), squares (1,) sum C_i ||x_i - c||^2. boxes (m,): C_i of the rows that are sent. nearest (1,): no
    other row has a squared distance nearer to that of the sphere. outside (1,): rows outside, sent or not.
    histogram (bins,): of the distances from the centre; masses (bins,): the same in C_i.
    """

    mass: Array
    pull: Array
    squares: Array
    sent: SentRows
    boxes: Array
    nearest: Array
    outside: NDArray[np.int64]
    histogram: NDArray[np.int64]
    masses: Array

    def merge(self, later: SphereSummary) -> SphereSummary:
        """This summary and that of later blocks."""
        return SphereSummary(
            mass=self.mass + later.mass,
            pull=self.pull + later.pull,
            squares=self.squares + later.squares,
            sent=self.sent.merge(later.sent),
            boxes=np.concatenate([self.boxes, later.boxes]),
            nearest=np.minimum(self.nearest, later.nearest),
            outside=self.outside + later.outside,
            histogram=self.histogram + later.histogram,
            masses=self.masses + later.masses,
        )

    def to_arrays(self) -> dict[str, NDArray[Any]]:
        """Plain arrays for checkpoints."""
        return state_to_arrays(self)


@dataclass(frozen=True)
class SphereProbe:
    """Which rows are near the sphere around ``centre`` (d,) whose radius is the root of ``square``?

    box: C of a row of weight 1. keep: the share of a chunk's rows that is sent. evenly: rows that are spread evenly
    over the chunk are sent instead of the nearest ones. code: the label code of the rows that count; None: all do.
    high: upper end of the histogram of distances.
    """

    centre: Array
    square: float
    box: float
    keep: float
    evenly: bool
    code: int | None
    high: float
    bins: int
    dtype: str
    sparse: bool

    def narrow(self, block: Block) -> SphereProbe:
        """The same probe."""
        return self

    def empty(self) -> SphereSummary:
        """The summary of no rows."""
        return SphereSummary(
            mass=np.zeros(1),
            pull=np.zeros(len(self.centre)),
            squares=np.zeros(1),
            sent=SentRows.nothing(len(self.centre), np.dtype(self.dtype), sparse=self.sparse),
            boxes=np.zeros(0),
            nearest=np.full(1, np.inf),
            outside=np.zeros(1, np.int64),
            histogram=np.zeros(self.bins, np.int64),
            masses=np.zeros(self.bins),
        )

    def from_arrays(self, arrays: Mapping[str, NDArray[Any]]) -> SphereSummary:
        """A summary from a checkpoint."""
        return SphereSummary(**state_from_arrays(SphereSummary, arrays, {"sent": SentRows.from_arrays}))

    def __call__(self, source: Source, block: Block) -> SphereSummary:
        """The summary of one block, chunk by chunk."""
        summary = self.empty()
        for chunk in block.chunks:
            for part in parts_of(source, chunk):
                summary = summary.merge(self._sums(part))
        return summary

    def _sums(self, part: Part) -> SphereSummary:
        counted = enclosed(part.codes, part.weights, self.code)
        mine = np.flatnonzero(counted)
        if not len(mine):
            return self.empty()
        rows = part.rows if len(mine) == len(counted) else take(part.rows, mine)
        boxes = np.full(len(mine), self.box) if part.weights is None else self.box * part.weights[mine]
        squares = squares_to(rows, self.centre)
        away, outside = np.abs(squares - self.square), squares > self.square
        keep = kept_of(1, self.keep * len(mine))
        far, chosen = np.zeros(0, np.intp), np.arange(len(mine))
        if keep < len(mine):
            few = (
                np.linspace(0, len(mine) - 1, keep).astype(np.intp)
                if self.evenly
                else np.argpartition(away, keep)[:keep]
            )
            chosen = np.sort(few)
            far = np.setdiff1d(np.arange(len(mine)), chosen, assume_unique=True)
        nearest = away[far].min(initial=np.inf)
        far = far[outside[far]]
        found = sums_about(take(rows, far), boxes[far], self.centre, squares[far])
        place = np.minimum(np.sqrt(squares) * (self.bins / self.high), self.bins - 1).astype(np.intp)
        return replace(
            self.empty(),
            mass=np.array([found.mass]),
            pull=found.pull,
            squares=np.array([found.squares]),
            sent=SentRows.one_part(part.start + mine[chosen], take(rows, chosen), np.ones(len(chosen), np.int8)),
            boxes=boxes[chosen],
            nearest=np.array([nearest]),
            outside=np.array([np.count_nonzero(outside)]),
            histogram=np.bincount(place, minlength=self.bins),
            masses=np.bincount(place, boxes, self.bins).astype(np.float64),
        )
