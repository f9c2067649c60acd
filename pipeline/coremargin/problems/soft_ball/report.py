"""The HTML page of a soft ball: its value and bound, the distances of all rows against the radius."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from coremargin.formats.model_record import FILE
from coremargin.problems.ball.report import bins_of, histogram, picture
from coremargin.problems.common.report import CORESET_SHOWN, open_arrays
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
    bins, radius = bins_of(run.get("distances") or {}), math.sqrt(max(0.0, float(known["square"][0])))
    scale = precision_for(None, radius)
    drawn["distances"] = charts.drawings(charts.FULL, partial(histogram, bins, radius, scale)) if bins else None
    centre, drawn["picture"] = known["centre"], None
    if len(centre) == 2 and radius:
        drawn["picture"] = charts.drawings(charts.HALF, partial(picture, centre, radius, np.zeros((0, 2))))
    ids, alpha = known["coreset_ids"], known["alpha"]
    view |= claims.view() | {
        "charts": drawn,
        "only": model.get("only"),
        "outliers": None,
        "nu": (model.get("parameters") or {}).get("nu"),
        "radius": radius,
        "gap": relative_gap(model.get("certificate") or {}),
        "bins": [{"low": low, "high": high, "rows": number} for low, high, number in bins],
        "named": [{"id": int(ids[k]), "alpha": float(alpha[k])} for k in np.lexsort((ids, -alpha))[:CORESET_SHOWN]],
    }
    return page.template("problems/soft_ball/report.html.j2").render(view)
