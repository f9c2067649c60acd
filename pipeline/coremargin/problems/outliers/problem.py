"""The best margin once k rows may be left out, of all rows of a store: its read in stages, its scans, its search.

    stages    the rows of a first few chunks give directions; the others are read once, in stages that send home the
              rows that may be low and leave floors for the rest (reading.py)
    settle    the best directions are measured on the rows at home and the floors (home.py), and their lowest rows are
              the pool; the heuristic on the pool gives better directions, until what they have on the pool is what they
              have on all rows: the incumbent
    climb     the heuristic alone: concentration from many starts, as tasks (climb.py)
    enumerate the published algorithms alone: all subsets of a coreset's size, as tasks (enumerate.py)
    search    certificates and branching on the pool (maths/outliers); what the pool cannot decide, candidates, is
              measured, up to 32 of them at a time
    end       no set of k rows allows more than ``upper``, and the incumbent has ``lower``, on all rows

Certificates of the pool are certificates of all rows; only lower bounds need all rows. A scan reads only chunks whose
floors leave open what directions promise that wait to be measured; where none does there is no scan. Several values of
k share all of that.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, replace
from functools import cached_property
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from coremargin.maths.outliers.heuristic import Found, fewest_of, good_hyperplane, soft_directions
from coremargin.maths.outliers.packing import bounded
from coremargin.maths.outliers.rounds import advance
from coremargin.maths.outliers.search import Search
from coremargin.maths.outliers.trimmed import trimmed_margin
from coremargin.problems.common.classes import check_scale, count_weighted_rows
from coremargin.problems.common.driver_rows import SignedRows
from coremargin.problems.common.map_rounding import margin_rounding, widen_margin_bounds
from coremargin.problems.common.sent import AllRows, AllRowsProbe
from coremargin.problems.hard.block_bounds import BlockBounds
from coremargin.problems.outliers import kernels
from coremargin.problems.outliers.base import POOL_ROWS, Answer
from coremargin.problems.outliers.climb import climbed, is_due, lowest, over, where_worth
from coremargin.problems.outliers.enumerate import enumerating, pooled, wave
from coremargin.problems.outliers.home import Standing, at_home, cut_off, margins_of, unproven
from coremargin.problems.outliers.onward import Onward
from coremargin.problems.outliers.overlap import contradicted
from coremargin.problems.outliers.path import next_place
from coremargin.problems.outliers.probe import OutlierProbe
from coremargin.problems.outliers.result import result, round_of
from coremargin.problems.outliers.state import LeftOut, OutlierPool, OutlierState, Phase, unit
from coremargin.problems.outliers.summary import OutlierSummary
from coremargin.problems.outliers.update import worth_having

if TYPE_CHECKING:
    from collections.abc import Mapping

    from coremargin.engine.problem import Round
    from coremargin.maths.margin import Array
    from coremargin.maths.outliers.published import Published
    from coremargin.maths.outliers.tasks import Map
    from coremargin.problems.common.result import Result
    from coremargin.problems.hard.probe import MarginProbe

#: Times that incumbents may be measured to settle, and points of the segment from the incumbent (0) to the newest
#: direction (1) that are measured besides each time.
SETTLING, LINE_POINTS = 8, (0.25, 0.5, 0.75, 0.9)
BINS = 200


@dataclass(frozen=True)
class OutlierMargin(Onward):
    """The largest margin with k rows left out: what is asked, what is made of the answers, what is searched."""

    def round_of(self, state: OutlierState) -> Round:
        """What is told of a state."""
        return round_of(state)

    def result(self, state: OutlierState) -> Result:
        """The model that a state stands for; the last one is kept: what a row left out buys takes a solve each."""
        if self._last[:1] != [id(state)]:
            found = result(state, self.search_rows(state), sparse=self.source.sparse)
            self._last[:] = [id(state), state, self._claimed(found)]
        last: Result = self._last[2]
        return last

    def _claimed(self, found: Result) -> Result:
        """As it is claimed, for each number of outliers, too."""
        claimed, moves = widen_margin_bounds(found, self.source, self.epsilon), margin_rounding(self.source)
        bounds = {"outliers_lower": found.extra["outliers_lower"] - moves}
        bounds |= {"outliers_upper": found.extra["outliers_upper"] + moves}
        return replace(claimed, extra={**found.extra, **bounds})

    @cached_property
    def _last(self) -> list[Any]:
        return []

    def restore(self, arrays: Mapping[str, NDArray[Any]]) -> OutlierState:
        """A state from a checkpoint."""
        return OutlierState.from_arrays(arrays, len(self.ks))

    def start(self) -> OutlierState:
        """Nothing is known yet: stages bring the rows to begin with.

        Raises UsageError when so many rows have weight 0 that a class may vanish.
        """
        check_scale(self.source)
        self._check_counts(count_weighted_rows(self.source)[list(self.codes)], self.codes)
        source, nothing = self.source, Found.nothing(self.source.features)
        searches = tuple(Search(k, self.epsilon, 0.0, nothing, np.inf, batch=self.batch) for k in self.ks)
        empty = OutlierPool.nothing(source.features)
        return OutlierState(
            round=0, status="running", pool=empty, spare=empty, centre=np.zeros(source.features), radius=0.0,
            phase="settle", settling=SETTLING, next_directions=np.zeros((1, source.features)), searches=searches,
            left_out=tuple(LeftOut.nothing() for _ in self.ks), histogram=np.zeros((2, BINS), np.int64), low=0.0,
            high=1.0, offset=0.0, new_rows=0, wanted=np.zeros(0, np.int64), move=np.zeros(source.features + 1),
            home=SignedRows.nothing(source.features, source.dtype, sparse=source.sparse),
            ledger=BlockBounds.unknown(source.chunks, source.features), stages=self.stages.count,
            counted_at=np.zeros(source.features),
        )  # fmt: skip

    def unsolved(self) -> OutlierState:
        """That of the start, which solves nothing."""
        return self.start()

    def probe(self, state: OutlierState) -> AllRowsProbe | MarginProbe | OutlierProbe:
        """The question of the next stage; of the next scan: the directions that wait to be measured."""
        source = self.source
        if state.reading:
            brought = AllRowsProbe(self.codes, source.features, source.dtype.name, source.sparse)
            return self.reading.question(state) if state.stage or state.onward else brought
        return OutlierProbe(
            directions=np.ascontiguousarray(state.next_directions.T), keep=self.keep, codes=self.codes,
            known=np.intersect1d(state.pool.ids, state.home.ids), offset=state.offset, low=state.low,
            high=state.high, bins=BINS, chunk_rows=source.chunk_rows,
        )  # fmt: skip

    def skip(self, state: OutlierState) -> NDArray[np.bool_]:
        """Chunks (c,) of other stages; after the first read all but those that are wanted."""
        if state.reading:
            return np.isin(np.arange(self.source.chunks), self.reading.chunks(state), invert=True)
        return np.isin(np.arange(self.source.chunks), state.wanted, invert=True)

    def ahead(self, state: OutlierState) -> NDArray[np.intp]:
        """The next stage but one."""
        known = state.reading and not state.onward
        return self.stages.chunks(state.stage + 1) if known else super().ahead(state)

    # update

    def update(self, state: OutlierState, summary: Answer) -> OutlierState:
        """The state after a stage or a scan."""
        if isinstance(summary, OutlierSummary):
            return self.without_reading(self._scanned(state, summary))
        if isinstance(summary, AllRows):
            state = self.reading.first(state, summary.sent)
        else:
            state = self.reading.later(state, summary)
        if state.reading:
            return state
        searches = tuple(replace(search, radius=state.radius) for search in state.searches)
        return replace(self._counted(self.without_reading(replace(state, searches=searches))), new_rows=state.new_rows)

    def without_reading(self, state: OutlierState) -> OutlierState:
        """Measure without reading what waits for it, until chunks have to be read for that, or nothing waits."""
        while state.status == "running" and len(state.next_directions):
            directions, chunks = state.next_directions, np.arange(self.source.chunks)
            home = at_home(state.home, directions, self.keep, self.reading.longest, state.pool.ids)
            floors = state.ledger.screen(self.source, directions.T, chunks)
            standing = [Standing(s.k, s.best.margin, self._expected(state, s.k)) for s in state.searches]
            wanted = np.flatnonzero(unproven(home, floors, directions, standing, self.intercept, self.epsilon))
            if len(wanted):
                lower = cut_off(home, floors.min(axis=2))
                return replace(self._improved(state, lower) if state.phase == "settle" else state, wanted=wanted)
            state = self._measured(state, home, floors.min(axis=2))
        return state

    def _scanned(self, state: OutlierState, summary: OutlierSummary) -> OutlierState:
        """After a scan of the chunks that were wanted: of the others rows at home and floors speak, as before."""
        read, directions = state.wanted, state.next_directions
        unread = np.setdiff1d(np.arange(self.source.chunks), read)
        if not len(unread):
            state = replace(state, histogram=summary.histogram, counted_at=np.zeros(self.source.features))
        elsewhere = state.home.take(np.isin(state.home.ids // self.source.chunk_rows, read, invert=True))
        home = at_home(elsewhere, directions, self.keep, self.reading.longest, state.pool.ids)
        floors = state.ledger.screen(self.source, directions.T, unread).min(axis=2, initial=np.inf)
        state = replace(state, round=state.round + 1, wanted=np.zeros(0, np.int64))
        return self._measured(self._grown(state, summary), home.merge(summary), floors)

    def _measured(self, state: OutlierState, home: OutlierSummary, floors: Array) -> OutlierState:
        """Incumbents and pool after the directions that waited were measured, and those that wait now.

        home: rows that were read or are at home; floors (m, 2): those of all others.
        """
        summary, directions = cut_off(home, floors), state.next_directions
        measured = self._best_measured(state, summary)
        left_out = self._left_out(state, summary, measured)
        pool = state.pool.add(worth_having(state, home, self.ks[-1], self.intercept))
        grown = len(pool) - len(state.pool)
        scanned, _ = self._to_measure(state)
        lower_now = trimmed_margin(summary.lowest(0), directions[0], self.ks[-1], self.intercept)[0]
        state = replace(
            state, pool=pool, left_out=left_out, new_rows=grown, lower_now=lower_now,
            next_directions=np.zeros((0, self.source.features)),
        )  # fmt: skip
        state = self._answered(state, measured, grown=grown > 0, scanned=scanned)
        if state.phase == "settle":
            return state if self.published is None else self._enumerating(state, self.published)
        return self._evaluated(state)

    def _enumerating(self, state: OutlierState, algorithm: Published) -> OutlierState:
        """Before the first subset: incumbents need not settle, the published algorithms start from nothing."""
        state = pooled(state)
        return enumerating(state, self.search_rows(state), self.epsilon, algorithm)

    def _settled(self, state: OutlierState, run: Map) -> OutlierState:
        """While the heuristic finds more on the pool than is proven on all rows, measure that; then the search."""
        search_rows = self.search_rows(state)
        run = where_worth(run, search_rows)
        soft = soft_directions(search_rows)
        last: list[Array] = []
        next_directions: list[Array] = []
        for search in state.searches:
            starts = [search.best.w, *last, *soft]
            found = good_hyperplane(search_rows, search.k, starts, run, thorough=False)
            if not self._is_news(found, search):  # what is quickly found is measured before more time is spent
                found = good_hyperplane(search_rows, search.k, [search.best.w, found.w], run)
            last = [found.w]
            if self._is_news(found, search):
                next_directions += [found.w, *(t * found.w + (1 - t) * search.best.w for t in LINE_POINTS)]
        if next_directions and state.settling > 0:
            return self._with_directions(
                replace(state, settling=state.settling - 1), unit(next_directions)[: self.batch]
            )
        phase: Phase = "search" if self.exact else "climb"
        wrong = fewest_of([*(search.best.w for search in state.searches), *soft], search_rows)
        state = replace(state, phase=phase, pool=self._pool_of_search(state), wrong=wrong)
        return self._evaluated(contradicted(state, self.search_rows, run))

    def _counted(self, state: OutlierState) -> OutlierState:
        """With the margins of rows at home in the histogram, once, when incumbents have settled without a scan."""
        waits = state.phase == "settle" and not len(state.wanted)
        if waits or state.round > state.stages or np.any(state.counted_at):
            return state
        best = state.main.best
        histogram = state.histogram + margins_of(state.home, best, state.low, state.high, BINS)
        return replace(state, histogram=histogram, counted_at=best.w)

    def _pool_of_search(self, state: OutlierState) -> OutlierPool:
        """What the search begins with: the lowest rows under the incumbents, and ordinary ones."""
        found = lowest(state.pool, state.searches, max(POOL_ROWS // 2, self.keep))
        return found.add(state.spare)

    # search

    def work(self, state: OutlierState, run: Map) -> Iterator[OutlierState]:
        """What is done on the pool, step by step, until a scan is needed or all is said."""
        while state.status == "running" and not len(state.next_directions):
            if self._compiled(state):
                kernels.prepare()
            state = self._further(state, run)
            yield state

    def _further(self, state: OutlierState, run: Map) -> OutlierState:
        """After a step of the heuristic, a wave of subsets, a climb, or a round of the search that had least so far."""
        if state.phase == "settle":
            return self._counted(self.without_reading(self._settled(state, run)))
        if state.phase == "enumerate":
            state, next_directions = wave(state, self.search_rows(state), run)
        elif is_due(state):
            rows = max(POOL_ROWS // 2, self.keep)
            next_directions = climbed(state, rows, self.intercept, run, self._is_news)[: self.batch]
            state = over(state)
        else:
            return self._searched(state, run)
        return self.without_reading(self._with_directions(state, next_directions)) if len(next_directions) else state

    def _searched(self, state: OutlierState, run: Map) -> OutlierState:
        """After a round of a search."""
        searches, place = list(state.searches), next_place(state.searches)
        if self.exact:
            searches[place] = advance(searches[place], self.search_rows(state), run)
        else:
            searches[place] = bounded(searches[place], self.search_rows(state, compiled=True), run)
        shared_ = self._sharing(searches, searches[place].certificates)
        return self.without_reading(self._evaluated(replace(state, searches=shared_)))

    def _compiled(self, state: OutlierState) -> bool:
        """Whether the next step is worth compiled kernels."""
        if state.phase in ("settle", "enumerate"):
            return False
        return not self.exact or is_due(state) or state.searches[next_place(state.searches)].compiled
