"""What kinds with many models share: what they say to people."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeVar, cast

from coremargin.formats.run_record import FleetRun
from coremargin.problems.kind import Kind

if TYPE_CHECKING:
    from coremargin.engine.problem import AnyProblem
    from coremargin.models.fleet import FleetModel
    from coremargin.problems.job import TrainJob
    from coremargin.problems.kind import Outcome

J = TypeVar("J", bound="TrainJob")
P = TypeVar("P", bound="AnyProblem")


class AnyFleet(Kind[J, P, "FleetModel"]):
    """A kind whose model is a fleet."""

    run = FleetRun

    def summary(self, model: FleetModel, run: Mapping[str, Any]) -> dict[str, Any]:
        """The lowest ratio, and how the members do together."""
        counts = {key: run[key] for key in ("members", "members_certified", "as_read") if key in run}
        ratios = [entry["ratio"] or 0.0 for entry in model.record["members"]]
        tables = {key: model.record[key] for key in ("evaluations", "validation", "chosen")}
        found = {"epsilon": model.parameters["epsilon"], **counts, "lowest_ratio": min(ratios), **tables}
        return found | {"choice": model.choice or None}

    def verdict(self, outcome: Outcome, job: J) -> list[str]:
        """How many members are proven, and how they do together."""
        from coremargin.problems.fleet import messages

        return messages.verdict(cast("FleetModel", outcome.model), job.epsilon, outcome.run.get("as_read"))

    def describe_bounds(self, bounds: str, record: Mapping[str, Any]) -> str:
        """How many members are proven, and the bounds of the one that is furthest from it."""
        done = f"{record['members_certified']:,} of {record['members']:,} certified"
        return f"{done}; lowest: {record['worst']}, {bounds}"

    def describe(self, path: Path, model: FleetModel, made: Sequence[tuple[str, str]]) -> list[str]:
        """What the members claim, and how they do together."""
        from coremargin.problems.fleet import messages

        return messages.described(path, model, made)

    def report(self, folder: Path, name: str) -> str:
        """One page."""
        from coremargin.problems.fleet import report

        return report.page_of(folder, name)
