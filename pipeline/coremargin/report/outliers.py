"""What a report says about outliers: the rows left out, what each buys, and the margin against their number."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from functools import partial
from typing import TYPE_CHECKING, Any

import numpy as np

from coremargin.maths.margin import is_nothing
from coremargin.report import charts, svg
from coremargin.report.numbers import DASH, Precision, count, finite, precision_for
from coremargin.report.svg import Frame, Scale

if TYPE_CHECKING:
    from markupsafe import Markup

Json = Mapping[str, Any]

ROWS_SHOWN = 200


def view(arrays: Mapping[str, Any], status: str, shortest: float) -> dict[str, Any]:
    """What the templates need; ``arrays``: those about outliers, by name; shortest: length of a coreset row."""
    steps = _steps(arrays, shortest)
    rows = [
        {"id": int(i), "positive": sign > 0, "margin": float(margin), "gain": finite(float(gain))}
        for i, sign, margin, gain in zip(*(arrays[n] for n in ("ids", "signs", "margins", "gains")), strict=True)
    ]
    precision = precision_for(steps[-1]["lower"], steps[-1]["upper"])
    drawn = [step for step in steps if step["upper"] is not None or step["lower"] is not None]
    several = len(steps) > 1 and len(drawn) > 1
    return {
        "k": steps[-1]["k"], "rows": rows[:ROWS_SHOWN], "total": len(rows), "steps": steps,
        "knee": _knee(steps) if status != "not_separable" else None, "nodes": sum(step["nodes"] for step in steps),
        "chart": charts.drawings(charts.FULL, partial(against_k, drawn, precision)) if several else None,
    }  # fmt: skip


def _steps(arrays: Mapping[str, Any], shortest: float) -> list[dict[str, Any]]:
    """Bounds for each k; a margin that is not above 0 is none, and a bound that is rounding is 0."""
    found = []
    for k, lower, upper, nodes in zip(*(arrays[n].tolist() for n in ("k", "lower", "upper", "nodes")), strict=True):
        low, high = lower if lower > 0 else None, finite(upper)
        none = low is None and high is not None and is_nothing(high, shortest, arrays["w"].shape[1])
        found.append({"k": int(k), "lower": low, "upper": 0.0 if none else high, "none": none, "nodes": int(nodes)})
    return found


def _knee(steps: Sequence[Json]) -> int | None:
    """The k whose step up in margin is the largest, where one is: beyond it outliers buy less."""
    known = [(step["k"], step["lower"] or 0.0) for step in steps]
    gains = np.diff([margin for _, margin in known])
    return known[int(np.argmax(gains)) + 1][0] if len(gains) and gains.max() > 0 else None


def against_k(steps: Sequence[Json], precision: Precision, width: int) -> Markup:
    """Margin reached and margin possible at most, against the number of rows left out."""
    values = [v for step in steps for v in (step["lower"], step["upper"]) if v is not None]
    low, high = 0.0, max(values) * 1.08 or 1.0
    ticks = svg.nice_ticks(low, high, 5)
    labels, unit = svg.tick_labels(ticks)
    frame = Frame(width, 300, max(map(len, labels)) * svg.CHARACTER + 14, 16, 26, 44)
    scale = Scale(low, high, frame.height - frame.bottom, frame.top)
    across = Scale(steps[0]["k"], steps[-1]["k"], frame.left + 14, frame.width - frame.right - 14)
    parts = [
        svg.text(2, 12, "margin" + (f" × {unit}" if unit else ""), "axis-name", "start"),
        svg.value_axis(frame, scale, ticks, labels),
    ]
    for name in ("upper", "lower"):
        points = [(across(step["k"]), scale(0.0 if step[name] is None else step[name])) for step in steps
                  if name == "lower" or step[name] is not None]  # fmt: skip
        parts.append(svg.path(points, f"line-{name}"))
        parts += [svg.tag("circle", cx=x, cy=y, r=3.0, class_=f"dot-{name}") for x, y in points]
    parts.append(svg.bottom_axis(frame, _marks(steps, across, frame), "rows left out"))
    column = (frame.width - frame.left - frame.right) / len(steps)
    parts += [
        svg.rect(across(s["k"]) - column / 2, frame.top, column, frame.height - frame.top - frame.bottom, "hover",
                 _tell(s, precision))
        for s in steps
    ]  # fmt: skip
    last = steps[-1]
    reached, possible = precision.down(last["lower"]), precision.up(last["upper"])
    told = f"{count(last['k'])} rows left out: margin {reached}, at most {possible}."
    return svg.drawing("against-k", frame, "The margin against the number of rows left out", told, parts)


def _marks(steps: Sequence[Json], across: Scale, frame: Frame) -> list[tuple[float, str]]:
    """As many values of k as fit."""
    room = max(1, int((frame.width - frame.left - frame.right) / 44))
    every = -(-len(steps) // room)
    return [(across(step["k"]), str(step["k"])) for step in steps[::every]]


def _tell(step: Json, precision: Precision) -> str:
    if step["none"]:
        return f"{count(step['k'])} rows left out: nothing separates the others"
    lower = DASH if step["lower"] is None else precision.down(step["lower"])
    upper = DASH if step["upper"] is None else precision.up(step["upper"])
    return f"{count(step['k'])} rows left out: margin {lower}, at most {upper}"
