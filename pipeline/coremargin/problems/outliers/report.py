"""The page of a margin with outliers: the excluded rows with their gains, and the bounds against k and against time."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from functools import partial
from itertools import pairwise
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from coremargin.formats.choices import LOSS_TAKEN
from coremargin.formats.model_record import FILE
from coremargin.formats.outliers import OUTLIERS
from coremargin.maths.rows import lengths
from coremargin.problems.common import report as common
from coremargin.problems.common.report import influence_of
from coremargin.problems.outliers.messages import (
    describe_enumeration,
    describe_outlook,
    describe_theorem,
    describe_work_bounds,
)
from coremargin.problems.outliers.outlier_table import Step, margin_steps
from coremargin.report import charts, page, svg
from coremargin.report.numbers import DASH, Precision, count, finite, magnitude, precision_for, seconds
from coremargin.report.svg import Frame, Scale
from coremargin.report.view import claims_of

if TYPE_CHECKING:
    from markupsafe import Markup

    from coremargin.report.page import Json

ROWS_SHOWN = 200
#: With fewer changes of the bounds than this there is no chart against time.
FEW_BOUNDS = 3
#: The subject of sentences about the corridor of the margin, with and without excluded rows.
OTHERS = ("no other row", "but for the excluded rows, none")

HEIGHT = 300
#: Early upper bounds may be far off: the chart ends at this multiple of the last one.
HIGHEST = 3.0
#: The time axis begins no earlier than this, in seconds.
EARLIEST = 0.01
#: Marks of the time axis as multiples of powers of ten, when there are few powers.
MARKS = (1, 2, 5)

#: Seconds since the start of the job, and the bounds from then on; None: not known.
Bounds = tuple[float, float | None, float | None]


def page_of(folder: Path, name: str) -> str:
    """The page of a model's folder. Raises DataError when it does not hold a readable model."""
    model, run, records = page.read_folder(folder, FILE)
    shown = influence_of(folder, model, name)
    return render(model, run, records, *read_arrays(folder, model), name=name, influence=shown)


def read_arrays(folder: Path, model: Json) -> tuple[Json, Json, tuple[Step, ...]]:
    """The coreset, the arrays about outliers by name, and the margin as a function of k; model: its record.

    Raises DataError.
    """
    with common.open_arrays(folder) as arrays:
        outliers = {key.removeprefix(OUTLIERS): arrays[key] for key in arrays if key.startswith(OUTLIERS)}
        shortest = float(lengths(common.rows_of_proof(model, arrays)).min(initial=np.inf))
        steps = margin_steps(outliers, shortest, inseparable=model.get("status") == "not_separable")
        return common.coreset_of(model, arrays), outliers, steps


def render(  # noqa: PLR0913 - all that a folder holds
    model: Json,
    run: Json,
    records: Sequence[Json],
    coreset: Json,
    outliers: Json,
    steps: Sequence[Step],
    *,
    name: str,
    influence: Json | None = None,
) -> str:
    """Render the page."""
    claims = claims_of(model, name)
    view = common.view(model, run, records, coreset, common.margin_columns(claims.precision), name)
    view |= common.margin_view(claims, run, records, view["status"], OTHERS) | {"influence": influence}
    records_of_enumerations = run.get("published", [])
    theorem = describe_theorem(steps[-1].k, bool(steps[-1].lower), model["parameters"]["epsilon"])
    ended = records_of_enumerations and all(one["ended"] for one in records_of_enumerations)
    view["about"] = _about(outliers, steps, view["status"], known_bounds(run.get("bounds", []))) | {
        "enumeration": describe_enumeration(records_of_enumerations),
        "theorem": theorem if ended else "",
        "work": describe_work_bounds(run, sum(step.nodes for step in steps)),
        "expected": describe_outlook(run) if view["status"] == "stopped" else [],
        "least": run.get("least"),
        "loss": LOSS_TAKEN,
    }
    return page.template("problems/outliers/report.html.j2").render(view)


def _about(
    arrays: Mapping[str, np.ndarray], found: Sequence[Step], status: str, bounds: Sequence[Bounds]
) -> dict[str, Any]:
    """What the template needs beyond the view of any margin; a bound that is only rounding becomes 0."""
    steps = [replace(step, upper=0.0) if step.impossible else step for step in found]
    rows = [
        {"id": int(i), "positive": sign > 0, "margin": float(margin), "gain": finite(float(gain))}
        for i, sign, margin, gain in zip(*(arrays[n] for n in ("ids", "signs", "margins", "gains")), strict=True)
    ]
    precision = precision_for(steps[-1].lower, steps[-1].upper)
    drawn = [step for step in steps if step.upper is not None or step.lower is not None]
    several, long = len(steps) > 1 and len(drawn) > 1, len(bounds) > FEW_BOUNDS
    return {
        "k": steps[-1].k,
        "rows": rows[:ROWS_SHOWN],
        "total": len(rows),
        "steps": steps,
        "knee": _knee(steps) if status != "not_separable" else None,
        "nodes": sum(step.nodes for step in steps),
        "chart": charts.drawings(charts.FULL, partial(against_k, drawn, precision)) if several else None,
        "over_time": charts.drawings(charts.FULL, partial(against_time, bounds, precision)) if long else None,
    }


def _knee(steps: Sequence[Step]) -> int | None:
    """The k with the largest increase in margin, if any increases it."""
    known = [(step.k, step.lower or 0.0) for step in steps]
    gains = np.diff([margin for _, margin in known])
    return known[int(np.argmax(gains)) + 1][0] if len(gains) and gains.max() > 0 else None


def against_k(steps: Sequence[Step], precision: Precision, width: int) -> Markup:
    """The chart of both bounds against k."""
    values = [v for step in steps for v in (step.lower, step.upper) if v is not None]
    low, high = 0.0, max(values) * 1.08 or 1.0
    ticks = svg.nice_ticks(low, high, 5)
    labels, unit = svg.tick_labels(ticks)
    frame = Frame(width, HEIGHT, max(map(len, labels)) * svg.CHARACTER + 14, 16, 26, 44)
    scale = Scale(low, high, frame.height - frame.bottom, frame.top)
    across = Scale(steps[0].k, steps[-1].k, frame.left + 14, frame.width - frame.right - 14)
    parts = [
        svg.text(2, 12, "margin" + (f" × {unit}" if unit else ""), "axis-name", "start"),
        svg.value_axis(frame, scale, ticks, labels),
    ]
    for name in ("upper", "lower"):
        known = [(step.k, getattr(step, name)) for step in steps]
        points = [(across(k), scale(v or 0.0)) for k, v in known if name == "lower" or v is not None]
        parts.append(svg.path(points, f"line-{name}"))
        parts += [svg.tag("circle", cx=x, cy=y, r=3.0, class_=f"dot-{name}") for x, y in points]
    room = max(1, int((frame.width - frame.left - frame.right) / 44))
    marks = [(across(step.k), str(step.k)) for step in steps[:: -(-len(steps) // room)]]
    parts.append(svg.bottom_axis(frame, marks, "rows excluded"))
    column, height = (frame.width - frame.left - frame.right) / len(steps), frame.height - frame.top - frame.bottom
    parts += [
        svg.rect(across(s.k) - column / 2, frame.top, column, height, "hover", _describe_step(s, precision))
        for s in steps
    ]
    last = steps[-1]
    reached, possible = precision.down(last.lower), precision.up(last.upper)
    description = f"{count(last.k)} rows excluded: margin {reached}, at most {possible}."
    return svg.drawing("against-k", frame, "The margin against the number of excluded rows", description, parts)


def _describe_step(step: Step, precision: Precision) -> str:
    if step.impossible:
        return f"{count(step.k)} rows excluded: nothing separates the others"
    return f"{count(step.k)} rows excluded: {_describe_bounds(step.lower, step.upper, precision)}"


def _describe_bounds(lower: float | None, upper: float | None, precision: Precision) -> str:
    reached = DASH if lower is None else precision.down(lower)
    possible = DASH if upper is None else precision.up(upper)
    return f"margin {reached}, at most {possible}"


def known_bounds(found: Sequence[Sequence[float | None]]) -> list[Bounds]:
    """The bounds over time of ``run.json``, without entries that say nothing; a negative margin becomes 0."""
    known = [(float(at or 0.0), None if low is None else max(low, 0.0), high) for at, low, high in found]
    return [entry for entry in known if entry[1:] != (None, None)]


def against_time(bounds: Sequence[Bounds], precision: Precision, width: int) -> Markup:
    """The chart of both bounds against time, on a logarithmic axis."""
    uppers = [high for _, _, high in bounds if high is not None]
    values = [low for _, low, _ in bounds if low is not None]
    values += [high for high in uppers if high <= HIGHEST * uppers[-1]]
    high = max(values, default=0.0) * 1.08 or 1.0
    ticks = svg.nice_ticks(0.0, high, 5)
    labels, unit = svg.tick_labels(ticks)
    frame = Frame(width, HEIGHT, max(map(len, labels)) * svg.CHARACTER + 14, 16, 26, 44)
    scale = Scale(0.0, high, frame.height - frame.bottom, frame.top)
    last = max(bounds[-1][0], 10 * EARLIEST)
    first = min(max(bounds[0][0], last / 1e4, EARLIEST), last / 2)
    across = Scale(first, last, frame.left, frame.width - frame.right, log=True)
    parts = [
        svg.text(2, 12, "margin" + (f" × {unit}" if unit else ""), "axis-name", "start"),
        svg.value_axis(frame, scale, ticks, labels),
    ]
    for place, name in ((2, "upper"), (1, "lower")):
        known = [(across(entry[0]), scale(value)) for entry in bounds if (value := entry[place]) is not None]
        if known:
            steps = [point for (_, y), (x, below) in pairwise(known) for point in ((x, y), (x, below))]
            parts.append(svg.path([known[0], *steps], f"line-{name}"))
    parts.append(svg.bottom_axis(frame, _time_marks(across), "time (logarithmic)"))
    spans = (
        (at, after, f"from {seconds(at)} on: {_describe_bounds(low, high, precision)}")
        for (at, low, high), (after, _, _) in pairwise(bounds)
    )
    parts += svg.tips(frame, across, spans)
    reached, possible = precision.down(bounds[-1][1]), precision.up(bounds[-1][2])
    description = f"After {seconds(last)}: margin {reached}, at most {possible}."
    return svg.drawing("against-time", frame, "The bounds against time", description, parts)


def _time_marks(across: Scale) -> list[tuple[float, str]]:
    """Round times within the axis: powers of ten, and between them when there is room."""
    exponents = range(magnitude(across.low), magnitude(across.high) + 1)
    marks = MARKS if len(exponents) <= len(MARKS) else MARKS[:1]
    times = [mark * 10.0**exponent for exponent in exponents for mark in marks]
    return [(across(time), seconds(time)) for time in times if across.low <= time <= across.high]
