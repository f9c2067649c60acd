"""Many models from the same scans as a kind of problem."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

from coremargin.formats.choices import LOSS_TAKEN
from coremargin.formats.run_record import in_parts
from coremargin.problems.fleet.any_fleet import AnyFleet
from coremargin.problems.fleet.spec import FleetJob
from coremargin.problems.kind import describe_paths, describe_verify, suggest_loss

if TYPE_CHECKING:
    from coremargin.data.source import Source
    from coremargin.models.fleet import FleetModel
    from coremargin.problems.fleet.gammas import GammaFleet
    from coremargin.problems.fleet.problem import Fleet
    from coremargin.problems.kind import Outcome


class FleetKind(AnyFleet[FleetJob, "Fleet | GammaFleet"]):
    """A model for each class, value of C, gamma of a map, and fold."""

    name = "fleet"
    job = FleetJob
    title = "a fleet of models"
    selected_by = 'give classes "ovr", folds, or several values of C, or of gamma of a map'

    def matches(self, options: Mapping[str, Any]) -> bool:
        """Classes, folds, or several values of C or gamma."""
        several = any(isinstance(options.get(name), list | tuple) for name in ("C", "gamma"))
        return "classes" in options or "folds" in options or several

    def problem(self, job: FleetJob, source: Source) -> Fleet | GammaFleet:
        """The fleet on these rows; its time, that of the job, begins now."""
        from coremargin.problems.fleet.make import problem_of

        return problem_of(job, source)

    def scans_after(self, job: FleetJob) -> int:
        """One that counts held-out rows, with the final models."""
        return int(bool(job.folds))

    def memory_purpose(self, problem: Fleet | GammaFleet) -> str:
        """Mapped rows of each gamma are rows of their own."""
        told, gammas = super().memory_purpose(problem), len(problem.parts)
        if gammas == 1:
            return told
        width = problem.parts[0].source.features
        return f"{told}: of each of {gammas:,} gammas rows of {width:,} components, in equal parts"

    def members(self, problem: Fleet | GammaFleet) -> int:
        """One for each class, value of C, gamma and fold."""
        return sum(len(fleet.plan.members) for fleet in problem.parts)

    def model(self, job: FleetJob, problem: Fleet | GammaFleet, state: Any) -> FleetModel:
        """The models of all members, and how they do together."""
        from coremargin.problems.fleet.outcome import as_fleet

        return as_fleet(job, problem, state)

    def facts(self, problem: Fleet | GammaFleet, state: Any) -> dict[str, Any]:
        """How many members are proven."""
        from coremargin.problems.fleet.outcome import evaluations_of, reason_of

        states = problem.states(state)
        statuses = [status for fleet, own in zip(problem.parts, states, strict=True) for status in fleet.statuses(own)]
        found: dict[str, Any] = {"members": len(statuses), "members_certified": statuses.count("certified")}
        if any(own.as_read for own in states) and all(own.confusion.any() for own in states):
            found["as_read"] = evaluations_of(problem, states)
        return found | {"reason": reason_of(statuses, evaluated=all(own.evaluated for own in states))}

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
        return [*describe_paths(job), suggest_loss(LOSS_TAKEN), describe_verify(job)]


KIND = FleetKind()
