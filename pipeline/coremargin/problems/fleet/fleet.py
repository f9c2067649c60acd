"""Models trained together, by the same scans: a *fleet*, a multi-model job.

Each member is an ordinary problem on a view of the store: a class against the rest, a value of C, a fold of
cross-validation. A scan reads each chunk once and queries it for all members that are not done. A row that several
members want is sent once and held once (shared_rows.py); while a member is solved, and only then, it has a copy of its
own. Members are solved in parallel, each on one thread, and merged in their order, so that the bits do not depend on
the number of threads.

The members share the memory: half of it is for the rows that a scan sends, of which one member takes at most a
quarter. Hard margins have working sets of equal size. What depends on the kind of the members is in member_kinds.py.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import reduce
from typing import TYPE_CHECKING, Any, Self, cast

import numpy as np
from numpy.typing import NDArray

from coremargin.data.folds import fold_of
from coremargin.data.resident import at_hand
from coremargin.data.view import bytes_read
from coremargin.engine.loop import OutOfTime
from coremargin.engine.problem import BaseProblem, CannotWarmStart, Round
from coremargin.engine.protocols import Block
from coremargin.maths.breakdown import BREAKDOWNS
from coremargin.maths.margin import ratio
from coremargin.maths.rows import of_dense, take
from coremargin.maths.stopping import may_stop
from coremargin.problems.common.classes import check_scale, count_weighted_rows
from coremargin.problems.common.driver_rows import DriverRows
from coremargin.problems.common.sample import LabelledSample, Sample, read_labelled_samples
from coremargin.problems.common.threads import map_in_threads
from coremargin.problems.common.warm_start import TOO_MANY, RowFetcher, most_cached_rows
from coremargin.problems.fleet.probe import Ensemble, Evaluator, FleetProbe, FleetSummary, MemberView
from coremargin.problems.fleet.shared_rows import (
    SharedRows,
    held_rows,
    pack_arrays,
    unpack_arrays,
    with_rows,
    without_rows,
)
from coremargin.problems.hard.state import HardMarginState
from coremargin.problems.soft.state import SoftState

if TYPE_CHECKING:
    from coremargin.data.difference import Difference
    from coremargin.engine.allowance import Allowance
    from coremargin.engine.memory_need import MemoryNeed
    from coremargin.maths.rows import Rows
    from coremargin.problems.common.result import Result
    from coremargin.problems.fleet.member_kinds import MemberKind
    from coremargin.problems.fleet.plan import FleetPlan, MemberState

Array = NDArray[np.float64]

#: Fields of a state that are one array each.
_STORED = ("round", "scans", "evaluated", "confusion", "sample_bytes", "as_read")
#: Names of the warm-start arrays that identify the members.
_CODES, _COSTS = "plan_codes", "plan_costs"


@dataclass(frozen=True)
class FleetState:
    """The state between two scans.

    scans: finished scans of all rows; a pass in parts is one. members: the states of the members, without rows; those
    are shared. evaluated: ``confusion`` (ensembles, k, k) is final. It is about the members' final hypotheses or, with
    as_read, about those at the time when each row was read, or about new rows only. sample_bytes: read before the
    first scan.
    """

    round: int
    scans: int
    members: tuple[MemberState, ...]
    shared_rows: SharedRows
    evaluated: bool
    confusion: NDArray[np.int64]
    sample_bytes: int
    as_read: bool = False

    @property
    def status(self) -> str:
        """The common status of all members."""
        return common_status([member.status for member in self.members])

    @property
    def worst(self) -> int:
        """The number of the member with the lowest ratio of its bounds, the first of equal ones."""
        members = self.members
        return min(range(len(members)), key=lambda k: ratio(members[k].lower, members[k].upper))

    @property
    def lower(self) -> float:
        """The lower bound of the member with the lowest ratio."""
        return self.members[self.worst].lower

    @property
    def upper(self) -> float:
        """The upper bound of the member with the lowest ratio."""
        return self.members[self.worst].upper

    def to_arrays(self) -> dict[str, NDArray[Any]]:
        """Plain arrays, exact; the problem's ``restore`` gives the same bits back."""
        own = {name: np.asarray(getattr(self, name)) for name in _STORED}
        members = pack_arrays([member.to_arrays() for member in self.members])
        return own | self.shared_rows.to_arrays("shared") | members

    @classmethod
    def from_arrays(cls, arrays: Mapping[str, NDArray[Any]], members: Sequence[MemberState]) -> FleetState:
        """Inverse of ``to_arrays``, with the states of the members."""
        own: dict[str, Any] = {name: arrays[name] if arrays[name].ndim else arrays[name].item() for name in _STORED}
        return cls(members=tuple(members), shared_rows=SharedRows.from_arrays("shared", arrays), **own)


def common_status(statuses: Sequence[str]) -> str:
    """The first status of several that is not "certified", but "running" if one is."""
    if "running" in statuses:
        return "running"
    return next((status for status in statuses if status != "certified"), "certified")


@dataclass(frozen=True)
class _UpdatedMember:
    """A member after a scan, without rows.

    distances: of its rows from the margin; fresh: those of its rows that no scan sent.
    """

    state: MemberState
    distances: Array
    fresh: Sequence[DriverRows]


@dataclass(frozen=True)
class Fleet(BaseProblem[FleetState, FleetSummary]):
    """Several problems on one source, which share the scans; kind: of all members; memory_bytes: for their rows.

    At the time limit, members that are not solved stay as they are and can be resumed. With members that read rows in
    parts, all must take a part: one that some have not solved counts as not read.
    """

    plan: FleetPlan
    kind: MemberKind[Any, Any]
    memory_bytes: int

    @property
    def parts(self) -> tuple[Self, ...]:
        """This fleet: all rows are mapped alike, if at all (``GammaFleet`` has several parts)."""
        return (self,)

    def states(self, state: FleetState) -> tuple[FleetState, ...]:
        """The states of the parts."""
        return (state,)

    def _problem(self, number: int) -> Any:
        """The problem of a member; Any: it belongs to the state at the same place."""
        return self.plan.members[number].problem

    @property
    def member_views(self) -> list[MemberView]:
        """How the members see the labels."""
        return [MemberView(member.code, member.fold) for member in self.plan.members]

    # What the engine needs to know

    def check(self) -> None:
        """Raises what any member raises for what cannot be trained."""
        check_scale(self.source)
        for member in self.plan.members:
            member.problem.check()
        self.kind.check(self._problem(0))

    @property
    def memory_need(self) -> MemoryNeed:
        """Soft margins share their rows, hard margins have equal parts of the memory."""
        one: MemoryNeed = self._problem(0).memory_need
        size = one.size * (len(self.plan.members) if self.kind.separate_pools else 1)
        return replace(one, given=self.memory_bytes, size=size)

    @property
    def least_block_bytes(self) -> int:
        """The most that any member needs."""
        return max(member.problem.least_block_bytes for member in self.plan.members)

    @property
    def sample_chunks(self) -> list[int]:
        """The chunks that any member reads first."""
        return sorted(set().union(*(member.problem.sample_chunks for member in self.plan.members)))

    @property
    def stage_chunks(self) -> tuple[int, ...]:
        """The stages of the members, which are the same."""
        own: tuple[int, ...] = self._problem(0).stage_chunks
        return own

    @property
    def reads_again(self) -> bool:
        """If members do, and for what chooses among them."""
        return self.plan.folds > 0 or self.kind.chosen_by_risk or not self.stage_chunks

    @property
    def holds_all_rows(self) -> bool:
        """Whether all labelled rows are held from the start, in the form that takes the least memory."""
        return all(member.problem.holds_all_rows for member in self.plan.members)

    def skip(self, state: FleetState) -> NDArray[np.bool_]:
        """Chunks (c,) that no member needs; none if the scan is only for evaluation."""
        running = self.running(state)
        every = [self._problem(k).skip(state.members[k]) for k in running]
        return np.asarray(np.logical_and.reduce(every)) if every else np.zeros(self.source.chunks, bool)

    def ahead(self, state: FleetState) -> NDArray[np.intp]:
        """Chunks that all members will need after the next scan."""
        every = [self._problem(k).ahead(state.members[k]) for k in self.running(state)]
        return reduce(np.intersect1d, every) if every else super().ahead(state)

    def running(self, state: FleetState) -> list[int]:
        """Numbers of the members that are not done."""
        return [k for k, own in enumerate(state.members) if not self._problem(k).done(own)]

    def done(self, state: FleetState) -> bool:
        """Whether all members are done and evaluated."""
        return state.evaluated

    def broken(self, state: FleetState) -> FleetState:
        """With the running members stalled, and no evaluation."""
        members = list(state.members)
        for k in self.running(state):
            members[k] = self._problem(k).broken(members[k])
        return replace(state, members=tuple(members))

    def part_of(self, state: FleetState) -> int:
        """Finished parts of the present scan, 0 when it is over."""
        return max((self.kind.part(self._problem(k), state.members[k]) for k in self.running(state)), default=0)

    def _stages(self, state: FleetState) -> int:
        """How many stages the first read has, 0: none."""
        return max(member.stages for member in state.members)

    # Start

    def start(self) -> FleetState:
        """Solve all members on one sample; along C each from the solution before."""
        return self.solve_sample(*read_labelled_samples([self.source], self.sample_chunks, stay=self.holds_all_rows))

    def solve_sample(self, sample: LabelledSample) -> FleetState:
        """The state before the first scan, from the rows of the sample."""
        fold = fold_of(sample.ids, self.plan.folds, self.plan.seed) if self.plan.folds else None

        def solve_path(path: list[int]) -> list[tuple[int, tuple[MemberState, Array]]]:
            shown = self.member_views[path[0]].codes(sample.codes, fold)
            return self._solve_path(path, sample.of_classes(shown, *self._problem(path[0]).codes))

        paths = self.plan.regularisation_paths
        most = self.kind.parallel_solves(self.source, [len(sample.ids)] * len(paths))
        found = dict(entry for path in map_in_threads(solve_path, paths, most) for entry in path)
        states, distances = zip(*(found[number] for number in range(len(found))), strict=True)
        members = self.kind.trim_rows(self.source, states, distances)
        counted = 4 * self.source.rows if self.plan.folds else 0  # the labels were read once, to count the folds
        evaluator = self._evaluator(members, final=True)
        evaluated = self.kind.evaluated_in_stages and members[0].stages
        begun = FleetState(
            round=0,
            scans=0,
            members=tuple(members),
            shared_rows=self.shared_rows(members, [DriverRows(sample.ids, sample.rows)]),
            evaluated=False,
            confusion=evaluator.evaluate(sample.rows, sample.codes) if evaluated else evaluator.no_rows(),
            sample_bytes=sample.nbytes + counted,
        )
        # The sample is the first stage of a scan, if there are stages; with a single stage that scan is over.
        return self._evaluate_separated(replace(begun, scans=int(self._stages(begun) > 0 and self.part_of(begun) == 0)))

    def _solve_path(self, path: list[int], sample: Sample) -> list[tuple[int, tuple[MemberState, Array]]]:
        """The states of members that differ only in C, and the distances of their rows."""
        solved: list[tuple[int, tuple[MemberState, Array]]] = []
        before = None
        for number in path:
            problem = self._problem(number)
            may_stop()
            try:
                state = self.kind.begin(problem, sample, before)
                before = problem, state
            except BREAKDOWNS:
                state = problem.broken(problem.unsolved())
            solved.append((number, (without_rows(state), self.kind.distances(state))))
        return solved

    def unsolved(self) -> FleetState:
        """The state before anything was solved."""
        source = self.source
        members = tuple(without_rows(member.problem.unsolved()) for member in self.plan.members)
        no_rows = of_dense(np.zeros((0, source.features), source.dtype), sparse=source.sparse)
        return FleetState(
            round=0,
            scans=0,
            members=members,
            shared_rows=SharedRows(np.zeros(0, np.int64), no_rows),
            evaluated=False,
            confusion=self._evaluator(members, final=True).no_rows(),
            sample_bytes=0,
        )

    def restore(self, arrays: Mapping[str, NDArray[Any]]) -> FleetState:
        """A state from a checkpoint."""
        members = [self._problem(k).restore(own) for k, own in enumerate(unpack_arrays(arrays))]
        return FleetState.from_arrays(arrays, members)

    def shared_rows(self, states: Iterable[MemberState], parts: Sequence[DriverRows]) -> SharedRows:
        """The rows that these states hold, each once, from the first of the parts that has it."""
        if self.holds_all_rows:
            return SharedRows(parts[0].ids, parts[0].rows)
        wanted = [own.ids for state in states for own in held_rows(state).values()]
        return SharedRows.collect(np.unique(np.concatenate(wanted)), parts, self.source.dtype)

    # Scan

    def probe(self, state: FleetState) -> FleetProbe:
        """The queries of the running members; if all are done, only the evaluation."""
        running = self.running(state)
        probes = tuple(self._problem(k).probe(self._member_state(state, k)) for k in running)
        return (self.kind.probe if running else FleetProbe)(
            probes,
            tuple(self.member_views[k] for k in running),
            self.plan.folds,
            self.plan.seed,
            self.kind.rows_of_chunk(self.source, self.memory_bytes, probes) if running else 1,
            self._scan_evaluator(state, running),
            self.source.dtype.name,
            self.source.sparse,
        )

    def _member_state(self, state: FleetState, number: int) -> MemberState:
        """A member's state, with rows if its query or its result depends on them."""
        own = state.members[number]
        return with_rows(own, state.shared_rows) if self.kind.needs_rows else own

    # Update

    def update(self, state: FleetState, summary: FleetSummary) -> FleetState:
        """The state after a scan: the members' updates, and how they do together."""
        running = self.running(state)
        queried = self._scan_evaluator(state, running).hypotheses
        members, shared_rows = self._update_members(state, summary, running)
        behind = any(members[k] is state.members[k] for k in running)  # rows of this stage will be read again
        if self.kind.evaluated_in_stages and self.part_of(state) and not behind:
            state = replace(state, confusion=state.confusion + summary.confusion)
        state = replace(state, round=state.round + 1, members=tuple(members), shared_rows=shared_rows)
        state = self.with_joining_members(self._decide_together(state))
        state = replace(state, scans=state.scans + (self.part_of(state) == 0))
        state = self._evaluate_separated(state)
        if state.evaluated or self.running(state):
            return state
        final = self._evaluator(state.members, final=True).hypotheses
        # In stages a query may be about some of the rows.
        in_stages = self.kind.evaluated_in_stages and (self._stages(state) > 0 or state.as_read)
        if np.array_equal(final, queried) and not (in_stages and not self._counts_all_rows(summary.confusion)):
            return replace(state, evaluated=True, confusion=summary.confusion)
        as_read = state.as_read or (in_stages and self._counts_all_rows(state.confusion))
        return replace(state, evaluated=as_read, as_read=as_read)

    def _update_members(
        self, state: FleetState, summary: FleetSummary, running: list[int]
    ) -> tuple[list[MemberState], SharedRows]:
        """All members after a scan, and their rows."""
        members, distances = list(state.members), [np.zeros(0)] * len(state.members)
        parts = [state.shared_rows, DriverRows(summary.row_id, summary.row_x)]
        for number, after in zip(running, self._solve_members(state, summary, running), strict=True):
            if after is not None:
                members[number], distances[number] = after.state, after.distances
                parts += [DriverRows(own.ids, cast("Rows", own.rows.astype(self.source.dtype))) for own in after.fresh]
        members = self.kind.trim_rows(self.source, members, distances)
        return members, self.shared_rows(members, parts)

    def _solve_members(
        self, state: FleetState, summary: FleetSummary, running: list[int]
    ) -> list[_UpdatedMember | None]:
        """The running members after a scan, solved in parallel; None for those beyond the time limit."""
        known = np.union1d(state.shared_rows.ids, summary.row_id)
        as_read = self.holds_all_rows or self.kind.rows_as_read

        def update_member(entry: tuple[int, int]) -> _UpdatedMember | None:
            place, number = entry
            problem, own = self._problem(number), state.members[number]
            before = with_rows(own, state.shared_rows, as_read=as_read)
            try:
                may_stop()
                after = self.kind.update(problem, before, summary.part(place))
            except OutOfTime:
                if self.kind.in_parts:
                    raise
                return None
            except BREAKDOWNS:
                after = problem.broken(before)
            fresh = [(some, np.isin(some.ids, known, invert=True)) for some in held_rows(after).values()]
            unsent = [DriverRows(some.ids[new], take(some.rows, new)) for some, new in fresh if new.any()]
            return _UpdatedMember(without_rows(after), self.kind.distances(after), unsent)

        rows = [
            sum(len(own) for own in held_rows(state.members[number]).values()) + len(summary.parts[place].row_id)
            for place, number in enumerate(running)
        ]
        return map_in_threads(update_member, enumerate(running), self.kind.parallel_solves(self.source, rows))

    def _decide_together(self, state: FleetState) -> FleetState:
        """The state after what the running members decide together."""
        running, members = self.running(state), list(state.members)
        pairs = [(self._problem(k), members[k]) for k in running]
        decided = running and self.kind.decide_together(pairs, state.shared_rows)
        if not decided:
            return state
        for number, after in zip(running, decided, strict=True):
            members[number] = after
        return replace(state, members=tuple(members))

    def with_joining_members(self, state: FleetState) -> FleetState:
        """With members that are done but query again what is read for others, so that none reads it alone later."""
        running = self.running(state)
        if not self.kind.keeps_sums or not running or len(running) == len(state.members):
            return state
        chunks, members = np.flatnonzero(~self.skip(state)), list(state.members)
        for number in sorted(set(range(len(members))) - set(running)):
            again = self._problem(number).joining(members[number], chunks)
            members[number] = members[number] if again is None else again
        return replace(state, members=tuple(members))

    # Evaluation

    def _evaluator(self, states: Iterable[MemberState], *, final: bool) -> Evaluator:
        """Of the final hypotheses of members that are done, and the newest of others; not ``final``: of none."""
        plan = self.plan
        if not final:
            return Evaluator.none(self.source.features, plan.codes)
        columns = [self.hypothesis(k, state) for k, state in enumerate(states)]
        ensembles = tuple(Ensemble(tuple(numbers), fold) for (fold, _), numbers in plan.ensembles.items())
        return Evaluator(np.column_stack(columns), plan.codes, ensembles)

    def _scan_evaluator(self, state: FleetState, running: list[int]) -> Evaluator:
        """The evaluator of the next scan; running: numbers of the members that are not done."""
        final = all(self.kind.may_be_final(self._problem(k), state.members[k]) for k in running)
        return self._evaluator(state.members, final=final)

    def hypothesis(self, number: int, state: MemberState) -> Array:
        """(w, b) (d + 1,) of a member: final if it is done; of a soft margin that is not, the newest."""
        problem = self._problem(number)
        if isinstance(state, SoftState) and not problem.done(state):
            return state.newest
        found = problem.result(state)
        return np.append(found.w, found.b)

    def _counts_all_rows(self, confusion: NDArray[np.int64]) -> bool:
        """Whether each labelled row was counted once, if there are no folds."""
        every = int(count_weighted_rows(self.source)[self.plan.codes].sum())
        return bool((confusion.sum(axis=(1, 2)) == every).all())

    def _evaluate_separated(self, state: FleetState) -> FleetState:
        """Evaluated without a scan, if all members are proven to separate all rows."""
        separated = all(isinstance(own, HardMarginState) and own.lower > 0 for own in state.members)
        if self.plan.folds or not separated or self.running(state):
            return state
        right = np.diag(count_weighted_rows(self.source)[self.plan.codes])
        confusion = np.stack([right] * len(self.plan.ensembles))
        return replace(state, evaluated=True, as_read=False, confusion=confusion)

    # Results

    def results(self, state: FleetState) -> list[Result]:
        """The result of each member."""
        return [
            cast("Result", self._problem(k).result(self._member_state(state, k))) for k in range(len(state.members))
        ]

    def statuses(self, state: FleetState) -> list[str]:
        """The statuses of the members' results.

        A certified member claims less if the rounding of its map takes the proof; a proven one that runs again is
        certified.
        """
        found: list[str] = [own.status for own in state.members]
        for number, status in enumerate(found):
            if status in ("certified", "running"):
                end = self._problem(number).result(self._member_state(state, number)).status
                found[number] = status if status == "running" and end != "certified" else end
        return found

    def round_of(self, state: FleetState) -> Round:
        """Progress of a state; the bounds are those of the member with the lowest ratio."""
        statuses, part = [member.status for member in state.members], self.part_of(state)
        rounds: list[Round] = [self._problem(k).round_of(member) for k, member in enumerate(state.members)]
        last = max(member.round for member in state.members)
        sent = [
            each.new_rows
            for each, member in zip(rounds, state.members, strict=True)
            if member.round == last or not self.kind.in_parts
        ]
        worst, stages = state.worst, self._stages(state)
        stage = state.round + 1 if state.round < stages else None
        more = {
            "members": len(statuses),
            "members_certified": statuses.count("certified"),
            "members_done": len(statuses) - statuses.count("running"),
            "worst": self.plan.members[worst].name,
        }
        return Round(
            number=state.scans + (part > 0),
            part=part if self.kind.in_parts or stages else None,
            stage=stage,
            stages=stages if stage else None,
            status=state.status,
            lower=rounds[worst].lower,
            lower_now=rounds[worst].lower_now,
            upper=rounds[worst].upper,
            working_set_rows=len(state.shared_rows),
            more=more,
            coreset_rows=sum(each.coreset_rows for each in rounds),
            new_rows=sum(sent),
        )

    # Warm start: each member as it would alone, while rows are read once for all

    def warm_start_state(self, state: FleetState, allowance: Allowance) -> Mapping[str, NDArray[Any]]:
        """The warm-start arrays of a last state, with the identity of the members; none for members that have none."""
        if not self.kind.warm_starts:
            return {}
        state = self._with_missing_sums(state, allowance) if at_hand(self.source) else state
        most = most_cached_rows(self.source, allowance) // len(state.members)

        def arrays_with_rows(rows: int) -> Mapping[str, NDArray[Any]]:
            parts = [DriverRows(state.shared_rows.ids, state.shared_rows.rows)]
            members = [
                without_rows(self.kind.warm_start_state(member.problem, self._member_state(state, number), rows))
                for number, member in enumerate(self.plan.members)
            ]
            lighter = replace(state, members=tuple(members), shared_rows=self.shared_rows(members, parts))
            return lighter.to_arrays() | self._identity_arrays()

        return allowance.within(arrays_with_rows, most)

    def _identity_arrays(self) -> dict[str, NDArray[Any]]:
        members = self.plan.members
        codes = [-1 if member.code is None else member.code for member in members]
        return {_CODES: np.array(codes), _COSTS: np.array([member.cost or 0.0 for member in members])}

    def extend_for_warm_start(self, state: FleetState) -> FleetState | None:
        """A last state whose members query all rows once more for their warm-start arrays; None if none need to."""
        querying = {} if at_hand(self.source) else self._members_without_sums(state)
        if not querying:
            return None
        members = [without_rows(querying[k]) if k in querying else own for k, own in enumerate(state.members)]
        return replace(state, members=tuple(members), evaluated=False, as_read=True)

    def _members_without_sums(self, state: FleetState) -> dict[int, MemberState]:
        """By number, the members that were proven by scans, in states that query all rows once more."""
        if self.holds_all_rows or not self.kind.keeps_sums:
            return {}
        querying: dict[int, MemberState] = {}
        for number, own in enumerate(state.members):
            state_of_query = self._problem(number).asking_all(with_rows(own, state.shared_rows))
            if state_of_query is not None:
                querying[number] = state_of_query
        return querying

    def _with_missing_sums(self, state: FleetState, allowance: Allowance) -> FleetState:
        """With the warm-start sums of members that were proven by scans, from rows that are in memory."""
        members, querying = list(state.members), self._members_without_sums(state)
        work = sum(self._problem(number).work_of_sums for number in querying)
        if not querying or not allowance.pays(work):
            return state
        for number, own in querying.items():
            members[number] = without_rows(own)
        probe = self.probe(replace(state, members=tuple(members)))
        found = probe(self.source, Block(0, tuple(range(self.source.chunks))))
        for place, (number, own) in enumerate(querying.items()):
            members[number] = without_rows(self._problem(number).summed(own, found.part(place)))
        parts = [state.shared_rows, DriverRows(found.row_id, found.row_x)]
        return replace(state, members=tuple(members), shared_rows=self.shared_rows(members, parts))

    def warm_start(self, arrays: Mapping[str, NDArray[Any]], difference: Difference) -> FleetState:
        """See ``WarmStarts``.

        How the members do together is not counted then, unless it chooses among them, or a scan is made anyway.
        """
        if not self.kind.warm_starts or not arrays or self.holds_all_rows:
            raise CannotWarmStart("models that scans of all rows prove together are always trained from scratch")
        if not all(np.array_equal(arrays[name], value) for name, value in self._identity_arrays().items()):
            raise CannotWarmStart("the rows are of other classes than before")
        before = self.restore(arrays)
        room = self.kind.warm_start_rows(self._problem(0), len(before.members))
        fetched = RowFetcher(self.source, room)
        members: list[MemberState] = []
        parts = [DriverRows(before.shared_rows.ids, before.shared_rows.rows)]
        fold = fold_of(difference.ids, self.plan.folds, self.plan.seed) if self.plan.folds else None
        for member, view, own in zip(self.plan.members, self.member_views, before.members, strict=True):
            may_stop()
            held = with_rows(own, before.shared_rows, as_read=self.kind.rows_as_read)
            problem: Any = member.problem
            state = problem.warm_start_from(held, _difference_of(difference, view, fold), fetched)
            for some in held_rows(state).values():
                new = np.flatnonzero(np.isin(some.ids, before.shared_rows.ids, invert=True))
                parts += [DriverRows(some.ids[new], take(some.rows, new))] if len(new) else []
            members.append(without_rows(state))
        shared = self.shared_rows(members, parts)
        if len(shared) > room:
            raise CannotWarmStart(TOO_MANY)
        state = replace(
            before,
            round=0,
            scans=0,
            members=tuple(members),
            shared_rows=shared,
            evaluated=False,
            as_read=not (self.plan.folds or self.kind.chosen_by_risk),
            confusion=np.zeros_like(before.confusion),
            sample_bytes=difference.nbytes + bytes_read(self.source, fetched.rows),
        )
        state = self._evaluate_separated(state)
        over = state.as_read and not self.running(state)  # nothing has to be read
        return replace(state, evaluated=state.evaluated or over)


def _difference_of(found: Difference, view: MemberView, fold: NDArray[np.int64] | None) -> Difference:
    """What has changed for a member, by how it sees labels; fold (m,): of the rows."""
    then, now = (view.codes(codes, fold) for codes in (found.codes_before, found.codes_after))
    other = np.flatnonzero((then != now) | ((found.weights_before != found.weights_after) & (now >= 0)))
    return replace(
        found,
        ids=found.ids[other],
        codes_before=then[other],
        codes_after=now[other],
        nbytes=0,
        weights_before=found.weights_before[other],
        weights_after=found.weights_after[other],
    )
