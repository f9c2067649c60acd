"""A state of a campaign as a model: the margin of the rows answered, what a scan says of all, what the draws show."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Literal

import numpy as np

from coremargin.data.scaled import scaling_of
from coremargin.maths.evidence import most_wrong, share_of
from coremargin.maths.margin import is_certified
from coremargin.models.active import ActiveModel
from coremargin.problems.active.state import Draws
from coremargin.problems.common.model import record_of

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from coremargin.problems.active.problem import ActiveMargin
    from coremargin.problems.active.state import ActiveState

Ended = Literal["certified", "not_separable", "stopped"]
#: How a state ended, as models say it; one that goes on is stopped in a model.
ENDED: dict[str, Ended] = {"certified": "certified", "contradiction": "not_separable"}
REASONS = {
    "running": "it was stopped, or nobody answered", "stalled": "float64 cannot tell the remaining rows apart",
    "contradiction": "the answers contradict each other, or no hyperplane can tell the classes apart",
    "certified": "certified",
}  # fmt: skip


@dataclass(frozen=True)
class Found:
    """Status and bounds, as a record has them."""

    status: Ended
    kind: Literal["margin", "not_separable"]
    lower: float | None
    upper: float | None


def found_of(problem: ActiveMargin, state: ActiveState) -> Found:
    """What a state claims; the lower bound is that of the rows answered and of all others.

    It is certified only where all is proven that was asked for.
    """
    status = ENDED.get(state.status, "stopped")
    both = state.answered.both_classes
    upper = state.upper if both and np.isfinite(state.upper) else None
    if status == "not_separable":
        return Found(status, status, None, upper)
    looked = both and (state.scanned.nearest > 0 or bool(state.scanned.sides.any()))
    lower = min(state.lower, state.scanned.nearest) if looked else None
    if status == "certified":
        bound, rows = _wrong_at_most(problem, state), int(state.scanned.sides.sum())
        near = lower is not None and not _proven(problem, state)
        status = "stopped" if near or bound > problem.error * rows else status
    return Found(status, "margin", lower, upper)


def _proven(problem: ActiveMargin, state: ActiveState) -> bool:
    """Whether the bounds prove epsilon, where there are answers of both classes."""
    lower = min(state.lower, state.scanned.nearest)
    return not state.answered.both_classes or is_certified(lower, state.upper, problem.epsilon)


def reason_of(state: ActiveState, found: Found) -> str:
    """Why it ended, for people."""
    if state.status == "certified" and found.status != "certified":
        return "all draws were right, and yet rounding leaves bounds that prove less than epsilon"
    return REASONS[state.status]


def _wrong_at_most(problem: ActiveMargin, state: ActiveState) -> int:
    """How many of the rows without an answer are labelled wrongly at most, all draws being right."""
    rows, draws = int(state.scanned.sides.sum()), len(state.draws)
    return most_wrong(rows, draws, 0, share_of(1.0 - problem.confidence, state.attempt))


def evidence_of(problem: ActiveMargin, state: ActiveState) -> dict[str, Any] | None:
    """What the draws show, once all are answered, none wrongly; None before, and where no row is without an answer.

    None, too, where rounding has left bounds that prove less than epsilon: such answers do not fix the hypothesis.
    """
    population = int(state.scanned.sides.sum())
    if state.status != "certified" or not population or not _proven(problem, state):
        return None
    return {
        "attempt": state.attempt, "draws": len(state.draws), "wrong": 0, "population": population,
        "error_bound": _wrong_at_most(problem, state), "confidence": problem.confidence,
    }  # fmt: skip


def model_of(
    problem: ActiveMargin, state: ActiveState, classes: Sequence[Any], parameters: Mapping[str, Any], log: str | None
) -> ActiveModel:
    """The model; classes: (negative, positive). log: hash of the last line that the state knows, None without one."""
    source, found, evidence = problem.source, found_of(problem, state), evidence_of(problem, state)
    draws = state.draws if evidence is not None else Draws.none()
    ids, signs = state.answered.ids, state.answered.signs
    if evidence is None:  # what was drawn is answered like any other row
        seen = state.draws.seen
        ids = np.concatenate([ids, state.draws.ids[seen]])
        signs = np.concatenate([signs, state.draws.signs[seen]])
    order = np.argsort(ids, kind="stable")
    core = state.answered.take(state.answered.support)
    record = record_of(
        source, (), found, "active", parameters, len(core),
        evidence=evidence, answers=len(ids) + len(draws), log=log,
    )  # fmt: skip
    scaling = scaling_of(source)
    return ActiveModel(
        record=record | {"classes": list(classes)}, w=state.w, b=state.b, alpha=core.weights, coreset_ids=core.ids,
        coreset_x=core.rows, coreset_y=core.signs,
        extra={
            "answered_ids": ids[order], "answered_signs": signs[order], "draws_ids": draws.ids,
            "draws_signs": draws.signs,
        },
        shift=None if scaling is None else scaling.shift, factor=None if scaling is None else scaling.factor,
    )  # fmt: skip
