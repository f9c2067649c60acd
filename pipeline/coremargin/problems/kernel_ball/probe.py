"""What a worker does with a block: distances from a point of feature space, losses, and candidates."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from coremargin.maths.kernel.enclosing import squared_distances
from coremargin.problems.common.driver_rows import ClassRows, read_labelled_rows
from coremargin.problems.common.state_arrays import state_from_arrays, state_to_arrays
from coremargin.problems.kernel.working_set import select_candidates
from coremargin.problems.one_class.rows import binned

if TYPE_CHECKING:
    from coremargin.data.source import Source
    from coremargin.engine.protocols import Block
    from coremargin.maths.kernel.expansion import Expansion

Array = NDArray[np.float64]

#: Rows whose distances are computed at a time, a multiple of the rows of a tile.
STEP = 1 << 18


@dataclass(frozen=True)
class KernelBallSummary:
    """What the rows of some blocks say about a ball, whose squared radius is r.

    farthest (1,): the largest squared distance, rounded up, -inf without rows. beyond (1,): sum s (q - r)_+ of squared
    distances q, rounded up, with sample weights s. weight (1,): sum s; counted (1,): rows. outside (1,): rows with
    q > r, weight_outside (1,): their sum s. sent, scores (m,): candidates, and by how much they are outside.
    histogram (bins,): of the distances.
    """

    farthest: Array
    beyond: Array
    weight: Array
    counted: NDArray[np.int64]
    outside: NDArray[np.int64]
    weight_outside: Array
    sent: ClassRows
    scores: Array
    histogram: NDArray[np.int64]

    def merge(self, later: KernelBallSummary) -> KernelBallSummary:
        """The summary of these blocks and later ones."""
        return KernelBallSummary(
            farthest=np.maximum(self.farthest, later.farthest),
            beyond=self.beyond + later.beyond,
            weight=self.weight + later.weight,
            counted=self.counted + later.counted,
            outside=self.outside + later.outside,
            weight_outside=self.weight_outside + later.weight_outside,
            sent=ClassRows.concatenate([self.sent, later.sent]),
            scores=np.concatenate([self.scores, later.scores]),
            histogram=self.histogram + later.histogram,
        )

    def to_arrays(self) -> dict[str, NDArray[Any]]:
        """Plain arrays for checkpoints."""
        return state_to_arrays(self)


@dataclass(frozen=True)
class KernelBallProbe:
    """Which rows are outside of a ball in feature space?

    centre: the point, as a function sum_j weights_j k(z_j, .); norm: its squared length, and a bound on the error of
    that. square: r; rows beyond it are candidates. class_of: label code -> 0 for rows that count, else -1. keep: the
    most candidates of a chunk. known: sorted ids of the working set. high, bins: of the histogram.
    """

    centre: Expansion
    norm: tuple[float, float]
    square: float
    class_of: NDArray[np.int32]
    keep: int
    known: NDArray[np.int64]
    high: float
    bins: int
    dtype: str
    sparse: bool
    chunk_rows: int

    def narrow(self, block: Block) -> KernelBallProbe:
        """The same query with only the ids of the working set that lie in this block."""
        first, stop = np.array([block.chunks[0], block.chunks[-1] + 1]) * self.chunk_rows
        return replace(self, known=self.known[np.searchsorted(self.known, first) : np.searchsorted(self.known, stop)])

    def empty(self) -> KernelBallSummary:
        """The summary of no rows."""
        none = np.zeros(1, np.int64)
        return KernelBallSummary(
            farthest=np.full(1, -np.inf),
            beyond=np.zeros(1),
            weight=np.zeros(1),
            counted=none,
            outside=none,
            weight_outside=np.zeros(1),
            sent=ClassRows.nothing(self.centre.rows.shape[1], np.dtype(self.dtype), sparse=self.sparse),
            scores=np.zeros(0),
            histogram=np.zeros(self.bins, np.int64),
        )

    def from_arrays(self, arrays: Mapping[str, NDArray[Any]]) -> KernelBallSummary:
        """A summary from a checkpoint."""
        return KernelBallSummary(**state_from_arrays(KernelBallSummary, arrays, {"sent": ClassRows.from_arrays}))

    def __call__(self, source: Source, block: Block) -> KernelBallSummary:
        """The summary of a block, chunk by chunk."""
        summary = self.empty()
        for chunk in block.chunks:
            data = read_labelled_rows(source, chunk, self.class_of)
            for first in range(0, len(data), STEP):
                part = data if len(data) <= STEP else data.take(np.arange(first, min(first + STEP, len(data))))
                summary = summary.merge(self._summarise(part, -(-self.keep * len(part) // len(data))))
        return summary

    def _summarise(self, data: ClassRows, keep: int) -> KernelBallSummary:
        squares, errors = squared_distances(self.centre, self.norm, self.centre.kernel.points(data.rows))
        most = np.maximum(squares + errors, 0.0)
        scores = squares - errors - self.square
        if not len(self.centre.points):  # before the first solve no row is worse than another
            scores = np.ones(len(data))
        chosen = np.flatnonzero((scores > 0) & np.isin(data.ids, self.known, invert=True))
        chosen = chosen[select_candidates(scores[chosen], data.ids[chosen], data.classes[chosen], keep)]
        return KernelBallSummary(
            farthest=most.max(keepdims=True),
            beyond=np.array([data.shares @ np.maximum(most - self.square, 0.0)]),
            weight=data.shares.sum(keepdims=True),
            counted=np.array([len(data)]),
            outside=np.array([np.count_nonzero(most > self.square)]),
            weight_outside=np.array([data.shares[most > self.square].sum()]),
            sent=data.take(chosen),
            scores=scores[chosen],
            histogram=binned(np.sqrt(np.maximum(squares, 0.0)), self.high, self.bins),
        )
