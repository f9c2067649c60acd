"""The hard-margin problem: its read in stages, its scans, its bounds.

A strategy (``strategies/``) says which rows to begin with, what a scan asks, and which rows join the pool. All keep the
same bound pair: ``upper`` from the dual weights of the pool, ``lower`` from a scan of all rows.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from functools import cached_property
from typing import TYPE_CHECKING, Any, cast

import numpy as np
from numpy.typing import NDArray

from coremargin.maths.margin import Array, best_offset, is_certified, lower_bound, smallest_projections
from coremargin.maths.pool import hulls_meet, solve_pool
from coremargin.maths.rows import Rows, as_float64, products, take, vector
from coremargin.problems.common.brought import BringRows, Brought
from coremargin.problems.common.pool import Pool
from coremargin.problems.common.stages import Stages, growth_of, stages_of
from coremargin.problems.common.start import (
    SAMPLE_BYTES,
    SAMPLE_SHARE,
    Sample,
    check_scale,
    class_weights,
    pool_row_bytes,
    sample_chunks,
)
from coremargin.problems.common.two_class_problem import TwoClassProblem
from coremargin.problems.hard.forecast import cuts, forecast
from coremargin.problems.hard.ledger import Ledger
from coremargin.problems.hard.probe import MarginProbe
from coremargin.problems.hard.result import result, round_of
from coremargin.problems.hard.state import HardMarginState, Hypothesis
from coremargin.problems.hard.strategies.table import STRATEGIES
from coremargin.problems.hard.summary import MarginSummary

if TYPE_CHECKING:
    from collections.abc import Mapping

    from coremargin.engine.problem import Round
    from coremargin.formats.choices import Strategy as Name
    from coremargin.problems.common.result import Result
    from coremargin.problems.hard.strategies.strategy import Strategy

SKETCH_ROWS, BINS = 1000, 200


@dataclass(frozen=True)
class HardMargin(TwoClassProblem[HardMarginState, "MarginSummary | Brought"]):
    """Maximum-margin separation of two classes, to a share 1 - epsilon of the best possible margin.

    epsilon in (0, 1); pool_bytes: memory for the pool's rows; first_chunks: of the first stage, where several problems
    are read together, None: ``sample_chunks``.
    """

    epsilon: float
    intercept: bool = True
    strategy: Name = "fast"
    pool_bytes: int = 256 << 20
    sample_share: float = SAMPLE_SHARE
    sample_bytes: int = SAMPLE_BYTES
    first_chunks: tuple[int, ...] | None = None

    @property
    def rule(self) -> Strategy:
        """What the strategy's name stands for."""
        return STRATEGIES[self.strategy]

    @property
    def eager(self) -> bool:
        """As the strategy says."""
        return self.rule.eager

    def round_of(self, state: HardMarginState) -> Round:
        """What is told of a state."""
        return round_of(state)

    def result(self, state: HardMarginState) -> Result:
        """The model that a state stands for."""
        return result(state)

    def restore(self, arrays: Mapping[str, NDArray[Any]]) -> HardMarginState:
        """A state from a checkpoint."""
        return HardMarginState.from_arrays(arrays)

    @property
    def pool_rows(self) -> int:
        """How many rows the pool may hold."""
        return max(min(4 * (self.source.features + 2), 1000), self.pool_bytes // pool_row_bytes(self.source))

    # start

    def start(self) -> HardMarginState:
        """Nothing, where stages bring the rows to begin with; else solved on the strategy's first rows."""
        check_scale(self.source)
        class_weights(self.source, self.codes)  # a class must not be left out as a whole
        state = self._blank
        if self.rule.staged:
            return state
        found = self.rule.first(self.source, self.codes)
        pool = Pool.of(found.ids, found.rows, found.signs)
        state = replace(state, sketch=pool, new_rows=len(pool), sample_bytes=found.nbytes(self.source))
        return self._solve(state, pool)

    @property
    def _blank(self) -> HardMarginState:
        source = self.source
        empty = Pool.nothing(source.features, source.dtype, sparse=source.sparse)
        return HardMarginState(
            round=0, status="running", pool=empty, newest=Hypothesis.zero(source.features), best=None, lower=-np.inf,
            upper=np.inf, coreset=empty, ledger=Ledger.blank(source.chunks, source.features), sketch=empty,
            histogram=np.zeros((2, BINS), np.int64), low=0.0, high=1.0, rows_below=None, new_rows=0,
            upper_at_eviction=np.inf, sample_bytes=0, move=np.zeros(source.features + 1),
            stages=self.stages.count if self.rule.staged else 0,
        )  # fmt: skip

    @cached_property
    def stages(self) -> Stages:
        """Which chunks the stages of the first read are about."""
        growth = growth_of(self.source.rows, self.source.features)
        return stages_of(self.source.chunks, self.first_chunks or self.sample_chunks, growth)

    @property
    def sample_chunks(self) -> list[int]:
        """The chunks of the first stage: of a small store all."""
        source = self.source
        # Of fewer rows than features nearly all carry the margin: a sample of them tells little.
        wide = source.rows < source.features
        limit = max(self.sample_bytes, self.pool_bytes) if wide else self.sample_bytes
        return sample_chunks(source, self.codes, self.sample_share, limit)

    def begin(self, sample: Sample) -> HardMarginState:
        """The state after the first stage, whose rows of both classes, or of one, somebody else has read."""
        state = replace(self._blank, sample_bytes=sample.nbytes(self.source))
        return self._first_stage(state, sample.ids, sample.rows, sample.signs)

    # probe

    def probe(self, state: HardMarginState) -> MarginProbe | BringRows:
        """The question of the next stage, or of the next scan."""
        source = self.source
        if state.reading:
            if state.stage == 0:
                return BringRows(self.codes, source.features, source.dtype.name, source.sparse)
            return self._stage_probe(state, state.stage)
        low, high = self._range(state)
        plain = self._plain_probe(state, self._rows_sent, source.chunks)
        return self.rule.question(replace(plain, low=low, high=high), state.best, self.epsilon)

    def _plain_probe(self, state: HardMarginState, rows: int, chunks: int) -> MarginProbe:
        """The margins of the newest hypothesis, and the lowest rows: so many, of so many chunks."""
        source = self.source
        return MarginProbe(
            base=state.newest.w[:, None], mix=np.ones((1, 1)), offset=state.newest.b, codes=self.codes,
            level=min(state.upper, 1e300), keep=1, keep_chunk=rows / (2 * chunks), known=np.sort(state.pool.ids),
            low=state.low, high=state.high, bins=BINS, dtype=source.dtype.name, chunk_rows=source.chunk_rows,
            sparse=source.sparse,
        )  # fmt: skip

    def _stage_probe(self, state: HardMarginState, stage: int) -> MarginProbe:
        """What the chunks of a stage are asked: for all rows that may matter to hypotheses that are still to come."""
        chunks, room = self.stages.chunks(stage), self.pool_rows - len(state.pool)
        level = min((1 - self.epsilon) * state.upper, 1e300)
        last = stage + 1 == state.stages
        return replace(
            self._plain_probe(state, max(self._rows_sent, room if last else room // 2), len(chunks)),
            asked=chunks, cuts=cuts(self.source, chunks, state.move, level, state.newest.b),
        )  # fmt: skip

    def skip(self, state: HardMarginState) -> NDArray[np.bool_]:
        """Chunks (c,) of other stages; after the first read those that the strategy need not see."""
        return self.stages.skipping(state.stage) if state.reading else self.rule.skip(self.source, state, self.epsilon)

    def enough(self, summary: MarginSummary | Brought) -> bool:
        """As the strategy says."""
        return isinstance(summary, MarginSummary) and self.rule.enough(summary)

    # update

    def update(self, state: HardMarginState, summary: MarginSummary | Brought) -> HardMarginState:
        """Bounds, pool and hypothesis after a stage or a scan."""
        if isinstance(summary, Brought):
            return self._first_stage(state, *summary.joined())
        return self._next_stage(state, summary) if state.reading else self._scanned(state, summary)

    def _first_stage(
        self, state: HardMarginState, ids: NDArray[np.int64], rows: Rows, signs: NDArray[np.int8]
    ) -> HardMarginState:
        """Solve on these rows, all of the first stage; then ask them in memory what later stages are asked."""
        every = Pool.of(ids, rows, signs)
        sketch = np.linspace(0, len(every) - 1, min(SKETCH_ROWS, len(every))).astype(int)
        state = replace(state, round=state.round + 1, stage=1, sketch=every.take(sketch), new_rows=len(every))
        half = every.take(np.arange(0, len(every), 2))
        before, weights = state.newest, np.zeros(len(every))
        if half.both_classes or not self.intercept:
            state = self._solve(state, half)
            before, weights[::2] = state.newest, state.pool.weights
        state = self._solve(state, every.weighted(weights))
        if state.status != "running":
            return state
        state = self._forecast(state, before, 1.0)
        low, high = self._range(state)
        state = replace(state, low=low, high=high, pool=state.pool.take(state.pool.support))
        found = self._stage_probe(state, 0).in_memory(self.source, self.stages.chunks(0), ids, rows, signs)
        state = self._recorded(state, found)
        pool = state.pool.add(found.row_id, found.row_x, found.row_sign)
        return self._read_or_on(replace(state, pool=pool))

    def _next_stage(self, state: HardMarginState, summary: MarginSummary) -> HardMarginState:
        """Floors at the hypothesis of the stage, and the hypothesis of the next one."""
        before, pace = state.newest, self.stages.pace(state.stage)
        pool, state = self._grow(self._recorded(state, summary), summary)
        ledger = self._truthful(state, summary, pool)
        state = replace(state, round=state.round + 1, stage=state.stage + 1, ledger=ledger, pool=pool)
        if state.new_rows:
            state = self._solve(state, pool)
        return self._read_or_on(self._forecast(state, before, pace))

    def _recorded(self, state: HardMarginState, summary: MarginSummary) -> HardMarginState:
        """With what a stage found at the newest hypothesis."""
        return replace(
            state, histogram=state.histogram + summary.histogram, in_stages=state.stages > 1,
            rows_below=(state.rows_below or 0) + int(summary.below[0]),
            ledger=state.ledger.record(summary.floor_chunk, summary.floor, state.newest.w),
        )  # fmt: skip

    def _forecast(self, state: HardMarginState, before: Hypothesis, pace: float) -> HardMarginState:
        return replace(state, move=forecast(before, state.newest, pace, state.move))

    def _read_or_on(self, state: HardMarginState) -> HardMarginState:
        """After the last stage: what the floors of all stages prove of the newest hypothesis."""
        if state.reading or state.status != "running":
            return state
        state = self._prove(state, state.newest.w[:, None], np.full((2, 1), np.inf), np.arange(self.source.chunks))
        certified = is_certified(state.lower, state.upper, self.epsilon)
        return replace(state, status="certified") if certified else state

    def _scanned(self, state: HardMarginState, summary: MarginSummary) -> HardMarginState:
        """Bounds, pool and hypothesis after a scan of what the first read has left unproven, or of all chunks."""
        probe = cast("MarginProbe", self.probe(state))
        state = replace(state, round=state.round + 1, rows_below=int(summary.below[0]), new_rows=0)
        unread = np.setdiff1d(np.arange(self.source.chunks), summary.floor_chunk)
        if not (state.in_stages and len(unread)):
            state = replace(state, histogram=summary.histogram, low=probe.low, high=probe.high, in_stages=False)
        if not self.enough(summary):  # an early end leaves rows unseen: no bound, and no ledger
            state = self._prove(state, probe.directions, summary.smallest, unread)
            state = replace(
                state, ledger=state.ledger.record(summary.floor_chunk, summary.floor, state.newest.w)
            )  # fmt: skip
            if is_certified(state.lower, state.upper, self.epsilon):
                return replace(state, status="certified", ledger=self._truthful(state, summary, state.pool))
        pool, state = self._grow(state, summary)
        if not state.new_rows:
            pool, state = self._with_evidence(state, summary, pool)
        state = replace(state, ledger=self._truthful(state, summary, pool))
        if state.new_rows == 0:
            return replace(state, status="stalled")
        return self._solve(state, pool)

    def _prove(
        self, state: HardMarginState, directions: Array, smallest: Array, unread: NDArray[np.int64]
    ) -> HardMarginState:
        """The lower bound of directions (d, k), the newest first; the best one is kept.

        smallest (2, k): smallest y w.x of the chunks that were read; ``unread`` chunks have floors, and pool rows.
        """
        if len(unread):
            floors = state.ledger.screen(self.source, directions, unread).min(axis=2).T
            pool = smallest_projections(state.pool.rows, state.pool.signs, directions)
            smallest = np.minimum(smallest, np.minimum(floors, pool))
        lower = lower_bound(smallest, directions, self.intercept)
        offset = best_offset(smallest, self.intercept)
        k = int(np.argmax(lower))
        if lower[k] > state.lower:
            length = float(np.linalg.norm(directions[:, k]))
            best = Hypothesis(directions[:, k] / length, float(offset[k]) / length)
            state = replace(state, best=best, lower=float(lower[k]))
        return replace(state, lower_now=float(lower[0]))

    def _grow(self, state: HardMarginState, summary: MarginSummary) -> tuple[Pool, HardMarginState]:
        """The pool with rows that the scan sent; room is made first where the budget is reached."""
        ids, rows, signs = self.rule.joining(summary, state.newest)
        pool = state.pool
        if len(pool) + len(ids) > self.pool_rows and state.upper < state.upper_at_eviction:
            pool, state = self._make_room(state, len(ids))
        grown = pool.add(ids, rows, signs)
        return grown, replace(state, new_rows=len(grown) - len(pool))

    def _with_evidence(
        self, state: HardMarginState, summary: MarginSummary, pool: Pool
    ) -> tuple[Pool, HardMarginState]:
        """The pool with the scan's own evidence, where selection by fast values left it out."""
        worst = np.unique(summary.smallest_id[:, 0][np.isfinite(summary.smallest[:, 0])])
        rows, codes = self.source.rows_at(worst)
        signs = np.where(codes == self.codes[0], 1, -1).astype(np.int8)
        grown = pool.add(worst, rows.astype(self.source.dtype), signs)
        return grown, replace(state, new_rows=len(grown) - len(pool))

    def _truthful(self, state: HardMarginState, summary: MarginSummary, pool: Pool) -> Ledger:
        """The ledger after the pool took its rows: floors speak again of those that a scan sent in vain."""
        out = np.isin(summary.row_id, pool.ids, invert=True)
        rows = as_float64(take(summary.row_x, out))
        return state.ledger.lowered(summary.row_id[out] // self.source.chunk_rows, rows, summary.row_sign[out])

    def _make_room(self, state: HardMarginState, coming: int) -> tuple[Pool, HardMarginState]:
        """Give up the rows with the largest margins; never a row with weight. Bounds have moved, so it cannot cycle."""
        pool = state.pool
        kept = pool.lowest(self._margins(state, pool), max(0, self.pool_rows - coming))
        gone = np.setdiff1d(np.arange(len(pool)), kept)
        chunks = pool.ids[gone] // self.source.chunk_rows
        ledger = state.ledger.lowered(chunks, take(pool.rows, gone), pool.signs[gone])
        return pool.take(kept), replace(state, ledger=ledger, upper_at_eviction=state.upper)

    def _solve(self, state: HardMarginState, pool: Pool) -> HardMarginState:
        """Newest hypothesis and upper bound from the pool."""
        if self.intercept and not pool.both_classes:  # the margin of one class alone is unbounded
            first = vector(pool.rows, 0)
            if not first.any():
                first[0] = pool.signs[0]
            return replace(state, pool=pool, newest=Hypothesis(pool.signs[0] * first / np.linalg.norm(first), 0.0))
        start = pool.weights if (pool.weights > 0).any() else None
        solution = solve_pool(
            pool.rows, pool.signs, intercept=self.intercept, start=start, tolerance=min(1e-10, 1e-4 * self.epsilon)
        )  # fmt: skip
        meet, solution = hulls_meet(pool.rows, pool.signs, solution, intercept=self.intercept)
        pool = pool.weighted(solution.weights)
        if meet or solution.upper < state.upper:
            state = replace(state, upper=solution.upper, coreset=pool.take(pool.support))
        if solution.status == "zero":  # what a scan has proven to be separable stays so: float64 has come to its end
            return replace(state, pool=pool, status="not_separable" if meet and state.lower <= 0 else "stalled")
        return replace(state, pool=pool, newest=Hypothesis(solution.w, solution.b))

    def _margins(self, state: HardMarginState, pool: Pool) -> Array:
        return np.asarray(pool.signs * (products(pool.rows, state.newest.w[:, None])[0] + state.newest.b))

    def _range(self, state: HardMarginState) -> tuple[float, float]:
        """Where the margins of a sample lie, with some room: the range of the histogram."""
        margins = self._margins(state, state.sketch)
        low, high = float(margins.min()), float(margins.max())
        size = max(high - low, 1e-6 * abs(low), 1e-6 * abs(high))
        room = 0.25 * size if size > 1e-150 else 1.0  # equal margins, however large, still have a range around them
        return low - room, high + room

    @property
    def _rows_sent(self) -> int:
        return self.rule.rows_sent(self.source, self.pool_rows)
