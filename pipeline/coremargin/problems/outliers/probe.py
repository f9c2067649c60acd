"""What a worker does with a chunk in an outlier scan: the lowest rows of each class under a batch of directions.

The rows are multiplied in their own precision. Whatever may be among the lowest, the rounding of that considered, is
evaluated again in float64: a margin with k outliers is the (k + 1)-th smallest value, and has to be a proof.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from coremargin.data.parts import parts_of
from coremargin.maths.margin import Array, gamma, safe_projections
from coremargin.maths.rows import Rows, many_products, take, terms
from coremargin.problems.common.classes import mask_zero_weights
from coremargin.problems.common.sent import least_of_chunks
from coremargin.problems.hard.probe import binned
from coremargin.problems.outliers.summary import NO_ROW, OutlierSummary, lowest_of

if TYPE_CHECKING:
    from coremargin.data.source import Source
    from coremargin.engine.protocols import Block

#: More candidates than this beyond those asked for: float64 for the whole chunk is cheaper.
MANY_CANDIDATES = 512


@dataclass(frozen=True)
class OutlierProbe:
    """The question of an outlier scan.

    directions (d, m) float64 of length 1; keep: rows of each class under each direction. codes: label codes of the
    positive and the negative class. known (r,) int64, increasing: rows in the pool, which are not sent again.
    offset, low, high, bins: for the histogram of the margins of direction 0.
    """

    directions: Array
    keep: int
    codes: tuple[int, int]
    known: NDArray[np.int64]
    offset: float
    low: float
    high: float
    bins: int
    chunk_rows: int

    def narrow(self, block: Block) -> OutlierProbe:
        """The same question with the pool's ids in this block only."""
        first, stop = np.array([block.chunks[0], block.chunks[-1] + 1]) * self.chunk_rows
        return replace(self, known=self.known[np.searchsorted(self.known, first) : np.searchsorted(self.known, stop)])

    def empty(self) -> OutlierSummary:
        """The answer for no rows."""
        return OutlierSummary.nothing(self.directions.shape[1], self.keep, len(self.directions), self.bins)

    def from_arrays(self, arrays: Mapping[str, NDArray[Any]]) -> OutlierSummary:
        """A summary from a checkpoint."""
        return OutlierSummary.from_arrays(arrays)

    def __call__(self, source: Source, block: Block) -> OutlierSummary:
        """Answer for one block, chunk by chunk."""
        answer, longest = self.empty(), source.scalars().max_norm
        for chunk in block.chunks:
            for part in parts_of(source, chunk):
                codes = mask_zero_weights(part.codes, part.weights)
                answer = self.ask(answer, part.rows, codes, part.start, float(longest[chunk]), chunk)
        chunks, floor = least_of_chunks(answer.floor_chunk, answer.floor)
        return replace(answer, floor_chunk=chunks, floor=floor)

    def ask(
        self, answer: OutlierSummary, rows: Rows, codes: NDArray[Any], start: int, longest: float, chunk: int = 0
    ) -> OutlierSummary:
        """The answer with some more rows of a chunk, from row ``start`` on; ``longest`` bounds their norms."""
        members = [np.flatnonzero(codes == code) for code in self.codes]
        fast, error = self._multiply(rows, members, longest)
        values, ids = answer.values.copy(), answer.ids.copy()
        histogram, floor = answer.histogram.copy(), np.full((1, 2), np.inf)
        for k, (mine, sign) in enumerate(zip(members, (1, -1), strict=True)):
            if not len(mine):
                continue
            with np.errstate(over="ignore"):
                histogram[k] += binned(sign * (fast[0, mine] + self.offset), self.low, self.high, self.bins)
            floor[0, k] = _floor(sign * fast[0, mine], error, self.keep)
            for j in range(len(fast)):
                near = _near(sign * fast[j, mine], error, self.keep, float(values[k, j, -1]))
                values[k, j], ids[k, j] = self._with(values[k, j], ids[k, j], rows, mine[near], sign, j, start)
        return self._with_rows(
            replace(
                answer, values=values, ids=ids, histogram=histogram,
                floor_chunk=np.append(answer.floor_chunk, chunk), floor=np.concatenate([answer.floor, floor]),
            ),
            rows, codes, start,
        )  # fmt: skip

    def _multiply(
        self, rows: Rows, members: list[NDArray[np.intp]], longest: float
    ) -> tuple[NDArray[np.floating[Any]], float]:
        """Fast values (m, n) of w.x and a bound on their error; float64 where the stored precision is too coarse."""
        fast, error = self._products(rows, longest, rows.dtype)
        if fast.dtype == np.float64 or self._tells_apart(fast, members, error):
            return fast, error
        return self._products(rows, longest, np.dtype(np.float64))

    def _products(self, rows: Rows, longest: float, dtype: Any) -> tuple[NDArray[np.floating[Any]], float]:
        n = terms(rows)
        error = gamma(n + 8, dtype.type) * longest + 2 * n * float(np.finfo(dtype).tiny)
        return many_products(rows, self.directions, dtype), error

    def _tells_apart(self, fast: NDArray[Any], members: list[NDArray[np.intp]], error: float) -> bool:
        if not np.isfinite(fast).all():
            return False
        for mine, sign in zip(members, (1, -1), strict=True):
            for values in fast:
                if len(_near(sign * values[mine], error, self.keep, np.inf)) > self.keep + MANY_CANDIDATES:
                    return False
        return True

    def _with(
        self, values: Array, ids: NDArray[np.int64], rows: Rows, near: NDArray[np.intp], sign: int, j: int, start: int
    ) -> tuple[Array, NDArray[np.int64]]:
        """The lowest so far and the rows ``near`` of this chunk, in float64 and rounded down."""
        if not len(near):
            return values, ids
        exact = safe_projections(take(rows, near), np.full(len(near), sign), self.directions[:, [j]])[:, 0]
        return lowest_of(np.concatenate([values, exact]), np.concatenate([ids, near + start]), self.keep)

    def _with_rows(self, answer: OutlierSummary, rows: Rows, codes: NDArray[Any], start: int) -> OutlierSummary:
        """The answer with the rows that it now refers to, and without those that it no longer does."""
        wanted = np.unique(answer.ids)
        new = wanted[(wanted >= start) & (wanted < start + len(codes)) & (wanted != NO_ROW)]
        new = new[np.isin(new, self.known, invert=True)]
        still = np.isin(answer.row_id, wanted)
        x = take(rows, new - start)
        sign = np.where(codes[new - start] == self.codes[0], 1, -1).astype(np.int8)
        return replace(
            answer, row_id=np.concatenate([answer.row_id[still], new]),
            row_x=np.concatenate([answer.row_x[still], dense(x)]),
            row_sign=np.concatenate([answer.row_sign[still], sign]),
        )  # fmt: skip


def _near(values: NDArray[Any], error: float, keep: int, worst: float) -> NDArray[np.intp]:
    """Positions of values that may be among the ``keep`` lowest, or below ``worst``, as far as ``error`` tells."""
    cut = worst
    if len(values) > keep:
        cut = min(cut, float(np.partition(values, keep - 1)[keep - 1]))
    # The true value is within the error, and what is proven lies up to as much below it once more.
    return np.flatnonzero(~(values > cut + 3 * error))


def _floor(values: NDArray[Any], error: float, keep: int) -> float:
    """A lower bound on the true values but for the ``keep`` lowest."""
    if len(values) <= keep:
        return np.inf
    found = float(np.partition(values, keep)[keep]) - 2 * error
    return found if found == found else -np.inf  # an overflow that is not a number proves nothing


def dense(rows: Rows) -> Array:
    """Rows (n, d) as a dense array of float64."""
    return np.asarray(rows.toarray() if hasattr(rows, "toarray") else rows, dtype=np.float64)
