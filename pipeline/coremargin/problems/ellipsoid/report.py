"""The HTML page of an ellipsoid of least volume: bounds, distances of all rows, the rows on the surface."""

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
from coremargin.problems.ball.report import bins_of, histogram
from coremargin.problems.common.report import CORESET_SHOWN, open_arrays, rows_of_proof
from coremargin.report import charts, page, rounds, rulers, svg
from coremargin.report import view as pages
from coremargin.report.numbers import finite, precision_for, significant
from coremargin.report.svg import Frame, Scale

if TYPE_CHECKING:
    from markupsafe import Markup

    from coremargin.maths.rows import Rows
    from coremargin.report.page import Json

#: Corners of the polygon of an ellipse.
_CORNERS = 180


def page_of(folder: Path, name: str) -> str:
    """The page of a model's folder. Raises DataError if it does not hold a readable model."""
    model, run, records = page.read_folder(folder, FILE)
    with open_arrays(folder) as arrays:
        support = {name: arrays[name] for name in ("centre", "axes", "alpha", "coreset_ids")}
        columns = arrays["span_columns"] if "span_columns" in arrays else np.arange(model["features"])
        return render(model, run, records, support, rows_of_proof(model, arrays), columns, name=name)


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

    support: centre (r,), axes (r, r), alpha and coreset_ids (m,). rows (m, d): those of the coreset. columns (r,):
    those that the ellipsoid is about.
    """
    claims = pages.claims_of(model, name)
    one, rank = Ellipsoid(support["centre"], support["axes"]), len(columns)
    mine = dense(take_columns(rows, columns)) if rows.shape[0] else np.zeros((0, rank))
    level = None if claims.upper is None else claims.upper / one.volume_radius
    shares = [of_volumes(row, rank) for row in records]
    counted = rounds.counted
    bounds = rounds.bare_bounds(claims.precision)[:2]
    gap = rounds.Column("Gap of volumes", lambda row: significant(of_volumes(row, rank)["gap"]))
    table = (
        *(rounds.NUMBER, rounds.KIND, *bounds, gap),
        *(counted("Pool rows", "pool_rows"), counted("Coreset", "coreset_rows"), counted("New rows", "new_rows")),
        *(*rounds.CHUNKS, *rounds.COSTS),
    )
    view = pages.view(model, run, records, table, name)
    drawn = charts.by_round(records, run, claims, of="volume radius", closing=False)
    if any(row["gap"] is not None for row in shares):
        drawn["gaps"] = charts.drawings(charts.HALF, partial(charts.gaps, shares, claims.epsilon))
    bins = bins_of(run.get("distances") or {})
    digits = precision_for(None, level)
    drawn["distances"] = charts.drawings(charts.FULL, partial(histogram, bins, level, digits)) if bins else None
    of_radius = replace(claims, epsilon=1.0 - (1.0 - claims.epsilon) ** (1.0 / rank))
    drawn |= {"ruler": rulers.value(of_radius), "picture": None}
    if rank == 2 and level:
        drawn["picture"] = charts.drawings(charts.HALF, partial(picture, one, level, mine))
    view |= claims.view() | {
        "charts": drawn,
        "only": model.get("only"),
        "rank": rank,
        "features": model.get("features"),
        "columns": [int(column) for column in columns],
        "bins": [{"low": low, "high": high, "rows": number} for low, high, number in bins],
        "seen": sum(number for _, _, number in bins),
        "level": level,
        "digits": digits,
        "support": support_rows(support, one.levels(mine) if len(mine) else np.zeros(len(support["alpha"]))),
        "weights": precision_for(None, float(np.max(support["alpha"], initial=0.0))),
    }
    return page.template("problems/ellipsoid/report.html.j2").render(view)


def of_volumes(row: Json, rank: int) -> dict[str, Any]:
    """A round with the least volume as a share of the volume that is reached, and the gap between them."""
    lower, upper = finite(row.get("lower")), finite(row.get("upper"))
    if lower is None or upper is None or not 0.0 < lower <= upper:
        return {**row, "lower": None, "upper": None, "gap": None}
    share = (lower / upper) ** rank
    return {**row, "lower": share, "upper": 1.0, "gap": 1.0 - share}


def support_rows(support: Mapping[str, Any], levels: Any) -> list[dict[str, Any]]:
    """The heaviest rows with their distances (m,) from the centre, ties by id."""
    ids, alpha = support["coreset_ids"], support["alpha"]
    heaviest = float(alpha.max(initial=0.0)) or 1.0
    return [
        {
            "id": int(ids[k]),
            "alpha": float(alpha[k]),
            "share": 100.0 * float(alpha[k]) / heaviest,
            "distance": float(levels[k]),
        }
        for k in np.lexsort((ids, -alpha))[:CORESET_SHOWN]
    ]


def picture(one: Ellipsoid, level: float, rows: Any, width: int) -> Markup:
    """The ellipse of two features at a level, its centre, and the rows (m, 2) on it."""
    angles = 2 * np.pi * np.arange(_CORNERS) / _CORNERS
    corners = one.centre + level * np.linalg.solve(one.factor, [np.cos(angles), np.sin(angles)]).T
    frame = Frame(width, round(0.9 * width), 62, 12, 12, 46)
    low, high = corners.min(axis=0), corners.max(axis=0)
    room = 0.05 * (high - low)
    x = Scale(low[0] - room[0], high[0] + room[0], frame.left, width - frame.right)
    y = Scale(low[1] - room[1], high[1] + room[1], frame.height - frame.bottom, frame.top)
    ticks = svg.nice_ticks(y.low, y.high, 5)
    middle = x(one.centre[0]), y(one.centre[1])
    parts = [
        svg.value_axis(frame, y, ticks, svg.tick_labels(ticks)[0]),
        svg.path([(x(a), y(b)) for a, b in corners], "ellipse", closed=True),
        *(svg.tag("circle", cx=x(a), cy=y(b), r=3.5, class_="dot-upper") for a, b in rows),
        svg.tag("circle", cx=middle[0], cy=middle[1], r=3.5, class_="dot-lower"),
        svg.number_axis(frame, x, "first feature"),
    ]
    description = f"The ellipse, its centre, and the {len(rows)} rows on it that allow none of less area."
    return svg.drawing("picture", frame, "The ellipse", description, parts)
