"""The soft margin if neither all rows nor d x d sums fit into memory, or such sums would be worse: block minimisation.

The dual is kept for all rows, one number each (out-of-core dual weights). A pass goes over the rows one partition at a
time, as large as memory allows. The workers send the rows whose duals contradict their margins; together with the
cached rows, those nearest to the margin, their part of the dual is solved exactly while all other duals are fixed:
selective block minimisation (Yu, Hsieh, Chang, Lin 2010; Chang, Roth 2011). Every partition raises the dual, so that no
step is ever too long, whatever the rows are like. When the gains say so, a scan of all rows at the mean minimiser of a
pass is the proof: its value is the upper bound; the lower bound is the value of these duals or, if duals follow from a
hypothesis, of those that belong to the mean.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, fields, replace
from functools import cached_property
from typing import TYPE_CHECKING, Any, Self

import numpy as np
from numpy.typing import NDArray

from coremargin.maths import soft_margin as soft
from coremargin.maths.breakdown import exact_sum
from coremargin.maths.margin import is_certified
from coremargin.maths.rows import Rows, as_float64, products, row_sizes, take, weighted_sum
from coremargin.problems.common.classes import check_scale
from coremargin.problems.common.sample import Sample, read_sample, sample_chunks
from coremargin.problems.common.zone import IDLE_SHARE
from coremargin.problems.soft.probe import Counted, NearFarSplit, NearMarginProbe, Pick
from coremargin.problems.soft.problem import SoftProblem
from coremargin.problems.soft.rows_with_c import RowsWithC, evenly_by_class
from coremargin.problems.soft.state import BlockPass, LastScan, SoftState
from coremargin.problems.soft.summary import NearMarginSummary, histogram_range

if TYPE_CHECKING:
    from coremargin.engine.problem import Round
    from coremargin.engine.protocols import Block
    from coremargin.maths.row_model import RowModel
    from coremargin.problems.soft.losses.loss import Objective

Array = NDArray[np.float64]

#: The rows that a partition sends, and the cached rows, take at most a third of the memory each.
SEGMENT_PART, CACHED_PART = 3, 3
#: Rows whose contradictions, in all rows, could not add more than this share of epsilon are not sent.
SETTLED = 0.01
#: A solve leaves this share of the last gain, or of the requested gap.
LEFT = 0.5
#: So many proofs in a row that leave more than ``IDLE_SHARE`` of the gap are the last; solves are sharper after each.
MOST_IDLE = 4
#: What is left after a pass, as a multiple of what the gains predict for the dual alone.
BOTH_SIDES = 3.0
#: Factor from the gain of one pass to that of the next: least, most, and as long as it is unknown.
SHRINK = (0.1, 0.8, 0.4)
#: Most passes between two proofs, and before the first one, so that a job stopped early has proven something.
MOST_WAIT, MOST_UNPROVEN = 5, 10


@dataclass(frozen=True)
class BlockMinimisation(SoftProblem):
    """``SoftProblem`` by selective block minimisation.

    evaluated: take the mean of a pass as the model if it is good enough, even if the scan shows a better point: the
    same scan then evaluates the final model.
    """

    evaluated: bool = False

    @classmethod
    def of(cls, problem: SoftProblem, **changes: Any) -> Self:
        """The same problem by this method, with some fields changed."""
        return cls(**{f.name: getattr(problem, f.name) for f in fields(SoftProblem)} | changes)

    # start

    @property
    def holds_all_rows(self) -> bool:
        """See ``Problem``: one partition at a time."""
        return False

    @property
    def sample_chunks(self) -> list[int]:
        """The chunks read before the first pass, within the memory for cached rows."""
        source = self.source
        most = self.memory_bytes // CACHED_PART * source.nbytes // max(1, source.rows * self.row_bytes)
        return sample_chunks(source, self.codes, self.sample_share, min(self.sample_bytes, most))

    def unsolved(self) -> SoftState:
        """See ``Problem``: all duals are zero."""
        return replace(super().unsolved(), block_pass=BlockPass.zero(self.source.rows, self.source.features))

    def start(self) -> SoftState:
        """See ``Problem``: the duals of the rows of a sample are the best ones if there were no other rows."""
        return self.begin(read_sample(self.source, self.sample_chunks, self.codes))

    def begin(self, found: Sample, start: BlockPass | None = None) -> SoftState:
        """The state before the first pass, from some rows of both classes; start: a dual point to start from."""
        source = self.source
        check_scale(source, self.class_c, self.totals)
        sample = RowsWithC.of_sample(found, np.arange(len(found.ids)), self.class_c)
        sample = thinned(sample, self.memory_bytes // CACHED_PART)
        block_pass = BlockPass.zero(source.rows, source.features) if start is None else start
        state = replace(super().unsolved(), newest=block_pass.point, sample_bytes=found.nbytes(source))
        state = self._with_solved(state, sample, block_pass)
        # The gain over a point for another C says nothing about the next gain.
        state = replace(state, block_pass=replace(_block_pass(state), gain=1.0))
        margins = sample.signs * (products(sample.rows, state.newest[:-1, None])[0] + state.newest[-1])
        low, high = histogram_range(margins)
        return replace(state, last_scan=LastScan.none(low, high))

    # scan

    @cached_property
    def segments(self) -> list[range]:
        """The chunks of each row partition."""
        room = max(1, self.memory_bytes // SEGMENT_PART // (self.source.chunk_rows * self.row_bytes))
        return [range(k, min(k + room, self.source.chunks)) for k in range(0, self.source.chunks, room)]

    def proving(self, state: SoftState) -> bool:
        """Whether the next scan is a proof, about all rows."""
        return _block_pass(state).segment == len(self.segments)

    def probe(self, state: SoftState) -> NearMarginProbe:
        """See ``Problem``."""
        block_pass, none = _block_pass(state), np.zeros(0, np.int64)
        if self.proving(state):
            plain = self.near_probe(replace(state, best=block_pass.point), keep=0, cached=none)
            if not self.loss.names_duals:
                return plain
            return ProofProbe(**_fields_of(plain), duals=block_pass.duals, first=0)
        most = max(1, self.memory_bytes // SEGMENT_PART // self.row_bytes)  # rows that are sent
        keep = most // len(self.segments[block_pass.segment])
        plain = self.near_probe(replace(state, best=None), keep=keep, cached=state.rows.cached.ids)
        settled = SETTLED * self.epsilon * max(0.0, block_pass.value) / float(self.class_c @ self.totals)
        return BlockProbe(**_fields_of(plain), duals=block_pass.duals, first=0, least=self.loss.slack(settled))

    def skip(self, state: SoftState) -> NDArray[np.bool_]:
        """See ``Problem``: the chunks of other partitions."""
        skipped = np.zeros(self.source.chunks, bool)
        if not self.proving(state):
            skipped[:] = True
            skipped[list(self.segments[_block_pass(state).segment])] = False
        return skipped

    def ahead(self, state: SoftState) -> NDArray[np.intp]:
        """See ``Problem``: the partition after the next one, or the first one, with which passes and proofs begin."""
        after = (_block_pass(state).segment + 1) % len(self.segments)
        return np.array([] if self.proving(state) else self.segments[after], np.intp)

    # what follows from the summary

    def update(self, state: SoftState, summary: NearMarginSummary) -> SoftState:
        """See ``Problem``: the duals after a partition, or bounds after a proof; and what is next."""
        was_proof = self.proving(state)
        state = self.advanced(state, summary)
        return state if was_proof or not self.proving(state) else self.decided(state, proof=self.due(state))

    def advanced(self, state: SoftState, summary: NearMarginSummary) -> SoftState:
        """``update`` without the decision after a pass: a proof is next, unless ``decided`` is given."""
        last_scan = replace(state.last_scan, near_rows=len(summary.row_id))
        state = replace(state, round=state.round + 1, last_scan=last_scan)
        if self.proving(state):
            return self._after_proof(state, summary)
        block_pass = _block_pass(state)
        chunks = self.segments[block_pass.segment]
        sent = RowsWithC(summary.row_id, as_float64(summary.row_x), summary.row_sign, summary.row_c)
        state = self._with_solved(state, RowsWithC.concatenate([state.rows.cached, sent]), block_pass)
        after = _block_pass(state)
        rows = self.source.span(chunks[-1])[1] - self.source.span(chunks[0])[0]
        after = replace(
            after,
            total=block_pass.total + rows * after.point,
            seen=block_pass.seen + rows,
            segment=block_pass.segment + 1,
        )
        if after.segment == len(self.segments):
            values = np.append(after.values, after.value)
            after = replace(after, values=values, waited=after.waited + 1, scans=after.scans + 1)
        return replace(state, block_pass=after)

    def _with_solved(self, state: SoftState, some: RowsWithC, block_pass: BlockPass) -> SoftState:
        """With the best duals of some rows, all others fixed; the rows most useful for the next solves stay cached."""
        after, margins = solve_block(self.objective, some, block_pass, state.zone.idle)
        order = _by_use(self.objective, some, margins, after.duals)
        room = self.memory_bytes // CACHED_PART
        fit = order[: int(np.searchsorted(np.cumsum(row_sizes(some.rows)[order]), room, side="right"))]
        cached = some.take(fit[np.argsort(some.ids[fit])])
        return replace(state, newest=after.point, rows=replace(state.rows, cached=cached), block_pass=after)

    def due(self, state: SoftState) -> bool:
        """Whether a pass should be followed by a proof."""
        return is_due(_block_pass(state), self.epsilon, proven=bool(np.isfinite(state.upper)))

    def decided(self, state: SoftState, *, proof: bool) -> SoftState:
        """After a pass: a proof is next, or another pass."""
        block_pass = _block_pass(state)
        if not proof:
            return replace(state, block_pass=block_pass.restarted())
        if self.loss.names_duals and self.intercept:
            block_pass = balanced(state.rows.cached, block_pass)
        return replace(state, newest=block_pass.mean, block_pass=block_pass)

    def _after_proof(self, state: SoftState, summary: NearMarginSummary) -> SoftState:
        """Bounds at the mean of the pass; certified, or another pass."""
        block_pass, due = _block_pass(state), self.due(state)
        before = soft.relative_gap(state.upper, state.lower)
        block_pass = replace(block_pass.restarted(), scans=block_pass.scans + 1)
        last_scan = replace(state.last_scan, histogram=summary.histogram, rows_below=int(summary.below[0]))
        state = replace(state, last_scan=last_scan, block_pass=block_pass)
        between = replace(state, best=block_pass.point)
        state = self.loss.proof_bound(self.objective, state, summary, block_pass.duals)
        points = self.points(between)
        tried = self.with_best_point(points[:1], between, summary)
        if not (self.evaluated and is_certified(state.lower, tried.upper, self.epsilon)):
            tried = self.with_best_point(points, between, summary)
        if tried.upper < state.upper:
            state = replace(state, best=tried.best, bounds=replace(state.bounds, primal=tried.upper))
        gap = soft.relative_gap(state.upper, state.lower)
        if is_certified(state.lower, state.upper, self.epsilon):
            return replace(state, status="certified")
        rise = np.diff(block_pass.values, prepend=0.0)[-max(1, block_pass.waited) :].sum()
        rose = rise > self.epsilon * abs(block_pass.value)
        # A proof that is not due was made for other problems that share the scan, too soon to say that nothing is
        # gained.
        idle = 0 if rose or gap <= IDLE_SHARE * before else state.zone.idle + due
        if idle == MOST_IDLE:
            return replace(state, status="stalled")
        wait = passes_to_wait(block_pass, self.epsilon, before, gap) if np.isfinite(gap) else 1
        block_pass, zone = replace(block_pass, wait=wait, waited=0), replace(state.zone, idle=idle)
        return replace(state, newest=block_pass.point, block_pass=block_pass, zone=zone)

    def part(self, state: SoftState) -> int:
        """Number of completed partitions of a pass, 0 when it is over."""
        return 0 if self.proving(state) else _block_pass(state).segment

    def round_of(self, state: SoftState) -> Round:
        """See ``Problem``: a pass or a proof counts as a scan; before the first proof nothing is proven."""
        part = self.part(state)
        found = replace(super().round_of(state), number=_block_pass(state).scans + (part > 0), part=part)
        return found if np.isfinite(state.upper) else replace(found, lower=-np.inf, lower_now=-np.inf)


def _block_pass(state: SoftState) -> BlockPass:
    assert state.block_pass is not None  # noqa: S101  states of block minimisation have one
    return state.block_pass


# Steps on the rows in memory


def solve_block(objective: Objective, some: RowsWithC, block_pass: BlockPass, sharper: int) -> tuple[BlockPass, Array]:
    """With the best duals of some rows, all others fixed; and the margins (m,) of these rows there.

    sharper: solve more sharply by so many powers of ten.
    """
    loss = objective.loss
    before = block_pass.duals[some.ids] * some.signs
    model = objective.row_model(some, block_pass.dual_sum)
    dual_sum = block_pass.dual_sum - model.dual_sum(before)
    rest = block_pass.dual_total - loss.dual_total(before, some.row_c)
    model = replace(model, linear=_within_reach(dual_sum, model), constant=rest)
    share = LEFT * 0.1**sharper * max(1.0, min(1.0, block_pass.gain) / objective.epsilon)
    point, duals = loss.minimise(model, block_pass.point, before, share * objective.epsilon)
    if not loss.names_duals:
        duals = model.duals(model.margins(point))
    every = block_pass.duals.copy()
    every[some.ids] = duals * some.signs
    after = replace(
        block_pass,
        duals=every,
        dual_sum=dual_sum + model.dual_sum(duals),
        point=point,
        dual_total=rest + loss.dual_total(duals, some.row_c),
    )
    value = after.value
    after = replace(after, gain=max(0.0, value - block_pass.value) / value if value > 0 else 1.0)
    return after, model.margins(point)


def _within_reach(linear: Array, model: RowModel) -> Array:
    """The linear term with no more on the intercept than these rows can balance; with more, there is no minimum.

    The other duals are balanced up to what solves leave, and rows of one class may all be at their limits.
    """
    positive, negative = (float(model.limit[model.signs == sign].sum()) for sign in (1, -1))
    return np.append(linear[:-1], np.clip(linear[-1], -positive, negative))


def _by_use(objective: Objective, some: RowsWithC, margins: Array, duals: Array) -> NDArray[np.intp]:
    """The rows by how much the next solves need them: those with margins (m,) near 1 first; duals: of all rows.

    If duals must be balanced, rows whose duals can go both ways come before all others: where all margins agree to the
    last bits, these balance what others gain.
    """
    order = np.lexsort([some.ids, np.abs(margins - 1.0)])
    if not (objective.loss.names_duals and objective.intercept):
        return order
    own = np.abs(duals[some.ids[order]])
    return np.asarray(order[np.argsort((own == 0.0) | (own == some.row_c[order]), kind="stable")])


def thinned(some: RowsWithC, room: int) -> RowsWithC:
    """All rows or, if they take more than so many bytes, some of them, evenly spread within each class."""
    sizes, chosen = row_sizes(some.rows), np.arange(len(some))
    while len(chosen) > 2 and sizes[chosen].sum() > room:
        most = min(len(chosen) - 1, len(chosen) * room // int(sizes[chosen].sum()))
        chosen = evenly_by_class(some.signs, most)
    return some if len(chosen) == len(some) else some.take(chosen)


def balanced(cached: RowsWithC, block_pass: BlockPass) -> BlockPass:
    """With the duals of cached rows moved so that sum a y is 0: those between their limits, or all; or as it is."""
    excess = exact_sum(block_pass.duals)
    if excess == 0:
        return block_pass
    duals = block_pass.duals[cached.ids] * cached.signs
    for free in (np.flatnonzero((duals > 0) & (duals < cached.row_c)), np.arange(len(duals))):
        moved = soft.balanced(duals[free], cached.signs[free], cached.row_c[free], excess)
        if moved is not None:
            break
    else:
        return block_pass
    every = block_pass.duals.copy()
    every[cached.ids[free]] = moved * cached.signs[free]
    change = (moved - duals[free]) * cached.signs[free]
    dual_sum = block_pass.dual_sum + np.append(weighted_sum(take(cached.rows, free), change), change.sum())
    return replace(
        block_pass,
        duals=every,
        dual_sum=dual_sum,
        dual_total=block_pass.dual_total + float((moved - duals[free]).sum()),
    )


# When a proof pays


def is_due(block_pass: BlockPass, epsilon: float, *, proven: bool) -> bool:
    """Whether a pass should be followed by a proof; proven: there was one before."""
    gains = np.diff(block_pass.values, prepend=0.0)
    due = block_pass.waited >= block_pass.wait and len(gains) > 1
    if due and not proven:
        shrink = _shrink(gains)
        left = BOTH_SIDES * float(gains[-1]) * shrink / (1.0 - shrink)
        due = left <= epsilon * abs(block_pass.value) or len(gains) >= MOST_UNPROVEN
    return due


def passes_to_wait(block_pass: BlockPass, epsilon: float, before: float, gap: float) -> int:
    """Number of passes that will close the gap, judging by the gaps of the last two proofs or else by the gains."""
    shrink = max(_shrink(np.diff(block_pass.values, prepend=0.0)), SHRINK[2])
    if np.isfinite(before) and block_pass.waited:
        shrink = min(max((gap / before) ** (1.0 / block_pass.waited), SHRINK[0]), SHRINK[1])
    return min(max(1, math.ceil(math.log(max(gap / epsilon, 1.0)) / -math.log(shrink))), MOST_WAIT)


def _shrink(gains: Array) -> float:
    low, high, unknown = SHRINK
    if len(gains) < 2 or not gains[-2] > 0:
        return unknown
    return min(max(float(gains[-1] / gains[-2]), low), high)


# What a worker does


def _fields_of(probe: NearMarginProbe) -> dict[str, Any]:
    return {field.name: getattr(probe, field.name) for field in fields(probe)}


@dataclass(frozen=True)
class DualProbe(NearMarginProbe):
    """A probe of rows whose duals are known: duals (m,) are a y of the rows from id ``first`` on."""

    duals: Array
    first: int

    def narrow(self, block: Block) -> Self:
        """The same probe with only what belongs to this block."""
        first, stop = np.array([block.chunks[0], block.chunks[-1] + 1]) * self.chunk_rows
        cached = self.cached[np.searchsorted(self.cached, first) : np.searchsorted(self.cached, stop)]
        duals = self.duals[first - self.first : stop - self.first]
        return replace(self, cached=cached, duals=duals, first=int(first))

    def own(self, counted: Counted) -> Array:
        """The duals a (n,) of the rows that count."""
        return np.asarray(self.duals[counted.places + (counted.start - self.first)] * counted.signs)


@dataclass(frozen=True)
class BlockProbe(DualProbe):
    """Which rows of a partition violate optimality at the newest hypothesis; a chunk sends at most ``keep`` of them.

    least: violations up to this size do not count.
    """

    least: float

    def urgency(self, counted: Counted, margins: Array) -> Array:
        """The largest violation first."""
        violations = self.loss.violations(margins[0], self.own(counted), counted.row_c)
        return np.where(counted.cached | (violations <= self.least), np.inf, -violations)

    def near_far_split(
        self, pick: Pick, counted: Counted, margins: Array, near: NDArray[np.intp], longest: float
    ) -> NearFarSplit:
        """Only the rows that are sent; nothing is summed up."""
        none, rows = np.zeros(0), len(counted.places)
        columns = np.zeros((rows, 0))
        return NearFarSplit(counted.signs, margins, near, counted.row_c, none, np.zeros(rows, bool), columns, least=0.0)

    def summary(
        self, split: NearFarSplit, total: Array, ids: NDArray[np.int64], near: Rows, losing: Rows
    ) -> NearMarginSummary:
        """Only the rows that are sent."""
        signs, row_c = split.signs[split.near], split.row_c[split.near]
        return replace(self.empty(), row_id=ids, row_x=near, row_sign=signs, row_c=row_c)


@dataclass(frozen=True)
class ProofProbe(DualProbe):
    """A scan of all rows at a hypothesis, for a loss that names duals.

    Rows whose dual is not that of their side are named, not sent. far_linear is the sum over all rows of a y (x, 1).
    """

    def urgency(self, counted: Counted, margins: Array) -> Array:
        """No row is sent."""
        return np.full(len(counted.places), np.inf)

    def near_far_split(
        self, pick: Pick, counted: Counted, margins: Array, near: NDArray[np.intp], longest: float
    ) -> NearFarSplit:
        """The rows with their margins and duals; losing: rows with slack that are not named."""
        split, duals = super().near_far_split(pick, counted, margins, near, longest), self.own(counted)
        named = np.flatnonzero(duals != np.where(split.losing, counted.row_c, 0.0))
        losing, columns = split.losing.copy(), split.columns.copy()
        losing[named], columns[:, 2] = False, duals * counted.signs
        return replace(split, near=named, losing=losing, columns=columns)
