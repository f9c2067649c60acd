"""Results of fleets as models, with the record that binds them together."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from coremargin.data.transformed import untransformed
from coremargin.formats.fleet_record import FORMAT, VERSION, fleet_status
from coremargin.models.fleet import FleetModel
from coremargin.models.fleet_record import chosen, evaluation, named, validation
from coremargin.problems.common.model import model_of
from coremargin.problems.common.result import STOPPED
from coremargin.version import version

if TYPE_CHECKING:
    from collections.abc import Sequence

    from coremargin.formats.fleet_record import Setting
    from coremargin.models.model import Model
    from coremargin.problems.common.result import Result
    from coremargin.problems.fleet.fleet import Fleet, FleetState
    from coremargin.problems.fleet.gammas import GammaFleet
    from coremargin.problems.fleet.plan import Member
    from coremargin.problems.fleet.spec import FleetJob


def fleet_model(job: FleetJob, problem: Fleet | GammaFleet, state: Any) -> FleetModel:
    """The models of all members, and their accuracies."""
    source, first, states = problem.parts[0].source, problem.parts[0].plan, problem.states(state)
    stored = untransformed(source)
    models = _member_models(job, problem, states)
    settings: list[Setting] = [
        (cost, gamma)
        for gamma in (fleet.plan.gamma for fleet in problem.parts)
        for cost in dict.fromkeys(member.cost for member in first.members)
    ]
    evaluations = evaluations_of(problem, states) if all(own.evaluated for own in states) else []
    table = validation(evaluations, settings)
    record = {
        "format": FORMAT,
        "version": VERSION,
        "status": fleet_status([found.status for _, found in models]),
        "problem": job.problem,
        "parameters": job.parameters(),
        "classes": [source.classes[code] for code in first.codes],
        "features": stored.features,
        "rows": source.rows,
        "dtype": stored.dtype.name,
        "store_digest": stored.digest,
        "members": [entry | _claims_of(found) for entry, found in models],
        "evaluations": None if any(own.as_read for own in states) else evaluations,
        "validation": table,
        "chosen": chosen(table, settings),
        "software": {"coremargin": version()},
    }
    return FleetModel(record, {entry["name"]: found for entry, found in models})


def evaluations_of(problem: Fleet | GammaFleet, states: Sequence[FleetState]) -> list[dict[str, Any]]:
    """The evaluations of members that decide together: by fold, then by gamma and C."""
    found = [
        evaluation((cost, fleet.plan.gamma), fold, counts)
        for fleet, state in zip(problem.parts, states, strict=True)
        for (fold, cost), counts in zip(fleet.plan.ensembles, state.confusion, strict=True)
    ]
    return sorted(found, key=lambda entry: -1 if entry["fold"] is None else int(entry["fold"]))


def _member_models(
    job: FleetJob, problem: Fleet | GammaFleet, states: Sequence[FleetState]
) -> list[tuple[dict[str, Any], Model]]:
    """Each member's entry in the record, and its model: by fold, then by class, then by gamma and C."""
    found = [
        (member, fleet, result)
        for fleet, state in zip(problem.parts, states, strict=True)
        for member, result in zip(fleet.plan.members, fleet.results(state), strict=True)
    ]
    places = {who: k for k, who in enumerate((one.fold, one.code) for one in problem.parts[0].plan.members)}
    found.sort(key=lambda one: places[one[0].fold, one[0].code])
    return [(_entry(member, fleet), _member_model(job, fleet, member, result)) for member, fleet, result in found]


def _member_model(job: FleetJob, fleet: Fleet, member: Member, found: Result) -> Model:
    problem, plan = member.problem, fleet.plan
    view = {
        "class": None if member.code is None else fleet.source.classes[member.code],
        "fold": member.fold,
        "folds": None if member.fold is None else plan.folds,
        "fold_seed": None if member.fold is None else plan.seed,
    }
    whole = member.code is None and member.fold is None
    parameters = job.parameters_of(1.0 if member.cost is None else member.cost, plan.gamma)
    return model_of(
        problem.source,
        problem.codes,
        found,
        job.problem,
        parameters,
        view=None if whole else view,
        store=fleet.source,
    )


def _entry(member: Member, fleet: Fleet) -> dict[str, Any]:
    label = None if member.code is None else fleet.source.classes[member.code]
    return {"name": member.name, "class": label, **named((member.cost, fleet.plan.gamma)), "fold": member.fold}


def _claims_of(model: Model) -> dict[str, Any]:
    claims = model.certificate
    return {
        "status": model.status,
        "lower": claims.lower,
        "upper": claims.upper,
        "ratio": claims.ratio,
        "coreset_rows": claims.coreset_rows,
    }


def describe_end(statuses: Sequence[str], *, evaluated: bool) -> str:
    """Why the run ended; evaluated: the accuracies are known."""
    if not evaluated:
        return STOPPED["running"]
    return ", ".join(f"{statuses.count(status)} {status.replace('_', ' ')}" for status in dict.fromkeys(statuses))
