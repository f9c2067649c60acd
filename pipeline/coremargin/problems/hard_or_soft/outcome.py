"""What was tried before, as a part of the model: who reads it knows why there is a loss, and can check that."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from coremargin.models.model import Model
    from coremargin.problems.common.result import Result


def with_tried(model: Model, hard: Result) -> Model:
    """A soft margin with the proof that there is no hard one: rows whose hulls meet, and their weights."""
    proof = hard.proof
    tried = {"problem": "hard_margin", "upper": hard.upper, "coreset_rows": len(proof)}
    arrays: dict[str, NDArray[Any]]
    arrays = {"tried_ids": proof.ids, "tried_y": proof.signs, "tried_alpha": proof.weights}
    return replace(model, record={**model.record, "tried": tried}, extra={**model.extra, **arrays})
