"""The result of a job about several classes as a model."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from coremargin.data.scaled import scaling_of, unscaled
from coremargin.formats.model_record import FORMAT, VERSION
from coremargin.maths.margin import ratio
from coremargin.models.multiclass import PROBLEM, MulticlassModel
from coremargin.version import version

if TYPE_CHECKING:
    from coremargin.problems.multiclass.job import ClassesJob
    from coremargin.problems.multiclass.spec import CrammerSingerJob
    from coremargin.problems.multiclass.state import ClassesState


def multiclass_of(job: CrammerSingerJob, problem: ClassesJob, state: ClassesState) -> MulticlassModel:
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
        "software": {"coremargin": version()},
    }  # fmt: skip
    return MulticlassModel(
        record=record, hypothesis=found.hypothesis, duals=found.duals, coreset_ids=found.rows.ids,
        coreset_x=found.rows.rows, coreset_classes=found.rows.classes,
        reference=found.reference if problem.soft else None,
        shift=None if scaling is None else scaling.shift, factor=None if scaling is None else scaling.factor,
    )  # fmt: skip
