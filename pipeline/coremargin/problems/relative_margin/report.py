"""The page of a relative margin: its objective, and the decision values of all rows between both bounds."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from coremargin.formats.model_record import FILE
from coremargin.problems.common import report as common
from coremargin.problems.common.report import influence_of
from coremargin.problems.soft.report import MarginBin, heaviest, margin_bins
from coremargin.report import charts, page, rounds, rulers, svg
from coremargin.report.numbers import count, finite, relative_gap, rows_between
from coremargin.report.svg import Frame, Scale
from coremargin.report.view import claims_of

if TYPE_CHECKING:
    from markupsafe import Markup

    from coremargin.report.page import Json


def page_of(folder: Path, name: str) -> str:
    """The page of a model's folder. Raises DataError if it does not hold a readable model."""
    model, run, records = page.read_folder(folder, FILE)
    coreset = common.read_coreset(folder, model)
    return render(model, run, records, coreset, name=name, influence=influence_of(folder, model, name))


def render(
    model: Json,
    run: Json,
    records: Sequence[Json],
    coreset: Mapping[str, Any],
    *,
    name: str = "MODEL",
    influence: Json | None = None,
) -> str:
    """The page as text, from the views of common/report.py."""
    claims, parameters = claims_of(model, name), model.get("parameters") or {}
    bound, bins = finite(parameters.get("relative_margin")), projection_bins(run.get("projections"))
    near = (rounds.counted("Rows sent", "new_rows"), rounds.counted("Rows below 1", "rows_below"))
    columns = (rounds.NUMBER, rounds.KIND, *rounds.bare_bounds(claims.precision, "Dual", "Value"), *near)
    # Of either sign: the rows with the largest weights are shown first.
    coreset = {**coreset, "rank": np.abs(np.asarray(coreset["alpha"], float))}
    view = common.view(model, run, records, coreset, (*columns, *rounds.CHUNKS, *rounds.COSTS), name)
    about = {
        "bound": bound,
        "cost": parameters.get("C"),
        "class_weight": parameters.get("class_weight"),
        "gap": relative_gap(model.get("certificate") or {}),
        "bins": bins,
        "at_bound": int((np.asarray(coreset["alpha"], float) < 0).sum()),  # of their own class
        "kkt": _kkt_classes(coreset, model, records),
        "scanned": any(row.get("kind") != "sample" for row in records),
    }
    drawn = charts.by_round(records, run, claims, of="value") | {"ruler": rulers.value(claims), "projections": None}
    if bound is not None and any(part.rows for part in bins):
        drawn["projections"] = charts.drawings(charts.FULL, partial(draw_projections, bins, bound))
    view |= claims.view() | {"charts": drawn, "about": about, "influence": influence}
    return page.template("problems/relative_margin/report.html.j2").render(view)


def _kkt_classes(coreset: Mapping[str, Any], model: Json, records: Sequence[Json]) -> dict[str, Any] | None:
    """Rows on the margin, with a dual weight between 0 and C, and how many at least and at most are violators.

    Of the rows below the margin those on it cannot be told apart. None before a scan of all rows.
    """
    below = next(
        (finite(row.get("rows_below")) for row in reversed(records) if row.get("rows_below") is not None), None
    )
    if below is None:
        return None
    ranked = heaviest(coreset, model)
    between = int(((np.asarray(coreset["alpha"], float) > 0) & (np.asarray(ranked["rank"]) > 0)).sum())
    return {"between": between, "least": max(0, int(below) - between), "most": int(below)}


def projection_bins(projections: Json | None) -> list[MarginBin]:
    """Bins of decision values with the rows of both classes; empty without a complete histogram."""
    high = finite((projections or {}).get("high"))
    if not projections or high is None:
        return []
    edges = np.linspace(-high, high, len(projections.get("positive") or ()) + 1).tolist()
    return margin_bins({**projections, "edges": edges})


def draw_projections(bins: Sequence[MarginBin], bound: float, width: int) -> Markup:
    """The stacked histogram of decision values, with the zone between -1 and 1 and lines at -bound and bound."""
    used = [part for part in bins if part.rows]
    low, high = svg.padded([min(used[0].low, -bound), max(used[-1].high, bound)], 0.02)
    top = max(part.rows for part in used)
    ticks = [t for t in svg.nice_ticks(0.0, top * 1.08, 4) if t == int(t)]
    labels = [count(t) for t in ticks]
    frame = Frame(width, 330, max(map(len, labels)) * svg.CHARACTER + 14, 10, 44, 44)
    x = Scale(low, high, frame.left, width - frame.right)
    base = frame.height - frame.bottom
    y = Scale(0.0, top * 1.08, base, frame.top)

    def box(part: MarginBin, start: float, stop: float) -> tuple[float, float, float, float]:
        thick = x(part.high) - x(part.low)
        return x(part.low), y(stop), max(thick - 0.6 if thick >= 5.0 else thick, 0.6), y(start) - y(stop)

    lines = [svg.line(x(at), frame.top - 8, x(at), base, "mark-lower") for at in (-1.0, 1.0)]
    lines += [svg.line(x(at), frame.top - 8, x(at), base, "mark-upper") for at in (-bound, bound)]
    wide = len("-B") * svg.CHARACTER
    names = [
        svg.text(min(max(x(at), frame.left + wide), width - frame.right - wide), frame.top - 14, word, kind, "middle")
        for at, word, kind in (
            (-bound, "\u2212B", "value-upper"),
            (-1.0, "\u22121", "value-lower"),
            (1.0, "1", "value-lower"),
            (bound, "B", "value-upper"),
        )
    ]
    parts = [
        svg.text(2, 12, "rows per bin", "axis-name", "start"),
        svg.rect(x(-1.0), frame.top, x(1.0) - x(-1.0), base - frame.top, "zone-within"),
        svg.value_axis(frame, y, ticks, labels),
        svg.bars([box(part, 0.0, part.negative) for part in used if part.negative], "bar-negative"),
        svg.bars([box(part, part.negative, part.rows) for part in used if part.positive], "bar-positive"),
        svg.line(x(0.0), frame.top - 8, x(0.0), base, "mark-plane"),
        *lines,
        *names,
        svg.number_axis(frame, x, "decision value of the row: w\u00b7x + b"),
        *svg.tips(frame, x, [(part.low, part.high, rows_between(part.rows, part.low, part.high)) for part in used]),
    ]
    total = sum(part.rows for part in used)
    description = f"{count(total)} rows by their decision values, which lie between {-bound:g} and {bound:g}."
    return svg.drawing("projections", frame, "Decision values of all rows", description, parts)
