"""What a worker does with a chunk in a hard-margin scan. Plain functions on arrays; no Dask, no files.

The rows are multiplied in their own precision. Everything that enters a bound is evaluated again in float64: every
row whose fast value is within the rounding bound of the smallest one is a candidate, and the candidates decide.
Where float32 cannot tell the rows apart (huge features, tiny margins) the chunk is multiplied in float64 instead.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from coremargin.data.parts import parts_of
from coremargin.engine.protocols import Block
from coremargin.maths.margin import Array, gamma, safe_projections
from coremargin.maths.rows import Rows, precision, products, take
from coremargin.problems.common.sent import SentRows
from coremargin.problems.common.start import left_out
from coremargin.problems.hard.selection import ChunkRows, LowestRows, of_chunks
from coremargin.problems.hard.summary import MarginSummary

if TYPE_CHECKING:
    from coremargin.data.source import Source

#: More candidates than this for an exact evaluation: float64 for the whole chunk is cheaper.
MANY_CANDIDATES = 512


@dataclass(frozen=True)
class MarginProbe:
    """The question of a hard-margin scan.

    base (d, 1 or 2) float64: the hypothesis to prove (column 0, ||w|| = 1), and the best one so far.
    mix (1 or 2, k): the hypotheses asked for are the columns of ``base @ mix``; column 0 is the one to prove.
    offset: b of hypothesis 0. codes: label codes of the positive and the negative class.
    level: margins below it count as violations. keep: rows of each class worth sending, per block; more where
    keep_chunk, per chunk of it, come to more. asked (m,) int64, increasing, and cuts (m, 2): chunks of which no row
    with a value of y w.x above that of its class is worth sending; of others the lowest are.
    known (m,) int64, sorted: ids of the rows in the pool; they are not sent again and do not enter floors.
    low, high, bins: the range of the histogram of margins; of ``asked`` chunks without the rows that are known or sent:
    whoever gets them can count them at a later hypothesis. first_only: send only the first violation in row order.
    sparse: rows come, and are sent, as csr arrays.
    """

    base: Array
    mix: Array
    offset: float
    codes: tuple[int, int]
    level: float
    keep: int
    known: NDArray[np.int64]
    low: float
    high: float
    bins: int
    dtype: str
    chunk_rows: int
    first_only: bool = False
    sparse: bool = False
    keep_chunk: float = 0.0
    asked: NDArray[np.int64] = field(default_factory=lambda: np.zeros(0, np.int64))
    cuts: Array = field(default_factory=lambda: np.zeros((0, 2)))

    @property
    def directions(self) -> Array:
        """All hypotheses (d, k); only column 0 has unit length."""
        return np.asarray(self.base @ self.mix)

    def narrow(self, block: Block) -> MarginProbe:
        """The same question with what it says of this block's chunks only."""
        chunks = np.array(block.chunks)
        first = np.searchsorted(self.known, chunks * self.chunk_rows)
        stop = np.searchsorted(self.known, (chunks + 1) * self.chunk_rows)
        known = [self.known[a:b] for a, b in zip(first.tolist(), stop.tolist(), strict=True) if a < b]
        # Of the thousands of blocks of a stage each finds its chunks among all that are asked: both are increasing.
        place = np.searchsorted(self.asked, chunks)
        there = place < len(self.asked)
        here = place[there][self.asked[place[there]] == chunks[there]]
        return replace(
            self, known=np.concatenate([self.known[:0], *known]), asked=self.asked[here], cuts=self.cuts[here],
            keep=max(self.keep, int(self.keep_chunk * len(chunks))), keep_chunk=0.0,
        )  # fmt: skip

    def lowest(self) -> LowestRows:
        """What collects the rows that a block sends."""
        copies = len(self.asked) > 0
        return LowestRows(self.keep, len(self.base), np.dtype(self.dtype), sparse=self.sparse, copies=copies)

    def empty(self) -> MarginSummary:
        """The answer for no rows."""
        return MarginSummary.nothing(
            self.mix.shape[1], len(self.base), np.dtype(self.dtype), self.bins, sparse=self.sparse
        )

    def from_arrays(self, arrays: Mapping[str, NDArray[Any]]) -> MarginSummary:
        """A summary from a checkpoint."""
        return MarginSummary.from_arrays(arrays)

    def __call__(self, source: Source, block: Block) -> MarginSummary:
        """Answer for one block, chunk by chunk."""
        answer, directions = self.empty(), self.directions
        lowest = self.lowest()
        longest = source.scalars().max_norm
        for chunk in block.chunks:
            for part in parts_of(source, chunk):
                rows, codes = part.rows, left_out(part.codes, part.weights)
                data = ChunkRows(chunk, part.start, rows, codes, float(longest[chunk]))
                answer = answer.merge(self.ask(data, directions, lowest, products(rows, self.base, precision(rows))))
        return self.finished(answer, lowest)

    def in_memory(
        self, source: Source, chunks: NDArray[np.intp], ids: NDArray[np.int64], rows: Rows, signs: NDArray[np.int8]
    ) -> MarginSummary:
        """The answer for the rows (m, d) of some chunks, all that count, which the driver has; in order of ids (m,)."""
        block = Block(0, tuple(chunks.tolist()))
        probe = self.narrow(block)
        here = replace(probe, known=np.searchsorted(ids, probe.known))  # rows go by their places meanwhile
        answer, lowest, directions = here.empty(), here.lowest(), here.directions
        longest, codes = source.scalars().max_norm, np.where(signs > 0, *self.codes).astype(np.int32)
        for chunk in block.chunks:
            first, stop = np.searchsorted(ids, source.span(chunk))
            data = ChunkRows(chunk, int(first), rows[first:stop], codes[first:stop], float(longest[chunk]))
            given = products(data.rows, self.base, precision(data.rows))
            answer = answer.merge(here.ask(data, directions, lowest, given))
        found = here.finished(answer, lowest)
        sent = found.sent
        return replace(found, sent=SentRows.of(ids[sent.ids], sent.rows, sent.signs))

    def finished(self, answer: MarginSummary, lowest: LowestRows) -> MarginSummary:
        """The answer of a block with the rows that are worth having; the floor of a chunk is that of all its parts."""
        floor, sent, sides = lowest.finish(answer.floor_chunk, answer.floor)
        chunks, floor = of_chunks(answer.floor_chunk, floor)
        histogram = answer.histogram
        if len(self.asked):
            histogram = histogram - np.array([binned(side, self.low, self.high, self.bins) for side in sides])
        return replace(answer, floor_chunk=chunks, floor=floor, sent=sent, histogram=histogram)

    def ask(self, data: ChunkRows, directions: Array, lowest: LowestRows, given: NDArray[Any]) -> MarginSummary:
        """Answer for one chunk; given (1 or 2, n): ``products`` of its rows and ``base``, in their own precision."""
        members = [np.flatnonzero(data.codes == code) for code in self.codes]
        fast, error = self._multiply(data, members, given)
        first, stop = np.searchsorted(self.known, [data.start, data.start + len(data.codes)])
        known = self.known[first:stop] - data.start
        nothing = self.empty()
        smallest, ids, histogram = nothing.smallest, nothing.smallest_id, nothing.histogram
        below, floor = 0, np.full((1, 2), np.inf)
        for k, (mine, sign) in enumerate(zip(members, (1, -1), strict=True)):
            if not len(mine):
                continue
            values = sign * fast.take(mine, axis=1)
            smallest[k], ids[k] = self._prove(data, mine, sign, values, error, directions)
            with np.errstate(over="ignore"):  # rows near the end of float32: infinite is counted right as well
                margins = values[0] + sign * self.offset
            below += int(np.count_nonzero(_below(margins, self.level)))
            fresh: Any = np.isin(mine, known, invert=True) if len(known) else slice(None)
            counted = margins[fresh] if len(self.asked) else margins
            histogram[k] = binned(counted, self.low, self.high, self.bins)
            floor[0, k] = self._collect(data, lowest, k, mine[fresh], values[0, fresh], margins[fresh], float(error[0]))
        return replace(
            nothing, smallest=smallest, smallest_id=ids, histogram=histogram,
            below=np.array([below]), floor_chunk=np.array([data.chunk]), floor=floor,
        )  # fmt: skip

    def _multiply(
        self, data: ChunkRows, members: list[NDArray[np.intp]], given: NDArray[Any]
    ) -> tuple[NDArray[Any], Array]:
        """Fast values (k, n) of w.x, a bound (k,) on their error; float64 where the stored precision is too coarse."""
        values, error = self._mixed(given, data.longest)
        if given.dtype == np.float64 or _tells_apart(values[0], members, float(error[0])):
            return values, error
        return self._mixed(products(data.rows, self.base, np.dtype(np.float64)), data.longest)

    def _mixed(self, values: NDArray[Any], longest: float) -> tuple[NDArray[Any], Array]:
        dtype = values.dtype
        lengths = np.abs(self.mix).T @ np.linalg.norm(self.base, axis=0)
        # Products of tiny values underflow: each loses less than the smallest normal number.
        underflow = len(self.base) * float(np.finfo(dtype).tiny) * (1 + lengths)
        error = gamma(len(self.base) + 8, dtype.type) * longest * lengths + underflow
        return (values if self.mix.shape[1] == 1 else self.mix.T.astype(dtype) @ values), error

    def _prove(
        self, data: ChunkRows, mine: NDArray[np.intp], sign: int, values: NDArray[Any], error: Array, directions: Array
    ) -> tuple[Array, NDArray[np.int64]]:
        """Smallest y w.x (k,) of one class in float64, rounded down, and the rows that have it."""
        # The error bound covers the true value; what is proven lies up to as much below it once more.
        # What is not a number after an overflow is a candidate, too: hence "not above".
        with np.errstate(invalid="ignore"):
            cut = values.min(axis=1) + 3 * error
        close = np.unique(np.concatenate([np.flatnonzero(~(v > c)) for v, c in zip(values, cut, strict=True)]))
        best, where = np.full(len(error), np.inf), np.zeros(len(error), np.int64)
        for part in np.array_split(mine[close], 1 + len(close) // 4096):
            exact = safe_projections(take(data.rows, part), np.full(len(part), sign), directions)
            k = exact.argmin(axis=0)
            found = exact[k, np.arange(len(k))]
            where = np.where(found < best, part[k] + data.start, where)
            best = np.minimum(best, found)
        return best, where

    def _collect(
        self, data: ChunkRows, lowest: LowestRows, k: int, mine: NDArray[np.intp], values: NDArray[Any],
        margins: NDArray[Any], error: float,
    ) -> float:  # fmt: skip
        """Offer the rows worth having of those that are not known; the floor of those that are left."""
        if self.first_only:  # the value that orders rows is then their place; what is left has no floor to give
            with np.errstate(over="ignore"):
                below = _below(values + (1 - 2 * k) * self.offset, self.level - error)
            lowest.offer(data, k, mine[below], mine[below] + float(data.start), error)
            return -np.inf
        return lowest.offer(data, k, mine, values, error, self._cut(data.chunk, k), margins)

    def _cut(self, chunk: int, k: int) -> float:
        """The value of y w.x above which no row of a class in a chunk is worth sending."""
        place = int(np.searchsorted(self.asked, chunk))
        return float(self.cuts[place, k]) if place < len(self.asked) and self.asked[place] == chunk else np.inf


def binned(margins: NDArray[Any], low: float, high: float, bins: int) -> NDArray[np.int64]:
    """How many of the margins lie in each of so many bins; the outermost hold those beyond them, too."""
    place = (margins - np.float64(low)) * (bins / (high - low))  # beyond float32 for large rows
    inside = np.fmax(np.fmin(place, bins - 1), 0)  # what overflowed and is not a number lies at an end, too
    return np.bincount(inside.astype(np.intp), minlength=bins)


def _below(margins: NDArray[Any], level: float) -> NDArray[np.bool_]:
    """margins < level, without turning the margins into float64."""
    return np.asarray(margins < min(level, float(np.finfo(margins.dtype).max)))


def _tells_apart(values: NDArray[Any], members: list[NDArray[np.intp]], error: float) -> bool:
    """Everything is finite and few rows of each class are within the error of the smallest."""
    if not np.isfinite(values).all():
        return False
    for mine, sign in zip(members, (1, -1), strict=True):
        newest = sign * values[mine]
        if len(mine) and np.count_nonzero(newest <= newest.min() + 2 * error) > MANY_CANDIDATES:
            return False
    return True
