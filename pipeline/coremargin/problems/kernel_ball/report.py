"""The HTML page of a ball in a kernel's feature space: bounds, distances of all rows, the rows that carry it."""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np

from coremargin.formats.model_record import FILE
from coremargin.models.kernel_ball import KernelBallModel
from coremargin.problems.kernel.report import field_around
from coremargin.problems.one_class.report import enclosed_view, support_view
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
    drawn |= {"picture": None, "map": None}  # every scan reads all chunks
    radius = ball.radius
    digits = precision_for(None, radius)
    if ball.features == 2 and len(ball.coreset_ids):
        field = field_around(ball, np.ones(len(ball.coreset_ids), bool))
        if field is not None:
            drawn["picture"] = charts.drawings(charts.HALF, partial(picture, field, ("outside", "inside")))
    support = {"alpha": ball.row_duals, "coreset_ids": ball.coreset_ids}
    distances = radius - ball.scorer().of_scaled(ball.coreset_x)[0]
    view |= claims.view() | enclosed_view(model, run, radius, digits) | support_view(support, distances)
    view |= {
        "charts": drawn,
        "kernel": ball.kernel_text,
        "nu": ball.nu,
        "digits": digits,
        "radius": radius,
        "gap": relative_gap(model.get("certificate") or {}),
        "working_set": run.get("working_set") or {},
    }
    return page.template("problems/kernel_ball/report.html.j2").render(view)
