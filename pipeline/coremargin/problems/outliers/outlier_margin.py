"""The largest margin of all rows of a store once k of them are excluded: first read, scans and search.

    first read  the rows of a few chunks give directions; the other chunks are read once, in stages that send the rows
                that may be low and lower bounds for the rest (first_read.py)
    settle      the best directions are measured on cached rows and lower bounds (cached_rows.py), and their lowest rows
                become the working set; the heuristic improves the directions on the working set until their margin
                there equals their margin on all rows: the incumbent
    climb       heuristic only: concentration from many starts, each a task
    enumerate   published algorithms only: all subsets of a coreset's size, as tasks (enumeration.py)
    search      certificates and branching on the working set (maths/outliers); what the working set cannot decide,
                candidates, is measured on all rows, up to 32 at a time
    end         no choice of k rows allows a margin above ``upper``, and the incumbent reaches ``lower`` on all rows

Certificates of the working set are certificates of all rows; only lower bounds need all rows. A scan reads only the
chunks whose lower bounds leave the margin of a direction open, and none when no chunk does. Several values of k share
all of this: excluding k rows includes excluding fewer, so the best margin does not fall as k grows, an incumbent for k
is one for every larger k, and an upper bound for k holds for every smaller k.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor, wait
from dataclasses import dataclass, replace
from functools import cached_property
from itertools import accumulate
from typing import TYPE_CHECKING, Any, TypeAlias

import numpy as np
from numpy.typing import NDArray

from coremargin.data.view import bytes_read
from coremargin.engine.memory_need import MemoryNeed
from coremargin.engine.problem import CannotWarmStart
from coremargin.errors import UsageError
from coremargin.maths.margin import is_nothing, meets
from coremargin.maths.outliers.certificates import Certificates, SearchRows
from coremargin.maths.outliers.explore import compile_kernels
from coremargin.maths.outliers.heuristic import (
    Hyperplane,
    climb,
    fewest_misclassified,
    find_hyperplane,
    measure,
    soft_directions,
)
from coremargin.maths.outliers.packing import bound_by_packing
from coremargin.maths.outliers.search import (
    CANDIDATES,
    Search,
    accept_candidates,
    after_scan,
    finished,
    is_close,
    run_round,
    with_incumbent,
    with_upper_bound,
)
from coremargin.maths.outliers.tasks import TaskRunner, run_serially
from coremargin.maths.outliers.trimmed import trimmed_margin
from coremargin.maths.rows import of_dense, products
from coremargin.maths.stopping import may_stop
from coremargin.problems.common.classes import check_scale, count_weighted_rows, signs_of, two_classes
from coremargin.problems.common.driver_rows import SignedRows
from coremargin.problems.common.map_rounding import margin_rounding, widen_margin_bounds
from coremargin.problems.common.result import TwoClassProblem
from coremargin.problems.common.sample import SAMPLE_BYTES, SAMPLE_SHARE, sample_chunks
from coremargin.problems.common.sent import AllRows, AllRowsProbe
from coremargin.problems.common.sizes import wanted_working_set_rows, working_set_row_bytes
from coremargin.problems.common.stages import Stages, plan_stages, stage_growth
from coremargin.problems.common.warm_start import TOO_MANY, RowFetcher, appended_to_last_chunk, most_cached_rows
from coremargin.problems.hard.block_bounds import BlockBounds
from coremargin.problems.hard.probe import MarginSummary
from coremargin.problems.outliers.cached_rows import (
    Promise,
    apply_lower_bounds,
    margin_histogram,
    measure_cached,
    undecided_chunks,
)
from coremargin.problems.outliers.enumeration import check_subsets, start_enumerations, with_all_rows, with_next_wave
from coremargin.problems.outliers.first_read import ORDINARY, FirstRead, merge_rows
from coremargin.problems.outliers.overlap import find_overlap
from coremargin.problems.outliers.probe import OutlierProbe, OutlierSummary
from coremargin.problems.outliers.result import describe_round, make_result
from coremargin.problems.outliers.state import (
    ExcludedRows,
    OutlierState,
    OutlierWorkingSet,
    Phase,
    Status,
    unit_directions,
)

if TYPE_CHECKING:
    from coremargin.data.difference import Difference
    from coremargin.data.source import Source
    from coremargin.engine.allowance import Allowance
    from coremargin.engine.problem import Round
    from coremargin.maths.margin import Array
    from coremargin.maths.outliers.published import Published
    from coremargin.problems.common.result import Result
    from coremargin.problems.hard.probe import MarginProbe

#: Size of the working set when the search begins.
WORKING_SET_ROWS = 1_000
#: A scan sends at most this many rows beyond k for each class and direction.
MOST_EXTRA = 1_000
#: A block sends at most this many values; this limits the number of directions when k is large.
MOST_VALUES = 400_000
#: Measurements until incumbents must have settled, and points on the segment from the incumbent (0) to the new
#: direction (1) that each of them includes.
SETTLING, LINE_POINTS = 8, (0.25, 0.5, 0.75, 0.9)
BINS = 200
#: Directions whose rows join the working set at first: the soft directions of a small store may be far off.
BEST_DIRECTIONS = 4
#: Perturbed incumbents to climb from, and their expected distance as a share of the incumbent's length.
PERTURBED, SHARES = 8, (0.1, 0.3)
#: Work after which a search gets a climb: a better incumbent would then save more than the climb costs.
LONG = 10_000
#: Entries of the working set from which tasks of the heuristic are worth sending to workers.
WORTH_SENDING = 100_000
#: Seconds between two checks whether the job is to stop while kernels compile.
POLL_S = 0.1

_kernels_loaded: list[bool] = []

Summary: TypeAlias = AllRows | MarginSummary | OutlierSummary


@dataclass(frozen=True)
class OutlierMargin(TwoClassProblem[OutlierState, Summary]):
    """The largest margin with k rows excluded, to a share 1 - epsilon of the best, for each k in ``ks`` (increasing).

    exact: False for the heuristic's answer with an upper bound, however far apart. published: run this published
    algorithm; exact is then False. epsilon in [0, 1), above 0 for published algorithms.
    """

    ks: tuple[int, ...]
    epsilon: float
    intercept: bool = True
    exact: bool = True
    published: Published | None = None
    memory_bytes: int = 256 << 20
    sample_share: float = SAMPLE_SHARE
    sample_bytes: int = SAMPLE_BYTES

    def check(self) -> None:
        """Check the job before any row is read.

        Raises UsageError when k rows can be all of a class, when a published algorithm would have too many subsets to
        try, or when the rows of the search, which are dense, do not fit in memory.
        """
        codes = two_classes(self.source, one_vs_rest=False)
        counts = self.source.scalars().counts[:, list(codes)].sum(axis=0)
        self._check_counts(counts, codes)
        rows = 4 * self.keep + WORKING_SET_ROWS
        if self.published is not None:
            rows = max(rows, 2 * int(counts.sum()))  # half of the memory is for cached rows: all of them
            check_subsets(int(counts.sum()), self.source.features, self.ks, self.epsilon, self.published)
        need = 8 * self.source.features * rows
        if need > self.memory_bytes:
            raise UsageError(
                f"outliers: the search keeps about {rows:,} rows of {self.source.features:,} features in memory, "
                f"dense, and these need {need:,} bytes; found memory for {self.memory_bytes:,}: give more with "
                f"--memory, or fewer outliers"
            )

    def _check_counts(self, counts: NDArray[np.int64], codes: tuple[int, int]) -> None:
        """Raise UsageError when all rows of a class can be excluded; counts (2,)."""
        smaller = int(np.argmin(counts))
        if counts[smaller] <= self.ks[-1]:
            why = "the margin has no bound" if self.intercept else "the others are of one class"
            raise UsageError(
                f"outliers: {self.ks[-1]:,} rows may be excluded, and class {self.source.classes[codes[smaller]]!r} of "
                f"{self.source.name} has {counts[smaller]:,}: with all of it excluded {why}; give a number below "
                f"{counts[smaller]:,}"
            )

    @property
    def memory_need(self) -> MemoryNeed:
        """Memory for the rows of the search, dense, and for what the first read sends."""
        rows = min(self.source.rows, max(4 * self.keep + WORKING_SET_ROWS, wanted_working_set_rows(self.source)))
        size = rows * max(8 * self.source.features, 2 * working_set_row_bytes(self.source))
        return MemoryNeed(self.memory_bytes, size, rows, "candidates", "with less, chunks are read again")

    @property
    def keep(self) -> int:
        """Rows of each class that a scan sends for a direction."""
        return self.ks[-1] + 1 + min(4 * (self.source.features + 2), MOST_EXTRA)

    @property
    def ordinary(self) -> int:
        """Ordinary rows of the working set: enough for k + 1 disjoint certificates of d + 2 rows."""
        room = self.memory_bytes // (4 * 8 * self.source.features)
        return max(ORDINARY, min((self.source.features + 2) * (self.ks[-1] + 1), room))

    @property
    def batch(self) -> int:
        """Directions that one scan measures at most."""
        return max(1, min(CANDIDATES, MOST_VALUES // (2 * self.keep)))

    @property
    def sample_chunks(self) -> list[int]:
        """The chunks of the first stage: all of a small store."""
        return sample_chunks(self.source, self.codes, self.sample_share, self.sample_bytes)

    @cached_property
    def stages(self) -> Stages:
        """The chunks of each stage of the first read."""
        growth = stage_growth(self.source.rows, self.source.features)
        return plan_stages(self.source.chunks, self.sample_chunks, growth)

    @property
    def stage_chunks(self) -> tuple[int, ...]:
        """Number of chunks of each stage."""
        return self.stages.sizes

    @property
    def reads_again(self) -> bool:
        """Whether the search may read chunks again: unless one stage has sent all rows."""
        return self.stages.count > 1

    @cached_property
    def first_read(self) -> FirstRead:
        """The first read of the store."""
        most = self.memory_bytes // (2 * working_set_row_bytes(self.source))
        return FirstRead(self.source, self.codes, self.stages, self.ks, self.intercept, self.keep, self.ordinary, most)

    def restore(self, arrays: Mapping[str, NDArray[Any]]) -> OutlierState:
        """A state from a checkpoint."""
        return OutlierState.from_arrays(arrays, len(self.ks))

    def start(self) -> OutlierState:
        """The state before the first stage. Raises UsageError when all rows of a class that count can be excluded."""
        check_scale(self.source)
        self._check_counts(count_weighted_rows(self.source)[list(self.codes)], self.codes)
        source = self.source
        none, empty = Hyperplane.none(source.features), OutlierWorkingSet.nothing(source.features)
        return OutlierState(
            round=0,
            status="running",
            working_set=empty,
            ordinary=empty,
            centre=np.zeros(source.features),
            radius=0.0,
            searches=tuple(Search(k, self.epsilon, 0.0, none, np.inf, batch=self.batch) for k in self.ks),
            excluded=tuple(ExcludedRows.none() for _ in self.ks),
            phase="settle",
            settling=SETTLING,
            next_directions=np.zeros((1, source.features)),
            histogram=np.zeros((2, BINS), np.int64),
            low=0.0,
            high=1.0,
            offset=0.0,
            new_rows=0,
            cached=SignedRows.nothing(source.features, source.dtype, sparse=source.sparse),
            block_bounds=BlockBounds.unknown(source.chunks, source.features),
            move=np.zeros(source.features + 1),
            chunks_to_read=np.zeros(0, np.int64),
            counted_at=np.zeros(source.features),
            stages=self.stages.count,
        )

    def unsolved(self) -> OutlierState:
        """The state of a job that ends before anything is solved."""
        return self.start()

    def probe(self, state: OutlierState) -> AllRowsProbe | MarginProbe | OutlierProbe:
        """The probe of the next stage or, after the first read, of the next scan."""
        source = self.source
        if state.in_first_read:
            if state.stage or state.warm_started:
                return self.first_read.probe(state)
            return AllRowsProbe(self.codes, source.features, source.dtype.name, source.sparse)
        return OutlierProbe(
            directions=np.ascontiguousarray(state.next_directions.T),
            keep=self.keep,
            codes=self.codes,
            known=np.intersect1d(state.working_set.ids, state.cached.ids),
            offset=state.offset,
            low=state.low,
            high=state.high,
            bins=BINS,
            chunk_rows=source.chunk_rows,
        )

    def skip(self, state: OutlierState) -> NDArray[np.bool_]:
        """Chunks (c,) that the next stage or scan does not read."""
        chunks = self.first_read.chunks(state) if state.in_first_read else state.chunks_to_read
        return np.isin(np.arange(self.source.chunks), chunks, invert=True)

    def ahead(self, state: OutlierState) -> NDArray[np.intp]:
        """The chunks of the stage after the next one, when known."""
        known = state.in_first_read and not state.warm_started
        return self.stages.chunks(state.stage + 1) if known else super().ahead(state)

    # Stages, scans, and what they say about the directions that wait for them.

    def update(self, state: OutlierState, summary: Summary) -> OutlierState:
        """The state after a stage or a scan."""
        if isinstance(summary, OutlierSummary):
            return self._measure_without_reading(self._after_scan(state, summary))
        if isinstance(summary, AllRows):
            state = self.first_read.after_first_stage(state, summary.sent)
        else:
            state = self.first_read.after_stage(state, summary)
        if state.in_first_read:
            return state
        searches = tuple(replace(search, radius=state.radius) for search in state.searches)
        measured = self._measure_without_reading(replace(state, searches=searches))
        return replace(self._with_histogram(measured), new_rows=state.new_rows)

    def _measure_without_reading(self, state: OutlierState) -> OutlierState:
        """Measure the waiting directions on cached rows and lower bounds, until chunks must be read or none wait."""
        while state.status == "running" and len(state.next_directions):
            directions, chunks = state.next_directions, np.arange(self.source.chunks)
            cached = measure_cached(state.cached, directions, self.keep, self.first_read.longest, state.working_set.ids)
            bounds = state.block_bounds.screen(self.source, directions.T, chunks)
            promises = [Promise(s.k, s.best.margin, self._expected_margins(state, s.k)) for s in state.searches]
            undecided = undecided_chunks(cached, bounds, directions, promises, self.intercept, self.epsilon)
            to_read = np.flatnonzero(undecided)
            if len(to_read):
                if state.phase == "settle":  # what a job has that ends before the scan
                    state = self._with_measured_incumbents(state, apply_lower_bounds(cached, bounds.min(axis=2)))
                return replace(state, chunks_to_read=to_read)
            state = self._measured(state, cached, bounds.min(axis=2))
        return state

    def _expected_margins(self, state: OutlierState, k: int) -> Array:
        """The margin of each waiting direction (m,) on the working set; while settling, the largest of them."""
        search_rows = self.search_rows(state)
        margins = np.array([measure(search_rows, w, k).margin for w in state.next_directions])
        return np.full_like(margins, margins.max()) if state.phase == "settle" else margins

    def _after_scan(self, state: OutlierState, summary: OutlierSummary) -> OutlierState:
        """The state after a scan of ``chunks_to_read``; cached rows and bounds stand for all other chunks."""
        read, directions = state.chunks_to_read, state.next_directions
        unread = np.setdiff1d(np.arange(self.source.chunks), read)
        if not len(unread):
            state = replace(state, histogram=summary.histogram, counted_at=np.zeros(self.source.features))
        elsewhere = state.cached.take(np.isin(state.cached.ids // self.source.chunk_rows, read, invert=True))
        cached = measure_cached(elsewhere, directions, self.keep, self.first_read.longest, state.working_set.ids)
        bounds = state.block_bounds.screen(self.source, directions.T, unread).min(axis=2, initial=np.inf)
        state = replace(state, round=state.round + 1, chunks_to_read=np.zeros(0, np.int64))
        return self._measured(self._cache_sent_rows(state, summary), cached.merge(summary), bounds)

    def _cache_sent_rows(self, state: OutlierState, summary: OutlierSummary) -> OutlierState:
        """Cache the rows that a scan sent, as far as there is room, and record its bounds where they are better."""
        source, before, w = self.source, state.block_bounds, state.next_directions[0]
        read, bounds = summary.chunk, summary.unsent_bounds
        better = (bounds >= before.screen(source, w[:, None], read)[0].T).all(axis=1)
        block_bounds = before.record(read[better], bounds[better], w)
        new = np.flatnonzero(np.isin(summary.row_id, state.cached.ids, invert=True))
        new, dropped = np.split(new, [max(0, self.first_read.most - len(state.cached))])
        block_bounds = block_bounds.lowered(
            summary.row_id[dropped] // source.chunk_rows, summary.row_x[dropped], summary.row_sign[dropped]
        )
        rows = of_dense(summary.row_x[new].astype(source.dtype), sparse=source.sparse)
        sent = SignedRows(summary.row_id[new], rows, summary.row_sign[new])
        return replace(state, cached=merge_rows(state.cached, sent), block_bounds=block_bounds)

    def _measured(self, state: OutlierState, known: OutlierSummary, bounds: Array) -> OutlierState:
        """Incumbents, working set and next directions once the waiting directions are measured on all rows.

        known: rows that were read or are cached; bounds (m, 2): lower bounds of all others.
        """
        summary, directions = apply_lower_bounds(known, bounds), state.next_directions
        best = self._best_measured(state, summary)
        excluded = self._excluded(state, summary, best)
        working_set = state.working_set.add(rows_to_add(state, known, self.ks[-1], self.intercept))
        added = len(working_set) - len(state.working_set)
        scanned, _ = self._candidate_directions(state)
        lower_now = trimmed_margin(summary.lowest(0), directions[0], self.ks[-1], self.intercept)[0]
        state = replace(
            state,
            working_set=working_set,
            excluded=excluded,
            new_rows=added,
            lower_now=lower_now,
            next_directions=np.zeros((0, self.source.features)),
        )
        state = self._update_searches(state, best, added=added > 0, scanned=scanned)
        if state.phase != "settle":
            return self._continue_search(state)
        if self.published is None:
            return state
        state = with_all_rows(state)  # incumbents need not settle: the published algorithms start from scratch
        return start_enumerations(state, self.search_rows(state), self.epsilon, self.published)

    def _with_measured_incumbents(self, state: OutlierState, summary: OutlierSummary) -> OutlierState:
        best = self._best_measured(state, summary)
        searches = tuple(with_incumbent(search, found) for search, (found, _) in zip(state.searches, best, strict=True))
        return replace(state, searches=searches, excluded=self._excluded(state, summary, best))

    def _best_measured(self, state: OutlierState, summary: OutlierSummary) -> list[tuple[Hyperplane, int]]:
        """For each k the best of the measured directions, proven on all rows, and its position."""
        found = []
        for search in state.searches:
            best, place = Hyperplane.none(state.next_directions.shape[1]), 0
            for j, w in enumerate(state.next_directions):
                margin, b = trimmed_margin(summary.lowest(j), w, search.k, self.intercept)
                if margin > best.margin:
                    best, place = Hyperplane(w, b, margin), j
            found.append((best, place))
        return found

    def _excluded(
        self, state: OutlierState, summary: OutlierSummary, measured: list[tuple[Hyperplane, int]]
    ) -> tuple[ExcludedRows, ...]:
        """The rows that each incumbent excludes, with measured directions as incumbents where they are better."""
        directions = state.next_directions
        return tuple(
            rows_below(summary, directions[j], j, found, search.k) if found.margin > search.best.margin else before
            for (found, j), search, before in zip(measured, state.searches, state.excluded, strict=True)
        )

    def search_rows(self, state: OutlierState, *, compiled: bool = False) -> SearchRows:
        """The working set as the search uses it. The last one is cached: working sets are large."""
        key = (state.working_set, state.centre, compiled)
        if not self._last_search_rows or any(
            a is not b for a, b in zip(key, self._last_search_rows[0][0], strict=True)
        ):
            rows = SearchRows(
                state.working_set.x,
                state.working_set.signs,
                state.centre,
                intercept=self.intercept,
                compiled=compiled,
            )
            self._last_search_rows[:] = [(key, rows)]
        return self._last_search_rows[0][1]

    @cached_property
    def _last_search_rows(self) -> list[tuple[tuple[OutlierWorkingSet, Array, bool], SearchRows]]:
        return []

    # Work on the working set between scans.

    def work(self, state: OutlierState, run: TaskRunner) -> Iterator[OutlierState]:
        """Work step by step until a scan is needed or the job is done."""
        while state.status == "running" and not len(state.next_directions):
            if self._needs_kernels(state):
                load_kernels()
            state = self._step(state, run)
            yield state

    def _needs_kernels(self, state: OutlierState) -> bool:
        """Whether the next step runs compiled kernels."""
        if state.phase in ("settle", "enumerate"):
            return False
        return not self.exact or climb_is_due(state) or state.searches[next_search(state.searches)].compiled

    def _step(self, state: OutlierState, run: TaskRunner) -> OutlierState:
        """Run a step of the heuristic, a wave of subsets, a climb, or a round of the search with the least work."""
        if state.phase == "settle":
            return self._with_histogram(self._measure_without_reading(self._settle(state, run)))
        if state.phase == "enumerate":
            state, directions = with_next_wave(state, self.search_rows(state), run)
        elif climb_is_due(state):
            rows = max(WORKING_SET_ROWS // 2, self.keep)
            directions = climb_directions(state, rows, self.intercept, run, self._is_improvement)[: self.batch]
            state = replace(state, phase="search", climbed=True)
        else:
            return self._search(state, run)
        return self._measure_without_reading(self._with_directions(state, directions)) if len(directions) else state

    def _settle(self, state: OutlierState, run: TaskRunner) -> OutlierState:
        """Measure what the heuristic finds beyond the incumbents; when it finds nothing more, begin the search."""
        search_rows = self.search_rows(state)
        run = runner_for(run, search_rows)
        soft = soft_directions(search_rows)
        last: list[Array] = []
        directions: list[Array] = []
        for search in state.searches:
            starts = [search.best.w, *last, *soft]
            found = find_hyperplane(search_rows, search.k, starts, run, thorough=False)
            if not self._is_improvement(found, search):  # a quick improvement is measured before more time is spent
                found = find_hyperplane(search_rows, search.k, [search.best.w, found.w], run)
            last = [found.w]
            if self._is_improvement(found, search):
                directions += [found.w, *(t * found.w + (1 - t) * search.best.w for t in LINE_POINTS)]
        if directions and state.settling > 0:
            state = replace(state, settling=state.settling - 1)
            return self._with_directions(state, unit_directions(directions)[: self.batch])
        phase: Phase = "search" if self.exact else "climb"
        wrong = fewest_misclassified([*(search.best.w for search in state.searches), *soft], search_rows)
        lowest = lowest_under_incumbents(state.working_set, state.searches, max(WORKING_SET_ROWS // 2, self.keep))
        state = replace(state, phase=phase, working_set=lowest.add(state.ordinary), wrong=wrong)
        return self._continue_search(find_overlap(state, self.search_rows, run))

    def _is_improvement(self, found: Hyperplane, search: Search) -> bool:
        """Whether a margin on the working set exceeds the incumbent's on all rows by more than a slack."""
        slack = max(0.5 * self.epsilon, 1e-9) * abs(found.margin) + 1e-10 * search.radius
        return found.margin > max(search.best.margin, 0.0) + slack

    def _with_histogram(self, state: OutlierState) -> OutlierState:
        """Add the margins of cached rows to the histogram, once, when incumbents have settled without a scan."""
        waiting = state.phase == "settle" and not len(state.chunks_to_read)
        if waiting or state.round > state.stages or np.any(state.counted_at):
            return state
        best = state.main.best
        histogram = state.histogram + margin_histogram(state.cached, best, state.low, state.high, BINS)
        return replace(state, histogram=histogram, counted_at=best.w)

    def _search(self, state: OutlierState, run: TaskRunner) -> OutlierState:
        """Run a round of one search."""
        searches, place = list(state.searches), next_search(state.searches)
        if self.exact:
            searches[place] = run_round(searches[place], self.search_rows(state), run)
        else:
            searches[place] = bound_by_packing(searches[place], self.search_rows(state, compiled=True), run)
        shared = self._share_certificates(searches, searches[place].certificates)
        return self._measure_without_reading(self._continue_search(replace(state, searches=shared)))

    def _continue_search(self, state: OutlierState) -> OutlierState:
        """Share bounds between the searches; then search on, let candidates wait for a scan, or end."""
        longest = float(self.source.scalars().max_norm.max())
        state = share_bounds(state, longest, intercept=self.intercept)
        searching = [search for search in state.searches if search.status == "open"]
        if not searching:
            return replace(state, status=final_status(state, longest, intercept=self.intercept))
        if any(not search.wants_scan for search in searching):
            return state
        return self._with_directions(state, self._candidate_directions(state)[1])

    def _candidate_directions(self, state: OutlierState) -> tuple[list[int], Array]:
        """Positions of the searches whose candidates the next scan measures, and their directions (m, d)."""
        places: list[int] = []
        directions = np.zeros((0, self.source.features))
        for place, search in enumerate(state.searches):
            mine = unit_directions([candidate.solution.point for candidate in search.candidates])
            if len(mine) and (not places or len(directions) + len(mine) <= self.batch):
                places.append(place)
                directions = np.concatenate([directions, mine])
        return places, directions

    def _with_directions(self, state: OutlierState, directions: Array) -> OutlierState:
        """The state with directions that wait to be measured, and the offset of the first one."""
        offset = measure(self.search_rows(state), directions[0], self.ks[-1]).b
        return replace(state, next_directions=directions, offset=offset)

    def _update_searches(
        self, state: OutlierState, measured: list[tuple[Hyperplane, int]], *, added: bool, scanned: list[int]
    ) -> OutlierState:
        """Give the searches the best measured hyperplane for each k.

        added: whether the working set has grown; scanned: the searches whose candidates were measured.
        """
        search_rows, searches = self.search_rows(state), list(state.searches)
        certificates = state.main.certificates
        for place, (found, _) in enumerate(measured):
            search = replace(searches[place], certificates=certificates) if self.exact else searches[place]
            better = found.margin > search.best.margin
            if place in scanned:
                changed = better or added
                searches[place] = after_scan(search, found) if changed else accept_candidates(search, search_rows)
                certificates = searches[place].certificates
            elif better:
                searches[place] = with_incumbent(search, found)
        return replace(state, searches=self._share_certificates(searches, certificates))

    def _share_certificates(self, searches: list[Search], certificates: Certificates) -> tuple[Search, ...]:
        """Certificates of the working set serve every k, except the heuristic's, which belong to one k each."""
        if not self.exact:
            return tuple(searches)
        return tuple(replace(search, certificates=certificates) for search in searches)

    # Rounds and results.

    def round_of(self, state: OutlierState) -> Round:
        """The report of a round."""
        return describe_round(state)

    def result(self, state: OutlierState) -> Result:
        """The result of a state. The last one is cached: the gain of each excluded row takes a solve."""
        if self._last_result[:1] != [id(state)]:
            found = make_result(state, self.search_rows(state), sparse=self.source.sparse)
            claimed, moves = widen_margin_bounds(found, self.source, self.epsilon), margin_rounding(self.source)
            bounds = {"outliers_lower": found.extra["outliers_lower"] - moves}
            bounds |= {"outliers_upper": found.extra["outliers_upper"] + moves}
            self._last_result[:] = [id(state), state, replace(claimed, extra={**found.extra, **bounds})]
        last: Result = self._last_result[2]
        return last

    @cached_property
    def _last_result(self) -> list[Any]:
        return []

    # Warm start. Cached rows are known exactly and block bounds cover all others; both stay valid when rows are
    # appended, and a row with a new label or weight leaves the cache or enters it. So earlier incumbents are measured
    # again from cached rows and bounds; only new chunks are read, as a stage of their own that probes the incumbents.

    def warm_start_state(self, state: OutlierState, allowance: Allowance) -> Mapping[str, NDArray[Any]]:
        """The warm-start state; empty when no incumbent separates anything or a published algorithm ran."""
        if self.published is not None or state.in_first_read or state.lower <= 0:
            return {}
        most = most_cached_rows(self.source, allowance)
        return allowance.within(lambda rows: reduce_for_warm_start(state, self.source, rows).to_arrays(), most)

    def warm_start(self, arrays: Mapping[str, NDArray[Any]], difference: Difference) -> OutlierState:
        """The state from which a retraining starts. Raises CannotWarmStart."""
        initial = self.start()
        if not arrays:
            raise CannotWarmStart("the model had no hyperplane that was proven on all rows")
        state = self._warm_start(initial, self.restore(arrays), difference)
        return state if state.in_first_read else self._measure_without_reading(state)

    def _warm_start(self, initial: OutlierState, old: OutlierState, difference: Difference) -> OutlierState:
        """The state before new chunks, if any, are read."""
        source, fetched = self.source, RowFetcher(self.source, self.first_read.most)
        now = signs_of(difference.codes_after, difference.weights_after, self.codes)
        before = signs_of(difference.codes_before, difference.weights_before, self.codes)
        changed = np.flatnonzero(now != before)
        ids = difference.ids[changed]
        appended, codes, weights = appended_to_last_chunk(source, difference)
        coming, signs = np.append(ids, appended), np.append(now[changed], signs_of(codes, weights, self.codes))
        coming, signs = coming[signs != 0], signs[signs != 0]
        cached = merge_rows(old.cached.take(old.cached.unlike(ids)), fetch_rows(source, coming, signs, fetched))
        if len(cached) > self.first_read.most:
            raise CannotWarmStart(TOO_MANY)
        block_bounds = old.block_bounds.without(ids[:0], source.chunks)
        best = [search.best for search in old.searches[::-1] if np.any(search.best.w)]
        return replace(
            initial,
            cached=cached,
            block_bounds=block_bounds,
            ordinary=old.ordinary.take(old.ordinary.unlike(ids)),
            centre=old.centre,
            radius=old.radius,
            low=old.low,
            high=old.high,
            histogram=old.histogram,
            counted_at=old.counted_at,
            move=old.move,
            next_directions=unit_directions([found.w for found in best]),
            offset=best[0].b,
            warm_started=True,
            stages=int(len(block_bounds.unread) > 0),
            sample_bytes=difference.nbytes + bytes_read(source, fetched.rows),
            searches=tuple(replace(search, radius=old.radius) for search in initial.searches),
        )


def rows_below(summary: OutlierSummary, w: Array, j: int, found: Hyperplane, k: int) -> ExcludedRows:
    """The rows below the margin of direction j of a scan, at most k, lowest first."""
    length = float(np.linalg.norm(w))
    signs = np.repeat(np.array([1, -1], np.int8), summary.ids.shape[2])
    values, ids = summary.values[:, j].ravel(), summary.ids[:, j].ravel()
    margins = values / length + signs * found.b
    order = np.lexsort((ids, margins))[:k]
    order = order[margins[order] < found.margin]
    return ExcludedRows(ids[order], margins[order], signs[order])


def rows_to_add(state: OutlierState, summary: OutlierSummary, k: int, intercept: bool) -> OutlierWorkingSet:
    """The rows that join the working set when directions were measured.

    At first those of the best directions; while incumbents settle, all; then the lowest few of each candidate and
    class: these show what is wrong with it, and more would only slow the search down.
    """
    chosen = np.ones(len(summary.row_id), bool)
    if state.phase != "settle":
        few = 2 * (len(state.centre) + 2)
        fresh = np.isin(summary.ids, summary.row_id)
        lowest = fresh & (np.cumsum(fresh, axis=2) <= few)
        chosen = np.isin(summary.row_id, summary.ids[lowest])
    elif not len(state.working_set) and len(state.next_directions) > BEST_DIRECTIONS:
        margins = [trimmed_margin(summary.lowest(j), w, k, intercept)[0] for j, w in enumerate(state.next_directions)]
        best = np.argsort(-np.array(margins), kind="stable")[:BEST_DIRECTIONS]
        chosen = np.isin(summary.row_id, summary.ids[:, best])
    return OutlierWorkingSet(summary.row_id[chosen], summary.row_x[chosen], summary.row_sign[chosen])


def lowest_under_incumbents(
    working_set: OutlierWorkingSet, searches: tuple[Search, ...], rows: int
) -> OutlierWorkingSet:
    """The lowest ``rows`` rows of each class under each incumbent."""
    chosen = np.zeros(0, np.intp)
    for search in searches:
        margins = working_set.signs * (working_set.x @ search.best.w + search.best.b)
        for sign in (1, -1):
            mine = np.flatnonzero(working_set.signs == sign)
            chosen = np.union1d(chosen, mine[np.argsort(margins[mine], kind="stable")][:rows])
    return working_set.take(chosen)


# The climb: concentration from soft-margin directions and perturbed incumbents (seeded), each start a task. Results
# come in task order, the same for any number of workers; one scan measures the best of each k.


def climb_is_due(state: OutlierState) -> bool:
    """Whether the climb comes next: first for the heuristic, and once for a search that takes long."""
    if state.phase == "climb":
        return True
    long = any(search.status == "open" and search.work >= LONG for search in state.searches)
    # Candidates of a search wait for a scan of their own.
    return long and not state.climbed and not any(search.candidates for search in state.searches)


def climb_directions(
    state: OutlierState,
    rows: int,
    intercept: bool,
    run: TaskRunner,
    is_improvement: Callable[[Hyperplane, Search], bool],
) -> Array:
    """Directions (m, d) worth measuring on all rows, at most one for each k; ``rows``: of each class."""
    searches = tuple(search for search in state.searches if search.status == "open")
    working_set = lowest_under_incumbents(state.working_set, searches, rows)
    search_rows = SearchRows(working_set.x, working_set.signs, state.centre, intercept=intercept, compiled=True)
    soft, directions = soft_directions(search_rows), []
    for search in searches:
        random, w = np.random.default_rng(0), search.best.w
        noise = random.standard_normal((PERTURBED, len(w))) / np.sqrt(len(w))
        perturbed = [w + SHARES[j % len(SHARES)] * noise[j] for j in range(PERTURBED)]
        best = climb(search_rows, search.k, [*soft, *perturbed], runner_for(run, search_rows))
        if is_improvement(best, search):
            directions.append(best.w)
    return unit_directions(directions) if directions else np.zeros((0, working_set.x.shape[1]))


def runner_for(run: TaskRunner, search_rows: SearchRows) -> TaskRunner:
    """``run``, or a plain loop when the heuristic's tasks take milliseconds and sending them would take longer."""

    def run_here(function: Callable[..., Any], tasks: Sequence[tuple[Any, ...]]) -> Sequence[Any]:
        run(function, ())  # gives the caller a chance to end the job
        return run_serially(function, tasks)

    return run if search_rows.x.size >= WORTH_SENDING else run_here


def load_kernels() -> None:
    """Compile or load the kernels once per process; a job that is to stop does not wait for the compiler."""
    if _kernels_loaded:
        return
    compiler = ThreadPoolExecutor(1, thread_name_prefix="coremargin-compile")
    compiled = compiler.submit(compile_kernels)
    compiler.shutdown(wait=False)
    while not wait([compiled], POLL_S).done:
        may_stop()
    compiled.result()
    _kernels_loaded.append(True)


# Several values of k.


def share_bounds(state: OutlierState, longest: float, *, intercept: bool) -> OutlierState:
    """Give each k the best bounds that any k implies, and end the searches that these prove.

    longest: the largest norm of a row before centring.
    """

    def with_smaller(
        smaller: tuple[Search, ExcludedRows], own: tuple[Search, ExcludedRows]
    ) -> tuple[Search, ExcludedRows]:
        search = with_incumbent(own[0], smaller[0].best)
        return own if search is own[0] else (search, smaller[1])

    def with_larger(larger: Search, own: Search) -> Search:
        return with_upper_bound(own, larger.upper) if larger.upper < own.upper else own  # the proof stays with larger

    both = list(accumulate(zip(state.searches, state.excluded, strict=True), with_smaller))
    searches = list(accumulate((search for search, _ in reversed(both)), with_larger))[::-1]
    state = replace(state, searches=tuple(searches), excluded=tuple(rows for _, rows in both))
    proven = [is_proven(state, place, longest, intercept=intercept) for place in range(len(searches))]
    return replace(
        state, searches=tuple(finished(one) if done else one for one, done in zip(searches, proven, strict=True))
    )


def is_proven(state: OutlierState, place: int, longest: float, *, intercept: bool) -> bool:
    """Whether the incumbent of a k is within epsilon of the best, or no k rows make the others separable.

    The latter is proven when each certificate behind the bound, of this k or a larger one, is zero for its own rows: a
    long row elsewhere makes no margin zero.
    """
    search, working_set = state.searches[place], state.working_set
    if is_close(search) or search.best.margin > 0 or not is_nothing(search.upper, longest, len(search.best.w)):
        return is_close(search)
    for one in state.searches[place:]:
        if one.proof and one.upper <= search.upper:
            used = (one.certificates[number] for number in np.unique(one.proof.proofs.values))
            return all(meets(working_set.x[c.rows], working_set.signs[c.rows], c.weights, intercept) for c in used)
    return False


def next_search(searches: tuple[Search, ...]) -> int:
    """The position of the open search with the least work so far, so that easy ones end first."""
    places = [place for place, search in enumerate(searches) if search.status == "open" and not search.wants_scan]
    return min(places, key=lambda place: (searches[place].work, place))


def final_status(state: OutlierState, longest: float, *, intercept: bool) -> Status:
    """The status of a state whose searches have all ended."""
    if all(is_proven(state, place, longest, intercept=intercept) for place in range(len(state.searches))):
        return "certified"
    if any(search.status == "bounded" for search in state.searches):
        return "published" if state.enumerations else "heuristic"
    return "stalled"


# Warm start.


def reduce_for_warm_start(state: OutlierState, source: Source, most: int) -> OutlierState:
    """The parts of a final state that a retraining needs: the ``most`` lowest cached rows, bounds and incumbents."""
    cached, block_bounds, best = state.cached, state.block_bounds, state.main.best
    if len(cached) > most:
        margins = cached.signs * (products(cached.rows, best.w[:, None])[0] + best.b)
        lowest = np.zeros(len(cached), bool)
        lowest[np.argsort(margins, kind="stable")[:most]] = True
        far, cached = cached.take(np.flatnonzero(~lowest)), cached.take(np.flatnonzero(lowest))
        block_bounds = block_bounds.lowered(far.ids // source.chunk_rows, far.rows, far.signs)
    searches = tuple(Search(s.k, s.epsilon, s.radius, s.best, s.upper, batch=s.batch) for s in state.searches)
    return replace(
        state,
        cached=cached,
        block_bounds=block_bounds,
        searches=searches,
        excluded=tuple(ExcludedRows.none() for _ in searches),
        working_set=OutlierWorkingSet.nothing(source.features),
        next_directions=np.zeros((0, source.features)),
    )


def fetch_rows(source: Source, ids: NDArray[np.int64], signs: NDArray[np.int8], fetched: RowFetcher) -> SignedRows:
    """Read rows by id, chunk by chunk."""
    parts: list[Any] = [SignedRows.nothing(source.features, source.dtype, sparse=source.sparse)]
    for chunk in np.unique(ids // source.chunk_rows).tolist():
        mine = np.flatnonzero(ids // source.chunk_rows == chunk)
        parts.append(SignedRows(ids[mine], fetched(ids[mine]), signs[mine]))
    return SignedRows.concatenate(parts)
