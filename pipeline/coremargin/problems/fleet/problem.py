"""The fleet: many problems, one scan. A class against the rest, a value of C, a fold of cross-validation each.

Members are ordinary problems on views of the store. A scan reads each chunk once and asks all of them; a member that is
done drops out. Rows that several members want travel once and are held once (state.py); while a member is
solved, and only then, it has a copy of its own. Memory is shared: half of it is for the rows that one scan sends,
a quarter bounds what one member takes of these; pools of hard margins get equal parts. Soft margins of whose rows only
some fit may go over them a segment at a time (segments.py). Members are solved side by side, each on one thread, and
taken in their order, so that the bits do not depend on how many threads there are.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from functools import reduce
from typing import TYPE_CHECKING, Any, cast

import numpy as np
from numpy.typing import NDArray

from coremargin.data.folds import fold_of
from coremargin.engine.loop import OutOfTime
from coremargin.engine.problem import Round
from coremargin.maths.breakdown import BREAKDOWNS
from coremargin.maths.rows import take
from coremargin.maths.stopping import may_stop
from coremargin.problems.common.classes import check_scale
from coremargin.problems.common.driver_rows import DriverRows
from coremargin.problems.common.sample import Sample
from coremargin.problems.common.threads import map_in_threads
from coremargin.problems.fleet.base import FleetBase
from coremargin.problems.fleet.onward import asking_more, check_members, joined, kept, onward
from coremargin.problems.fleet.probe import FleetProbe
from coremargin.problems.fleet.sample import SampleRows, read_rows
from coremargin.problems.fleet.state import FleetState, MemberState, SharedRows, rows_of, with_rows, without_rows
from coremargin.problems.fleet.summary import FleetSummary, unpacked

if TYPE_CHECKING:
    from coremargin.data.difference import Difference
    from coremargin.engine.allowance import Allowance
    from coremargin.maths.rows import Rows
    from coremargin.problems.common.result import Result

Array = NDArray[np.float64]


@dataclass(frozen=True)
class _Advanced:
    """A member after a scan, without rows.

    distances: of the rows that it holds from the margin; fresh: those of them that no scan sent.
    """

    state: MemberState
    distances: Array
    fresh: Sequence[DriverRows]


@dataclass(frozen=True)
class Fleet(FleetBase):
    """Many problems on one source, whose scans are made together."""

    def check(self) -> None:
        """Refuse what any member would refuse."""
        check_scale(self.source)
        for member in self.plan.members:
            member.problem.check()
        self.kind.check(self._problem(0))

    @property
    def least_block_bytes(self) -> int:
        """As much as any member needs."""
        return max(member.problem.least_block_bytes for member in self.plan.members)

    @property
    def stage_chunks(self) -> tuple[int, ...]:
        """Those of all members, who read together."""
        own: tuple[int, ...] = self._problem(0).stage_chunks
        return own

    @property
    def reads_again(self) -> bool:
        """Where members do, and for how folds do that were held out."""
        return self.plan.folds > 0 or not self.stage_chunks

    @property
    def sample_chunks(self) -> list[int]:
        """What any member would read."""
        return sorted(set().union(*(member.problem.sample_chunks for member in self.plan.members)))

    # start

    def start(self) -> FleetState:
        """Solve all members on one sample, along C each from the solution before."""
        return self.begun(*read_rows([self.source], self.sample_chunks, stay=self.all_cached))

    def begun(self, given: SampleRows) -> FleetState:
        """The state before the first scan, from the sample's rows."""
        chunks, ids, rows, codes, weights = given.chunks, given.ids, given.rows, given.codes, given.weights
        fold = fold_of(ids, self.plan.folds, self.plan.seed) if self.plan.folds else None

        def solve(chain: list[int]) -> list[tuple[int, tuple[MemberState, Array]]]:
            member_view, (positive, negative) = self.member_views[chain[0]], self._problem(chain[0]).codes
            shown = member_view.codes(codes, fold)
            mine = np.flatnonzero((shown == positive) | (shown == negative))
            signs = np.where(shown[mine] == positive, 1, -1).astype(np.int8)
            if len(mine) == len(ids):  # the very same rows for all members
                return self._begin(chain, Sample(chunks, ids, rows, signs, weights))
            weigh = None if weights is None else weights[mine]
            return self._begin(chain, Sample(chunks, ids[mine], take(rows, mine), signs, weigh))

        paths = self.plan.regularisation_paths
        most = self.kind.at_a_time(self.source, [len(ids)] * len(paths))
        found = dict(entry for path in map_in_threads(solve, paths, most) for entry in path)
        states, distances = zip(*(found[number] for number in range(len(found))), strict=True)
        members = self.kind.kept(self.source, states, distances)
        counted = 4 * self.source.rows if self.plan.folds else 0  # the labels were read once for the counts
        judged, in_stages = (
            self._evaluator(members, final=True),
            self.kind.judged_in_stages and self.kind.stages(members[0]),
        )
        begun = FleetState(
            round=0, scans=0, members=tuple(members), shared_rows=self.shared_rows(members, [DriverRows(ids, rows)]),
            evaluated=False, confusion=judged.of(rows, codes) if in_stages else judged.nothing(),
            sample_bytes=given.nbytes + counted,
        )  # fmt: skip
        # What was read is a scan where it was the first of its stages, and that scan is over where it was the last.
        return self._judged(replace(begun, scans=int(self._stages(begun) > 0 and self.part_of(begun) == 0)))

    def onward(self, arrays: Mapping[str, NDArray[Any]], difference: Difference) -> FleetState:
        """As a member alone goes on; how they do together is not counted then. Raises NothingToGoOnFrom."""
        check_members(self, arrays)
        state = self._judged(onward(self, self.restore(arrays), difference))
        over = state.as_read and not self.running(state)  # nothing has to be read
        return replace(state, evaluated=state.evaluated or over)

    def kept(self, state: FleetState, allowance: Allowance) -> Mapping[str, NDArray[Any]]:
        """What ``onward`` takes, nothing where members never go on."""
        return kept(self, state, allowance, self.probe)

    def asking_more(self, state: FleetState) -> FleetState | None:
        """As members would alone."""
        return asking_more(self, state)

    def _begin(self, chain: list[int], sample: Sample) -> list[tuple[int, tuple[MemberState, Array]]]:
        """The states of members that differ in C only, from their rows of the sample."""
        solved: list[tuple[int, tuple[MemberState, Array]]] = []
        before = None
        for number in chain:
            problem = self._problem(number)
            may_stop()
            try:
                state = self.kind.begin(problem, sample, before)
                before = problem, state
            except BREAKDOWNS:
                state = problem.broken(problem.unsolved())
            solved.append((number, (without_rows(state), self.kind.distances(state))))
        return solved

    # scan

    def probe(self, state: FleetState) -> FleetProbe:
        """The questions of the members that are not done; with all done, only how they do together."""
        running = self.running(state)
        probes = tuple(self._problem(k).probe(self._own(state, k)) for k in running)
        most = self.kind.most(self.source, self.memory_bytes, probes) if running else 1
        return (self.kind.probe if running else FleetProbe)(
            probes, tuple(self.member_views[k] for k in running), self.plan.folds, self.plan.seed, most,
            self._asked(state, running), self.source.dtype.name, self.source.sparse,
        )  # fmt: skip

    def skip(self, state: FleetState) -> NDArray[np.bool_]:
        """Chunks (c,) that no member needs; none when it is only about how they do together."""
        running = self.running(state)
        every = [self._problem(k).skip(state.members[k]) for k in running]
        return np.asarray(np.logical_and.reduce(every)) if every else np.zeros(self.source.chunks, bool)

    def ahead(self, state: FleetState) -> NDArray[np.intp]:
        """What all members know to come."""
        every = [self._problem(k).ahead(state.members[k]) for k in self.running(state)]
        return reduce(np.intersect1d, every) if every else super().ahead(state)

    def done(self, state: FleetState) -> bool:
        """True when all members are, and it is known how they do together."""
        return state.evaluated

    # update

    def update(self, state: FleetState, summary: FleetSummary) -> FleetState:
        """The members' updates, side by side."""
        running = self.running(state)
        asked = self._asked(state, running).hypotheses
        members, shared_rows = self._after(state, summary, running)
        behind = any(members[k] is state.members[k] for k in running)  # rows of this stage will be read again
        if self.kind.judged_in_stages and self.part_of(state) and not behind:
            state = replace(state, confusion=state.confusion + summary.confusion)
        state = replace(state, round=state.round + 1, members=tuple(members), shared_rows=shared_rows)
        state = joined(self, self._decided(state))
        state = replace(state, scans=state.scans + (self.part_of(state) == 0))
        state = self._judged(state)
        if state.evaluated or self.running(state):
            return state
        final = self._evaluator(state.members, final=True).hypotheses
        # In stages a question may be about some of the rows.
        in_stages = self.kind.judged_in_stages and (self._stages(state) > 0 or state.as_read)
        if np.array_equal(final, asked) and not (in_stages and not self._of_all_rows(summary.confusion)):
            return replace(state, evaluated=True, confusion=summary.confusion)
        as_read = state.as_read or (in_stages and self._of_all_rows(state.confusion))
        return replace(state, evaluated=as_read, as_read=as_read)

    def _after(
        self, state: FleetState, summary: FleetSummary, running: list[int]
    ) -> tuple[list[MemberState], SharedRows]:
        """All members after a scan, and their rows; what it took to get there is gone when they decide."""
        members, distances = list(state.members), [np.zeros(0)] * len(state.members)
        parts = [state.shared_rows, DriverRows(summary.row_id, summary.row_x)]
        for number, after in zip(running, self._advanced(state, summary, running), strict=True):
            if after is not None:
                members[number], distances[number] = after.state, after.distances
                parts += [DriverRows(own.ids, cast("Rows", own.rows.astype(self.source.dtype))) for own in after.fresh]
        members = self.kind.kept(self.source, members, distances)
        return members, self.shared_rows(members, parts)

    def _advanced(self, state: FleetState, summary: FleetSummary, running: list[int]) -> list[_Advanced | None]:
        """The running members after a scan; None for those that there was no time for."""
        known = np.union1d(state.shared_rows.ids, summary.row_id)

        def advance(entry: tuple[int, int]) -> _Advanced | None:
            place, number = entry
            problem, own = self._problem(number), state.members[number]
            before = with_rows(own, state.shared_rows, as_it_is=self._as_read)
            try:
                may_stop()
                after = self.kind.advanced(problem, before, summary.part(place))
            except OutOfTime:
                if self.kind.in_parts:
                    raise
                return None
            except BREAKDOWNS:
                after = problem.broken(before)
            fresh = [(some, np.isin(some.ids, known, invert=True)) for some in rows_of(after).values()]
            unsent = [DriverRows(some.ids[new], take(some.rows, new)) for some, new in fresh if new.any()]
            return _Advanced(without_rows(after), self.kind.distances(after), unsent)

        rows = [
            sum(len(own) for own in rows_of(state.members[number]).values()) + len(summary.parts[place].row_id)
            for place, number in enumerate(running)
        ]
        return map_in_threads(advance, enumerate(running), self.kind.at_a_time(self.source, rows))

    def _decided(self, state: FleetState) -> FleetState:
        """The state after what the members that are at work decide together."""
        running, members = self.running(state), list(state.members)
        decided = running and self.kind.decided(
            [(self._problem(k), members[k]) for k in running], state.shared_rows
        )  # fmt: skip
        if not decided:
            return state
        for number, after in zip(running, decided, strict=True):
            members[number] = after
        return replace(state, members=tuple(members))

    def part_of(self, state: FleetState) -> int:
        """Parts of the scan that are done, 0 when it is over."""
        return max((self.kind.part(self._problem(k), state.members[k]) for k in self.running(state)), default=0)

    def round_of(self, state: FleetState) -> Round:
        """What is told of a state: the bounds are those of the member with the lowest ratio."""
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
            "members": len(statuses), "members_certified": statuses.count("certified"),
            "members_done": len(statuses) - statuses.count("running"), "worst": self.plan.members[worst].name,
        }  # fmt: skip
        return Round(
            number=state.scans + (part > 0), part=part if self.kind.in_parts or stages else None,
            stage=stage, stages=stages if stage else None, status=state.status,
            lower=rounds[worst].lower, lower_now=rounds[worst].lower_now, upper=rounds[worst].upper,
            pool_rows=len(state.shared_rows), more=more, coreset_rows=sum(each.coreset_rows for each in rounds),
            new_rows=sum(sent),
        )  # fmt: skip

    def results(self, state: FleetState) -> list[Result]:
        """What each member's state stands for."""
        return [cast("Result", self._problem(k).result(self._own(state, k))) for k in range(len(state.members))]

    def restore(self, arrays: Mapping[str, NDArray[Any]]) -> FleetState:
        """A state from a checkpoint."""
        return FleetState.from_arrays(arrays, [self._problem(k).restore(own) for k, own in enumerate(unpacked(arrays))])
