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

from coremargin.maths.margin import is_certified
from coremargin.problems.common.outward import margin_outward
from coremargin.problems.common.pool import Pool
from coremargin.problems.common.sent import BringRows, Brought
from coremargin.problems.common.stages import Stages, growth_of, stages_of
from coremargin.problems.common.start import check_scale, class_weights, sample_chunks
from coremargin.problems.hard.forecast import ONWARD_PACE, cuts
from coremargin.problems.hard.ledger import Ledger
from coremargin.problems.hard.onward import Onward
from coremargin.problems.hard.probe import MarginProbe
from coremargin.problems.hard.result import result, round_of
from coremargin.problems.hard.state import HardMarginState, Hypothesis
from coremargin.problems.hard.summary import MarginSummary

if TYPE_CHECKING:
    from collections.abc import Mapping

    from coremargin.engine.problem import Round
    from coremargin.maths.rows import Rows
    from coremargin.problems.common.result import Result
    from coremargin.problems.common.start import Sample

SKETCH_ROWS, BINS = 1000, 200


@dataclass(frozen=True)
class HardMargin(Onward):
    """Maximum-margin separation of two classes, to a share 1 - epsilon of the best possible margin.

    Which rows are read when, and what is asked of them.
    """

    @property
    def eager(self) -> bool:
        """As the strategy says."""
        return self.rule.eager

    def round_of(self, state: HardMarginState) -> Round:
        """What is told of a state."""
        return round_of(state)

    def result(self, state: HardMarginState) -> Result:
        """The model that a state stands for."""
        return margin_outward(result(state), self.source, self.epsilon)

    def restore(self, arrays: Mapping[str, NDArray[Any]]) -> HardMarginState:
        """A state from a checkpoint."""
        return HardMarginState.from_arrays(arrays)

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

    def unsolved(self) -> HardMarginState:
        """No row is known."""
        return self._blank

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
    def stage_chunks(self) -> tuple[int, ...]:
        """Of the first read, where the strategy makes it in stages."""
        return self.stages.sizes if self.rule.staged else ()

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
            if state.stage == 0 and not state.onward:
                return BringRows(self.codes, source.features, source.dtype.name, source.sparse)
            return self._stage_probe(state, self._chunks_of(state), last=state.stage + 1 == state.stages)
        if state.onward:  # read once more: again with what lies near, for the next commit
            chunks = np.flatnonzero(~self.skip(state))
            return self.rule.question(self._stage_probe(state, chunks, last=True), state.best, self.epsilon)
        low, high = self._range(state)
        plain = self._plain_probe(state, self._rows_sent, source.chunks)
        return self.rule.question(replace(plain, low=low, high=high), state.best, self.epsilon)

    def _chunks_of(self, state: HardMarginState) -> NDArray[np.intp]:
        """Those of the stage that comes next."""
        return self.onward_chunks(state) if state.onward else self.stages.chunks(state.stage)

    def _plain_probe(self, state: HardMarginState, rows: int, chunks: int) -> MarginProbe:
        """The margins of the newest hypothesis, and the lowest rows: so many, of so many chunks."""
        source = self.source
        return MarginProbe(
            base=state.newest.w[:, None], mix=np.ones((1, 1)), offset=state.newest.b, codes=self.codes,
            level=min(state.upper, 1e300), keep=1, keep_chunk=rows / (2 * chunks), known=np.sort(state.known),
            low=state.low, high=state.high, bins=BINS, dtype=source.dtype.name, chunk_rows=source.chunk_rows,
            sparse=source.sparse,
        )  # fmt: skip

    def _stage_probe(self, state: HardMarginState, chunks: NDArray[np.intp], *, last: bool) -> MarginProbe:
        """What the chunks of a stage are asked: for all rows that may matter to hypotheses that are still to come."""
        room = self.pool_rows - len(state.known)
        level = min((1 - self.epsilon) * state.upper, 1e300)
        return replace(
            self._plain_probe(state, max(self._rows_sent, room if last else room // 2), len(chunks)),
            asked=chunks, cuts=cuts(self.source, chunks, state.move, level, state.newest.b, state.slack),
        )  # fmt: skip

    def skip(self, state: HardMarginState) -> NDArray[np.bool_]:
        """Chunks (c,) of other stages; after the first read those that the strategy need not see."""
        if not state.reading:
            known = self.rule.skip(self.source, state, self.epsilon)
            end = state.onward and bool(known.all())  # float64 has come to it: then all rows are looked at
            return np.zeros_like(known) if end else known
        skipped = np.ones(self.source.chunks, bool)
        skipped[self._chunks_of(state)] = False
        return skipped

    def ahead(self, state: HardMarginState) -> NDArray[np.intp]:
        """The next stage but one."""
        reading = state.reading and not state.onward
        return self.stages.chunks(state.stage + 1) if reading else super().ahead(state)

    def enough(self, summary: MarginSummary | Brought) -> bool:
        """As the strategy says."""
        return isinstance(summary, MarginSummary) and self.rule.enough(summary)

    # update

    def update(self, state: HardMarginState, summary: MarginSummary | Brought) -> HardMarginState:
        """Bounds, pool and hypothesis after a stage or a scan."""
        if isinstance(summary, Brought):
            return self._first_stage(state, summary.sent.ids, summary.sent.rows, summary.sent.signs)
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
        state = replace(self._forecast(state, before, 1.0), slack=self._slack(state, every))
        low, high = self._range(state)
        state = replace(state, low=low, high=high, pool=state.pool.take(state.pool.support))
        chunks = self.stages.chunks(0)
        asked = self._stage_probe(state, chunks, last=state.stages == 1)
        found = asked.in_memory(self.source, chunks, ids, rows, signs)
        state = self._recorded(state, found)
        pool = state.pool.add(found.sent)
        return self._read_or_on(replace(state, pool=pool))

    def _next_stage(self, state: HardMarginState, summary: MarginSummary) -> HardMarginState:
        """Floors at the hypothesis of the stage, and the hypothesis of the next one."""
        before, pace = state.newest, ONWARD_PACE if state.onward else self.stages.pace(state.stage)
        pool, state = self._grow(self._recorded(state, summary), summary)
        broken = state.new_rows > 0
        if state.onward:  # all others were counted when they came, and do not break the margin
            coming = pool.take(np.arange(len(pool) - state.new_rows, len(pool)))
            broken = self._breaks(state, coming)
            state = replace(state, histogram=state.histogram + self._histogram(state, coming))
        ledger = self._truthful(state, summary, pool)
        state = replace(state, round=state.round + 1, stage=state.stage + 1, ledger=ledger, pool=pool)
        if state.onward and not state.reading:  # where nothing new breaks it the old proof stands
            return self._stands_or_solved(state)
        if broken:
            state = self._solve(state, pool)
        return self._read_or_on(self._forecast(state, before, pace))

    def _recorded(self, state: HardMarginState, summary: MarginSummary) -> HardMarginState:
        """With what a stage found at the newest hypothesis."""
        return replace(
            state, histogram=state.histogram + summary.histogram, in_stages=state.onward or state.stages > 1,
            rows_below=(state.rows_below or 0) + int(summary.below[0]),
            ledger=state.ledger.record(summary.floor_chunk, summary.floor, state.newest.w),
        )  # fmt: skip

    def _read_or_on(self, state: HardMarginState) -> HardMarginState:
        """After the last stage: what the floors of all stages prove of the newest hypothesis."""
        if state.reading or state.status != "running":
            return state
        return self._proven(replace(state, histogram=state.histogram + self._histogram(state, state.pool)))

    def _scanned(self, state: HardMarginState, summary: MarginSummary) -> HardMarginState:
        """Bounds, pool and hypothesis after a scan of what the first read has left unproven, or of all chunks."""
        probe = cast("MarginProbe", self.probe(state))
        state = replace(state, round=state.round + 1, rows_below=int(summary.below[0]), new_rows=0)
        unread = np.setdiff1d(np.arange(self.source.chunks), summary.floor_chunk)
        if not (state.in_stages and (len(unread) or state.onward)):
            state = replace(state, histogram=summary.histogram, low=probe.low, high=probe.high, in_stages=False)
        if not self.enough(summary):  # an early end leaves rows unseen: no bound, and no ledger
            state = self._prove(state, probe.directions, summary.smallest, unread)
            state = replace(
                state, ledger=state.ledger.record(summary.floor_chunk, summary.floor, state.newest.w)
            )  # fmt: skip
            if is_certified(state.lower, state.upper, self.epsilon):
                return replace(state, status="certified", ledger=self._truthful(state, summary, state.pool))
        pool, state = self._grow(state.at_home(), summary)
        if not state.new_rows:
            pool, state = self._with_evidence(state, summary, pool)
        state = replace(state, ledger=self._truthful(state, summary, pool))
        if state.new_rows == 0:
            return replace(state, status="stalled")
        solved = self._solve(state, pool)
        return self._forecast(solved, state.newest, ONWARD_PACE) if state.onward else solved

    @property
    def _rows_sent(self) -> int:
        return self.rule.rows_sent(self.source, self.pool_rows)
