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
from coremargin.report import charts, page, rounds, rulers, svg
from coremargin.report import view as pages
from coremargin.report.numbers import Precision, count, finite, precision_for, rows_between
from coremargin.report.svg import Frame, Scale

if TYPE_CHECKING:
    from markupsafe import Markup

    from coremargin.maths.rows import Rows
    from coremargin.report.page import Json

Bins = Sequence[tuple[float, float, int]]  #: from, to, rows

#: Corners of the circle's polygon.
_CORNERS = 180


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
    drawn = charts.by_round(records, run, claims, of="radius") | {"ruler": rulers.value(claims, "radius", "ball")}
    bins = bins_of(run.get("distances") or {})
    radius = claims.upper
    drawn["distances"] = (
        charts.drawings(charts.FULL, partial(histogram, bins, radius, claims.precision)) if bins else None
    )
    centre, drawn["picture"] = support["centre"], None
    if len(centre) == 2 and radius:
        drawn["picture"] = charts.drawings(charts.HALF, partial(picture, centre, radius, dense(rows)))
    view |= claims.view() | {
        "charts": drawn,
        "only": model.get("only"),
        "outliers": support["outliers_ids"].tolist() if "outliers_ids" in support else None,
        "shown": CORESET_SHOWN,
        "bins": [{"low": low, "high": high, "rows": number} for low, high, number in bins],
        "seen": sum(number for _, _, number in bins),
        "support": support_rows(support, rows),
        "weights": precision_for(None, float(np.max(support["alpha"], initial=0.0))),
    }
    return page.template("problems/ball/report.html.j2").render(view)


def support_rows(support: Mapping[str, Any], rows: Rows) -> list[dict[str, Any]]:
    """The heaviest rows with their distances from the centre, ties by id."""
    ids, alpha, distances = support["coreset_ids"], support["alpha"], np.zeros(len(support["alpha"]))
    if rows.shape[0]:
        distances = np.linalg.norm(dense(rows) - support["centre"], axis=1)
    heaviest = float(alpha.max(initial=0.0)) or 1.0
    return [
        {
            "id": int(ids[k]),
            "alpha": float(alpha[k]),
            "share": 100.0 * float(alpha[k]) / heaviest,
            "distance": float(distances[k]),
        }
        for k in np.lexsort((ids, -alpha))[:CORESET_SHOWN]
    ]


def bins_of(distances: Json) -> Bins:
    """The bins of a histogram of distances that hold rows."""
    rows, high = distances.get("rows") or [], finite(distances.get("high"))
    if high is None:
        return []
    width = high / max(1, len(rows))
    return [(k * width, (k + 1) * width, int(number)) for k, number in enumerate(rows) if number]


def histogram(bins: Bins, radius: float | None, precision: Precision, width: int) -> Markup:
    """Rows by their distance from the centre, and the radius."""
    low, high = svg.padded([bins[0][0], *(high for _, high, _ in bins), *([radius] if radius else [])], 0.02)
    most = max(rows for _, _, rows in bins)
    ticks = [tick for tick in svg.nice_ticks(0.0, most * 1.08, 4) if tick == int(tick)]
    labels = [count(tick) for tick in ticks]
    frame = Frame(width, 300, max(map(len, labels)) * svg.CHARACTER + 14, 10, 44, 44)
    x = Scale(low, high, frame.left, width - frame.right)
    y = Scale(0.0, most * 1.08, frame.height - frame.bottom, frame.top)
    base = frame.height - frame.bottom
    parts = [
        svg.text(2, 12, "rows per bin", "axis-name", "start"),
        svg.value_axis(frame, y, ticks, labels),
        svg.bars([(x(a), y(rows), max(x(b) - x(a) - 0.6, 0.6), base - y(rows)) for a, b, rows in bins], "bar-positive"),
    ]
    if radius:
        parts += [
            svg.line(x(radius), frame.top - 8, x(radius), base, "mark-upper"),
            svg.text(x(radius), frame.top - 14, f"radius {precision.up(radius)}", "note", "end"),
        ]
    parts.append(svg.number_axis(frame, x, "distance from the centre"))
    parts += svg.tips(frame, x, [(a, b, rows_between(rows, a, b)) for a, b, rows in bins])
    description = f"{count(sum(rows for _, _, rows in bins))} rows by their distance from the centre."
    return svg.drawing("distances", frame, "Distances of the rows from the centre", description, parts)


def picture(centre: Any, radius: float, rows: Any, width: int) -> Markup:
    """The ball of two features, its centre (2,), and the rows (m, 2) on it."""
    frame = Frame(width, round(0.9 * width), 62, 12, 12, 46)
    reach = 1.1 * radius
    across = (frame.width - frame.left - frame.right) / (frame.height - frame.top - frame.bottom)
    x = Scale(centre[0] - reach * across, centre[0] + reach * across, frame.left, width - frame.right)
    y = Scale(centre[1] - reach, centre[1] + reach, frame.height - frame.bottom, frame.top)
    angles = 2 * np.pi * np.arange(_CORNERS) / _CORNERS
    circle = [(x(centre[0] + radius * np.cos(t)), y(centre[1] + radius * np.sin(t))) for t in angles]
    ticks = svg.nice_ticks(y.low, y.high, 5)
    parts = [
        svg.value_axis(frame, y, ticks, svg.tick_labels(ticks)[0]),
        svg.path(circle, "ball", closed=True),
        *(svg.line(x(a), y(b), x(centre[0]), y(centre[1]), "grid") for a, b in rows),
        *(svg.tag("circle", cx=x(a), cy=y(b), r=3.5, class_="dot-upper") for a, b in rows),
        svg.tag("circle", cx=x(centre[0]), cy=y(centre[1]), r=3.5, class_="dot-lower"),
        svg.number_axis(frame, x, "first feature"),
    ]
    description = f"The ball, its centre, and the {len(rows)} rows on it that allow no smaller one."
    return svg.drawing("picture", frame, "The ball", description, parts)
