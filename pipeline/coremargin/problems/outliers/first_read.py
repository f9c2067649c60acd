"""The first read of a store for outliers: in stages, each probed with the best directions on the rows before it.

The first stage sends all rows of a few chunks; soft margins and the heuristic find directions on them. From the chunks
of each later stage come the rows that any of these directions, as far as it may still move, can have below its margin;
the others leave lower bounds (cached_rows.py). Outliers are assumed to be spread evenly over the store: a direction on
a share of the rows excludes that share of k, and some more.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from coremargin.maths.outliers.certificates import SearchRows
from coremargin.maths.outliers.heuristic import Hyperplane, find_hyperplane, soft_directions
from coremargin.maths.rows import dense, lengths, take
from coremargin.problems.common.driver_rows import SignedRows
from coremargin.problems.hard.forecast import cuts, forecast
from coremargin.problems.hard.probe import MarginProbe
from coremargin.problems.hard.state import Hypothesis
from coremargin.problems.outliers.cached_rows import (
    best_directions,
    margin_histogram,
    measure_cached,
    smaller_class_size,
)
from coremargin.problems.outliers.state import OutlierWorkingSet, unit_directions

if TYPE_CHECKING:
    from coremargin.data.source import Source
    from coremargin.maths.margin import Array
    from coremargin.problems.common.sent import SentRows
    from coremargin.problems.common.stages import Stages
    from coremargin.problems.hard.probe import MarginSummary
    from coremargin.problems.outliers.state import OutlierState

#: Rows of the sample that soft directions are found on.
SAMPLE_ROWS = 10_000
#: Ordinary rows of the working set, at least: without some, deep outliers find no disjoint certificates (measured: 195
#: nodes with 200 of them, 19,685 without; 50 flips of 2,000 rows of 20 features: 109 nodes with 2,000, 800 with 500).
ORDINARY = 500
#: Standard deviations added to the expected number of outliers among a share of the rows: excluding one row too few
#: gives a direction unrelated to that of all rows, excluding one too many costs little.
SIGMAS = 3.0
#: Values of k, evenly spread, that directions are looked for before the end of the first read.
MOST_KS = 16
#: Rounds of the heuristic on the sample, each with the lowest rows under the last answer added.
ROUNDS = 3


@dataclass(frozen=True)
class FirstRead:
    """The first read of a store.

    keep: lowest rows of each class that a direction needs; ordinary: ordinary rows of the working set; most: rows that
    fit in the cache.
    """

    source: Source
    codes: tuple[int, int]
    stages: Stages
    ks: tuple[int, ...]
    intercept: bool
    keep: int
    ordinary: int
    most: int

    @property
    def longest(self) -> float:
        """The largest norm of a row."""
        return float(self.source.scalars().max_norm.max())

    def chunks(self, state: OutlierState) -> NDArray[np.intp]:
        """The chunks of the next stage; after a warm start, all chunks without bounds."""
        return state.block_bounds.unread if state.warm_started else self.stages.chunks(state.stage)

    def probe(self, state: OutlierState) -> MarginProbe:
        """The probe of the next stage."""
        chunks, room = self.chunks(state), max(0, self.most - len(state.cached))
        rows = room if state.stage + 1 == state.stages else room // 2
        return self._make_probe(state, chunks, state.cached, rows)

    def after_first_stage(self, state: OutlierState, sent: SentRows) -> OutlierState:
        """The state after the first stage, which sends all its rows."""
        rows = SignedRows(sent.ids, sent.rows, sent.signs)
        found = solve_first_stage(rows, self._share(0), self.ks, self.keep, self.ordinary, intercept=self.intercept)
        state = replace(
            state,
            round=state.round + 1,
            stage=1,
            ordinary=found.ordinary,
            centre=found.centre,
            radius=found.radius,
            low=found.low,
            high=found.high,
            next_directions=found.directions,
            new_rows=len(rows),
        )
        state = self._with_offset(state, rows, self._hypothesis(rows, found.on_half), 1.0)
        chunks = self.stages.chunks(0)
        if self.stages.count == 1 and len(rows) <= self.most:  # all rows stay: nothing need be read again
            no_others = np.full((len(chunks), 2), np.inf)
            bounds = state.block_bounds.record(chunks, no_others, state.next_directions[0])
            return replace(state, cached=rows, block_bounds=bounds)
        probe = self._make_probe(state, chunks, rows, self.most // 2)
        return self._add_summary(state, probe.evaluate_in_memory(self.source, chunks, rows.ids, rows.rows, rows.signs))

    def after_stage(self, state: OutlierState, summary: MarginSummary) -> OutlierState:
        """The state after a later stage."""
        stage, before = state.stage, Hypothesis(state.next_directions[0], state.offset)
        state = self._add_summary(state, summary)
        state = replace(state, round=state.round + 1, stage=state.stage + 1, new_rows=len(summary.sent))
        if not state.in_first_read:
            return state
        pace = self.stages.pace(stage)
        starts = list(state.next_directions)
        if len(state.cached):  # else all rows lie far from where they could matter
            lowest = measure_cached(state.cached, np.array(starts), self.keep, self.longest)
            search_rows = SearchRows(lowest.row_x, lowest.row_sign, state.centre, intercept=self.intercept)
            starts += soft_directions(search_rows)
        at = Hyperplane(before.w, before.b, 0.0)
        wrong = int(margin_histogram(state.cached, at, -1.0, 1.0, 2)[:, 0].sum())
        sample = Sample(state.cached, self._share(state.stage - 1), self.keep, state.centre, self.intercept, wrong)
        state = replace(state, next_directions=sample.best_directions(self.ks, starts[:1], starts))
        return self._with_offset(state, state.cached, before, pace)

    def _share(self, stage: int) -> float:
        """The share of the chunks that has been read after a stage."""
        return float(np.count_nonzero(self.stages.stage_of_chunk <= stage) / len(self.stages.stage_of_chunk))

    def _hypothesis(self, rows: SignedRows, w: Array) -> Hypothesis:
        """A direction with its offset for the largest k on these rows."""
        return Hypothesis(w, best_directions(rows, w[None], self.ks[-1:], self.intercept, self.longest)[0].b)

    def _with_offset(self, state: OutlierState, rows: SignedRows, before: Hypothesis, pace: float) -> OutlierState:
        """The state with the offset of the first direction, and a forecast of how far it may still move."""
        now = self._hypothesis(rows, state.next_directions[0])
        return replace(state, offset=now.b, move=forecast(before, now, pace, state.move))

    def _make_probe(self, state: OutlierState, chunks: NDArray[Any], rows: SignedRows, most: int) -> MarginProbe:
        """The probe for rows that may matter to the directions, given their margins on ``rows``; at most ``most``."""
        source, w = self.source, state.next_directions[0]
        known = best_directions(rows, state.next_directions, self.ks, self.intercept, self.longest)
        return MarginProbe(
            base=w[:, None],
            mix=np.ones((1, 1)),
            offset=state.offset,
            codes=self.codes,
            level=known[-1].margin,
            keep=1,
            keep_per_chunk=most / (2 * max(1, len(chunks))),
            known_ids=state.cached.ids,
            low=state.low,
            high=state.high,
            bins=state.histogram.shape[1],
            dtype=source.dtype.name,
            chunk_rows=source.chunk_rows,
            sparse=source.sparse,
            cut_chunks=chunks,
            cuts=self._cuts(state, chunks, known),
        )

    def _cuts(self, state: OutlierState, chunks: NDArray[Any], known: list[Hyperplane]) -> Array:
        """Values (m, 2) of y w.x, w the first direction, above which no row matters to the best direction of any k."""
        found = np.full((len(chunks), 2), -np.inf)
        main = np.append(state.next_directions[0], state.offset)
        for each in known:
            if each is not known[-1] and not each.margin > 0:  # nothing is separated: no lower bound could help
                continue
            mine = cuts(self.source, chunks, state.move, each.margin, state.offset)
            away = np.append(each.w, each.b) - main
            if away.any():
                mine = mine + cuts(self.source, chunks, away, 0.0, 0.0)
            found = np.maximum(found, mine)
        return found

    def _add_summary(self, state: OutlierState, summary: MarginSummary) -> OutlierState:
        """Cache the rows that a stage sent, and record lower bounds of the others at the first direction."""
        sent = SignedRows(summary.sent.ids, summary.sent.rows, summary.sent.signs)
        bounds = state.block_bounds.record(summary.chunks, summary.chunk_lower, state.next_directions[0])
        return replace(
            state,
            cached=merge_rows(state.cached, sent),
            block_bounds=bounds,
            histogram=state.histogram + summary.histogram,
        )


@dataclass(frozen=True)
class FirstStage:
    """The results of the first stage.

    directions (m, d), the best first; on_half (d,): the best on half of the rows; ordinary rows; the centre of z and
    the radius about it; the range of margins.
    """

    directions: Array
    on_half: Array
    ordinary: OutlierWorkingSet
    centre: Array
    radius: float
    low: float
    high: float


def solve_first_stage(
    rows: SignedRows, share: float, ks: Sequence[int], keep: int, ordinary: int, *, intercept: bool
) -> FirstStage:
    """Find directions on the rows of the first stage, a share of all rows.

    keep: lowest rows of a class that the heuristic uses; ordinary: number of ordinary rows to return.
    """
    spread = np.linspace(0, len(rows) - 1, min(SAMPLE_ROWS, len(rows))).astype(int)
    for sign in (1, -1):  # a rare class is taken whole, up to a limit
        mine = np.flatnonzero(rows.signs == sign)
        spread = np.union1d(spread, mine[np.linspace(0, len(mine) - 1, min(len(mine), ORDINARY)).astype(int)])
    spread_rows = dense_rows(rows, spread)
    centre = np.asarray(spread_rows.x.mean(axis=0))
    search_rows = SearchRows(spread_rows.x, spread_rows.signs, centre, intercept=intercept)
    soft = soft_directions(search_rows)
    sample = Sample(rows, share, keep, centre, intercept)
    near, starts = soft, soft
    if share < 1:
        half = replace(sample, rows=rows.take(np.arange(0, len(rows), 2)), share=share / 2)
        near = [half.best_hyperplane(ks[-1], soft).w]
        starts = [*near, *soft]
    directions = sample.best_directions(ks, near, starts)
    if share >= 1:
        directions = unit_directions([*directions, *soft])
    margins = spread_rows.signs * (spread_rows.x @ directions[0])
    room = 0.25 * float(np.ptp(margins)) or 1.0
    radius = float(np.sqrt(np.einsum("ij,ij->i", search_rows.z, search_rows.z).max()))
    if ordinary > len(spread):
        spread = np.union1d(spread, np.linspace(0, len(rows) - 1, min(ordinary, len(rows))).astype(int))
    spread = spread[np.linspace(0, len(spread) - 1, min(ordinary, len(spread))).astype(int)]
    return FirstStage(
        directions,
        or_first_axis(unit_directions(near[:1]), len(centre))[0],
        dense_rows(rows, spread),
        centre,
        radius,
        float(margins.min()) - room,
        float(margins.max()) + room,
    )


@dataclass(frozen=True)
class Sample:
    """Rows ordered by id that are a share of all rows, for the heuristic.

    keep: lowest rows of each class under a direction that it uses; centre (d,): of z; wrong: rows that are already
    misclassified, most likely outliers, which may all lie in one place.
    """

    rows: SignedRows
    share: float
    keep: int
    centre: Array
    intercept: bool
    wrong: int = 0

    def best_directions(self, ks: Sequence[int], near: Sequence[Array], starts: Sequence[Array]) -> Array:
        """The best directions (m, d), the largest k first, until one separates nothing; of many ks only some."""
        found: dict[int, Hyperplane] = {}
        for k in ks[:: -(1 + len(ks) // MOST_KS)]:
            if self._expected_outliers(k) in found:
                continue
            last = [one.w for one in found.values()][-1:]
            best = self.best_hyperplane(k, [*last, *near], [*last, *starts])
            if found and not best.margin > 0:
                break
            found[self._expected_outliers(k)] = best
        return or_first_axis(unit_directions([one.w for one in found.values()]), len(self.centre))

    def best_hyperplane(self, k: int, near: Sequence[Array], starts: Sequence[Array] = ()) -> Hyperplane:
        """The best that the heuristic finds from ``starts`` (default: ``near``) on the lowest rows under ``near``.

        On a part of all rows it first tries fewer outliers than k.
        """
        most = smaller_class_size(self.rows) - 1
        best = Hyperplane(near[-1], 0.0, -np.inf)
        for outliers in sorted({min(self._expected_outliers(k), most), min(k, most)}):
            if outliers >= 0 and not best.margin > 0:
                best = self._best_with(outliers, near, starts or near)
        return best

    def _expected_outliers(self, k: int) -> int:
        """An upper estimate of how many of k outliers are among these rows."""
        spread = SIGMAS * np.sqrt(k * self.share * (1 - min(self.share, 1.0)))
        return min(k, max(self.wrong, int(np.ceil(k * self.share + spread))))

    def _best_with(self, k: int, near: Sequence[Array], starts: Sequence[Array]) -> Hyperplane:
        features = len(self.centre)
        measured, working_set = or_first_axis(unit_directions(near), features), OutlierWorkingSet.nothing(features)
        best, longest = Hyperplane.none(features), float(lengths(self.rows.rows).max())
        for _ in range(ROUNDS):
            lowest = measure_cached(self.rows, measured, self.keep, longest, working_set.ids)
            working_set = working_set.add(OutlierWorkingSet(lowest.row_id, lowest.row_x, lowest.row_sign))
            search_rows = SearchRows(working_set.x, working_set.signs, self.centre, intercept=self.intercept)
            before, best = best, find_hyperplane(search_rows, k, list(starts), thorough=False)
            if not len(lowest.row_id) or best.margin == before.margin or not np.any(best.w):
                break
            starts = [best.w]
            measured = unit_directions(starts)
        return best if np.any(best.w) else Hyperplane(near[-1], 0.0, -np.inf)


def dense_rows(rows: SignedRows, places: NDArray[np.int64]) -> OutlierWorkingSet:
    """The rows at these positions, dense."""
    return OutlierWorkingSet(rows.ids[places], dense(take(rows.rows, places)), rows.signs[places])


def merge_rows(first: SignedRows, second: SignedRows) -> SignedRows:
    """The rows of both, ordered by id."""
    if not len(first) or not len(second):
        return (first if len(first) else second).in_order()
    return SignedRows.concatenate([first, second]).in_order()


def or_first_axis(directions: Array, features: int) -> Array:
    """The directions or, when hulls meet and none is left, the first axis."""
    return directions if len(directions) else np.eye(1, features)
