"""The HTML page of a smallest enclosing ball: bounds, distances of all rows, the rows on the sphere."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from coremargin.formats.model_record import FILE
from coremargin.maths.rows import dense
from coremargin.problems.common.report import CORESET_SHOWN, open_arrays, rows_of_proof
from coremargin.problems.one_class.report import circle, enclosed_view, picture, support_view
from coremargin.report import charts, page, rounds, rulers
from coremargin.report import view as pages

if TYPE_CHECKING:
    from coremargin.maths.rows import Rows
    from coremargin.report.page import Json


def page_of(folder: Path, name: str) -> str:
    """The page of a model's folder. Raises DataError if it does not hold a readable model."""
    model, run, records = page.read_folder(folder, FILE)
    with open_arrays(folder) as arrays:
        names = ("centre", "alpha", "coreset_ids", "outliers_ids")
        support = {name: arrays[name] for name in names if name in arrays}
        return render(model, run, records, support, rows_of_proof(model, arrays), name=name)


def render(
    model: Json, run: Json, records: Sequence[Json], support: Mapping[str, Any], rows: Rows, *, name: str = "MODEL"
) -> str:
    """The page as text.

    support: centre (d,), alpha and coreset_ids (m,), with outliers outliers_ids (k,); rows (m, d) of the coreset.
    """
    claims = pages.claims_of(model, name)
    counted = rounds.counted
    columns = (
        *(rounds.NUMBER, rounds.KIND, *rounds.bare_bounds(claims.precision)),
        *(
            counted("Working set", "working_set_rows"),
            counted("Coreset", "coreset_rows"),
            counted("New rows", "new_rows"),
        ),
        *(*rounds.CHUNKS, *rounds.COSTS),
    )
    view = pages.view(model, run, records, columns, name)
    centre, radius, points = support["centre"], claims.upper, dense(rows)
    drawn = charts.by_round(records, run, claims, of="radius") | {"ruler": rulers.value(claims, "radius", "ball")}
    drawn["picture"] = None
    if len(centre) == 2 and radius:
        draw = partial(picture, circle(centre, radius), centre, points, "ball", equal_scales=True)
        drawn["picture"] = charts.drawings(charts.HALF, draw)
    away = np.linalg.norm(points - centre, axis=1) if len(points) else np.zeros(len(support["alpha"]))
    view |= claims.view() | enclosed_view(model, run, radius, claims.precision) | support_view(support, away)
    view |= {
        "charts": drawn,
        "outliers": support["outliers_ids"].tolist() if "outliers_ids" in support else None,
        "shown": CORESET_SHOWN,
    }
    return page.template("problems/ball/report.html.j2").render(view)
