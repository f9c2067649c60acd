"""What a worker does with a chunk when it is asked for the rows nearest to a hyperplane. Plain functions on arrays.

Rows are multiplied in their own precision; every row whose fast distance is within the rounding bound of the smallest
one is evaluated again in float64, rounded down, and the smallest of these is what is proven.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from coremargin.maths.margin import Array, gamma, safe_projections
from coremargin.maths.rows import Rows, as_float64, is_sparse, precision, products, take
from coremargin.problems.active.summary import SlabSummary
from coremargin.problems.hard.selection import ChunkRows, LowestRows

if TYPE_CHECKING:
    from coremargin.data.source import Source
    from coremargin.engine.protocols import Block

#: More rows than this within the error of the nearest: the chunk is multiplied in float64 first.
MANY_CANDIDATES = 512


@dataclass(frozen=True)
class SlabProbe:
    """How near do rows without an answer come to the hyperplane w.x + b = 0, ||w|| = 1 or w = 0, and which are nearest?

    w (d,), b; known (m,) int64, sorted: rows that are answered; drawn (t,) int64, sorted: rows whose sides are wanted,
    wherever they lie; held (h,) int64, sorted: those of them to send. keep: rows of each side worth sending, per block.
    """

    w: Array
    b: float
    known: NDArray[np.int64]
    drawn: NDArray[np.int64]
    held: NDArray[np.int64]
    keep: int
    dtype: str
    chunk_rows: int
    sparse: bool = False

    def narrow(self, block: Block) -> SlabProbe:
        """The same question with the ids in this block only."""
        ends = np.array([block.chunks[0], block.chunks[-1] + 1]) * self.chunk_rows
        mine = {name: getattr(self, name) for name in ("known", "drawn", "held")}
        return replace(self, **{name: ids[slice(*np.searchsorted(ids, ends))] for name, ids in mine.items()})

    def empty(self) -> SlabSummary:
        """The answer for no rows."""
        return SlabSummary.nothing(len(self.w), np.dtype(self.dtype), sparse=self.sparse)

    def from_arrays(self, arrays: Mapping[str, NDArray[Any]]) -> SlabSummary:
        """A summary from a checkpoint."""
        return SlabSummary.from_arrays(arrays)

    def __call__(self, source: Source, block: Block) -> SlabSummary:
        """Answer for one block, chunk by chunk."""
        answer, longest = self.empty(), source.scalars().max_norm
        lowest = LowestRows(self.keep, len(self.w), np.dtype(self.dtype), sparse=self.sparse)
        for chunk in block.chunks:
            rows, codes = source.read(chunk)
            data = ChunkRows(
                chunk, source.span(chunk)[0], rows, codes, float(longest[chunk]), source.weights(chunk)
            )  # fmt: skip
            answer = answer.merge(self.ask(data, lowest))
        row_id, row_x, _ = lowest.finish(np.array(block.chunks), np.zeros((len(block.chunks), 2)))[1]
        return replace(answer, row_id=row_id, row_x=row_x)

    def ask(self, data: ChunkRows, lowest: LowestRows) -> SlabSummary:
        """Answer for one chunk."""
        open_ones = np.ones(len(data.codes), bool) if data.weights is None else data.weights > 0
        open_ones[self.known[slice(*self._span(self.known, data))] - data.start] = False
        drawn = self.drawn[slice(*self._span(self.drawn, data))]
        drawn = drawn[open_ones[drawn - data.start]]
        mine = np.flatnonzero(open_ones)
        right = decisions(as_float64(take(data.rows, drawn - data.start)), self.w, self.b) >= 0
        held = drawn[np.isin(drawn, self.held)]
        nothing = replace(
            self.empty(), drawn_id=drawn, drawn_side=np.where(right, 1, -1).astype(np.int8), held_id=held,
            held_x=take(data.rows, held - data.start),
        )  # fmt: skip
        if not len(mine):
            return nothing
        values, error = self._decisions(data, mine)
        sides = [np.flatnonzero(values >= 0), np.flatnonzero(~(values >= 0))]
        for k, side in enumerate(sides):
            lowest.offer(data, k, mine[side], np.abs(values[side]), error)
        nearest, row = self._prove(data, mine, np.abs(values), error)
        return replace(
            nothing, nearest=np.array([nearest]), nearest_id=np.array([row]),
            sides=np.array([len(side) for side in sides], np.int64),
        )  # fmt: skip

    def _span(self, ids: NDArray[np.int64], data: ChunkRows) -> tuple[int, int]:
        first, stop = np.searchsorted(ids, [data.start, data.start + len(data.codes)])
        return int(first), int(stop)

    def _decisions(self, data: ChunkRows, mine: NDArray[np.intp]) -> tuple[Array, float]:
        """w.x + b (m,) of some rows, and a bound on their error; in float64 where the stored precision is too coarse.

        The side of a row is that of w.x + b in float64 where few rows are in doubt, as ``predict`` has it.
        """
        values, error = self._values(data, mine, precision(data.rows))
        sizes = np.abs(values)
        if not np.isfinite(sizes).all() or np.count_nonzero(sizes <= sizes.min() + 3 * error) > MANY_CANDIDATES:
            values, error = self._values(data, mine, np.dtype(np.float64))
        doubt = np.flatnonzero(~(np.abs(values) > error))
        if len(doubt):
            values[doubt] = decisions(take(data.rows, mine[doubt]), self.w, self.b)
        return values, error

    def _values(self, data: ChunkRows, mine: NDArray[np.intp], dtype: np.dtype[Any]) -> tuple[Array, float]:
        with np.errstate(over="ignore", invalid="ignore"):
            values = products(data.rows, self.w[:, None], dtype)[0].astype(np.float64)[mine] + self.b
        length, tiny = float(np.linalg.norm(self.w)), float(np.finfo(dtype).tiny)
        error = gamma(len(self.w) + 8, dtype.type) * data.longest * length + len(self.w) * tiny * (1 + length)
        return np.asarray(values), error + gamma(4) * abs(self.b)

    def _prove(self, data: ChunkRows, mine: NDArray[np.intp], sizes: Array, error: float) -> tuple[float, int]:
        """The smallest distance in float64, rounded down, and the row that has it."""
        close = mine[~(sizes > sizes.min() + 3 * error)]
        best, where = np.inf, NO_ID
        for part in np.array_split(close, 1 + len(close) // 4096):
            exact = distances_below(take(data.rows, part), self.w, self.b)
            k = int(exact.argmin())
            if exact[k] < best:
                best, where = float(exact[k]), int(part[k]) + data.start
        return best, where


NO_ID = int(np.iinfo(np.int64).max)


def decisions(rows: Rows, w: Array, b: float) -> Array:
    """w.x + b (n,) of rows (n, d), in float64, each depending on its own row only."""
    if is_sparse(rows):
        return np.asarray(products(rows, w[:, None])[0] + b)
    return np.asarray(np.einsum("ij,j->i", np.ascontiguousarray(rows, np.float64), w) + b)


def distances_below(rows: Rows, w: Array, b: float) -> Array:
    """Lower bounds (n,) on |w.x + b| of rows (n, d) that any later float64 evaluation confirms; at least 0."""
    signs = np.where(decisions(rows, w, b) >= 0, 1, -1)
    bound = safe_projections(rows, signs, w[:, None])[:, 0] + signs * b
    slack = 4 * float(np.finfo(np.float64).eps) * (np.abs(bound) + 2 * abs(b))
    return np.asarray(np.maximum(bound - slack, 0.0))


def margin_below(rows: Rows, signs: NDArray[np.int8], w: Array, b: float) -> float:
    """The margin of w.x + b on rows (n, d) with signs (n,), rounded down."""
    values = safe_projections(rows, signs, w[:, None])[:, 0] + signs * b
    return float((values - 4 * np.finfo(np.float64).eps * (np.abs(values) + 2 * abs(b))).min())
