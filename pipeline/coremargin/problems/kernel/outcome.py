"""Results of jobs with kernels as models, and as models trained together."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING, Any

import numpy as np

from coremargin.formats.function import function_name
from coremargin.maths.kernel.callables import CallableKernel
from coremargin.maths.kernel.functions import Lengths
from coremargin.models.fleet_record import evaluation
from coremargin.models.kernel import KernelModel
from coremargin.models.user_kernel import faults_named, reference_values
from coremargin.problems.common.model import record_of, transform_arrays
from coremargin.problems.fleet.outcome import MemberModel, bind_models
from coremargin.problems.fleet.risk import TrainedFunction, guaranteed_risks
from coremargin.problems.kernel.bounds import squared_norm
from coremargin.problems.kernel.spec import OWN

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from coremargin.data.source import Source
    from coremargin.models.fleet import FleetModel
    from coremargin.problems.kernel.kernel_margin import KernelMargin, KernelResult, KernelState
    from coremargin.problems.kernel.spec import KernelFleetJob

#: Accuracies are stated if rounding decides the class of at most one row in so many, and one more: `verify` allows it.
FEW = 1000


def kernel_model(
    source: Source, codes: tuple[int, ...], found: KernelResult, parameters: Mapping[str, Any], **about: Any
) -> KernelModel:
    """A result as a model; codes: label codes of the classes, in their order; about: a member's ``view``."""
    kernel, function = found.kernel, None
    numbers: dict[str, Any] = {name: getattr(kernel, name) for name in OWN[kernel.name]}
    values: dict[str, Any] = {}
    if isinstance(kernel, CallableKernel):
        numbers = {"error": kernel.eta, "function": function_name(kernel.function)}
        with faults_named(kernel, source.name, found.rows.ids):
            values = {"kernel_values": reference_values(kernel, found.rows.rows)}
        function = kernel.function
    record = record_of(
        source,
        codes,
        found,
        "kernel",
        parameters,
        len(found.rows),
        kernel={"name": kernel.name, **numbers},
        **about,
    )
    arrays = {
        "duals": found.duals,
        "offsets": found.offsets,
        "lowers": found.lowers,
        "uppers": found.uppers,
        "coreset_ids": found.rows.ids,
        "coreset_classes": found.rows.classes,
        **({"outliers_ids": found.outliers} if "outliers" in parameters else {}),
        **({} if found.proof is None else found.proof.to_arrays("proof")),
        **values,
        **transform_arrays(source),
    }
    return KernelModel(record, arrays, found.rows.rows, function=function)


def fleet_model(job: KernelFleetJob, problem: KernelMargin, state: KernelState) -> FleetModel:
    """The models of all settings, and how accurate they are."""
    results = problem.results(state)
    members = []
    for name, one, found in zip(problem.names, problem.settings, results, strict=True):
        view = {"class": None, "fold": one.fold, "folds": problem.folds, "fold_seed": problem.seed}
        about: dict[str, Any] = {} if one.fold is None else {"view": view}
        parameters = job.parameters_of(one.cost, job.gammas[one.kernel])
        model = kernel_model(problem.source, problem.codes, found, parameters, **about)
        members.append(MemberModel(name, None, job.setting_of(one.kernel, one.cost), one.fold, model))
    final = state.round > problem.stages.count and all(found.final for found in results)
    claimed = final and not _rounding_decides(problem, results)
    evaluated = zip(members, results, strict=True) if claimed else ()
    evaluations = [evaluation(one.setting, one.fold, found.confusion) for one, found in evaluated]
    risks = None
    if job.choose == "risk":
        pairs = [pair for pair in zip(members, results, strict=True) if pair[0].fold is None]
        trained = [_trained_function(problem, one, found) for one, found in pairs] if claimed else []
        risks = guaranteed_risks(trained, evaluations, str(job.loss))
    return bind_models(problem.source, problem.codes, "kernel", job.parameters(), members, evaluations, risks=risks)


def _trained_function(problem: KernelMargin, one: MemberModel, found: KernelResult) -> TrainedFunction:
    """What the guaranteed risk needs of a machine of two classes."""
    points = found.kernel.points(found.rows.rows)
    weights = np.where(found.rows.classes == 1, 1.0, -1.0) * found.duals[:, 0]
    square, error = squared_norm(found.kernel, points, weights, Lengths.from_points(points, found.duals))
    longest = float(problem.source.scalars().max_norm.max())
    radius = math.sqrt(float(found.kernel.value_bound(longest, longest)))
    value = math.inf if found.upper is None else found.upper
    squares = max(0.0, square - error), square + error
    offset = abs(float(found.offsets[0])) if problem.intercept else None
    return TrainedFunction(one.setting, value, squares, offset, radius, None)


def _rounding_decides(problem: KernelMargin, results: Sequence[KernelResult]) -> bool:
    """Whether too many rows are undecided for `verify`, over all folds of a setting or in its table of all rows."""
    tables: dict[tuple[int, float, bool], int] = {}
    for one, found in zip(problem.settings, results, strict=True):
        table = one.kernel, one.cost, one.fold is None
        tables[table] = tables.get(table, 0) + found.undecided
    counted = max(int(found.confusion.sum()) for found in results)
    return max(tables.values()) > 1 + counted // FEW
