"""The pictures on the page of a margin with outliers: the bounds against their number, and against time."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import pairwise
from typing import TYPE_CHECKING

from coremargin.report import svg
from coremargin.report.numbers import DASH, Precision, count, magnitude, seconds
from coremargin.report.svg import Frame, Scale

if TYPE_CHECKING:
    from markupsafe import Markup

    from coremargin.problems.outliers.left_out import Step

#: Seconds since the job began, and the bounds from then on; None: not known.
Bounds = tuple[float, float | None, float | None]

HEIGHT = 300
#: Upper bounds of the first moments may be far off: the picture ends at so many times the last one.
HIGHEST = 3.0
#: The axis of time begins there at the earliest, and has a length.
EARLIEST = 0.01
#: Where the axis of time is marked, as multiples of powers of ten, where these are few.
MARKS = (1, 2, 5)


def against_k(steps: Sequence[Step], precision: Precision, width: int) -> Markup:
    """Margin reached and margin possible at most, against the number of rows left out."""
    values = [v for step in steps for v in (step.lower, step.upper) if v is not None]
    low, high = 0.0, max(values) * 1.08 or 1.0
    ticks = svg.nice_ticks(low, high, 5)
    labels, unit = svg.tick_labels(ticks)
    frame = Frame(width, 300, max(map(len, labels)) * svg.CHARACTER + 14, 16, 26, 44)
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
    parts.append(svg.bottom_axis(frame, _marks(steps, across, frame), "rows left out"))
    column = (frame.width - frame.left - frame.right) / len(steps)
    parts += [
        svg.rect(across(s.k) - column / 2, frame.top, column, frame.height - frame.top - frame.bottom, "hover",
                 _tell(s, precision))
        for s in steps
    ]  # fmt: skip
    last = steps[-1]
    reached, possible = precision.down(last.lower), precision.up(last.upper)
    description = f"{count(last.k)} rows left out: margin {reached}, at most {possible}."
    return svg.drawing("against-k", frame, "The margin against the number of rows left out", description, parts)


def _marks(steps: Sequence[Step], across: Scale, frame: Frame) -> list[tuple[float, str]]:
    """As many values of k as fit."""
    room = max(1, int((frame.width - frame.left - frame.right) / 44))
    every = -(-len(steps) // room)
    return [(across(step.k), str(step.k)) for step in steps[::every]]


def _tell(step: Step, precision: Precision) -> str:
    if step.impossible:
        return f"{count(step.k)} rows left out: nothing separates the others"
    lower = DASH if step.lower is None else precision.down(step.lower)
    upper = DASH if step.upper is None else precision.up(step.upper)
    return f"{count(step.k)} rows left out: margin {lower}, at most {upper}"


def bounds_known(found: Sequence[Sequence[float | None]]) -> list[Bounds]:
    """What ``run.json`` has of the bounds, without moments that say nothing; a margin below 0 is none."""
    known = [(float(at or 0.0), None if low is None else max(low, 0.0), high) for at, low, high in found]
    return [entry for entry in known if entry[1:] != (None, None)]


def against_time(bounds: Sequence[Bounds], precision: Precision, width: int) -> Markup:
    """Both bounds from each moment on, the time on a logarithmic scale."""
    uppers = [high for _, _, high in bounds if high is not None]
    values = [low for _, low, _ in bounds if low is not None] + [
        high for high in uppers if high <= HIGHEST * uppers[-1]
    ]
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
    parts.append(svg.bottom_axis(frame, _moments(across), "time (logarithmic)"))
    spans = ((here[0], after[0], _tell_from(here, precision)) for here, after in pairwise(bounds))
    parts += svg.tips(frame, across, spans)
    reached, possible = precision.down(bounds[-1][1]), precision.up(bounds[-1][2])
    description = f"After {seconds(last)}: margin {reached}, at most {possible}."
    return svg.drawing("against-time", frame, "The bounds against time", description, parts)


def _moments(across: Scale) -> list[tuple[float, str]]:
    """Round times within the axis: powers of ten, and between them where there is room."""
    exponents = range(magnitude(across.low), magnitude(across.high) + 1)
    marks = MARKS if len(exponents) <= len(MARKS) else MARKS[:1]
    times = [mark * 10.0**exponent for exponent in exponents for mark in marks]
    return [(across(time), seconds(time)) for time in times if across.low <= time <= across.high]


def _tell_from(bounds: Bounds, precision: Precision) -> str:
    at, lower, upper = bounds
    reached = DASH if lower is None else precision.down(lower)
    possible = DASH if upper is None else precision.up(upper)
    return f"from {seconds(at)} on: margin {reached}, at most {possible}"
