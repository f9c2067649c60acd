"""What ``partial_fit`` keeps of the rows it has seen: those near the margin, and of all others what proves them.

Rows are *let go*, those with the largest margins first, when memory is used up. Of rows that were let go together at
hypotheses (w0, b0) there remain floors of y w0.x for a few levels, of which the highest holds half of the rows and each
other one half of those that are left, and a ball that holds them all. At any other hypothesis the floors fall by what
the ball allows (maths/screening.py), so that what it does to rows that are gone is bounded, never guessed:

    hard margin   no row that is gone has a margin below the lowest screened floor + y b
    soft margin   those of a level lose no more than max(0, 1 - their floor's margin) times the C of all of them

A row with a loss never goes, so that leaving the others out makes no value larger: the dual bound stays a bound for
all rows. A hard margin's upper bound rests on its coreset, which stays too.
"""

from __future__ import annotations

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

if TYPE_CHECKING:
    from collections.abc import Sequence

    from numpy.typing import NDArray

    from coremargin.data.source import Source
    from coremargin.formats.columns import ColumnsRecord
    from coremargin.problems.soft.losses.loss import Loss

#: So many rows are kept however little memory there is.
FEWEST = 16
#: Share of the room that is made free when rows are let go, so that not every batch that follows has to be learnt from.
FREED = 0.25
#: So many groups of rows let go are remembered; then they become one, with a wider ball.
MOST_BUNCHES = 256
#: Levels of the margins of a group of rows let go: the lowest holds one row in 2^15.
LEVELS = 16
_UP = 1.0 + 1e-12


def room(source: Source, memory_bytes: int) -> int:
    """How many rows of this kind so much memory holds in float64."""
    values = int(source.scalars().nonzeros.sum())
    return most_rows(source.rows, values, memory_bytes, sparse=source.sparse)


def most_rows(rows: int, values: int, memory_bytes: int, *, sparse: bool) -> int:
    """``room`` for rows such as these, which have so many values together; never fewer than ``FEWEST``."""
    entry = 12 if sparse else 8  # with its column
    return max(FEWEST, int(memory_bytes * rows // max(1, entry * values)))


@dataclass(frozen=True)
class DroppedRows:
    """Rows that were let go together, in k problems: directions (k, d), floors and level_c (k, 2, LEVELS) of levels.

    Rows are first the positive and then the negative side; level_c is the sum of C of all rows of a level.
    centre (d,), radius: a ball.
    """

    directions: NDArray[np.float64]
    floors: NDArray[np.float64]
    level_c: NDArray[np.float64]
    centre: NDArray[np.float64]
    radius: float

    def screened(self, k: int, direction: NDArray[np.float64]) -> NDArray[np.float64]:
        """Floors (2, LEVELS) of problem k at another direction (d,); a level without rows has none (inf)."""
        old, radius = self.directions[k], np.array([self.radius])
        return np.asarray(screened_floor(self.floors[k].T, Balls(self.centre[None], radius), old, direction).T)


def padded(values: NDArray[Any], length: int) -> NDArray[Any]:
    """Values (m,) by class, and zeros for classes that came later."""
    return np.append(values, np.zeros(length - len(values), values.dtype))


def _levels(values: NDArray[np.float64], row_c: NDArray[np.float64]) -> tuple[NDArray[np.float64], ...]:
    """Floors and sums of C (LEVELS,) of values (n,), row_c (n,): each level holds half of the rows below the next."""
    floors, totals = np.full(LEVELS, np.inf), np.zeros(LEVELS)
    order = np.argsort(values, kind="stable")
    cuts = [0, *(-(-len(values) // 2**j) for j in range(LEVELS - 1, 0, -1)), len(values)]
    for level, (low, high) in enumerate(pairwise(cuts)):
        if high > low:
            floors[level] = values[order[low]]
            totals[level] = row_c[order[low:high]].sum() * _UP
    return floors, totals


@dataclass(frozen=True)
class History:
    """Rows seen so far: those kept, with ids in order of arrival, codes and weights; dropped: those let go.

    classes: labels by code, in order of first appearance; counts (k,): rows seen of each with a weight above 0. Rows of
    weight 0 are not kept. digested: checksums of all rows seen, so that the certificate names their content as a store
    of them would.
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
        """All rows of a batch."""
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
        """The rows kept, as a source; row ids are positions in ``ids``. columns: what the features come from."""
        labels = label_array(self.classes)[self.codes]
        weights = self.weights if self.weighted else None
        return ArraySource(self.rows, labels, weights=weights, classes=self.classes, columns=columns)

    @property
    def seen(self) -> int:
        """Rows seen so far."""
        return int(self.digested.rows.sum())

    @cached_property
    def present(self) -> list[int]:
        """Codes of the classes that have rows, in the order of their labels."""
        return sorted(np.flatnonzero(self.counts).tolist(), key=self.classes.__getitem__)

    @cached_property
    def positives(self) -> list[int]:
        """Codes of the positive class of each problem."""
        return positives(self.present)

    @cached_property
    def weights_of_classes(self) -> NDArray[np.float64]:
        """Sums (k,) of the weights of the rows kept, by code."""
        return np.asarray(np.bincount(self.codes, self.weights, len(self.classes)), np.float64)

    @property
    def digest(self) -> str:
        """Identity of all rows seen, in order: that of a store or an array of them."""
        return store_digest(
            features=self.rows.shape[1],
            dtype=self.rows.dtype.name,
            classes=self.classes,
            chunks=self.digested,
            sparse=is_sparse(self.rows),
            weighted=self.weighted,
        )

    @classmethod
    def joined(cls, parts: Sequence[History]) -> History:
        """All parts (at least one) of one dtype, in order; only the first may have let rows go.

        Each part knows the classes of those before it, and may add some.
        """
        if len(parts) == 1:
            return parts[0]
        before = np.cumsum([0, *(part.seen for part in parts[:-1])])
        joined = replace(
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
        if not parts[0].dropped or joined.present == parts[0].present:
            return joined
        return replace(joined, dropped=tuple(parts[0].regrouped(one, joined.positives) for one in parts[0].dropped))

    def regrouped(self, dropped: DroppedRows, wanted: Sequence[int]) -> DroppedRows:
        """What is known of rows let go for other problems, one for each positive class ``wanted``: of three or more.

        A class that had rows keeps its floors: the rows of all others were on the other side then as they are now. One
        that is new has no row among them: at the direction 0 all their values are 0.
        """
        directions = np.zeros((len(wanted), dropped.directions.shape[1]))
        floors, level_c = np.full((len(wanted), 2, LEVELS), np.inf), np.zeros((len(wanted), 2, LEVELS))
        floors[:, NEGATIVE, 0], level_c[:, NEGATIVE, 0] = 0.0, dropped.level_c[0].sum() * _UP
        for k, code in enumerate(wanted):
            if code in self.positives:
                old = self.positives.index(code)
                directions[k], floors[k], level_c[k] = (
                    dropped.directions[old],
                    dropped.floors[old],
                    dropped.level_c[old],
                )
            elif code in self.present:  # the negative one of two classes
                directions[k], floors[k] = -dropped.directions[0], dropped.floors[0, ::-1]
                level_c[k] = dropped.level_c[0, ::-1]
        return replace(dropped, directions=directions, floors=floors, level_c=level_c)

    def signs(self, k: int) -> NDArray[np.int8]:
        """Sides (m,) of the kept rows in problem k: 1 for those of its class, else -1."""
        return np.where(self.codes == self.positives[k], 1, -1).astype(np.int8)

    def floors(self, k: int, directions: NDArray[np.float64]) -> NDArray[np.float64]:
        """Lower bounds (2, j) on y w.x of problem k over all rows that are gone, at directions (d, j)."""
        least = np.full((2, directions.shape[1]), np.inf)
        for dropped in self.dropped:
            for j, direction in enumerate(directions.T):
                least[:, j] = np.minimum(least[:, j], dropped.screened(k, direction).min(axis=1))
        return least

    def most_lost(self, k: int, w: NDArray[np.float64], b: float, loss: Loss) -> float:
        """Upper bound on the losses of all removed rows together at (w, b) in problem k."""
        total = 0.0
        for dropped in self.dropped:
            for level_c, floors, offset in zip(dropped.level_c[k], dropped.screened(k, w), (b, -b), strict=True):
                with_rows = level_c > 0
                least = floors[with_rows] + offset - 4e-16 * (np.abs(floors[with_rows]) + abs(offset))
                total += float(level_c[with_rows] @ loss.value(least)) * _UP
        return total

    def let_go(
        self,
        hypotheses: Sequence[tuple[NDArray[np.float64], float]],
        edges: Sequence[float],
        class_c: Sequence[NDArray[np.float64]],
        most: int,
        carrying: NDArray[np.int64] | None,
    ) -> History:
        """With at most ``most`` rows kept: those with the largest margins go.

        With a loss a share ``FREED`` of them is made free, as far as rows may go: later batches wait while they fit.
        hypotheses (w, b), edges (margins are measured in units of them) and class_c (2,) of the sides of each problem.
        carrying: ids that stay in any case; None: rows with a margin below 1, which have a loss.
        Raises UsageError when these are too many.
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
        kept = margins < 1.0 if carrying is None else np.isin(self.ids, carrying)
        for code in self.present:  # a class stays one of those that are learnt
            mine = np.flatnonzero(self.codes == code)
            kept[mine[np.argmin(margins[mine])]] = True
        if kept.sum() > most:
            raise UsageError(
                f"memory: {kept.sum():,} of {self.seen:,} rows decide the answer and are kept, there is room for "
                f"{most:,}; give more memory, or ingest the rows into a store and fit that"
            )
        order = np.lexsort([self.ids, np.where(kept, -np.inf, margins)])
        stay = most if carrying is not None else max(most - int(FREED * most), int(kept.sum()))
        near, far = np.sort(order[:stay]), np.sort(order[stay:])
        gone = self._dropped(far, hypotheses, class_c)
        history = replace(
            self,
            ids=self.ids[near],
            rows=take(self.rows, near),
            codes=self.codes[near],
            weights=self.weights[near],
            dropped=(*self.dropped, gone),
        )
        return history if len(history.dropped) <= MOST_BUNCHES else history.merged(hypotheses)

    def _dropped(
        self,
        far: NDArray[np.intp],
        hypotheses: Sequence[tuple[NDArray[np.float64], float]],
        class_c: Sequence[NDArray[np.float64]],
    ) -> DroppedRows:
        rows, weights = take(self.rows, far), self.weights[far]
        ball = measure(rows, self.codes[far], len(self.classes))
        floors, totals = np.empty((len(hypotheses), 2, LEVELS)), np.empty((len(hypotheses), 2, LEVELS))
        for k, (w, _) in enumerate(hypotheses):
            signs = self.signs(k)[far]
            values = safe_projections(rows, signs, w[:, None])[:, 0]
            for side, sign in ((POSITIVE, 1), (NEGATIVE, -1)):
                mine = (signs == sign) & (weights > 0)
                floors[k, side], totals[k, side] = _levels(values[mine], class_c[k][side] * weights[mine])
        middle = ball.centre.toarray()[0] if is_sparse(ball.centre) else np.asarray(ball.centre)[0]
        return DroppedRows(np.stack([w for w, _ in hypotheses]), floors, totals, middle, float(ball.radius[0]))

    def merged(self, hypotheses: Sequence[tuple[NDArray[np.float64], float]]) -> History:
        """The same with all groups of rows let go in one: floors at these hypotheses, a ball around all balls."""
        centre = np.mean([dropped.centre for dropped in self.dropped], axis=0)
        radius = max(float(np.linalg.norm(dropped.centre - centre)) * _UP + dropped.radius for dropped in self.dropped)
        floors, totals = np.empty((len(hypotheses), 2, LEVELS)), np.empty((len(hypotheses), 2, LEVELS))
        for k, (w, _) in enumerate(hypotheses):
            values = np.concatenate([dropped.screened(k, w) for dropped in self.dropped], axis=1)
            level_c = np.concatenate([dropped.level_c[k] for dropped in self.dropped], axis=1)
            for side in (POSITIVE, NEGATIVE):
                mine = values[side] < np.inf
                floors[k, side], totals[k, side] = _levels(values[side][mine], level_c[side][mine])
        return replace(
            self, dropped=(DroppedRows(np.stack([w for w, _ in hypotheses]), floors, totals, centre, radius * _UP),)
        )
