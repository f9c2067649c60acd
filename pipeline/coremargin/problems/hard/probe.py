"""The worker's part of a scan for a hard margin: plain functions on the arrays of a chunk; no Dask, no files.

The rows are multiplied in their own precision. Everything that enters a bound is evaluated again in float64: every
row whose fast value is within the rounding bound of the smallest one is a candidate, and the candidates decide.
Where float32 cannot distinguish the rows (huge features, tiny margins) the chunk is multiplied in float64 instead.

Apart from the rows that it sends, the summary of a block has a few kilobytes.
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
from coremargin.problems.common.classes import mask_zero_weights
from coremargin.problems.common.driver_rows import ids_in_chunks
from coremargin.problems.common.sent import ChunkRows, LowestRows, SentRows, least_of_chunks
from coremargin.problems.common.state_arrays import state_from_arrays, state_to_arrays

if TYPE_CHECKING:
    from coremargin.data.source import Source

NO_ROW = np.iinfo(np.int64).max

#: More candidates than this for an exact evaluation: float64 for the whole chunk is cheaper.
MANY_CANDIDATES = 512


@dataclass(frozen=True)
class MarginSummary:
    """The margins of the rows of some blocks at k hypotheses; index 0 is the positive class, 1 the negative.

    smallest (2, k) float64: smallest y w.x, rounded down so that it is a proof; smallest_id (2, k) int64: its row.
    chunks (c,) int64 and chunk_lower (c, 2) float64: for each chunk read, a lower bound on y w.x of hypothesis 0 over
    its rows that are neither known to the driver nor ``sent``.
    sent: the rows sent to the driver, in row order within a block.
    histogram (2, bins) int64: of the margins of hypothesis 0.
    below (1,) int64: rows whose margin at hypothesis 0 is below the upper bound, in the scan's precision.
    """

    smallest: Array
    smallest_id: NDArray[np.int64]
    chunks: NDArray[np.int64]
    chunk_lower: Array
    sent: SentRows
    histogram: NDArray[np.int64]
    below: NDArray[np.int64]

    @classmethod
    def nothing(
        cls, hypotheses: int, features: int, dtype: np.dtype[Any], bins: int, *, sparse: bool = False
    ) -> MarginSummary:
        """The summary of no rows: the identity of ``merge``."""
        return cls(
            smallest=np.full((2, hypotheses), np.inf),
            smallest_id=np.full((2, hypotheses), NO_ROW),
            chunks=np.zeros(0, np.int64),
            chunk_lower=np.zeros((0, 2)),
            sent=SentRows.nothing(features, dtype, sparse=sparse),
            histogram=np.zeros((2, bins), np.int64),
            below=np.zeros(1, np.int64),
        )

    def merge(self, later: MarginSummary) -> MarginSummary:
        """This summary and that of later blocks. Ties between smallest values go to the smaller row id."""
        mine = (self.smallest < later.smallest) | (
            (self.smallest == later.smallest) & (self.smallest_id <= later.smallest_id)
        )
        return MarginSummary(
            smallest=np.where(mine, self.smallest, later.smallest),
            smallest_id=np.where(mine, self.smallest_id, later.smallest_id),
            chunks=np.concatenate([self.chunks, later.chunks]),
            chunk_lower=np.concatenate([self.chunk_lower, later.chunk_lower]),
            sent=self.sent.merge(later.sent),
            histogram=self.histogram + later.histogram,
            below=self.below + later.below,
        )

    @property
    def row_id(self) -> NDArray[np.int64]:
        """Ids of the rows that are sent."""
        return self.sent.ids

    def with_rows(self, rows: Rows) -> MarginSummary:
        """The summary with these rows (m, d) in place of the sent ones."""
        return replace(self, sent=SentRows.one_part(self.sent.ids, rows, self.sent.signs))

    def to_arrays(self) -> dict[str, NDArray[Any]]:
        """Plain arrays for checkpoints."""
        return state_to_arrays(self)

    @classmethod
    def from_arrays(cls, arrays: Mapping[str, NDArray[Any]]) -> MarginSummary:
        """Inverse of ``to_arrays``."""
        return cls(**state_from_arrays(cls, arrays, {"sent": SentRows.from_arrays}))


@dataclass(frozen=True)
class MarginProbe:
    """The probe of a hard-margin scan.

    base (d, 1 or 2) float64: the hypothesis to prove (column 0, ||w|| = 1), and the best one so far.
    mix (1 or 2, k): the hypotheses evaluated are the columns of ``base @ mix``; column 0 is the one to prove.
    offset: b of hypothesis 0. codes: label codes of the positive and the negative class.
    level: rows with margins below it count as violations.
    keep: rows of each class that a block sends at most; keep_per_chunk: the same per chunk of the block, if it is more.
    cut_chunks (m,) int64, increasing, and cuts (m, 2): chunks of which no row with a value of y w.x above that of its
    class is sent; of other chunks the lowest rows are.
    known_ids (m,) int64, sorted: rows that the driver has; they are not sent, and do not enter the bounds of chunks.
    low, high, bins: the range of the histogram of margins. With ``cut_chunks`` it leaves out rows that are known or
    sent: the driver counts them at a later hypothesis.
    first_only: send only the first violation in row order. sparse: rows are csr arrays.
    """

    base: Array
    mix: Array
    offset: float
    codes: tuple[int, int]
    level: float
    keep: int
    known_ids: NDArray[np.int64]
    low: float
    high: float
    bins: int
    dtype: str
    chunk_rows: int
    first_only: bool = False
    sparse: bool = False
    keep_per_chunk: float = 0.0
    cut_chunks: NDArray[np.int64] = field(default_factory=lambda: np.zeros(0, np.int64))
    cuts: Array = field(default_factory=lambda: np.zeros((0, 2)))

    @property
    def directions(self) -> Array:
        """All hypotheses (d, k); only column 0 has unit length."""
        return np.asarray(self.base @ self.mix)

    def narrow(self, block: Block) -> MarginProbe:
        """The same probe with only what this block needs."""
        chunks = np.array(block.chunks)
        # A stage may have thousands of blocks: each finds its chunks by bisection, since both are increasing.
        place = np.searchsorted(self.cut_chunks, chunks)
        there = place < len(self.cut_chunks)
        here = place[there][self.cut_chunks[place[there]] == chunks[there]]
        return replace(
            self,
            known_ids=ids_in_chunks(self.known_ids, block.chunks, self.chunk_rows),
            cut_chunks=self.cut_chunks[here],
            cuts=self.cuts[here],
            keep=max(self.keep, int(self.keep_per_chunk * len(chunks))),
            keep_per_chunk=0.0,
        )

    def empty(self) -> MarginSummary:
        """The summary of no rows."""
        return MarginSummary.nothing(
            self.mix.shape[1], len(self.base), np.dtype(self.dtype), self.bins, sparse=self.sparse
        )

    def from_arrays(self, arrays: Mapping[str, NDArray[Any]]) -> MarginSummary:
        """A summary from a checkpoint."""
        return MarginSummary.from_arrays(arrays)

    def lowest_rows(self) -> LowestRows:
        """A collector for the rows that a block sends."""
        copies = len(self.cut_chunks) > 0
        return LowestRows(self.keep, len(self.base), np.dtype(self.dtype), sparse=self.sparse, copies=copies)

    def __call__(self, source: Source, block: Block) -> MarginSummary:
        """The summary of one block, chunk by chunk."""
        summary, directions, lowest = self.empty(), self.directions, self.lowest_rows()
        longest = source.scalars().max_norm
        for chunk in block.chunks:
            for part in parts_of(source, chunk):
                rows, codes = part.rows, mask_zero_weights(part.codes, part.weights)
                data = ChunkRows(chunk, part.start, rows, codes, float(longest[chunk]))
                values = products(rows, self.base, precision(rows))
                summary = summary.merge(self.evaluate(data, directions, lowest, values))
        return self.finish(summary, lowest)

    def evaluate_in_memory(
        self, source: Source, chunks: NDArray[np.intp], ids: NDArray[np.int64], rows: Rows, signs: NDArray[np.int8]
    ) -> MarginSummary:
        """The summary of some chunks, all of whose rows (m, d) that count the driver has; ids (m,) increasing."""
        block = Block(0, tuple(chunks.tolist()))
        probe = self.narrow(block)
        here = replace(probe, known_ids=np.searchsorted(ids, probe.known_ids))  # positions replace ids
        summary, lowest, directions = here.empty(), here.lowest_rows(), here.directions
        longest, codes = source.scalars().max_norm, np.where(signs > 0, *self.codes).astype(np.int32)
        for chunk in block.chunks:
            first, stop = np.searchsorted(ids, source.span(chunk))
            data = ChunkRows(chunk, int(first), rows[first:stop], codes[first:stop], float(longest[chunk]))
            values = products(data.rows, self.base, precision(data.rows))
            summary = summary.merge(here.evaluate(data, directions, lowest, values))
        summary = here.finish(summary, lowest)
        sent = summary.sent
        return replace(summary, sent=SentRows.one_part(ids[sent.ids], sent.rows, sent.signs))

    def evaluate(self, data: ChunkRows, directions: Array, lowest: LowestRows, values: NDArray[Any]) -> MarginSummary:
        """The summary of one chunk, or a part of it, without the rows to send, which ``lowest`` collects.

        values (1 or 2, n): ``products`` of the rows and ``base``, in the precision of the rows.
        """
        members = [np.flatnonzero(data.codes == code) for code in self.codes]
        fast, error = self._mixed(values, data.longest)
        if values.dtype != np.float64 and not _tells_apart(fast[0], members, float(error[0])):
            fast, error = self._mixed(products(data.rows, self.base, np.dtype(np.float64)), data.longest)
        first, stop = np.searchsorted(self.known_ids, [data.start, data.start + len(data.codes)])
        known = self.known_ids[first:stop] - data.start
        nothing = self.empty()
        smallest, ids, histogram = nothing.smallest, nothing.smallest_id, nothing.histogram
        below, lower = 0, np.full((1, 2), np.inf)
        for k, (mine, sign) in enumerate(zip(members, (1, -1), strict=True)):
            if not len(mine):
                continue
            signed = sign * fast.take(mine, axis=1)
            smallest[k], ids[k] = self._prove(data, mine, sign, signed, error, directions)
            with np.errstate(over="ignore"):  # rows near the limit of float32: infinity is counted correctly, too
                margins = signed[0] + sign * self.offset
            below += int(np.count_nonzero(_below(margins, self.level)))
            fresh: Any = np.isin(mine, known, invert=True) if len(known) else slice(None)
            counted = margins[fresh] if len(self.cut_chunks) else margins
            histogram[k] = binned(counted, self.low, self.high, self.bins)
            lower[0, k] = self._select(data, lowest, k, mine[fresh], signed[0, fresh], margins[fresh], float(error[0]))
        return replace(
            nothing,
            smallest=smallest,
            smallest_id=ids,
            histogram=histogram,
            below=np.array([below]),
            chunks=np.array([data.chunk]),
            chunk_lower=lower,
        )

    def finish(self, summary: MarginSummary, lowest: LowestRows) -> MarginSummary:
        """The summary of a block with the rows to send; the bound of a chunk is the least of its parts."""
        lower, sent, sides = lowest.finish(summary.chunks, summary.chunk_lower)
        chunks, lower = least_of_chunks(summary.chunks, lower)
        histogram = summary.histogram
        if len(self.cut_chunks):
            histogram = histogram - np.array([binned(side, self.low, self.high, self.bins) for side in sides])
        return replace(summary, chunks=chunks, chunk_lower=lower, sent=sent, histogram=histogram)

    def _mixed(self, values: NDArray[Any], longest: float) -> tuple[NDArray[Any], Array]:
        """Values (k, n) of w.x for all hypotheses, and a bound (k,) on their error."""
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
        # The true value is within the error, and the proven value up to as much below it again. # NaN after an overflow
        # is a candidate, too: hence "not above".
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

    def _select(
        self,
        data: ChunkRows,
        lowest: LowestRows,
        k: int,
        mine: NDArray[np.intp],
        values: NDArray[Any],
        margins: NDArray[Any],
        error: float,
    ) -> float:
        """Offer the rows of class k that may be sent; returns a lower bound of those that will not."""
        if self.first_only:  # rows are ordered by their place, which gives no bound for the others
            with np.errstate(over="ignore"):
                below = _below(values + (1 - 2 * k) * self.offset, self.level - error)
            lowest.offer(data, k, mine[below], mine[below] + float(data.start), error)
            return -np.inf
        place = int(np.searchsorted(self.cut_chunks, data.chunk))
        has_cut = place < len(self.cut_chunks) and self.cut_chunks[place] == data.chunk
        return lowest.offer(data, k, mine, values, error, float(self.cuts[place, k]) if has_cut else np.inf, margins)


def binned(margins: NDArray[Any], low: float, high: float, bins: int) -> NDArray[np.int64]:
    """Histogram of margins from low to high; the outermost bins hold those beyond them too."""
    place = (margins - np.float64(low)) * (bins / (high - low))  # float64: large rows would overflow float32
    inside = np.fmax(np.fmin(place, bins - 1), 0)  # NaN after an overflow goes to an outermost bin
    return np.bincount(inside.astype(np.intp), minlength=bins)


def _below(margins: NDArray[Any], level: float) -> NDArray[np.bool_]:
    """margins < level, without turning the margins into float64."""
    return np.asarray(margins < min(level, float(np.finfo(margins.dtype).max)))


def _tells_apart(values: NDArray[Any], members: list[NDArray[np.intp]], error: float) -> bool:
    """Whether all values are finite and few rows of each class are within the error of the smallest."""
    if not np.isfinite(values).all():
        return False
    for mine, sign in zip(members, (1, -1), strict=True):
        newest = sign * values[mine]
        if len(mine) and np.count_nonzero(newest <= newest.min() + 2 * error) > MANY_CANDIDATES:
            return False
    return True
