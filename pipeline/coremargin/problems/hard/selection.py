"""Which rows a block sends: the lowest of each class, each value once.

Real data repeat rows by the hundred thousand. Where there is no room for all that are wanted, rows with the same value
as one already chosen are left out, or the copies of one row would fill the pool.
"""

from __future__ import annotations

from collections.abc import Sequence
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
    """Rows of one class: value (m,), margin, ids, chunk, error of the value; rows (m, d), one part after the other."""

    value: Array
    margin: Array
    ids: NDArray[np.int64]
    chunk: NDArray[np.int64]
    error: Array
    parts: tuple[maths_rows.Rows, ...]

    def take(self, order: NDArray[np.intp]) -> _Offered:
        """Some of them, with their rows in one part."""
        plain = {name: getattr(self, name)[order] for name in _PLAIN}
        return _Offered(**plain, parts=(_gathered(self.parts, order),))

    @classmethod
    def joined(cls, offers: Sequence[_Offered]) -> _Offered:
        """All of them; no row is copied."""
        plain = {name: np.concatenate([getattr(offer, name) for offer in offers]) for name in _PLAIN}
        return cls(**plain, parts=tuple(part for offer in offers for part in offer.parts))


_PLAIN = ("value", "margin", "ids", "chunk", "error")


def _gathered(parts: Sequence[maths_rows.Rows], places: NDArray[np.intp]) -> maths_rows.Rows:
    """Rows at ``places`` (m,) of parts that follow one another: each is copied once."""
    if len(parts) == 1 or maths_rows.is_sparse(parts[0]):
        return maths_rows.take(maths_rows.concatenate(parts) if len(parts) > 1 else parts[0], places)
    starts = np.cumsum([0, *(part.shape[0] for part in parts)])
    whose = np.searchsorted(starts, places, side="right") - 1
    found = np.empty((len(places), parts[0].shape[1]), parts[0].dtype)
    order = np.argsort(whose, kind="stable")
    edges = np.searchsorted(whose[order], np.arange(len(parts) + 1))
    for k, part in enumerate(parts):
        here = order[edges[k] : edges[k + 1]]
        if len(here):
            found[here] = part[places[here] - starts[k]]
    return found


_Lost = tuple[NDArray[np.int64], NDArray[np.float64]]  # chunks, and floors of rows in them

#: Offers are sorted out when there are so many times more than can be kept: rows are copied twice, not per chunk.
COMPACT = 4


def of_chunks(chunk: NDArray[np.int64], floor: Array) -> tuple[NDArray[np.int64], Array]:
    """The chunks (c,) of parts of them, and their floors (c, 2): the least of those (p, 2) of the parts, in order."""
    chunks, first = np.unique(chunk, return_index=True)
    return chunks, np.minimum.reduceat(floor, first, axis=0) if len(first) else floor


class LowestRows:
    """The ``keep`` lowest rows of each class over the chunks of a block.

    copies: rows of equal values are wanted, too, as long as there is room for all.
    """

    def __init__(
        self, keep: int, features: int, dtype: np.dtype[Any], *, sparse: bool = False, copies: bool = False
    ) -> None:
        self.keep, self.copies = keep, copies
        none, rows = np.zeros(0, np.int64), maths_rows.nothing(features, dtype, sparse=sparse)
        nothing = _Offered(np.zeros(0), np.zeros(0), none, none, np.zeros(0), (rows,))
        self._offers = ([nothing], [nothing])
        self._count = [0, 0]  # of all offers so far
        self._lowest = [np.zeros(0), np.zeros(0)]  # once ``keep`` came: their lowest different values, so many at most
        self._lost: tuple[list[_Lost], list[_Lost]] = ([], [])  # of rows that were kept for a while

    def offer(
        self, data: ChunkRows, k: int, mine: NDArray[np.intp], values: NDArray[Any], error: float, cut: float = np.inf,
        margins: NDArray[Any] | None = None,
    ) -> float:  # fmt: skip
        """Take what is low enough of the rows ``mine`` (positions, increasing) of class k with these values of y w.x.

        ``error`` bounds the error of the values; cut: none above it is wanted; margins: theirs, which
        ``finish`` tells again. Returns the floor of the rows not taken: a true lower bound.
        """
        if not len(mine):
            return np.inf
        taken = self._low_enough(k, values, cut)
        left = np.ones(len(mine), bool)
        left[taken] = False
        floor = float(values[left].min()) - error if left.any() else np.inf
        if len(taken):
            value, rows = values[taken].astype(np.float64), mine[taken]
            self._add_values(k, value)
            chunk, errors = np.full(len(rows), data.chunk), np.full(len(rows), error)
            margin = np.zeros(len(rows)) if margins is None else margins[taken].astype(np.float64)
            found = maths_rows.take(data.rows, rows)
            self._offers[k].append(_Offered(value, margin, rows + data.start, chunk, errors, (found,)))
            if sum(len(offer.ids) for offer in self._offers[k]) > COMPACT * self.keep:
                every, kept = self._sort_out(k)
                self._offers[k][:] = [every.take(kept)]
        return floor

    def _add_values(self, k: int, values: Array) -> None:
        before, self._count[k] = self._count[k], self._count[k] + len(values)
        if self._count[k] >= self.keep:
            earlier = [offer.value for offer in self._offers[k]] if before < self.keep else [self._lowest[k]]
            self._lowest[k] = np.unique(np.concatenate([*earlier, values]))[: self.keep]

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

    def _sort_out(self, k: int) -> tuple[_Offered, NDArray[np.intp]]:
        """The offers, and which of them stay: the lowest, each value once. Of the copies of a row one is enough."""
        every = _Offered.joined(self._offers[k])
        if self.copies and len(every.ids) <= self.keep:
            return every, np.arange(len(every.ids))
        order = np.lexsort([every.ids, every.value])
        first = np.ones(len(order), bool)
        if len(order) > self.keep or not self.copies:
            first[1:] = every.value[order[1:]] != every.value[order[:-1]]
        gone = np.concatenate([order[~first], order[first][self.keep :]])
        if len(gone):
            self._lost[k].append((every.chunk[gone], every.value[gone] - every.error[gone]))
        return every, order[first][: self.keep]

    def finish(self, chunks: NDArray[np.int64], floors: Array) -> tuple[Array, SentRows, tuple[Array, Array]]:
        """Floors (c, 2) that count the rows given up later; the rows kept, in row order; their margins, of each class.

        The margins are those that came with the offers.
        """
        (one, first), (other, second) = (self._sort_out(k) for k in range(2))
        floors = floors.copy()
        for k, lost in enumerate(self._lost):
            for chunk, floor in lost:
                np.minimum.at(floors[:, k], np.searchsorted(chunks, chunk), floor)
        every, kept = _Offered.joined([one, other]), np.concatenate([first, len(one.ids) + second])
        signs = np.repeat(np.array([1, -1], np.int8), [len(first), len(second)])
        order = np.argsort(every.ids[kept], kind="stable")
        sent = SentRows.of(every.ids[kept[order]], _gathered(every.parts, kept[order]), signs[order])
        return floors, sent, (one.margin[first], other.margin[second])


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
