"""The soft-margin problem where neither d x d sums nor the rows fit into memory: selective block minimisation.

The dual is kept for all rows, one number each. A pass goes over the rows a segment at a time, as much as memory has
room for: rows whose duals contradict their margins are sent, and with those cached from before, the nearest to the
margin, their part of the dual is solved exactly, all other duals fixed (Yu, Hsieh, Chang, Lin 2010; Chang, Roth 2011).
Every segment raises the dual, so that no step is ever too long, whatever the rows are like. When the gains say so, a
scan of all rows at the mean of a pass is the proof: its value from above, and from below, with the hinge these duals,
with the squared hinge those that belong to the mean.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, fields, replace
from functools import cached_property
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from coremargin.maths import soft_margin as soft
from coremargin.maths.margin import is_certified
from coremargin.maths.rows import products
from coremargin.problems.common.pool import Pool
from coremargin.problems.common.start import check_scale, read_sample, sample_chunks
from coremargin.problems.common.zone import IDLE_SHARE, Zone
from coremargin.problems.soft.block_probe import BlockProbe, ProofProbe
from coremargin.problems.soft.block_state import BlockPass
from coremargin.problems.soft.block_steps import balanced, first, joined, solved
from coremargin.problems.soft.bounds import BALANCE, best_point, dual_bound, squared_bound
from coremargin.problems.soft.result import result, round_of
from coremargin.problems.soft.start import histogram_range, weighted_pool
from coremargin.problems.soft.state import Bounds, LastScan, RowCache, SoftState

if TYPE_CHECKING:
    from collections.abc import Mapping

    from coremargin.data.source import Source
    from coremargin.engine.problem import Round
    from coremargin.engine.result import Result
    from coremargin.problems.soft.job import SoftJob
    from coremargin.problems.soft.objective import Objective
    from coremargin.problems.soft.probe import NearMarginProbe
    from coremargin.problems.soft.summary import NearMarginSummary

Array = NDArray[np.float64]

#: Of the memory a third each: for the rows that a segment sends at most, and for those cached from before.
SEGMENT_PART, CACHED_PART = 3, 3
#: Rows stay where they are while the contradictions of all of them cannot add more than this share of epsilon.
SETTLED = 0.01
#: What is left after a pass, as a multiple of what the gains foretell for the dual alone, and what these shrink by a
#: pass at least and at most, or as long as nothing is known.
BOTH_SIDES, SHRINK = 3.0, (0.1, 0.8, 0.4)
MOST_WAIT = 5
#: After so many passes there is a proof, whatever it proves: a job that is stopped then has something to say.
MOST_UNPROVEN = 10
#: So many proofs in a row that leave more than ``IDLE_SHARE`` of the gap are the last; solves are sharper after each.
MOST_IDLE = 4


@dataclass(frozen=True)
class BlockMinimisation:
    """``SoftJob`` by selective block minimisation."""

    job: SoftJob

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
    def least_block_bytes(self) -> int:
        """Summaries hold no matrix: blocks may be of any size."""
        return 1

    # start

    @property
    def sample_chunks(self) -> list[int]:
        """The chunks that are read before the first pass: within the memory for rows that are cached."""
        job, source = self.job, self.source
        most = job.memory_bytes // CACHED_PART * source.nbytes // max(1, source.rows * job.row_bytes)
        return sample_chunks(source, job.codes, job.sample_share, min(job.sample_bytes, most))

    def start(self) -> SoftState:
        """The state before the first pass: the duals of a sample's rows are the best ones if there were no others."""
        job, source = self.job, self.source
        check_scale(source, job.class_c, job.totals)
        found = read_sample(source, self.sample_chunks, job.codes)
        sample = weighted_pool(found, np.arange(len(found.ids)), job.class_c)
        nothing, empty = np.zeros(source.features + 1), Pool.nothing(source.features, sparse=source.sparse)
        block_pass = BlockPass(
            duals=np.zeros(source.rows), dual_sum=nothing, dual_total=0.0, at=nothing, total=nothing,
            seen=0, segment=0, values=np.zeros(0), gain=1.0, wait=0,
            waited=0, scans=0,
        )  # fmt: skip
        state = SoftState(
            round=0, status="running", newest=block_pass.at, best=None, bounds=Bounds.nothing(nothing),
            rows=RowCache(empty, empty, np.zeros(0)), zone=Zone(widen=1, idle=0), last_scan=LastScan.nothing(0.0, 1.0),
            total_rows=int(source.scalars().counts.sum(axis=0)[list(job.codes)].sum()),
            sample_bytes=found.nbytes(source), block_pass=block_pass,
        )  # fmt: skip
        state = self._solved(state, first(sample, np.arange(len(sample)), job.memory_bytes // CACHED_PART), block_pass)
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
            least = math.sqrt(least) if job.loss == "squared_hinge" else least
            most = max(1, job.memory_bytes // SEGMENT_PART // job.row_bytes)  # rows that are sent
            plain = job.near_probe(
                state, keep=most // len(self.segments[block_pass.segment]), cached=state.rows.cached.ids
            )
            return BlockProbe(**_fields(plain), duals=block_pass.duals, first=0, least=least)
        plain = job.near_probe(replace(state, best=block_pass.at), keep=0, cached=nothing)
        return plain if job.loss == "squared_hinge" else ProofProbe(**_fields(plain), duals=block_pass.duals, first=0)

    def skip(self, state: SoftState) -> NDArray[np.bool_]:
        """All chunks but those of the segment."""
        skipped = np.zeros(self.source.chunks, bool)
        if not self.proving(state):
            skipped[:] = True
            skipped[list(self.segments[_block_pass(state).segment])] = False
        return skipped

    def enough(self, summary: NearMarginSummary) -> bool:
        """Never before the end."""
        return False

    def done(self, state: SoftState) -> bool:
        """True when there is nothing left to prove or to gain."""
        return state.status != "running"

    def result(self, state: SoftState) -> Result:
        """The model that a state stands for."""
        return result(state)

    def restore(self, arrays: Mapping[str, NDArray[Any]]) -> SoftState:
        """A state from a checkpoint."""
        return SoftState.from_arrays(arrays)

    # update

    def update(self, state: SoftState, summary: NearMarginSummary) -> SoftState:
        """The duals after a segment, or bounds after a scan of all rows; what is next."""
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
        return (
            self._pass_over(state, after) if after.segment == len(self.segments) else replace(state, block_pass=after)
        )

    def _solved(self, state: SoftState, pool: Pool, block_pass: BlockPass) -> SoftState:
        """With the best duals of the rows at hand, all others fixed; only rows that memory allows stay."""
        after, margins = solved(self.job.objective, pool, block_pass, state.zone.idle)
        cached = first(pool, np.lexsort([pool.ids, np.abs(margins - 1.0)]), self.job.memory_bytes // CACHED_PART)
        return replace(state, newest=after.at, rows=replace(state.rows, cached=cached), block_pass=after)

    def _pass_over(self, state: SoftState, block_pass: BlockPass) -> SoftState:
        """After a pass: another one, or the proof."""
        values, wait = np.append(block_pass.values, block_pass.value), max(0, block_pass.wait - 1)
        block_pass = replace(block_pass, values=values, wait=wait, scans=block_pass.scans + 1)
        gains = np.diff(block_pass.values, prepend=0.0)
        due = block_pass.wait == 0 and len(gains) > 1
        if due and not np.isfinite(state.upper):
            shrink = _shrink(gains)
            left = BOTH_SIDES * float(gains[-1]) * shrink / (1.0 - shrink)
            due = left <= self.job.epsilon * abs(block_pass.value) or len(gains) >= MOST_UNPROVEN
        if not due:
            return replace(state, block_pass=_again(block_pass))
        if self.job.loss == "hinge" and self.job.intercept:
            block_pass = balanced(state.rows.cached, block_pass)
        return replace(state, newest=block_pass.mean, block_pass=block_pass)

    def _proven(self, state: SoftState, summary: NearMarginSummary) -> SoftState:
        """Bounds at the mean of the pass; certified, or another pass."""
        objective, block_pass, before = (
            self.job.objective,
            _block_pass(state),
            soft.relative_gap(state.upper, state.lower),
        )
        block_pass = replace(_again(block_pass), scans=block_pass.scans + 1)
        last_scan = replace(state.last_scan, histogram=summary.histogram, rows_below=int(summary.below[0]))
        state = replace(state, last_scan=last_scan, block_pass=block_pass)
        between = replace(state, best=block_pass.at)
        tried = best_point(objective, self.job.points(between), between, summary)
        if tried.upper < state.upper:
            state = tried
        bound = squared_bound if objective.squared else _hinge_bound
        state = bound(objective, state, summary)
        gap = soft.relative_gap(state.upper, state.lower)
        state = replace(state, last_scan=replace(state.last_scan, gap_now=gap))
        if is_certified(state.lower, state.upper, objective.epsilon):
            return replace(state, status="certified")
        rose = np.diff(block_pass.values, prepend=0.0)[-max(1, block_pass.waited) :].sum() > objective.epsilon * abs(
            block_pass.value
        )
        idle = 0 if rose or gap <= IDLE_SHARE * before else state.zone.idle + 1
        if idle == MOST_IDLE:
            return replace(state, status="stalled")
        wait = self._wait(before, gap, block_pass) if np.isfinite(gap) else 1
        block_pass, zone = replace(block_pass, wait=wait, waited=wait), replace(state.zone, idle=idle)
        return replace(state, newest=block_pass.at, block_pass=block_pass, zone=zone)

    def _wait(self, before: float, gap: float, block_pass: BlockPass) -> int:
        """How many passes will close the gap, as the gaps of the last two proofs or else the gains say."""
        shrink = max(_shrink(np.diff(block_pass.values, prepend=0.0)), SHRINK[2])
        if np.isfinite(before) and block_pass.waited:
            shrink = min(max((gap / before) ** (1.0 / block_pass.waited), SHRINK[0]), SHRINK[1])
        return min(max(1, math.ceil(math.log(max(gap / self.job.epsilon, 1.0)) / -math.log(shrink))), MOST_WAIT)

    def round_of(self, state: SoftState) -> Round:
        """What is told of a state; before the first proof nothing is proven.

        A pass or a proof is a scan; part: the segments of a pass that are done, 0 when it is over.
        """
        block_pass, found = _block_pass(state), round_of(state)
        part = 0 if self.proving(state) else block_pass.segment
        found = replace(found, number=block_pass.scans + (part > 0), finished=part == 0, more={"part": part})
        return found if np.isfinite(state.upper) else replace(found, lower=-np.inf, lower_now=-np.inf)


def _fields(values: Any) -> dict[str, Any]:
    return {field.name: getattr(values, field.name) for field in fields(values)}


def _block_pass(state: SoftState) -> BlockPass:
    assert state.block_pass is not None  # noqa: S101  states of block minimisation have one
    return state.block_pass


def _again(block_pass: BlockPass) -> BlockPass:
    """At the beginning of a pass."""
    return replace(block_pass, segment=0, total=np.zeros(len(block_pass.total)), seen=0)


def _shrink(gains: Array) -> float:
    """The factor from the gain of one pass to that of the next."""
    low, high, unknown = SHRINK
    if len(gains) < 2 or not gains[-2] > 0:
        return unknown
    return min(max(float(gains[-1] / gains[-2]), low), high)


def _hinge_bound(objective: Objective, state: SoftState, summary: NearMarginSummary) -> SoftState:
    """With the dual bound of the duals of all rows, where they are in balance."""
    linear, signs = summary.far_linear, summary.row_sign
    duals = _block_pass(state).duals[summary.row_id] * signs
    total = float(summary.far_c[0] + duals.sum())
    if objective.intercept and abs(float(linear[-1])) > BALANCE * total:
        return state
    named = (summary.row_id, signs, duals)
    return dual_bound(objective, state, float(summary.far_c[0]), linear[:-1], named, len(duals))
