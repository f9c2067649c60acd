"""The result of a job about several classes as a model."""

from __future__ import annotations

from typing import TYPE_CHECKING

from coremargin.data.scaled import scaling_of
from coremargin.models.multiclass import PROBLEM, MulticlassModel
from coremargin.problems.common.model import record_of

if TYPE_CHECKING:
    from coremargin.problems.multiclass.job import ClassesJob
    from coremargin.problems.multiclass.spec import CrammerSingerJob
    from coremargin.problems.multiclass.state import ClassesState


def multiclass_of(job: CrammerSingerJob, problem: ClassesJob, state: ClassesState) -> MulticlassModel:
    """The model that a state stands for."""
    source, found = problem.source, problem.result(state)
    scaling = scaling_of(source)
    record = record_of(
        source, problem.codes, found, PROBLEM, job.parameters(), len(found.rows), constant=found.constant
    )  # fmt: skip
    return MulticlassModel(
        record=record, hypothesis=found.hypothesis, duals=found.duals, coreset_ids=found.rows.ids,
        coreset_x=found.rows.rows, coreset_classes=found.rows.classes,
        reference=found.reference if problem.soft else None,
        shift=None if scaling is None else scaling.shift, factor=None if scaling is None else scaling.factor,
    )  # fmt: skip
