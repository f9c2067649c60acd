"""What a worker does with a chunk: measure its rows, send those that may be farthest, bound the others.

The distances to the reference and to the present centre come from one pass in the rows' own precision. A row that
neither of them proves to be near enough is sent; so many rows of a chunk at most, the worst first. Of the others each
counts for one of the chunk's two bounds (block_bounds.py). Where a bound is at the present radius, and rounding would
decide, the rows in question are measured again in float64.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from coremargin.data.parts import kept_of, parts_of
from coremargin.maths.enclosing_ball import FastDistances, fast_distances, upper_bounds
from coremargin.maths.rows import Rows, take
from coremargin.problems.ball.block_bounds import CENTRE, REFERENCE
from coremargin.problems.common.driver_rows import ids_in_chunks
from coremargin.problems.common.sent import SentRows
from coremargin.problems.common.state_arrays import state_from_arrays, state_to_arrays
from coremargin.problems.one_class.rows import binned, enclosed

if TYPE_CHECKING:
    from coremargin.data.parts import Part
    from coremargin.data.source import Source
    from coremargin.engine.protocols import Block
    from coremargin.maths.margin import Array


@dataclass(frozen=True)
class DistanceSummary:
    """What the rows of some blocks say: chunks (c,) that were read, and upper (c, 2), the bounds of their rows that are
    neither known to the driver nor ``sent``; histogram (bins,) of the distances to the centre.
    """

    chunks: NDArray[np.int64]
    upper: Array
    sent: SentRows
    histogram: NDArray[np.int64]

    def merge(self, later: DistanceSummary) -> DistanceSummary:
        """This summary and that of later blocks."""
        return DistanceSummary(
            chunks=np.concatenate([self.chunks, later.chunks]),
            upper=np.concatenate([self.upper, later.upper]),
            sent=self.sent.merge(later.sent),
            histogram=self.histogram + later.histogram,
        )

    def to_arrays(self) -> dict[str, NDArray[Any]]:
        """Plain arrays for checkpoints."""
        return state_to_arrays(self)


@dataclass(frozen=True)
class DistanceProbe:
    """Which rows may be farthest from the centre of the ball?

    reference (d,) in the rows' precision, centre (d,) float64. A row is sent if it is farther than ``cut_reference``
    from the reference and than ``cut_centre`` from the centre; of a chunk with n rows at most ``keep`` n.
    exact_above: bounds around the centre above it are measured in float64. code: the label code of the rows that count;
    None: all do. known_ids (m,), sorted: rows that the driver has. high: the upper end of the histogram.
    dtype: of the rows; fast: in which distances are measured.
    """

    reference: NDArray[Any]
    centre: Array
    cut_reference: float
    cut_centre: float
    keep: float
    exact_above: float
    code: int | None
    known_ids: NDArray[np.int64]
    high: float
    bins: int
    dtype: str
    fast: str
    chunk_rows: int
    sparse: bool = False

    def narrow(self, block: Block) -> DistanceProbe:
        """The same probe with the known rows of this block only."""
        return replace(self, known_ids=ids_in_chunks(self.known_ids, block.chunks, self.chunk_rows))

    def empty(self) -> DistanceSummary:
        """The summary of no rows."""
        sent = SentRows.nothing(len(self.centre), np.dtype(self.dtype), sparse=self.sparse)
        return DistanceSummary(np.zeros(0, np.int64), np.zeros((0, 2)), sent, np.zeros(self.bins, np.int64))

    def from_arrays(self, arrays: Mapping[str, NDArray[Any]]) -> DistanceSummary:
        """A summary from a checkpoint."""
        return DistanceSummary(**state_from_arrays(DistanceSummary, arrays, {"sent": SentRows.from_arrays}))

    def __call__(self, source: Source, block: Block) -> DistanceSummary:
        """The summary of one block, chunk by chunk."""
        summary = self.empty()
        for chunk in block.chunks:
            upper = np.full((1, 2), -np.inf)
            for part in parts_of(source, chunk):
                found, sent, histogram = self._measure(part)
                upper = np.maximum(upper, found)
                summary = replace(summary, sent=summary.sent.merge(sent), histogram=summary.histogram + histogram)
            summary = replace(
                summary,
                chunks=np.append(summary.chunks, chunk),
                upper=np.concatenate([summary.upper, upper]),
            )
        return summary

    def _measure(self, part: Part) -> tuple[Array, SentRows, NDArray[np.int64]]:
        """Bounds (2,), rows to send and histogram of a chunk or a part of it."""
        counted = enclosed(part.codes, part.weights, self.code)
        mine = np.flatnonzero(counted)
        rows = part.rows if len(mine) == len(counted) else take(part.rows, mine)
        found = fast_distances(rows, self.reference, self.centre, np.dtype(self.fast))
        ids = part.start + mine
        fresh = ~np.isin(ids, self.known_ids)
        score = np.minimum(found.reference_upper - self.cut_reference, found.centre_upper - self.cut_centre)
        chosen = np.flatnonzero(fresh & (score > 0))
        most = kept_of(1, self.keep * len(mine))
        if len(chosen) > most:
            chosen = np.sort(chosen[np.argsort(-score[chosen], kind="stable")[:most]])
        fresh[chosen] = False
        sent = SentRows.one_part(ids[chosen], take(rows, chosen), np.ones(len(chosen), np.int8))
        histogram = binned(found.centre, self.high, self.bins)
        return self._bounds(rows, found, np.flatnonzero(fresh)), sent, histogram

    def _bounds(self, rows: Rows, found: FastDistances, left: NDArray[np.intp]) -> Array:
        """The bounds (2,) of the rows ``left`` (m,), each of which counts for the one it serves better."""
        by_reference = found.reference_upper[left] - self.cut_reference <= found.centre_upper[left] - self.cut_centre
        bounds = np.full(2, -np.inf)
        bounds[REFERENCE] = found.reference_upper[left[by_reference]].max(initial=-np.inf)
        rest = left[~by_reference]
        bounds[CENTRE] = found.centre_upper[rest].max(initial=-np.inf)
        if bounds[CENTRE] > self.exact_above:
            again = rest[found.centre_upper[rest] >= found.centre_lower[rest].max()]
            bounds[CENTRE] = upper_bounds(take(rows, again), self.centre).max()
        return bounds
