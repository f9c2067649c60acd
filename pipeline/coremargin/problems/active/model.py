"""A state of a campaign as a model: the margins of the rows answered, what a scan says of all, what the draws show."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Literal

import numpy as np

from coremargin.data.mapped import as_kept
from coremargin.models.model import Model
from coremargin.problems.active.state import Draws
from coremargin.problems.common.model import record_of, transform_arrays

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from coremargin.problems.active.problem import ActiveMargin
    from coremargin.problems.active.state import ActiveState, Answered

Ended = Literal["certified", "not_separable", "stopped"]
#: How a state ended, in models; an unfinished one is stopped in a model.
ENDED: dict[str, Ended] = {"certified": "certified", "contradiction": "not_separable"}
REASONS = {
    "running": "it is not finished",
    "stalled": "float64 cannot tell the remaining rows apart",
    "contradiction": "the answers contradict each other, or no hyperplane can tell the classes apart",
    "certified": "certified",
}


@dataclass(frozen=True)
class Found:
    """Status and bounds, as a record has them; of several slabs (``members``) those of the one that has least."""

    status: Ended
    kind: Literal["margin", "not_separable", "duality_gap"]
    lower: float | None
    upper: float | None
    members: tuple[tuple[float | None, float | None], ...] = ()


def found_of(problem: ActiveMargin, state: ActiveState) -> Found:
    """What a state claims; a lower bound without a loss is that of the rows answered and of all others.

    It is certified only where all is proven that was asked for.
    """
    status: Ended = ENDED.get(state.status, "stopped")
    members = tuple(_bounds(problem, state, plane) for plane in range(problem.slabs))
    if status == "not_separable":
        return Found(status, status, None, members[state.failed][1], members)
    if status == "certified" and not _as_asked(problem, state):
        status = "stopped"
    lower, upper = min(members, key=_share)
    return Found(status, "margin" if problem.loss is None else "duality_gap", lower, upper, members)


def _bounds(problem: ActiveMargin, state: ActiveState, plane: int) -> tuple[float | None, float | None]:
    """Those of a slab, as far as they are known, as they are claimed."""
    if not (state.answered.both_classes and np.isfinite(state.upper[plane])):
        return None, None
    looked = state.status != "contradiction" and (problem.loss is not None or state.scanned.was_scanned)
    lower, upper = problem.claimed_bounds(state, plane, float(problem.proven(state)[plane]))
    return lower if looked else None, upper


def _share(bounds: tuple[float | None, float | None]) -> float:
    """What is proven of the best, less than nothing where nothing is."""
    lower, upper = bounds
    if lower is None or upper is None:
        return -1.0
    return lower / upper if lower > 0 and upper > 0 else 0.0


def _as_asked(problem: ActiveMargin, state: ActiveState) -> bool:
    """Whether bounds and draws prove what was asked for."""
    parts = problem.trials.parts(state.scanned.sides, state.draws, state.attempt)
    bounded = all(part["error_bound"] <= problem.error * part["population"] for part in parts)
    looked = state.answered.both_classes and (problem.loss is not None or state.scanned.was_scanned)
    return bounded and not (looked and not problem.proves_epsilon(state, problem.proven(state)))


def reason_of(problem: ActiveMargin, state: ActiveState, found: Found) -> str:
    """Why it ended, or is not finished, for people."""
    soft = problem.loss is not None
    if state.status == "certified" and found.status != "certified":
        shown = "draws show what was asked for" if soft else "all draws were right"
        lacking = len(state.answered.seen_classes) < problem.classes
        left = (
            "there is a class without an answer" if lacking else "rounding leaves bounds that prove less than epsilon"
        )
        return f"{shown}, and yet {left}"
    if soft and state.status == "stalled":
        return "float64 does not find bounds that prove epsilon; choose another C"
    if soft and state.status == "running" and state.draws.all_answered:
        parts = problem.trials.parts(state.scanned.sides, state.draws, state.attempt)
        least = sum(part["error_least"] for part in parts)
        if any(part["error_least"] > problem.error * part["population"] for part in parts):
            return f"it is not finished, but at least {least:,} rows are labelled otherwise, too many for this error"
        return "it is not finished: the last trial did not show what was asked for"
    return REASONS[state.status]


def evidence_of(problem: ActiveMargin, state: ActiveState, classes: Sequence[Any]) -> dict[str, Any] | None:
    """What the draws show, once all are answered; None before, and where no row is without an answer.

    None, too, where the bounds prove less than epsilon: such answers do not fix the hypothesis; and where there are not
    as many draws as were fixed before. classes: the labels.
    """
    population, soft = state.scanned.population, problem.loss is not None
    ended = state.status == "certified" or (soft and state.status == "running" and state.draws.all_answered)
    if not ended or not population or not problem.proves_epsilon(state, problem.proven(state)):
        return None
    parts = problem.trials.parts(state.scanned.sides, state.draws, state.attempt)
    if not problem.trials.complete(parts):
        return None
    return problem.trials.evidence(parts, state.attempt, classes)


def model_of(
    problem: ActiveMargin, state: ActiveState, classes: Sequence[Any], parameters: Mapping[str, Any], log: str | None
) -> Model:
    """The model; classes: those that there are, of two (negative, positive).

    log: hash of the last line that the state knows, None without one.
    """
    found, evidence = found_of(problem, state), evidence_of(problem, state, classes)
    several, draws = problem.planes > 1, Draws.empty() if evidence is None else state.draws
    if evidence is None and state.draws.is_answered.any():  # what was drawn is answered like any other row
        state = problem.absorb_draws(state)
        found = found if problem.loss is None else found_of(problem, state)
    arrays = _rows_of(state.answered, draws, "classes" if several else "signs")
    core = state.answered.take(state.answered.support)
    about: dict[str, Any] = {"answers": len(state.answered) + len(draws), "log": log}
    if several and not problem.at_once:
        about["members"] = _members(found, classes)
    if len(state.unsure):
        about["unsure"] = len(state.unsure)
        arrays["unsure_ids"] = state.unsure
    kind = "active_classes" if several else "active"
    record = record_of(problem.source, (), found, kind, parameters, len(core), evidence=evidence, **about)
    record["classes"] = list(classes)
    hypothesis = state.hypothesis
    arrays |= {"coreset_ids": core.ids, **transform_arrays(problem.source)}
    if several:
        planes = np.column_stack([hypothesis.w, hypothesis.b])
        arrays |= {"hypothesis": planes, "duals": core.weights, "coreset_classes": core.codes}
    else:
        arrays |= {"w": hypothesis.w[0], "b": hypothesis.b[:1], "alpha": core.weights[:, 0], "coreset_y": core.signs(0)}
    return Model(record, arrays, as_kept(problem.source, core.ids, core.rows))


def _members(found: Found, classes: Sequence[Any]) -> list[dict[str, Any]]:
    pairs = zip(classes, found.members, strict=True)
    return [{"label": label, "lower": lower, "upper": upper} for label, (lower, upper) in pairs]


def _rows_of(answered: Answered, draws: Draws, name: str) -> dict[str, np.ndarray]:
    """All rows answered, by their ids, and the draws that are evidence, with their labels as a record has them."""
    arrays: dict[str, np.ndarray] = {}
    for what, ids, codes in (("answered", answered.ids, answered.codes), ("draws", draws.ids, draws.codes)):
        arrays[f"{what}_ids"] = ids
        arrays[f"{what}_{name}"] = codes if name == "classes" else np.where(codes == 1, 1, -1).astype(np.int8)
    return arrays
