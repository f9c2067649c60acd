"""What a worker does with a chunk in a soft-margin scan. Plain functions on arrays; no Dask, no files.

Everything that enters a bound is computed in float64, a tile at a time; only the matrix that shapes the next step is
summed from products in the rows' own precision.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from coremargin.data.parts import kept_of, parts_of
from coremargin.maths.exact import exact_decisions
from coremargin.maths.margin import gamma
from coremargin.maths.rows import (
    TILE_BYTES,
    Rows,
    curvature,
    is_sparse,
    nothing,
    products,
    signed_points,
    take,
    weighted_sums,
)
from coremargin.problems.common.zone import smallest_positions
from coremargin.problems.soft.summary import NearMarginSummary

if TYPE_CHECKING:
    from coremargin.data.source import Source
    from coremargin.engine.protocols import Block
    from coremargin.problems.soft.losses.loss import Loss

Array = NDArray[np.float64]
Pick = Callable[[NDArray[np.intp]], Rows]

#: Sizes of terms between which float32 squares and adds them up without over- or underflow.
SAFE = (1e-12, 1e12)
#: So many products are added up in the rows' own precision.
CURVE_ROWS = 256


@dataclass(frozen=True)
class Counted:
    """The rows that count, those of the two classes with a weight: places (n,), signs, row_c.

    cached (n,): rows that the driver has. start: the id of the row at place 0.
    """

    places: NDArray[np.intp]
    signs: NDArray[np.int8]
    row_c: Array
    cached: NDArray[np.bool_]
    start: int


@dataclass(frozen=True)
class NearFarSplit:
    """Rows that count at the newest hypothesis.

    signs, row_c (n,); margins (k, n); near: positions of the rows that the summary names; slack max(0, 1 - margin);
    losing: those with slack that are far from the margin, and not cached. columns (n, 4): the weights of the rows in
    the summary's sums, c xi of the positive and of the negative class, c y and c xi y of losing rows, or none (n, 0).
    least: |margin - 1| of the far row that is nearest to the margin, 0 where nobody asked.
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
    """The question of a soft-margin scan.

    base (d + 1, 1 or 2): (w, b) of the newest hypothesis, and of the best one so far. points (k,): where on the segment
    from the best (0) to the newest (1) the losses are wanted, 1 first. codes: label codes of the positive and the
    negative class; class_c (2,): c of their rows of weight 1. keep: rows nearest to the margin, those that change sides
    between both hypotheses first, to send per chunk. cached
    (m,) int64, increasing: ids of rows that the driver has; they are not sent, nor counted as far. curve: far_curve is
    wanted. low, high, bins: range of the histogram of margins. chunk_rows, dtype, sparse: of the source.
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
        """The same question with the cached ids in this block only."""
        first, stop = np.array([block.chunks[0], block.chunks[-1] + 1]) * self.chunk_rows
        return replace(
            self, cached=self.cached[np.searchsorted(self.cached, first) : np.searchsorted(self.cached, stop)]
        )

    def empty(self) -> NearMarginSummary:
        """The answer for no rows."""
        rows = nothing(len(self.base) - 1, np.dtype(self.dtype), sparse=self.sparse)
        return NearMarginSummary.nothing(len(self.points), self.bins, rows, curve=self.curve)

    def from_arrays(self, arrays: Mapping[str, NDArray[Any]]) -> NearMarginSummary:
        """A summary from a checkpoint."""
        return NearMarginSummary.from_arrays(arrays)

    def __call__(self, source: Source, block: Block) -> NearMarginSummary:
        """Answer for one block, chunk by chunk."""
        answer = self.empty()
        longest = source.scalars().max_norm
        for chunk in block.chunks:
            for part in parts_of(source, chunk):
                counted = self.counted(part.start, part.codes, part.weights)
                answer = answer.merge(self._ask(part.rows, counted, float(longest[chunk]), part.share))
        return answer

    def _ask(self, rows: Rows, counted: Counted, longest: float, share: float = 1.0) -> NearMarginSummary:
        places = counted.places
        if len(places) < rows.shape[0]:
            rows = take(rows, places)
        margins = decisions(rows, self.base) * counted.signs
        near = wanted(self.urgency(counted, margins), kept_of(self.keep, share))
        parts = self.near_far_split(lambda at: take(rows, at), counted, margins, near, longest)
        losing = take(rows, np.flatnonzero(parts.losing) if self.curve else np.zeros(0, np.intp))
        total = weighted_sums(rows, parts.columns) if parts.columns.shape[1] else np.zeros((0, rows.shape[1]))
        return self.summary(parts, total, places[parts.near] + counted.start, take(rows, near), losing)

    def asks(self, _: int) -> bool:
        """Whether a chunk is asked: each that is read."""
        return True

    def counted(self, start: int, codes: NDArray[np.int32], weights: Array | None) -> Counted:
        """Which of some rows in a run count: start is the id of the first; label codes (n,), sample weights (n,)."""
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

    def near_far_split(
        self, pick: Pick, counted: Counted, margins: Array, near: NDArray[np.intp], longest: float
    ) -> NearFarSplit:
        """Rows with their margins (k, n), of which those at ``near`` are sent; pick: rows by position.

        Margins of the newest hypothesis are settled in place.
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
        least = float(np.abs(margins[0][far] - 1.0).min(initial=np.inf)) if self.curve else 0.0
        return NearFarSplit(signs, margins, near, row_c, slack, losing, columns, least)

    def summary(
        self, parts: NearFarSplit, total: Array, ids: NDArray[np.int64], near: Rows, losing: Rows
    ) -> NearMarginSummary:
        """The answer. total (4, d): ``parts.columns.T @ rows``; ids (m,): of the rows named; near: those that
        are sent. losing: the far rows on the losing side, where their curve is wanted.
        """
        signs, newest, row_c, slack, columns = parts.signs, parts.margins[0], parts.row_c, parts.slack, parts.columns
        far, positive = parts.losing, signs > 0
        curve, spread = tiled_curve(losing, row_c[far]) if self.curve else (np.zeros((0, 0)), 0.0)
        return NearMarginSummary(
            losses=self._losses(parts.margins, row_c),
            slack=columns[:, :2].sum(axis=0), squares=slack @ columns[:, :2], dual_sum=total[:2],
            far_c=np.array([row_c[far].sum()]), far_value=np.array([(row_c[far] * slack[far]) @ slack[far]]),
            far_linear=np.append(total[2], columns[:, 2].sum()), far_slope=np.append(total[3], columns[:, 3].sum()),
            far_curve=curve, far_spread=np.array([spread]),
            row_id=ids, row_x=near, row_sign=signs[parts.near], row_c=row_c[parts.near],
            histogram=np.stack([self.bin(newest[positive]), self.bin(newest[~positive])]),
            total_c=np.array([row_c[positive].sum(), row_c[~positive].sum()]),
            below=np.array([np.count_nonzero(newest < 1.0)]), below_c=np.array([row_c[newest < 1.0].sum()]),
            far_least=np.array([parts.least]),
        )  # fmt: skip

    def settle(
        self, pick: Pick, signs: NDArray[np.int8], margins: Array, far: NDArray[np.bool_], longest: float
    ) -> None:
        """Round margins of far rows once where the last bits decide about their side, and so about their dual.

        With many rows at the margin, as equal rows may be, whoever checks the dual has to find the same sides.
        """
        w, b = self.base[:-1, 0], float(self.base[-1, 0])
        error = gamma(len(self.base) + 2) * (longest * float(np.linalg.norm(w)) + abs(b) + 1.0)
        open_ones = np.flatnonzero(far & (np.abs(margins - 1.0) <= 2.0 * error))
        margins[open_ones] = signs[open_ones] * exact_decisions(pick(open_ones), w, b)

    def urgency(self, counted: Counted, margins: Array) -> Array:
        """By what (n,) rows are chosen to be sent, the least first; inf: not at all.

        The curve of a loss that has one says how rows change on a long way.
        """
        return np.where(counted.cached, np.inf, distances(margins[:1] if self.loss.curves else margins))

    def _losses(self, margins: Array, row_c: Array) -> Array:
        losses = np.empty(len(self.points))
        for k, t in enumerate(self.points):
            m = margins[0] if len(margins) == 1 or t == 1 else t * margins[0] + (1 - t) * margins[1]
            losses[k] = row_c @ self.loss.value(np.maximum(1.0 - m, 0.0))
        return losses

    def bin(self, margins: Array) -> NDArray[np.int64]:
        """The histogram (bins,) of some margins."""
        place = (margins - self.low) * (self.bins / (self.high - self.low))
        return np.bincount(np.clip(place, 0, self.bins - 1).astype(np.intp), minlength=self.bins)


def decisions(rows: Rows, base: Array) -> Array:
    """(k, n) float64: rows (n, d) times w plus b of each column of ``base`` (d + 1, k)."""
    return np.asarray(products(rows, base[:-1]) + base[-1][:, None])


def wanted(urgency: Array, keep: int) -> NDArray[np.intp]:
    """Positions (increasing) of at most ``keep`` rows, the least first, ties by position; none of those at inf."""
    free = np.flatnonzero(urgency < np.inf)
    return free if len(free) <= keep else np.asarray(free[smallest_positions(urgency[free], keep)])


def distances(margins: Array) -> Array:
    """How far 1 is (n,) from each row's margins (k, n) at the newest hypothesis, at the best one, and between them.

    Negative where both are on different sides of 1, by the less of the two: there a model that keeps rows on their
    sides is wrong, wherever the truth is on the way from one to the other.
    """
    return np.asarray(np.maximum(margins.min(axis=0) - 1.0, 1.0 - margins.max(axis=0)))


def tiled_curve(rows: Rows, weights: Array) -> tuple[Array, float]:
    """sum_i weight_i (x_i, 1)(x_i, 1)^T (d + 1, d + 1), and sum_i weight_i ||x_i - z||^2.

    The products of dense rows are made in their own precision, around a row z of them: far from the origin little else
    would be left of float32; few are added up before float64 takes them. Those of sparse rows are in float64, z = 0.
    """
    if is_sparse(rows):
        curve = curvature(signed_points(rows, np.ones(rows.shape[0]), 1.0), weights)
        return curve, float(np.trace(curve[:-1, :-1]))
    d = rows.shape[1]
    step = max(1, TILE_BYTES // (8 * d))
    curve = np.zeros((d + 1, d + 1))
    if not rows.shape[0]:
        return curve, 0.0
    centre, root = rows[len(rows) // 2], np.sqrt(weights)
    size = float(root.max()) * max(float(rows.max()) - float(rows.min()), 0.0)
    precise = rows.dtype if SAFE[0] < size < SAFE[1] else np.dtype(np.float64)
    for first in range(0, len(rows), step):
        part = slice(first, first + step)
        scaled = rows[part].astype(precise) - centre.astype(precise)
        scaled *= root[part, None].astype(precise)
        for k in range(0, len(scaled), CURVE_ROWS):
            few = scaled[k : k + CURVE_ROWS]
            curve[:d, :d] += few.T @ few
        curve[d, :d] += root[part] @ scaled.astype(np.float64)
    spread = float(np.trace(curve[:d, :d]))
    edge, total, middle = curve[d, :d].copy(), float(weights.sum()), centre.astype(np.float64)
    curve[:d, :d] += np.outer(middle, edge) + np.outer(edge, middle) + total * np.outer(middle, middle)
    curve[d, :d] += total * middle
    curve[:d, d], curve[d, d] = curve[d, :d], total
    return curve, spread
