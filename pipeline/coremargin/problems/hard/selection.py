"""Which rows a block sends: the lowest of each class, each value once.

Real data repeat rows by the hundred thousand. Where there is no room for all that are wanted, rows with the same value
as one already chosen are left out, or the copies of one row would fill the pool.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from coremargin.maths import rows as maths_rows
from coremargin.problems.common.sent import SentRows

if TYPE_CHECKING:
    from coremargin.maths.margin import Array


@dataclass(frozen=True)
class ChunkRows:
    """One chunk as read: its index, its first row id, rows (n, d), label codes (n,), a bound on the rows' length.

    weights (n,): of the samples, None where all are 1.
    """

    chunk: int
    start: int
    rows: maths_rows.Rows
    codes: NDArray[np.int32]
    longest: float
    weights: Array | None = None


@dataclass(frozen=True)
class _Offered:
    """Rows of one class: value (m,), margin, ids, chunk, error of the value, rows (m, d)."""

    value: Array
    margin: Array
    ids: NDArray[np.int64]
    chunk: NDArray[np.int64]
    error: Array
    rows: maths_rows.Rows

    def take(self, order: NDArray[np.intp]) -> _Offered:
        rows = maths_rows.take(self.rows, order)
        return _Offered(
            self.value[order], self.margin[order], self.ids[order], self.chunk[order], self.error[order], rows
        )  # fmt: skip


_Lost = tuple[NDArray[np.int64], NDArray[np.float64]]  # chunks, and floors of rows in them

#: Offers are sorted out when there are so many times more than can be kept: rows are copied twice, not per chunk.
COMPACT = 4


class LowestRows:
    """The ``keep`` lowest rows of each class over the chunks of a block.

    copies: rows of equal values are wanted, too, as long as there is room for all.
    """

    def __init__(
        self, keep: int, features: int, dtype: np.dtype[Any], *, sparse: bool = False, copies: bool = False
    ) -> None:
        self.keep, self.copies = keep, copies
        none, rows = np.zeros(0, np.int64), maths_rows.nothing(features, dtype, sparse=sparse)
        nothing = _Offered(np.zeros(0), np.zeros(0), none, none, np.zeros(0), rows)
        self._offers = ([nothing], [nothing])
        self._lowest = [np.zeros(0), np.zeros(0)]  # the lowest different values so far, at most ``keep``
        self._lost: tuple[list[_Lost], list[_Lost]] = ([], [])  # of rows that were kept for a while

    def offer(
        self, data: ChunkRows, k: int, mine: NDArray[np.intp], values: NDArray[Any], error: float, cut: float = np.inf,
        margins: NDArray[Any] | None = None,
    ) -> float:  # fmt: skip
        """Take what is low enough of the rows ``mine`` (positions, increasing) of class k with these values of y w.x.

        ``error`` bounds the error of the values; cut: none above it is wanted; margins: theirs, where ``sent_margins``
        are asked for. Returns the floor of the rows not taken: a true lower bound.
        """
        if not len(mine):
            return np.inf
        taken = self._low_enough(k, values, cut)
        left = np.ones(len(mine), bool)
        left[taken] = False
        floor = float(values[left].min()) - error if left.any() else np.inf
        if len(taken):
            value, rows = values[taken].astype(np.float64), mine[taken]
            self._lowest[k] = np.unique(np.concatenate([self._lowest[k], value]))[: self.keep]
            chunk, errors = np.full(len(rows), data.chunk), np.full(len(rows), error)
            margin = np.zeros(len(rows)) if margins is None else margins[taken].astype(np.float64)
            found = maths_rows.take(data.rows, rows)
            self._offers[k].append(_Offered(value, margin, rows + data.start, chunk, errors, found))
            if sum(len(offer.ids) for offer in self._offers[k]) > COMPACT * self.keep:
                self._sort_out(k)
        return floor

    def _low_enough(self, k: int, values: NDArray[Any], cut: float) -> NDArray[np.intp]:
        """Positions of the rows that can still be among the lowest."""
        full = len(self._lowest[k]) >= self.keep
        if full and not self.keep:
            return np.zeros(0, np.intp)
        if not full and cut == np.inf:
            return _lowest_distinct(values, self.keep)
        most = float(np.finfo(values.dtype).max)  # a larger number would overflow where it is compared
        near = np.flatnonzero(values < min(cut, most, self._lowest[k][-1] if full else np.inf))
        return near if self.copies and len(near) <= self.keep else near[_lowest_distinct(values[near], self.keep)]

    def _sort_out(self, k: int) -> _Offered:
        """Keep the lowest of the offers, each value once: of the copies of a row one is enough."""
        offers, names = self._offers[k], ("value", "margin", "ids", "chunk", "error")
        plain = {name: np.concatenate([getattr(offer, name) for offer in offers]) for name in names}
        every = _Offered(**plain, rows=maths_rows.concatenate([offer.rows for offer in offers]))
        order = np.lexsort([every.ids, every.value])
        first = np.ones(len(order), bool)
        if len(order) > self.keep or not self.copies:
            first[1:] = every.value[order[1:]] != every.value[order[:-1]]
        gone = np.concatenate([order[~first], order[first][self.keep :]])
        if len(gone):
            self._lost[k].append((every.chunk[gone], every.value[gone] - every.error[gone]))
        kept = every.take(order[first][: self.keep])
        self._offers[k][:] = [kept]
        return kept

    def sent_margins(self) -> tuple[Array, Array]:
        """Margins of the rows that ``finish`` keeps, of each class."""
        return self._sort_out(0).margin, self._sort_out(1).margin

    def finish(self, chunks: NDArray[np.int64], floors: Array) -> tuple[Array, SentRows]:
        """Floors (c, 2) that count the rows given up later, and the rows kept, in row order."""
        floors, kept = floors.copy(), [self._sort_out(k) for k in range(2)]
        for k, lost in enumerate(self._lost):
            for chunk, floor in lost:
                np.minimum.at(floors[:, k], np.searchsorted(chunks, chunk), floor)
        ids = np.concatenate([part.ids for part in kept])
        signs = np.repeat(np.array([1, -1], np.int8), [len(part.ids) for part in kept])
        order = np.argsort(ids, kind="stable")
        rows = maths_rows.concatenate([part.rows for part in kept])
        return floors, SentRows.of(ids[order], maths_rows.take(rows, order), signs[order])


def _lowest_distinct(values: NDArray[Any], keep: int) -> NDArray[np.intp]:
    """Positions of the ``keep`` smallest different values, lowest first; of equal values the first position."""
    if keep <= 0:
        return np.zeros(0, np.intp)
    if len(values) > 2 * keep:
        near = np.flatnonzero(values <= np.partition(values, 2 * keep - 1)[2 * keep - 1])
        order = _distinct(values, near)
        if len(order) >= keep:
            return order[:keep]
    return _distinct(values, np.arange(len(values)))[:keep]


def _distinct(values: NDArray[Any], candidates: NDArray[np.intp]) -> NDArray[np.intp]:
    order = candidates[np.argsort(values[candidates], kind="stable")]
    first = np.ones(len(order), bool)
    first[1:] = values[order[1:]] != values[order[:-1]]
    return order[first]
