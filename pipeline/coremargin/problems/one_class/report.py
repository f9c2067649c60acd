"""What the HTML pages of one class share: the rows that are enclosed, their distances, the rows of the coreset."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from functools import partial
from typing import TYPE_CHECKING, Any

import numpy as np
from markupsafe import Markup

from coremargin.problems.common.report import CORESET_SHOWN
from coremargin.report import charts, svg
from coremargin.report.numbers import Precision, count, finite, label_text, precision_for, rows_between
from coremargin.report.svg import Frame, Scale

if TYPE_CHECKING:
    from coremargin.report.page import Json

Bins = Sequence[tuple[float, float, int]]  #: from, to, rows

#: Corners of the polygon of a circle.
_CORNERS = 180


def enclosed_view(model: Json, run: Json, radius: float | None, precision: Precision) -> dict[str, Any]:
    """The variables of ``page.html.j2`` about the enclosed rows, and the drawing of their distances.

    radius: beyond which rows are outside, with the digits of ``precision``.
    """
    only, rows, enclosed = model.get("only"), count(model.get("rows")), finite(run.get("enclosed_rows"))
    bins = bins_of(run.get("distances") or {})
    known = only is not None and enclosed is not None
    whose = f"all {rows} rows"
    if only is not None:
        number = f"{count(enclosed)} " if known else ""
        whose = Markup("all {}rows of class <bdi>{}</bdi>").format(number, label_text(only))
    return {
        "rows": f"{count(enclosed)} of {rows}" if known else rows,
        "whose": whose,
        "enclosed": enclosed,
        "bins": [{"low": low, "high": high, "rows": number} for low, high, number in bins],
        "seen": sum(number for _, _, number in bins),
        "distances": charts.drawings(charts.FULL, partial(histogram, bins, radius, precision)) if bins else None,
    }


def support_view(support: Mapping[str, Any], distances: Any) -> dict[str, Any]:
    """The heaviest rows of the coreset, ties by id, with their distances (m,) from the centre.

    support: alpha and coreset_ids (m,).
    """
    ids, alpha = support["coreset_ids"], support["alpha"]
    heaviest = float(alpha.max(initial=0.0)) or 1.0
    rows = [
        {
            "id": int(ids[k]),
            "alpha": float(alpha[k]),
            "share": 100.0 * float(alpha[k]) / heaviest,
            "distance": float(distances[k]),
        }
        for k in np.lexsort((ids, -alpha))[:CORESET_SHOWN]
    ]
    return {"support": rows, "weights": precision_for(None, float(np.max(alpha, initial=0.0)))}


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


def picture(outline: Any, centre: Any, rows: Any, thing: str, width: int, *, equal_scales: bool = False) -> Markup:
    """A closed curve of two features by its corners (n, 2), its centre (2,), and the rows (m, 2) on it.

    thing: a noun for it. equal_scales: of both features, so that a circle looks round.
    """
    frame = Frame(width, round(0.9 * width), 62, 12, 12, 46)
    low, high = outline.min(axis=0), outline.max(axis=0)
    half, middle = 0.55 * (high - low), (low + high) / 2
    if equal_scales:
        half[0] *= (frame.width - frame.left - frame.right) / (frame.height - frame.top - frame.bottom)
    x = Scale(middle[0] - half[0], middle[0] + half[0], frame.left, width - frame.right)
    y = Scale(middle[1] - half[1], middle[1] + half[1], frame.height - frame.bottom, frame.top)
    ticks = svg.nice_ticks(y.low, y.high, 5)
    parts = [
        svg.value_axis(frame, y, ticks, svg.tick_labels(ticks)[0]),
        svg.path([(x(a), y(b)) for a, b in outline], "outline", closed=True),
        *(svg.line(x(a), y(b), x(centre[0]), y(centre[1]), "grid") for a, b in rows),
        *(svg.tag("circle", cx=x(a), cy=y(b), r=3.5, class_="dot-upper") for a, b in rows),
        svg.tag("circle", cx=x(centre[0]), cy=y(centre[1]), r=3.5, class_="dot-lower"),
        svg.number_axis(frame, x, "first feature"),
    ]
    on_it = f", and the {len(rows)} rows on it that allow no smaller one" if len(rows) else ""
    return svg.drawing("picture", frame, f"The {thing}", f"The {thing}, its centre{on_it}.", parts)


def circle(centre: Any, radius: float) -> Any:
    """Corners (n, 2) of a circle."""
    angles = np.linspace(0.0, 2 * np.pi, _CORNERS, endpoint=False)
    return centre + radius * np.stack([np.cos(angles), np.sin(angles)], axis=1)
