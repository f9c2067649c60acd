"""What a worker does with a chunk: send the rows nearest to a surface, and sum up those outside of it.

Levels are computed in float64. Rows inside that are not sent have neither a dual weight nor a loss; of those outside
the moments are summed up in the coordinates of the frame. Where the rows lie in a flat, rows that leave it are sent as
well.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from coremargin.data.parts import kept_of, parts_of
from coremargin.maths.rows import dense, take, tiles
from coremargin.maths.soft_ellipsoid import moments_of
from coremargin.problems.common.sent import SentRows
from coremargin.problems.common.state_arrays import state_from_arrays, state_to_arrays
from coremargin.problems.ellipsoid.probe import measure_levels
from coremargin.problems.one_class.rows import binned, enclosed

if TYPE_CHECKING:
    from coremargin.data.parts import Part
    from coremargin.data.source import Source
    from coremargin.engine.protocols import Block
    from coremargin.maths.enclosing_ellipsoid import Ellipsoid, Frame
    from coremargin.maths.margin import Array


@dataclass(frozen=True)
class SurfaceSummary:
    """Sums over the rows of some blocks.

    moments (r + 1, r + 1): sum C (z, 1)(z, 1)' over the rows outside of the surface that are not ``sent``; boxes (m,):
    C of those that are. inner (1,), outer (1,): the largest level of other rows inside, and the least of those outside;
    -inf and inf: there are none. histogram (bins,): of all levels; masses (bins,): the same in C. off_span: how many
    rows leave the flat; residual (d - r,): how far the others are from it at most, by column.
    """

    moments: Array
    sent: SentRows
    boxes: Array
    inner: Array
    outer: Array
    histogram: NDArray[np.int64]
    masses: Array
    off_span: int
    residual: Array

    def merge(self, later: SurfaceSummary) -> SurfaceSummary:
        """This summary and that of later blocks."""
        return SurfaceSummary(
            moments=self.moments + later.moments,
            sent=self.sent.merge(later.sent),
            boxes=np.concatenate([self.boxes, later.boxes]),
            inner=np.maximum(self.inner, later.inner),
            outer=np.minimum(self.outer, later.outer),
            histogram=self.histogram + later.histogram,
            masses=self.masses + later.masses,
            off_span=self.off_span + later.off_span,
            residual=np.maximum(self.residual, later.residual),
        )

    def to_arrays(self) -> dict[str, NDArray[Any]]:
        """Plain arrays for checkpoints."""
        return state_to_arrays(self)


@dataclass(frozen=True)
class SurfaceProbe:
    """Which rows are near the surface of an ellipsoid, whose points have the level ``level``?

    box: C of a row of weight 1. keep: the share of a chunk's rows that is sent. code: the label code of the rows that
    count; None: all do. high: upper end of the histogram of levels.
    """

    frame: Frame
    ellipsoid: Ellipsoid
    level: float
    box: float
    keep: float
    code: int | None
    high: float
    bins: int
    dtype: str
    sparse: bool

    def narrow(self, block: Block) -> SurfaceProbe:
        """The same probe."""
        return self

    def empty(self) -> SurfaceSummary:
        """The summary of no rows."""
        p = self.frame.rank + 1
        return SurfaceSummary(
            moments=np.zeros((p, p)),
            sent=SentRows.nothing(self.frame.features, np.dtype(self.dtype), sparse=self.sparse),
            boxes=np.zeros(0),
            inner=np.full(1, -np.inf),
            outer=np.full(1, np.inf),
            histogram=np.zeros(self.bins, np.int64),
            masses=np.zeros(self.bins),
            off_span=0,
            residual=np.zeros(self.frame.features - self.frame.rank),
        )

    def from_arrays(self, arrays: Mapping[str, NDArray[Any]]) -> SurfaceSummary:
        """A summary from a checkpoint."""
        return SurfaceSummary(**state_from_arrays(SurfaceSummary, arrays, {"sent": SentRows.from_arrays}))

    def __call__(self, source: Source, block: Block) -> SurfaceSummary:
        """The summary of one block, chunk by chunk."""
        summary = self.empty()
        for chunk in block.chunks:
            for part in parts_of(source, chunk):
                summary = summary.merge(self._measure(part))
        return summary

    def _measure(self, part: Part) -> SurfaceSummary:
        counted = enclosed(part.codes, part.weights, self.code)
        mine = np.flatnonzero(counted)
        if not len(mine):
            return self.empty()
        n = len(mine)
        rows = part.rows if n == len(counted) else take(part.rows, mine)
        boxes = np.full(n, self.box) if part.weights is None else self.box * part.weights[mine]
        _, levels, residual, off = measure_levels(rows, self.frame, self.ellipsoid)
        keep, away = kept_of(1, self.keep * n), np.abs(levels - self.level)
        sent = np.ones(n, bool)
        if keep < n:
            sent[:] = False
            sent[np.argpartition(away, keep)[:keep]] = True
        sent |= off
        outside = levels > self.level
        far = np.flatnonzero(~sent & outside)
        moments = self.empty().moments
        some = take(rows, far)
        for tile in tiles(some):
            moments += moments_of(self.frame.coordinates(dense(some[tile])), boxes[far[tile]])
        chosen = np.flatnonzero(sent)
        place = np.minimum(levels * (self.bins / self.high), self.bins - 1).astype(np.intp)
        return replace(
            self.empty(),
            moments=moments,
            sent=SentRows.one_part(part.start + mine[chosen], take(rows, chosen), np.ones(len(chosen), np.int8)),
            boxes=boxes[chosen],
            inner=np.array([levels[~sent & ~outside].max(initial=-np.inf)]),
            outer=np.array([levels[far].min(initial=np.inf)]),
            histogram=binned(levels, self.high, self.bins),
            masses=np.bincount(place, boxes, self.bins).astype(np.float64),
            off_span=int(np.count_nonzero(off)),
            residual=residual,
        )
