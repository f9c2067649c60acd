"""The result of a job about several classes as a model, and as words for its run."""

from __future__ import annotations

from importlib.metadata import version
from typing import TYPE_CHECKING, Any

import numpy as np

from coremargin.data.scaled import scaling_of, unscaled
from coremargin.formats.model_record import FORMAT, VERSION
from coremargin.maths.margin import ratio
from coremargin.models.multiclass import PROBLEM, MulticlassModel

if TYPE_CHECKING:
    from coremargin.learn.job import TrainJob
    from coremargin.problems.multiclass.job import ClassesJob
    from coremargin.problems.multiclass.state import ClassesState


def multiclass_of(job: TrainJob, problem: ClassesJob, state: ClassesState) -> MulticlassModel:
    """The model that a state stands for; nothing in it depends on the run: no clock, no host."""
    source, found = problem.source, problem.result(state)
    scaling = scaling_of(source)
    lower = found.lower if found.lower is not None and np.isfinite(found.lower) else None
    upper = found.upper if found.upper is not None and np.isfinite(found.upper) else None
    known = found.kind != "not_separable" and lower is not None and upper is not None
    record = {
        "format": FORMAT, "version": VERSION, "problem": PROBLEM, "status": found.status,
        "parameters": job.parameters(), "classes": [source.classes[code] for code in problem.codes],
        "features": source.features, "rows": source.rows, "dtype": source.dtype.name, "constant": found.constant,
        "certificate": {
            "kind": found.kind, "lower": lower, "upper": upper,
            "ratio": ratio(lower, upper) if known else None,  # type: ignore[arg-type]
            "epsilon": job.epsilon, "coreset_rows": len(found.rows), "store_digest": unscaled(source).digest,
            "radius": float(source.scalars().max_norm.max()),
        },
        "software": {"coremargin": version("coremargin")},
    }  # fmt: skip
    return MulticlassModel(
        record=record, hypothesis=found.hypothesis, duals=found.duals, coreset_ids=found.rows.ids,
        coreset_x=found.rows.rows, coreset_classes=found.rows.classes,
        reference=found.reference if problem.soft else None,
        shift=None if scaling is None else scaling.shift, factor=None if scaling is None else scaling.factor,
    )  # fmt: skip


def told_of(problem: ClassesJob, state: ClassesState) -> dict[str, Any]:
    """What ``run.json`` says beside the costs: how it ended, and the confusion matrix of the last scan."""
    found = problem.result(state)
    return {
        "reason": found.reason, "confusion": found.confusion.tolist(),
        "confusion_of": "final" if found.final else "last scan",
        "margins": {"rows_below_upper": None if state.rows_below < 0 else state.rows_below},
    }  # fmt: skip
