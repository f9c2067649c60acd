"""The longest row of a store as a kind of problem: what the registry has a line for."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from types import SimpleNamespace
from typing import TYPE_CHECKING, Annotated, Any

import numpy as np
from far_model import FarthestModel
from far_problem import FarthestRow, FarthestState
from msgspec import Meta

from coremargin.problems.common import messages
from coremargin.problems.common.model import record_of
from coremargin.problems.common.one_model import OneModel
from coremargin.problems.job import TrainJob

if TYPE_CHECKING:
    from coremargin.data.source import Source
    from coremargin.problems.kind import Outcome


class FarthestJob(TrainJob, frozen=True, kw_only=True):
    """Find the longest row."""

    farthest: Annotated[bool, Meta(description="Find the longest row.")]
    epsilon: Annotated[float, Meta(description="What may be missing of its length, as a share.")] = 0.01


class FarthestKind(OneModel[FarthestJob, FarthestRow, FarthestModel]):
    """From a job to what people are told."""

    name = "farthest"
    job = FarthestJob
    title = "the longest row"
    selected_by = "give farthest"

    def matches(self, options: Mapping[str, Any]) -> bool:
        """Its own word."""
        return "farthest" in options

    def problem(self, job: FarthestJob, source: Source) -> FarthestRow:
        """The problem on these rows."""
        return FarthestRow(source)

    def model(self, job: FarthestJob, problem: FarthestRow, state: FarthestState) -> FarthestModel:
        """The row."""
        source, status = problem.source, "certified" if state.round else "stopped"
        found = SimpleNamespace(status=status, kind="length", lower=state.lower, upper=state.upper)
        ids = np.array([state.id])
        codes = range(len(source.classes))
        record = record_of(source, codes, found, self.name, job.parameters(), 1)
        return FarthestModel(record, ids, source.rows_at(ids)[0])

    def facts(self, problem: FarthestRow, state: FarthestState) -> dict[str, Any]:
        """Why it ended."""
        return {"reason": state.status}

    def verdict(self, outcome: Outcome, job: FarthestJob) -> list[str]:
        """The row."""
        (row,) = outcome.model.coreset_ids  # type: ignore[attr-defined]
        return [f"{outcome.model.status}: row {row} is the longest."]

    def driver_memory(self, outcome: Outcome) -> tuple[str, str]:
        """Nothing to speak of."""
        return "rows", "one row was held"

    def describe(self, path: Path, model: FarthestModel, made: Sequence[tuple[str, str]]) -> list[str]:
        """Its length."""
        claims = model.certificate
        return messages.describe_model(path, model, made, [("length", f"from {claims.lower!r} to {claims.upper!r}")])

    def report(self, folder: Path, name: str) -> str:
        """A page of one line."""
        return f"<!doctype html><title>{name}</title><p>The longest row."


KIND = FarthestKind()
