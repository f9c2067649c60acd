"""Rows that workers send to the driver: all rows of a sample, or the lowest rows of each class.

In a first stage, workers send all rows of its chunks that count (``AllRowsProbe``). In later scans, they send the rows
with the smallest values of y w.x of each block (``LowestRows``), each value once: real data may repeat a row a hundred
thousand times, and its copies would fill the driver's memory.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import TYPE_CHECKING, Any, Self

import numpy as np
from numpy.typing import NDArray

from coremargin.data.parts import parts_of
from coremargin.maths import rows as row_ops
from coremargin.maths.compact import compact, in_smaller_form
from coremargin.maths.rows import Rows
from coremargin.problems.common.classes import mask_zero_weights
from coremargin.problems.common.sample import Sample, weights_of

if TYPE_CHECKING:
    from coremargin.data.source import Source
    from coremargin.engine.protocols import Block
    from coremargin.maths.margin import Array

Part = tuple[NDArray[np.int64], Rows, NDArray[np.int8]]


@dataclass(frozen=True)
class SentRows:
    """Rows in one or more parts, each with ids (m,), rows (m, d) and signs (m,) int8.

    Merging copies nothing: parts are joined once, when all rows are needed.
    """

    parts: tuple[Part, ...]

    @classmethod
    def one_part(cls, ids: NDArray[np.int64], rows: Rows, signs: NDArray[np.int8]) -> Self:
        """These rows."""
        return cls(((ids, rows, signs),))

    @classmethod
    def nothing(cls, features: int, dtype: np.dtype[Any], *, sparse: bool) -> Self:
        """No rows; dtype and sparse: of those that may be added."""
        return cls.one_part(
            np.zeros(0, np.int64), row_ops.nothing(features, dtype, sparse=sparse), np.zeros(0, np.int8)
        )

    def __len__(self) -> int:
        return len(self.ids)

    @cached_property
    def ids(self) -> NDArray[np.int64]:
        """Ids (m,) of all rows."""
        return np.concatenate([ids for ids, _, _ in self.parts])

    @cached_property
    def signs(self) -> NDArray[np.int8]:
        """Signs (m,) of all rows."""
        return np.concatenate([signs for _, _, signs in self.parts])

    @cached_property
    def rows(self) -> Rows:
        """All rows (m, d)."""
        return self.parts[0][1] if len(self.parts) == 1 else row_ops.concatenate([rows for _, rows, _ in self.parts])

    def merge(self, later: Self) -> Self:
        """The rows of both."""
        parts = [part for part in (*self.parts, *later.parts) if len(part[0])]
        return type(self)(tuple(parts) or self.parts[:1])

    def where(self, mask: NDArray[np.bool_]) -> Self:
        """The rows where a mask (m,) is true."""
        if mask.all():
            return self
        starts = np.cumsum([0, *(len(ids) for ids, _, _ in self.parts)])
        some = [mask[start : start + len(part[0])] for start, part in zip(starts.tolist(), self.parts, strict=False)]
        return type(self)(
            tuple(
                (ids[here], row_ops.take(rows, here), signs[here])
                for here, (ids, rows, signs) in zip(some, self.parts, strict=True)
            )
        )

    def to_arrays(self, name: str) -> dict[str, NDArray[Any]]:
        """Plain arrays, exact."""
        return {f"{name}_ids": self.ids, f"{name}_signs": self.signs, **row_ops.to_arrays(f"{name}_rows", self.rows)}

    @classmethod
    def from_arrays(cls, name: str, arrays: Mapping[str, NDArray[Any]]) -> Self:
        """Inverse of ``to_arrays``, as one part."""
        return cls.one_part(arrays[f"{name}_ids"], row_ops.from_arrays(f"{name}_rows", arrays), arrays[f"{name}_signs"])


@dataclass(frozen=True)
class AllRows:
    """The summary of a first stage: all rows of some blocks that count."""

    sent: SentRows

    def merge(self, later: AllRows) -> AllRows:
        """The rows of both."""
        return AllRows(self.sent.merge(later.sent))

    def sample(self, source: Source, chunks: list[int], *, stay: bool = False) -> Sample:
        """The rows of some of the chunks, as ``read_sample`` returns them."""
        sent = self.sent.where(np.isin(self.sent.ids // source.chunk_rows, chunks))
        rows = compact([in_smaller_form(rows) for _, rows, _ in sent.parts]) if stay else sent.rows
        return Sample(chunks, sent.ids, rows, sent.signs, weights_of(source, sent.ids, chunks))

    def to_arrays(self) -> dict[str, NDArray[Any]]:
        """Plain arrays for checkpoints."""
        return self.sent.to_arrays("sent")

    @classmethod
    def from_arrays(cls, arrays: Mapping[str, NDArray[Any]]) -> AllRows:
        """Inverse of ``to_arrays``."""
        return cls(SentRows.from_arrays("sent", arrays))


@dataclass(frozen=True)
class AllRowsProbe:
    """The probe of a first stage; codes: of the positive and the negative class."""

    codes: tuple[int, int]
    features: int
    dtype: str
    sparse: bool

    def narrow(self, _: Block) -> AllRowsProbe:
        """The same probe."""
        return self

    def empty(self) -> AllRows:
        """The summary of no rows."""
        return AllRows(SentRows.nothing(self.features, np.dtype(self.dtype), sparse=self.sparse))

    def from_arrays(self, arrays: Mapping[str, NDArray[Any]]) -> AllRows:
        """A summary from a checkpoint."""
        return AllRows.from_arrays(arrays)

    def __call__(self, source: Source, block: Block) -> AllRows:
        """The rows of one block, copied chunk by chunk."""
        parts = []
        for chunk in block.chunks:
            for part in parts_of(source, chunk):
                codes = mask_zero_weights(part.codes, part.weights)
                mine = np.flatnonzero((codes == self.codes[0]) | (codes == self.codes[1]))
                signs = np.where(codes[mine] == self.codes[0], 1, -1).astype(np.int8)
                parts.append((mine + part.start, row_ops.take(part.rows, mine), signs))
        return self.empty().merge(AllRows(SentRows(tuple(parts))))


@dataclass(frozen=True)
class ChunkRows:
    """A chunk as read, or a part of it: its number, its first row id, rows (n, d) and label codes (n,).

    longest: no row is longer. weights (n,): of the samples, None if all are 1.
    """

    chunk: int
    start: int
    rows: Rows
    codes: NDArray[np.int32]
    longest: float
    weights: Array | None = None


@dataclass(frozen=True)
class _Candidates:
    """Rows of one class: value (m,), margin, ids, chunk, error of the value; rows (m, d), one part after the other."""

    value: Array
    margin: Array
    ids: NDArray[np.int64]
    chunk: NDArray[np.int64]
    error: Array
    parts: tuple[Rows, ...]

    def take(self, order: NDArray[np.intp]) -> _Candidates:
        """Some of them, with their rows in one part."""
        plain = {name: getattr(self, name)[order] for name in _PLAIN}
        return _Candidates(**plain, parts=(_gather(self.parts, order),))

    @classmethod
    def concatenate(cls, several: Sequence[_Candidates]) -> _Candidates:
        """All of them; no row is copied."""
        plain = {name: np.concatenate([getattr(each, name) for each in several]) for name in _PLAIN}
        return cls(**plain, parts=tuple(part for each in several for part in each.parts))


_PLAIN = ("value", "margin", "ids", "chunk", "error")


def _gather(parts: Sequence[Rows], places: NDArray[np.intp]) -> Rows:
    """Rows at ``places`` (m,) of parts that follow one another: each is copied once."""
    if len(parts) == 1 or row_ops.is_sparse(parts[0]):
        return row_ops.take(row_ops.concatenate(parts) if len(parts) > 1 else parts[0], places)
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


#: Candidates are compacted when there are so many times more than can be kept: rows are copied twice, not per chunk.
COMPACT = 4


class LowestRows:
    """The ``keep`` rows of each class with the lowest values of y w.x over the chunks of a block.

    copies: rows of equal values are kept, too, as long as there is room for all.
    """

    def __init__(
        self, keep: int, features: int, dtype: np.dtype[Any], *, sparse: bool = False, copies: bool = False
    ) -> None:
        self.keep, self.copies = keep, copies
        none, rows = np.zeros(0, np.int64), row_ops.nothing(features, dtype, sparse=sparse)
        nothing = _Candidates(np.zeros(0), np.zeros(0), none, none, np.zeros(0), (rows,))
        self._candidates = ([nothing], [nothing])
        self._count = [0, 0]  # of all candidates so far
        self._lowest = [np.zeros(0), np.zeros(0)]  # the ``keep`` lowest different values, once there are that many
        # Of rows that were candidates and then dropped: their chunks, and lower bounds of their values.
        self._dropped: tuple[list[tuple[NDArray[np.int64], Array]], ...] = ([], [])

    def offer(
        self,
        data: ChunkRows,
        k: int,
        mine: NDArray[np.intp],
        values: NDArray[Any],
        error: float,
        cut: float = np.inf,
        margins: NDArray[Any] | None = None,
    ) -> float:
        """Keep the low enough rows among ``mine`` (positions, increasing) of class k, given their values of y w.x.

        ``error`` bounds the error of the values. cut: no row above it is kept. margins: of the rows, for ``finish``.
        Returns a lower bound of the rows that are not kept.
        """
        if not len(mine):
            return np.inf
        taken = self._low_enough(k, values, cut)
        left = np.ones(len(mine), bool)
        left[taken] = False
        lower = float(values[left].min()) - error if left.any() else np.inf
        if len(taken):
            value, rows = values[taken].astype(np.float64), mine[taken]
            self._add_values(k, value)
            chunk, errors = np.full(len(rows), data.chunk), np.full(len(rows), error)
            margin = np.zeros(len(rows)) if margins is None else margins[taken].astype(np.float64)
            found = row_ops.take(data.rows, rows)
            self._candidates[k].append(_Candidates(value, margin, rows + data.start, chunk, errors, (found,)))
            if sum(len(each.ids) for each in self._candidates[k]) > COMPACT * self.keep:
                every, kept = self._lowest_candidates(k)
                self._candidates[k][:] = [every.take(kept)]
        return lower

    def finish(self, chunks: NDArray[np.int64], lower: Array) -> tuple[Array, SentRows, tuple[Array, Array]]:
        """The bounds (c, 2) of all rows that are not sent; the rows to send, in row order; their margins by class.

        lower (c, 2): the bounds that ``offer`` returned for ``chunks`` (c,), before later rows were dropped.
        """
        (one, first), (other, second) = (self._lowest_candidates(k) for k in range(2))
        lower = lower.copy()
        for k, dropped in enumerate(self._dropped):
            for chunk, bound in dropped:
                np.minimum.at(lower[:, k], np.searchsorted(chunks, chunk), bound)
        every, kept = _Candidates.concatenate([one, other]), np.concatenate([first, len(one.ids) + second])
        signs = np.repeat(np.array([1, -1], np.int8), [len(first), len(second)])
        order = np.argsort(every.ids[kept], kind="stable")
        sent = SentRows.one_part(every.ids[kept[order]], _gather(every.parts, kept[order]), signs[order])
        return lower, sent, (one.margin[first], other.margin[second])

    def _add_values(self, k: int, values: Array) -> None:
        before, self._count[k] = self._count[k], self._count[k] + len(values)
        if self._count[k] >= self.keep:
            earlier = [each.value for each in self._candidates[k]] if before < self.keep else [self._lowest[k]]
            self._lowest[k] = np.unique(np.concatenate([*earlier, values]))[: self.keep]

    def _low_enough(self, k: int, values: NDArray[Any], cut: float) -> NDArray[np.intp]:
        """Positions of the rows that can still be among the lowest."""
        full = len(self._lowest[k]) >= self.keep
        if full and not self.keep:
            return np.zeros(0, np.intp)
        if not full and cut == np.inf:
            return _lowest_distinct(values, self.keep)
        most = float(np.finfo(values.dtype).max)  # a larger number would overflow in the comparison
        near = np.flatnonzero(values < min(cut, most, self._lowest[k][-1] if full else np.inf))
        return near if self.copies and len(near) <= self.keep else near[_lowest_distinct(values[near], self.keep)]

    def _lowest_candidates(self, k: int) -> tuple[_Candidates, NDArray[np.intp]]:
        """The candidates, and the positions of the lowest, each value once."""
        every = _Candidates.concatenate(self._candidates[k])
        if self.copies and len(every.ids) <= self.keep:
            return every, np.arange(len(every.ids))
        order = np.lexsort([every.ids, every.value])
        first = np.ones(len(order), bool)
        if len(order) > self.keep or not self.copies:
            first[1:] = every.value[order[1:]] != every.value[order[:-1]]
        gone = np.concatenate([order[~first], order[first][self.keep :]])
        if len(gone):
            self._dropped[k].append((every.chunk[gone], every.value[gone] - every.error[gone]))
        return every, order[first][: self.keep]


def least_of_chunks(chunk: NDArray[np.int64], lower: Array) -> tuple[NDArray[np.int64], Array]:
    """The chunks (c,) of parts of them (p,), and the least (c, 2) of the bounds (p, 2) of their parts, in order."""
    chunks, first = np.unique(chunk, return_index=True)
    return chunks, np.minimum.reduceat(lower, first, axis=0) if len(first) else lower


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
