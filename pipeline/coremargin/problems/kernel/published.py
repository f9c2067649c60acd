"""Published strategies of the hard margin with a kernel (problems/hard/strategies/), under the certificate of kernels.

``paper`` and ``any-violator`` add a row to the working set after each scan about its exact solution. The others carry
numbers from one update to the next: their vectors are coefficients of rows (feature_space.py), all of which are in the
working set. Each read of theirs also proves the hyperplane of the pass before, and the exact solution of the rows that
were used, whose dual weights give the upper bound.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any, cast

import numpy as np
from numpy.typing import NDArray

from coremargin.maths.kernel.expansion import Expansions
from coremargin.maths.kernel.machine import kernel_sums
from coremargin.maths.named import below, under
from coremargin.maths.rows import as_float64, take
from coremargin.problems.common.driver_rows import ClassRows, read_labelled_rows
from coremargin.problems.common.sample import first_row_of_each
from coremargin.problems.common.stages import Stages
from coremargin.problems.hard.probe import NO_ROW
from coremargin.problems.hard.strategies.iterative import Iterative, Proven, RowSearch, Task, Walk, lasting
from coremargin.problems.hard.strategies.table import STRATEGIES
from coremargin.problems.kernel.feature_space import KernelBlock, Span, walk_in_feature_space
from coremargin.problems.kernel.kernel_margin import KernelMargin, KernelState, Machine, largest_norms
from coremargin.problems.kernel.probe import KernelProbe, KernelSummary

if TYPE_CHECKING:
    from coremargin.data.source import Source
    from coremargin.engine.problem import Round
    from coremargin.engine.protocols import Block
    from coremargin.formats.choices import KernelStrategy
    from coremargin.maths.kernel.functions import Kernel
    from coremargin.problems.hard.state import Carried, Hypothesis
    from coremargin.problems.hard.strategies.strategy import Strategy

#: Share of epsilon to which the rows in use are solved.
EXACT = 1e-2
#: Largest share of the duals by which the sums of both classes may differ in the start of a solve.
BALANCED = 1e-12


@dataclass(frozen=True)
class KernelPass:
    """How far a strategy that carries numbers has come: finished passes, chunks of the current one, the numbers.

    updates_before: updates in earlier passes. proves: whether the pass measures hypotheses. own: coefficients,
    multiplied by the signs, and offset of the hyperplane of the pass before, on the working set. margins: summary of
    the chunks of this pass about the exact solution and ``own``.
    """

    passes: int
    chunk: int
    updates_before: int
    proves: bool
    own: Machine
    carried: Carried
    margins: KernelSummary

    @property
    def updates(self) -> int:
        """The number of updates so far."""
        return int(self.carried["updates"])

    def to_arrays(self, name: str) -> dict[str, NDArray[Any]]:
        """Plain arrays, exact."""
        numbers = ("passes", "chunk", "updates_before", "proves")
        found: dict[str, NDArray[Any]] = {number: np.asarray(getattr(self, number)) for number in numbers}
        found |= self.own.to_arrays("own") | under("carried", self.carried) | under("margins", self.margins.to_arrays())
        return under(name, found)

    @classmethod
    def from_arrays(cls, name: str, arrays: Mapping[str, NDArray[Any]]) -> KernelPass:
        """Inverse of ``to_arrays``."""
        own = below(name, arrays)
        return cls(
            passes=int(own["passes"]),
            chunk=int(own["chunk"]),
            updates_before=int(own["updates_before"]),
            proves=bool(own["proves"]),
            own=Machine.from_arrays("own", own),
            carried=below("carried", own),
            margins=KernelSummary.from_arrays(below("margins", own)),
        )


@dataclass(frozen=True)
class PublishedState(KernelState):
    """The state between two scans, or between two chunks of a pass; progress: None for strategies without numbers."""

    progress: KernelPass | None = None

    @classmethod
    def from_arrays(cls, arrays: Mapping[str, NDArray[Any]]) -> PublishedState:
        """Inverse of ``to_arrays``."""
        known = {name: value for name, value in arrays.items() if not name.startswith("progress.")}
        shared = KernelState.from_arrays(known)
        progress = KernelPass.from_arrays("progress", arrays) if "progress.passes" in arrays else None
        return cls(**vars(shared), progress=progress)


@dataclass(frozen=True)
class KernelPassSummary:
    """What a part of a pass found.

    carried: of a walk, the numbers after its chunk. score (): of a search, that of the row in ``margins.sent``.
    margins: at both hypotheses; ``margins.sent``: new rows that a walk used, or the row of the lowest score.
    """

    carried: Carried
    score: NDArray[np.float64]
    margins: KernelSummary

    def merge(self, later: KernelPassSummary) -> KernelPassSummary:
        """Of a walk, the summary that has a chunk: a part of a pass reads only one. Of a search both, and the lower."""
        if self.carried or later.carried:
            return later if later.carried else self
        best = min((self, later), key=_rank)
        none = np.zeros(0)
        margins = replace(self.margins, scores=none).merge(replace(later.margins, scores=none))
        return KernelPassSummary({}, best.score, replace(margins, sent=best.margins.sent))

    def to_arrays(self) -> dict[str, NDArray[Any]]:
        """Plain arrays for checkpoints."""
        found = under("carried", self.carried) | under("margins", self.margins.to_arrays())
        return found | {"score": np.asarray(self.score)}


def _rank(summary: KernelPassSummary) -> tuple[float, int]:
    ids = summary.margins.sent.ids
    return float(summary.score), int(ids[0]) if len(ids) else NO_ROW


@dataclass(frozen=True)
class KernelPassProbe:
    """Walk through a chunk, or search rows; span: the rows of ``carried["ids"]``.

    margins: the probe of the hypotheses to prove, if ``proves``, with the ids of rows that a walk does not send again.
    room: further rows that fit into the working set; a walk that uses more ends.
    """

    strategy: Walk | RowSearch
    carried: Carried
    span: ClassRows
    proves: bool
    margins: KernelProbe
    room: int

    def narrow(self, block: Block) -> KernelPassProbe:
        """The same probe with only what this block needs."""
        return replace(self, margins=self.margins.narrow(block))

    def empty(self) -> KernelPassSummary:
        """The summary of no chunk."""
        return KernelPassSummary({}, np.array(np.inf), self.margins.empty())

    def from_arrays(self, arrays: Mapping[str, NDArray[Any]]) -> KernelPassSummary:
        """Inverse of ``KernelPassSummary.to_arrays``."""
        margins = KernelSummary.from_arrays(below("margins", arrays))
        return KernelPassSummary(below("carried", arrays), arrays["score"], margins)

    def __call__(self, source: Source, block: Block) -> KernelPassSummary:
        """Each row is read once, for its margins and for the strategy."""
        kernel, margins, carried = self.margins.expansions.kernels[0], self.margins.empty(), self.carried
        sent, score = margins.sent, np.inf
        span = Span(self.span.ids, kernel.points(self.span.rows))
        for chunk in block.chunks:
            data = read_labelled_rows(source, chunk, self.margins.class_of)
            if self.proves:
                margins = self.margins.with_chunk(margins, data, source.name, chunk)
            mine = KernelBlock(as_float64(data.rows), _signs(data), data.ids, source.name, kernel, span)
            if isinstance(self.strategy, Walk):
                carried, touched = walk_in_feature_space(
                    self.strategy, mine, carried, self.margins.known, self.room - len(sent)
                )
                new = touched[np.isin(data.ids[touched], self.margins.known, invert=True)]
                sent = ClassRows.concatenate([sent, data.take(new)])
            elif len(data):
                scores = self.strategy.scores(mine, carried)
                at = np.array([scores.argmin()])
                if scores[at[0]] < score:
                    sent, score = data.take(at), float(scores[at[0]])
        found = replace(margins, sent=sent, scores=np.zeros(0))
        return KernelPassSummary(lasting(carried) if isinstance(self.strategy, Walk) else {}, np.array(score), found)


def _signs(rows: ClassRows) -> NDArray[np.int8]:
    return np.where(rows.classes == 1, 1, -1).astype(np.int8)


def _worth(machine: Machine) -> tuple[bool, float]:
    """Lower for better ones: those with both bounds first, then by the gap."""
    lower, upper = float(machine.lower[0]), float(machine.upper[0])
    return not (lower > 0 and math.isfinite(upper)), upper - lower


@dataclass(frozen=True)
class PublishedKernelMargin(KernelMargin):
    """The hard margin of one kernel between two classes, by a published strategy."""

    strategy: KernelStrategy = "perceptron"

    @property
    def rule(self) -> Strategy:
        """The strategy."""
        return STRATEGIES[self.strategy]

    @property
    def kernel(self) -> Kernel:
        """The only kernel."""
        return self.kernels[0]

    @property
    def eager(self) -> bool:
        """As the strategy says."""
        return self.rule.eager

    @property
    def stages(self) -> Stages:
        """None."""
        return Stages(np.zeros(0, np.int64))

    @property
    def stage_chunks(self) -> tuple[int, ...]:
        """None."""
        return ()

    @property
    def holds_all_rows(self) -> bool:
        """No: only the rows that the strategy uses."""
        return False

    @property
    def reach(self) -> float:
        """A bound on sqrt(k(x, x)) of all rows."""
        return float(largest_norms(self.kernels, float(self.source.scalars().max_norm.max()))[0])

    def skip(self, state: KernelState) -> NDArray[np.bool_]:
        """The other chunks of a walk."""
        progress = cast("PublishedState", state).progress
        if progress is None or not isinstance(self.rule, Walk):
            return np.zeros(self.source.chunks, bool)
        return np.asarray(np.arange(self.source.chunks) != progress.chunk)

    def ahead(self, state: KernelState) -> NDArray[np.intp]:
        """The next chunk of a walk."""
        progress = cast("PublishedState", state).progress
        if progress is None or not isinstance(self.rule, Walk):
            return np.zeros(0, np.intp)
        return np.array([(progress.chunk + 1) % self.source.chunks])

    # Start

    def unsolved(self) -> PublishedState:
        """The state without any rows."""
        return PublishedState(**vars(super().unsolved()))

    def start(self) -> PublishedState:
        """The state with the strategy's first rows; strategies without numbers begin with a row of each class."""
        state, rule, source = self.unsolved(), self.rule, self.source
        codes = self.codes[1], self.codes[0]
        found = rule.first(source, codes) if isinstance(rule, Iterative) else first_row_of_each(source, codes)
        if found is not None:
            rows = ClassRows(
                found.ids, as_float64(found.rows), (found.signs > 0).astype(np.int32), np.ones(len(found.ids))
            )
            state = self._with_rows(replace(state, sample_bytes=found.nbytes(source)), rows)
        if not isinstance(rule, Iterative):
            return self._solved(state)
        task = Task(
            self._as_block(state.working_set), 0, self.reach, self.epsilon, self.intercept, memory=self.memory_bytes
        )
        carried = {"ids": state.working_set.ids, **rule.begin(task)}
        nothing = self._pass_margins(state, state.newest, proves=False).empty()
        progress = KernelPass(0, 0, 0, False, state.newest, carried, nothing)
        state = replace(state, progress=progress)
        return state if found is None else self._next_pass(state, progress)

    def _as_block(self, rows: ClassRows) -> KernelBlock:
        return KernelBlock(rows.rows, _signs(rows), rows.ids, self.source.name, self.kernel)

    def restore(self, arrays: Mapping[str, NDArray[Any]]) -> PublishedState:
        """A state from a checkpoint."""
        return PublishedState.from_arrays(arrays)

    # Scans

    def probe(self, state: KernelState) -> KernelProbe | KernelPassProbe:  # type: ignore[override]
        """The probe of the next scan, or of the next chunk of a pass."""
        progress = cast("PublishedState", state).progress
        if progress is None:
            plain = replace(super().probe(state), keep=1)
            return replace(plain, first_only=True, level=self._level(state)) if self.eager else plain
        working_set, ids = state.working_set, progress.carried["ids"]
        if isinstance(self.rule, Walk) and not self.rule.vectors:  # its rows are among the numbers
            ids = ids[:0]
        order = np.argsort(working_set.ids)
        span = working_set.take(order[np.searchsorted(working_set.ids, ids, sorter=order)])
        margins = self._pass_margins(state, progress.own, proves=progress.proves)
        room = self.capacity.rows - len(working_set)
        return KernelPassProbe(cast("Walk", self.rule), progress.carried, span, progress.proves, margins, room)

    def _level(self, state: KernelState) -> float:
        """(1 - epsilon) times the upper bound on the margin, for the newest function, whose norm is not 1."""
        machine = state.newest
        norm = math.sqrt(2 * max(0.0, float(machine.duals.sum() - machine.lower[0])))
        return (1 - self.epsilon) * norm / math.sqrt(2 * float(machine.lower[0])) if machine.lower[0] > 0 else 1.0

    def _pass_margins(self, state: KernelState, own: Machine, *, proves: bool) -> KernelProbe:
        """A probe for the margins of the exact solution and of the strategy's own hyperplane."""
        plain = super().probe(state)
        setting, columns = self.settings[0], self.columns
        both = replace(columns, settings=(setting, setting), class_c=np.tile(columns.class_c, (2, 1)))
        working_set, machines = state.working_set, (state.newest, own)
        duals = np.column_stack([one.duals for one in machines])
        used = np.flatnonzero(duals.any(axis=1)) if proves else np.zeros(0, np.intp)
        expansions = Expansions(
            self.kernels,
            both.kernels,
            as_float64(take(working_set.rows, used)),
            _signs(working_set.take(used))[:, None] * duals[used],
            np.concatenate([one.offsets for one in machines]),
        )
        return replace(
            plain, expansions=expansions, columns=both, worth=np.zeros(2), excess_worth=np.zeros(2), scales=np.ones(1)
        )

    def enough(self, summary: Any) -> bool:
        """Whether a violation was found, for strategies that need no more."""
        return self.eager and len(summary.sent) > 0

    # Updates

    def update(self, state: KernelState, summary: Any) -> PublishedState:
        """Bounds, working set and hypotheses after a scan or a part of a pass."""
        state = replace(cast("PublishedState", state), round=state.round + 1)
        if state.progress is not None:
            return self._after_part(state, state.progress, summary)
        before = state.best
        if not self.enough(summary):  # a scan that ended early has not seen all rows: it proves no bound
            state = replace(state, rows_below=int(summary.below.max()))
            state = self._measured(state, summary)
            if self.proven(state.best).all():
                return replace(state, status="certified", new_rows=0)
        sent = summary.sent
        first = np.lexsort([sent.ids] if self.eager else [sent.ids, -summary.scores])[:1]
        if not len(first):
            return cast("PublishedState", self._continue_without_candidates(replace(state, new_rows=0), before))
        if len(state.working_set) >= self.capacity.rows:
            return replace(state, status="full")
        return self._solved(self._with_rows(state, sent.take(first).exact()))

    def _measured(self, state: PublishedState, summary: KernelSummary) -> PublishedState:
        """With the bounds of the newest function after a scan of all rows, and the better one of it and the best."""
        state = replace(state, confusion=summary.confusion, undecided=summary.undecided)
        return cast("PublishedState", self._update_bounds(state, summary))

    def _with_rows(self, state: PublishedState, rows: ClassRows) -> PublishedState:
        """With rows that join the working set."""
        progress = state.progress
        if progress is not None:
            progress = replace(progress, own=progress.own.extended(len(rows)))
        return replace(
            state,
            working_set=ClassRows.concatenate([state.working_set, rows]),
            newest=state.newest.extended(len(rows)),
            best=state.best.extended(len(rows)),
            new_rows=len(rows),
            progress=progress,
        )

    def _solved(self, state: PublishedState) -> PublishedState:
        """With the exact solution of the working set."""
        if len(np.unique(state.working_set.classes)) < 2:
            return state
        return cast("PublishedState", self._solve(state, np.full(1, EXACT * self.epsilon)))

    def _after_part(self, state: PublishedState, progress: KernelPass, summary: KernelPassSummary) -> PublishedState:
        """After a chunk of a walk, or a search: the rows that were used join the working set."""
        rule, sent, stuck = self.rule, summary.margins.sent, False
        new = sent.take(sent.unlike(state.working_set.ids)).exact()
        if len(state.working_set) + len(new) > self.capacity.rows:
            return replace(state, status="full")
        state = self._with_rows(state, new)
        carried = summary.carried if isinstance(rule, Walk) else progress.carried
        if isinstance(rule, RowSearch) and len(sent):
            if len(new):
                used = self._as_block(state.working_set)
                carried = {**rule.step(carried, cast("Any", sent), used), "ids": state.working_set.ids}
            else:  # the step with this row left it where it was, to within float64
                stuck = True
        margins = progress.margins.merge(replace(summary.margins, sent=progress.margins.sent))
        own = cast("KernelPass", state.progress).own
        progress = replace(progress, chunk=progress.chunk + 1, carried=carried, margins=margins, own=own)
        state = replace(state, progress=progress)
        over = isinstance(rule, RowSearch) or progress.chunk == self.source.chunks
        return self._end_pass(state, progress, stuck=stuck) if over else state

    def _end_pass(self, state: PublishedState, progress: KernelPass, *, stuck: bool) -> PublishedState:
        """Prove bounds of the hypotheses of the pass before, and set those for the next pass."""
        passed = replace(progress, passes=progress.passes + 1, chunk=0)
        state = replace(state, progress=passed)
        if progress.proves:
            margins, before, exact = progress.margins, state.best, state.newest
            own = self._measured(replace(state, newest=progress.own), margins.of_setting(1)).newest
            state = self._measured(replace(state, newest=exact), margins.of_setting(0))
            best = min((before, state.newest, own), key=_worth)
            progressed = replace(passed, own=own)
            state = replace(state, best=best, progress=progressed, rows_below=int(margins.below[0]))
            if self.proven(state.best).all():
                return replace(state, status="certified")
            if progress.updates == progress.updates_before:
                return replace(state, status="stalled" if stuck else "converged")
        return self._next_pass(state, replace(passed, updates_before=progress.updates))

    def _next_pass(self, state: PublishedState, progress: KernelPass) -> PublishedState:
        """Solve the rows used so far; the next pass measures their solution and the strategy's own hyperplane."""
        found, start = cast("Iterative", self.rule).hypothesis(progress.carried), state.newest
        own = None if found is None else self._on_working_set(state, progress.carried["ids"], found)
        if own is not None and self._is_feasible(state, own) and own.lower[0] > start.lower[0]:
            state = replace(state, newest=own)  # from which the exact solution is near
        state = self._solved(state)
        if state.status != "running":
            return state
        own = own or state.newest
        nothing = self._pass_margins(state, own, proves=False).empty()
        return replace(state, progress=replace(progress, proves=True, own=own, margins=nothing))

    def _is_feasible(self, state: PublishedState, machine: Machine) -> bool:
        """Whether the duals of both classes have equal sums, as those of an exact solution, or need not."""
        duals = machine.duals[:, 0]
        residual = abs(float(_signs(state.working_set) @ duals)) if self.intercept else 0.0
        return residual <= BALANCED * float(duals.sum())

    def _on_working_set(self, state: PublishedState, ids: NDArray[np.int64], found: Hypothesis) -> Machine:
        """A hyperplane of rows with these ids, whose coefficients times signs are duals, scaled for the best bound."""
        rows, coefficients = state.working_set, dict(zip(ids.tolist(), found.w.tolist(), strict=True))
        signs = _signs(rows)
        duals = np.maximum(0.0, signs * np.array([coefficients.get(row, 0.0) for row in rows.ids.tolist()]))
        square = float(duals * signs @ kernel_sums(self._kernel_matrix(rows).values[0], duals * signs))
        total = float(duals.sum())
        scale, value = (total / square, 0.5 * total * total / square) if square > 0 else (1.0, 0.0)
        zero = Machine.zero(len(rows), 1)
        return replace(zero, duals=scale * duals[:, None], offsets=scale * np.array([found.b]), lower=np.array([value]))

    # Results

    def round_of(self, state: KernelState) -> Round:
        """The report of a round; each pass is a scan."""
        found, progress = super().round_of(state), cast("PublishedState", state).progress
        if progress is None:
            return found
        part = progress.chunk if isinstance(self.rule, Walk) else None
        number = progress.passes + (progress.chunk > 0)
        return replace(found, number=number, part=part, more={**found.more, "updates": progress.updates})

    def describe_strategy(self, state: KernelState) -> dict[str, Any]:
        """The proven margin of a strategy's own last hyperplane; passes, updates and the theorem's bound on these."""
        progress, best = cast("PublishedState", state).progress, state.best
        if progress is None:
            return {}
        most, value = None, float(progress.own.upper[0])
        if math.isfinite(best.upper[0]):
            margin = math.sqrt(0.5 / float(best.upper[0]))
            norm = math.sqrt(2 * max(0.0, float(best.duals.sum() - best.lower[0])))
            proven = Proven(margin, float(best.offsets[0]) / norm, self.reach, lambda: self.reach)
            rule = cast("Iterative", self.rule)
            most = rule.most_updates(proven, progress.carried, intercept=self.intercept)
        own = math.sqrt(0.5 / value) if math.isfinite(value) else None
        found = {"lower": own, "passes": progress.passes, "updates": progress.updates, "updates_at_most": most}
        return {"own": found}
