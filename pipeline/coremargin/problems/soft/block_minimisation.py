"""The soft margin where not all rows fit into memory, and d x d sums do not or would be worse: block minimisation.

The dual is kept for all rows, one number each. A pass goes over the rows a segment at a time, as much as memory has
room for: rows whose duals contradict their margins are sent, and with those cached from before, the nearest to the
margin, their part of the dual is solved exactly, all other duals fixed: selective block minimisation (Yu, Hsieh, Chang,
Lin 2010; Chang, Roth 2011). Every segment raises the dual, so that no step is ever too long, whatever the rows are
like. When the gains say so, a scan of all rows at the mean of a pass is the proof: its value from above, and from
below, with the hinge these duals, with the squared hinge those that belong to the mean.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from functools import cached_property
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from coremargin.maths import soft_margin as soft
from coremargin.maths.margin import is_certified
from coremargin.maths.rows import products
from coremargin.problems.common.classes import check_scale
from coremargin.problems.common.sample import Sample, read_sample, sample_chunks
from coremargin.problems.common.zone import IDLE_SHARE
from coremargin.problems.soft.block_pace import is_due, passes_to_wait
from coremargin.problems.soft.block_probe import BlockProbe, ProofProbe
from coremargin.problems.soft.block_state import BlockPass
from coremargin.problems.soft.block_steps import balanced, by_use, fields_of, first, joined, solved, spread
from coremargin.problems.soft.bounds import BALANCE, DualSums, best_point, dual_bound, squared_bound
from coremargin.problems.soft.result import result, round_of
from coremargin.problems.soft.rows_with_c import RowsWithC
from coremargin.problems.soft.start import histogram_range
from coremargin.problems.soft.state import LastScan, SoftState

if TYPE_CHECKING:
    from collections.abc import Mapping

    from coremargin.data.source import Source
    from coremargin.engine.problem import Round
    from coremargin.engine.want import Want
    from coremargin.problems.common.result import Result
    from coremargin.problems.soft.base import SoftBase
    from coremargin.problems.soft.objective import Objective
    from coremargin.problems.soft.probe import NearMarginProbe
    from coremargin.problems.soft.summary import NearMarginSummary

Array = NDArray[np.float64]

#: Of the memory a third each: for the rows that a segment sends at most, and for those cached from before.
SEGMENT_PART, CACHED_PART = 3, 3
#: Rows stay where they are while the contradictions of all of them cannot add more than this share of epsilon.
SETTLED = 0.01
#: So many proofs in a row that leave more than ``IDLE_SHARE`` of the gap are the last; solves are sharper after each.
MOST_IDLE = 4


@dataclass(frozen=True)
class BlockMinimisation:
    """``SoftBase`` by selective block minimisation.

    evaluated: the mean of a pass is the model where it is good enough, though a better point may lie beside it: whoever
    counts what the mean decides, in the same scan, needs no other one.
    """

    job: SoftBase
    evaluated: bool = False

    eager = False

    @property
    def source(self) -> Source:
        """The rows."""
        return self.job.source

    @property
    def codes(self) -> tuple[int, int]:
        """Codes of the positive and the negative class."""
        return self.job.codes

    def check(self) -> None:
        """Refuse what cannot be trained. Raises LabelError, StoreError."""
        self.job.check()

    @property
    def want(self) -> Want:
        """That of the problem."""
        return self.job.want

    @property
    def least_block_bytes(self) -> int:
        """Summaries hold no matrix: blocks may be of any size."""
        return 1

    # start

    @property
    def stage_chunks(self) -> tuple[int, ...]:
        """No stages: a pass goes over segments."""
        return ()

    @property
    def reads_again(self) -> bool:
        """In each pass."""
        return True

    @property
    def holds_all_rows(self) -> bool:
        """A segment of them at a time."""
        return False

    @property
    def sample_chunks(self) -> list[int]:
        """The chunks that are read before the first pass: within the memory for rows that are cached."""
        job, source = self.job, self.source
        most = job.memory_bytes // CACHED_PART * source.nbytes // max(1, source.rows * job.row_bytes)
        return sample_chunks(source, job.codes, job.sample_share, min(job.sample_bytes, most))

    def start(self) -> SoftState:
        """The state before the first pass: the duals of a sample's rows are the best ones if there were no others."""
        return self.begin(read_sample(self.source, self.sample_chunks, self.codes))

    def unsolved(self) -> SoftState:
        """All duals are zero."""
        return replace(self.job.unsolved(), block_pass=BlockPass.nothing(self.source.rows, self.source.features))

    def begin(self, found: Sample, near: BlockPass | None = None) -> SoftState:
        """The state before the first pass, from some rows of both classes.

        near: a dual point of these rows to start from, in its box.
        """
        job, source = self.job, self.source
        check_scale(source, job.class_c, job.totals)
        sample = RowsWithC.of_sample(found, np.arange(len(found.ids)), job.class_c)
        sample = spread(sample, job.memory_bytes // CACHED_PART)
        block_pass = BlockPass.nothing(source.rows, source.features) if near is None else near
        state = replace(job.unsolved(), newest=block_pass.at, sample_bytes=found.nbytes(source), block_pass=block_pass)
        state = self._solved(state, sample, block_pass)
        # The gain over a point for another C says nothing about the next one.
        state = replace(state, block_pass=replace(_block_pass(state), gain=1.0))
        margins = sample.signs * (products(sample.rows, state.newest[:-1, None])[0] + state.newest[-1])
        low, high = histogram_range(margins)
        return replace(state, last_scan=LastScan.nothing(low, high))

    # scan

    @cached_property
    def segments(self) -> list[range]:
        """The chunks of each segment of a pass."""
        room = max(1, self.job.memory_bytes // SEGMENT_PART // (self.source.chunk_rows * self.job.row_bytes))
        return [range(k, min(k + room, self.source.chunks)) for k in range(0, self.source.chunks, room)]

    def proving(self, state: SoftState) -> bool:
        """True when the next scan is about all rows."""
        return _block_pass(state).segment == len(self.segments)

    def probe(self, state: SoftState) -> NearMarginProbe:
        """The question of the next scan."""
        job, block_pass, nothing = self.job, _block_pass(state), np.zeros(0, np.int64)
        if not self.proving(state):
            least = SETTLED * job.epsilon * max(0.0, block_pass.value) / float(job.class_c @ job.totals)
            most = max(1, job.memory_bytes // SEGMENT_PART // job.row_bytes)  # rows that are sent
            keep = most // len(self.segments[block_pass.segment])
            plain = job.near_probe(replace(state, best=None), keep=keep, cached=state.rows.cached.ids)
            return BlockProbe(**fields_of(plain), duals=block_pass.duals, first=0, least=job.loss.slack(least))
        plain = job.near_probe(replace(state, best=block_pass.at), keep=0, cached=nothing)
        return ProofProbe(**fields_of(plain), duals=block_pass.duals, first=0) if job.loss.names_duals else plain

    def skip(self, state: SoftState) -> NDArray[np.bool_]:
        """All chunks but those of the segment."""
        skipped = np.zeros(self.source.chunks, bool)
        if not self.proving(state):
            skipped[:] = True
            skipped[list(self.segments[_block_pass(state).segment])] = False
        return skipped

    def ahead(self, state: SoftState) -> NDArray[np.intp]:
        """The segment after the next one; behind the last one, passes and proofs begin with the first."""
        after = (_block_pass(state).segment + 1) % len(self.segments)
        return np.array([] if self.proving(state) else self.segments[after], np.intp)

    def enough(self, summary: NearMarginSummary) -> bool:
        """Never before the end."""
        return False

    def done(self, state: SoftState) -> bool:
        """True when there is nothing left to prove or to gain."""
        return state.status != "running"

    def result(self, state: SoftState) -> Result:
        """The model that a state stands for."""
        return self.job.claimed(result(state))

    def restore(self, arrays: Mapping[str, NDArray[Any]]) -> SoftState:
        """A state from a checkpoint."""
        return SoftState.from_arrays(arrays)

    # update

    def update(self, state: SoftState, summary: NearMarginSummary) -> SoftState:
        """The duals after a segment, or bounds after a scan of all rows; what is next."""
        proven = self.proving(state)
        state = self.advanced(state, summary)
        return state if proven or not self.proving(state) else self.decided(state, proof=self.due(state))

    def advanced(self, state: SoftState, summary: NearMarginSummary) -> SoftState:
        """``update`` but for what follows a pass: then a proof is next, unless ``decided`` says otherwise."""
        state = replace(
            state, round=state.round + 1, last_scan=replace(state.last_scan, near_rows=len(summary.row_id))
        )  # fmt: skip
        if self.proving(state):
            return self._proven(state, summary)
        block_pass = _block_pass(state)
        chunks = self.segments[block_pass.segment]
        state = self._solved(state, joined(state.rows.cached, summary), block_pass)
        after = _block_pass(state)
        rows = self.source.span(chunks[-1])[1] - self.source.span(chunks[0])[0]
        after = replace(
            after, total=block_pass.total + rows * after.at, seen=block_pass.seen + rows, segment=block_pass.segment + 1
        )  # fmt: skip
        if after.segment == len(self.segments):
            values = np.append(after.values, after.value)
            after = replace(after, values=values, waited=after.waited + 1, scans=after.scans + 1)
        return replace(state, block_pass=after)

    def _solved(self, state: SoftState, some: RowsWithC, block_pass: BlockPass) -> SoftState:
        """With the best duals of the rows at hand, all others fixed; only rows that memory allows stay."""
        after, margins = solved(self.job.objective, some, block_pass, state.zone.idle)
        order = by_use(self.job.objective, some, margins, after.duals)
        kept = replace(state.rows, cached=first(some, order, self.job.memory_bytes // CACHED_PART))
        return replace(state, newest=after.at, rows=kept, block_pass=after)

    def due(self, state: SoftState) -> bool:
        """After a pass: whether it is time for a proof."""
        return is_due(_block_pass(state), self.job.epsilon, proven=bool(np.isfinite(state.upper)))

    def decided(self, state: SoftState, *, proof: bool) -> SoftState:
        """After a pass: the proof is next, or another pass."""
        block_pass = _block_pass(state)
        if not proof:
            return replace(state, block_pass=_again(block_pass))
        if self.job.loss.names_duals and self.job.intercept:
            block_pass = balanced(state.rows.cached, block_pass)
        return replace(state, newest=block_pass.mean, block_pass=block_pass)

    def _proven(self, state: SoftState, summary: NearMarginSummary) -> SoftState:
        """Bounds at the mean of the pass; certified, or another pass."""
        objective, block_pass, due = self.job.objective, _block_pass(state), self.due(state)
        before = soft.relative_gap(state.upper, state.lower)
        block_pass = replace(_again(block_pass), scans=block_pass.scans + 1)
        last_scan = replace(state.last_scan, histogram=summary.histogram, rows_below=int(summary.below[0]))
        state = replace(state, last_scan=last_scan, block_pass=block_pass)
        between = replace(state, best=block_pass.at)
        bound = _hinge_bound if objective.loss.names_duals else squared_bound
        state, points = bound(objective, state, summary), self.job.points(between)
        tried = best_point(objective, points[:1], between, summary)
        if not (self.evaluated and is_certified(state.lower, tried.upper, objective.epsilon)):
            tried = best_point(objective, points, between, summary)
        if tried.upper < state.upper:
            state = replace(state, best=tried.best, bounds=replace(state.bounds, primal=tried.upper))
        gap = soft.relative_gap(state.upper, state.lower)
        if is_certified(state.lower, state.upper, objective.epsilon):
            return replace(state, status="certified")
        rise = np.diff(block_pass.values, prepend=0.0)[-max(1, block_pass.waited) :].sum()
        rose = rise > objective.epsilon * abs(block_pass.value)
        # A proof that is not due comes with one of other members of a fleet, too soon to say that nothing is gained.
        idle = 0 if rose or gap <= IDLE_SHARE * before else state.zone.idle + due
        if idle == MOST_IDLE:
            return replace(state, status="stalled")
        wait = passes_to_wait(block_pass, self.job.epsilon, before, gap) if np.isfinite(gap) else 1
        block_pass, zone = replace(block_pass, wait=wait, waited=0), replace(state.zone, idle=idle)
        return replace(state, newest=block_pass.at, block_pass=block_pass, zone=zone)

    def broken(self, state: SoftState) -> SoftState:
        """The state, "stalled"."""
        return replace(state, status="stalled")

    def part(self, state: SoftState) -> int:
        """The segments of a pass that are done, 0 when it is over."""
        return 0 if self.proving(state) else _block_pass(state).segment

    def round_of(self, state: SoftState) -> Round:
        """What is told of a state; before the first proof nothing is proven. A pass or a proof is a scan."""
        part = self.part(state)
        found = replace(round_of(state), number=_block_pass(state).scans + (part > 0), part=part)
        return found if np.isfinite(state.upper) else replace(found, lower=-np.inf, lower_now=-np.inf)


def _block_pass(state: SoftState) -> BlockPass:
    assert state.block_pass is not None  # noqa: S101  states of block minimisation have one
    return state.block_pass


def _again(block_pass: BlockPass) -> BlockPass:
    """At the beginning of a pass."""
    return replace(block_pass, segment=0, total=np.zeros(len(block_pass.total)), seen=0)


def _hinge_bound(objective: Objective, state: SoftState, summary: NearMarginSummary) -> SoftState:
    """With the dual bound of the duals of all rows, where they are in balance."""
    linear, signs = summary.far_linear, summary.row_sign
    duals = _block_pass(state).duals[summary.row_id] * signs
    total = float(summary.far_c[0] + duals.sum())
    if objective.intercept and abs(float(linear[-1])) > BALANCE * total:
        return state
    named = (summary.row_id, signs, duals)
    return dual_bound(objective, state, DualSums(float(summary.far_c[0]), linear[:-1], len(duals)), named)
