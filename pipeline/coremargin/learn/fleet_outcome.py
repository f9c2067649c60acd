"""Results as models: one, or all of a fleet with the record that binds them together."""

from __future__ import annotations

from importlib.metadata import version
from typing import TYPE_CHECKING, Any

import numpy as np

from coremargin.data.scaled import scaling_of, unscaled
from coremargin.engine.result import STOPPED
from coremargin.formats.fleet_record import FORMAT, VERSION, fleet_status
from coremargin.formats.model_record import FORMAT as MODEL_FORMAT
from coremargin.formats.model_record import VERSION as MODEL_VERSION
from coremargin.maths.margin import EXACT, ratio
from coremargin.models.fleet import FleetModel
from coremargin.models.fleet_record import chosen, evaluation, validation
from coremargin.models.model import Model

if TYPE_CHECKING:
    from collections.abc import Mapping

    from coremargin.data.source import Source
    from coremargin.engine.result import Result
    from coremargin.learn.job import TrainJob
    from coremargin.problems.fleet.members import Member
    from coremargin.problems.fleet.problem import Fleet
    from coremargin.problems.fleet.state import FleetState


def model_of(
    source: Source,
    codes: tuple[int, int],
    found: Result,
    problem: str,
    parameters: Mapping[str, Any],
    *,
    view: Mapping[str, Any] | None = None,
    store: Source | None = None,
) -> Model:
    """A result on a source as a model.

    view: of a member of a fleet, what it is about of the ``store``, which may be scaled.
    """
    positive, negative = codes
    store = source if store is None else store
    scaling = scaling_of(store)
    lower = found.lower if found.lower is not None and np.isfinite(found.lower) else None
    upper = found.upper if found.upper is not None and np.isfinite(found.upper) else None
    record = {
        "format": MODEL_FORMAT, "version": MODEL_VERSION, "problem": problem, "status": found.status,
        "parameters": parameters, "classes": [source.classes[negative], source.classes[positive]],
        "features": source.features, "rows": source.rows, "dtype": source.dtype.name,
        "certificate": {
            "kind": found.kind, "lower": lower, "upper": upper,
            "ratio": None if found.kind == "not_separable" or lower is None or upper is None else ratio(lower, upper),
            "epsilon": parameters["epsilon"] or EXACT, "coreset_rows": len(found.ids),
            "store_digest": unscaled(store).digest,
            "radius": float(source.scalars().max_norm.max()),
        },
        "software": {"coremargin": version("coremargin")},
    }  # fmt: skip
    return Model(
        record=record if view is None else record | {"view": view}, w=found.w, b=found.b, alpha=found.weights,
        coreset_ids=found.ids, coreset_x=found.rows, coreset_y=found.signs,
        ledger={name.removeprefix("ledger_"): values for name, values in found.extra.items()},
        shift=None if scaling is None else scaling.shift, factor=None if scaling is None else scaling.factor,
    )  # fmt: skip


def as_fleet(job: TrainJob, fleet: Fleet, state: FleetState) -> FleetModel:
    """The models of all members, and how they do together."""
    source, members = fleet.source, fleet.crew.members
    models = {
        member.name: _member_model(job, fleet, member, result)
        for member, result in zip(members, fleet.results(state), strict=True)
    }
    costs = list(dict.fromkeys(member.cost for member in members))
    told = zip(fleet.crew.juries, state.confusion, strict=True) if state.judged else ()
    evaluations = [evaluation(cost, fold, counts) for (fold, cost), counts in told]
    table = validation(evaluations, costs)
    record = {
        "format": FORMAT, "version": VERSION, "status": fleet_status([model.status for model in models.values()]),
        "problem": job.problem, "parameters": job.parameters(),
        "classes": [source.classes[code] for code in fleet.crew.codes], "features": source.features,
        "rows": source.rows, "dtype": source.dtype.name, "store_digest": unscaled(source).digest,
        "members": [_entry(member, source, models[member.name]) for member in members],
        "evaluations": evaluations, "validation": table, "chosen": chosen(table, costs),
        "software": {"coremargin": version("coremargin")},
    }  # fmt: skip
    return FleetModel(record, models)


def _member_model(job: TrainJob, fleet: Fleet, member: Member, found: Result) -> Model:
    problem, crew = member.problem, fleet.crew
    view = {
        "class": None if member.code is None else fleet.source.classes[member.code], "fold": member.fold,
        "folds": None if member.fold is None else crew.folds, "fold_seed": None if member.fold is None else crew.seed,
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


def reason_of(state: FleetState) -> str:
    """Why the run ended, for people."""
    if not state.judged:
        return STOPPED["running"]
    words = [member.status for member in state.members]
    return ", ".join(f"{words.count(word)} {word.replace('_', ' ')}" for word in dict.fromkeys(words))
