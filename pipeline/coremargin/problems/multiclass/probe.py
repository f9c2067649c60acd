"""What a worker does with a chunk in a scan about several classes, and the summary of a block.

All scores are in float64. For the hard margin, rows that may have the smallest margin are evaluated again, each score
rounded once; for the soft margin, far rows whose worst class depends on the last bits, so that a check of the dual
finds the same sides.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from coremargin.data.parts import kept_of, parts_of
from coremargin.maths import rows as row_ops
from coremargin.maths.multiclass import exact_scores, margins, score_error, score_errors, scores_of, spread, violations
from coremargin.problems.common.driver_rows import ClassRows, confusion_counts, labelled_rows
from coremargin.problems.common.state_arrays import state_from_arrays, state_to_arrays
from coremargin.problems.common.zone import smallest_positions

if TYPE_CHECKING:
    from coremargin.data.source import Source
    from coremargin.engine.protocols import Block

Array = NDArray[np.float64]

#: With more candidates for the smallest margin than this, the bound is the float64 value less its error.
MANY = 256
#: Then the error is taken by each row's norm when it is a larger share of the margin than this.
RELATIVE_ERROR = 1e-9
#: Offered rows are compacted when there are this many times more than can be kept.
COMPACT = 4

_LINEAR = "far_linear"
_COSTS = ("losses", "far_c", _LINEAR, "total_c")
_SUMS = (*_COSTS, "confusion", "below")


@dataclass(frozen=True)
class ClassesSummary:
    """The margins and losses of some blocks at k hypotheses on the segment from the best (0) to the newest (1).

    smallest (k,): the smallest margins, rounded down so that they are proven, newest first. losses (k,): sum c max_r
    t_r. Sums over far rows that lose at the newest: far_c (1,) sum c, far_linear (K, d + 1) sum c z, z being Kesler's
    vector of the row and its worst rival (0 x 0 for the hard margin). near: the rows that are sent. total_c (1,): sum
    c; confusion (K, K): rows of class i that are predicted as class j; below (1,): rows with a margin below the probe's
    level.
    """

    smallest: Array
    losses: Array
    far_c: Array
    far_linear: Array
    near: ClassRows
    total_c: Array
    confusion: NDArray[np.int64]
    below: NDArray[np.int64]

    @classmethod
    def empty(cls, points: int, classes: int, near: ClassRows, shape: tuple[int, int]) -> ClassesSummary:
        """The summary of no rows, the identity of ``merge``."""
        return cls(
            smallest=np.full(points, np.inf),
            losses=np.zeros(points),
            far_c=np.zeros(1),
            far_linear=np.zeros(shape),
            near=near,
            total_c=np.zeros(1),
            confusion=np.zeros((classes, classes), np.int64),
            below=np.zeros(1, np.int64),
        )

    def merge(self, later: ClassesSummary) -> ClassesSummary:
        """Merge with the summary of later blocks."""
        return ClassesSummary(
            smallest=np.minimum(self.smallest, later.smallest),
            near=ClassRows.concatenate([self.near, later.near]),
            **{name: getattr(self, name) + getattr(later, name) for name in _SUMS},
        )

    def subtract(self, removed: ClassesSummary) -> ClassesSummary:
        """Take out the rows of ``removed``, whose near rows include all of theirs; the smallest margins stay bounds."""
        near = self.near.take(np.flatnonzero(np.isin(self.near.ids, removed.near.ids, invert=True)))
        # A sum that should be zero now may have a rounding error left.
        sums = {name: np.maximum(0, getattr(self, name) - getattr(removed, name)) for name in _SUMS if name != _LINEAR}
        return replace(self, near=near, far_linear=self.far_linear - removed.far_linear, **sums)

    def scale(self, factor: float) -> ClassesSummary:
        """The summary with C multiplied by a factor."""
        return replace(self, **{name: factor * getattr(self, name) for name in _COSTS})

    def to_arrays(self) -> dict[str, NDArray[Any]]:
        """Plain arrays for checkpoints."""
        return state_to_arrays(self)

    @classmethod
    def from_arrays(cls, arrays: Mapping[str, NDArray[Any]]) -> ClassesSummary:
        """Inverse of ``to_arrays``."""
        return cls(**state_from_arrays(cls, arrays, {"near": ClassRows.from_arrays}))


@dataclass(frozen=True)
class ClassesProbe:
    """The probe of a scan about several classes.

    newest (K, d + 1), best the same or None, points (k,): the points on the segment from the best (0) to the newest (1)
    to bound, 1 first. place: label code -> class; constant: the last entry of every row. class_c (K,): c of the rows of
    each class, None for the hard margin. keep: rows to send, per chunk with a loss, else per block. known: sorted ids
    of rows in the driver; level: margins below it are counted.
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
    first_only: bool = False
    removed: NDArray[np.int64] = field(default_factory=lambda: np.zeros(0, np.int64))

    def narrow(self, block: Block) -> ClassesProbe:
        """The probe with the ids of one block only."""
        first, stop = np.array([block.chunks[0], block.chunks[-1] + 1]) * self.chunk_rows
        known, removed = (
            ids[np.searchsorted(ids, first) : np.searchsorted(ids, stop)] for ids in (self.known, self.removed)
        )
        return replace(self, known=known, removed=removed)

    def empty(self) -> ClassesSummary:
        """The summary of no rows."""
        classes, p = self.newest.shape
        near = ClassRows.nothing(p - 1, np.dtype(self.dtype), sparse=self.sparse)
        linear = (0, 0) if self.class_c is None else (classes, p)
        return ClassesSummary.empty(len(self.points), classes, near, linear)

    def from_arrays(self, arrays: Mapping[str, NDArray[Any]]) -> ClassesSummary:
        """A summary from a checkpoint."""
        return ClassesSummary.from_arrays(arrays)

    def __call__(self, source: Source, block: Block) -> ClassesSummary:
        """The summary of one block."""
        every = ((chunk, part) for chunk in block.chunks for part in parts_of(source, chunk))
        return self._summarise(source, ((chunk, labelled_rows(part, self.place), part.share) for chunk, part in every))

    def in_memory(self, source: Source, chunks: Sequence[int], every: ClassRows) -> ClassesSummary:
        """The summary of rows in the driver (ordered by id) that belong to some chunks."""

        def rows_of(chunk: int) -> ClassRows:
            first, stop = np.searchsorted(every.ids, source.span(chunk))
            return every.take(np.arange(first, stop))

        return self._summarise(source, ((chunk, rows_of(chunk), 1.0) for chunk in chunks))

    def _summarise(self, source: Source, parts: Iterable[tuple[int, ClassRows, float]]) -> ClassesSummary:
        """Summarise parts of chunks, in order, each with its share of its chunk."""
        summary, longest = self.empty(), source.scalars().max_norm
        lowest = _LowestRows(self.keep, summary.near)
        for chunk, every, share in parts:
            data = every.take(every.unlike(self.removed)) if len(self.removed) else every
            if len(data):
                summary = summary.merge(self._summarise_part(data, float(longest[chunk]), lowest, share))
        return summary if self.class_c is not None else replace(summary, near=lowest.finish())

    def _summarise_part(self, data: ClassRows, longest: float, lowest: _LowestRows, share: float) -> ClassesSummary:
        scores = scores_of(data.rows, self.newest, self.constant)
        before = None if self.best is None else scores_of(data.rows, self.best, self.constant)
        along = [scores if t == 1 or before is None else t * scores + (1 - t) * before for t in self.points]
        predicted = scores.argmax(axis=1)
        summary = replace(self.empty(), confusion=confusion_counts(data.classes, predicted, scores.shape[1]))
        if self.class_c is None:
            return self._hard(data, along, longest, lowest, summary)
        return self._soft(data, along, longest, summary, self.class_c, kept_of(self.keep, share))

    def _hard(
        self, data: ClassRows, along: list[Array], longest: float, lowest: _LowestRows, summary: ClassesSummary
    ) -> ClassesSummary:
        """Smallest margins, and the rows with the lowest margins."""
        smallest, margin = np.empty(len(along)), margins(along[0], data.classes)[0]
        for k, t in enumerate(self.points):
            at = self.newest if t == 1 or self.best is None else t * self.newest + (1 - t) * self.best
            mine = margin if k == 0 else margins(along[k], data.classes)[0]
            smallest[k] = self._smallest_margin(data, mine, at, longest)
        new = np.flatnonzero(np.isin(data.ids, self.known, invert=True))
        if self.first_only:
            new = new[margin[new] < self.level][:1]
        lowest.offer(data.ids[new] if self.first_only else margin[new], data, new)
        return replace(summary, smallest=smallest, below=np.array([np.count_nonzero(margin < self.level)]))

    def _smallest_margin(self, data: ClassRows, margin: Array, at: Array, longest: float) -> float:
        """The smallest margin at a hypothesis, rounded down."""
        error = self._errors(np.array([longest]), at)
        close = np.flatnonzero(~(margin > float(margin.min()) + 2 * error))
        if len(close) > MANY and error > RELATIVE_ERROR * abs(float(margin.min())):  # shorter rows have smaller errors
            error = self._errors(row_ops.lengths(data.rows), at)
            close = np.flatnonzero(~(margin - error > float((margin + error).min())))
        if len(close) > MANY:
            return float((margin - error).min())
        exact = exact_scores(row_ops.take(data.rows, close), at, self.constant)
        found = margins(exact, data.classes[close])[0] - 4 * np.finfo(np.float64).eps * np.abs(exact).max(axis=1)
        return float(found.min())

    def _errors(self, lengths: Array, at: Array) -> Array:
        """Bounds on the errors of margins, by norm; on the segment, scores are sums of those at its ends."""
        error = score_errors(at.shape[1] - 1, lengths, at, self.constant)
        if self.best is None:
            return error
        return error + 2 * score_errors(at.shape[1] - 1, lengths, self.best, self.constant)

    def _soft(
        self,
        data: ClassRows,
        along: list[Array],
        longest: float,
        summary: ClassesSummary,
        class_c: Array,
        keep: int,
    ) -> ClassesSummary:
        """Losses, sums over far rows, and the near rows: those closest to a change of sides."""
        row_c = class_c[data.classes] * data.shares
        t = violations(along[0], data.classes)
        near = smallest_positions(lead_of_worst(t), keep)
        far = np.ones(len(t), bool)
        far[near] = False
        self._settle_far_rows(data, t, far, longest)
        worst = t.argmax(axis=1)
        losing = np.flatnonzero(far & (worst != data.classes))
        weights = np.zeros((len(losing), t.shape[1]))
        weights[np.arange(len(losing)), worst[losing]] = row_c[losing]
        signed = spread(weights, data.classes[losing])
        linear = row_ops.weighted_sums(row_ops.take(data.rows, losing), signed)
        losses = [row_c @ violations(scores, data.classes).max(axis=1) for scores in along]
        return replace(
            summary,
            losses=np.array(losses),
            far_c=np.array([row_c[losing].sum()]),
            near=data.take(near),
            far_linear=np.column_stack([linear, self.constant * signed.sum(axis=0)]),
            total_c=np.array([row_c.sum()]),
            below=np.array([np.count_nonzero(t.max(axis=1) > 0)]),
        )

    def _settle_far_rows(self, data: ClassRows, t: Array, far: NDArray[np.bool_], longest: float) -> None:
        """Evaluate far rows again, in place, where rounding could change the worst class."""
        error = score_error(self.newest.shape[1] - 1, longest, self.newest, self.constant)
        unclear = np.flatnonzero(far & (lead_of_worst(t) <= 2 * error))
        if len(unclear):
            exact = exact_scores(row_ops.take(data.rows, unclear), self.newest, self.constant)
            t[unclear] = violations(exact, data.classes[unclear])


class _LowestRows:
    """The ``keep`` rows with the lowest margins over the chunks of a block, each margin once."""

    def __init__(self, keep: int, empty: ClassRows) -> None:
        self.keep = keep
        self._offers = [(np.zeros(0), empty)]

    def offer(self, values: NDArray[Any], data: ClassRows, places: NDArray[np.intp]) -> None:
        """Offer the rows at these places, with these margins."""
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
        """The rows, ordered by id."""
        self._compact()
        return self._offers[0][1].in_order()


def lead_of_worst(t: Array) -> Array:
    """How far the largest entry of each row lies above the next: the distance to a change of sides."""
    two = np.partition(t, -2, axis=1)[:, -2:]
    return np.asarray(two[:, 1] - two[:, 0])
