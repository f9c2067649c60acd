"""The charts of a fleet: accuracy against C, and how many models were certified after each round."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

from coremargin.report import svg
from coremargin.report.charts import RoundAxis
from coremargin.report.numbers import count, finite, magnitude, power_of_ten, significant
from coremargin.report.svg import Frame, Scale

if TYPE_CHECKING:
    from markupsafe import Markup

Row = Mapping[str, Any]


def percent(share: float) -> str:
    """A share as it is read beside a dot."""
    return f"{100.0 * share:.2f}\u00a0%"


def curve(table: Sequence[Row], trained: Mapping[float, float], chosen: float | None, width: int) -> Markup:
    """Accuracy on held-out rows against C: a dot a fold, the mean with its standard deviation; training beside."""
    frame, scale, across, grid = _plane(table, trained, width)
    costs = [row["C"] for row in table]
    parts = [svg.text(2, 12, "rows given the right class", "axis-name", "start"), grid]
    if chosen is not None:
        at = across(chosen)
        parts += [
            svg.line(at, frame.top, at, frame.height - frame.bottom, "mark-goal"),
            svg.text(at, frame.top - 6, f"chosen: C = {significant(chosen)}", "note"),
        ]
    parts += _series(table, trained, scale, across)
    parts.append(svg.bottom_axis(frame, _cost_marks(costs, across), "C (log scale)"))
    best = max(table, key=lambda row: float(row["mean"]))
    description = f"Best mean accuracy on held-out rows: {percent(best['mean'])} at C = {significant(best['C'])}."
    return svg.drawing("curve", frame, "Accuracy on held-out rows against C", description, parts)


def _plane(table: Sequence[Row], trained: Mapping[float, float], width: int) -> tuple[Frame, Scale, Scale, Markup]:
    """The frame, accuracy upwards, C across, and the grid."""
    spread = [row["mean"] + sign * row["std"] for row in table for sign in (-1, 1)]
    low, high = svg.padded([*spread, *(a for row in table for a in row["accuracies"]), *trained.values()])
    low, high = max(low, 0.0), min(high, 1.0)
    ticks = svg.nice_ticks(low, high, 5)
    digits = max(0, -magnitude((ticks[1] - ticks[0]) * 100)) if len(ticks) > 1 else 0
    labels = [f"{100.0 * tick:.{digits}f}\u00a0%" for tick in ticks]
    frame = Frame(width, 342, max(map(len, labels)) * svg.CHARACTER + 14, 14, 38, 44)
    scale = Scale(low, high, frame.height - frame.bottom, frame.top)
    room = (frame.width - frame.left - frame.right) * 0.06
    costs = [row["C"] for row in table]
    across = Scale(min(costs), max(costs), frame.left + room, frame.width - frame.right - room, log=True)
    return frame, scale, across, svg.value_axis(frame, scale, ticks, labels)


def _series(table: Sequence[Row], trained: Mapping[float, float], scale: Scale, across: Scale) -> list[Markup]:
    """The band of one standard deviation, the training rows, the folds, the mean."""
    band = [(across(r["C"]), scale(r["mean"] + r["std"])) for r in table]
    band += [(across(r["C"]), scale(r["mean"] - r["std"])) for r in reversed(table)]
    parts = [svg.path(band, "gap-area", closed=True)]
    if len(trained) == len(table):
        line = [(across(row["C"]), scale(trained[row["C"]])) for row in table]
        parts += [
            svg.path(line, "line-upper"),
            *(svg.tag("circle", cx=x, cy=y, r=3.0, class_="dot-upper") for x, y in line),
        ]
    parts += [
        svg.tag("circle", cx=across(row["C"]), cy=scale(value), r=2.5, class_="dot-tried")
        for row in table
        for value in row["accuracies"]
    ]
    means = [(across(row["C"]), scale(row["mean"])) for row in table]
    parts.append(svg.path(means, "line-lower"))
    for row, (x, y) in zip(table, means, strict=True):
        description = f"C = {significant(row['C'])}: {percent(row['mean'])} \u00b1 {percent(row['std'])}"
        parts.append(svg.tag("circle", svg.tag("title", description), cx=x, cy=y, r=4.0, class_="dot-lower"))
    return parts


def _cost_marks(costs: Sequence[float], across: Scale) -> list[tuple[float, str]]:
    """Labels of the values of C, left out where they would run into the one before."""
    marks: list[tuple[float, str]] = []
    for cost in costs:
        label = significant(cost, 2) if 1e-3 <= cost < 1e4 else power_of_ten(magnitude(cost))
        x = across(cost)
        if not marks or x - marks[-1][0] > 8 * svg.CHARACTER:
            marks.append((x, label))
    return marks


def certified(rounds: Sequence[Row], width: int) -> Markup:
    """How many models are certified after each round."""
    total = max(int(finite(row.get("members")) or 0) for row in rounds) or 1
    ticks = [tick for tick in svg.nice_ticks(0.0, float(total), 5) if tick == int(tick)]
    labels = [count(tick) for tick in ticks]
    frame = Frame(width, 250, max(map(len, labels)) * svg.CHARACTER + 14, 10, 26, 44)
    scale = Scale(0.0, total * 1.12, frame.height - frame.bottom, frame.top)
    axis = RoundAxis(frame, rounds)
    done = [int(finite(row.get("members_certified")) or 0) for row in rounds]
    thick = min(axis.band * 0.7, 76.0)
    boxes = [(axis.centre(i) - thick / 2, scale(n), thick, scale(0.0) - scale(n)) for i, n in enumerate(done)]
    parts = [
        svg.text(2, 12, "models certified", "axis-name", "start"),
        svg.value_axis(frame, scale, ticks, labels),
        svg.bars(boxes, "read"),
        svg.line(frame.left, scale(total), width - frame.right, scale(total), "mark-store"),
        svg.text(width - frame.right, scale(total) - 6, f"all: {count(total)}", "note", "end"),
        axis.draw(),
        axis.hover(lambda row: f"Round {row.get('round')}: {count(row.get('members_certified'))} certified"),
    ]
    description = f"{done[-1]} of {total} models are certified after {len(rounds)} rounds."
    return svg.drawing("certified", frame, "Models certified, by round", description, parts)
