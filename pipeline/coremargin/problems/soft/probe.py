"""The worker's part of a soft margin: in a scan of all rows, and in a stage of the first read.

Plain functions on arrays. Everything that enters a bound is computed in float64, a tile at a time; only the matrices
are summed from products in the precision of the rows.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, replace
from functools import partial
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from coremargin.data.parts import kept_of, parts_of
from coremargin.maths.exact import exact_decisions
from coremargin.maths.margin import gamma
from coremargin.maths.rows import Rows, nothing, products, take, weighted_sums
from coremargin.problems.common.zone import smallest_positions
from coremargin.problems.soft.magnitudes import tiled_curve
from coremargin.problems.soft.summary import NearMarginSummary, StageSummary

if TYPE_CHECKING:
    from coremargin.data.source import Source
    from coremargin.engine.protocols import Block
    from coremargin.problems.soft.losses.loss import Loss
    from coremargin.problems.soft.rows_with_c import RowsWithC

Array = NDArray[np.float64]
Pick = Callable[[NDArray[np.intp]], Rows]


def decisions(rows: Rows, base: Array) -> Array:
    """(k, n) float64: rows (n, d) times w plus b, for each column of ``base`` (d + 1, k)."""
    return np.asarray(products(rows, base[:-1]) + base[-1][:, None])


def wanted(urgency: Array, keep: int) -> NDArray[np.intp]:
    """Positions (increasing) of at most ``keep`` rows, lowest first, ties by position; never those at inf."""
    free = np.flatnonzero(urgency < np.inf)
    return free if len(free) <= keep else np.asarray(free[smallest_positions(urgency[free], keep)])


def distances(margins: Array) -> Array:
    """Distance (n,) of 1 from the margins (k, n) of each row at the newest hypothesis, the best one, and between them.

    Negative where the two lie on different sides of 1, by the smaller distance: there a model that keeps rows on their
    sides is wrong wherever the optimum lies between the two hypotheses.
    """
    return np.asarray(np.maximum(margins.min(axis=0) - 1.0, 1.0 - margins.max(axis=0)))


@dataclass(frozen=True)
class Counted:
    """The rows that count, those of the two classes with a weight: places (n,), signs, row_c.

    cached (n,): rows that the driver has already. start: the id of the row at place 0.
    """

    places: NDArray[np.intp]
    signs: NDArray[np.int8]
    row_c: Array
    cached: NDArray[np.bool_]
    start: int


# Scans of all rows


@dataclass(frozen=True)
class NearFarSplit:
    """Rows that count, divided at the newest hypothesis.

    signs, row_c (n,); margins (k, n); near: positions of the rows that the summary names; slack max(0, 1 - margin);
    losing: rows with slack that are neither near nor cached. columns (n, 4): the weights of the rows in the sums of the
    summary, c xi of the positive and of the negative class, c y and c xi y of losing rows; or no column (n, 0). least:
    |margin - 1| of the far row nearest to the margin, 0 unless requested.
    """

    signs: NDArray[np.int8]
    margins: Array
    near: NDArray[np.intp]
    row_c: Array
    slack: Array
    losing: NDArray[np.bool_]
    columns: Array
    least: float


@dataclass(frozen=True)
class NearMarginProbe:
    """The probe of a scan of all rows.

    base (d + 1, 1 or 2): (w, b) of the newest hypothesis, and of the best one so far. points (k,): where on the segment
    from the best (0) to the newest (1) losses are summed up, 1 first. codes: label codes of the positive and the
    negative class; class_c (2,): c of their rows of weight 1. keep: rows to send per chunk, those nearest to the
    margin, and first those that change sides between the two hypotheses. cached (m,) int64, increasing: ids of rows
    that the driver has; they are neither sent nor far. curve: far_curve is wanted. low, high, bins: histogram of the
    margins. chunk_rows, dtype, sparse: of the source.
    """

    base: Array
    points: Array
    codes: tuple[int, int]
    class_c: Array
    loss: Loss
    keep: int
    cached: NDArray[np.int64]
    curve: bool
    low: float
    high: float
    bins: int
    chunk_rows: int
    dtype: str
    sparse: bool

    def narrow(self, block: Block) -> NearMarginProbe:
        """The same probe with only those cached ids that lie in this block."""
        first, stop = np.array([block.chunks[0], block.chunks[-1] + 1]) * self.chunk_rows
        return replace(
            self, cached=self.cached[np.searchsorted(self.cached, first) : np.searchsorted(self.cached, stop)]
        )

    def empty(self) -> NearMarginSummary:
        """The summary of no rows."""
        rows = nothing(len(self.base) - 1, np.dtype(self.dtype), sparse=self.sparse)
        return NearMarginSummary.empty(len(self.points), self.bins, rows, curve=self.curve)

    def from_arrays(self, arrays: Mapping[str, NDArray[Any]]) -> NearMarginSummary:
        """A summary from a checkpoint."""
        return NearMarginSummary.from_arrays(arrays)

    def __call__(self, source: Source, block: Block) -> NearMarginSummary:
        """The summary of one block, chunk by chunk."""
        summary = self.empty()
        longest = source.scalars().max_norm
        for chunk in block.chunks:
            for part in parts_of(source, chunk):
                counted = self.counted(part.start, part.codes, part.weights)
                rows, places = part.rows, counted.places
                if len(places) < rows.shape[0]:
                    rows = take(rows, places)
                margins = decisions(rows, self.base) * counted.signs
                near = wanted(self.urgency(counted, margins), kept_of(self.keep, part.share))
                pick = partial(take, rows)
                split = self.near_far_split(pick, counted, margins, near, float(longest[chunk]))
                losing = take(rows, np.flatnonzero(split.losing) if self.curve else np.zeros(0, np.intp))
                total = weighted_sums(rows, split.columns) if split.columns.shape[1] else np.zeros((0, rows.shape[1]))
                ids = places[split.near] + counted.start
                summary = summary.merge(self.summary(split, total, ids, take(rows, near), losing))
        return summary

    def asks(self, _: int) -> bool:
        """Whether a chunk is part of the scan: every chunk that is read."""
        return True

    def counted(self, start: int, codes: NDArray[np.int32], weights: Array | None) -> Counted:
        """The rows that count, of consecutive rows from id ``start`` on; label codes (n,), sample weights (n,)."""
        signs = np.where(codes == self.codes[0], 1, np.where(codes == self.codes[1], -1, 0)).astype(np.int8)
        row_c = np.where(signs > 0, self.class_c[0], self.class_c[1])
        if weights is not None:
            row_c = row_c * weights
            signs[row_c == 0] = 0
        places = np.flatnonzero(signs)
        cached = np.isin(places + start, self.cached) if len(self.cached) else np.zeros(len(places), bool)
        if len(places) < len(signs):
            signs, row_c = signs[places], row_c[places]
        return Counted(places, signs, row_c, cached, start)

    def urgency(self, counted: Counted, margins: Array) -> Array:
        """The order (n,) in which rows are sent, the lowest first; inf: not at all.

        If the loss curves, the matrix of the far rows bounds how their losses change over a long step.
        """
        return np.where(counted.cached, np.inf, distances(margins[:1] if self.loss.curves else margins))

    def near_far_split(
        self, pick: Pick, counted: Counted, margins: Array, near: NDArray[np.intp], longest: float
    ) -> NearFarSplit:
        """The rows with their margins (k, n), of which those at ``near`` are sent; pick: rows by position.

        Settles margins of the newest hypothesis in place.
        """
        signs, row_c = counted.signs, counted.row_c
        far = ~counted.cached
        far[near] = False
        if self.loss.names_duals:
            self.settle(pick, signs, margins[0], far, longest)
        slack = np.maximum(1.0 - margins[0], 0.0)
        cost = row_c * slack
        losing = far & (margins[0] < 1.0)
        linear, slope = np.where(losing, row_c * signs, 0.0), np.where(losing, cost * signs, 0.0)
        positive = signs > 0
        columns = np.stack([np.where(positive, cost, 0.0), np.where(positive, 0.0, cost), linear, slope], axis=1)
        nearest = float(np.abs(margins[0][far] - 1.0).min(initial=np.inf)) if self.curve else 0.0
        return NearFarSplit(signs, margins, near, row_c, slack, losing, columns, nearest)

    def summary(
        self, split: NearFarSplit, total: Array, ids: NDArray[np.int64], near: Rows, losing: Rows
    ) -> NearMarginSummary:
        """The summary of rows. total (4, d): ``split.columns.T @ rows``; ids (m,): of the rows named; near: the rows
        that are sent; losing: the far rows with slack, if their curve is wanted.
        """
        signs, newest, row_c, slack, columns = split.signs, split.margins[0], split.row_c, split.slack, split.columns
        far, positive = split.losing, signs > 0
        curve, spread = tiled_curve(losing, row_c[far]) if self.curve else (np.zeros((0, 0)), 0.0)
        losses = np.empty(len(self.points))
        for k, t in enumerate(self.points):
            m = newest if len(split.margins) == 1 or t == 1 else t * newest + (1 - t) * split.margins[1]
            losses[k] = row_c @ self.loss.value(m)
        return NearMarginSummary(
            row_id=ids,
            row_x=near,
            row_sign=signs[split.near],
            row_c=row_c[split.near],
            losses=losses,
            slack=columns[:, :2].sum(axis=0),
            squares=slack @ columns[:, :2],
            dual_sum=total[:2],
            far_c=np.array([row_c[far].sum()]),
            far_value=np.array([(row_c[far] * slack[far]) @ slack[far]]),
            far_linear=np.append(total[2], columns[:, 2].sum()),
            far_slope=np.append(total[3], columns[:, 3].sum()),
            far_curve=curve,
            far_spread=np.array([spread]),
            histogram=np.stack([self.bin(newest[positive]), self.bin(newest[~positive])]),
            total_c=np.array([row_c[positive].sum(), row_c[~positive].sum()]),
            below=np.array([np.count_nonzero(newest < 1.0)]),
            below_c=np.array([row_c[newest < 1.0].sum()]),
            far_least=np.array([split.least]),
        )

    def settle(
        self, pick: Pick, signs: NDArray[np.int8], margins: Array, far: NDArray[np.bool_], longest: float
    ) -> None:
        """Replace margins of far rows by exact ones, rounded once, where rounding decides their side and so their dual.

        The verifier has to find the same sides even if many rows lie at the margin, as equal rows may.
        """
        w, b = self.base[:-1, 0], float(self.base[-1, 0])
        error = gamma(len(self.base) + 2) * (longest * float(np.linalg.norm(w)) + abs(b) + 1.0)
        undecided = np.flatnonzero(far & (np.abs(margins - 1.0) <= 2.0 * error))
        margins[undecided] = signs[undecided] * exact_decisions(pick(undecided), w, b)

    def bin(self, margins: Array) -> NDArray[np.int64]:
        """The histogram (bins,) of some margins."""
        place = (margins - self.low) * (self.bins / (self.high - self.low))
        return np.bincount(np.clip(place, 0, self.bins - 1).astype(np.intp), minlength=self.bins)


# Stages of the first read


@dataclass(frozen=True)
class StageProbe:
    """The probe of a stage: sums of far rows, matrices that bound their losses by crossing, and the near rows.

    plain: the probe of a scan at the same hypothesis, its only one. edges (k + 1,), increasing, from 0: of the rings of
    |margin - 1|. Rows of the first ``crossing`` rings may cross the margin later; other rows are not expected to.
    ``Loss.rings`` lists the matrices. zone: rows nearer to the margin than this are sent. chunks: those of
    the stage, increasing. most: rows of a chunk that all problems sharing the scan may send together, each at most
    ``plain.keep``.
    """

    plain: NearMarginProbe
    edges: Array
    crossing: int
    zone: float
    chunks: NDArray[np.intp]
    most: int

    @property
    def base(self) -> Array:
        """The hypothesis (d + 1, 1)."""
        return self.plain.base

    @property
    def keep(self) -> int:
        """Rows that a chunk sends at most."""
        return self.plain.keep

    def narrow(self, block: Block) -> StageProbe:
        """The same probe with only what this block needs."""
        first, stop = np.searchsorted(self.chunks, [block.chunks[0], block.chunks[-1] + 1])
        return replace(self, plain=self.plain.narrow(block), chunks=self.chunks[first:stop])

    def counted(self, start: int, codes: NDArray[np.int32], weights: Array | None) -> Counted:
        """See ``NearMarginProbe.counted``."""
        return self.plain.counted(start, codes, weights)

    def asks(self, chunk: int) -> bool:
        """Whether a chunk is part of the stage."""
        place = int(np.searchsorted(self.chunks, chunk))
        return place < len(self.chunks) and int(self.chunks[place]) == chunk

    def empty(self) -> StageSummary:
        """The summary of no rows."""
        plain = self.plain
        rows = nothing(len(plain.base) - 1, np.dtype(plain.dtype), sparse=plain.sparse)
        return StageSummary.empty(plain.loss.ring_count(len(self.edges), self.crossing), plain.bins, rows)

    def from_arrays(self, arrays: Mapping[str, NDArray[Any]]) -> StageSummary:
        """A summary from a checkpoint."""
        return StageSummary.from_arrays(arrays)

    def __call__(self, source: Source, block: Block) -> StageSummary:
        """The summary of one block, chunk by chunk."""
        summary = self.empty()
        longest = source.scalars().max_norm
        for chunk in block.chunks:
            for part in parts_of(source, chunk):
                counted = self.counted(part.start, part.codes, part.weights)
                rows = part.rows
                if len(counted.places) < rows.shape[0]:
                    rows = take(rows, counted.places)
                summary = summary.merge(self._summarise(rows, counted, float(longest[chunk]), part.share))
        return summary

    def in_memory(self, source: Source, chunks: Iterable[int], every: RowsWithC) -> StageSummary:
        """The summary of some chunks whose rows the driver has, all that count, in the order of their ids."""
        summary = self.empty()
        longest = source.scalars().max_norm
        for chunk in chunks:
            start, stop = source.span(chunk)
            a, b = np.searchsorted(every.ids, [start, stop])
            some = slice(int(a), int(b))
            none = np.zeros(b - a, bool)
            counted = Counted(every.ids[some] - start, every.signs[some], every.row_c[some], none, start)
            summary = summary.merge(self._summarise(every.rows[some], counted, float(longest[chunk])))
        return summary

    def _summarise(self, rows: Rows, counted: Counted, longest: float, share: float = 1.0) -> StageSummary:
        margins = decisions(rows, self.base) * counted.signs
        near = wanted(self.urgency(counted, margins), kept_of(self.keep, share))
        return self.answer(rows, counted, margins, near, longest).with_rows(take(rows, near))

    def urgency(self, counted: Counted, margins: Array) -> Array:
        """The order (n,) in which rows are sent, the lowest first; inf: not at all."""
        away = distances(margins)
        return np.where(counted.cached | (away >= self.zone), np.inf, away)

    def answer(
        self, rows: Rows, counted: Counted, margins: Array, near: NDArray[np.intp], longest: float
    ) -> StageSummary:
        """The summary of rows (n, d) that all count, with margins (1, n); those at ``near`` are named, not sent.

        Settles margins in place.
        """
        plain, signs, row_c = self.plain, counted.signs, counted.row_c
        far, newest = ~counted.cached, margins[0]
        far[near] = False
        if plain.loss.names_duals:
            plain.settle(partial(take, rows), signs, newest, far, longest)
        losing, positive = far & (newest < 1.0), signs > 0
        a = np.where(losing, plain.loss.dual(newest, row_c), 0.0)
        duals = np.where([positive, ~positive], a, 0.0)
        linear: Array = duals * signs

        away = np.where(far, np.abs(newest - 1.0), np.inf)
        ring, each = plain.loss.rings(self.edges, self.crossing, away, losing, row_c)
        rings, p = plain.loss.ring_count(len(self.edges), self.crossing), rows.shape[1] + 1
        matrices, weight, spread = np.zeros((rings, p, p)), np.zeros(rings), np.zeros(rings)
        for k in range(rings):
            mine = np.flatnonzero(ring == k)
            matrices[k], spread[k] = tiled_curve(take(rows, mine), each[mine])
            weight[k] = each[mine].sum()

        return StageSummary(
            row_id=counted.places[near] + counted.start,
            row_x=np.zeros((len(near), 0)),
            row_sign=signs[near],
            row_c=row_c[near],
            value=np.array([row_c @ np.where(losing, plain.loss.value(newest), 0.0)]),
            duals=duals.sum(axis=1),
            dual_sum=np.column_stack([weighted_sums(rows, linear.T), linear.sum(axis=1)]),
            rings=matrices,
            ring_weight=weight,
            ring_spread=spread,
            least=np.array([np.abs(newest[far] - 1.0).min(initial=np.inf)]),
            below=np.array([np.count_nonzero(losing)]),
            histogram=np.stack([plain.bin(newest[far & positive]), plain.bin(newest[far & ~positive])]),
            total_c=np.array([row_c[positive].sum(), row_c[~positive].sum()]),
        )
