"""What a worker does with a chunk in a soft margin's first read. Plain functions on arrays; no Dask, no files."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from coremargin.data.parts import kept_of, parts_of
from coremargin.maths.rows import Rows, nothing, take, weighted_sums
from coremargin.problems.soft.probe import Counted, NearMarginProbe, decisions, distances, tiled_curve, wanted
from coremargin.problems.soft.stage_summary import StageSummary

if TYPE_CHECKING:
    from coremargin.data.source import Source
    from coremargin.engine.protocols import Block
    from coremargin.problems.soft.rows_with_c import RowsWithC

Array = NDArray[np.float64]


@dataclass(frozen=True)
class StageProbe:
    """The question of a stage: the sides of far rows, what they may lose by crossing the margin, and the near rows.

    plain: whose hypothesis, its only one, and whose sizes count. edges (k + 1,) increasing, from 0: of the rings of t =
    |margin - 1|. Rows of the first ``crossing`` of them may cross the margin later; others are not expected to. zone:
    rows that are less far away are sent.

    With the hinge these are all rings, and a row weighs c / t. With a loss that curves it weighs c, there are rings of
    rows that lose, the last one of those beyond all edges, and after them rings of others that may cross.
    chunks: those that are asked, increasing. most: rows of a chunk that all who ask it together may send, each at most
    ``plain.keep``.
    """

    plain: NearMarginProbe
    edges: Array
    crossing: int
    zone: float
    chunks: NDArray[np.intp]
    most: int

    @property
    def rings(self) -> int:
        """How many there are."""
        return rings_of(len(self.edges), self.crossing, curves=self.plain.loss.curves)

    def narrow(self, block: Block) -> StageProbe:
        """The same question with what it says of this block only."""
        first, stop = np.searchsorted(self.chunks, [block.chunks[0], block.chunks[-1] + 1])
        return replace(self, plain=self.plain.narrow(block), chunks=self.chunks[first:stop])

    @property
    def base(self) -> Array:
        """Whose hypothesis (d + 1, 1) counts."""
        return self.plain.base

    @property
    def keep(self) -> int:
        """Rows that a chunk sends at most."""
        return self.plain.keep

    def counted(self, start: int, codes: NDArray[np.int32], weights: Array | None) -> Counted:
        """Which of some rows in a run count, as ``NearMarginProbe`` has it."""
        return self.plain.counted(start, codes, weights)

    def asks(self, chunk: int) -> bool:
        """Whether a chunk is asked."""
        place = int(np.searchsorted(self.chunks, chunk))
        return place < len(self.chunks) and int(self.chunks[place]) == chunk

    def empty(self) -> StageSummary:
        """The answer for no rows."""
        plain = self.plain
        rows = nothing(len(plain.base) - 1, np.dtype(plain.dtype), sparse=plain.sparse)
        return StageSummary.nothing(self.rings, plain.bins, rows)

    def from_arrays(self, arrays: Mapping[str, NDArray[Any]]) -> StageSummary:
        """A summary from a checkpoint."""
        return StageSummary.from_arrays(arrays)

    def __call__(self, source: Source, block: Block) -> StageSummary:
        """Answer for one block, chunk by chunk."""
        answer = self.empty()
        longest = source.scalars().max_norm
        for chunk in block.chunks:
            for part in parts_of(source, chunk):
                counted = self.plain.counted(part.start, part.codes, part.weights)
                rows = part.rows
                if len(counted.places) < rows.shape[0]:
                    rows = take(rows, counted.places)
                answer = answer.merge(self._ask(rows, counted, float(longest[chunk]), part.share))
        return answer

    def in_memory(self, source: Source, chunks: Iterable[int], every: RowsWithC) -> StageSummary:
        """The answer for all rows that count of some chunks, which the driver has, in the order of their ids."""
        answer = self.empty()
        longest = source.scalars().max_norm
        for chunk in chunks:
            start, stop = source.span(chunk)
            a, b = np.searchsorted(every.ids, [start, stop])
            some = slice(int(a), int(b))
            none = np.zeros(b - a, bool)
            counted = Counted(every.ids[some] - start, every.signs[some], every.row_c[some], none, start)
            answer = answer.merge(self._ask(every.rows[some], counted, float(longest[chunk])))
        return answer

    def _ask(self, rows: Rows, counted: Counted, longest: float, share: float = 1.0) -> StageSummary:
        margins = decisions(rows, self.base) * counted.signs
        near = wanted(self.urgency(counted, margins), kept_of(self.keep, share))
        return self.answer(rows, counted, margins, near, longest).with_rows(take(rows, near))

    def urgency(self, counted: Counted, margins: Array) -> Array:
        """By what (n,) rows are chosen to be sent, the least first; inf: not at all."""
        away = distances(margins)
        return np.where(counted.cached | (away >= self.zone), np.inf, away)

    def answer(
        self, rows: Rows, counted: Counted, margins: Array, near: NDArray[np.intp], longest: float
    ) -> StageSummary:
        """The answer for rows (n, d) that all count, their margins (1, n), those at ``near`` named and not sent.

        Margins are settled in place.
        """
        plain, signs, row_c = self.plain, counted.signs, counted.row_c
        far, newest = ~counted.cached, margins[0]
        far[near] = False
        if plain.loss.names_duals:
            plain.settle(lambda at: take(rows, at), signs, newest, far, longest)
        losing, positive = far & (newest < 1.0), signs > 0
        slack = np.where(losing, 1.0 - newest, 0.0)
        slopes = np.where(losing, plain.loss.slopes(slack, row_c), 0.0)
        duals = np.where([positive, ~positive], slopes, 0.0)
        linear: Array = duals * signs
        rings, weight, spread = self._rings(rows, np.where(far, np.abs(newest - 1.0), np.inf), losing, row_c)
        return StageSummary(
            value=np.array([row_c @ plain.loss.value(slack)]),
            duals=duals.sum(axis=1), dual_sum=np.column_stack([weighted_sums(rows, linear.T), linear.sum(axis=1)]),
            rings=rings, ring_weight=weight, ring_spread=spread,
            least=np.array([np.abs(newest[far] - 1.0).min(initial=np.inf)]),
            below=np.array([np.count_nonzero(losing)]),
            histogram=np.stack([plain.bin(newest[far & positive]), plain.bin(newest[far & ~positive])]),
            total_c=np.array([row_c[positive].sum(), row_c[~positive].sum()]),
            row_id=counted.places[near] + counted.start, row_x=np.zeros((len(near), 0)), row_sign=signs[near],
            row_c=row_c[near],
        )  # fmt: skip

    def _rings(
        self, rows: Rows, away: Array, losing: NDArray[np.bool_], row_c: Array
    ) -> tuple[Array, Array, Array]:  # fmt: skip
        """Matrices (r, d + 1, d + 1) of rows that are so far (n,) away; of each the sum of weights, and of spreads."""
        ring = np.searchsorted(self.edges, away, side="right") - 1
        if self.plain.loss.curves:
            there = ~losing & (away < self.edges[self.crossing])
            ring = np.where(losing, ring, np.where(there, len(self.edges) + ring, -1))
            each = row_c
        else:
            ring[(away <= 0) | (ring == len(self.edges) - 1)] = -1
            each = np.divide(row_c, away, out=np.zeros(len(away)), where=ring >= 0)
        p = rows.shape[1] + 1
        found, weight, spread = np.zeros((self.rings, p, p)), np.zeros(self.rings), np.zeros(self.rings)
        for k in range(self.rings):
            mine = np.flatnonzero(ring == k)
            found[k], spread[k] = tiled_curve(take(rows, mine), each[mine])
            weight[k] = each[mine].sum()
        return found, weight, spread


def rings_of(edges: int, crossing: int, *, curves: bool) -> int:
    """How many rings a question with so many edges has."""
    return edges + crossing if curves else edges - 1
