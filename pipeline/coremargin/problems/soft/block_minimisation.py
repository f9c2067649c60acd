"""The soft-margin problem where neither d x d sums nor the rows fit into memory: selective block minimisation.

The dual is kept for all rows, one number each. A pass goes over the rows a segment at a time, as much as memory has
room for: rows whose duals contradict their margins come home, and with those held from before, the nearest to the
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
from coremargin.problems.soft.block_probe import ProofProbe, SweepProbe
from coremargin.problems.soft.block_state import Sweep
from coremargin.problems.soft.block_steps import balanced, first, joined, solved
from coremargin.problems.soft.bounds import BALANCE, best_point, dual_bound, squared_bound
from coremargin.problems.soft.result import result, round_of
from coremargin.problems.soft.start import histogram_range, priced
from coremargin.problems.soft.state import Bounds, RowsHeld, Seen, SoftState

if TYPE_CHECKING:
    from collections.abc import Mapping

    from coremargin.data.source import Source
    from coremargin.engine.problem import Round
    from coremargin.engine.result import Result
    from coremargin.problems.soft.job import SoftJob
    from coremargin.problems.soft.objective import Objective
    from coremargin.problems.soft.probe import BandProbe
    from coremargin.problems.soft.summary import BandSummary

Array = NDArray[np.float64]

#: Of the memory a third each: for the rows that a segment sends home at most, and for those held from before.
SEGMENT, HELD = 3, 3
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
class SweptMargin:
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
        """The chunks that are read before the first pass: within the memory for rows that are held."""
        job, source = self.job, self.source
        most = job.memory_bytes // HELD * source.nbytes // max(1, source.rows * job.row_bytes)
        return sample_chunks(source, job.codes, job.sample_share, min(job.sample_bytes, most))

    def start(self) -> SoftState:
        """The state before the first pass: the duals of a sample's rows are the best ones if there were no others."""
        job, source = self.job, self.source
        check_scale(source, job.prices, job.totals)
        found = read_sample(source, self.sample_chunks, job.codes)
        sample = priced(found, np.arange(len(found.ids)), job.prices)
        nothing, empty = np.zeros(source.features + 1), Pool.nothing(source.features, sparse=source.sparse)
        sweep = Sweep(
            duals=np.zeros(source.rows), push=nothing, worth=0.0, at=nothing, total=nothing,
            seen=0, segment=0, values=np.zeros(0), gain=1.0, wait=0,
            waited=0, scans=0,
        )  # fmt: skip
        state = SoftState(
            round=0, status="running", newest=sweep.at, best=None, bounds=Bounds.nothing(nothing),
            rows=RowsHeld(empty, empty, np.zeros(0)), zone=Zone(widen=1, idle=0), seen=Seen.nothing(0.0, 1.0),
            total_rows=int(source.scalars().counts.sum(axis=0)[list(job.codes)].sum()),
            sample_bytes=found.nbytes(source), sweep=sweep,
        )  # fmt: skip
        state = self._solved(state, first(sample, np.arange(len(sample)), job.memory_bytes // HELD), sweep)
        margins = sample.signs * (products(sample.rows, state.newest[:-1, None])[0] + state.newest[-1])
        low, high = histogram_range(margins)
        return replace(state, seen=Seen.nothing(low, high))

    # scan

    @cached_property
    def segments(self) -> list[range]:
        """The chunks of each segment of a pass."""
        room = max(1, self.job.memory_bytes // SEGMENT // (self.source.chunk_rows * self.job.row_bytes))
        return [range(k, min(k + room, self.source.chunks)) for k in range(0, self.source.chunks, room)]

    def proving(self, state: SoftState) -> bool:
        """True when the next scan is about all rows."""
        return _sweep(state).segment == len(self.segments)

    def probe(self, state: SoftState) -> BandProbe:
        """The question of the next scan."""
        job, sweep, nothing = self.job, _sweep(state), np.zeros(0, np.int64)
        if not self.proving(state):
            least = SETTLED * job.epsilon * max(0.0, sweep.value) / float(job.prices @ job.totals)
            least = math.sqrt(least) if job.loss == "squared_hinge" else least
            most = max(1, job.memory_bytes // SEGMENT // job.row_bytes)  # rows that come home
            plain = job.band_probe(state, keep=most // len(self.segments[sweep.segment]), held=state.rows.held.ids)
            return SweepProbe(**_fields(plain), duals=sweep.duals, first=0, least=least)
        plain = job.band_probe(replace(state, best=sweep.at), keep=0, held=nothing)
        return plain if job.loss == "squared_hinge" else ProofProbe(**_fields(plain), duals=sweep.duals, first=0)

    def skip(self, state: SoftState) -> NDArray[np.bool_]:
        """All chunks but those of the segment."""
        skipped = np.zeros(self.source.chunks, bool)
        if not self.proving(state):
            skipped[:] = True
            skipped[list(self.segments[_sweep(state).segment])] = False
        return skipped

    def enough(self, summary: BandSummary) -> bool:
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

    def update(self, state: SoftState, summary: BandSummary) -> SoftState:
        """The duals after a segment, or bounds after a scan of all rows; what is next."""
        state = replace(
            state, round=state.round + 1, seen=replace(state.seen, band_rows=len(summary.row_id))
        )  # fmt: skip
        if self.proving(state):
            return self._proven(state, summary)
        sweep = _sweep(state)
        chunks = self.segments[sweep.segment]
        state = self._solved(state, joined(state.rows.held, summary), sweep)
        after = _sweep(state)
        rows = self.source.span(chunks[-1])[1] - self.source.span(chunks[0])[0]
        after = replace(
            after, total=sweep.total + rows * after.at, seen=sweep.seen + rows, segment=sweep.segment + 1
        )  # fmt: skip
        return self._pass_over(state, after) if after.segment == len(self.segments) else replace(state, sweep=after)

    def _solved(self, state: SoftState, pool: Pool, sweep: Sweep) -> SoftState:
        """With the best duals of the rows at hand, all others fixed; only rows that memory allows stay."""
        after, margins = solved(self.job.objective, pool, sweep, state.zone.idle)
        held = first(pool, np.lexsort([pool.ids, np.abs(margins - 1.0)]), self.job.memory_bytes // HELD)
        return replace(state, newest=after.at, rows=replace(state.rows, held=held), sweep=after)

    def _pass_over(self, state: SoftState, sweep: Sweep) -> SoftState:
        """After a pass: another one, or the proof."""
        values, wait = np.append(sweep.values, sweep.value), max(0, sweep.wait - 1)
        sweep = replace(sweep, values=values, wait=wait, scans=sweep.scans + 1)
        gains = np.diff(sweep.values, prepend=0.0)
        due = sweep.wait == 0 and len(gains) > 1
        if due and not np.isfinite(state.upper):
            shrink = _shrink(gains)
            left = BOTH_SIDES * float(gains[-1]) * shrink / (1.0 - shrink)
            due = left <= self.job.epsilon * abs(sweep.value) or len(gains) >= MOST_UNPROVEN
        if not due:
            return replace(state, sweep=_again(sweep))
        if self.job.loss == "hinge" and self.job.intercept:
            sweep = balanced(state.rows.held, sweep)
        return replace(state, newest=sweep.mean, sweep=sweep)

    def _proven(self, state: SoftState, summary: BandSummary) -> SoftState:
        """Bounds at the mean of the pass; certified, or another pass."""
        objective, sweep, before = self.job.objective, _sweep(state), soft.relative_gap(state.upper, state.lower)
        sweep = replace(_again(sweep), scans=sweep.scans + 1)
        seen = replace(state.seen, histogram=summary.histogram, rows_below=int(summary.below[0]))
        state = replace(state, seen=seen, sweep=sweep)
        between = replace(state, best=sweep.at)
        tried = best_point(objective, self.job.points(between), between, summary)
        if tried.upper < state.upper:
            state = tried
        bound = squared_bound if objective.squared else _hinge_bound
        state = bound(objective, state, summary)
        gap = soft.relative_gap(state.upper, state.lower)
        state = replace(state, seen=replace(state.seen, gap_now=gap))
        if is_certified(state.lower, state.upper, objective.epsilon):
            return replace(state, status="certified")
        rose = np.diff(sweep.values, prepend=0.0)[-max(1, sweep.waited) :].sum() > objective.epsilon * abs(sweep.value)
        idle = 0 if rose or gap <= IDLE_SHARE * before else state.zone.idle + 1
        if idle == MOST_IDLE:
            return replace(state, status="stalled")
        wait = self._wait(before, gap, sweep) if np.isfinite(gap) else 1
        sweep, zone = replace(sweep, wait=wait, waited=wait), replace(state.zone, idle=idle)
        return replace(state, newest=sweep.at, sweep=sweep, zone=zone)

    def _wait(self, before: float, gap: float, sweep: Sweep) -> int:
        """How many passes will close the gap, as the gaps of the last two proofs or else the gains say."""
        shrink = max(_shrink(np.diff(sweep.values, prepend=0.0)), SHRINK[2])
        if np.isfinite(before) and sweep.waited:
            shrink = min(max((gap / before) ** (1.0 / sweep.waited), SHRINK[0]), SHRINK[1])
        return min(max(1, math.ceil(math.log(max(gap / self.job.epsilon, 1.0)) / -math.log(shrink))), MOST_WAIT)

    def round_of(self, state: SoftState) -> Round:
        """What is told of a state; before the first proof nothing is proven.

        A pass or a proof is a scan; part: the segments of a pass that are done, 0 when it is over.
        """
        sweep, told = _sweep(state), round_of(state)
        part = 0 if self.proving(state) else sweep.segment
        told = replace(told, number=sweep.scans + (part > 0), finished=part == 0, more={"part": part})
        return told if np.isfinite(state.upper) else replace(told, lower=-np.inf, lower_now=-np.inf)


def _fields(values: Any) -> dict[str, Any]:
    return {field.name: getattr(values, field.name) for field in fields(values)}


def _sweep(state: SoftState) -> Sweep:
    assert state.sweep is not None  # noqa: S101  a swept problem's states have one
    return state.sweep


def _again(sweep: Sweep) -> Sweep:
    """At the beginning of a pass."""
    return replace(sweep, segment=0, total=np.zeros(len(sweep.total)), seen=0)


def _shrink(gains: Array) -> float:
    """The factor from the gain of one pass to that of the next."""
    low, high, unknown = SHRINK
    if len(gains) < 2 or not gains[-2] > 0:
        return unknown
    return min(max(float(gains[-1] / gains[-2]), low), high)


def _hinge_bound(objective: Objective, state: SoftState, summary: BandSummary) -> SoftState:
    """With the dual bound of the duals of all rows, where they are in balance."""
    push, signs = summary.far_push, summary.row_sign
    duals = _sweep(state).duals[summary.row_id] * signs
    total = float(summary.far_price[0] + duals.sum())
    if objective.intercept and abs(float(push[-1])) > BALANCE * total:
        return state
    named = (summary.row_id, signs, duals)
    return dual_bound(objective, state, float(summary.far_price[0]), push[:-1], named, len(duals))
