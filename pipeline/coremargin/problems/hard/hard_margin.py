"""The hard margin: the largest margin between two classes, to a share 1 - epsilon of the best possible one.

The driver holds a *working set*: the rows that may carry the margin. Solving it gives a hypothesis (w, b), ||w|| = 1,
and an upper bound, since no hypothesis has a larger margin on all rows than the best one has on some of them. Reading
the other rows gives the lower bound: the margin that the hypothesis has on all rows. The problem is solved when the
lower bound is at least (1 - epsilon) times the upper one.

The algorithm, in the order of this file:

1.  *First stage.* Workers send all rows of a sample, the driver solves them.
2.  *Later stages.* Each reads some of the other chunks with the newest hypothesis. Workers send the rows near the
    margin, which join the working set, and for each chunk a lower bound on y w.x of its other rows (block_bounds.py).
3.  *Certificate.* Block bounds hold, somewhat weakened, for later hypotheses too. If they prove the last hypothesis,
    one read of the store was enough.
4.  *Scans.* Otherwise the chunks whose bounds prove too little are read again, until the bounds meet.
5.  *Passes.* Strategies that carry numbers from one update to the next read the store once a pass
    (``strategies/iterative.py``).
6.  *Warm start.* With the working set and the block bounds of an earlier commit, only changed rows are read, and chunks
that the change leaves unproven.

Other strategies (``strategies/``) begin with other rows, use other probes, and choose other rows for the working set.
Their bounds are proven in the same way.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from functools import cached_property, partial
from typing import TYPE_CHECKING, Any, cast

import numpy as np
from numpy.typing import NDArray

from coremargin.engine.memory_need import MemoryNeed
from coremargin.engine.problem import CannotWarmStart, Round
from coremargin.errors import SpecError
from coremargin.formats.model_files import NEAR_ROWS
from coremargin.maths.hard_margin import hulls_meet, solve_hard_margin
from coremargin.maths.margin import Array, best_offset, is_certified, lower_bound, smallest_projections
from coremargin.maths.rows import Rows, as_float64, products, take, vector
from coremargin.maths.stopping import may_stop
from coremargin.problems.common.balls import enclosing_radius
from coremargin.problems.common.classes import check_scale, class_weights, signs_of
from coremargin.problems.common.driver_rows import WorkingSet, isin_ids
from coremargin.problems.common.map_rounding import widen_margin_bounds
from coremargin.problems.common.result import STOPPED, Result, TwoClassProblem
from coremargin.problems.common.sample import SAMPLE_BYTES, SAMPLE_SHARE, sample_chunks
from coremargin.problems.common.sent import AllRows, AllRowsProbe, SentRows
from coremargin.problems.common.sizes import row_bytes, wanted_working_set_rows, working_set_row_bytes
from coremargin.problems.common.stages import Stages, plan_stages, scan_position, stage_growth
from coremargin.problems.common.warm_start import (
    TOO_MANY,
    RowFetcher,
    appended_to_last_chunk,
    least_cached_rows,
    most_cached_rows,
)
from coremargin.problems.hard.block_bounds import BlockBounds, NearRows
from coremargin.problems.hard.forecast import WARM_START_PACE, cuts, forecast
from coremargin.problems.hard.probe import MarginProbe, MarginSummary, binned
from coremargin.problems.hard.state import Carried, HardMarginState, Hypothesis, Progress, Status
from coremargin.problems.hard.strategies.cutting_planes import CuttingPlanes
from coremargin.problems.hard.strategies.iterative import (
    Iterative,
    IterativeProbe,
    IterativeSummary,
    Proven,
    RowBlock,
    RowSearch,
    Task,
    Walk,
)
from coremargin.problems.hard.strategies.table import STRATEGIES

if TYPE_CHECKING:
    from coremargin.data.difference import Difference
    from coremargin.engine.allowance import Allowance
    from coremargin.formats.choices import Centre, ErrorPick
    from coremargin.formats.choices import Strategy as StrategyName
    from coremargin.problems.common.sample import Sample
    from coremargin.problems.hard.strategies.strategy import Strategy

#: Rows for the range of margins, and bins of their histogram.
SKETCH_ROWS, BINS = 1000, 200

#: Near-margin rows that are cached for a warm start take at most this share of the room in the working set.
ROOM_SHARE = 0.125
#: If more rows lie near the margin than may be cached, this share of the allowed number stays.
CUT = 0.75
#: The sketch of a cached state has at most one row in SKETCH_SHARE, which matters for small stores.
SKETCH_SHARE = 10
#: A chunk is read as a whole if more than this share of its rows enter the classes by labels or weights.
FEW_OF_CHUNK = 0.25
#: The file of near rows is rewritten when the working set has more rows without weight than this share of them.
FEW_OF_NEAR = 0.25
#: A warm start reads unproven chunks in two stages, one in ``ONE_OF`` first, if there are ``ENOUGH_FOR_STAGES``.
ONE_OF, ENOUGH_FOR_STAGES = 5, 10


@dataclass(frozen=True)
class HardMargin(TwoClassProblem[HardMarginState, MarginSummary | AllRows | IterativeSummary]):
    """Maximum-margin separation of two classes.

    epsilon in (0, 1). centre, pick: of cutting planes. working_set_bytes: memory for the rows of the working set.
    first_chunks: the chunks of the first stage, where several problems are read together; None: ``sample_chunks``.
    near_share: the share of the rows, those nearest to the hyperplane, that is cached with the model for a warm start.
    to_its_end: a strategy with a hyperplane of its own goes on, even if the exact solution of its rows is certified,
    until that one is, or its own rule ends it.
    """

    epsilon: float
    intercept: bool = True
    strategy: StrategyName = "fast"
    centre: Centre = "perceptron"
    pick: ErrorPick = "largest"
    working_set_bytes: int = 256 << 20
    sample_share: float = SAMPLE_SHARE
    sample_bytes: int = SAMPLE_BYTES
    first_chunks: tuple[int, ...] | None = None
    near_share: float = 0.0
    to_its_end: bool = False

    # Sizes

    @property
    def rule(self) -> Strategy:
        """The strategy."""
        if self.strategy == "cutting-planes":
            return CuttingPlanes(self.centre, self.pick)
        return STRATEGIES[self.strategy]

    @property
    def eager(self) -> bool:
        """As the strategy says."""
        return self.rule.eager

    @property
    def working_set_rows(self) -> int:
        """The capacity of the working set in rows."""
        return max(
            min(4 * (self.source.features + 2), 1000), self.working_set_bytes // working_set_row_bytes(self.source)
        )

    @property
    def memory_need(self) -> MemoryNeed:
        """The memory for the rows that scans may send."""
        rows = wanted_working_set_rows(self.source)
        size = rows * working_set_row_bytes(self.source)
        return MemoryNeed(self.working_set_bytes, size, rows, "candidates", "with less, chunks are read again")

    @property
    def _rows_sent(self) -> int:
        return self.rule.rows_sent(self.source, self.working_set_rows)

    @property
    def sample_chunks(self) -> list[int]:
        """The chunks of the first stage; all chunks of a small store."""
        source = self.source
        # With fewer rows than features nearly all rows carry the margin: a sample of them shows little.
        wide = source.rows < source.features
        limit = max(self.sample_bytes, self.working_set_bytes) if wide else self.sample_bytes
        return sample_chunks(source, self.codes, self.sample_share, limit)

    @cached_property
    def stages(self) -> Stages:
        """The chunks of each stage of the first read."""
        growth = stage_growth(self.source.rows, self.source.features)
        return plan_stages(self.source.chunks, self.first_chunks or self.sample_chunks, growth)

    @property
    def stage_chunks(self) -> tuple[int, ...]:
        """The number of chunks of each stage, if the strategy reads in stages."""
        return self.stages.sizes if self.rule.staged else ()

    # Start

    def unsolved(self) -> HardMarginState:
        """The state without any rows."""
        source = self.source
        empty = WorkingSet.nothing(source.features, source.dtype, sparse=source.sparse)
        return HardMarginState(
            round=0,
            status="running",
            working_set=empty,
            newest=Hypothesis.zero(source.features),
            best=None,
            lower=-np.inf,
            upper=np.inf,
            coreset=empty,
            block_bounds=BlockBounds.unknown(source.chunks, source.features),
            sketch=empty,
            histogram=np.zeros((2, BINS), np.int64),
            low=0.0,
            high=1.0,
            rows_below=None,
            new_rows=0,
            upper_at_eviction=np.inf,
            sample_bytes=0,
            expected_move=np.zeros(source.features + 1),
            stages=self.stages.count if self.rule.staged else 0,
        )

    def start(self) -> HardMarginState:
        """The state without rows, if the first stage sends them; else with the strategy's first rows."""
        check_scale(self.source)
        class_weights(self.source, self.codes)  # raises LabelError for a class whose rows all have weight 0
        if refusal := self.rule.refusal(self.source, self.working_set_bytes):
            raise SpecError(f"strategy {self.strategy!r}: {refusal}")
        state = self.unsolved()
        if self.rule.staged:
            return state
        found = self.rule.first(self.source, self.codes)
        if found is not None:
            working_set = WorkingSet.unweighted(found.ids, found.rows, found.signs)
            state = replace(state, working_set=working_set, sketch=working_set, new_rows=len(working_set))
            state = replace(state, sample_bytes=found.nbytes(self.source))
        if isinstance(self.rule, Iterative):
            longest = float(self.source.scalars().max_norm.max())
            first = self._as_block(state.working_set)
            task = Task(
                first, self.source.features, longest, self.epsilon, self.intercept, memory=self.working_set_bytes
            )
            progress = self._first_pass(self.rule.begin(task))
            return self._next_pass(state, progress) if found is not None else replace(state, progress=progress)
        return self._solve(state, state.working_set)

    def begin(self, sample: Sample) -> HardMarginState:
        """The state after the first stage, given its rows, of both classes or of one."""
        state = replace(self.unsolved(), sample_bytes=sample.nbytes(self.source))
        return self._first_stage(state, sample.ids, sample.rows, sample.signs)

    # Probes

    def probe(self, state: HardMarginState) -> MarginProbe | AllRowsProbe | IterativeProbe:
        """The probe of the next stage, of the next chunk of a pass, or of the next scan."""
        source = self.source
        if state.progress is not None:
            return self._pass_probe(state, state.progress)
        if state.reading:
            if state.stage == 0 and not state.warm_started:
                return AllRowsProbe(self.codes, source.features, source.dtype.name, source.sparse)
            return self._stage_probe(state, self._next_chunks(state), last=state.stage + 1 == state.stages)
        if state.warm_started:  # chunks that are read again send near rows too, for the next commit
            chunks = np.flatnonzero(~self.skip(state))
            return self.rule.probe(self._stage_probe(state, chunks, last=True), state.best, self.epsilon)
        low, high = self._histogram_range(state)
        plain = replace(self._plain_probe(state, self._rows_sent, source.chunks), low=low, high=high)
        return self._with_exact(state, plain) if len(state.exact) else self.rule.probe(plain, state.best, self.epsilon)

    def _with_exact(self, state: HardMarginState, plain: MarginProbe) -> MarginProbe:
        """The probe with the exact solution of the working set next to the strategy's own hypothesis."""
        base = np.column_stack([state.newest.w, *([state.exact] if len(state.exact) else [])])
        return replace(plain, base=base, mix=np.eye(base.shape[1]))

    def _plain_probe(self, state: HardMarginState, rows: int, chunks: int) -> MarginProbe:
        """A probe for the margins of the newest hypothesis and the ``rows`` lowest rows of ``chunks`` chunks."""
        source = self.source
        return MarginProbe(
            base=state.newest.w[:, None],
            mix=np.ones((1, 1)),
            offset=state.newest.b,
            codes=self.codes,
            level=min(state.upper, 1e300),
            keep=1,
            keep_per_chunk=rows / (2 * chunks),
            known_ids=np.sort(state.known_ids),
            low=state.low,
            high=state.high,
            bins=BINS,
            dtype=source.dtype.name,
            chunk_rows=source.chunk_rows,
            sparse=source.sparse,
        )

    def _stage_probe(self, state: HardMarginState, chunks: NDArray[np.intp], *, last: bool) -> MarginProbe:
        """A probe for all rows of these chunks that may matter to later hypotheses."""
        room = self.working_set_rows - len(state.known_ids)
        level = min((1 - self.epsilon) * state.upper, 1e300)
        return replace(
            self._plain_probe(state, max(self._rows_sent, room if last else room // 2), len(chunks)),
            cut_chunks=chunks,
            cuts=cuts(self.source, chunks, state.expected_move, level, state.newest.b, state.slack),
        )

    def _next_chunks(self, state: HardMarginState) -> NDArray[np.intp]:
        """The chunks of the next stage; in a warm start some of the chunks without bounds, then all others."""
        if not state.warm_started:
            return self.stages.chunks(state.stage)
        unread = state.block_bounds.unread
        return unread if state.stage + 1 == state.stages else unread[::ONE_OF]

    def skip(self, state: HardMarginState) -> NDArray[np.bool_]:
        """Chunks (c,) that the next scan skips: those of other stages or, after the first read, proven ones."""
        if state.progress is not None and isinstance(self.rule, Walk):
            return np.asarray(np.arange(self.source.chunks) != state.progress.chunk)
        if not state.reading:
            proven = self.rule.skip(self.source, state, self.epsilon)
            # If all are proven without a certificate, the precision of float64 is exhausted: read all rows.
            return np.zeros_like(proven) if state.warm_started and bool(proven.all()) else proven
        skipped = np.ones(self.source.chunks, bool)
        skipped[self._next_chunks(state)] = False
        return skipped

    def ahead(self, state: HardMarginState) -> NDArray[np.intp]:
        """The chunks of the stage after the next, or the next chunk of a walk."""
        if state.progress is not None and isinstance(self.rule, Walk):
            return np.array([(state.progress.chunk + 1) % self.source.chunks])
        in_first_read = state.reading and not state.warm_started
        return self.stages.chunks(state.stage + 1) if in_first_read else super().ahead(state)

    def enough(self, summary: MarginSummary | AllRows | IterativeSummary) -> bool:
        """As the strategy says."""
        return isinstance(summary, MarginSummary) and self.rule.enough(summary)

    # Updates

    def update(self, state: HardMarginState, summary: MarginSummary | AllRows | IterativeSummary) -> HardMarginState:
        """Bounds, working set and hypothesis after a stage, a scan or a part of a pass."""
        if isinstance(summary, IterativeSummary):
            return self._after_part(state, summary)
        if isinstance(summary, AllRows):
            return self._first_stage(state, summary.sent.ids, summary.sent.rows, summary.sent.signs)
        return self._later_stage(state, summary) if state.reading else self._scan(state, summary)

    def _first_stage(
        self, state: HardMarginState, ids: NDArray[np.int64], rows: Rows, signs: NDArray[np.int8]
    ) -> HardMarginState:
        """Solve all rows of the first stage, then probe them in memory as later stages are probed.

        Half of the rows are solved first: how far the hypothesis moves from there predicts how far it will still move.
        """
        every = WorkingSet.unweighted(ids, rows, signs)
        sketch = np.linspace(0, len(every) - 1, min(SKETCH_ROWS, len(every))).astype(int)
        state = replace(state, round=state.round + 1, stage=1, sketch=every.take(sketch), new_rows=len(every))
        half = every.take(np.arange(0, len(every), 2))
        before, weights = state.newest, np.zeros(len(every))
        if half.both_classes or not self.intercept:
            state = self._solve(state, half)
            before, weights[::2] = state.newest, state.working_set.weights
        state = self._solve(state, every.weighted(weights))
        if state.status != "running":
            return state
        state = replace(self._with_forecast(state, before, 1.0), slack=self._slack(state, every))
        low, high = self._histogram_range(state)
        support = state.working_set.take(state.working_set.support)
        state = replace(state, low=low, high=high, working_set=support)
        chunks = self.stages.chunks(0)
        probe = self._stage_probe(state, chunks, last=state.stages == 1)
        summary = probe.evaluate_in_memory(self.source, chunks, ids, rows, signs)
        state = self._record_stage(state, summary)
        return self._certified_at_end(replace(state, working_set=state.working_set.add(summary.sent)))

    def _later_stage(self, state: HardMarginState, summary: MarginSummary) -> HardMarginState:
        """Record the block bounds at the hypothesis of the stage, and solve for the next one."""
        before, pace = state.newest, WARM_START_PACE if state.warm_started else self.stages.pace(state.stage)
        working_set, state = self._add_candidates(self._record_stage(state, summary), summary)
        violated = state.new_rows > 0
        if state.warm_started:  # earlier rows are counted already, and do not violate the margin
            coming = working_set.take(np.arange(len(working_set) - state.new_rows, len(working_set)))
            violated = self._violates(state, coming)
            state = replace(state, histogram=state.histogram + self._histogram(state, coming))
        bounds = self._bounds_with_rejected(state, summary, working_set)
        state = replace(
            state, round=state.round + 1, stage=state.stage + 1, block_bounds=bounds, working_set=working_set
        )
        if state.warm_started and not state.reading:  # if no new row violates the margin the earlier proof holds
            return self._certified_or_solved(state)
        if violated:
            state = self._solve(state, working_set)
        return self._certified_at_end(self._with_forecast(state, before, pace))

    def _record_stage(self, state: HardMarginState, summary: MarginSummary) -> HardMarginState:
        """Add the counts and block bounds that a stage found at the newest hypothesis."""
        return replace(
            state,
            histogram=state.histogram + summary.histogram,
            in_stages=state.warm_started or state.stages > 1,
            rows_below=(state.rows_below or 0) + int(summary.below[0]),
            block_bounds=state.block_bounds.record(summary.chunks, summary.chunk_lower, state.newest.w),
        )

    def _certified_at_end(self, state: HardMarginState) -> HardMarginState:
        """After the last stage: add what the bounds of all chunks prove about the newest hypothesis."""
        if state.reading or state.status != "running":
            return state
        return self._certify(replace(state, histogram=state.histogram + self._histogram(state, state.working_set)))

    def _scan(self, state: HardMarginState, summary: MarginSummary) -> HardMarginState:
        """Update after a scan of the chunks that the first read left unproven, or of all chunks."""
        probe = cast("MarginProbe", self.probe(state))
        state = replace(state, round=state.round + 1, rows_below=int(summary.below[0]), new_rows=0)
        unread = np.setdiff1d(np.arange(self.source.chunks), summary.chunks)
        if not (state.in_stages and (len(unread) or state.warm_started)):
            state = replace(state, histogram=summary.histogram, low=probe.low, high=probe.high, in_stages=False)
        if not self.enough(summary):  # a scan that ended early has not seen all rows: it proves no bound
            state = self._prove(state, probe.directions, summary.smallest, unread)
            bounds = state.block_bounds.record(summary.chunks, summary.chunk_lower, state.newest.w)
            state = replace(state, block_bounds=bounds)
            if self._is_certified(state):
                bounds = self._bounds_with_rejected(state, summary, state.working_set)
                return replace(state, status="certified", block_bounds=bounds)
            if self.rule.converged(state, summary):
                bounds = self._bounds_with_rejected(state, summary, state.working_set)
                return replace(state, status="converged", block_bounds=bounds)
        working_set, state = self._add_candidates(state.with_near_rows_loaded(), summary)
        if not state.new_rows:
            working_set, state = self._add_smallest(state, summary, working_set)
        state = replace(state, block_bounds=self._bounds_with_rejected(state, summary, working_set))
        if state.new_rows == 0:
            return replace(state, status="stalled")
        solved = self._solve(state, working_set)
        return self._with_forecast(solved, state.newest, WARM_START_PACE) if state.warm_started else solved

    # The working set

    def _add_candidates(self, state: HardMarginState, summary: MarginSummary) -> tuple[WorkingSet, HardMarginState]:
        """Add the rows that the scan sent to the working set, after evicting others if there is no room."""
        coming = self.rule.joining(summary, state.newest)
        staying = self.rule.staying(state.working_set, self._margins(state, state.working_set), len(coming))
        if staying is not None and len(coming):
            state = self._keep_only(state, np.flatnonzero(staying))
        if len(state.known_ids) + len(coming) > self.working_set_rows and state.upper < state.upper_at_eviction:
            state = self._evict(state.with_near_rows_loaded(), len(coming))
        before = state.working_set
        grown = before.add(coming)
        return grown, replace(state, new_rows=len(grown) - len(before))

    def _add_smallest(
        self, state: HardMarginState, summary: MarginSummary, working_set: WorkingSet
    ) -> tuple[WorkingSet, HardMarginState]:
        """Add the rows of the smallest margins, which selection by inexact values may have missed."""
        worst = np.unique(summary.smallest_id[:, 0][np.isfinite(summary.smallest[:, 0])])
        rows, codes = self.source.rows_at(worst)
        signs = np.where(codes == self.codes[0], 1, -1).astype(np.int8)
        grown = working_set.add(SentRows.one_part(worst, cast("Rows", rows.astype(self.source.dtype)), signs))
        return grown, replace(state, new_rows=len(grown) - len(working_set))

    def _bounds_with_rejected(
        self, state: HardMarginState, summary: MarginSummary, working_set: WorkingSet
    ) -> BlockBounds:
        """The block bounds, lowered so that they hold for rows that were sent but did not join the working set."""
        out = summary.sent.where(~isin_ids(summary.sent.ids, working_set.ids))
        return state.block_bounds.lowered(out.ids // self.source.chunk_rows, as_float64(out.rows), out.signs)

    def _evict(self, state: HardMarginState, coming: int) -> HardMarginState:
        """Drop the rows with the largest margins and no weight. As the upper bound has fallen, this cannot cycle."""
        margins = self._margins(state, state.working_set)
        stay = state.working_set.lowest(margins, max(0, self.working_set_rows - coming))
        if state.reading and not state.warm_started:  # rows that stay are counted at the end of the first read
            gone = state.working_set.take(np.setdiff1d(np.arange(len(state.working_set)), stay))
            state = replace(state, histogram=state.histogram + self._histogram(state, gone))
        return replace(self._keep_only(state, stay), upper_at_eviction=state.upper)

    def _keep_only(self, state: HardMarginState, stay: NDArray[np.intp]) -> HardMarginState:
        """Keep these rows of the working set only, and lower block bounds so that they hold for the others."""
        working_set, away = state.working_set, np.ones(len(state.working_set), bool)
        away[stay] = False
        gone = np.flatnonzero(away)
        chunks = working_set.ids[gone] // self.source.chunk_rows
        bounds = state.block_bounds.lowered(chunks, take(working_set.rows, gone), working_set.signs[gone])
        return replace(state, working_set=working_set.take(stay), block_bounds=bounds)

    def _solve(self, state: HardMarginState, working_set: WorkingSet) -> HardMarginState:
        """The newest hypothesis and the upper bound from the working set, near rows included."""
        if state.near_rows is not None:
            state = replace(state, working_set=working_set).with_near_rows_loaded()
            working_set = state.working_set
        if self.intercept and not working_set.both_classes:  # the margin of one class alone is unbounded
            first = vector(working_set.rows, 0)
            if not first.any():
                first[0] = working_set.signs[0]
            newest = Hypothesis(working_set.signs[0] * first / np.linalg.norm(first), 0.0)
            return replace(state, working_set=working_set, newest=newest)
        rows, signs = working_set.rows, working_set.signs
        solution = solve_hard_margin(
            rows,
            signs,
            intercept=self.intercept,
            start=working_set.weights if (working_set.weights > 0).any() else None,
            tolerance=min(1e-10, 1e-4 * self.epsilon),
        )
        meet, solution = hulls_meet(rows, signs, solution, intercept=self.intercept)
        working_set = working_set.weighted(solution.weights)
        if meet or solution.upper < state.upper:
            state = replace(state, upper=solution.upper, coreset=working_set.take(working_set.support))
        state = replace(state, working_set=working_set)
        if solution.status == "zero":
            # Classes with a proven margin are separable: then the precision of float64 is exhausted.
            return replace(state, status="not_separable" if meet and state.lower <= 0 else "stalled")
        exact = Hypothesis(solution.w, solution.b)
        if not self.rule.proposes:
            return replace(state, newest=exact)
        own = self.rule.propose(working_set, exact, intercept=self.intercept)
        return replace(state, newest=own, exact=exact.w)

    def _with_forecast(self, state: HardMarginState, before: Hypothesis, pace: float) -> HardMarginState:
        return replace(state, expected_move=forecast(before, state.newest, pace, state.expected_move))

    # Bounds

    def _prove(
        self, state: HardMarginState, directions: Array, smallest: Array, unread: NDArray[np.int64]
    ) -> HardMarginState:
        """Prove lower bounds of directions (d, k), the newest first, and keep the best one so far.

        smallest (2, k): smallest y w.x of the chunks that were read. For ``unread`` chunks, block bounds and the rows
        of the working set are used.
        """
        if len(unread):
            bounds = state.block_bounds.screen(self.source, directions, unread).min(axis=2).T
            known = smallest_projections(state.working_set.rows, state.working_set.signs, directions)
            smallest = np.minimum(smallest, np.minimum(bounds, known))
            if state.near_rows is not None:
                smallest = np.minimum(smallest, state.near_rows.screen(directions))
        lower = lower_bound(smallest, directions, self.intercept)
        offset = best_offset(smallest, self.intercept)
        k = int(np.argmax(lower))
        if lower[k] > state.lower:
            length = float(np.linalg.norm(directions[:, k]))
            best = Hypothesis(directions[:, k] / length, float(offset[k]) / length)
            state = replace(state, best=best, lower=float(lower[k]))
        return replace(state, lower_now=float(lower[0]))

    def _is_certified(self, state: HardMarginState) -> bool:
        own = self.to_its_end and len(state.exact) > 0
        return is_certified(state.lower_now if own else state.lower, state.upper, self.epsilon)

    def _certify(self, state: HardMarginState) -> HardMarginState:
        """Add what block bounds and working set prove about the newest hypothesis, certified or not."""
        state = self._prove(state, state.newest.w[:, None], np.full((2, 1), np.inf), np.arange(self.source.chunks))
        certified = is_certified(state.lower, state.upper, self.epsilon)
        return replace(state, status="certified") if certified else state

    def _certified_or_solved(self, state: HardMarginState) -> HardMarginState:
        """Certify the newest hypothesis or, if that fails, solve the working set."""
        found = self._certify(state)
        if found.status == "certified":
            return found
        state = self._solve(state, state.working_set)
        return self._certify(state) if state.status == "running" else state

    # Passes of strategies that carry numbers

    def _first_pass(self, carried: Carried) -> Progress:
        source = self.source
        nothing = MarginSummary.nothing(1, source.features, source.dtype, BINS, sparse=source.sparse)
        return Progress(passes=0, chunk=0, carried=carried, updates_before=0, proves=False, margins=nothing)

    def _as_block(self, rows: WorkingSet) -> RowBlock:
        return RowBlock(rows.rows, rows.signs, rows.ids, self.source.name)

    def _pass_probe(self, state: HardMarginState, progress: Progress) -> IterativeProbe:
        """A probe for the strategy and, after the first pass, for its hyperplane and the exact solution."""
        rule = cast("Walk | RowSearch", self.rule)
        margins = self._with_exact(state, self._plain_probe(state, 0, self.source.chunks))
        return IterativeProbe(rule, progress.carried, progress.proves, margins)

    def _after_part(self, state: HardMarginState, summary: IterativeSummary) -> HardMarginState:
        """After a chunk of a walk, or a search: the rows that were used join the working set while there is room."""
        progress, rule, sent = cast("Progress", state.progress), self.rule, summary.margins.sent
        room = self.working_set_rows - len(state.working_set)
        grown = state.working_set.add(sent.where(np.arange(len(sent)) < room))
        carried = summary.carried if isinstance(rule, Walk) else progress.carried
        new_rows = len(grown) - len(state.working_set)
        stuck: Status | None = None
        if isinstance(rule, RowSearch) and len(sent):
            if new_rows or rule.repeats:
                carried = rule.step(carried, sent, self._as_block(grown))
            else:  # without room, or because the step with this row left it where it was, to within float64
                stuck = "full" if len(sent) > room else "stalled"
        margins = progress.margins.merge(replace(summary.margins, sent=progress.margins.sent))
        progress = replace(progress, chunk=progress.chunk + 1, carried=carried, margins=margins)
        state = replace(state, round=state.round + 1, progress=progress, working_set=grown, new_rows=new_rows)
        over = isinstance(rule, RowSearch) or progress.chunk == self.source.chunks
        return self._end_pass(state, progress, stuck) if over else state

    def _end_pass(self, state: HardMarginState, progress: Progress, stuck: Status | None) -> HardMarginState:
        """Prove bounds of the hypotheses of the pass before, and set those for the next pass.

        stuck: why a search made no step with the row that it found.
        """
        margins, probe = progress.margins, self._pass_probe(state, progress).margins
        state = replace(state, progress=replace(progress, passes=progress.passes + 1, chunk=0))
        if progress.proves:
            state = replace(state, histogram=margins.histogram, rows_below=int(margins.below[0]))
            state = self._prove(state, probe.directions, margins.smallest, np.zeros(0, np.int64))
            if self._is_certified(state):
                return replace(state, status="certified")
            if progress.updates == progress.updates_before:
                return replace(state, status=stuck or "converged")
        passed = replace(progress, passes=progress.passes + 1, chunk=0, updates_before=progress.updates)
        return self._next_pass(state, passed)

    def _next_pass(self, state: HardMarginState, progress: Progress) -> HardMarginState:
        """Solve the rows used so far; the next pass measures their solution and the strategy's own hyperplane."""
        state = self._solve(replace(state, progress=progress), state.working_set)
        if state.status != "running":
            return state
        exact, rows = state.newest, state.working_set
        newest = cast("Iterative", self.rule).hypothesis(progress.carried) or exact
        sketch = rows.take(np.linspace(0, len(rows) - 1, min(SKETCH_ROWS, len(rows))).astype(int))
        state = replace(state, newest=newest, exact=exact.w, sketch=sketch)
        low, high = self._histogram_range(state)
        empty = MarginSummary.nothing(2, self.source.features, self.source.dtype, BINS, sparse=self.source.sparse)
        return replace(state, low=low, high=high, progress=replace(progress, proves=True, margins=empty))

    # Margins of rows in the driver

    def _margins(self, state: HardMarginState, rows: WorkingSet) -> Array:
        return np.asarray(rows.signs * (products(rows.rows, state.newest.w[:, None])[0] + state.newest.b))

    def _violates(self, state: HardMarginState, coming: WorkingSet) -> bool:
        """Whether some of these rows violate the margin."""
        return bool((self._margins(state, coming) < (1 - self.epsilon) * state.upper).any())

    def _histogram(self, state: HardMarginState, rows: WorkingSet) -> NDArray[np.int64]:
        """Histogram (2, bins) of the margins of these rows at the newest hypothesis."""
        margins, bins = self._margins(state, rows), state.histogram.shape[1]
        sides = (margins[rows.signs > 0], margins[rows.signs < 0])
        return np.array([binned(side, state.low, state.high, bins) for side in sides])

    def _histogram_range(self, state: HardMarginState) -> tuple[float, float]:
        """The range of the margins of the sketch, with some room on both sides."""
        margins = self._margins(state, state.sketch)
        low, high = float(margins.min()), float(margins.max())
        size = max(high - low, 1e-6 * abs(low), 1e-6 * abs(high))
        room = 0.25 * size if size > 1e-150 else 1.0  # equal margins, however large, still need a range
        return low - room, high + room

    # Results

    def round_of(self, state: HardMarginState) -> Round:
        """The report of a round."""
        going_on = state.reading and state.status == "running"
        position = scan_position(state.round, state.stage, state.stages, going_on=going_on)
        progress = state.progress
        if progress is not None:  # each pass is a scan
            part = {"part": progress.chunk} if isinstance(self.rule, Walk) else {}
            number = progress.passes + (progress.chunk > 0)
            position = {"number": number, **part, "more": {"updates": progress.updates}}
        return Round(
            status=state.status,
            lower=state.lower,
            lower_now=state.lower_now,
            upper=state.upper,
            working_set_rows=len(state.known_ids),
            coreset_rows=len(state.coreset),
            new_rows=state.new_rows,
            rows_below=state.rows_below,
            **position,
        )

    def result(self, state: HardMarginState) -> Result:
        """The best hypothesis with its bounds and their proof."""
        hypothesis = state.best or state.newest
        not_separable = state.status == "not_separable"
        status = "stopped" if state.status in STOPPED else state.status
        # The best direction was normalised once more: it may differ from the newest by rounding.
        final = state.best is not None and np.allclose(state.best.w, state.newest.w, rtol=0.0, atol=1e-12)
        found = Result(
            status=cast("Any", status),
            reason=STOPPED.get(state.status, state.status),
            kind="not_separable" if not_separable else "margin",
            w=hypothesis.w,
            b=hypothesis.b,
            lower=None if not_separable else state.lower,
            upper=state.upper,
            proof=state.coreset,
            final=final and not state.in_stages,
            staged=state.in_stages,
            extra={
                "block_bounds_lower": state.block_bounds.lower,
                "block_bounds_direction_index": state.block_bounds.direction_index,
                "block_bounds_directions": state.block_bounds.directions,
                "block_bounds_known_ids": state.known_ids,
            },
        )
        return widen_margin_bounds(found, self.source, self.epsilon)

    def describe_strategy(self, state: HardMarginState) -> dict[str, Any]:
        """The proven margin of a strategy's own last hyperplane; passes, updates and the theorem's bound on these."""
        found: dict[str, Any] = {"lower": state.lower_now if np.isfinite(state.lower_now) else None}
        if state.progress is not None:
            most = None
            if state.best is not None and state.lower > 0:
                longest = float(self.source.scalars().max_norm.max())
                radius = partial(enclosing_radius, self.source, origin=not self.intercept)
                proven = Proven(state.lower, state.best.b, longest, radius)
                rule, carried = cast("Iterative", self.rule), state.progress.carried
                most = rule.most_updates(proven, carried, intercept=self.intercept)
            passes, updates = state.progress.passes, state.progress.updates
            found |= {"passes": passes, "updates": updates, "updates_at_most": most}
        return found

    def restore(self, arrays: Mapping[str, NDArray[Any]]) -> HardMarginState:
        """A state from a checkpoint."""
        return HardMarginState.from_arrays(arrays)

    # Warm start
    #
    #     what happened                              upper bound                  lower bound
    #     rows appended                              holds: the coreset is there  their chunks are read, all other block
    #                                                                             bounds hold
    #     rows removed, none of them in the coreset  holds                        holds
    #     rows of the coreset removed or relabelled  solved again without them    block bounds hold, but may prove less
    #                                                                             of the new hypothesis
    #     rows added by a label or a weight, or to   holds                        these rows are fetched; they join the
    #     a chunk that was not full                                               working set, or lower block bounds
    # The cached rows make this cheap. They are all rows whose margin was within a slack of the bound, so that the block
    # bounds, which hold for all others, still prove hypotheses that have moved: an update then reads the new rows and
    # the cached ones. If the bounds prove too little, chunks are read again, and send near rows for the next update.

    def warm_start_state(self, state: HardMarginState, allowance: Allowance) -> Mapping[str, Any]:
        """The warm-start state, with as many rows as the allowance permits, most of them in a file."""
        most = most_cached_rows(self.source, allowance)
        if not allowance.requested:
            most = min(most, max(int(self.near_share / CUT * self.source.rows), least_cached_rows(self.source)))
        return allowance.within(lambda rows: self._with_near_rows_in_file(self.lightened(state, rows)).to_file(), most)

    def lightened(self, state: HardMarginState, most: int) -> HardMarginState:
        """Reduce the state to at most ``most`` rows: those that carry the bound, and those with the lowest margins.

        If there are more, clearly fewer than ``most`` stay, so that the next updates need not rewrite all for a few new
        ones.
        """
        if len(state.known_ids) > max(len(state.working_set.support), most):
            state = state.with_near_rows_loaded()
            best = replace(state, newest=state.best or state.newest)
            stay = max(len(state.working_set.support), int(CUT * most))
            state = self._keep_only(state, state.working_set.lowest(self._margins(best, state.working_set), stay))
        few = np.arange(0, len(state.sketch), 1 + SKETCH_SHARE * len(state.sketch) // self.source.rows)
        return replace(state, sketch=state.sketch.take(few))

    def _with_near_rows_in_file(self, state: HardMarginState) -> HardMarginState:
        """Move rows without weight to a file; a few that joined the working set since stay in it."""
        if state.near_rows is not None and state.near_rows.filed.is_lost:
            state = state.with_near_rows_loaded()
        best, few = state.best, FEW_OF_NEAR * (0 if state.near_rows is None else len(state.near_rows))
        spare = ~((state.working_set.weights > 0) | isin_ids(state.working_set.ids, state.coreset.ids))
        if best is None or state.reading or np.count_nonzero(spare) <= few:
            return state
        state = state.with_near_rows_loaded()
        spare = np.append(spare, np.ones(len(state.working_set) - len(spare), bool))
        near_rows = NearRows.from_working_set(state.working_set.take(spare), best.w, self.source.chunk_rows)
        return replace(state, working_set=state.working_set.take(~spare), near_rows=near_rows)

    def warm_start(self, arrays: Mapping[str, Any], difference: Difference) -> HardMarginState:
        """See ``WarmStarts``."""
        return self.warm_start_from(
            HardMarginState.from_arrays(arrays), difference, RowFetcher(self.source, self.working_set_rows)
        )

    def warm_start_from(self, old: HardMarginState, difference: Difference, fetched: RowFetcher) -> HardMarginState:
        """Apply a difference to the earlier state; ``fetched`` reads the changed rows.

        Raises CannotWarmStart if training from scratch is as good.
        """
        if not self.rule.staged:
            raise CannotWarmStart(f"strategy {self.strategy!r} reads all rows again and again")
        check_scale(self.source)
        if not np.isfinite(old.upper) or not len(old.working_set):
            raise CannotWarmStart("the model had no upper bound yet")
        if not difference and is_certified(old.lower, old.upper, self.epsilon):
            return replace(
                old,
                status="certified",
                round=0,
                stage=0,
                stages=0,
                new_rows=0,
                sample_bytes=0,
                near_rows_lost=False,
            )
        now = signs_of(difference.codes_after, difference.weights_after, self.codes)
        changed = signs_of(difference.codes_before, difference.weights_before, self.codes) != now
        ids, now = difference.ids[changed], now[changed]
        coreset_changed = bool(isin_ids(old.coreset.ids, ids).any())
        if old.status == "not_separable" and coreset_changed:
            raise CannotWarmStart("rows that proved that nothing separates the classes were relabelled or removed")
        state = self._without_changed_rows(old, ids, ids[now != 0], difference)
        state = state.with_near_rows_loaded() if coreset_changed else state
        if not (state.both_classes if self.intercept else len(state.known_ids)):
            left = "no row near the hyperplane is left of one of the classes"
            raise CannotWarmStart(
                f"{NEAR_ROWS} of the model is damaged, without which {left}" if state.near_rows_lost else left
            )
        if state.status == "running" and coreset_changed:
            before, nothing = state.newest, state.working_set.take(np.arange(0))
            state = self._solve(replace(state, upper=np.inf, coreset=nothing), state.working_set)
            state = self._with_forecast(state, before, WARM_START_PACE)
        if state.status == "running":
            new, codes, weights = appended_to_last_chunk(self.source, difference)
            label_bytes = self.source.nbytes // self.source.rows - row_bytes(self.source)  # labels, and weights
            state = replace(state, sample_bytes=state.sample_bytes + len(new) * label_bytes)
            every, signs = np.append(ids, new), np.append(now, signs_of(codes, weights, self.codes))
            state = self._with_entering_rows(state, every[signs != 0], signs[signs != 0], fetched)
        if state.status != "running":
            return state
        unread = len(state.block_bounds.unread)
        if unread:
            return replace(state, stages=2 if unread >= ENOUGH_FOR_STAGES else 1)
        return self._certified_or_solved(state)

    def _slack(self, state: HardMarginState, every: WorkingSet) -> float:
        """The slack: rows with margins up to this far above the bound are cached; every: the rows of a sample."""
        room = ROOM_SHARE * self.working_set_rows / self.source.rows
        share = min(self.near_share, room)
        if share * len(every) < 1 or not np.isfinite(state.upper):
            return 0.0
        return max(0.0, float(np.quantile(self._margins(state, every), share)) - (1 - self.epsilon) * state.upper)

    def _without_changed_rows(
        self, old: HardMarginState, ids: NDArray[np.int64], entering: NDArray[np.int64], difference: Difference
    ) -> HardMarginState:
        """The earlier state without the changed rows ``ids``; rows ``entering`` a class are added later."""
        source, core = self.source, old.coreset
        working_set = old.working_set.add(SentRows.one_part(core.ids, core.rows, core.signs))  # in case it was evicted
        working_set = working_set.take(np.flatnonzero(~isin_ids(working_set.ids, ids)))
        chunks, counts = np.unique(entering // source.chunk_rows, return_counts=True)
        many_changed = chunks[counts > FEW_OF_CHUNK * source.chunk_rows]
        histogram = old.histogram
        if old.reading:
            histogram = histogram + self._histogram(old, old.working_set)
        return replace(
            old,
            round=0,
            status="not_separable" if old.status == "not_separable" else "running",
            block_bounds=old.block_bounds.without(many_changed, source.chunks),
            working_set=self._with_balanced_weights(working_set),
            near_rows=None if old.near_rows is None else old.near_rows.without(ids),
            near_rows_lost=old.near_rows_lost and len(old.block_bounds.unread) > 0,  # not if all was read again since
            newest=old.best or old.newest,
            best=None,
            lower=-np.inf,
            lower_now=-np.inf,
            rows_below=None,
            new_rows=0,
            upper_at_eviction=np.inf,
            sample_bytes=difference.nbytes,
            histogram=histogram,
            in_stages=True,
            stage=0,
            stages=0,
            warm_started=True,
        )

    def _with_entering_rows(
        self, state: HardMarginState, ids: NDArray[np.int64], signs: NDArray[np.int8], fetched: RowFetcher
    ) -> HardMarginState:
        """Add rows (m,) that enter these classes, of chunks that will not be read as a whole."""
        chunks, before, violated = ids // self.source.chunk_rows, fetched.rows, False
        for chunk in np.unique(chunks[state.block_bounds.direction_index[chunks] >= 0]).tolist():
            may_stop()
            mine = np.flatnonzero(chunks == chunk)
            coming = WorkingSet.unweighted(ids[mine], fetched(ids[mine]), signs[mine])
            violated |= self._violates(state, coming)
            near = self._margins(state, coming) < (1 - self.epsilon) * state.upper + state.slack
            # rows below the bound of their chunk join the working set, so that the bound need not be lowered
            near |= state.block_bounds.below(chunks[mine], coming.rows, coming.signs)
            if len(state.known_ids) + np.count_nonzero(near) > self.working_set_rows:
                raise CannotWarmStart(TOO_MANY)
            beyond, joining = coming.take(np.flatnonzero(~near)), coming.take(np.flatnonzero(near))
            state = replace(
                state,
                block_bounds=state.block_bounds.lowered(np.full(len(beyond), chunk), beyond.rows, beyond.signs),
                working_set=state.working_set.add(SentRows.one_part(joining.ids, joining.rows, joining.signs)),
            )
        read = (fetched.rows - before) * row_bytes(self.source)
        state = replace(state, sample_bytes=state.sample_bytes + read)
        if not violated:
            return state
        return self._with_forecast(self._solve(state, state.working_set), state.newest, WARM_START_PACE)

    def _with_balanced_weights(self, working_set: WorkingSet) -> WorkingSet:
        """Scale dual weights to sum to 1 in each class, or in total without intercept; 0 if a class has none left."""
        signs = working_set.signs
        sides = [signs > 0, signs < 0] if self.intercept else [np.ones(len(working_set), bool)]
        sums = [working_set.weights[side].sum() for side in sides]
        weights = np.zeros(len(working_set))
        if min(sums) > 0:
            for side, total in zip(sides, sums, strict=True):
                weights[side] = working_set.weights[side] / total
        return working_set.weighted(weights)
