"""Many models from the same scans as a kind of problem."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, cast

from coremargin.formats.choices import LOSS_TAKEN
from coremargin.formats.run_record import FleetRun, in_parts
from coremargin.problems.fleet import messages
from coremargin.problems.fleet.spec import FleetJob
from coremargin.problems.kind import Kind, check_of, places, with_loss

if TYPE_CHECKING:
    from coremargin.data.source import Source
    from coremargin.models.fleet import FleetModel
    from coremargin.problems.fleet.problem import Fleet
    from coremargin.problems.fleet.state import FleetState
    from coremargin.problems.outcome import Outcome


class FleetKind(Kind[FleetJob, "Fleet", "FleetModel"]):
    """A model for each class, value of C and fold."""

    name = "fleet"
    job = FleetJob
    title = "a fleet of models"
    run = FleetRun
    selected_by = 'give classes "ovr", folds, or several values of C'

    def matches(self, options: Mapping[str, Any]) -> bool:
        """Classes, folds, or several values of C."""
        return "classes" in options or "folds" in options or isinstance(options.get("C"), list | tuple)

    def problem(self, job: FleetJob, source: Source) -> Fleet:
        """The fleet on these rows; its time, that of the job, begins now."""
        from coremargin.problems.fleet.make import problem_of

        return problem_of(job, source)

    def scans_after(self, job: FleetJob) -> int:
        """One that counts held-out rows, with the final models."""
        return int(bool(job.folds))

    def members(self, problem: Fleet) -> int:
        """One for each class, value of C and fold."""
        return len(problem.plan.members)

    def model(self, job: FleetJob, problem: Fleet, state: FleetState) -> FleetModel:
        """The models of all members, and how they do together."""
        from coremargin.problems.fleet.outcome import as_fleet

        return as_fleet(job, problem, state)

    def facts(self, problem: Fleet, state: FleetState) -> dict[str, Any]:
        """How many members are proven."""
        from coremargin.problems.fleet.outcome import evaluations_of, reason_of

        statuses = [member.status for member in state.members]
        found: dict[str, Any] = {"members": len(statuses), "members_certified": statuses.count("certified")}
        found |= {"as_read": evaluations_of(problem, state)} if state.as_read and state.confusion.any() else {}
        return found | {"reason": reason_of(statuses, evaluated=state.evaluated)}

    def summary(self, model: FleetModel, run: Mapping[str, Any]) -> dict[str, Any]:
        """The lowest ratio, and how the members do together."""
        counts = {key: run[key] for key in ("members", "members_certified", "as_read") if key in run}
        ratios = [entry["ratio"] or 0.0 for entry in model.record["members"]]
        tables = {key: model.record[key] for key in ("evaluations", "validation", "chosen")}
        found = {"epsilon": model.parameters["epsilon"], **counts, "lowest_ratio": min(ratios), **tables}
        return found | {"choice": model.choice or None}

    def verdict(self, outcome: Outcome, job: FleetJob) -> list[str]:
        """How many members are proven, and how they do together."""
        return messages.verdict(cast("FleetModel", outcome.model), job.epsilon, outcome.run.get("as_read"))

    def bounds_told(self, bounds: str, record: Mapping[str, Any]) -> str:
        """How many members are proven, and the bounds of the one that is furthest from it."""
        done = f"{record['members_certified']:,} of {record['members']:,} certified"
        return f"{done}; lowest: {record['worst']}, {bounds}"

    def driver_memory(self, outcome: Outcome) -> tuple[str, str]:
        """Rows of all members."""
        if in_parts(outcome.rounds):
            most_rows = max(record["pool_rows"] for record in outcome.rounds)
            return (
                "rows",
                f"{most_rows:,} rows at a time; others were sent a segment at a time, each once for all models",
            )
        return "rows", f"{outcome.run['pool_rows']:,} rows are in memory, each once, for all models"

    def next_steps(self, outcome: Outcome, job: FleetJob) -> list[str]:
        """Where nothing separates some of the classes from the rest, a loss."""
        if job.loss is not None or outcome.model.status != "not_separable":
            return super().next_steps(outcome, job)
        return [*places(job), with_loss(LOSS_TAKEN), check_of(job)]

    def described(self, path: Path, model: FleetModel, made: Sequence[tuple[str, str]]) -> list[str]:
        """What the members claim, and how they do together."""
        return messages.described(path, model, made)

    def report(self, folder: Path, name: str) -> str:
        """One page."""
        from coremargin.problems.fleet import report

        return report.page_of(folder, name)


KIND = FleetKind()
