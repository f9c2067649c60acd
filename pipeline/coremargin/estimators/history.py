"""Rows that ``partial_fit`` has seen: those in memory, and bounds on those dropped.

When memory is full, the rows with the largest margins are *dropped* together. Of such a group, trained at hypotheses
(w0, b0), there remain lower bounds of y w0.x for a few levels (the highest has half of the rows, each further one half
of the rest) and a ball that contains all of them. At another hypothesis the lower bounds decrease by what the ball
allows (maths/screening.py), so that the loss of dropped rows is bounded, never estimated:

    hard margin   no dropped row has a margin below the smallest lower bound + y b
    soft margin   rows of a level lose at most the loss at its lower bound times the sum of their C

Rows with a loss are never dropped, so dropping rows does not increase the objective: the dual bound holds for all rows.
The upper bound of a hard margin needs its coreset, which is not dropped either.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from functools import cached_property
from itertools import pairwise
from typing import TYPE_CHECKING, Any

import numpy as np

from coremargin.data.arrays import ArraySource
from coremargin.data.digest import Digested, store_digest
from coremargin.data.statistics import longest, measure
from coremargin.data.weights import weights_in
from coremargin.errors import UsageError
from coremargin.estimators.support import positives
from coremargin.maths.margin import NEGATIVE, POSITIVE, safe_projections
from coremargin.maths.rows import Rows, concatenate, is_sparse, take
from coremargin.maths.screening import Balls, screened_floor
from coremargin.models.decision import label_array
from coremargin.problems.common.classes import check_class_c, check_longest

if TYPE_CHECKING:
    from collections.abc import Sequence

    from numpy.typing import NDArray

    from coremargin.data.source import Source
    from coremargin.formats.columns import ColumnsRecord
    from coremargin.problems.soft.losses.loss import Loss

#: Rows that stay in memory in any case.
FEWEST = 16
#: Share of the memory that is freed when rows are dropped, so that several batches can follow without a training.
FREED_SHARE = 0.25
#: Groups of dropped rows before they are merged, with a larger ball.
MOST_GROUPS = 256
#: Levels of the margins in a group of dropped rows: the lowest has one row in 2^15.
LEVELS = 16
#: Batches of similar size that are concatenated to one part.
MERGED_PARTS = 256
_UP = 1.0 + 1e-12


def rows_that_fit(source: Source, memory_bytes: int) -> int:
    """Rows of a source that fit in memory, in float64."""
    values = int(source.scalars().nonzeros.sum())
    return max_rows(source.rows, values, memory_bytes, sparse=source.sparse)


def max_rows(rows: int, values: int, memory_bytes: int, *, sparse: bool) -> int:
    """As ``rows_that_fit`` for rows with so many values in total; at least ``FEWEST``."""
    entry = 12 if sparse else 8  # with its column index
    return max(FEWEST, int(memory_bytes * rows // max(1, entry * values)))


@dataclass(frozen=True)
class DroppedRows:
    """Summary of rows that were dropped together, in k problems.

    directions (k, d): trained hyperplanes. lower (k, 2, LEVELS): lower bounds of y w.x by level, of positive and
    negative rows. level_c (k, 2, LEVELS): sums of C. centre (d,), radius: a ball around all rows.
    """

    directions: NDArray[np.float64]
    lower: NDArray[np.float64]
    level_c: NDArray[np.float64]
    centre: NDArray[np.float64]
    radius: float

    def lower_bounds_at(self, k: int, direction: NDArray[np.float64]) -> NDArray[np.float64]:
        """Lower bounds (2, LEVELS) of problem k at another direction (d,); inf for levels without rows."""
        old, radius = self.directions[k], np.array([self.radius])
        return np.asarray(screened_floor(self.lower[k].T, Balls(self.centre[None], radius), old, direction).T)


def padded(values: NDArray[Any], length: int) -> NDArray[Any]:
    """Values by class, extended to ``length`` classes by zeros."""
    return np.append(values, np.zeros(length - len(values), values.dtype))


def _summarise_levels(values: NDArray[np.float64], row_c: NDArray[np.float64]) -> tuple[NDArray[np.float64], ...]:
    """Smallest values and sums of C (LEVELS,) of values (n,): each level has half of the rows below the next."""
    lower, totals = np.full(LEVELS, np.inf), np.zeros(LEVELS)
    order = np.argsort(values, kind="stable")
    cuts = [0, *(-(-len(values) // 2**j) for j in range(LEVELS - 1, 0, -1)), len(values)]
    for level, (low, high) in enumerate(pairwise(cuts)):
        if high > low:
            lower[level] = values[order[low]]
            totals[level] = row_c[order[low:high]].sum() * _UP
    return lower, totals


@dataclass(frozen=True)
class History:
    """Rows in memory, and summaries of dropped ones.

    ids: of rows in memory, in order of arrival. classes: labels by code, in order of appearance. counts (k,): rows of
    each class seen with a positive weight; rows of weight 0 are ignored. digested: checksums of all rows seen, so that
    the certificate has the digest of a store of these rows. radius: length of the longest row.
    """

    classes: tuple[Any, ...]
    ids: NDArray[np.int64]
    rows: Rows
    codes: NDArray[np.int32]
    weights: NDArray[np.float64]
    digested: Digested
    counts: NDArray[np.int64]
    radius: float
    weighted: bool
    dropped: tuple[DroppedRows, ...] = field(default=())

    @classmethod
    def of(cls, source: ArraySource) -> History:
        """The rows of a batch."""
        parts = [source.read(chunk) for chunk in range(source.chunks)]
        weights = np.concatenate([weights_in(source, chunk) for chunk in range(source.chunks)])
        ids = np.flatnonzero(weights > 0)
        rows, codes = concatenate([rows for rows, _ in parts]), np.concatenate([codes for _, codes in parts])[ids]
        return cls(
            classes=source.classes,
            ids=ids,
            rows=rows if len(ids) == source.rows else take(rows, ids),
            codes=codes,
            weights=weights[ids],
            digested=source.digested,
            counts=np.bincount(codes, minlength=len(source.classes)),
            radius=max(longest(rows) for rows, _ in parts),
            weighted=source.weights(0) is not None,
        )

    def source(self, columns: ColumnsRecord | None = None) -> ArraySource:
        """Rows in memory as a source, whose row ids are positions in ``ids``; columns: of the table, if any."""
        labels = label_array(self.classes)[self.codes]
        weights = self.weights if self.weighted else None
        return ArraySource(self.rows, labels, weights=weights, classes=self.classes, columns=columns)

    @property
    def rows_seen(self) -> int:
        """Number of rows seen, dropped ones included."""
        return int(self.digested.rows.sum())

    @cached_property
    def present(self) -> list[int]:
        """Codes of classes with rows, in the order of their labels."""
        return sorted(np.flatnonzero(self.counts).tolist(), key=self.classes.__getitem__)

    @cached_property
    def positives(self) -> list[int]:
        """Codes of the positive class of each problem."""
        return positives(self.present)

    @cached_property
    def weights_of_classes(self) -> NDArray[np.float64]:
        """Sums (k,) of the weights of rows in memory, by code."""
        return np.asarray(np.bincount(self.codes, self.weights, len(self.classes)), np.float64)

    @property
    def digest(self) -> str:
        """Digest of all rows seen, in order, as of a store or an array with these rows."""
        return store_digest(
            features=self.rows.shape[1],
            dtype=self.rows.dtype.name,
            classes=self.classes,
            chunks=self.digested,
            sparse=is_sparse(self.rows),
            weighted=self.weighted,
        )

    @classmethod
    def concatenate(cls, parts: Sequence[History]) -> History:
        """Concatenate parts of the same dtype; only the first may have dropped rows.

        Each part has the classes of the earlier ones, and possibly more.
        """
        if len(parts) == 1:
            return parts[0]
        before = np.cumsum([0, *(part.rows_seen for part in parts[:-1])])
        result = replace(
            parts[0],
            classes=parts[-1].classes,
            ids=np.concatenate([part.ids + first for part, first in zip(parts, before, strict=True)]),
            rows=concatenate([part.rows for part in parts]),
            codes=np.concatenate([part.codes for part in parts]),
            weights=np.concatenate([part.weights for part in parts]),
            digested=Digested.joined([part.digested for part in parts]),
            counts=np.sum([padded(part.counts, len(parts[-1].classes)) for part in parts], axis=0),
            radius=max(part.radius for part in parts),
        )
        if not parts[0].dropped or result.present == parts[0].present:
            return result
        return replace(result, dropped=tuple(parts[0].regroup(one, result.positives) for one in parts[0].dropped))

    def regroup(self, dropped: DroppedRows, wanted: Sequence[int]) -> DroppedRows:
        """Transfer a summary to new problems, one for each positive class ``wanted`` of three or more.

        A class that had rows keeps its lower bounds: rows of all other classes were on its negative side before, too. A
        new class has none of the dropped rows: at the direction 0 all their values are 0.
        """
        directions = np.zeros((len(wanted), dropped.directions.shape[1]))
        lower, level_c = np.full((len(wanted), 2, LEVELS), np.inf), np.zeros((len(wanted), 2, LEVELS))
        lower[:, NEGATIVE, 0], level_c[:, NEGATIVE, 0] = 0.0, dropped.level_c[0].sum() * _UP
        for k, code in enumerate(wanted):
            if code in self.positives:
                old = self.positives.index(code)
                directions[k], lower[k], level_c[k] = (
                    dropped.directions[old],
                    dropped.lower[old],
                    dropped.level_c[old],
                )
            elif code in self.present:  # the negative one of two classes
                directions[k], lower[k] = -dropped.directions[0], dropped.lower[0, ::-1]
                level_c[k] = dropped.level_c[0, ::-1]
        return replace(dropped, directions=directions, lower=lower, level_c=level_c)

    def signs(self, k: int) -> NDArray[np.int8]:
        """Sides (m,) of rows in memory in problem k: 1 for rows of its class, else -1."""
        return np.where(self.codes == self.positives[k], 1, -1).astype(np.int8)

    def lower_bounds(self, k: int, directions: NDArray[np.float64]) -> NDArray[np.float64]:
        """Lower bounds (2, j) of y w.x over all dropped rows in problem k, at directions (d, j)."""
        least = np.full((2, directions.shape[1]), np.inf)
        for dropped in self.dropped:
            for j, direction in enumerate(directions.T):
                least[:, j] = np.minimum(least[:, j], dropped.lower_bounds_at(k, direction).min(axis=1))
        return least

    def max_loss(self, k: int, w: NDArray[np.float64], b: float, loss: Loss) -> float:
        """Upper bound of the total loss of dropped rows at (w, b) in problem k."""
        total = 0.0
        for dropped in self.dropped:
            for level_c, lower, offset in zip(dropped.level_c[k], dropped.lower_bounds_at(k, w), (b, -b), strict=True):
                with_rows = level_c > 0
                least = lower[with_rows] + offset - 4e-16 * (np.abs(lower[with_rows]) + abs(offset))
                total += float(level_c[with_rows] @ loss.value(least)) * _UP
        return total

    def drop_far_rows(
        self,
        hypotheses: Sequence[tuple[NDArray[np.float64], float]],
        edges: Sequence[float],
        class_c: Sequence[NDArray[np.float64]],
        most: int,
        required: NDArray[np.int64] | None,
    ) -> History:
        """Drop the rows with the largest margins, so that at most ``most`` stay in memory.

        With a loss, a share ``FREED_SHARE`` of the memory is freed if possible, for later batches. hypotheses: (w, b)
        of each problem; edges: units in which their margins are measured; class_c: C (2,) of their sides. required: ids
        that stay; None: rows with a margin below 1, which have a loss. Raises UsageError if too many rows must stay.
        """
        if len(self.ids) <= most:
            return self
        margins = np.min(
            [
                self.signs(k) * (self.rows @ w + b) / edge
                for k, ((w, b), edge) in enumerate(zip(hypotheses, edges, strict=True))
            ],
            axis=0,
        )
        stays = margins < 1.0 if required is None else np.isin(self.ids, required)
        for code in self.present:  # every class keeps a row
            mine = np.flatnonzero(self.codes == code)
            stays[mine[np.argmin(margins[mine])]] = True
        if stays.sum() > most:
            raise UsageError(
                f"memory: {stays.sum():,} of {self.rows_seen:,} rows are needed for the proof, {most:,} fit in "
                "memory; give more memory, or ingest the rows into a store and fit that"
            )
        order = np.lexsort([self.ids, np.where(stays, -np.inf, margins)])
        count = most if required is not None else max(most - int(FREED_SHARE * most), int(stays.sum()))
        near, far = np.sort(order[:count]), np.sort(order[count:])
        summary = self._summarise(far, hypotheses, class_c)
        history = replace(
            self,
            ids=self.ids[near],
            rows=take(self.rows, near),
            codes=self.codes[near],
            weights=self.weights[near],
            dropped=(*self.dropped, summary),
        )
        return history if len(history.dropped) <= MOST_GROUPS else history.merge_dropped(hypotheses)

    def _summarise(
        self,
        far: NDArray[np.intp],
        hypotheses: Sequence[tuple[NDArray[np.float64], float]],
        class_c: Sequence[NDArray[np.float64]],
    ) -> DroppedRows:
        rows, weights = take(self.rows, far), self.weights[far]
        ball = measure(rows, self.codes[far], len(self.classes))
        lower, totals = np.empty((len(hypotheses), 2, LEVELS)), np.empty((len(hypotheses), 2, LEVELS))
        for k, (w, _) in enumerate(hypotheses):
            signs = self.signs(k)[far]
            values = safe_projections(rows, signs, w[:, None])[:, 0]
            for side, sign in ((POSITIVE, 1), (NEGATIVE, -1)):
                mine = (signs == sign) & (weights > 0)
                lower[k, side], totals[k, side] = _summarise_levels(values[mine], class_c[k][side] * weights[mine])
        middle = ball.centre.toarray()[0] if is_sparse(ball.centre) else np.asarray(ball.centre)[0]
        return DroppedRows(np.stack([w for w, _ in hypotheses]), lower, totals, middle, float(ball.radius[0]))

    def merge_dropped(self, hypotheses: Sequence[tuple[NDArray[np.float64], float]]) -> History:
        """Merge all groups of dropped rows: lower bounds at these hypotheses, and a ball around all balls."""
        centre = np.mean([dropped.centre for dropped in self.dropped], axis=0)
        radius = max(float(np.linalg.norm(dropped.centre - centre)) * _UP + dropped.radius for dropped in self.dropped)
        lower, totals = np.empty((len(hypotheses), 2, LEVELS)), np.empty((len(hypotheses), 2, LEVELS))
        for k, (w, _) in enumerate(hypotheses):
            values = np.concatenate([dropped.lower_bounds_at(k, w) for dropped in self.dropped], axis=1)
            level_c = np.concatenate([dropped.level_c[k] for dropped in self.dropped], axis=1)
            for side in (POSITIVE, NEGATIVE):
                mine = values[side] < np.inf
                lower[k, side], totals[k, side] = _summarise_levels(values[side][mine], level_c[side][mine])
        return replace(
            self, dropped=(DroppedRows(np.stack([w for w, _ in hypotheses]), lower, totals, centre, radius * _UP),)
        )


@dataclass(frozen=True)
class RowTotals:
    """Totals of rows in memory: rows, stored values, longest row, weight by class (k,)."""

    rows: int
    values: int
    longest: float
    weights: NDArray[np.float64]

    @classmethod
    def of(cls, history: History) -> RowTotals:
        """Totals of a history."""
        rows = history.rows
        values = int(rows.nnz if is_sparse(rows) else rows.size)
        return cls(len(history.ids), values, history.radius, history.weights_of_classes)

    def __add__(self, other: RowTotals) -> RowTotals:
        """Totals of both."""
        classes = max(len(self.weights), len(other.weights))
        return RowTotals(
            self.rows + other.rows,
            self.values + other.values,
            max(self.longest, other.longest),
            padded(self.weights, classes) + padded(other.weights, classes),
        )


@dataclass(frozen=True)
class PartialFitState:
    """The state of ``partial_fit`` between batches.

    parameters: those that must not change. columns: of the table that the first batch came from. declared: all labels,
    in order. history: rows of the last training; waiting: later batches; totals: of all of them.

    Batches wait in parts: ``MERGED_PARTS`` parts of similar size are concatenated, so that there are few parts and each
    row is copied log(batches) / log(MERGED_PARTS) times, and once more by the training.
    """

    parameters: Mapping[str, Any]
    columns: ColumnsRecord | None
    declared: tuple[Any, ...]
    history: History | None = None
    waiting: tuple[History, ...] = ()
    totals: RowTotals | None = None

    @cached_property
    def parts(self) -> tuple[History, ...]:
        """History and waiting batches, in order."""
        return self.waiting if self.history is None else (self.history, *self.waiting)

    @property
    def classes(self) -> tuple[Any, ...]:
        """Labels that have appeared, by code."""
        return self.parts[-1].classes if self.parts else ()

    @property
    def present(self) -> list[int]:
        """Codes of classes with rows of positive weight, in the order of their labels."""
        found = np.flatnonzero(self._totals.weights).tolist()
        if self.history is not None:  # dropped rows count, too
            found = sorted({*found, *self.history.present})
        return sorted(found, key=self.classes.__getitem__)

    @property
    def rows(self) -> int:
        """Rows in memory."""
        return self._totals.rows

    def describe_missing(self) -> str:
        """For messages: classes without rows."""
        found = {self.classes[code] for code in self.present}
        missing = ", ".join(repr(label) for label in self.declared if label not in found)
        return f"expected rows of two classes, partial_fit has not seen rows of {missing} yet"

    def add_batch(self, batch: History) -> PartialFitState:
        """Add a batch to those waiting."""
        waiting = (*self.waiting, batch)
        while len(waiting) >= MERGED_PARTS and waiting[-MERGED_PARTS].rows_seen < MERGED_PARTS * waiting[-1].rows_seen:
            waiting = (*waiting[:-MERGED_PARTS], History.concatenate(waiting[-MERGED_PARTS:]))
        own = RowTotals.of(batch)
        return replace(self, waiting=waiting, totals=own if self.totals is None else self.totals + own)

    def after_training(self, history: History) -> PartialFitState:
        """After a training on all rows."""
        return replace(self, history=history, waiting=(), totals=RowTotals.of(history))

    def all_rows(self) -> History:
        """History and waiting batches in one."""
        return History.concatenate(self.parts)

    def fits(self, memory_bytes: int) -> bool:
        """Whether the rows fit in memory, in float64."""
        totals = self._totals
        most = max_rows(totals.rows, totals.values, memory_bytes, sparse=is_sparse(self.parts[0].rows))
        return totals.rows <= most

    def check(self, class_c: Sequence[NDArray[np.float64]] | None) -> None:
        """Raise the errors that a training would raise, before rows wait for it.

        class_c: C (2,) of the sides of each problem, None if there is no problem yet. Raises BadRow, UsageError.
        """
        check_longest("X", self._totals.longest)
        if class_c is None:
            return
        totals = self._totals.weights
        for positive, sides in zip(positives(self.present), class_c, strict=True):
            check_class_c("X", sides, np.array([totals[positive], totals.sum() - totals[positive]]))

    @property
    def _totals(self) -> RowTotals:
        assert self.totals is not None  # noqa: S101 - for the type checker: there is a batch
        return self.totals
