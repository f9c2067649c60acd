"""The kinds of members that a fleet can have: hard margins, soft margins, and soft margins over row partitions.

All members of a fleet are of one kind. A kind says how members begin, query and update, which rows they keep, and what
they decide together.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, ClassVar, Generic, TypeVar

import numpy as np
from numpy.typing import NDArray

from coremargin.errors import UsageError
from coremargin.maths.rows import products
from coremargin.problems.common.sizes import float64_row_bytes, row_bytes
from coremargin.problems.common.threads import MOST_THREADS
from coremargin.problems.fleet.probe import FleetProbe, HardFleetProbe, most_wanted
from coremargin.problems.fleet.shared_rows import SharedRows, replace_rows, with_rows, without_rows
from coremargin.problems.soft.block_minimisation import CACHED_PART, BlockMinimisation
from coremargin.problems.soft.probe import StageProbe
from coremargin.problems.soft.state import SoftState
from coremargin.problems.soft.warm_start import lightened
from coremargin.spec import format_size

if TYPE_CHECKING:
    from coremargin.data.source import Source
    from coremargin.problems.common.sample import Sample
    from coremargin.problems.fleet.plan import MemberState
    from coremargin.problems.hard.hard_margin import HardMargin
    from coremargin.problems.hard.state import HardMarginState
    from coremargin.problems.soft.near_margin import SoftMargin
    from coremargin.problems.soft.problem import SoftProblem

Array = NDArray[np.float64]
P = TypeVar("P", bound=Any)  #: the problem of a member
S = TypeVar("S", bound="MemberState")  #: its state


class MemberKind(ABC, Generic[P, S]):
    """One kind of members, as a set of functions on problems and states. Its objects never change."""

    probe: ClassVar[type[FleetProbe]] = FleetProbe  #: the query of all members
    needs_rows: ClassVar[bool] = False  #: queries and results depend on the rows that a member holds
    separate_pools: ClassVar[bool] = False  #: each member has a part of the memory for rows of its own
    evaluated_in_stages: bool = False  #: confusion is counted as the stages are read
    chosen_by_risk: bool = False  #: a scan with the final hypotheses has to count it, folds or not
    rows_as_read: ClassVar[bool] = False  #: members hold rows in the store's precision, and not all in float64
    warm_starts: ClassVar[bool] = False  #: members can start from an earlier commit of their rows
    keeps_sums: ClassVar[bool] = False  #: done members may query rows again, for the sums that a warm start needs
    in_parts: ClassVar[bool] = False  #: a scan is made in parts, each of which all members must take

    def check(self, problem: P) -> None:
        """Raise UsageError if the memory does not suffice; problem: of any member."""

    def part(self, problem: P, state: S) -> int:
        """Finished parts of the present scan, 0 when it is over."""
        return 0

    @abstractmethod
    def begin(self, problem: P, sample: Sample, before: tuple[P, S] | None) -> S:
        """The state before the first scan; before: the member with the next lower C on the same rows, and its state."""

    @abstractmethod
    def may_be_final(self, problem: P, state: S) -> bool:
        """Whether the next scan queries, over all rows, a hypothesis that may be the final one."""

    def rows_of_chunk(self, source: Source, memory_bytes: int, probes: Sequence[Any]) -> int:
        """The most rows of a chunk that are sent for all members together; without meaning for separate pools."""
        return 1

    def update(self, problem: P, state: S, summary: Any) -> S:
        """The state after a scan."""
        after: S = problem.update(state, summary)
        return after

    def parallel_solves(self, source: Source, rows: Sequence[int]) -> int:
        """How many members may be solved at a time; rows: of each of them."""
        return MOST_THREADS

    def distances(self, state: S) -> Array:
        """For each row (m,) that a state holds the distance that ``trim_rows`` goes by."""
        return np.zeros(0)

    def trim_rows(self, source: Source, members: Sequence[S], distances: Sequence[Array]) -> list[S]:
        """All members, without the rows that do not fit together."""
        return list(members)

    def decide_together(self, members: Sequence[tuple[P, S]], shared_rows: SharedRows) -> list[S] | None:
        """The running members after what they decide together; None if there is nothing to decide."""
        return None

    # Warm start

    def warm_start_state(self, problem: P, state: S, most: int) -> S:
        """The part of a last state that a warm start needs; most: rows that it may keep."""
        return state

    def warm_start_rows(self, problem: P, members: int) -> int:
        """The most rows that so many members may hold together after a warm start."""
        return 0


class HardMargins(MemberKind["HardMargin", "HardMarginState"]):
    """Hard margins. Their offset is chosen after a scan, so no scan is about a final hypothesis."""

    probe = HardFleetProbe
    needs_rows = separate_pools = warm_starts = True

    def part(self, problem: HardMargin, state: HardMarginState) -> int:
        """Finished stages, as long as there are more."""
        return state.stage if state.reading else 0

    def begin(
        self, problem: HardMargin, sample: Sample, before: tuple[HardMargin, HardMarginState] | None
    ) -> HardMarginState:
        """On the sample alone: there is no C."""
        return problem.begin(sample)

    def may_be_final(self, problem: HardMargin, state: HardMarginState) -> bool:
        """Never."""
        return False

    def warm_start_state(self, problem: HardMargin, state: HardMarginState, most: int) -> HardMarginState:
        """The rows with the lowest margins."""
        return problem.lightened(state, most)

    def warm_start_rows(self, problem: HardMargin, members: int) -> int:
        """The pools of all members."""
        return members * problem.working_set_rows


@dataclass(frozen=True)
class SoftMargins(MemberKind["SoftMargin", "SoftState"]):
    """Soft margins whose first read is made in stages if this pays; else, and after it, they use scans of all rows.

    All members have the same stages. Each chunk is read once and queried for all members, each with its own hypothesis
    of the stages before. What a member's bounds leave open is read again for the members that need it.

    evaluated_in_stages: confusion is counted in the stages, about hypotheses that are not final. False where it
    chooses C, by folds or risk: then a scan with the final hypotheses counts.
    """

    evaluated_in_stages: bool = True
    chosen_by_risk: bool = False

    rows_as_read = warm_starts = keeps_sums = True

    def part(self, problem: SoftMargin, state: SoftState) -> int:
        """Finished stages, as long as there are more."""
        reading = state.reading
        return reading.stage if reading is not None and reading.stage < state.stages else 0

    def begin(self, problem: SoftMargin, sample: Sample, before: tuple[SoftMargin, SoftState] | None) -> SoftState:
        """From the solution before, after the first stage; without stages also from its duals, if all rows are held."""
        if problem.in_stages:
            return problem.begin_stages(sample, None if before is None else before[1].newest)
        if before is None:
            return problem.begin(sample)
        earlier, state = before
        shares = state.rows.cached_duals / earlier.cost if earlier.all_cached else None
        return problem.begin(sample, state.newest, shares)

    def may_be_final(self, problem: SoftMargin, state: SoftState) -> bool:
        """Unless the scan is a stage and is not to be evaluated."""
        return self.evaluated_in_stages or state.reading is None

    def rows_of_chunk(self, source: Source, memory_bytes: int, probes: Sequence[Any]) -> int:
        """As many as stages state; for scans half of the memory, for all chunks."""
        of_scan = memory_bytes // 2 // row_bytes(source) // source.chunks
        return max(1, *(probe.most if isinstance(probe, StageProbe) else of_scan for probe in probes))

    def warm_start_state(self, problem: SoftMargin, state: SoftState, most: int) -> SoftState:
        """Few rows of the sample; the cached rows are as few as possible."""
        return lightened(state, problem.source.dtype)

    def warm_start_rows(self, problem: SoftMargin, members: int) -> int:
        """As many as one member alone: they share the rows."""
        return problem.most_near_rows


#: Bytes of a member's dual weights of a row: before a solve, after it, and balanced for a proof.
DUAL_BYTES = 24
#: Copies of its rows while a member is solved: as read, in float64, and multiplied by their signs.
COPIES = 3
#: At least one part in so many of the memory is left for rows.
ROWS_PART = 4


@dataclass(frozen=True)
class PartitionedMargins(MemberKind[BlockMinimisation, SoftState]):
    """Soft margins over row partitions (selective block minimisation), for rows that fit in no form.

    A partition is read once for all members, and so is a proof. After a pass over all partitions, a proof is made if
    half of the running members want one, and queries all of them: it costs no further read, and most of the others are
    nearly there. The rows nearest to the margin for some member stay cached, as many as one problem alone would hold.

    memory_bytes: of all members; count: how many there are.
    """

    memory_bytes: int
    count: int

    in_parts = True

    def member(self, problem: SoftProblem) -> BlockMinimisation:
        """The problem of a member."""
        return BlockMinimisation.of(problem, memory_bytes=self.rows_bytes(problem.source), evaluated=True)

    def rows_bytes(self, source: Source) -> int:
        """The memory that dual weights leave for rows."""
        return max(1, self.memory_bytes - DUAL_BYTES * source.rows * self.count)

    def duals_fit(self, source: Source) -> bool:
        """Whether dual weights leave enough memory for rows."""
        return self._least_bytes(source) <= self.memory_bytes

    def _least_bytes(self, source: Source) -> int:
        return -(-DUAL_BYTES * source.rows * self.count * ROWS_PART // (ROWS_PART - 1))

    def check(self, problem: BlockMinimisation) -> None:
        """Raise UsageError if the dual weights do not fit."""
        source = problem.source
        if not self.duals_fit(source):
            enough = [self._least_bytes(source), problem.all_bytes]
            if source.rows >= source.features:
                enough.append(problem.sums_bytes)
            raise UsageError(
                f"memory: expected at least {format_size(min(enough))}, found {format_size(self.memory_bytes)}: too "
                f"little for the dual weights of {source.rows:,} rows for each of {self.count:,} models, for all rows, "
                f"and for sums of {source.features:,} x {source.features:,} numbers; "
                f"give more memory, or train fewer classes, folds or values of C at a time"
            )

    def begin(
        self, problem: BlockMinimisation, sample: Sample, before: tuple[BlockMinimisation, SoftState] | None
    ) -> SoftState:
        """From the duals of the member before, scaled to C."""
        near = None
        if before is not None and before[1].block_pass is not None:
            near = before[1].block_pass.times(problem.cost / before[0].cost)
        return problem.begin(sample, near)

    def may_be_final(self, problem: BlockMinimisation, state: SoftState) -> bool:
        """In proofs, which query all rows."""
        return problem.proving(state)

    def part(self, problem: BlockMinimisation, state: SoftState) -> int:
        """Finished partitions of a pass."""
        return problem.part(state)

    def rows_of_chunk(self, source: Source, memory_bytes: int, probes: Sequence[Any]) -> int:
        """As many as for one member alone."""
        keep: int = max(probe.keep for probe in probes)
        return max(1, keep)

    def update(self, problem: BlockMinimisation, state: SoftState, summary: Any) -> SoftState:
        """The state after a partition or a proof; what follows a pass is left open."""
        return problem.advanced(state, summary)

    def parallel_solves(self, source: Source, rows: Sequence[int]) -> int:
        """As many as can have copies of their rows in memory."""
        each = COPIES * float64_row_bytes(source) * max(rows, default=0)
        return max(1, min(MOST_THREADS, self.rows_bytes(source) // max(1, each)))

    def distances(self, state: SoftState) -> Array:
        """Distances (m,) of the cached rows from the margin."""
        cached = state.rows.cached
        margins = cached.signs * (products(cached.rows, state.newest[:-1, None])[0] + state.newest[-1])
        return np.asarray(np.abs(margins - 1.0))

    def trim_rows(self, source: Source, members: Sequence[SoftState], distances: Sequence[Array]) -> list[SoftState]:
        """With the rows nearest to the margin for some running member, as many as one problem alone would hold."""
        cached = [member.rows.cached.ids[: len(far)] for member, far in zip(members, distances, strict=True)]
        every = np.unique(np.concatenate(cached))
        places = [np.searchsorted(every, ids) for ids in cached]
        room = self.rows_bytes(source) // CACHED_PART // max(1, float64_row_bytes(source))
        chosen = most_wanted(list(zip(places, distances, strict=True)), room, len(every))
        return [
            replace_rows(member, {"cached": member.rows.cached.take(np.flatnonzero(chosen[at]))})
            for member, at in zip(members, places, strict=True)
        ]

    def decide_together(
        self, members: Sequence[tuple[BlockMinimisation, SoftState]], shared_rows: SharedRows
    ) -> list[SoftState] | None:
        """After a pass: a proof for all members, or another pass."""
        problem, state = members[0]
        if not problem.proving(state):
            return None
        due = sum(problem.due(state) for problem, state in members)
        if 2 * due < len(members):
            return [problem.decided(state, proof=False) for problem, state in members]
        return [without_rows(problem.decided(with_rows(state, shared_rows), proof=True)) for problem, state in members]
