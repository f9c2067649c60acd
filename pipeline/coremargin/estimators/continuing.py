"""What a model that was trained on the rows kept says about all rows seen: the honest part of ``partial_fit``."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING, Any

import numpy as np

from coremargin.maths.margin import NEGATIVE, POSITIVE, best_offset, is_certified, lower_bound, ratio, safe_projections
from coremargin.problems.soft.losses.table import LOSSES

if TYPE_CHECKING:
    from collections.abc import Sequence

    from numpy.typing import NDArray

    from coremargin.estimators.history import History
    from coremargin.models.fleet import FleetModel
    from coremargin.models.model import Model

#: Points of the way from the hypothesis before (0) to the newest (1) that are tried where the newest is not proven.
_LINE_POINTS = (1.0, 0.95, 0.9, 0.75, 0.5, 0.25, 0.0)


def about_all(found: Model | FleetModel, history: History, before: Model | FleetModel | None) -> Model | FleetModel:
    """What was trained on ``history.source()`` with certificates about all rows seen, as far as they are provable.

    before: the model until now. The bound that rests on the rows kept holds for all rows; the other one gives away what
    rows that are gone may cost. Where that is more than epsilon allows, the status is "stopped". A hard margin may come
    with another hypothesis on the way from the one before, if that proves more. How a fleet does on all rows is then
    not known: nothing was asked of rows that are gone.
    """
    earlier = [None] * len(history.positives) if before is None else before.deciders()
    models = [
        _about_all(model, history, k, old) for k, (model, old) in enumerate(zip(found.deciders(), earlier, strict=True))
    ]
    return found.with_deciders(models)


def _about_all(model: Model, history: History, k: int, before: Model | None) -> Model:
    lower, upper = model.certificate.lower, model.certificate.upper
    if model.status == "not_separable" or not history.dropped:
        return _claiming(model, history, lower, upper, model.status)
    if model.certificate.is_margin:
        return _margin_of_all(model, history, k, before)
    lost = history.most_lost(k, model.w, model.b, LOSSES[model.parameters["loss"]])
    value = (np.inf if upper is None else upper) + lost
    proven = is_certified(lower or 0.0, value, model.certificate.epsilon)
    return _claiming(model, history, lower, value, "certified" if proven else "stopped")


def stand(before: Model | FleetModel, history: History) -> Model | FleetModel | None:
    """The same hard margins about all rows seen, when the new rows leave their proofs whole; None otherwise."""
    found = []
    for k, model in enumerate(before.deciders()):
        upper = model.certificate.upper
        if not model.certificate.is_margin or upper is None:
            return None
        lower, hypothesis = _best(history, k, model.w[:, None], intercept=bool(model.parameters["intercept"]))
        if not is_certified(lower, upper, model.certificate.epsilon):
            return None
        found.append(_claiming(_at(model, hypothesis), history, lower, upper, "certified", ids=model.coreset_ids))
    return before.with_deciders(found)


def relieved(history: History, models: Sequence[Model], class_c: Sequence[NDArray[np.float64]], room: int) -> History:
    """The past with at most ``room`` rows; class_c (2,) of the sides of each problem. Raises what ``let_go`` raises."""
    margin = models[0].certificate.is_margin
    return history.let_go(
        [(model.w, model.b) for model in models],
        [(model.certificate.lower or model.certificate.upper or 1.0) if margin else 1.0 for model in models],
        class_c,
        room,
        np.unique(np.concatenate([model.coreset_ids for model in models])) if margin else None,
    )


def _margin_of_all(model: Model, history: History, k: int, before: Model | None) -> Model:
    upper = model.certificate.upper
    directions = model.w[:, None]
    if before is not None:
        t = np.array(_LINE_POINTS)
        directions = np.outer(model.w, t) + np.outer(before.w, 1.0 - t)
    lower, hypothesis = _best(history, k, directions, intercept=bool(model.parameters["intercept"]))
    if lower <= 0:  # nothing is proven for the rows that are gone: the answer for those kept, without a claim
        return _claiming(model, history, None, upper, "stopped")
    proven = upper is not None and is_certified(lower, upper, model.certificate.epsilon)
    return _claiming(_at(model, hypothesis), history, lower, upper, "certified" if proven else "stopped")


def _best(
    history: History, k: int, directions: NDArray[np.float64], *, intercept: bool
) -> tuple[float, tuple[NDArray[np.float64], float]]:
    """The largest margin proven for all rows seen by one of the directions (d, j), and its hypothesis of length 1."""
    signs, least = history.signs(k), history.floors(k, directions)
    for side, sign in ((POSITIVE, 1), (NEGATIVE, -1)):
        mine = np.flatnonzero((signs == sign) & (history.weights > 0))
        if len(mine):
            values = safe_projections(history.rows[mine], signs[mine], directions).min(axis=0)
            least[side] = np.minimum(least[side], values)
    lower, offset = lower_bound(least, directions, intercept), best_offset(least, intercept)
    j = int(np.argmax(lower))
    length = float(np.linalg.norm(directions[:, j]))
    return float(lower[j]), (directions[:, j] / length, float(offset[j]) / length)


def _at(model: Model, hypothesis: tuple[NDArray[np.float64], float]) -> Model:
    return replace(model, w=hypothesis[0], b=hypothesis[1])


def _claiming(
    model: Model,
    history: History,
    lower: float | None,
    upper: float | None,
    status: str,
    ids: NDArray[np.int64] | None = None,
) -> Model:
    """The model with these bounds about all rows seen; ids: of the coreset among them, if it has them already.

    The ledger of a hard margin goes: it speaks of chunks of the rows kept.
    """
    proven = None if model.status == "not_separable" or lower is None or upper is None else ratio(lower, upper)
    claims: dict[str, Any] = {
        **model.record["certificate"],
        "lower": lower,
        "upper": upper,
        "ratio": proven,
        "store_digest": history.digest,
        "radius": history.radius,
    }
    record = {**model.record, "rows": history.seen, "status": status, "certificate": claims}
    extra = model.extra if model.certificate.is_value else {}
    return replace(
        model, record=record, extra=extra, coreset_ids=history.ids[model.coreset_ids] if ids is None else ids
    )
