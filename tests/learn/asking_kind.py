"""A kind whose problem asks for labels (loop_problems.Threshold); its model is the state that it ended with."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

from msgspec import Meta

from coremargin.problems.job import TrainJob
from coremargin.problems.kind import Kind
from loop_problems import GapState, Threshold

if TYPE_CHECKING:
    from coremargin.data.source import Source
    from coremargin.problems.kind import Outcome


class ThresholdJob(TrainJob, frozen=True, kw_only=True):
    """Find where the labels change."""

    threshold: Annotated[bool, Meta(description="Find where the labels change.")]


class ThresholdKind(Kind[ThresholdJob, Threshold, Any]):
    """From a job to a state; nobody is told of it."""

    name = "threshold"
    job = ThresholdJob
    title = "a threshold"
    selected_by = "give threshold"

    def matches(self, options: Mapping[str, Any]) -> bool:
        return "threshold" in options

    def problem(self, job: ThresholdJob, source: Source) -> Threshold:
        return Threshold(source)

    def model(self, job: ThresholdJob, problem: Threshold, state: GapState) -> GapState:
        return state

    def facts(self, problem: Threshold, state: GapState) -> dict[str, Any]:
        return {"reason": state.status, "asked": state.asked}

    def summary(self, model: GapState, run: Mapping[str, Any]) -> dict[str, Any]:
        return {}

    def verdict(self, outcome: Outcome, job: ThresholdJob) -> list[str]:
        return []

    def driver_memory(self, outcome: Outcome) -> tuple[str, str]:
        return "", ""

    def describe(self, path: Path, model: GapState, made: Sequence[tuple[str, str]]) -> list[str]:
        return []

    def report(self, folder: Path, name: str) -> str:
        return ""


KIND = ThresholdKind()
