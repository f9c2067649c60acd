"""A hard margin or, once it is proven that there is none, a soft one: two problems, one after the other.

Classes that overlap mostly do so on the rows of the first stage already. These are at home then, and what the soft
margin begins with: nothing is read twice. A proof that comes later costs what was read for it.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any, TypeAlias

import numpy as np

from coremargin.engine.problem import GoesOn, NothingToGoOnFrom
from coremargin.maths.named import below, under
from coremargin.problems.common.sent import Brought
from coremargin.problems.common.two_class_problem import TwoClassProblem
from coremargin.problems.hard_or_soft.state import HardOrSoftState, proof_of
from coremargin.problems.soft.near_margin import SoftMargin
from coremargin.problems.soft.warm_start import NO_SUMS

if TYPE_CHECKING:
    from collections.abc import Mapping

    from coremargin.data.difference import Difference
    from coremargin.engine.allowance import Allowance
    from coremargin.engine.problem import Round
    from coremargin.engine.protocols import Probe
    from coremargin.engine.want import Want
    from coremargin.problems.common.result import Result
    from coremargin.problems.hard.problem import HardMargin
    from coremargin.problems.soft.block_minimisation import BlockMinimisation
    from coremargin.problems.soft.state import SoftState

    Soft: TypeAlias = SoftMargin | BlockMinimisation


@dataclass(frozen=True)
class HardOrSoft(TwoClassProblem[HardOrSoftState, Any]):
    """``hard`` and, where that ends with the proof that nothing separates the classes, ``soft``, on the same rows."""

    hard: HardMargin
    soft: Soft

    def check(self) -> None:
        """Refuse what either would refuse."""
        self.hard.check()
        self.soft.check()

    @property
    def least_block_bytes(self) -> int:
        """As much as either needs."""
        return max(self.hard.least_block_bytes, self.soft.least_block_bytes)

    @property
    def stage_chunks(self) -> tuple[int, ...]:
        """Those of the margin."""
        return self.hard.stage_chunks

    @property
    def sample_chunks(self) -> list[int]:
        """The chunks of its first stage."""
        return self.hard.sample_chunks

    @property
    def reads_again(self) -> bool:
        """For the soft margin."""
        return True

    @property
    def holds_all_rows(self) -> bool:
        """Where the soft margin does."""
        return self.soft.holds_all_rows

    @property
    def want(self) -> Want:
        """That of the problem which would like more."""
        return max(self.hard.want, self.soft.want, key=lambda want: want.size)

    def unsolved(self) -> HardOrSoftState:
        """Nothing was tried."""
        return HardOrSoftState(self.hard.unsolved())

    def start(self) -> HardOrSoftState:
        """The margin is tried."""
        return HardOrSoftState(self.hard.start())

    def _now(self, state: HardOrSoftState) -> Any:
        """The problem that the job is at."""
        return self.hard if state.soft is None else self.soft

    def probe(self, state: HardOrSoftState) -> Probe:
        """The question of the problem that the job is at."""
        probe: Probe = self._now(state).probe(state.now)
        return probe

    def skip(self, state: HardOrSoftState) -> np.ndarray:
        """What that need not see."""
        return np.asarray(self._now(state).skip(state.now))

    def ahead(self, state: HardOrSoftState) -> np.ndarray:
        """What that asks about later."""
        return np.asarray(self._now(state).ahead(state.now))

    def update(self, state: HardOrSoftState, summary: Any) -> HardOrSoftState:
        """After an answer; with the proof that nothing separates the classes the soft margin begins."""
        if state.soft is not None:
            return replace(state, soft=self.soft.update(state.soft, summary))
        hard = self.hard.update(state.hard, summary)
        if hard.status != "not_separable":
            return HardOrSoftState(hard)
        return HardOrSoftState(proof_of(hard), self._begun(summary))

    def broken(self, state: HardOrSoftState) -> HardOrSoftState:
        """As the problem has it that the job is at."""
        if state.soft is None:
            return HardOrSoftState(self.hard.broken(state.hard))
        return replace(state, soft=self.soft.broken(state.soft))

    def _begun(self, summary: Any) -> SoftState:
        """The soft margin's first state: from rows that have come home, where these are those it would read."""
        chunks = self.soft.sample_chunks
        if not (isinstance(summary, Brought) and set(chunks) <= set(self.hard.stages.chunks(0).tolist())):
            return self.soft.start()
        if isinstance(self.soft, SoftMargin) and self.soft.in_stages:
            return self.soft.begin_stages(summary.sample(self.source, chunks))
        stay = getattr(self.soft, "all_cached", False)
        return replace(self.soft.begin(summary.sample(self.source, chunks, stay=stay)), sample_bytes=0)

    def round_of(self, state: HardOrSoftState) -> Round:
        """Of the margin, then of the value; ``overlap``: so many rows prove that there is none.

        The round that proves it says nothing else: what was known of the margin is void, of the value nothing is.
        """
        hard = self.hard.round_of(state.hard)
        if state.soft is None:
            return hard
        soft = self.soft.round_of(state.soft)
        if state.just_begun:
            told = soft if state.in_the_same_read else hard
            nothing: dict[str, Any] = {"lower": -np.inf, "lower_now": -np.inf, "upper": np.inf, "rows_below": None}
            return replace(told, status="running", more={"overlap": len(state.hard.coreset)}, **nothing)
        return soft if state.in_the_same_read else replace(soft, number=hard.number + soft.number)

    def kept(self, state: HardOrSoftState, allowance: Allowance) -> Mapping[str, np.ndarray]:
        """What the problem keeps that the job has come to, and the proof that there is no margin."""
        if state.soft is None:
            return under("hard", self.hard.kept(state.hard, allowance))
        soft = self.soft.kept(state.soft, allowance) if isinstance(self.soft, GoesOn) else {}
        return under("hard", state.hard.to_arrays()) | under("soft", soft)

    def onward(self, arrays: Mapping[str, np.ndarray], difference: Difference) -> HardOrSoftState:
        """As the problem goes on that the job had come to; a margin may turn out to be none any more.

        Raises NothingToGoOnFrom: of rows that prove that there is no margin some have changed; or as either does.
        """
        margin, soft = below("hard", arrays), below("soft", arrays)
        proven_before = self.hard.restore(margin).status == "not_separable"
        hard = self.hard.onward(margin, difference)
        if hard.status != "not_separable":
            return HardOrSoftState(hard)
        if not proven_before:
            return HardOrSoftState(proof_of(hard), self.soft.start())
        if not (soft and isinstance(self.soft, GoesOn)):
            raise NothingToGoOnFrom(NO_SUMS)
        return HardOrSoftState(replace(hard, sample_bytes=0), self.soft.onward(soft, difference))

    def result(self, state: HardOrSoftState) -> Result:
        """The model that a state stands for."""
        found: Result = self._now(state).result(state.now)
        return found

    def restore(self, arrays: Mapping[str, np.ndarray]) -> HardOrSoftState:
        """A state from a checkpoint."""
        soft = below("soft", arrays)
        return HardOrSoftState(self.hard.restore(below("hard", arrays)), self.soft.restore(soft) if soft else None)
