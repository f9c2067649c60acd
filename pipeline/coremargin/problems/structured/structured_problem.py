"""Structured output by dual ascent on examples in memory: all of them, or a part at a time.

maths/structures/chain.py has the objective P, the dual D of weighted labellings, the ascent, and the hard margin.

If all rows fit into memory, they are read once; rounds of ascent follow on the driver until both bounds, of all
examples, are close enough. Otherwise a pass goes over the store one segment at a time: selective block minimisation
(Yu, Hsieh, Chang, Lin 2010; Chang, Roth 2011). Workers send the examples of the segment whose duals contradict w. With
them are solved the cached examples, those which have several labellings and whose duals moved most when they were last
solved. Every segment raises the dual. The same read sums up the losses of two hypotheses: w as the pass before left it,
and the mean of w over that pass. So the read that proves is a pass, too.

Bounds. Losses are rounded up example by example, and margins down. w is sum a psi for the current duals, up to the
rounding of the steps that made it: each is off by at most a unit in the last place of w and of the step.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property
from typing import Any, Literal

import numpy as np
from numpy.typing import NDArray

from coremargin.data.group_parts import groups_of
from coremargin.engine.memory_need import MemoryNeed
from coremargin.engine.problem import BaseProblem, Round
from coremargin.errors import UsageError
from coremargin.maths.breakdown import exact_sum
from coremargin.maths.margin import gamma, is_certified
from coremargin.maths.multiclass import constant
from coremargin.maths.rows import row_sizes
from coremargin.maths.structures.chain import STEPS, ChainAscent, Sequences, losses_at, psi_sum
from coremargin.maths.structures.labellings import Labellings
from coremargin.maths.structures.user import LEAST_ROWS, CheckedStructure, UserAscent, check_structure
from coremargin.problems.common.classes import check_scale, class_codes, class_index, class_weights
from coremargin.problems.common.result import STOPPED
from coremargin.problems.common.sizes import float64_row_bytes
from coremargin.problems.common.state_arrays import state_from_arrays, state_to_arrays
from coremargin.problems.structured.examples import ExampleReader, faults_named
from coremargin.problems.structured.probe import StructuredProbe, StructuredSummary
from coremargin.spec import format_size

Array = NDArray[np.float64]
Ids = NDArray[np.int64]
Status = Literal["running", "certified", "stalled", "unfinished"]
STATUSES: tuple[Status, ...] = ("running", "certified", "stalled", "unfinished")

#: The rows of a segment, and the cached ones, take at most a third of the memory each.
SEGMENT_PART, CACHED_PART = 3, 3
#: Rounds of ascent on the examples of a segment and, with all rows in memory, between two looks at the bounds. A round
#: is a search for labellings and visits to the known ones, until these leave a share of LEFT of the gap that the search
#: found. OCR letters to 1e-3: 17 searches, and 41 with four visits whatever they leave.
ROUNDS, ROUNDS_IN_MEMORY = 3, 5
LEFT, MOST_VISITS = 0.3, 30
#: Examples whose contradictions, in all examples, could not add more than this share of epsilon are not sent.
SETTLED = 0.01
#: The job ends after so many looks at the bounds without a proof, in memory and over segments.
MOST_LOOKS, MOST_PASSES = 400, 100
#: It ends as well when neither bound has moved by more than a share of NOTHING in so many looks or passes in a row.
NOTHING, MOST_IDLE = 1e-14, 5
#: Vectors of weights on the driver: w, its best, mean, beginning and total, and scratch.
VECTORS = 8
UNIT = float(np.finfo(np.float64).eps) / 2


@dataclass(frozen=True)
class StructuredState:
    """The state between two scans.

    lower, upper: of the value or the hard margin. w (D,): sum a psi of ``duals``. dual_loss: sum a loss; most_loss: the
    largest one so far. drift: bound
    on ||w - sum a psi||. best (D,): the hypothesis that is proven, None before the first proof. begun, mean (D,): those
    whose losses the current pass sums up. total (D,): the sum of w after each segment of the pass so far. losses (2,),
    margins (2,), reach: of the pass so far, as in the summary; whole: ``reach`` of the pass before. cached: ids of
    cached examples. segment: the next one; passes: finished; looks: at the bounds, with all rows in memory; idle: looks
    or passes in a row that moved neither bound. rows, sent: rows in memory, and examples sent by the last scan.
    """

    round: int
    status: Status
    w: Array
    best: Array | None
    lower: float
    upper: float
    duals: Labellings
    dual_loss: float
    most_loss: float
    drift: float
    begun: Array
    mean: Array
    total: Array
    losses: Array
    margins: Array
    reach: float
    whole: float
    cached: Ids
    segment: int
    passes: int
    looks: int
    idle: int
    rows: int
    sent: int
    sample_bytes: int = 0

    def to_arrays(self) -> dict[str, NDArray[Any]]:
        """Plain arrays, exact."""
        return state_to_arrays(self, STATUSES)


@dataclass(frozen=True)
class StructuredProblem(BaseProblem[StructuredState, StructuredSummary]):
    """Minimise P until the gap between both bounds is at most epsilon of its value, or maximise the margin.

    cost: C, None for a hard margin; costs (K, K): of a class in the place of the true one; chained: examples are groups
    of rows.
    """

    epsilon: float
    cost: float | None
    costs: Array
    chained: bool
    intercept: bool = True
    memory_bytes: int = 256 << 20
    user: CheckedStructure | None = None  #: a structure of the user; costs and intercept are not used then
    #: Examples in memory by what they are; not part of the state, for they can be read again.
    examples: dict[str, Sequences] = field(default_factory=dict, compare=False, repr=False)

    @property
    def hard(self) -> bool:
        """Whether the bounds are about a margin."""
        return self.cost is None

    # before the first scan

    @cached_property
    def codes(self) -> tuple[int, ...]:
        """Label codes of the classes, by label. Raises StoreError, LabelError."""
        return class_codes(self.source)

    def check(self) -> None:
        """Check the job before any row is read. Raises StoreError, LabelError, or UsageError: too little memory."""
        if self.chained:
            groups_of(self.source)
        size = 8 * self.size
        if VECTORS * size > max(self.memory_bytes, 32 << 20):
            raise UsageError(
                f"{self.source.name}: {len(self.codes):,} classes x {self.source.features:,} features make weights of "
                f"{format_size(size)}, and {VECTORS} such vectors do not fit in memory = "
                f"{format_size(self.memory_bytes)}: give more memory, or fewer features or classes"
            )

    @cached_property
    def reader(self) -> ExampleReader:
        """Reads examples, on the driver and on workers."""
        place = class_index(self.codes)
        return ExampleReader(place, self.cost, self.costs, self.constant, self.chained, self.user)

    @cached_property
    def constant(self) -> float:
        """The last entry of every row: as of several classes at once or, in a chain, 1 as those of transitions."""
        if self.user is not None:
            return 0.0
        if self.chained:
            return float(self.intercept)
        return constant(float(self.source.scalars().max_norm.max()), intercept=self.intercept)

    @property
    def size(self) -> int:
        """The number of weights."""
        if self.user is not None:
            return self.user.size
        classes = len(self.codes)
        return (self.source.features + 1) * classes + classes * classes * self.chained

    @cached_property
    def ends(self) -> Ids:
        """The number of the first example after each chunk."""
        if self.chained:
            return np.cumsum(groups_of(self.source).counts)
        return np.array([self.source.span(chunk)[1] for chunk in range(self.source.chunks)])

    def first_rows(self, examples: Ids) -> Ids:
        """The rows at which these examples begin."""
        if not self.chained:
            return examples
        groups = groups_of(self.source)
        return np.concatenate([groups.offsets(chunk)[:-1] for chunk in range(self.source.chunks)])[examples]

    @cached_property
    def row_bytes(self) -> int:
        """Bytes of a row in memory, where all rows are sparse; its column indices take 4 bytes a value."""
        source = self.source
        wide = float64_row_bytes(source) if source.sparse else source.features * (source.dtype.itemsize + 4)
        return wide + 32

    @cached_property
    def segments(self) -> list[range]:
        """The chunks of each segment."""
        source = self.source
        if self.holds_all_rows:
            return [range(source.chunks)]
        room = max(1, self.memory_bytes // SEGMENT_PART // (source.chunk_rows * self.row_bytes))
        return [range(k, min(k + room, source.chunks)) for k in range(0, source.chunks, room)]

    @property
    def memory_need(self) -> MemoryNeed:
        """The memory for all rows."""
        every = 2 * self.source.rows * self.row_bytes
        return MemoryNeed(
            self.memory_bytes, every, self.source.rows, "rows", "with less, the store is read in several passes"
        )

    @property
    def holds_all_rows(self) -> bool:
        """Whether all rows fit in half of the memory: each is then read once."""
        return not self.memory_need.short

    @property
    def sample_chunks(self) -> list[int]:
        """None: the first scan sends rows."""
        return []

    @property
    def reads_again(self) -> bool:
        """Whether there are several passes."""
        return not self.holds_all_rows

    def unsolved(self) -> StructuredState:
        """The state of no labellings; w is zero."""
        origin = np.zeros(self.size)
        return StructuredState(
            round=0,
            status="running",
            w=origin,
            best=None,
            lower=-np.inf if self.hard else 0.0,
            upper=np.inf,
            duals=Labellings.nothing(len(self.codes)),
            dual_loss=0.0,
            most_loss=0.0,
            drift=0.0,
            begun=origin,
            mean=origin,
            total=origin,
            losses=np.zeros(2),
            margins=np.full(2, np.inf),
            reach=0.0,
            whole=0.0,
            cached=np.zeros(0, np.int64),
            segment=0,
            passes=0,
            looks=0,
            idle=0,
            rows=0,
            sent=0,
        )

    def start(self) -> StructuredState:
        """The same; checks the scale of C and rows. Raises BadRow, UsageError."""
        if self.cost is None:
            check_scale(self.source)
        else:
            class_c = np.full(len(self.codes), self.cost)
            check_scale(self.source, class_c, class_weights(self.source, self.codes))
        if self.user is not None:
            self._check_structure()
        return self.unsolved()

    def _check_structure(self) -> None:
        """Check the user's structure on the first examples. Raises UsageError."""
        for chunk in range(self.source.chunks):
            some = self.reader.read_all(self.source, [chunk])
            if len(some):
                with faults_named(self.source, self.reader):
                    return check_structure(some)
        return None

    def restore(self, arrays: Mapping[str, NDArray[Any]]) -> StructuredState:
        """A state from a checkpoint."""
        makers = {"duals": Labellings.from_arrays}
        return StructuredState(**state_from_arrays(StructuredState, arrays, makers, STATUSES, may_lack=("best",)))

    # scans

    def probe(self, state: StructuredState) -> StructuredProbe:
        """The probe of the next segment."""
        proven = np.stack(self._proven(state)) if not self.holds_all_rows else np.zeros((0, self.size))
        settled = SETTLED * self.epsilon
        if self.cost is not None:
            settled *= max(0.0, state.lower) / (self.cost * self.source.rows)
        return StructuredProbe(
            self.reader,
            state.w,
            proven,
            state.duals,
            settled if state.passes else -1.0,
            self.source.features,
            self.source.dtype.name,
            self.ends,
        )

    def _proven(self, state: StructuredState) -> list[Array]:
        """The hypotheses whose losses a pass sums up; before the first one there is no mean."""
        return [state.begun, state.mean][: 1 + (state.passes > 0)]

    def skip(self, state: StructuredState) -> NDArray[np.bool_]:
        """The chunks of other segments."""
        skipped = np.ones(self.source.chunks, bool)
        skipped[list(self.segments[state.segment])] = False
        return skipped

    def ahead(self, state: StructuredState) -> NDArray[np.intp]:
        """The chunks of the segment after the next one."""
        if self.holds_all_rows:
            return np.zeros(0, np.intp)
        return np.array(self.segments[(state.segment + 1) % len(self.segments)], np.intp)

    def update(self, state: StructuredState, summary: StructuredSummary) -> StructuredState:
        """The state after a segment; after the last one, with bounds."""
        rows = int(summary.counts[1])
        state = replace(
            state,
            round=state.round + 1,
            losses=state.losses + summary.losses,
            margins=np.minimum(state.margins, summary.margins),
            reach=state.reach + float(summary.reach[0]),
            segment=state.segment + 1,
            sent=int(summary.counts[2]),
        )
        if self.holds_all_rows:
            self.examples["all"] = summary.sent
            return replace(state, rows=rows, passes=1)
        some = Sequences.concatenate([summary.sent, self._cached_examples(state)])
        some = some.take(np.unique(some.ids, return_index=True)[1])
        with faults_named(self.source, self.reader):
            state = self._ascend(state, some, ROUNDS)
        state = replace(state, total=state.total + state.w, rows=len(some.labels))
        if self.hard:  # a job may end here, and these labellings prove less or more than those before
            state = self._bounded(state, self._off(state))
        return state if state.segment < len(self.segments) else self._after_pass(state)

    def _ascend(self, state: StructuredState, some: Sequences, rounds: int) -> StructuredState:
        """Rounds of ascent on some examples; those with the largest moves are cached, unless all are in memory."""
        duals, w = state.duals.of(some.ids), state.w.copy()
        ascent = ChainAscent(some, duals, hard=self.hard) if self.user is None else UserAscent(some, duals)
        before, loss_before = ascent.weights.copy(), ascent.dual_loss
        order, visits = np.random.default_rng([state.round, state.looks]), 0
        for _ in range(rounds):
            gap = ascent.visit(order.permutation(len(some)), w, search=True)
            visits += STEPS * len(some)
            for _ in range(MOST_VISITS):
                several = ascent.several()
                visits += len(several)
                if ascent.visit(order.permutation(several), w, search=False, steps=1) <= LEFT * gap:
                    break
            if self.holds_all_rows and gap <= self.epsilon * (self._target(w, ascent) if self.hard else state.upper):
                break
        duals = ascent.duals()
        largest = max(float(np.linalg.norm(state.w)), float(np.linalg.norm(w)))
        largest_weight = float(ascent.weights[:, 1:].max(initial=0.0)) if self.hard else float(some.c.max(initial=0.0))
        longest, lost = self._longest_psi(some), 0.0
        if isinstance(ascent, UserAscent):
            longest, lost = ascent.longest_psi, self._sum_error(self.source.rows) * psi_sum(some, duals)[2]
        step = largest_weight * longest
        state = replace(
            state,
            w=w,
            duals=state.duals.replaced(some.ids, duals),
            dual_loss=(dual_loss := state.dual_loss + (ascent.dual_loss - loss_before)),
            most_loss=max(state.most_loss, dual_loss),
            drift=state.drift + 4.0 * UNIT * visits * (largest + step) + lost,
        )
        if self.holds_all_rows:
            return state
        moved = np.abs(ascent.weights[:, 1 : before.shape[1]] - before[:, 1:]).sum(axis=1)
        moved += ascent.weights[:, before.shape[1] :].sum(axis=1)
        hard = np.flatnonzero((ascent.weights > 0).sum(axis=1) > 1)
        order_by_move = hard[np.argsort(-moved[hard], kind="stable")]
        sizes = np.add.reduceat(row_sizes(some.rows) + 32, some.offsets[:-1])[order_by_move] if len(hard) else hard
        fit = order_by_move[: int(np.searchsorted(np.cumsum(sizes), self.memory_bytes // CACHED_PART, side="right"))]
        kept = some.take(np.sort(fit))
        self.examples["cached"] = kept
        return replace(state, cached=kept.ids)

    def _target(self, w: Array, ascent: ChainAscent | UserAscent) -> float:
        """About the dual value of the ascent."""
        return max(0.0, ascent.dual_loss - 0.5 * float(w @ w))

    def _longest_psi(self, some: Sequences) -> float:
        sizes = np.sqrt(np.asarray(some.rows.multiply(some.rows).sum(axis=1), np.float64)) + some.constant + 1.0
        return 2.0 * float(np.add.reduceat(sizes, some.offsets[:-1]).max()) if len(some) else 0.0

    def _cached_examples(self, state: StructuredState) -> Sequences:
        """The cached examples; after an interruption they are read again."""
        found = self.examples.get("cached")
        if found is None or not np.array_equal(found.ids, state.cached):
            chunks = np.unique(np.searchsorted(self.ends, state.cached, side="right")).tolist()
            every = self.reader.read_all(self.source, chunks)
            found = every.take(np.flatnonzero(np.isin(every.ids, state.cached)))
        return found

    def _after_pass(self, state: StructuredState) -> StructuredState:
        """Bounds after the last segment: the losses are of the hypotheses with which the pass began."""
        before, state = state, self._bounded(state, self._off(state))
        for w, loss, margin in zip(self._proven(state), state.losses, state.margins, strict=False):
            state = self._better(state, w, float(loss), float(margin))
        state = replace(state, passes=state.passes + 1, segment=0)
        return replace(
            self._judged(state, before, late=state.passes >= MOST_PASSES),
            begun=state.w,
            mean=state.total / len(self.segments),
            total=np.zeros_like(state.w),
            losses=np.zeros(2),
            margins=np.full(2, np.inf),
            reach=0.0,
            whole=state.reach,
        )

    def _off(self, state: StructuredState) -> float:
        """A bound on ||w - sum a psi||, here and in other float64 code that sums up what was read so far."""
        reach = max(state.reach, state.whole) * (float(state.duals.weight.sum()) if self.hard else 1.0)
        several = 2.0 + len(state.duals.labels) / self.source.rows  # labellings of an example, in a sum of transitions
        return state.drift + self._sum_error(self.source.chunk_rows) * several * reach

    def _better(self, state: StructuredState, w: Array, loss: float, margin: float) -> StructuredState:
        """With w (D,) as the best hypothesis if it is; loss: sum of c_i H_i; margin: the smallest one, times ||w||."""
        if self.hard:
            length = float(np.linalg.norm(w))
            lower = margin / (length * (1 + (1 if margin > 0 else -1) * gamma(len(w) + 4))) if length > 0 else -np.inf
            return replace(state, lower=lower, best=w) if lower > state.lower else state
        value = self._value(w, loss)
        return replace(state, upper=value, best=w) if value < state.upper else state

    def _bounded(self, state: StructuredState, off: float) -> StructuredState:
        """With the bound of the labellings, which the model will have; off: bound on ||w - sum a psi||."""
        if not self.hard:
            return replace(state, lower=max(0.0, self._dual(state, off)))
        total = float(state.duals.weight.sum()) * (1 - 1e-13)
        if not total > 0:
            return state
        length = float(np.linalg.norm(state.w)) * (1 + gamma(len(state.w) + 4)) + off
        return replace(state, upper=length / total * (1 + 1e-15))

    def _judged(self, state: StructuredState, before: StructuredState, *, late: bool) -> StructuredState:
        """With its status, from the bounds and those before."""
        moved = state.upper < before.upper * (1 - NOTHING) or state.lower > before.lower * (1 + NOTHING)
        moved = moved or self.hard  # whose bounds may move both ways
        idle = 0 if moved else before.idle + 1
        status: Status = "unfinished" if late else "stalled" if idle == MOST_IDLE else "running"
        if is_certified(state.lower, state.upper, self.epsilon):
            status = "certified"
        return replace(state, idle=idle, status=status)

    def _value(self, w: Array, loss: float) -> float:
        """P, rounded up, from the sum of the losses, which is rounded up example by example."""
        return (0.5 * float(w @ w) * (1 + gamma(len(w) + 4)) + loss * (1 + gamma(self.source.chunks + 64))) * (
            1 + 1e-15
        )

    def _dual(self, state: StructuredState, off: float) -> float:
        """D, rounded down; off: bound on ||w - sum a psi||."""
        length = float(np.linalg.norm(state.w)) * (1 + gamma(len(state.w) + 4)) + off
        most = state.most_loss
        loss = state.dual_loss - gamma(4 * state.round + 4 * state.looks + 64) * most
        return loss * (1 - 1e-13) - 0.5 * length * length * (1 + 1e-15)

    @staticmethod
    def _sum_error(rows: int) -> float:
        """What so many rows may lose in sum a psi, here and in other float64 code, as a share of the terms' sizes."""
        return 8.0 * gamma(max(rows, LEAST_ROWS) + 64)

    # between scans, with all rows in memory

    def work(
        self, state: StructuredState, run: Callable[[Callable[..., Any], Sequence[tuple[Any, ...]]], Any]
    ) -> Iterator[StructuredState]:
        """Rounds of ascent on the examples in memory, with both bounds after each look."""
        if not (self.holds_all_rows and state.passes):
            return
        every = self.examples.get("all")
        if every is None:  # after an interruption
            every = self.reader.read_all(self.source, list(range(self.source.chunks)))
            self.examples["all"] = every
        while state.status == "running":
            with faults_named(self.source, self.reader):
                state = self._look(self._ascend(state, every, ROUNDS_IN_MEMORY), every)
            yield state

    def _look(self, state: StructuredState, every: Sequences) -> StructuredState:
        """Both bounds, from all examples: w and the sum of losses anew, from the labellings."""
        w, loss, reach = psi_sum(every, state.duals)
        loss = exact_sum(state.duals.weight) if self.hard else loss
        before, state = (
            state,
            replace(state, w=w, dual_loss=loss, most_loss=max(loss, state.most_loss), looks=state.looks + 1, drift=0.0),
        )
        at = losses_at(every, w, hard=self.hard)
        if self.hard:
            state = self._better(state, w, 0.0, -float((at.values + at.errors).max()))
        else:
            loss = exact_sum(every.c * (np.maximum(at.values, 0.0) + at.errors)) * (1 + 1e-15)
            state = self._better(state, w, loss, np.inf)
        state = self._bounded(state, self._sum_error(len(every.labels)) * reach)
        return self._judged(state, before, late=state.looks >= MOST_LOOKS)

    # results

    def confusion(self, state: StructuredState) -> NDArray[np.int64] | None:
        """Rows (K, K) by their class and the one that the best hypothesis predicts; None unless they are in memory."""
        every = self.examples.get("all")
        if every is None or state.best is None:
            return None
        classes = len(self.codes)
        predicted = losses_at(every, state.best, augmented=False).argmax
        cells = every.labels.astype(np.intp) * classes + predicted
        return np.bincount(cells, minlength=classes**2).reshape(classes, classes)

    def round_of(self, state: StructuredState) -> Round:
        """The report of a state: a pass counts as a scan, a segment as a part of it."""
        part = state.segment if state.segment < len(self.segments) else 0
        known = np.isfinite(state.lower if self.hard else state.upper)
        return Round(
            number=state.passes + (part > 0),
            status=state.status,
            lower=state.lower if known else -np.inf,
            lower_now=state.lower if known else -np.inf,
            upper=state.upper,
            working_set_rows=state.rows,
            coreset_rows=0,
            new_rows=state.sent,
            part=part,
            more={"labellings": len(state.duals)},
        )

    def reason(self, state: StructuredState) -> str:
        """Why a run has ended, for people."""
        if self.hard and state.lower <= 0 and np.isfinite(state.upper):
            known = f"none has a margin above {state.upper:.3g}; choose a loss if labels overlap"
            return f"no hypothesis that gives all rows their labels was found, and {known}"
        if state.status != "unfinished":
            return STOPPED.get(state.status, state.status)
        gap = (state.upper - state.lower) / state.upper
        left = f"the gap is still {gap:.3g} of {'the margin' if self.hard else 'the value'} after many rounds"
        return f"{left}; take a larger epsilon, or {'a loss' if self.hard else 'a smaller C, which needs fewer'}"
