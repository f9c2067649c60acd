"""What a worker does with a chunk when it is asked for the rows nearest to hyperplanes. Plain functions on arrays.

Rows are multiplied in their own precision; every row whose fast distance is within the rounding bound of the smallest
one is evaluated again in float64, rounded down, and the smallest of these is what is proven.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from coremargin.data.parts import parts_of
from coremargin.maths import rows as maths_rows
from coremargin.maths.margin import Array, gamma
from coremargin.maths.rows import as_float64, precision, products, take
from coremargin.problems.active.hypothesis import NONE, Hypothesis
from coremargin.problems.common.sent import ChunkRows, LowestRows
from coremargin.problems.common.state_arrays import state_from_arrays, state_to_arrays

if TYPE_CHECKING:
    from coremargin.data.source import Source
    from coremargin.engine.protocols import Block


NO_ROW = np.iinfo(np.int64).max


@dataclass(frozen=True)
class SlabSummary:
    """What the rows of some blocks without an answer say about hyperplanes.

    nearest (s,): a lower bound on the distances of all of them, nearest_id (s,) the row that has it; unclaimed_id (1,):
    the first row that is given no class. sides (K + 1,) int64: how many are given each class, and none. row_id (m,),
    row_x (m, d): some of the nearest rows; drawn_id (t,), drawn_side (t,) int32: those of the rows drawn that are in
    these blocks, and the classes that they are given; sent_id (h,), sent_x (h, d): some of them.
    """

    nearest: Array
    nearest_id: NDArray[np.int64]
    unclaimed_id: NDArray[np.int64]
    sides: NDArray[np.int64]
    row_id: NDArray[np.int64]
    row_x: maths_rows.Rows
    drawn_id: NDArray[np.int64]
    drawn_side: NDArray[np.int32]
    sent_id: NDArray[np.int64]
    sent_x: maths_rows.Rows

    @classmethod
    def empty(
        cls, slabs: int, planes: int, features: int, dtype: np.dtype[Any], *, sparse: bool = False
    ) -> SlabSummary:
        """The identity of ``merge``."""
        none, rows = np.zeros(0, np.int64), maths_rows.nothing(features, dtype, sparse=sparse)
        sides, counts = np.zeros(0, np.int32), np.zeros(max(2, planes) + 1, np.int64)
        far, no_rows = np.full(slabs, np.inf), np.full(slabs, NO_ROW)
        return cls(far, no_rows, np.array([NO_ROW]), counts, none, rows, none, sides, none, rows)

    def merge(self, later: SlabSummary) -> SlabSummary:
        """This summary and that of later blocks; ties go to the smaller row id."""
        mine = (self.nearest < later.nearest) | (
            (self.nearest == later.nearest) & (self.nearest_id <= later.nearest_id)
        )
        return SlabSummary(
            np.where(mine, self.nearest, later.nearest),
            np.where(mine, self.nearest_id, later.nearest_id),
            np.minimum(self.unclaimed_id, later.unclaimed_id),
            self.sides + later.sides,
            np.concatenate([self.row_id, later.row_id]),
            maths_rows.concatenate([self.row_x, later.row_x]),
            np.concatenate([self.drawn_id, later.drawn_id]),
            np.concatenate([self.drawn_side, later.drawn_side]),
            np.concatenate([self.sent_id, later.sent_id]),
            maths_rows.concatenate([self.sent_x, later.sent_x]),
        )

    def to_arrays(self) -> dict[str, NDArray[Any]]:
        """For checkpoints."""
        return state_to_arrays(self)

    @classmethod
    def from_arrays(cls, arrays: Mapping[str, NDArray[Any]]) -> SlabSummary:
        """Inverse of ``to_arrays``."""
        rows = maths_rows.from_arrays
        return cls(**state_from_arrays(cls, arrays, {"row_x": rows, "sent_x": rows}))


#: More rows than this within the error of the nearest: the chunk is multiplied in float64 first.
MANY_CANDIDATES = 512


@dataclass(frozen=True)
class SlabProbe:
    """How near do rows without an answer come to the hyperplanes of a hypothesis, and which are nearest?

    known (m,) int64, sorted: rows to ignore; drawn (t,) int64, sorted: rows whose classes are wanted,
    wherever they lie; sent (h,) int64, sorted: those of them to send. keep: rows worth sending of each side of the
    hyperplane that they are nearest to, per block.
    """

    hypothesis: Hypothesis
    known: NDArray[np.int64]
    drawn: NDArray[np.int64]
    sent: NDArray[np.int64]
    keep: int
    dtype: str
    chunk_rows: int
    sparse: bool = False

    def narrow(self, block: Block) -> SlabProbe:
        """The same probe with the ids of this block only."""
        ends = np.array([block.chunks[0], block.chunks[-1] + 1]) * self.chunk_rows
        mine = {name: getattr(self, name) for name in ("known", "drawn", "sent")}
        return replace(self, **{name: ids[slice(*np.searchsorted(ids, ends))] for name, ids in mine.items()})

    def empty(self) -> SlabSummary:
        """The summary of no rows."""
        planes, features = self.hypothesis.w.shape
        slabs = len(self.hypothesis.slab)
        return SlabSummary.empty(slabs, planes, features, np.dtype(self.dtype), sparse=self.sparse)

    def from_arrays(self, arrays: Mapping[str, NDArray[Any]]) -> SlabSummary:
        """A summary from a checkpoint."""
        return SlabSummary.from_arrays(arrays)

    def __call__(self, source: Source, block: Block) -> SlabSummary:
        """The summary of one block, chunk by chunk."""
        summary, longest = self.empty(), source.scalars().max_norm
        lowest = LowestRows(self.keep, self.hypothesis.w.shape[1], np.dtype(self.dtype), sparse=self.sparse)
        for chunk in block.chunks:
            for part in parts_of(source, chunk):
                data = ChunkRows(chunk, part.start, part.rows, part.codes, float(longest[chunk]), part.weights)
                summary = summary.merge(self.probe_chunk(data, lowest))
        _, sent, _ = lowest.finish(np.array(block.chunks), np.zeros((len(block.chunks), 2)))
        return replace(summary, row_id=sent.ids, row_x=sent.rows)

    def probe_chunk(self, data: ChunkRows, lowest: LowestRows) -> SlabSummary:
        """The summary of one chunk."""
        is_open = np.ones(len(data.codes), bool) if data.weights is None else data.weights > 0
        is_open[self.known[slice(*self._span(self.known, data))] - data.start] = False
        drawn = self.drawn[slice(*self._span(self.drawn, data))]
        drawn = drawn[is_open[drawn - data.start]]
        mine = np.flatnonzero(is_open)
        given = self.hypothesis.sides(self.hypothesis.decisions(as_float64(take(data.rows, drawn - data.start))))
        sent = drawn[np.isin(drawn, self.sent)]
        base = replace(
            self.empty(), drawn_id=drawn, drawn_side=given, sent_id=sent, sent_x=take(data.rows, sent - data.start)
        )
        if not len(mine):
            return base
        values, error = self._decisions(data, mine)
        sizes, sides = self.hypothesis.sizes(values), self.hypothesis.sides(values)
        self._offer(lowest, data, mine, values, sides, error)
        nearest, rows = self._prove(data, mine, sizes, error)
        unclaimed = mine[sides == NONE]
        counts = np.bincount(np.where(sides == NONE, self.hypothesis.classes, sides), minlength=len(base.sides))
        return replace(
            base,
            nearest=nearest,
            nearest_id=rows,
            sides=counts.astype(np.int64),
            unclaimed_id=np.array([unclaimed[0] + data.start if len(unclaimed) else NO_ROW]),
        )

    def _offer(
        self,
        lowest: LowestRows,
        data: ChunkRows,
        mine: NDArray[np.intp],
        values: Array,
        sides: NDArray[np.int32],
        error: Array,
    ) -> None:
        """Offer rows of both sides of the hyperplanes that they are nearest to; of classes at once all are of one."""
        sizes = self.hypothesis.sizes(values)
        close = self.hypothesis.in_slabs(sizes).argmin(axis=1)
        above = self.hypothesis.at_once | (values[np.arange(len(values)), close] >= 0)
        near = self.hypothesis.nearness(sizes, sides)
        for k, side in enumerate([np.flatnonzero(above), np.flatnonzero(~above)]):
            lowest.offer(data, k, mine[side], near[side], float(self.hypothesis.in_slabs(error[None, :]).max()))

    def _span(self, ids: NDArray[np.int64], data: ChunkRows) -> tuple[int, int]:
        first, stop = np.searchsorted(ids, [data.start, data.start + len(data.codes)])
        return int(first), int(stop)

    def _decisions(self, data: ChunkRows, mine: NDArray[np.intp]) -> tuple[Array, Array]:
        """w.x + b (m, k) of some rows, and bounds (s,) on the error of distances.

        In float64 where the stored precision is coarse. The class that a row is given is that of float64 where few rows
        are in doubt, as ``predict`` has it.
        """
        values, error = self._values(data, mine, precision(data.rows))
        sizes = self.hypothesis.sizes(values)
        many = (sizes <= sizes.min(axis=0) + 3 * error).sum(axis=0) > MANY_CANDIDATES
        if not np.isfinite(sizes).all() or many.any():
            values, error = self._values(data, mine, np.dtype(np.float64))
        doubt = np.flatnonzero(self._doubtful(values, error))
        if len(doubt):
            values[doubt] = self.hypothesis.decisions(take(data.rows, mine[doubt]))
        return values, error

    def _doubtful(self, values: Array, error: Array) -> NDArray[np.bool_]:
        """Which rows (m,) an error could give another class."""
        if self.hypothesis.at_once:
            return np.asarray(~(self.hypothesis.sizes(values)[:, 0] > error[0]))
        if self.hypothesis.soft and self.hypothesis.planes > 1:
            best = np.partition(values, -2, axis=1)[:, -2:]
            return np.asarray(~(best[:, 1] - best[:, 0] > 2 * error.max()))
        return np.asarray(~(np.abs(values) > error).all(axis=1))

    def _values(self, data: ChunkRows, mine: NDArray[np.intp], dtype: np.dtype[Any]) -> tuple[Array, Array]:
        w, b = self.hypothesis.w, self.hypothesis.b
        with np.errstate(over="ignore", invalid="ignore"):
            values = products(data.rows, w.T, dtype).astype(np.float64)[:, mine].T + b
        length, tiny = np.array([np.linalg.norm(one) for one in w]), float(np.finfo(dtype).tiny)
        error = gamma(w.shape[1] + 8, dtype.type) * data.longest * length + w.shape[1] * tiny * (1 + length)
        error = np.asarray(error + gamma(4) * np.abs(b))
        return np.ascontiguousarray(values), error if not self.hypothesis.at_once else 2 * error.max(keepdims=True)

    def _prove(
        self, data: ChunkRows, mine: NDArray[np.intp], sizes: Array, error: Array
    ) -> tuple[Array, NDArray[np.int64]]:
        """The smallest distances (s,) in float64, rounded down, and the rows (s,) that have them."""
        best, where = np.full(len(error), np.inf), np.full(len(error), NO_ROW)
        for k in range(len(error)):
            close = mine[~(sizes[:, k] > sizes[:, k].min() + 3 * error[k])]
            for part in np.array_split(close, 1 + len(close) // 4096):
                exact = self.hypothesis.distances_from(take(data.rows, part), k)
                first = int(exact.argmin())
                if exact[first] < best[k]:
                    best[k], where[k] = exact[first], int(part[first]) + data.start
        return best, where
