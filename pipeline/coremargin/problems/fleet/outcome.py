"""A fleet's results as models, with the record that binds them together."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from coremargin.data.transformed import untransformed
from coremargin.formats.fleet_record import FORMAT, VERSION, fleet_status
from coremargin.models.fleet import FleetModel
from coremargin.models.fleet_record import chosen, evaluation, validation
from coremargin.problems.common.model import model_of
from coremargin.problems.common.result import STOPPED
from coremargin.version import version

if TYPE_CHECKING:
    from collections.abc import Sequence

    from coremargin.data.source import Source
    from coremargin.formats.fleet_record import Setting
    from coremargin.models.model import Model
    from coremargin.problems.common.result import Result
    from coremargin.problems.fleet.members import Member
    from coremargin.problems.fleet.problem import Fleet
    from coremargin.problems.fleet.spec import FleetJob
    from coremargin.problems.fleet.state import FleetState


def as_fleet(job: FleetJob, fleet: Fleet, state: FleetState) -> FleetModel:
    """The models of all members, and how they do together."""
    source, members, stored = fleet.source, fleet.plan.members, untransformed(fleet.source)
    models = {
        member.name: _member_model(job, fleet, member, result)
        for member, result in zip(members, fleet.results(state), strict=True)
    }
    settings: list[Setting] = [(cost, None) for cost in dict.fromkeys(member.cost for member in members)]
    evaluations = evaluations_of(fleet, state) if state.evaluated else []
    table = validation(evaluations, settings)
    record = {
        "format": FORMAT, "version": VERSION, "status": fleet_status([model.status for model in models.values()]),
        "problem": job.problem, "parameters": job.parameters(),
        "classes": [source.classes[code] for code in fleet.plan.codes], "features": stored.features,
        "rows": source.rows, "dtype": stored.dtype.name, "store_digest": stored.digest,
        "members": [_entry(member, source, models[member.name]) for member in members],
        "evaluations": None if state.as_read else evaluations, "validation": table, "chosen": chosen(table, settings),
        "software": {"coremargin": version()},
    }  # fmt: skip
    return FleetModel(record, models)


def evaluations_of(fleet: Fleet, state: FleetState) -> list[dict[str, Any]]:
    """How the members do together, by those that decide together."""
    known = zip(fleet.plan.ensembles, state.confusion, strict=True)
    return [evaluation((cost, None), fold, counts) for (fold, cost), counts in known]


def _member_model(job: FleetJob, fleet: Fleet, member: Member, found: Result) -> Model:
    problem, plan = member.problem, fleet.plan
    view = {
        "class": None if member.code is None else fleet.source.classes[member.code], "fold": member.fold,
        "folds": None if member.fold is None else plan.folds, "fold_seed": None if member.fold is None else plan.seed,
    }  # fmt: skip
    plain = member.code is None and member.fold is None
    parameters = job.parameters_of(1.0 if member.cost is None else member.cost)
    return model_of(
        problem.source, problem.codes, found, job.problem, parameters,
        view=None if plain else view, store=fleet.source,
    )  # fmt: skip


def _entry(member: Member, source: Source, model: Model) -> dict[str, Any]:
    claims = model.certificate
    return {
        "name": member.name, "class": None if member.code is None else source.classes[member.code], "C": member.cost,
        "fold": member.fold, "status": model.status, "lower": claims.lower, "upper": claims.upper,
        "ratio": claims.ratio, "coreset_rows": claims.coreset_rows,
    }  # fmt: skip


def reason_of(statuses: Sequence[str], *, evaluated: bool) -> str:
    """Why the run ended; evaluated: a scan has counted who is given which class."""
    if not evaluated:
        return STOPPED["running"]
    return ", ".join(f"{statuses.count(status)} {status.replace('_', ' ')}" for status in dict.fromkeys(statuses))
