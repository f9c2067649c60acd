"""What a worker does with a chunk in an outlier scan: find the lowest rows of each class under a batch of directions.

Rows are multiplied in their stored precision. Rows that may be among the lowest, given the rounding error, are
evaluated again in float64: a margin with k outliers is the (k + 1)-th smallest value, and must be proven.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, fields, replace
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from coremargin.data.parts import parts_of
from coremargin.maths.margin import Array, gamma, safe_projections
from coremargin.maths.rows import Rows, dense, many_products, take, terms
from coremargin.problems.common.classes import mask_zero_weights
from coremargin.problems.common.sent import least_of_chunks
from coremargin.problems.hard.probe import binned

if TYPE_CHECKING:
    from coremargin.data.source import Source
    from coremargin.engine.protocols import Block

#: The id that stands for no row.
NO_ROW = np.iinfo(np.int64).max
#: With more candidates than this beyond ``keep``, float64 for the whole chunk is cheaper.
MANY_CANDIDATES = 512


@dataclass(frozen=True)
class OutlierSummary:
    """The lowest rows of some blocks under m directions; index 0 is the positive class, 1 the negative.

    values (2, m, keep) float64: the smallest y w.x, increasing, rounded down so that they are proven, inf where there
    are fewer rows; ids (2, m, keep) int64: their rows. row_id (r,) increasing, row_x (r, d) float64, row_sign (r,)
    int8: these rows, except those that the probe knows. histogram (2, bins) int64: margins of direction 0. chunk (c,)
    int64, bound (c, 2) float64: for each chunk read, a lower bound on y w.x of direction 0 over all but the ``keep``
    lowest rows of each class.
    """

    values: Array
    ids: NDArray[np.int64]
    row_id: NDArray[np.int64]
    row_x: Array
    row_sign: NDArray[np.int8]
    histogram: NDArray[np.int64]
    chunk: NDArray[np.int64]
    bound: Array

    @classmethod
    def empty(cls, directions: int, keep: int, features: int, bins: int) -> OutlierSummary:
        """The summary of no rows, the identity of ``merge``."""
        return cls(
            values=np.full((2, directions, keep), np.inf),
            ids=np.full((2, directions, keep), NO_ROW),
            row_id=np.zeros(0, np.int64),
            row_x=np.zeros((0, features)),
            row_sign=np.zeros(0, np.int8),
            histogram=np.zeros((2, bins), np.int64),
            chunk=np.zeros(0, np.int64),
            bound=np.zeros((0, 2)),
        )

    def merge(self, later: OutlierSummary) -> OutlierSummary:
        """Merge with the summary of later blocks; of equal values the smaller row ids stay."""
        values, ids = keep_lowest(
            np.concatenate([self.values, later.values], axis=2),
            np.concatenate([self.ids, later.ids], axis=2),
            self.values.shape[2],
        )
        row_id = np.concatenate([self.row_id, later.row_id])
        used = np.flatnonzero(np.isin(row_id, ids))
        used = used[np.argsort(row_id[used], kind="stable")]
        return OutlierSummary(
            values=values,
            ids=ids,
            row_id=row_id[used],
            row_x=np.concatenate([self.row_x, later.row_x])[used],
            row_sign=np.concatenate([self.row_sign, later.row_sign])[used],
            histogram=self.histogram + later.histogram,
            chunk=np.concatenate([self.chunk, later.chunk]),
            bound=np.concatenate([self.bound, later.bound]),
        )

    def lowest(self, direction: int) -> tuple[Array, Array]:
        """The smallest values of both classes under a direction, without the padding."""
        positive, negative = (self.values[k, direction] for k in range(2))
        return positive[np.isfinite(positive) | (positive == -np.inf)], negative[
            np.isfinite(negative) | (negative == -np.inf)
        ]

    @property
    def unsent_bounds(self) -> Array:
        """Lower bounds (c, 2) on y w.x of direction 0 over the rows of each chunk that the summary does not hold."""
        return np.asarray(np.minimum(self.bound, self.values[:, 0, -1]))

    def to_arrays(self) -> dict[str, NDArray[Any]]:
        """Plain arrays for checkpoints."""
        return {f.name: getattr(self, f.name) for f in fields(self)}

    @classmethod
    def from_arrays(cls, arrays: Mapping[str, NDArray[Any]]) -> OutlierSummary:
        """Inverse of ``to_arrays``."""
        return cls(**{f.name: arrays[f.name] for f in fields(cls)})


def keep_lowest(values: Array, ids: NDArray[np.int64], keep: int) -> tuple[Array, NDArray[np.int64]]:
    """The ``keep`` lowest along the last axis, ordered by value, then id."""
    order = np.lexsort((ids, values), axis=-1)[..., :keep]
    return np.take_along_axis(values, order, -1), np.take_along_axis(ids, order, -1)


@dataclass(frozen=True)
class OutlierProbe:
    """The probe of an outlier scan.

    directions (d, m) float64 of length 1; keep: rows of each class to find for each direction; codes: label codes of
    the positive and the negative class; known (r,) int64, increasing: rows in the driver, which are not sent again;
    offset, low, high, bins: of the histogram of margins of direction 0.
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
        """The probe with the known ids of one block only."""
        first, stop = np.array([block.chunks[0], block.chunks[-1] + 1]) * self.chunk_rows
        return replace(self, known=self.known[np.searchsorted(self.known, first) : np.searchsorted(self.known, stop)])

    def empty(self) -> OutlierSummary:
        """The summary of no rows."""
        return OutlierSummary.empty(self.directions.shape[1], self.keep, len(self.directions), self.bins)

    def from_arrays(self, arrays: Mapping[str, NDArray[Any]]) -> OutlierSummary:
        """A summary from a checkpoint."""
        return OutlierSummary.from_arrays(arrays)

    def __call__(self, source: Source, block: Block) -> OutlierSummary:
        """The summary of one block."""
        summary, longest = self.empty(), source.scalars().max_norm
        for chunk in block.chunks:
            for part in parts_of(source, chunk):
                codes = mask_zero_weights(part.codes, part.weights)
                summary = self.add_rows(summary, part.rows, codes, part.start, float(longest[chunk]), chunk)
        chunks, bound = least_of_chunks(summary.chunk, summary.bound)
        return replace(summary, chunk=chunks, bound=bound)

    def add_rows(
        self, summary: OutlierSummary, rows: Rows, codes: NDArray[Any], start: int, longest: float, chunk: int = 0
    ) -> OutlierSummary:
        """Add rows of a chunk, from row ``start`` on; ``longest`` bounds their norms."""
        members = [np.flatnonzero(codes == code) for code in self.codes]
        fast, error = self._multiply(rows, members, longest)
        values, ids = summary.values.copy(), summary.ids.copy()
        histogram, bound = summary.histogram.copy(), np.full((1, 2), np.inf)
        for k, (mine, sign) in enumerate(zip(members, (1, -1), strict=True)):
            if not len(mine):
                continue
            with np.errstate(over="ignore"):
                histogram[k] += binned(sign * (fast[0, mine] + self.offset), self.low, self.high, self.bins)
            bound[0, k] = _lower_bound(sign * fast[0, mine], error, self.keep)
            for j in range(len(fast)):
                near = mine[_candidates(sign * fast[j, mine], error, self.keep, float(values[k, j, -1]))]
                if len(near):
                    signs, w = np.full(len(near), sign), self.directions[:, [j]]
                    exact = safe_projections(take(rows, near), signs, w)[:, 0]  # float64, rounded down
                    values[k, j], ids[k, j] = keep_lowest(
                        np.concatenate([values[k, j], exact]), np.concatenate([ids[k, j], near + start]), self.keep
                    )
        # Add the rows that the summary now refers to, and drop those that it no longer does.
        wanted = np.unique(ids)
        new = wanted[(wanted >= start) & (wanted < start + len(codes)) & (wanted != NO_ROW)]
        new = new[np.isin(new, self.known, invert=True)]
        still = np.isin(summary.row_id, wanted)
        new_sign = np.where(codes[new - start] == self.codes[0], 1, -1).astype(np.int8)
        return OutlierSummary(
            values=values,
            ids=ids,
            row_id=np.concatenate([summary.row_id[still], new]),
            row_x=np.concatenate([summary.row_x[still], dense(take(rows, new - start))]),
            row_sign=np.concatenate([summary.row_sign[still], new_sign]),
            histogram=histogram,
            chunk=np.append(summary.chunk, chunk),
            bound=np.concatenate([summary.bound, bound]),
        )

    def _multiply(
        self, rows: Rows, members: list[NDArray[np.intp]], longest: float
    ) -> tuple[NDArray[np.floating[Any]], float]:
        """Fast values (m, n) of w.x and a bound on their error; in float64 when the stored precision is too coarse."""
        fast, error = self._products(rows, longest, rows.dtype)
        if fast.dtype == np.float64 or self._is_precise_enough(fast, members, error):
            return fast, error
        return self._products(rows, longest, np.dtype(np.float64))

    def _products(self, rows: Rows, longest: float, dtype: Any) -> tuple[NDArray[np.floating[Any]], float]:
        n = terms(rows)
        error = gamma(n + 8, dtype.type) * longest + 2 * n * float(np.finfo(dtype).tiny)
        return many_products(rows, self.directions, dtype), error

    def _is_precise_enough(self, fast: NDArray[Any], members: list[NDArray[np.intp]], error: float) -> bool:
        if not np.isfinite(fast).all():
            return False
        for mine, sign in zip(members, (1, -1), strict=True):
            for values in fast:
                if len(_candidates(sign * values[mine], error, self.keep, np.inf)) > self.keep + MANY_CANDIDATES:
                    return False
        return True


def _candidates(values: NDArray[Any], error: float, keep: int, worst: float) -> NDArray[np.intp]:
    """Positions of values that may be among the ``keep`` lowest and below ``worst``, given ``error``."""
    cut = worst
    if len(values) > keep:
        cut = min(cut, float(np.partition(values, keep - 1)[keep - 1]))
    # The true value is within the error, and the proven value up to as much below it again.
    return np.flatnonzero(~(values > cut + 3 * error))


def _lower_bound(values: NDArray[Any], error: float, keep: int) -> float:
    """A lower bound on all true values but the ``keep`` lowest."""
    if len(values) <= keep:
        return np.inf
    found = float(np.partition(values, keep)[keep]) - 2 * error
    return found if found == found else -np.inf  # an overflow to nan proves nothing
