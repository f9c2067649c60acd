"""The result of a job about several classes as a model."""

from __future__ import annotations

from typing import TYPE_CHECKING

from coremargin.data.mapped import as_kept, map_arrays
from coremargin.data.scaled import scaling_of
from coremargin.models.multiclass import MulticlassModel
from coremargin.problems.common.model import record_of

if TYPE_CHECKING:
    from collections.abc import Mapping
    from typing import Any

    from coremargin.data.source import Source
    from coremargin.problems.multiclass.result import ClassesResult


def multiclass_of(
    source: Source, codes: tuple[int, ...], found: ClassesResult, problem: str, parameters: Mapping[str, Any]
) -> MulticlassModel:
    """A result on a source as a model; codes: label codes of the classes, in their order."""
    scaling = scaling_of(source)
    record = record_of(source, codes, found, problem, parameters, len(found.rows), constant=found.constant)
    return MulticlassModel(
        record=record, hypothesis=found.hypothesis, duals=found.duals, coreset_ids=found.rows.ids,
        coreset_x=as_kept(source, found.rows.ids, found.rows.rows), coreset_classes=found.rows.classes,
        extra=map_arrays(source),
        reference=found.reference if found.kind == "duality_gap" else None,
        shift=None if scaling is None else scaling.shift, factor=None if scaling is None else scaling.factor,
    )  # fmt: skip
