"""What a worker does with a chunk: levels of its rows, those to send that may be outermost, bounds of the others.

Levels are computed in float64, tile by tile, in the frame and in the present ellipsoid. A row that neither of them
proves to be far enough inside is sent; so many rows of a chunk at most, the worst first. Where the rows lie in a flat,
rows that leave it are sent as well: the driver then begins again with the larger span.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from coremargin.data.parts import kept_of, parts_of
from coremargin.maths.rows import dense, take, tiles
from coremargin.problems.ball.block_bounds import CENTRE, REFERENCE
from coremargin.problems.common.driver_rows import ids_in_chunks
from coremargin.problems.common.sent import SentRows
from coremargin.problems.common.state_arrays import state_from_arrays, state_to_arrays
from coremargin.problems.one_class.rows import binned, enclosed

if TYPE_CHECKING:
    from coremargin.data.parts import Part
    from coremargin.data.source import Source
    from coremargin.engine.protocols import Block
    from coremargin.maths.enclosing_ellipsoid import Ellipsoid, Frame
    from coremargin.maths.margin import Array
    from coremargin.maths.rows import Rows


@dataclass(frozen=True)
class LevelSummary:
    """What the rows of some blocks say.

    chunks (c,) that were read, and upper (c, 2), the bounds of their rows that are neither known to the driver nor
    ``sent``; off_span: how many rows leave the flat; residual (d - r,): how far the others are from it at most, by
    column; histogram (bins,) of the levels in the present ellipsoid.
    """

    chunks: NDArray[np.int64]
    upper: Array
    sent: SentRows
    off_span: int
    residual: Array
    histogram: NDArray[np.int64]

    def merge(self, later: LevelSummary) -> LevelSummary:
        """This summary and that of later blocks."""
        return LevelSummary(
            chunks=np.concatenate([self.chunks, later.chunks]),
            upper=np.concatenate([self.upper, later.upper]),
            sent=self.sent.merge(later.sent),
            off_span=self.off_span + later.off_span,
            residual=np.maximum(self.residual, later.residual),
            histogram=self.histogram + later.histogram,
        )

    def to_arrays(self) -> dict[str, NDArray[Any]]:
        """Plain arrays for checkpoints."""
        return state_to_arrays(self)


@dataclass(frozen=True)
class LevelProbe:
    """Which rows may be outermost in the ellipsoid, and which leave the flat of the frame?

    A row is sent if its level in the frame is above ``cut_reference``, and that in the ellipsoid above ``cut_centre``;
    of a chunk with n rows at most ``keep`` n. everything: send all rows, as of a sample; there is no frame yet.
    code: the label code of the rows that count; None: all do. known_ids (m,), sorted: rows that the driver has.
    high: the upper end of the histogram. dtype: of the rows.
    """

    frame: Frame
    ellipsoid: Ellipsoid
    cut_reference: float
    cut_centre: float
    keep: float
    everything: bool
    code: int | None
    known_ids: NDArray[np.int64]
    high: float
    bins: int
    dtype: str
    chunk_rows: int
    sparse: bool = False

    def narrow(self, block: Block) -> LevelProbe:
        """The same probe with the known rows of this block only."""
        return replace(self, known_ids=ids_in_chunks(self.known_ids, block.chunks, self.chunk_rows))

    def empty(self) -> LevelSummary:
        """The summary of no rows."""
        sent = SentRows.nothing(self.frame.features, np.dtype(self.dtype), sparse=self.sparse)
        others = self.frame.features - self.frame.rank
        none = np.zeros(0, np.int64)
        return LevelSummary(none, np.zeros((0, 2)), sent, 0, np.zeros(others), np.zeros(self.bins, np.int64))

    def from_arrays(self, arrays: Mapping[str, NDArray[Any]]) -> LevelSummary:
        """A summary from a checkpoint."""
        return LevelSummary(**state_from_arrays(LevelSummary, arrays, {"sent": SentRows.from_arrays}))

    def __call__(self, source: Source, block: Block) -> LevelSummary:
        """The summary of one block, chunk by chunk."""
        summary = self.empty()
        for chunk in block.chunks:
            upper = np.full((1, 2), -np.inf)
            for part in parts_of(source, chunk):
                found = self._measure(part)
                upper = np.maximum(upper, found.upper)
                summary = summary.merge(replace(found, upper=np.zeros((0, 2))))
            summary = replace(
                summary,
                chunks=np.append(summary.chunks, chunk),
                upper=np.concatenate([summary.upper, upper]),
            )
        return summary

    def _measure(self, part: Part) -> LevelSummary:
        """The summary of a chunk or a part of it, which names no chunk."""
        counted = enclosed(part.codes, part.weights, self.code)
        mine = np.flatnonzero(counted)
        rows = part.rows if len(mine) == len(counted) else take(part.rows, mine)
        ids = part.start + mine
        fresh = ~np.isin(ids, self.known_ids)
        summary = replace(self.empty(), upper=np.full((1, 2), -np.inf))
        if self.everything:
            return replace(summary, sent=_sent(ids, rows, np.flatnonzero(fresh)))
        in_frame, level, residual, off = measure_levels(rows, self.frame, self.ellipsoid)
        score = np.minimum(in_frame / self.cut_reference, level / self.cut_centre)
        chosen = np.flatnonzero(fresh & (score > 1.0) & ~off)
        most = kept_of(1, self.keep * len(mine))
        if len(chosen) > most:
            chosen = np.sort(chosen[np.argsort(-score[chosen], kind="stable")[:most]])
        fresh[chosen] = False
        left = np.flatnonzero(fresh)
        by_frame = in_frame[left] / self.cut_reference <= level[left] / self.cut_centre
        summary.upper[0, REFERENCE] = in_frame[left[by_frame]].max(initial=-np.inf)
        summary.upper[0, CENTRE] = level[left[~by_frame]].max(initial=-np.inf)
        return replace(
            summary,
            sent=_sent(ids, rows, np.union1d(chosen, np.flatnonzero(off))),
            off_span=int(np.count_nonzero(off)),
            residual=residual,
            histogram=binned(level, self.high, self.bins),
        )


def measure_levels(rows: Rows, frame: Frame, ellipsoid: Ellipsoid) -> tuple[Array, Array, Array, NDArray[np.bool_]]:
    """Levels (n,) in the frame and in the ellipsoid, residuals (d - r,), and which rows (n,) leave the flat most.

    Of these at most one for each column: more would add nothing to the span.
    """
    count = rows.shape[0]
    in_frame, level, off = np.empty(count), np.empty(count), np.zeros(count, bool)
    others = frame.features - frame.rank
    residual, worst, at = np.zeros(others), np.ones(others), np.full(others, -1)
    for tile in tiles(rows):
        x = dense(rows[tile])
        z = frame.coordinates(x)
        in_frame[tile] = np.sqrt(np.einsum("ij,ij->i", z, z))
        level[tile] = ellipsoid.levels(z)
        if others and len(x):
            away, allowed = frame.residuals(x)
            excess = away / np.maximum(allowed, np.finfo(float).tiny)
            inside = (excess <= 1.0).all(axis=1)
            residual = np.maximum(residual, away[inside].max(axis=0, initial=0.0))
            first = excess.argmax(axis=0)
            more = excess[first, np.arange(others)] > worst
            worst[more], at[more] = excess[first, np.arange(others)][more], tile.start + first[more]
    off[at[at >= 0]] = True
    return in_frame, level, residual, off


def _sent(ids: NDArray[np.int64], rows: Rows, chosen: NDArray[np.intp]) -> SentRows:
    return SentRows.one_part(ids[chosen], take(rows, chosen), np.ones(len(chosen), np.int8))
