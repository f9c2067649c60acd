"""What a worker does with a chunk: send the rows nearest to a sphere, and sum up those outside of it.

Distances are computed in float64. The rows inside that are not sent have no dual weight and no loss, so that only
those outside are summed up; in stages of the first read also those of rings on both sides, which may cross the sphere
(first_read.py).
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from coremargin.data.parts import kept_of, parts_of
from coremargin.maths.rows import Rows, dense, take, tiles
from coremargin.maths.soft_ball import squares_to, sums_about
from coremargin.problems.common.rings import rings_of
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
    other row has a squared distance nearer to that of the sphere. tied (1,): other rows on the sphere but for rounding.
    histogram (bins,): of the distances from the centre; masses (bins,): the same in C_i. Of rings of other rows, by the
    distance t of their square from that of the sphere: rings (k, d + 1, d + 1) sum C_i / t (y, 1)(y, 1)^T, y = x - c,
    and inside (k,) sum C_i of those inside. total (1,): sum C_i of all rows.
    """

    mass: Array
    pull: Array
    squares: Array
    sent: SentRows
    boxes: Array
    nearest: Array
    tied: NDArray[np.int64]
    histogram: NDArray[np.int64]
    masses: Array
    rings: Array
    inside: Array
    total: Array

    def merge(self, later: SphereSummary) -> SphereSummary:
        """This summary and that of later blocks."""
        return SphereSummary(
            mass=self.mass + later.mass,
            pull=self.pull + later.pull,
            squares=self.squares + later.squares,
            sent=self.sent.merge(later.sent),
            boxes=np.concatenate([self.boxes, later.boxes]),
            nearest=np.minimum(self.nearest, later.nearest),
            tied=self.tied + later.tied,
            histogram=self.histogram + later.histogram,
            masses=self.masses + later.masses,
            rings=self.rings + later.rings,
            inside=self.inside + later.inside,
            total=self.total + later.total,
        )

    def to_arrays(self) -> dict[str, NDArray[Any]]:
        """Plain arrays for checkpoints."""
        return state_to_arrays(self)


@dataclass(frozen=True)
class SphereProbe:
    """Which rows are near the sphere around ``centre`` (d,) whose radius is the root of ``square``?

    box: C of a row of weight 1. keep: the share of a chunk's rows that is sent, or fewer, but no less than the share
    ``least``, if they are all whose squared distance is nearer than ``zone`` to that of the sphere. edges (k + 1,): of
    the rings, from 0. evenly: rows that are spread evenly over the chunk are sent instead of the nearest ones. clear:
    rows whose squared distance is no farther than this from that of the sphere are on it but for rounding. code: the
    label code of the rows that count; None: all do. high: upper end of the histogram of distances.
    """

    centre: Array
    square: float
    box: float
    keep: float
    least: float
    zone: float
    edges: Array
    evenly: bool
    clear: float
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
        p, rings = len(self.centre) + 1, len(self.edges) - 1
        return SphereSummary(
            mass=np.zeros(1),
            pull=np.zeros(len(self.centre)),
            squares=np.zeros(1),
            sent=SentRows.nothing(len(self.centre), np.dtype(self.dtype), sparse=self.sparse),
            boxes=np.zeros(0),
            nearest=np.full(1, np.inf),
            tied=np.zeros(1, np.int64),
            histogram=np.zeros(self.bins, np.int64),
            masses=np.zeros(self.bins),
            rings=np.zeros((rings, p, p)),
            inside=np.zeros(rings),
            total=np.zeros(1),
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
        return self.summarise(part.start + mine, rows, boxes)

    def summarise(self, ids: NDArray[np.int64], rows: Rows, boxes: Array) -> SphereSummary:
        """The summary of rows (n, d) that all count, n >= 1."""
        n = len(ids)
        squares = squares_to(rows, self.centre)
        away, outside = np.abs(squares - self.square), squares > self.square
        keep = kept_of(1, self.keep * n)
        if self.zone < np.inf:
            keep = min(keep, max(kept_of(1, self.least * n), int(np.count_nonzero(away < self.zone))))
        other, chosen = np.zeros(0, np.intp), np.arange(n)
        if keep < n:
            few = np.linspace(0, n - 1, keep).astype(np.intp) if self.evenly else np.argpartition(away, keep)[:keep]
            chosen = np.sort(few)
            other = np.setdiff1d(np.arange(n), chosen, assume_unique=True)
        far = other[outside[other]]
        found = sums_about(take(rows, far), boxes[far], self.centre, squares[far])
        place = np.minimum(np.sqrt(squares) * (self.bins / self.high), self.bins - 1).astype(np.intp)
        rings, inside = self._rings(rows, boxes, away, outside, other)
        return replace(
            self.empty(),
            mass=np.array([found.mass]),
            pull=found.pull,
            squares=np.array([found.squares]),
            sent=SentRows.one_part(ids[chosen], take(rows, chosen), np.ones(len(chosen), np.int8)),
            boxes=boxes[chosen],
            nearest=np.array([away[other].min(initial=np.inf)]),
            tied=np.array([np.count_nonzero(away[other] <= self.clear)]),
            histogram=np.bincount(place, minlength=self.bins),
            masses=np.bincount(place, boxes, self.bins).astype(np.float64),
            rings=rings,
            inside=inside,
            total=np.array([boxes.sum()]),
        )

    def _rings(
        self, rows: Rows, boxes: Array, away: Array, outside: NDArray[np.bool_], other: NDArray[np.intp]
    ) -> tuple[Array, Array]:
        """``rings`` and ``inside`` of the rows that are not sent."""
        p, count = len(self.centre) + 1, len(self.edges) - 1
        rings, inside = np.zeros((count, p, p)), np.zeros(count)
        ring, each = rings_of(self.edges, away[other], boxes[other])
        for k in range(count):
            mine = np.flatnonzero(ring == k)
            some = take(rows, other[mine])
            for tile in tiles(some):
                y = np.column_stack([dense(some[tile]) - self.centre, np.ones(len(some[tile]))])
                rings[k] += (y * each[mine[tile], None]).T @ y
            within = other[mine]
            inside[k] = boxes[within[~outside[within]]].sum()
        return rings, inside
