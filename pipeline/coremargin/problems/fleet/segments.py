"""Soft margins of a fleet of whose rows only some fit: all members go over them a segment at a time, in step.

A segment is read once for all of them, and so is a proof. When half of the members that are at work want a proof after
a pass, it is made, and asks all of them: it costs no read, and most of them are not far from theirs. Held are the rows
that are nearest to the margin for some member, as many as one problem alone would hold.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from coremargin.errors import UsageError
from coremargin.maths.rows import products
from coremargin.problems.common.sizes import float64_row_bytes
from coremargin.problems.common.threads import MOST_THREADS
from coremargin.problems.fleet.member_kinds import MemberKind
from coremargin.problems.fleet.probe import SoftFleetProbe, together
from coremargin.problems.fleet.state import SharedRows, holding, with_rows, without_rows
from coremargin.problems.soft.block_minimisation import CACHED_PART, BlockMinimisation
from coremargin.problems.soft.state import SoftState
from coremargin.spec import format_size

if TYPE_CHECKING:
    from collections.abc import Sequence

    from coremargin.data.source import Source
    from coremargin.problems.common.sample import Sample
    from coremargin.problems.soft.base import SoftBase

Array = NDArray[np.float64]

#: Bytes of a member's dual of a row: before it is solved, after that, and in balance for a proof.
DUAL_BYTES = 24
#: Copies of its rows while a member is solved: as they come, in float64, and with their signs.
COPIES = 3
#: At least this part of the memory is left for rows.
ROWS_PART = 4


@dataclass(frozen=True)
class InSegments(MemberKind[BlockMinimisation, SoftState]):
    """Soft margins by selective block minimisation; memory_bytes: of all members, count of them."""

    memory_bytes: int
    count: int

    probe = SoftFleetProbe
    in_parts = True

    def member(self, job: SoftBase) -> BlockMinimisation:
        """The problem of a member."""
        return BlockMinimisation(replace(job, memory_bytes=self.rows_bytes(job.source)), evaluated=True)

    def rows_bytes(self, source: Source) -> int:
        """Of the memory what duals leave for rows."""
        return max(1, self.memory_bytes - DUAL_BYTES * source.rows * self.count)

    def duals_fit(self, source: Source) -> bool:
        """Whether duals leave enough of the memory."""
        return self._least_bytes(source) <= self.memory_bytes

    def _least_bytes(self, source: Source) -> int:
        """Bytes that are enough for duals, and some of the rows."""
        return -(-DUAL_BYTES * source.rows * self.count * ROWS_PART // (ROWS_PART - 1))

    def check(self, problem: BlockMinimisation) -> None:
        """Refuse more duals than there is memory for."""
        job = problem.job
        source = job.source
        if not self.duals_fit(source):
            enough = [self._least_bytes(source), job.all_bytes]
            if source.rows >= source.features:
                enough.append(job.sums_bytes)
            raise UsageError(
                f"memory: expected at least {format_size(min(enough))}, found {format_size(self.memory_bytes)}: too "
                f"little for the dual weights of {source.rows:,} rows for each of {self.count:,} models, for all rows, "
                f"and for sums of {source.features:,} x {source.features:,} numbers; "
                f"give more memory, or train fewer classes, folds or values of C at a time"
            )

    def begin(
        self,
        problem: BlockMinimisation,
        sample: Sample,
        before: tuple[BlockMinimisation, SoftState] | None,
    ) -> SoftState:
        """From the duals before, which grow as C does."""
        near = None
        if before is not None and before[1].block_pass is not None:
            near = before[1].block_pass.times(problem.job.cost / before[0].job.cost)
        return problem.begin(sample, near)

    def evaluated(self, problem: BlockMinimisation, state: SoftState) -> bool:
        """In proofs, which are about all rows."""
        return problem.proving(state)

    def newest(self, state: SoftState) -> Array | None:
        """As in the state."""
        return state.newest

    def most(self, source: Source, memory_bytes: int, probes: Sequence[Any]) -> int:
        """No more than one problem alone."""
        keep: int = max(probe.keep for probe in probes)
        return max(1, keep)

    def advanced(self, problem: BlockMinimisation, state: SoftState, summary: Any) -> SoftState:
        """What follows a pass is left open."""
        return problem.advanced(state, summary)

    def at_a_time(self, source: Source, rows: Sequence[int]) -> int:
        """As many as have copies of their rows in the memory that duals leave."""
        each = COPIES * float64_row_bytes(source) * max(rows, default=0)
        return max(1, min(MOST_THREADS, self.rows_bytes(source) // max(1, each)))

    def distances(self, state: SoftState) -> Array:
        """Of the rows held from the margin."""
        cached = state.rows.cached
        margins = cached.signs * (products(cached.rows, state.newest[:-1, None])[0] + state.newest[-1])
        return np.asarray(np.abs(margins - 1.0))

    def kept(self, source: Source, members: Sequence[SoftState], distances: Sequence[Array]) -> list[SoftState]:
        """The rows that are nearest to the margin for some member at work, as many as one problem alone would hold."""
        cached = [member.rows.cached.ids[: len(far)] for member, far in zip(members, distances, strict=True)]
        every = np.unique(np.concatenate(cached))
        places = [np.searchsorted(every, ids) for ids in cached]
        room = self.rows_bytes(source) // CACHED_PART // max(1, float64_row_bytes(source))
        chosen = together(list(zip(places, distances, strict=True)), room, len(every))
        return [
            holding(member, {"cached": member.rows.cached.take(np.flatnonzero(chosen[at]))})
            for member, at in zip(members, places, strict=True)
        ]

    def decided(
        self, members: Sequence[tuple[BlockMinimisation, SoftState]], shared_rows: SharedRows
    ) -> list[SoftState] | None:
        """After a pass, whether all of them prove what they have, or make another one."""
        problem, state = members[0]
        if not problem.proving(state):
            return None
        due = sum(problem.due(state) for problem, state in members)
        if 2 * due < len(members):
            return [problem.decided(state, proof=False) for problem, state in members]
        return [without_rows(problem.decided(with_rows(state, shared_rows), proof=True)) for problem, state in members]

    def part(self, problem: BlockMinimisation, state: SoftState) -> int:
        """Segments of a pass that are done."""
        return problem.part(state)
