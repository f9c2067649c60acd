"""The HTML page of a soft ball: its value and bound, the distances of all rows against the radius."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from coremargin.formats.model_record import FILE
from coremargin.problems.common.report import open_arrays
from coremargin.problems.one_class.report import circle, enclosed_view, picture, support_view
from coremargin.report import charts, page, rounds, rulers
from coremargin.report import view as pages
from coremargin.report.numbers import precision_for, relative_gap

if TYPE_CHECKING:
    from coremargin.report.page import Json


def page_of(folder: Path, name: str) -> str:
    """The page of a model's folder. Raises DataError if it does not hold a readable model."""
    model, run, records = page.read_folder(folder, FILE)
    with open_arrays(folder) as arrays:
        known = {name: arrays[name] for name in ("centre", "square", "alpha", "coreset_ids")}
    return render(model, run, records, known, name=name)


def render(model: Json, run: Json, records: Sequence[Json], known: Mapping[str, Any], *, name: str = "MODEL") -> str:
    """The page as text. known: centre (d,), square (1,), alpha and coreset_ids (m,)."""
    claims = pages.claims_of(model, name)
    counted = rounds.counted
    columns = (
        *(rounds.NUMBER, rounds.KIND, *rounds.bare_bounds(claims.precision, "Dual", "Value")),
        *(counted("Band rows", "new_rows"), counted("Named rows", "coreset_rows"), *rounds.CHUNKS, *rounds.COSTS),
    )
    view = pages.view(model, run, records, columns, name)
    drawn = charts.by_round(records, run, claims, of="value") | {"ruler": rulers.value(claims, thing="ball")}
    centre, radius = known["centre"], math.sqrt(max(0.0, float(known["square"][0])))
    drawn |= {"picture": None, "map": None}  # every scan reads all chunks
    if len(centre) == 2 and radius:
        outline, none = circle(centre, radius), np.zeros((0, 2))
        drawn["picture"] = charts.drawings(
            charts.HALF, partial(picture, outline, centre, none, "ball", equal_scales=True)
        )
    nowhere = np.full(len(known["alpha"]), np.nan)  # the model does not have these rows
    view |= claims.view() | enclosed_view(model, run, radius, precision_for(None, radius))
    view |= support_view(known, nowhere) | {
        "charts": drawn,
        "nu": (model.get("parameters") or {}).get("nu"),
        "radius": radius,
        "gap": relative_gap(model.get("certificate") or {}),
    }
    return page.template("problems/soft_ball/report.html.j2").render(view)
