"""The HTML page of an ellipsoid of least volume, or of a soft one: bounds, distances of all rows, rows of the proof."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from coremargin.formats.model_record import FILE
from coremargin.maths.enclosing_ellipsoid import Ellipsoid, take_columns
from coremargin.maths.rows import dense
from coremargin.problems.common.report import open_arrays, rows_of_proof
from coremargin.problems.one_class.report import circle, enclosed_view, picture, support_view
from coremargin.report import charts, page, rounds, rulers
from coremargin.report import view as pages
from coremargin.report.numbers import finite, precision_for, significant

if TYPE_CHECKING:
    from coremargin.maths.rows import Rows
    from coremargin.report.page import Json


def page_of(folder: Path, name: str) -> str:
    """The page of a model's folder. Raises DataError if it does not hold a readable model."""
    model, run, records = page.read_folder(folder, FILE)
    with open_arrays(folder) as arrays:
        known = {name: arrays[name] for name in ("centre", "axes", "alpha", "coreset_ids")}
        columns = arrays["span_columns"] if "span_columns" in arrays else np.arange(model["features"])
        if "square" in arrays:  # of a soft one, whose model does not have the rows of its proof
            known["square"] = arrays["square"]
            return render(model, run, records, known, np.zeros((0, model["features"])), columns, name=name)
        return render(model, run, records, known, rows_of_proof(model, arrays), columns, name=name)


def render(
    model: Json,
    run: Json,
    records: Sequence[Json],
    support: Mapping[str, Any],
    rows: Rows,
    columns: Any,
    *,
    name: str = "MODEL",
) -> str:
    """The page as text.

    support: centre (r,), axes (r, r), alpha and coreset_ids (m,), and of a soft ellipsoid square (1,). rows (m, d):
    those of the coreset, or none. columns (r,): those that the ellipsoid is about.
    """
    claims = pages.claims_of(model, name)
    one, rank = Ellipsoid(support["centre"], support["axes"]), len(columns)
    mine = dense(take_columns(rows, columns)) if rows.shape[0] else np.zeros((0, rank))
    soft = "square" in support
    level = None if claims.upper is None else claims.upper / one.volume_radius
    if soft and level is not None:
        level = float(np.sqrt(support["square"][0]))
    shares = [of_volumes(row, rank) for row in records]
    counted = rounds.counted
    bounds = rounds.bare_bounds(claims.precision)[:2]
    gap = rounds.Column("Gap of volumes", lambda row: significant(of_volumes(row, rank)["gap"]))
    table = (
        *(rounds.NUMBER, rounds.KIND, *bounds, gap),
        *(
            (counted("Band rows", "new_rows"), counted("Named rows", "coreset_rows"))
            if soft
            else (
                counted("Working set", "working_set_rows"),
                counted("Coreset", "coreset_rows"),
                counted("New rows", "new_rows"),
            )
        ),
        *(*rounds.CHUNKS, *rounds.COSTS),
    )
    view = pages.view(model, run, records, table, name)
    drawn = charts.by_round(records, run, claims, of="volume radius", closing=False)
    if any(row["gap"] is not None for row in shares):
        drawn["gaps"] = charts.drawings(charts.HALF, partial(charts.gaps, shares, claims.epsilon))
    of_radius = replace(claims, epsilon=1.0 - (1.0 - claims.epsilon) ** (1.0 / rank))
    drawn |= {"ruler": rulers.value(of_radius, "volume radius", "ellipsoid"), "picture": None}
    if rank == 2 and level:
        outline = one.centre + np.linalg.solve(one.factor, circle(np.zeros(2), level).T).T
        drawn["picture"] = charts.drawings(charts.HALF, partial(picture, outline, one.centre, mine, "ellipse"))
    digits = precision_for(None, level)
    away = one.levels(mine) if len(mine) else np.full(len(support["alpha"]), np.nan if soft else 0.0)
    view |= claims.view() | enclosed_view(model, run, level, digits) | support_view(support, away)
    view |= {
        "charts": drawn,
        "rank": rank,
        "features": model.get("features"),
        "columns": [int(column) for column in columns],
        "level": level,
        "digits": digits,
        "nu": (model.get("parameters") or {}).get("nu"),
    }
    kind = "soft_ellipsoid" if soft else "ellipsoid"
    return page.template(f"problems/{kind}/report.html.j2").render(view)


def of_volumes(row: Json, rank: int) -> dict[str, Any]:
    """A round with the least volume as a share of the volume that is reached, and the gap between them."""
    lower, upper = finite(row.get("lower")), finite(row.get("upper"))
    if lower is None or upper is None or not 0.0 < lower <= upper:
        return {**row, "lower": None, "upper": None, "gap": None}
    share = (lower / upper) ** rank
    return {**row, "lower": share, "upper": 1.0, "gap": 1.0 - share}
