"""What comes of models trained together, of hyperplanes or kernels: the record that binds them, and its description.

``describe_verdict`` is for the end of a run, ``describe_models`` for `coremargin show`.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, cast

from coremargin.data.transformed import untransformed
from coremargin.data.view import sha256_entry
from coremargin.formats.fleet_record import FORMAT, VERSION, fleet_status
from coremargin.maths.breakdown import exact_sum
from coremargin.models.fleet import FleetModel, shown
from coremargin.models.fleet_record import chosen, evaluation, named, setting_of, validation
from coremargin.models.user_kernel import terms_of
from coremargin.problems.common.messages import describe_maps, describe_relative_margin, describe_store
from coremargin.problems.common.model import model_of
from coremargin.problems.common.result import STOPPED
from coremargin.problems.fleet.risk import TrainedFunction, explain_risk, guaranteed_risks
from coremargin.problems.hard.generalization import fleet_generalization
from coremargin.problems.hard.hard_margin import HardMargin
from coremargin.report.text import count, explain_coreset, facts, listed, table
from coremargin.version import version

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence
    from pathlib import Path

    from coremargin.data.source import Source
    from coremargin.formats.fleet_record import Setting
    from coremargin.models.model import Model
    from coremargin.models.single import SingleModel
    from coremargin.problems.common.result import Result
    from coremargin.problems.fleet.fleet import Fleet, FleetState
    from coremargin.problems.fleet.gammas import GammaFleet
    from coremargin.problems.fleet.plan import Member
    from coremargin.problems.fleet.spec import FleetJob


@dataclass(frozen=True)
class MemberModel:
    """One of several models trained together; label: the class that it tells from the rest, None: all classes."""

    name: str
    label: Any
    setting: Setting
    fold: int | None
    model: SingleModel

    @property
    def entry(self) -> dict[str, Any]:
        """Its entry in the record."""
        claims = self.model.certificate
        return {
            "name": self.name,
            "class": self.label,
            **named(self.setting),
            "fold": self.fold,
            "status": self.model.status,
            "lower": claims.lower,
            "upper": claims.upper,
            "ratio": claims.ratio,
            "coreset_rows": claims.coreset_rows,
        }


def bind_models(  # noqa: PLR0913 - the fields of the record
    source: Source,
    codes: Sequence[int],
    problem: str,
    parameters: dict[str, Any],
    members: Sequence[MemberModel],
    evaluations: list[dict[str, Any]],
    *,
    as_read: bool = False,
    risks: list[dict[str, Any]] | None = None,
) -> FleetModel:
    """Models of one source, in the order of the record, and their accuracies.

    as_read: these were counted while rows were read, so that the record claims none. risks: those that choose.
    """
    stored = untransformed(source)
    settings = list(dict.fromkeys(one.setting for one in members))
    averages = validation(evaluations, settings)
    record = {
        "format": FORMAT,
        "version": VERSION,
        "status": fleet_status([one.model.status for one in members]),
        "problem": problem,
        "parameters": parameters,
        "classes": [source.classes[code] for code in codes],
        "features": stored.features,
        "rows": source.rows,
        "dtype": stored.dtype.name,
        "store_digest": stored.digest,
        **sha256_entry(stored),
        "members": [one.entry for one in members],
        "evaluations": None if as_read else evaluations,
        "validation": averages,
        **({} if risks is None else {"risk": risks}),
        "chosen": chosen(averages, settings, risks),
        "software": {"coremargin": version()},
    }
    return FleetModel(record, {one.name: one.model for one in members})


def fleet_model(job: FleetJob, problem: Fleet | GammaFleet, state: Any) -> FleetModel:
    """The models of all members, by fold, then by class, then by gamma and C; and their accuracies."""
    plan, states = problem.parts[0].plan, problem.states(state)
    found = [
        (member, fleet, result)
        for fleet, own in zip(problem.parts, states, strict=True)
        for member, result in zip(fleet.plan.members, fleet.results(own), strict=True)
    ]
    places = {who: k for k, who in enumerate((member.fold, member.code) for member in plan.members)}
    found.sort(key=lambda one: places[one[0].fold, one[0].code])
    members = [_member_model(job, fleet, member, result) for member, fleet, result in found]
    evaluations = evaluations_of(problem, states) if all(own.evaluated for own in states) else []
    as_read = any(own.as_read for own in states)
    source, risks = problem.parts[0].source, None
    if job.choose == "risk":
        trained = [_trained_function(one, intercept=job.intercept) for one in members if one.fold is None]
        risks = guaranteed_risks(trained, [] if as_read else evaluations, str(job.loss))
    return bind_models(
        source, plan.codes.tolist(), job.problem, job.parameters(), members, evaluations, as_read=as_read, risks=risks
    )


def _trained_function(one: MemberModel, *, intercept: bool) -> TrainedFunction:
    model, claims = cast("Model", one.model), one.model.certificate
    square = exact_sum((model.w * model.w).tolist())
    value = math.inf if claims.upper is None else claims.upper
    offset, radius = abs(model.b) if intercept else None, float(claims.radius)
    return TrainedFunction(one.setting, value, (square, square), offset, radius, len(model.w) + intercept)


def evaluations_of(problem: Fleet | GammaFleet, states: Sequence[FleetState]) -> list[dict[str, Any]]:
    """The evaluations of members that decide together: by fold, then by gamma and C."""
    found = [
        evaluation((cost, fleet.plan.gamma), fold, counts)
        for fleet, state in zip(problem.parts, states, strict=True)
        for (fold, cost), counts in zip(fleet.plan.ensembles, state.confusion, strict=True)
    ]
    return sorted(found, key=lambda entry: -1 if entry["fold"] is None else int(entry["fold"]))


def facts_of_hard_margins(problem: Fleet | GammaFleet, states: Sequence[FleetState]) -> dict[str, Any]:
    """Of the members that have no loss and are trained on all rows: bounds on the error on new rows, and KKT classes.

    Of those with a fold held out, the accuracy on its rows says more.
    """
    first = problem.parts[0].plan.members[0]
    if not isinstance(first.problem, HardMargin):
        return {}
    fleets, on_margin = [], dict[str, int]()
    for fleet, own in zip(problem.parts, states, strict=True):
        pairs = zip(fleet.plan.members, fleet.results(own), strict=True)
        models = [(member.name, found) for member, found in pairs if member.fold is None]
        fleets.append((fleet.source, fleet.plan.gamma, models))
        on_margin |= {name: len(found.proof.support) for name, found in models}
    against_rest = first.code is not None
    bounds = fleet_generalization(
        fleets, first.problem.epsilon, intercept=first.problem.intercept, against_rest=against_rest
    )
    if bounds is None:
        return {}
    rows = {one["name"]: one["bounds"]["rows"] for one in bounds["models"]}
    kkt = {name: [count - on_margin[name], on_margin[name], 0] for name, count in rows.items()}
    return {"generalization": bounds, "kkt": kkt}


def _member_model(job: FleetJob, fleet: Fleet, member: Member, found: Result) -> MemberModel:
    problem, plan = member.problem, fleet.plan
    label = None if member.code is None else fleet.source.classes[member.code]
    view = {
        "class": label,
        "fold": member.fold,
        "folds": None if member.fold is None else plan.folds,
        "fold_seed": None if member.fold is None else plan.seed,
    }
    whole = member.code is None and member.fold is None
    parameters = job.parameters_of(1.0 if member.cost is None else member.cost, plan.gamma)
    model = model_of(
        problem.source,
        problem.codes,
        found,
        job.problem,
        parameters,
        view=None if whole else view,
        store=fleet.source,
    )
    return MemberModel(member.name, label, (member.cost, plan.gamma), member.fold, model)


def describe_end(statuses: Sequence[str], *, evaluated: bool) -> str:
    """Why the run ended; evaluated: the accuracies are known."""
    if not evaluated:
        return STOPPED["running"]
    return ", ".join(f"{statuses.count(status)} {status.replace('_', ' ')}" for status in dict.fromkeys(statuses))


# Descriptions


def describe_verdict(
    fleet: FleetModel, epsilon: float, as_read: Sequence[Mapping[str, Any]] | None = None
) -> list[str]:
    """How many members are proven, and their accuracies; as_read: evaluations made while rows were read, if any."""
    statuses = [entry["status"] for entry in fleet.record["members"]]
    if set(statuses) == {"certified"}:
        models = count(len(statuses), "model")
        bound = fleet.parameters.get("relative_margin")
        within = "" if bound is None else f" with decision values from -{bound:g} to {bound:g}"
        proven = f"certified: all {models} are proven to be within {epsilon} of the best possible{within}."
    else:
        counts = ", ".join(
            f"{statuses.count(status):,} {status.replace('_', ' ')}" for status in dict.fromkeys(sorted(statuses))
        )
        proven = f"of {count(len(statuses), 'model')}: {counts}; epsilon {epsilon}."
    return [proven, *_describe_accuracies(fleet, as_read), *_describe_choice(fleet)]


def _describe_accuracies(fleet: FleetModel, as_read: Sequence[Mapping[str, Any]] | None = None) -> list[str]:
    """After an empty line, a table of the accuracies on held-out and on training rows for each C and gamma."""
    record = fleet.record
    evaluations = record["evaluations"] or as_read
    if not evaluations:
        return []
    training = {setting_of(entry): entry["accuracy"] for entry in evaluations if entry["fold"] is None}
    checked = {setting_of(entry): entry for entry in record["validation"] or ()}
    risks = {setting_of(entry): entry["risk"] for entry in record.get("risk", ())}
    when, of_gamma = "" if record["evaluations"] else " as rows were read", fleet.gammas != (None,)
    head = (
        "C",
        *(("gamma",) if of_gamma else ()),
        *(("held-out accuracy", "std") if checked else ()),
        f"training accuracy{when}",
        *(("guaranteed risk",) if risks else ()),
    )
    rows = [
        (
            *(shown(value) or "none" for value in setting[: 1 + of_gamma]),
            *((f"{checked[setting]['mean']:.6f}", f"{checked[setting]['std']:.6f}") if checked else ()),
            f"{training[setting]:.6f}",
            *((f"{math.ceil(1e6 * risks[setting]) / 1e6:.6f}",) if risks else ()),
        )
        for setting in fleet.facts.settings
    ]
    lines = ["", *table([head, *rows])]
    if (checked or risks) and record["chosen"] is not None:
        chosen = [f"{name} {shown(value)}" for name, value in record["chosen"].items() if name != "by" and value]
        why = explain_risk(min(risks.values())) if risks else "the best mean accuracy on held-out rows"
        lines.append(f"  {', '.join(chosen)}: {why}" if chosen else "")
    return lines


def _describe_choice(fleet: FleetModel) -> list[str]:
    """What to do if there are several values of C and none is chosen."""
    return ["", fleet.choice] if fleet.choice else []


def describe_models(path: str | Path, fleet: FleetModel, made: Sequence[tuple[str, str]]) -> list[str]:
    """The fleet, the claims of its members, and their accuracies."""
    record = fleet.record
    pairs = [
        ("fleet", f"{path}, {fleet.problem}, {count(len(fleet.members), 'model')}"),
        ("status", fleet.status),
        ("classes", listed([repr(label) for label in fleet.classes])),
        ("rows", f"{fleet.rows:,} of {fleet.features:,} features, {record['dtype']}"),
        *describe_maps(fleet.row_maps),
        *([("kernel", f"a function: {terms}")] if (terms := terms_of(fleet.parameters)) else []),
        *describe_relative_margin(fleet.parameters, "the rows of each model"),
        *describe_store(fleet),
        ("software", ", ".join(f"{name} {version}" for name, version in record["software"].items())),
        *made,
    ]
    head = ("model", "status", "proven", "coreset")
    lines = [
        (
            entry["name"],
            entry["status"],
            "none" if entry["ratio"] is None else repr(entry["ratio"]),
            f"{entry['coreset_rows']:,}",
        )
        for entry in record["members"]
    ]
    soft, kernel = fleet.parameters.get("loss") is not None, "kernel" in fleet.parameters
    meaning = f"coreset: {'rows that carry the functions, and their proof' if kernel else explain_coreset(value=soft)}"
    return [
        *facts(pairs),
        *_describe_accuracies(fleet),
        *_describe_choice(fleet),
        "",
        *table([head, *lines]),
        "",
        meaning,
    ]
