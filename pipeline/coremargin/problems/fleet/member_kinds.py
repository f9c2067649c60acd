"""What a fleet has to know of its members, which are all of one kind: hard margins, soft margins, or in segments."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Sequence
from dataclasses import replace
from typing import TYPE_CHECKING, Any, ClassVar, Generic, TypeVar, cast

import numpy as np
from numpy.typing import NDArray

from coremargin.problems.common.sizes import row_bytes
from coremargin.problems.common.threads import MOST_THREADS
from coremargin.problems.fleet.margin_probe import MarginFleetProbe
from coremargin.problems.fleet.probe import FleetProbe, SoftFleetProbe
from coremargin.problems.fleet.state import MemberState, SharedRows

if TYPE_CHECKING:
    from coremargin.data.difference import Difference
    from coremargin.data.source import Source
    from coremargin.problems.common.sample import Sample
    from coremargin.problems.common.warm_start import RowFetcher
    from coremargin.problems.fleet.members import FleetPlan
    from coremargin.problems.hard.hard_margin import HardMargin
    from coremargin.problems.hard.state import HardMarginState
    from coremargin.problems.soft.problem import SoftMargin
    from coremargin.problems.soft.state import SoftState

Array = NDArray[np.float64]
P = TypeVar("P", bound=Any)  #: the problem of a member
S = TypeVar("S", bound=MemberState)  #: its state


def first_together(plan: FleetPlan) -> FleetPlan:
    """The plan with members that read in stages, all with those of the chunks that any of them begins with."""
    first = tuple(sorted(set().union(*(member.problem.sample_chunks for member in plan.members))))
    return plan.with_problems(lambda own: replace(cast("HardMargin", own), first_chunks=first))


class MemberKind(ABC, Generic[P, S]):
    """How members of one kind begin, what they ask, and what they decide together. Its objects never change."""

    probe: ClassVar[type[FleetProbe]]  #: what a worker does for them
    needs_rows: ClassVar[bool] = False  #: a member's question, and what it stands for, depend on the rows that it holds
    pools_apart: ClassVar[bool] = False  #: each has a part of the memory for rows of its own
    judged_in_stages: bool = False  #: how members do together is counted as the stages are read
    rows_as_read: ClassVar[bool] = False  #: members hold them in the store's precision, and not all in float64
    goes_on: ClassVar[bool] = False  #: members can go on from an earlier commit of their rows
    in_parts: ClassVar[bool] = False  #: a scan is made in parts, in all of which no member may be left behind

    def check(self, problem: P) -> None:
        """Refuse what there is no memory for; problem: any member's. Raises UsageError."""

    def holds_all(self, problem: P) -> bool:
        """Whether all rows that count are held from the start, in whatever form takes the least memory."""
        return False

    def stages(self, state: S) -> int:
        """How many stages the first read has, 0: it is not made in stages."""
        return 0

    @abstractmethod
    def begin(self, problem: P, sample: Sample, before: tuple[P, S] | None) -> S:
        """The state before the first scan; before: the member with the next lower C on the same rows, and its state."""

    @abstractmethod
    def evaluated(self, problem: P, state: S) -> bool:
        """Whether the next scan is about a hypothesis that may be the final one, over all rows."""

    def newest(self, state: S) -> Array | None:
        """The hypothesis (d + 1,) of the next scan; None where there is none before the member is done."""
        return None

    def separates(self, state: S) -> bool:
        """Whether it is proven that each row that counts lies on its own side of what the member ends with."""
        return False

    def most(self, source: Source, memory_bytes: int, probes: Sequence[Any]) -> int:
        """Rows of a chunk that all members together send at most: of half the memory."""
        return max(1, memory_bytes // 2 // row_bytes(source) // source.chunks)

    def advanced(self, problem: P, state: S, summary: Any) -> S:
        """The state after a scan."""
        after: S = problem.update(state, summary)
        return after

    def at_a_time(self, source: Source, rows: Sequence[int]) -> int:
        """How many members may be solved at a time; rows: of each of them."""
        return MOST_THREADS

    def distances(self, state: S) -> Array:
        """What ``kept`` goes by, for each row (m,) that a state holds."""
        return np.zeros(0)

    def kept(self, source: Source, members: Sequence[S], distances: Sequence[Array]) -> list[S]:
        """All members, without rows, when they are solved: with pools that are small enough together."""
        return list(members)

    def decided(self, members: Sequence[tuple[P, S]], shared_rows: SharedRows) -> list[S] | None:
        """The running members after what they decide together, if there is anything to decide."""
        return None

    def part(self, problem: P, state: S) -> int:
        """Parts of the scan that are done, 0 when it is over."""
        return 0

    def joining(self, problem: P, state: S, chunks: NDArray[np.intp]) -> S | None:
        """The state of a member that is done, to ask some chunks, which are read for others, once more for what it goes
        on from on later nights; None where it has no need to.
        """
        return None

    def asking_all(self, problem: P, state: S) -> S | None:
        """A last state that asks all rows once more for what it goes on from; None where that is not so."""
        return None

    def work_of_asking(self, problem: P) -> float:
        """Multiply-adds that this takes."""
        return 0.0

    def summed(self, problem: P, state: S, summary: Any) -> S:
        """The last state after that."""
        return self.advanced(problem, state, summary)

    def lightened(self, problem: P, state: S, most: int) -> S:
        """What a member goes on from, of its last state; most: rows that it may keep."""
        return state

    def gone_on(self, problem: P, state: S, difference: Difference, fetched: RowFetcher) -> S:
        """The state after what has changed for a member. Raises NothingToGoOnFrom."""
        after: S = problem.gone_on(state, difference, fetched)
        return after

    def room(self, problem: P, members: int) -> int:
        """Rows that so many members together may hold when they go on."""
        return 0


class HardMargins(MemberKind["HardMargin", "HardMarginState"]):
    """A hard margin's offset is chosen after the scan: what a scan of its newest hypothesis says is never final."""

    probe = MarginFleetProbe
    needs_rows = pools_apart = goes_on = True

    def stages(self, state: HardMarginState) -> int:
        """As in the state."""
        return state.stages

    def part(self, problem: HardMargin, state: HardMarginState) -> int:
        """The stages that are done, as long as there are more."""
        return state.stage if state.reading else 0

    def begin(
        self, problem: HardMargin, sample: Sample, before: tuple[HardMargin, HardMarginState] | None
    ) -> HardMarginState:
        """On the sample alone: there is no C."""
        return problem.begin(sample)

    def evaluated(self, problem: HardMargin, state: HardMarginState) -> bool:
        """Never."""
        return False

    def separates(self, state: HardMarginState) -> bool:
        """With a margin."""
        return state.lower > 0

    def lightened(self, problem: HardMargin, state: HardMarginState, most: int) -> HardMarginState:
        """With its lowest rows."""
        return problem.lightened(state, most)

    def room(self, problem: HardMargin, members: int) -> int:
        """In their pools."""
        return members * problem.pool_rows


class SoftMargins(MemberKind["SoftMargin", "SoftState"]):
    """Soft margins by the near-margin method."""

    probe = SoftFleetProbe

    def holds_all(self, problem: SoftMargin) -> bool:
        """Where rows fit, and models of rows are the better ones."""
        return problem.all_cached

    def begin(self, problem: SoftMargin, sample: Sample, before: tuple[SoftMargin, SoftState] | None) -> SoftState:
        """From the solution before and, where all rows are held, its duals."""
        if before is None:
            return problem.begin(sample)
        earlier, state = before
        shares = state.rows.cached_duals / earlier.cost if earlier.all_cached else None
        return problem.begin(sample, state.newest, shares)

    def evaluated(self, problem: SoftMargin, state: SoftState) -> bool:
        """Always."""
        return True

    def newest(self, state: SoftState) -> Array | None:
        """As in the state."""
        return state.newest
