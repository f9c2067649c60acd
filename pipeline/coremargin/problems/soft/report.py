"""The page of a soft margin: its objective, its rows by margin in three zones, and the bounds of its value.

The margin of a row is y (w.x + b): below 0 the row lies on the wrong side, below 1 it costs something, from 1 on
nothing.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from itertools import pairwise
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from coremargin.errors import DataError
from coremargin.formats.model_record import FILE
from coremargin.formats.run_record import in_parts
from coremargin.problems.common import report as common
from coremargin.problems.common.report import influence_of
from coremargin.problems.soft.losses.table import LOSSES
from coremargin.report import charts, page, rounds, rulers, svg
from coremargin.report.numbers import Precision, count, finite, relative_gap, rows_between
from coremargin.report.svg import Frame, Scale
from coremargin.report.view import claims_of

if TYPE_CHECKING:
    from markupsafe import Markup

    from coremargin.problems.soft.losses.loss import Loss
    from coremargin.report.page import Json
    from coremargin.report.rounds import Column

ZONES = ("on the wrong side", "within the margin", "beyond it")


@dataclass(frozen=True)
class MarginBin:
    """Number of rows of both classes with a margin in [low, high)."""

    low: float
    high: float
    negative: float
    positive: float

    @property
    def rows(self) -> float:
        """Rows of both classes together."""
        return self.negative + self.positive


def page_of(folder: Path, name: str) -> str:
    """The page of a model's folder. Raises DataError if it does not hold a readable model."""
    model, run, records = page.read_folder(folder, FILE)
    with common.open_arrays(folder) as arrays:
        coreset = common.coreset_of(model, arrays)
        if "tried_ids" in arrays:
            coreset["tried"] = arrays["tried_ids"].tolist()
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
    """The page as text, from what common/report.py reads.

    coreset["tried"]: rows that prove that there is no hard margin.
    """
    claims, records = claims_of(model, name), of_value(records)
    coreset, bins = heaviest(coreset, model), margin_bins(run.get("histogram"))
    view = common.view(model, run, records, coreset, _columns(claims.precision), name)
    drawn = charts.by_round(records, run, claims, of="value") | {"ruler": rulers.value(claims), "margins": None}
    if any(part.rows for part in bins):
        drawn["margins"] = charts.drawings(charts.FULL, partial(draw_margins, bins))
    view |= claims.view() | {"charts": drawn, "about": _about(model, run, records, coreset, bins)}
    view["influence"] = influence
    return page.template("problems/soft/report.html.j2").render(view)


def _columns(precision: Precision) -> tuple[Column, ...]:
    near = (rounds.counted("Near-margin rows", "working_set_rows"), rounds.counted("Rows below 1", "rows_below"))
    bounds = rounds.bare_bounds(precision, "Dual", "Value")
    return (rounds.NUMBER, rounds.KIND, *bounds, *near, *rounds.CHUNKS, *rounds.COSTS)


def _about(
    model: Json, run: Json, records: Sequence[Json], coreset: Mapping[str, Any], bins: Sequence[MarginBin]
) -> dict[str, Any]:
    """The variables of this template only."""
    parameters, alpha = model.get("parameters") or {}, np.asarray(coreset["alpha"])
    norm, at_cap = finite(coreset.get("norm")), np.asarray(coreset["at_cap"])
    between = int(((alpha > 0) & ~at_cap & (np.asarray(coreset["rank"]) > 0)).sum())
    below = finite((run.get("margins") or {}).get("rows_below_upper"))
    return {
        "loss": _loss(parameters.get("loss")),
        "cost": parameters.get("C"),
        "class_weight": parameters.get("class_weight"),
        "gap": relative_gap(model.get("certificate") or {}),
        "zones": zones(run, bins),
        "bins": bins,
        "distance": None if not norm else 1.0 / norm,
        "tried": coreset.get("tried", []),
        "between": between,
        "violators": None if below is None else (max(0, int(below) - between), int(below)),
        "full": int(at_cap.sum()),
        "in_segments": in_parts(records),
        "staged": (run.get("histogram") or {}).get("hypothesis") == "stages",
        "scanned": any(row.get("kind") != "sample" for row in records),
    }


def of_value(records: Sequence[Json]) -> Sequence[Json]:
    """The rounds, without the margins of those before the classes were known to overlap, which are no values."""
    first = next((place for place, row in enumerate(records) if "overlap" in row), 0)
    margin = ("lower", "lower_now", "upper", "ratio", "rows_below")
    return [{**row, **dict.fromkeys(margin)} if place < first else row for place, row in enumerate(records)]


def _loss(word: Any) -> Loss:
    """The loss of a record. Raises DataError if there is none of this name."""
    found = next((loss for name, loss in LOSSES.items() if name == word), None)
    if found is None:
        known = " or ".join(repr(loss) for loss in LOSSES)
        raise DataError(f"{FILE}: parameters.loss: expected {known}, found {word!r}; get an unaltered copy")
    return found


def heaviest(coreset: Mapping[str, Any], model: Json) -> dict[str, Any]:
    """The near-margin rows, ranked by how far their dual weights are from both limits.

    Weights that an interior point method left over rank zero.
    """
    alpha, y = np.asarray(coreset["alpha"], float), np.asarray(coreset["y"])
    cap = np.zeros(len(alpha))
    for sign in (-1, 1):
        mine = y == sign
        cap[mine] = _class_c(model, sign) or float(alpha[mine].max(initial=0.0))
    rank = np.minimum(alpha, cap - alpha)
    rank = np.where(rank > 1e-6 * cap, rank, 0.0)
    return {**coreset, "rank": rank, "at_cap": (rank == 0) & (alpha > 0.5 * cap)}


def _class_c(model: Json, sign: int) -> float | None:
    """c of the rows of a class; None if it depends on their number."""
    parameters = model.get("parameters") or {}
    cost, weight = finite(parameters.get("C")), parameters.get("class_weight")
    if cost is None or isinstance(weight, str):
        return None
    return cost if weight is None else cost * float(weight[sign > 0])


def margin_bins(histogram: Json | None) -> list[MarginBin]:
    """Bins of margins with the rows of both classes; empty without a complete histogram."""
    if not histogram:
        return []
    edges = [finite(e) for e in histogram.get("edges") or ()]
    both = zip(pairwise(edges), histogram.get("negative") or (), histogram.get("positive") or (), strict=False)
    return [
        MarginBin(low, high, finite(negative) or 0.0, finite(positive) or 0.0)
        for (low, high), negative, positive in both
        if low is not None and high is not None and high > low
    ]


def zones(run: Json, bins: Sequence[MarginBin]) -> list[dict[str, Any]]:
    """Rows on the wrong side (margin below 0), within the margin (0 to 1) and beyond it, with their share of all rows.

    Empty unless the histogram has an edge at 0 and the last scan counted the rows with margins below 1.
    """
    below = finite((run.get("margins") or {}).get("rows_below_upper"))
    total = sum(part.rows for part in bins)
    if below is None or not total or not any(abs(part.low) <= 1e-9 * (part.high - part.low) for part in bins):
        return []
    wrong = [part for part in bins if part.low < 0 and part.high < 0.5 * (part.high - part.low)]
    counts = (sum(part.rows for part in wrong), 0.0, total - below)
    counts = (counts[0], max(below - counts[0], 0.0), counts[2])
    return [{"name": name, "rows": number, "share": number / total} for name, number in zip(ZONES, counts, strict=True)]


def draw_margins(bins: Sequence[MarginBin], width: int) -> Markup:
    """The stacked histogram of margins; the zones of wrong and of costly rows have backgrounds of their own."""
    used = [part for part in bins if part.rows]
    low, high = svg.padded([used[0].low, used[-1].high, 0.0, 1.0], 0.02)
    top = max(part.rows for part in used)
    ticks = [t for t in svg.nice_ticks(0.0, top * 1.08, 4) if t == int(t)]
    labels = [count(t) for t in ticks]
    frame = Frame(width, 330, max(map(len, labels)) * svg.CHARACTER + 14, 10, 44, 44)
    x = Scale(low, high, frame.left, width - frame.right)
    base = frame.height - frame.bottom
    y = Scale(0.0, top * 1.08, base, frame.top)
    parts = [
        svg.text(2, 12, "rows per bin", "axis-name", "start"),
        svg.rect(x(low), frame.top, x(0.0) - x(low), base - frame.top, "zone-wrong"),
        svg.rect(x(0.0), frame.top, x(1.0) - x(0.0), base - frame.top, "zone-within"),
        svg.value_axis(frame, y, ticks, labels),
        svg.bars([_box(b, 0.0, b.negative, x, y) for b in used if b.negative], "bar-negative"),
        svg.bars([_box(b, b.negative, b.rows, x, y) for b in used if b.positive], "bar-positive"),
        svg.line(x(0.0), frame.top - 8, x(0.0), base, "mark-plane"),
        svg.line(x(1.0), frame.top - 8, x(1.0), base, "mark-lower"),
        *_names(frame, x),
        svg.number_axis(frame, x, "margin of the row: y (w\u00b7x + b)"),
    ]
    parts += svg.tips(frame, x, [(b.low, b.high, rows_between(b.rows, b.low, b.high)) for b in used])
    wrong, total = sum(b.rows for b in used if b.high <= 1e-9), sum(b.rows for b in used)
    description = f"{count(total)} rows, {count(wrong)} of them with a margin below 0."
    return svg.drawing("margins", frame, "Margins of all rows", description, parts)


def _box(part: MarginBin, start: float, stop: float, x: Scale, y: Scale) -> tuple[float, float, float, float]:
    thick = x(part.high) - x(part.low)
    return x(part.low), y(stop), max(thick - 0.6 if thick >= 5.0 else thick, 0.6), y(start) - y(stop)


def _names(frame: Frame, x: Scale) -> list[Markup]:
    """Labels of the lines at 0 and 1."""
    top = frame.top - 14
    at_plane, at_one = x(0.0), x(1.0)
    wide = len("hyperplane") * svg.CHARACTER
    left = svg.text(max(at_plane - 4, wide), top, "hyperplane", "note", "end")
    right = min(at_one + 4, frame.width - wide)
    return [left, svg.text(right, top, "margin 1", "value-lower", "start")]
