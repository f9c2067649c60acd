"""What a worker does with a chunk in a scan about several classes. Plain functions on arrays; no Dask, no files.

All scores are in float64. For the hard margin the rows that may have the smallest margin are evaluated once more, each
score rounded once; for the soft margin those of the far rows whose worst class hangs on the last bits, so that whoever
checks the dual finds the same sides.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from coremargin.data.parts import kept_of, parts_of
from coremargin.maths import rows as row_ops
from coremargin.maths.multiclass import exact_scores, margins, score_error, score_errors, scores_of, spread, violations
from coremargin.problems.common.driver_rows import ClassRows, confusion_counts, labelled_rows
from coremargin.problems.common.zone import smallest_positions
from coremargin.problems.multiclass.summary import ClassesSummary

if TYPE_CHECKING:
    from coremargin.data.source import Source
    from coremargin.engine.protocols import Block

Array = NDArray[np.float64]

#: More candidates for the smallest margin than this: the bound is what float64 says, less its error.
MANY = 256
#: Then rows are looked at by their own lengths, where the error is a larger share of the margin than this.
DOUBT = 1e-9
#: Offers are sorted out when there are so many times more than can be kept.
COMPACT = 4


@dataclass(frozen=True)
class ClassesProbe:
    """The question of a scan about several classes.

    newest (K, d + 1), best the same or None, points (k,): where on the segment from the best (0) to the newest (1)
    bounds are wanted, 1 first. place: label code -> class; constant: the last entry of every row. class_c (K,): c of
    the rows of each class, None for the hard margin. keep: rows to send, with a loss per chunk, else per block. known:
    ids of rows in the pool, sorted; level: margins below it count.
    """

    newest: Array
    best: Array | None
    points: Array
    place: NDArray[np.int32]
    constant: float
    class_c: Array | None
    keep: int
    known: NDArray[np.int64]
    level: float
    dtype: str
    sparse: bool
    chunk_rows: int

    def narrow(self, block: Block) -> ClassesProbe:
        """The same question with the pool's ids in this block only."""
        first, stop = np.array([block.chunks[0], block.chunks[-1] + 1]) * self.chunk_rows
        return replace(self, known=self.known[np.searchsorted(self.known, first) : np.searchsorted(self.known, stop)])

    def empty(self) -> ClassesSummary:
        """The answer for no rows."""
        classes, p = self.newest.shape
        near = ClassRows.nothing(p - 1, np.dtype(self.dtype), sparse=self.sparse)
        linear = (0, 0) if self.class_c is None else (classes, p)
        return ClassesSummary.nothing(len(self.points), classes, near, linear)

    def from_arrays(self, arrays: Mapping[str, NDArray[Any]]) -> ClassesSummary:
        """A summary from a checkpoint."""
        return ClassesSummary.from_arrays(arrays)

    def __call__(self, source: Source, block: Block) -> ClassesSummary:
        """Answer for one block, chunk by chunk."""
        every = ((chunk, part) for chunk in block.chunks for part in parts_of(source, chunk))
        return self._answer(source, ((chunk, labelled_rows(part, self.place), part.share) for chunk, part in every))

    def in_memory(self, source: Source, chunks: Sequence[int], every: ClassRows) -> ClassesSummary:
        """The answer for rows of some chunks which the driver has, by their ids."""
        return self._answer(source, ((chunk, self._within(source, chunk, every), 1.0) for chunk in chunks))

    def _within(self, source: Source, chunk: int, every: ClassRows) -> ClassRows:
        first, stop = np.searchsorted(every.ids, source.span(chunk))
        return every.take(np.arange(first, stop))

    def _answer(self, source: Source, parts: Iterable[tuple[int, ClassRows, float]]) -> ClassesSummary:
        """Answer for rows that count of parts of some chunks, one after the other, each with its share of its chunk."""
        answer, longest = self.empty(), source.scalars().max_norm
        lowest = _Lowest(self.keep, answer.near)
        for chunk, data, share in parts:
            if len(data):
                answer = answer.merge(self._ask(data, float(longest[chunk]), lowest, share))
        return answer if self.class_c is not None else replace(answer, near=lowest.finish())

    def _ask(self, data: ClassRows, longest: float, lowest: _Lowest, share: float) -> ClassesSummary:
        scores = scores_of(data.rows, self.newest, self.constant)
        before = None if self.best is None else scores_of(data.rows, self.best, self.constant)
        along = [scores if t == 1 or before is None else t * scores + (1 - t) * before for t in self.points]
        given = scores.argmax(axis=1)
        answer = replace(self.empty(), confusion=confusion_counts(data.classes, given, scores.shape[1]))
        if self.class_c is None:
            return self._hard(data, along, longest, lowest, answer)
        return self._soft(data, along, longest, answer, kept_of(self.keep, share))

    def _hard(
        self, data: ClassRows, along: list[Array], longest: float, lowest: _Lowest, answer: ClassesSummary
    ) -> ClassesSummary:
        smallest, margin = np.empty(len(along)), margins(along[0], data.classes)[0]
        for k, t in enumerate(self.points):
            at = self.newest if t == 1 or self.best is None else t * self.newest + (1 - t) * self.best
            mine = margin if k == 0 else margins(along[k], data.classes)[0]
            smallest[k] = self._proven(data, mine, at, longest)
        fresh = np.flatnonzero(np.isin(data.ids, self.known, invert=True))
        lowest.offer(margin[fresh], data, fresh)
        return replace(
            answer, smallest=smallest, below=np.array([np.count_nonzero(margin < self.level)]),
        )  # fmt: skip

    def _proven(self, data: ClassRows, margin: Array, at: Array, longest: float) -> float:
        """The smallest margin at a hypothesis, rounded down."""
        error = self._errors(np.array([longest]), at)
        close = np.flatnonzero(~(margin > float(margin.min()) + 2 * error))
        if len(close) > MANY and error > DOUBT * abs(float(margin.min())):  # rows that are shorter may be clearer
            error = self._errors(row_ops.lengths(data.rows), at)
            close = np.flatnonzero(~(margin - error > float((margin + error).min())))
        if len(close) > MANY:
            return float((margin - error).min())
        exact = exact_scores(row_ops.take(data.rows, close), at, self.constant)
        found = margins(exact, data.classes[close])[0] - 4 * np.finfo(np.float64).eps * np.abs(exact).max(axis=1)
        return float(found.min())

    def _errors(self, lengths: Array, at: Array) -> Array:
        """Bounds on what margins lose of rows of these lengths: on the segment scores are sums of those at its ends."""
        error = score_errors(at.shape[1] - 1, lengths, at, self.constant)
        return (
            error if self.best is None else error + 2 * score_errors(at.shape[1] - 1, lengths, self.best, self.constant)
        )

    def _soft(
        self, data: ClassRows, along: list[Array], longest: float, answer: ClassesSummary, keep: int
    ) -> ClassesSummary:
        row_c = self.class_c[data.classes] * data.shares  # type: ignore[index]  # _ask: there is a C
        t = violations(along[0], data.classes)
        near = smallest_positions(doubt(t), keep)
        far = np.ones(len(t), bool)
        far[near] = False
        self._settle(data, t, far, longest)
        worst = t.argmax(axis=1)
        losing = np.flatnonzero(far & (worst != data.classes))
        weights = np.zeros((len(losing), t.shape[1]))
        weights[np.arange(len(losing)), worst[losing]] = row_c[losing]
        signed = spread(weights, data.classes[losing])
        linear = row_ops.weighted_sums(row_ops.take(data.rows, losing), signed)
        losses = [row_c @ violations(scores, data.classes).max(axis=1) for scores in along]
        return replace(
            answer, losses=np.array(losses), far_c=np.array([row_c[losing].sum()]), near=data.take(near),
            far_linear=np.column_stack([linear, self.constant * signed.sum(axis=0)]), total_c=np.array([row_c.sum()]),
            below=np.array([np.count_nonzero(t.max(axis=1) > 0)]),
        )  # fmt: skip

    def _settle(self, data: ClassRows, t: Array, far: NDArray[np.bool_], longest: float) -> None:
        """Evaluate far rows again where the last bits decide which class is the worst."""
        error = score_error(self.newest.shape[1] - 1, longest, self.newest, self.constant)
        open_ones = np.flatnonzero(far & (doubt(t) <= 2 * error))
        if len(open_ones):
            exact = exact_scores(row_ops.take(data.rows, open_ones), self.newest, self.constant)
            t[open_ones] = violations(exact, data.classes[open_ones])


class _Lowest:
    """The ``keep`` rows with the lowest margins over the chunks of a block, each margin once."""

    def __init__(self, keep: int, nothing: ClassRows) -> None:
        self.keep = keep
        self._offers = [(np.zeros(0), nothing)]

    def offer(self, values: Array, data: ClassRows, places: NDArray[np.intp]) -> None:
        """Take what is low enough of the rows at these places, which have these values."""
        _, first = np.unique(values, return_index=True)
        first = first[: self.keep]
        self._offers.append((values[first], data.take(places[first])))
        if sum(len(values) for values, _ in self._offers) > COMPACT * self.keep:
            self._compact()

    def _compact(self) -> None:
        values = np.concatenate([values for values, _ in self._offers])
        rows = ClassRows.concatenate([rows for _, rows in self._offers])
        _, first = np.unique(values, return_index=True)
        first = first[: self.keep]
        self._offers = [(values[first], rows.take(first))]

    def finish(self) -> ClassRows:
        """The rows, in order of their ids."""
        self._compact()
        return self._offers[0][1].in_order()


def doubt(t: Array) -> Array:
    """How much the largest entry of each row is above the next: what it takes to change sides."""
    two = np.partition(t, -2, axis=1)[:, -2:]
    return np.asarray(two[:, 1] - two[:, 0])
