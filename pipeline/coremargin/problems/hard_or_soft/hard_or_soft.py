"""A hard margin or, once it is proven that there is none, a soft one: two problems, one after the other.

Classes that overlap mostly do so on the rows of the first stage already. The soft margin begins with these rows, so
that nothing is read twice. If the proof comes later, the soft margin reads the store from the start.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any, TypeAlias

import numpy as np

from coremargin.engine.problem import CannotWarmStart, WarmStarts
from coremargin.maths.named import below, under
from coremargin.problems.common.result import TwoClassProblem
from coremargin.problems.common.sent import AllRows
from coremargin.problems.hard.block_bounds import BlockBounds
from coremargin.problems.soft.near_margin import SoftMargin
from coremargin.problems.soft.warm_start import NO_SUMS

if TYPE_CHECKING:
    from collections.abc import Mapping

    from numpy.typing import NDArray

    from coremargin.data.difference import Difference
    from coremargin.engine.allowance import Allowance
    from coremargin.engine.memory_need import MemoryNeed
    from coremargin.engine.problem import Round
    from coremargin.engine.protocols import Probe
    from coremargin.problems.common.result import Result
    from coremargin.problems.hard.hard_margin import HardMargin
    from coremargin.problems.hard.state import HardMarginState
    from coremargin.problems.soft.block_minimisation import BlockMinimisation
    from coremargin.problems.soft.state import SoftState

    Soft: TypeAlias = SoftMargin | BlockMinimisation


@dataclass(frozen=True)
class HardOrSoftState:
    """hard: the state of the hard margin; once there is none, its proof and little else. soft: None until then."""

    hard: HardMarginState
    soft: SoftState | None = None

    @property
    def current(self) -> HardMarginState | SoftState:
        """The state of the problem that the job has come to."""
        return self.hard if self.soft is None else self.soft

    @property
    def in_the_same_read(self) -> bool:
        """Whether the first stage of the hard margin's read was that of the soft margin's, too."""
        return self.soft is not None and self.soft.stages > 0 and self.hard.round == 1

    @property
    def just_begun(self) -> bool:
        """Whether no scan was made for the soft margin's sake so far."""
        return self.soft is not None and self.soft.round == int(self.in_the_same_read)

    @property
    def round(self) -> int:
        """The number of updates."""
        return self.hard.round + (0 if self.soft is None else self.soft.round)

    @property
    def status(self) -> str:
        """The word "running", or how the job ended."""
        return self.current.status

    @property
    def sample_bytes(self) -> int:
        """Bytes read besides scans."""
        return self.hard.sample_bytes + (0 if self.soft is None else self.soft.sample_bytes)

    def to_arrays(self) -> dict[str, NDArray[Any]]:
        """Plain arrays, exact: ``HardOrSoft.restore`` gives the same bits back."""
        soft = {} if self.soft is None else under("soft", self.soft.to_arrays())
        return under("hard", self.hard.to_arrays()) | soft


@dataclass(frozen=True)
class HardOrSoft(TwoClassProblem[HardOrSoftState, Any]):
    """``hard`` and, if that ends with the proof that nothing separates the classes, ``soft``, on the same rows."""

    hard: HardMargin
    soft: Soft

    def check(self) -> None:
        """Refuse what either would refuse."""
        self.hard.check()
        self.soft.check()

    @property
    def least_block_bytes(self) -> int:
        """The larger one of both."""
        return max(self.hard.least_block_bytes, self.soft.least_block_bytes)

    @property
    def stage_chunks(self) -> tuple[int, ...]:
        """The stages of the hard margin."""
        return self.hard.stage_chunks

    @property
    def sample_chunks(self) -> list[int]:
        """The first stage of the hard margin."""
        return self.hard.sample_chunks

    @property
    def reads_again(self) -> bool:
        """True: the soft margin may read the store again."""
        return True

    @property
    def holds_all_rows(self) -> bool:
        """Whether the soft margin does."""
        return self.soft.holds_all_rows

    @property
    def memory_need(self) -> MemoryNeed:
        """The larger one of both."""
        return max(self.hard.memory_need, self.soft.memory_need, key=lambda want: want.size)

    def unsolved(self) -> HardOrSoftState:
        """Nothing was tried."""
        return HardOrSoftState(self.hard.unsolved())

    def start(self) -> HardOrSoftState:
        """The start of the hard margin."""
        return HardOrSoftState(self.hard.start())

    def _current(self, state: HardOrSoftState) -> Any:
        """The problem that the job has come to."""
        return self.hard if state.soft is None else self.soft

    def probe(self, state: HardOrSoftState) -> Probe:
        """The probe of the current problem."""
        probe: Probe = self._current(state).probe(state.current)
        return probe

    def skip(self, state: HardOrSoftState) -> np.ndarray:
        """Chunks (c,) that the current problem need not read."""
        return np.asarray(self._current(state).skip(state.current))

    def ahead(self, state: HardOrSoftState) -> np.ndarray:
        """Chunks that the current problem reads later."""
        return np.asarray(self._current(state).ahead(state.current))

    def update(self, state: HardOrSoftState, summary: Any) -> HardOrSoftState:
        """Update the current problem; the soft margin begins once it is proven that there is no hard one."""
        if state.soft is not None:
            return replace(state, soft=self.soft.update(state.soft, summary))
        hard = self.hard.update(state.hard, summary)
        if hard.status != "not_separable":
            return HardOrSoftState(hard)
        return HardOrSoftState(proof_of(hard), self._begin_soft(summary))

    def broken(self, state: HardOrSoftState) -> HardOrSoftState:
        """As for the current problem."""
        if state.soft is None:
            return HardOrSoftState(self.hard.broken(state.hard))
        return replace(state, soft=self.soft.broken(state.soft))

    def _begin_soft(self, summary: Any) -> SoftState:
        """The soft margin's first state, from rows that the summary has sent if they are those that it would read."""
        chunks = self.soft.sample_chunks
        if not (isinstance(summary, AllRows) and set(chunks) <= set(self.hard.stages.chunks(0).tolist())):
            return self.soft.start()
        if isinstance(self.soft, SoftMargin) and self.soft.in_stages:
            return self.soft.begin_stages(summary.sample(self.source, chunks))
        stay = getattr(self.soft, "all_cached", False)
        return replace(self.soft.begin(summary.sample(self.source, chunks, stay=stay)), sample_bytes=0)

    def round_of(self, state: HardOrSoftState) -> Round:
        """The round of the current problem.

        The round that proves that there is no hard margin reports ``overlap``, the number of rows that prove it, and no
        bounds: those of the margin are void, and of the value none is known.
        """
        hard = self.hard.round_of(state.hard)
        if state.soft is None:
            return hard
        soft = self.soft.round_of(state.soft)
        if state.just_begun:
            last = soft if state.in_the_same_read else hard
            nothing: dict[str, Any] = {"lower": -np.inf, "lower_now": -np.inf, "upper": np.inf, "rows_below": None}
            return replace(last, status="running", more={"overlap": len(state.hard.coreset)}, **nothing)
        return soft if state.in_the_same_read else replace(soft, number=hard.number + soft.number)

    def warm_start_state(self, state: HardOrSoftState, allowance: Allowance) -> Mapping[str, np.ndarray]:
        """The cache of the current problem, and the proof that there is no hard margin."""
        if state.soft is None:
            return under("hard", self.hard.warm_start_state(state.hard, allowance))
        soft = self.soft.warm_start_state(state.soft, allowance) if isinstance(self.soft, WarmStarts) else {}
        return under("hard", state.hard.to_arrays()) | under("soft", soft)

    def warm_start(self, arrays: Mapping[str, np.ndarray], difference: Difference) -> HardOrSoftState:
        """The warm start of the problem that the earlier job had come to; a hard margin may have become impossible.

        Raises CannotWarmStart if rows of the proof that there is no hard margin have changed, and as either problem
        does.
        """
        margin, soft = below("hard", arrays), below("soft", arrays)
        proven_before = self.hard.restore(margin).status == "not_separable"
        hard = self.hard.warm_start(margin, difference)
        if hard.status != "not_separable":
            return HardOrSoftState(hard)
        if not proven_before:
            return HardOrSoftState(proof_of(hard), self.soft.start())
        if not (soft and isinstance(self.soft, WarmStarts)):
            raise CannotWarmStart(NO_SUMS)
        return HardOrSoftState(replace(hard, sample_bytes=0), self.soft.warm_start(soft, difference))

    def result(self, state: HardOrSoftState) -> Result:
        """The result of the current problem."""
        found: Result = self._current(state).result(state.current)
        return found

    def restore(self, arrays: Mapping[str, np.ndarray]) -> HardOrSoftState:
        """A state from a checkpoint."""
        soft = below("soft", arrays)
        return HardOrSoftState(self.hard.restore(below("hard", arrays)), self.soft.restore(soft) if soft else None)


def proof_of(state: HardMarginState) -> HardMarginState:
    """The state of a hard margin that does not exist, without all rows that its proof does not need."""
    unknown = BlockBounds.unknown(state.block_bounds.chunks, state.block_bounds.directions.shape[1])
    return replace(state, working_set=state.coreset, sketch=state.coreset, block_bounds=unknown, near_rows=None)
