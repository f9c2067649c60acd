"""Soft margins of a fleet whose first read is made in stages: each chunk is read once and asked for all members.

All members have the same stages. What a member's bounds leave open is read again for those that need it, and only they
are asked; one that this does not certify goes on by scans of all rows, as ``SoftMargins`` do.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, cast

import numpy as np
from numpy.typing import NDArray

from coremargin.maths.rows import take
from coremargin.problems.fleet.member_kinds import SoftMargins
from coremargin.problems.fleet.probe import SoftFleetProbe, View, near_answers
from coremargin.problems.fleet.summary import FleetSummary
from coremargin.problems.soft.onward import lightened
from coremargin.problems.soft.stage_probe import StageProbe

if TYPE_CHECKING:
    from coremargin.data.source import Source
    from coremargin.problems.common.sample import Sample
    from coremargin.problems.common.sent import ChunkRows
    from coremargin.problems.fleet.summary import Part
    from coremargin.problems.soft.probe import NearMarginProbe
    from coremargin.problems.soft.problem import SoftMargin
    from coremargin.problems.soft.staged import StagedSoftMargin
    from coremargin.problems.soft.state import SoftState

Array = NDArray[np.float64]


@dataclass(frozen=True)
class StagedFleetProbe(SoftFleetProbe):
    """The questions of soft margins, some about a stage and some about all rows."""

    probes: tuple[StageProbe | NearMarginProbe, ...]  # type: ignore[assignment]  # what both have is all that it needs

    def _slab(self, slab: ChunkRows, fold: NDArray[np.int64] | None, values: list[Array], share: float) -> FleetSummary:
        views = self._views(slab, fold, values, share)
        sent = self._sent(slab, views, share)
        parts: dict[int, Part] = {}
        for k, (probe, view) in enumerate(zip(self.probes, views, strict=True)):
            if isinstance(probe, StageProbe):
                parts[k] = _stage_answer(slab, probe, view, sent)
        others = [k for k in range(len(views)) if k not in parts]
        probes = [cast("NearMarginProbe", self.probes[k]) for k in others]
        parts |= dict(zip(others, near_answers(slab, probes, [views[k] for k in others], sent), strict=True))
        places = np.flatnonzero(sent)
        return FleetSummary(
            tuple(parts[k] for k in range(len(views))), places + slab.start, take(slab.rows, places),
            self.evaluator.nothing(),
        )  # fmt: skip


def _stage_answer(slab: ChunkRows, probe: StageProbe, view: View, sent: NDArray[np.bool_]) -> Part:
    """What a member is told about some rows, of which those are ``sent`` (n,)."""
    counted = view.counted
    rows = slab.rows if len(counted.places) == len(slab.codes) else take(slab.rows, counted.places)
    near = view.at(view.wanted[sent[view.wanted]])
    return probe.answer(rows, counted, view.margins, near, slab.longest)


@dataclass(frozen=True)
class StagedMargins(SoftMargins):
    """Soft margins that ask each stage of the first read with their own hypotheses of the stages before it.

    judged_in_stages: how they do together is counted in these, about hypotheses that are not yet final; False where
    C is chosen by it, as with folds: a scan with the final ones tells then.
    """

    judged_in_stages: bool = True

    probe = StagedFleetProbe
    rows_as_read = goes_on = True

    def evaluated(self, problem: SoftMargin, state: SoftState) -> bool:
        """Stages are of some of the rows."""
        return self.judged_in_stages or state.reading is None

    def stages(self, state: SoftState) -> int:
        """As in the state."""
        return state.stages

    def part(self, problem: SoftMargin, state: SoftState) -> int:
        """The stages that are done, as long as there are more."""
        reading = state.reading
        return reading.stage if reading is not None and reading.stage < state.stages else 0

    def begin(self, problem: SoftMargin, sample: Sample, before: tuple[SoftMargin, SoftState] | None) -> SoftState:
        """After the first stage, from the solution before; or as alone, by scans."""
        if not cast("StagedSoftMargin", problem).in_stages:
            return super().begin(problem, sample, before)
        near = None if before is None else before[1].newest
        return cast("StagedSoftMargin", problem).begin_stages(sample, near)

    def most(self, source: Source, memory_bytes: int, probes: Sequence[Any]) -> int:
        """Of stages, as many as they say; of others as ever."""
        about_stages = [probe.most for probe in probes if isinstance(probe, StageProbe)]
        others = len(about_stages) < len(probes)
        return max(*about_stages, super().most(source, memory_bytes, probes) if others else 1, 1)

    def lightened(self, problem: SoftMargin, state: SoftState, most: int) -> SoftState:
        """With few rows of the sample; those at home are as few as they can be."""
        return lightened(state, problem.source.dtype)

    def joining(self, problem: SoftMargin, state: SoftState, chunks: NDArray[np.intp]) -> SoftState | None:
        """As such members can."""
        return cast("StagedSoftMargin", problem).joining(state, chunks)

    def asking_all(self, problem: SoftMargin, state: SoftState) -> SoftState | None:
        """As alone."""
        return cast("StagedSoftMargin", problem).asking_all(state)

    def work_of_asking(self, problem: SoftMargin) -> float:
        """As alone."""
        return cast("StagedSoftMargin", problem).work_of_sums

    def summed(self, problem: SoftMargin, state: SoftState, summary: Any) -> SoftState:
        """As alone."""
        return cast("StagedSoftMargin", problem).summed(state, summary)

    def room(self, problem: SoftMargin, members: int) -> int:
        """They share it."""
        return cast("StagedSoftMargin", problem).most_at_home
