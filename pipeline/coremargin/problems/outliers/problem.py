"""The best margin once k rows may be left out, of all rows of a store: its start, its scans, its search.

    sample    soft-margin directions, and the heuristic on the sample's lowest rows
    settle    scans measure the best directions and send their lowest rows, the pool; the heuristic on the pool
              gives better directions, until what they have on the pool is what they have on all rows: the incumbent
    climb     the heuristic alone: concentration from many starts, as tasks (climb.py)
    search    certificates and branching on the pool (maths/outliers); what the pool cannot decide, candidates, is
              measured by one scan for up to 32 of them
    end       no set of k rows allows more than ``upper``, and the incumbent has ``lower``, on all rows

Certificates of the pool are certificates of all rows; only lower bounds need scans. Several values of k share scans.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from coremargin.errors import UsageError
from coremargin.maths.outliers.certificates import SearchRows
from coremargin.maths.outliers.heuristic import Found, good_hyperplane, measure, soft_directions
from coremargin.maths.outliers.packing import bounded
from coremargin.maths.outliers.search import CANDIDATES, Map, Search, advance, believed, improved, verified
from coremargin.maths.outliers.trimmed import trimmed_margin
from coremargin.problems.common.start import (
    SAMPLE_BYTES,
    SAMPLE_SHARE,
    check_scale,
    read_sample,
    sample_chunks,
)
from coremargin.problems.common.two_class_problem import TwoClassProblem
from coremargin.problems.outliers.climb import climbed, lowest, over
from coremargin.problems.outliers.path import how_it_ended, shared
from coremargin.problems.outliers.probe import OutlierProbe
from coremargin.problems.outliers.result import result, round_of
from coremargin.problems.outliers.start import ORDINARY, begin
from coremargin.problems.outliers.state import LeftOut, OutlierPool, OutlierState, Phase, unit
from coremargin.problems.outliers.summary import OutlierSummary
from coremargin.problems.outliers.update import left_out_of, measured_best, worth_having

if TYPE_CHECKING:
    from collections.abc import Mapping

    from coremargin.engine.problem import Round
    from coremargin.maths.margin import Array
    from coremargin.problems.common.result import Result

#: Lowest rows that the pool of the search begins with.
POOL_ROWS = 1_000
#: Scans after the first that incumbents may take to settle, and points of the segment from the incumbent (0) to the
#: newest direction (1) that each of them measures besides.
SETTLING, LINE_POINTS = 4, (0.25, 0.5, 0.75, 0.9)
#: Rows beyond k that a scan sends for each class and direction are at most so many.
MOST_EXTRA = 1_000
#: Values that a block may send for its directions: bounds how many there are where k is large.
VALUES = 400_000
BINS = 200


@dataclass(frozen=True)
class OutlierMargin(TwoClassProblem[OutlierState, OutlierSummary]):
    """The largest margin with k rows left out, to a share 1 - epsilon of the best; for each k in ``ks``, increasing.

    exact: False for the heuristic's answer with an upper bound, whatever the distance. epsilon in [0, 1).
    """

    ks: tuple[int, ...]
    epsilon: float
    intercept: bool = True
    exact: bool = True
    pool_bytes: int = 256 << 20
    sample_share: float = SAMPLE_SHARE
    sample_bytes: int = SAMPLE_BYTES

    def check(self) -> None:
        """Refuse what cannot be trained, before a row is read.

        Raises UsageError when k rows may be all of one class, or the pool's rows, which are dense, need more than the
        memory.
        """
        codes = self.codes
        self._check_counts(self.source.scalars().counts[:, list(codes)].sum(axis=0), codes)
        rows = 4 * self.keep + POOL_ROWS
        need = 8 * self.source.features * rows
        if need > self.pool_bytes:
            raise UsageError(
                f"outliers: the search keeps some {rows:,} rows of {self.source.features:,} "
                f"features in memory, dense, and these need {need:,} bytes; found memory for {self.pool_bytes:,}: give "
                f"more with --memory, or fewer outliers"
            )

    def _check_counts(self, counts: NDArray[np.int64], codes: tuple[int, int]) -> None:
        """Raises UsageError when one of the classes, of so many rows (2,), may vanish."""
        smaller = int(np.argmin(counts))
        if counts[smaller] <= self.ks[-1]:
            why = "the margin has no bound" if self.intercept else "the others are of one class"
            raise UsageError(
                f"outliers: {self.ks[-1]:,} rows may be left out, and class {self.source.classes[codes[smaller]]!r} of "
                f"{self.source.name} has {counts[smaller]:,}: with all of it left out {why}; give a "
                f"number below {counts[smaller]:,}"
            )

    def round_of(self, state: OutlierState) -> Round:
        """What is told of a state."""
        return round_of(state)

    def result(self, state: OutlierState) -> Result:
        """The model that a state stands for."""
        return result(state, self.search_rows(state), sparse=self.source.sparse)

    def restore(self, arrays: Mapping[str, NDArray[Any]]) -> OutlierState:
        """A state from a checkpoint."""
        return OutlierState.from_arrays(arrays, len(self.ks))

    def search_rows(self, state: OutlierState) -> SearchRows:
        """The pool as the search sees it."""
        return SearchRows(state.pool.x, state.pool.signs, state.centre, intercept=self.intercept)

    # start

    @property
    def sample_chunks(self) -> list[int]:
        """The chunks that are read before the first scan."""
        return sample_chunks(self.source, self.codes, self.sample_share, self.sample_bytes)

    def start(self) -> OutlierState:
        """Directions from a sample; nothing is proven yet."""
        check_scale(self.source)
        sample = read_sample(self.source, self.sample_chunks, self.codes)
        share = len(sample.chunks) / self.source.chunks
        first = begin(sample, share, self.ks, self.keep, self.ordinary, intercept=self.intercept)
        nothing = Found.nothing(self.source.features)
        searches = tuple(Search(k, self.epsilon, first.radius, nothing, np.inf, batch=self.batch) for k in self.ks)
        return OutlierState(
            round=0, status="running", pool=OutlierPool.nothing(self.source.features), spare=first.ordinary,
            centre=first.centre, radius=first.radius, phase="settle", settling=SETTLING,
            next_directions=first.directions[: self.batch],
            searches=searches, left_out=tuple(LeftOut.nothing() for _ in self.ks),
            histogram=np.zeros((2, BINS), np.int64), low=first.low, high=first.high, offset=first.offset, new_rows=0,
            sample_bytes=sample.nbytes(self.source),
        )  # fmt: skip

    # probe

    @property
    def keep(self) -> int:
        """Rows of each class that a scan sends for a direction."""
        return self.ks[-1] + 1 + min(4 * (self.source.features + 2), MOST_EXTRA)

    @property
    def ordinary(self) -> int:
        """Ordinary rows that the pool gets: enough for k + 1 certificates of d + 2 rows without a common row."""
        room = self.pool_bytes // (4 * 8 * self.source.features)
        return max(ORDINARY, min((self.source.features + 2) * (self.ks[-1] + 1), room))

    @property
    def batch(self) -> int:
        """Directions that one scan measures at most."""
        return max(1, min(CANDIDATES, VALUES // (2 * self.keep)))

    def probe(self, state: OutlierState) -> OutlierProbe:
        """The question of the next scan: the directions that wait to be measured."""
        return OutlierProbe(
            directions=np.ascontiguousarray(state.next_directions.T), keep=self.keep, codes=self.codes,
            known=np.sort(state.pool.ids), offset=state.offset, low=state.low, high=state.high, bins=BINS,
            chunk_rows=self.source.chunk_rows,
        )  # fmt: skip

    # update

    def update(self, state: OutlierState, summary: OutlierSummary) -> OutlierState:
        """Incumbents and pool after a scan, and the directions that the next one is to measure.

        Raises UsageError when so many rows have weight 0 that a class may vanish, which only a scan can tell.
        """
        self._check_counts(summary.seen, self.codes)
        measured = [
            measured_best(state.next_directions, summary, search.k, self.intercept) for search in state.searches
        ]
        left_out = tuple(
            left_out_of(summary, state.next_directions[j], j, found, search.k)
            if found.margin > search.best.margin
            else before
            for (found, j), search, before in zip(measured, state.searches, state.left_out, strict=True)
        )
        pool = state.pool.add(worth_having(state, summary, self.ks[-1], self.intercept))
        grown = len(pool) - len(state.pool)
        scanned, _ = self._to_measure(state)
        lower_now = trimmed_margin(summary.lowest(0), state.next_directions[0], self.ks[-1], self.intercept)[0]
        state = replace(
            state, round=state.round + 1, pool=pool, left_out=left_out, histogram=summary.histogram, new_rows=grown,
            lower_now=lower_now, next_directions=np.zeros((0, self.source.features)),
        )  # fmt: skip
        search_rows, searches = self.search_rows(state), list(state.searches)
        for place, (found, _) in enumerate(measured):
            search = searches[place]
            better = found.margin > search.best.margin
            if place in scanned:
                searches[place] = verified(search, found) if better or grown else believed(search, search_rows)
            elif better:
                searches[place] = improved(search, found)
        state = replace(state, searches=tuple(searches))
        return self._settled(state) if state.phase == "settle" else self._evaluated(state)

    def _settled(self, state: OutlierState) -> OutlierState:
        """While the heuristic finds more on the pool than is proven on all rows, measure that; then the search."""
        search_rows = self.search_rows(state)
        soft = soft_directions(search_rows)
        last: list[Array] = []
        next_directions: list[Array] = []
        for search in state.searches:
            starts = [search.best.w, *last, *soft]
            found = good_hyperplane(search_rows, search.k, starts, thorough=False)
            if not self._is_news(found, search):  # what is quickly found is measured before more time is spent
                found = good_hyperplane(search_rows, search.k, [search.best.w, found.w])
            last = [found.w]
            if self._is_news(found, search):
                next_directions += [found.w, *(t * found.w + (1 - t) * search.best.w for t in LINE_POINTS)]
        if next_directions and state.settling > 0:
            return self._with_directions(
                replace(state, settling=state.settling - 1), unit(next_directions)[: self.batch]
            )
        phase: Phase = "search" if self.exact else "climb"
        return self._evaluated(replace(state, phase=phase, pool=self._pool_of_search(state)))

    def _is_news(self, found: Found, search: Search) -> bool:
        """Whether a hyperplane has more on the pool than the incumbent has on all rows, by what matters."""
        slack = max(0.5 * self.epsilon, 1e-9) * abs(found.margin) + 1e-10 * search.radius
        return found.margin > max(search.best.margin, 0.0) + slack

    def _pool_of_search(self, state: OutlierState) -> OutlierPool:
        """What the search begins with: the lowest rows under the incumbents, and ordinary ones."""
        found = lowest(state.pool, state.searches, max(POOL_ROWS // 2, self.keep))
        return found.add(state.spare)

    # search

    def work(self, state: OutlierState, run: Map) -> Iterator[OutlierState]:
        """The search on the pool, round by round, until a scan is needed or all is said."""
        if state.phase == "climb" and state.status == "running" and not len(state.next_directions):
            rows = max(POOL_ROWS // 2, self.keep)
            next_directions = climbed(state, rows, self.intercept, run, self._is_news)[: self.batch]
            state = self._with_directions(over(state), next_directions) if len(next_directions) else over(state)
            yield state
        while state.status == "running" and not len(state.next_directions):
            open_ = [p for p, s in enumerate(state.searches) if s.status == "open" and not s.wants_scan]
            place = min(open_, key=lambda p: (state.searches[p].work, p))  # what is easy is done first
            further = advance if self.exact else bounded
            search = further(state.searches[place], self.search_rows(state), run)
            searches = (*state.searches[:place], search, *state.searches[place + 1 :])
            state = self._evaluated(replace(state, searches=searches))
            yield state

    def _evaluated(self, state: OutlierState) -> OutlierState:
        """What comes next: more search, a scan for the candidates, or the end."""
        longest = float(self.source.scalars().max_norm.max())
        state = shared(state, longest)
        open_ = [search for search in state.searches if search.status == "open"]
        if not open_:
            return replace(state, status=how_it_ended(state, longest))
        if any(not search.wants_scan for search in open_):
            return state
        return self._with_directions(state, self._to_measure(state)[1])

    def _to_measure(self, state: OutlierState) -> tuple[list[int], Array]:
        """The searches whose candidates the next scan measures, and these as directions (m, d)."""
        places: list[int] = []
        next_directions = np.zeros((0, self.source.features))
        for place, search in enumerate(state.searches):
            mine = unit([candidate.verdict.point for candidate in search.candidates])
            if len(mine) and (not places or len(next_directions) + len(mine) <= self.batch):
                places.append(place)
                next_directions = np.concatenate([next_directions, mine])
        return places, next_directions

    def _with_directions(self, state: OutlierState, next_directions: Array) -> OutlierState:
        """With directions for the next scan to measure, and the first one's offset."""
        return replace(
            state,
            next_directions=next_directions,
            offset=measure(self.search_rows(state), next_directions[0], self.ks[-1]).b,
        )
