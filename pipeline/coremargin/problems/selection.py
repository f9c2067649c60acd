"""Which rows a block sends home: the lowest of each class, each value once.

Real data repeat rows by the hundred thousand. Rows with the same value as one already chosen are left out, or the
copies of one row would fill the pool.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

if TYPE_CHECKING:
    from coremargin.maths.margin import Array


@dataclass(frozen=True)
class ChunkRows:
    """One chunk as read: its index, its first row id, rows (n, d), label codes (n,), a bound on the rows' length."""

    chunk: int
    start: int
    rows: NDArray[Any]
    codes: NDArray[np.int32]
    longest: float


@dataclass
class _Kept:
    """Rows of one class, sorted by value, then by id."""

    value: Array
    ids: NDArray[np.int64]
    chunk: NDArray[np.int64]
    error: Array
    rows: NDArray[Any]


_Lost = tuple[NDArray[np.int64], NDArray[np.float64]]  # chunks, and floors of rows in them


class LowestRows:
    """The ``keep`` lowest rows of each class over the chunks of a block."""

    def __init__(self, keep: int, features: int, dtype: np.dtype[Any]) -> None:
        self.keep = keep
        none = np.zeros(0, np.int64)
        self._kept = [_Kept(np.zeros(0), none, none, np.zeros(0), np.zeros((0, features), dtype)) for _ in range(2)]
        self._lost: tuple[list[_Lost], list[_Lost]] = ([], [])  # of rows that were kept for a while, per class

    def offer(self, data: ChunkRows, k: int, mine: NDArray[np.intp], values: NDArray[Any], error: float) -> float:
        """Take what is low enough of the rows ``mine`` (positions, increasing) of class k with these values of y w.x.

        ``error`` bounds the error of the values. Returns the floor of the rows not taken: a true lower bound.
        """
        if not len(mine):
            return np.inf
        taken = _lowest_distinct(values, self.keep)
        kept = self._kept[k]
        if len(kept.value) >= self.keep:
            taken = taken[values[taken] < kept.value[-1]] if self.keep else taken[:0]
        left = np.ones(len(mine), bool)
        left[taken] = False
        floor = float(values[left].min()) - error if left.any() else np.inf
        self._merge(data, k, mine[taken], values[taken], error)
        return floor

    def _merge(self, data: ChunkRows, k: int, rows: NDArray[np.intp], values: NDArray[Any], error: float) -> None:
        if not len(rows):
            return
        kept = self._kept[k]
        value = np.concatenate([kept.value, values.astype(np.float64)])
        ids = np.concatenate([kept.ids, rows + data.start])
        chunk = np.concatenate([kept.chunk, np.full(len(rows), data.chunk)])
        errors = np.concatenate([kept.error, np.full(len(rows), error)])
        order = np.lexsort([ids, value])
        first = np.ones(len(order), bool)  # of the copies of a row in several chunks, too, one is enough
        first[1:] = value[order[1:]] != value[order[:-1]]
        gone = np.concatenate([order[~first], order[first][self.keep :]])
        if len(gone):
            self._lost[k].append((chunk[gone], value[gone] - errors[gone]))
        order = order[first][: self.keep]
        x = np.concatenate([kept.rows, data.rows[rows]])
        self._kept[k] = _Kept(value[order], ids[order], chunk[order], errors[order], x[order])

    def finish(
        self, chunks: NDArray[np.int64], floors: Array
    ) -> tuple[Array, tuple[NDArray[np.int64], NDArray[Any], NDArray[np.int8]]]:
        """Floors (c, 2) that count the rows given up later, and the rows kept: ids, rows, signs, in row order."""
        floors = floors.copy()
        for k, lost in enumerate(self._lost):
            for chunk, floor in lost:
                np.minimum.at(floors[:, k], np.searchsorted(chunks, chunk), floor)
        ids = np.concatenate([kept.ids for kept in self._kept])
        signs = np.repeat(np.array([1, -1], np.int8), [len(kept.ids) for kept in self._kept])
        order = np.argsort(ids, kind="stable")
        rows = np.concatenate([kept.rows for kept in self._kept])
        return floors, (ids[order], rows[order], signs[order])


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
