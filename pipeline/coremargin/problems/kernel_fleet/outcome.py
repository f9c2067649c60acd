"""Results of many machines with kernels as a fleet."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from coremargin.data.scaled import unscaled
from coremargin.formats.fleet_record import FORMAT, VERSION, fleet_status
from coremargin.models.fleet import FleetModel
from coremargin.models.fleet_record import chosen, evaluation, named, validation
from coremargin.problems.kernel.outcome import kernel_model_of
from coremargin.version import version

if TYPE_CHECKING:
    from collections.abc import Sequence

    from coremargin.models.kernel import KernelModel
    from coremargin.problems.kernel.columns import Setting
    from coremargin.problems.kernel.result import KernelResult
    from coremargin.problems.kernel.state import KernelState
    from coremargin.problems.kernel_fleet.problem import KernelFleet
    from coremargin.problems.kernel_fleet.spec import KernelFleetJob


#: Rounding may decide about one row of so many, and one more, before a table says nothing: `verify` grants as many.
FEW = 1000


def as_fleet(job: KernelFleetJob, problem: KernelFleet, state: KernelState) -> FleetModel:
    """The models of all members, and how they do together."""
    source, results = problem.source, problem.results(state)
    asked = [job.setting_of(one.kernel, one.cost) for one in problem.settings]
    models = {
        name: _member(job, problem, one, found)
        for name, one, found in zip(problem.names, problem.settings, results, strict=True)
    }
    final = state.round > problem.stages.count and all(found.final for found in results)
    claimed = final and not _rounding_decides(problem, results)
    judged = zip(asked, problem.settings, results, strict=True) if claimed else ()
    evaluations = [evaluation(setting, one.fold, found.confusion) for setting, one, found in judged]
    settings = list(dict.fromkeys(asked))
    table = validation(evaluations, settings)
    record = {
        "format": FORMAT, "version": VERSION, "status": fleet_status([model.status for model in models.values()]),
        "problem": "kernel", "parameters": job.parameters(),
        "classes": [source.classes[code] for code in problem.codes], "features": source.features,
        "rows": source.rows, "dtype": source.dtype.name, "store_digest": unscaled(source).digest,
        "members": [
            _entry(name, named(setting), one.fold, models[name])
            for name, setting, one in zip(problem.names, asked, problem.settings, strict=True)
        ],
        "evaluations": evaluations, "validation": table, "chosen": chosen(table, settings),
        "software": {"coremargin": version()},
    }  # fmt: skip
    return FleetModel(record, models)


def _rounding_decides(problem: KernelFleet, results: Sequence[KernelResult]) -> bool:
    """Whether it gives more rows a class, in all folds of a setting or in its other table, than can be verified."""
    tables: dict[tuple[int, float, bool], int] = {}
    for one, found in zip(problem.settings, results, strict=True):
        table = one.kernel, one.cost, one.fold is None
        tables[table] = tables.get(table, 0) + found.undecided
    counted = max(int(found.confusion.sum()) for found in results)
    return max(tables.values()) > 1 + counted // FEW


def _member(job: KernelFleetJob, problem: KernelFleet, one: Setting, found: KernelResult) -> KernelModel:
    view = {"class": None, "fold": one.fold, "folds": problem.folds, "fold_seed": problem.seed}
    parameters = job.parameters_of(one.cost, job.gammas[one.kernel])
    about: dict[str, Any] = {} if one.fold is None else {"view": view}
    return kernel_model_of(problem.source, problem.codes, found, parameters, **about)


def _entry(name: str, setting: dict[str, Any], fold: int | None, model: KernelModel) -> dict[str, Any]:
    claims = model.certificate
    return {
        "name": name, "class": None, **setting, "fold": fold, "status": model.status, "lower": claims.lower,
        "upper": claims.upper, "ratio": claims.ratio, "coreset_rows": claims.coreset_rows,
    }  # fmt: skip
