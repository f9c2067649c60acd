"""The HTML page of a ball in a kernel's feature space: bounds, distances of all rows, the rows that carry it."""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from coremargin.formats.model_record import FILE
from coremargin.models.kernel_ball import KernelBallModel
from coremargin.problems.ball.report import bins_of, histogram
from coremargin.problems.common.report import CORESET_SHOWN
from coremargin.problems.kernel.report import field_around
from coremargin.report import charts, page, rounds, rulers
from coremargin.report import view as pages
from coremargin.report.field import picture
from coremargin.report.numbers import precision_for, relative_gap

if TYPE_CHECKING:
    from coremargin.report.page import Json


def page_of(folder: Path, name: str) -> str:
    """The page of a model's folder. Raises DataError if it does not hold a readable model."""
    model, run, records = page.read_folder(folder, FILE)
    return render(KernelBallModel.load(folder), model, run, records, name=name)


def render(ball: KernelBallModel, model: Json, run: Json, records: Sequence[Json], *, name: str = "MODEL") -> str:
    """The page as text."""
    claims, soft = pages.claims_of(model, name), ball.nu is not None
    counted = rounds.counted
    columns = (
        *(rounds.NUMBER, rounds.KIND),
        *rounds.bare_bounds(claims.precision, *(("Dual", "Value") if soft else ())),
        *(
            counted("Working set", "working_set_rows"),
            counted("Coreset", "coreset_rows"),
            counted("New rows", "new_rows"),
        ),
        *rounds.COSTS,
    )
    view = pages.view(model, run, records, columns, name)
    thing = "value" if soft else "radius"
    drawn = charts.by_round(records, run, claims, of=thing) | {"ruler": rulers.value(claims, thing, "ball")}
    bins, radius = bins_of(run.get("distances") or {}), ball.radius
    scale = precision_for(None, radius)
    drawn["distances"] = charts.drawings(charts.FULL, partial(histogram, bins, radius, scale)) if bins else None
    drawn["picture"] = None
    if ball.features == 2 and len(ball.coreset_ids):
        field = field_around(ball, np.ones(len(ball.coreset_ids), bool))
        if field is not None:
            drawn["picture"] = charts.drawings(charts.FULL, partial(picture, field, ("outside", "inside")))
    view |= claims.view() | {
        "charts": drawn,
        "kernel": ball.kernel_text,
        "only": model.get("only"),
        "outliers": None,
        "nu": ball.nu,
        "radius": radius,
        "gap": relative_gap(model.get("certificate") or {}),
        "bins": [{"low": low, "high": high, "rows": number} for low, high, number in bins],
        "carriers": carriers_of(ball),
        "pool": run.get("pool") or {},
    }
    return page.template("problems/kernel_ball/report.html.j2").render(view)


def carriers_of(ball: KernelBallModel) -> list[dict[str, Any]]:
    """The heaviest rows with their distances from the centre, ties by id."""
    ids, alpha = ball.coreset_ids, ball.row_duals
    shown = np.lexsort((ids, -alpha))[:CORESET_SHOWN]
    distances = ball.radius - ball.scorer().of_scaled(ball.coreset_x[shown])[0]
    return [
        {"id": int(ids[k]), "alpha": float(alpha[k]), "distance": float(distance)}
        for k, distance in zip(shown, distances, strict=True)
    ]
