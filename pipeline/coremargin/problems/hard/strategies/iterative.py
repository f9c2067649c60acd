"""Strategies that carry numbers from one update to the next, like published online algorithms. A pass is one read.

- A ``Walk`` updates its numbers row by row, in the order of the store. A pass is a scan in parts of one chunk each. A
  worker walks through the chunk, starting with the numbers after the chunk before, and the driver passes them on to the
  next one. So the bits do not depend on the workers, and a checkpoint after any chunk contains the numbers.
- A ``RowSearch`` updates its numbers once a pass, with the row of the lowest score. Workers search the chunks in
  parallel.

The same read measures the results of the pass before: the strategy's own hyperplane, and the exact solution of the rows
that it used, which also gives the upper bound. A pass without an update therefore proves the last hyperplane.
"""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any, cast

import numpy as np
from numpy.typing import NDArray

from coremargin.data.parts import parts_of
from coremargin.maths.hard_margin import solve_hard_margin
from coremargin.maths.named import below, under
from coremargin.maths.rows import (
    as_float64,
    is_sparse,
    lengths,
    precision,
    products,
    signed_points,
    take,
    vector,
    weighted_sum,
)
from coremargin.problems.common.classes import mask_zero_weights
from coremargin.problems.common.driver_rows import isin_ids
from coremargin.problems.common.sent import ChunkRows, SentRows
from coremargin.problems.hard.probe import NO_ROW, MarginProbe, MarginSummary
from coremargin.problems.hard.strategies.strategy import Strategy

if TYPE_CHECKING:
    from coremargin.data.source import Source
    from coremargin.engine.protocols import Block
    from coremargin.maths.margin import Array
    from coremargin.maths.rows import Rows
    from coremargin.problems.common.sample import Sample
    from coremargin.problems.hard.state import Carried, Hypothesis


@dataclass(frozen=True)
class RowBlock:
    """The rows (n, d) float64 of a chunk that count, with signs and ids (n,), in the order of the store; n may be 0.

    name: the store's. Strategies that use rows by the methods below only also train with kernels, whose blocks
    (problems/kernel/feature_space.py) compute the same in feature space. A *vector* is an array, here (d,).
    """

    rows: Rows
    signs: NDArray[np.int8]
    ids: NDArray[np.int64]
    name: str

    def lengths(self) -> Array:
        """||x|| (n,)."""
        return lengths(self.rows)

    def vector(self, at: int) -> Array:
        """The row at a position, as a vector."""
        return vector(self.rows, at)

    def values(self, w: Array, first: int = 0, stop: int | None = None) -> Array:
        """x.w (m,) of the rows from ``first`` to ``stop``."""
        return np.asarray(self.rows[first:stop] @ w)

    def inner(self, u: Array, v: Array) -> float:
        """u.v."""
        return float(u @ v)

    def combination(self, rows: Rows, weights: Array) -> Array:
        """The sum of rows (m, d) of any block times weights (m,), as a vector."""
        return weighted_sum(rows, weights)

    def gram(self, rows: Rows, others: Rows) -> Array:
        """The products (m, k) of rows (m, d) and (k, d) of any blocks."""
        found = rows @ others.T
        return np.asarray(found.toarray() if is_sparse(found) else found)

    def sums(self, ids: NDArray[np.int64], rows: Rows, weights: Array, w: Array) -> Array:
        """x.w (n,) of the block, w being the ``combination`` of rows (m, d) with these ids (m,) and weights (m,)."""
        return self.values(w)

    def nearest_point(self, factors: Array, constant: float) -> tuple[Array, float, float]:
        """The point nearest to the origin of the hull of factor (x, constant), for factors (n,), and its length.

        The point is a vector and a last entry.
        """
        points = signed_points(self.rows, factors, constant)
        solution = solve_hard_margin(points, np.ones(len(factors), np.int8), intercept=False)
        centre = solution.upper * solution.w
        return centre[:-1], float(centre[-1]), solution.upper


@dataclass(frozen=True)
class Task:
    """What a strategy begins with: epsilon of the certificate, bytes of memory, and its first rows, if any.

    features: entries of a vector before the first row. longest: a bound on the length of rows.
    """

    first: RowBlock
    features: int
    longest: float
    epsilon: float
    intercept: bool
    memory: int

    @property
    def constant(self) -> float:
        """The last entry of rows (x, constant), by which hyperplanes through the origin have an offset: max ||x||."""
        return self.longest if self.intercept else 0.0


@dataclass(frozen=True)
class Proven:
    """A hyperplane that was proven, for the theorems: its margin above 0 and its offset, for ||w|| = 1.

    longest: a bound on the length of rows. radius: returns that of a ball around them.
    """

    margin: float
    offset: float
    longest: float
    radius: Callable[[], float]


class Iterative(Strategy):
    """A strategy that carries numbers, until a pass changes nothing."""

    iterates = True

    def first(self, source: Source, codes: tuple[int, int]) -> Sample | None:
        """The rows that ``begin`` needs: none."""
        return None

    @abstractmethod
    def begin(self, task: Task) -> Carried:
        """The numbers before the first row; "updates" is the number of updates."""

    @abstractmethod
    def hypothesis(self, carried: Carried) -> Hypothesis | None:
        """The hyperplane of these numbers; None before there is one."""

    def most_updates(self, proven: Proven, carried: Carried, *, intercept: bool) -> float | None:
        """The theorem's bound on the number of updates, from the proven margin; None without a theorem."""
        return None

    def rows_sent(self, source: Source, working_set_rows: int) -> int:
        """0: only the rows that the strategy used are sent."""
        return 0

    def joining(self, summary: MarginSummary, newest: Hypothesis) -> SentRows:
        """All rows that the strategy used."""
        return summary.sent


class Walk(Iterative):
    """Updates row by row, in the order of the store."""

    vectors: tuple[str, ...] | None = None  #: names of the vectors among its numbers; None: not in feature spaces

    @abstractmethod
    def walk(self, block: RowBlock, carried: Carried) -> tuple[Carried, NDArray[np.intp]]:
        """The numbers after the rows of a block, and the positions of the rows that changed them.

        Numbers whose names begin with "_" are a cache for the next block of the same chunk.
        """


def lasting(carried: Carried) -> Carried:
    """The numbers without caches."""
    return {name: one for name, one in carried.items() if not name.startswith("_")}


class RowSearch(Iterative):
    """One update a pass, with the row of the lowest score."""

    repeats: bool = False  #: whether a row may be used again; if not, its step needs all rows used before

    in_feature_space: bool = False  #: whether its blocks may be those of a kernel

    @abstractmethod
    def scores(self, block: RowBlock, carried: Carried) -> Array:
        """Scores (n,) of the rows of a block; infinite for rows that need no update."""

    @abstractmethod
    def step(self, carried: Carried, found: SentRows, used: RowBlock) -> Carried:
        """The numbers after an update with one row; used: all rows used so far, that one included."""


@dataclass(frozen=True)
class IterativeSummary:
    """What a part of a pass found.

    carried: of a walk, the numbers after its chunk. score (): of a search, that of the row in ``margins.sent``.
    margins: the margins at the hypotheses; ``margins.sent``: new rows that a walk used, or the row of the lowest score.
    """

    carried: Carried
    score: NDArray[np.float64]
    margins: MarginSummary

    def merge(self, later: IterativeSummary) -> IterativeSummary:
        """Of a walk, the summary that has a chunk: a part of a pass reads only one. Of a search both, and the lower."""
        if self.carried or later.carried:
            return later if later.carried else self
        best = min((self, later), key=_rank)
        return IterativeSummary({}, best.score, replace(self.margins.merge(later.margins), sent=best.margins.sent))

    def to_arrays(self) -> dict[str, NDArray[Any]]:
        """Plain arrays for checkpoints."""
        return (
            under("carried", self.carried)
            | {"score": np.asarray(self.score)}
            | under("margins", self.margins.to_arrays())
        )


def _rank(summary: IterativeSummary) -> tuple[float, int]:
    ids = summary.margins.sent.ids
    return float(summary.score), int(ids[0]) if len(ids) else NO_ROW


@dataclass(frozen=True)
class IterativeProbe:
    """Walk through a chunk, or search rows; margins: the probe of the hypotheses to prove, if ``proves``.

    It contains the ids of known rows, which a walk does not send again.
    """

    strategy: Walk | RowSearch
    carried: Carried
    proves: bool
    margins: MarginProbe

    def narrow(self, block: Block) -> IterativeProbe:
        """The same probe with only what this block needs."""
        return replace(self, margins=self.margins.narrow(block))

    def empty(self) -> IterativeSummary:
        """The summary of no chunk."""
        return IterativeSummary({}, np.array(np.inf), self.margins.empty())

    def from_arrays(self, arrays: Mapping[str, NDArray[Any]]) -> IterativeSummary:
        """Inverse of ``IterativeSummary.to_arrays``."""
        margins = MarginSummary.from_arrays(below("margins", arrays))
        return IterativeSummary(below("carried", arrays), arrays["score"], margins)

    def __call__(self, source: Source, block: Block) -> IterativeSummary:
        """Each row is read once, for its margins and for the strategy."""
        probe, nothing = self.margins, self.empty()
        summary, best, lowest = nothing, nothing, probe.lowest_rows()
        margins, carried, walks = probe.empty(), self.carried, isinstance(self.strategy, Walk)
        longest, sent = source.scalars().max_norm, margins.sent
        for chunk in block.chunks:
            for part in parts_of(source, chunk):
                codes = mask_zero_weights(part.codes, part.weights)
                if self.proves:
                    data = ChunkRows(chunk, part.start, part.rows, codes, float(longest[chunk]))
                    values = products(part.rows, probe.base, precision(part.rows))
                    margins = margins.merge(probe.evaluate(data, probe.directions, lowest, values))
                counted = np.flatnonzero(np.isin(codes, probe.codes))
                signs = np.where(codes[counted] == probe.codes[0], 1, -1).astype(np.int8)
                rows, ids = take(part.rows, counted), part.start + counted
                mine = RowBlock(as_float64(rows), signs, ids, source.name)
                if walks:
                    carried, touched = cast("Walk", self.strategy).walk(mine, carried)
                    new = touched[~isin_ids(ids[touched], probe.known_ids)]
                    sent = sent.merge(SentRows.one_part(ids[new], take(rows, new), signs[new]))
                elif len(ids):
                    scores = cast("RowSearch", self.strategy).scores(mine, carried)
                    k = np.array([scores.argmin()])
                    if np.isfinite(scores[k[0]]):
                        found = replace(nothing.margins, sent=SentRows.one_part(ids[k], take(rows, k), signs[k]))
                        best = best.merge(IterativeSummary({}, scores[k[0]], found))
        empty = nothing.margins
        margins = replace(margins, chunks=empty.chunks, chunk_lower=empty.chunk_lower)
        if walks:
            return IterativeSummary(lasting(carried), summary.score, replace(margins, sent=sent))
        return IterativeSummary({}, np.asarray(best.score), replace(margins, sent=best.margins.sent))
