"""Models trained together as a kind of problem."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeVar, cast

from coremargin.formats.choices import LOSS_TAKEN
from coremargin.formats.run_record import FleetRun, in_parts
from coremargin.problems.fleet.spec import FleetJob
from coremargin.problems.kind import Kind, describe_paths, describe_verify, suggest_loss

if TYPE_CHECKING:
    from coremargin.data.source import Source
    from coremargin.engine.problem import AnyProblem
    from coremargin.models.fleet import FleetModel
    from coremargin.problems.fleet.fleet import Fleet
    from coremargin.problems.fleet.gammas import GammaFleet
    from coremargin.problems.job import TrainJob
    from coremargin.problems.kind import Outcome

J = TypeVar("J", bound="TrainJob")
P = TypeVar("P", bound="AnyProblem")


class AnyFleet(Kind[J, P, "FleetModel"]):
    """A kind whose model is a fleet: what those of hyperplanes and of kernels have in common."""

    run = FleetRun

    def summary(self, model: FleetModel, run: Mapping[str, Any]) -> dict[str, Any]:
        """The lowest ratio, and the accuracies."""
        counts = {key: run[key] for key in ("members", "members_certified", "as_read") if key in run}
        ratios = [entry["ratio"] or 0.0 for entry in model.record["members"]]
        tables = {key: model.record[key] for key in ("evaluations", "validation", "chosen")}
        tables |= {"risk": model.record["risk"]} if "risk" in model.record else {}
        found = {"epsilon": model.parameters["epsilon"], **counts, "lowest_ratio": min(ratios), **tables}
        return found | {"choice": model.choice or None}

    def verdict(self, outcome: Outcome, job: J) -> list[str]:
        """How many members are proven, and their accuracies."""
        from coremargin.problems.fleet.outcome import describe_verdict

        return describe_verdict(cast("FleetModel", outcome.model), job.epsilon, outcome.run.get("as_read"))

    def describe_bounds(self, bounds: str, record: Mapping[str, Any]) -> str:
        """How many members are proven, and the bounds of the one with the lowest ratio."""
        done = f"{record['members_certified']:,} of {record['members']:,} certified"
        return f"{done}; lowest: {record['worst']}, {bounds}"

    def describe(self, path: str | Path, model: FleetModel, made: Sequence[tuple[str, str]]) -> list[str]:
        """The claims of the members, and their accuracies."""
        from coremargin.problems.fleet.outcome import describe_models

        return describe_models(path, model, made)

    def report(self, folder: Path, name: str) -> str:
        """The page of a fleet's folder."""
        from coremargin.problems.fleet import report

        return report.page_of(folder, name)


class FleetKind(AnyFleet[FleetJob, "Fleet | GammaFleet"]):
    """A model for each class, value of C, gamma of a map, and fold."""

    name = "fleet"
    job = FleetJob
    title = "a fleet of models"
    selected_by = 'give classes "ovr", folds, or several values of C, or of gamma of a map'

    def matches(self, options: Mapping[str, Any]) -> bool:
        """Jobs with classes, folds, or several values of C or gamma."""
        several = any(isinstance(options.get(name), list | tuple) for name in ("C", "gamma"))
        return bool({"classes", "folds", "choose"} & options.keys()) or several

    def problem(self, job: FleetJob, source: Source) -> Fleet | GammaFleet:
        """The fleet on these rows."""
        from coremargin.problems.fleet.make import problem_of

        return problem_of(job, source)

    def scans_after(self, job: FleetJob) -> int:
        """One where accuracies or risks choose: it evaluates the final models."""
        return int(bool(job.folds) or job.choose == "risk")

    def memory_purpose(self, problem: Fleet | GammaFleet) -> str:
        """Of several gammas each maps the rows to rows of its own."""
        purpose, gammas = super().memory_purpose(problem), len(problem.parts)
        if gammas == 1:
            return purpose
        width = problem.parts[0].source.features
        return f"{purpose}: for each of {gammas:,} gammas rows of {width:,} components, in equal parts"

    def members(self, problem: Fleet | GammaFleet) -> int:
        """One for each class, value of C, gamma and fold."""
        return sum(len(fleet.plan.members) for fleet in problem.parts)

    def model(self, job: FleetJob, problem: Fleet | GammaFleet, state: Any) -> FleetModel:
        """The models of all members, and their accuracies."""
        from coremargin.problems.fleet.outcome import fleet_model

        return fleet_model(job, problem, state)

    def facts(self, problem: Fleet | GammaFleet, state: Any) -> dict[str, Any]:
        """How many members are proven, why the run ended, and, of hard margins, bounds on the error on new rows."""
        from coremargin.problems.fleet.outcome import describe_end, evaluations_of, facts_of_hard_margins

        states = problem.states(state)
        statuses = [status for fleet, own in zip(problem.parts, states, strict=True) for status in fleet.statuses(own)]
        found: dict[str, Any] = {"members": len(statuses), "members_certified": statuses.count("certified")}
        if any(own.as_read for own in states) and all(own.confusion.any() for own in states):
            found["as_read"] = evaluations_of(problem, states)
        found |= {"reason": describe_end(statuses, evaluated=all(own.evaluated for own in states))}
        bounds = facts_of_hard_margins(problem, states)
        return found | bounds

    def describe_run(self, run: Mapping[str, Any]) -> list[tuple[str, str]]:
        """Bounds on the error of hard margins on new rows."""
        from coremargin.problems.hard.generalization import describe_fleet, read_fleet_generalization

        found = read_fleet_generalization(run)
        return [] if found is None else describe_fleet(found)

    def driver_memory(self, outcome: Outcome) -> tuple[str, str]:
        """The rows of all members."""
        if in_parts(outcome.rounds):
            most_rows = max(record["working_set_rows"] for record in outcome.rounds)
            return "rows", f"{most_rows:,} rows at a time; partitions of the others were sent in turn, for all models"
        return "rows", f"{outcome.run['working_set_rows']:,} rows are in memory, each once, for all models"

    def next_steps(self, outcome: Outcome, job: FleetJob) -> list[str]:
        """A loss, if some classes cannot be separated from the rest."""
        if job.loss is not None or outcome.model.status != "not_separable":
            return super().next_steps(outcome, job)
        return [*describe_paths(job), suggest_loss(LOSS_TAKEN), describe_verify(job)]


KIND = FleetKind()
