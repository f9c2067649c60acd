"""What a fleet is: its members, which of them are at work, and how they do together."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any, Self

import numpy as np
from numpy.typing import NDArray

from coremargin.engine.problem import BaseProblem
from coremargin.maths.rows import of_dense
from coremargin.problems.common.classes import count_weighted_rows
from coremargin.problems.fleet.evaluator import Ensemble, Evaluator
from coremargin.problems.fleet.probe import MemberView
from coremargin.problems.fleet.state import FleetState, MemberState, SharedRows, rows_of, with_rows, without_rows
from coremargin.problems.fleet.summary import FleetSummary

if TYPE_CHECKING:
    from coremargin.engine.want import Want
    from coremargin.problems.common.driver_rows import DriverRows
    from coremargin.problems.fleet.member_kinds import MemberKind
    from coremargin.problems.fleet.members import FleetPlan

Array = NDArray[np.float64]


@dataclass(frozen=True)
class FleetBase(BaseProblem[FleetState, FleetSummary]):
    """Many problems on one source; kind: of all of them; memory_bytes: for the rows that their scans send.

    When time is over, members that are not solved by then stay as they are, and can be gone on with. Of those that go
    over rows in parts none may be left behind: the part is as if it had not been read.
    """

    plan: FleetPlan
    kind: MemberKind[Any, Any]
    memory_bytes: int

    @property
    def parts(self) -> tuple[Self, ...]:
        """Itself: all members are about rows that are mapped alike, if at all."""
        return (self,)

    def states(self, state: FleetState) -> tuple[FleetState, ...]:
        """Those of the parts."""
        return (state,)

    @property
    def member_views(self) -> list[MemberView]:
        """How the members see the labels."""
        return [MemberView(member.code, member.fold) for member in self.plan.members]

    @property
    def want(self) -> Want:
        """Soft margins hold rows together, pools of hard ones have equal parts of the memory."""
        one: Want = self._problem(0).want
        size = one.size * (self._count if self.kind.pools_apart else 1)
        return replace(one, given=self.memory_bytes, size=size)

    def unsolved(self) -> FleetState:
        """Nothing is known of any member."""
        source, members = self.source, tuple(without_rows(self._problem(k).unsolved()) for k in range(self._count))
        none = of_dense(np.zeros((0, source.features), source.dtype), sparse=source.sparse)
        return FleetState(
            round=0, scans=0, members=members, shared_rows=SharedRows(np.zeros(0, np.int64), none), evaluated=False,
            confusion=self._evaluator(members, final=True).nothing(), sample_bytes=0,
        )  # fmt: skip

    @property
    def _count(self) -> int:
        return len(self.plan.members)

    @property
    def all_cached(self) -> bool:
        """True where all rows that count are held from the start, in whatever form takes the least memory."""
        return all(self.kind.holds_all(member.problem) for member in self.plan.members)

    @property
    def holds_all_rows(self) -> bool:
        """Where members do."""
        return self.all_cached

    @property
    def _as_read(self) -> bool:
        """True where members solve rows in whatever form they are shared."""
        return self.all_cached or self.kind.rows_as_read

    def shared_rows(self, states: Iterable[MemberState], parts: Sequence[DriverRows]) -> SharedRows:
        """The rows that these states hold, each once, from the first of the parts that has it."""
        if self.all_cached:
            return SharedRows(parts[0].ids, parts[0].rows)
        wanted = [own.ids for state in states for own in rows_of(state).values()]
        return SharedRows.bound(np.unique(np.concatenate(wanted)), parts, self.source.dtype)

    def running(self, state: FleetState) -> list[int]:
        """Numbers of the members that are not done."""
        return [k for k, own in enumerate(state.members) if not self._problem(k).done(own)]

    def broken(self, state: FleetState) -> FleetState:
        """With the members that are at work stalled; nothing is known of how they do together."""
        members = list(state.members)
        for k in self.running(state):
            members[k] = self._problem(k).broken(members[k])
        return replace(state, members=tuple(members))

    def _own(self, state: FleetState, number: int) -> MemberState:
        """A member's state, with rows where they matter for its question, and for what it stands for."""
        own = state.members[number]
        return with_rows(own, state.shared_rows) if self.kind.needs_rows else own

    def _stages(self, state: FleetState) -> int:
        """How many the first read has, 0: it is not made in stages."""
        return max(self.kind.stages(member) for member in state.members)

    def _asked(self, state: FleetState, running: list[int]) -> Evaluator:
        """Whose decisions the next scan compares with the labels; running: numbers of the members that are not done."""
        final = all(self.kind.evaluated(self._problem(k), state.members[k]) for k in running)
        return self._evaluator(state.members, final=final)

    def _problem(self, number: int) -> Any:
        """Any: its state is of its own kind, and the two go together by their place."""
        return self.plan.members[number].problem

    def _evaluator(self, states: Iterable[MemberState], *, final: bool) -> Evaluator:
        """About the final hypotheses of members that are done, and the newest of others; not ``final``: about none."""
        plan = self.plan
        if not final:
            return Evaluator.absent(self.source.features, plan.codes)
        columns = [self.hypothesis(k, state) for k, state in enumerate(states)]
        ensembles = tuple(Ensemble(tuple(numbers), fold) for (fold, _), numbers in plan.ensembles.items())
        return Evaluator(np.column_stack(columns), plan.codes, ensembles)

    def hypothesis(self, number: int, state: MemberState) -> Array:
        """(w, b) (d + 1,): final when the member is done, the newest before."""
        problem = self._problem(number)
        newest = None if problem.done(state) else self.kind.newest(state)
        if newest is not None:
            return newest
        found = problem.result(state)
        return np.append(found.w, found.b)

    def statuses(self, state: FleetState) -> list[str]:
        """How the members end: one that is solved may be claimed as less, where its map's rounding takes the proof, and
        one that was proven, and asks again, is.
        """
        found: list[str] = [own.status for own in state.members]
        for number, status in enumerate(found):
            if status in ("certified", "running"):
                end = self._problem(number).result(self._own(state, number)).status
                found[number] = status if status == "running" and end != "certified" else end
        return found

    def _of_all_rows(self, confusion: NDArray[np.int64]) -> bool:
        """Whether each row was counted, once, where there are no folds."""
        every = int(count_weighted_rows(self.source)[self.plan.codes].sum())
        return bool((confusion.sum(axis=(1, 2)) == every).all())

    def _judged(self, state: FleetState) -> FleetState:
        """With how the members do together, where no scan has to tell: all rows are given their classes by members that
        are proven to separate them.
        """
        if self.plan.folds or self.running(state) or not all(self.kind.separates(own) for own in state.members):
            return state
        right = np.diag(count_weighted_rows(self.source)[self.plan.codes])
        confusion = np.stack([right] * len(self.plan.ensembles))
        return replace(state, evaluated=True, as_read=False, confusion=confusion)
