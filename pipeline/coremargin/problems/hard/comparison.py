"""What a comparison of strategies found, and its HTML page."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import asdict, dataclass, field
from functools import partial
from typing import TYPE_CHECKING, Any, BinaryIO

from coremargin.report import numbers, page, svg
from coremargin.report.charts import HALF, drawings
from coremargin.report.svg import Frame, Scale
from coremargin.version import version

if TYPE_CHECKING:
    from markupsafe import Markup


#: Marks of the lines of a lesson, in the order of their strategies.
LINES = ("one", "two", "three", "four")
#: Reads and seconds at the left end of a chart of bounds.
LEAST_SHOWN = 0.1
_HEAD_BYTES = 4096  # of a page, which its title is in


@dataclass(frozen=True)
class Point:
    """What is proven after so many reads of the store and seconds; None: nothing yet.

    own: the margin of the strategy's own hyperplane in its last state; lower: the best margin so far, of it or of the
    exact solution of the rows that it used; upper: what the exact solution allows.
    """

    reads: float
    seconds: float
    own: float | None
    lower: float | None
    upper: float | None


@dataclass(frozen=True)
class Run:
    """What a strategy proved, or why it does not apply.

    own: the best margin of its own hyperplanes; lower, upper: as of ``Point``, at the end.

    ended: how, in words; refused: the reason, "" if it ran. rows: that it used; coreset_rows: that carry the upper
    bound. updates, updates_at_most: of strategies that carry numbers, and their theorem's bound for the proven margin.
    """

    strategy: str
    refused: str = ""
    status: str = ""
    ended: str = ""
    reads: float = 0.0
    scans: int = 0
    seconds: float = 0.0
    bytes_read: int = 0
    rows: int = 0
    coreset_rows: int = 0
    updates: int | None = None
    updates_at_most: float | None = None
    own: float | None = None
    lower: float | None = None
    upper: float | None = None
    points: list[Point] = field(default_factory=list)


@dataclass(frozen=True)
class Comparison:
    """The runs of all strategies on one store; lower, upper: the best bounds of all of them, None without any."""

    store: str
    rows: int
    features: int
    store_bytes: int
    epsilon: float
    intercept: bool
    reads: float | None
    limit: float | None
    runs: list[Run]

    @property
    def lower(self) -> float | None:
        """The largest margin that is proven to be reached."""
        return max((run.lower for run in self.runs if run.lower is not None and run.lower > 0), default=None)

    @property
    def upper(self) -> float | None:
        """The smallest margin that is proven not to be exceeded."""
        return min((run.upper for run in self.runs if run.upper is not None), default=None)

    def to_json(self) -> dict[str, Any]:
        """Plain numbers and words."""
        return {**asdict(self), "lower": self.lower, "upper": self.upper}


@dataclass(frozen=True)
class Lesson:
    """Runs on small synthetic rows, for the numbers on the horizontal axis of a picture.

    values: dimensions, or factors of an axis. updates: by strategy, one for each value; rows that ``fast`` used stand
    under "fast". at_least: what a theorem demands of the raw perceptron, for each value; empty: nothing.
    """

    values: list[float]
    updates: dict[str, list[int]]
    at_least: list[int] = field(default_factory=list)


def render(found: Comparison, exponential: Lesson, rescaled: Lesson, command: str) -> str:
    """The page as HTML; command: that made it."""
    ran = [run for run in found.runs if not run.refused]
    cards = [
        {
            "run": run,
            "by_reads": _chart(run, found, "reads of the store", lambda point: point.reads),
            "by_seconds": _chart(run, found, "seconds", lambda point: point.seconds),
        }
        for run in ran
        if run.points and found.upper
    ]
    fast = next((run for run in ran if run.strategy == "fast"), None)
    others = [run for run in ran if fast and run is not fast and run.lower is not None and run.lower > 0]
    fewer = [run for run in others if fast and run.bytes_read < fast.bytes_read]
    same = [run for run in others if fast and run.bytes_read == fast.bytes_read]
    view: dict[str, Any] = {
        "found": found,
        "runs": found.runs,
        "refused": [run for run in found.runs if run.refused],
        "cards": cards,
        "fast": fast,
        "fewer": fewer,
        "same": same,
        "more": len(others) > len(fewer) + len(same),
        "precision": numbers.precision_for(found.lower, found.upper),
        "share": partial(share, found),
        "not_separable": any(run.status == "not_separable" for run in ran),
        "exponential": exponential,
        "exponential_chart": drawings(HALF, partial(_lesson_chart, exponential, "dimensions", log=False)),
        "rescaled": rescaled,
        "rescaled_chart": drawings(HALF, partial(_lesson_chart, rescaled, "factor of the axis", log=True)),
        "lines": LINES,
        "made_by": command,
        "software": version(),
    }
    return page.template("problems/hard/comparison.html.j2").render(view)


def is_page(file: BinaryIO) -> bool:
    """Whether a file is one that ``render`` made: by its title."""
    return b"<title>Strategies on " in file.read(_HEAD_BYTES)


def share(found: Comparison, value: float | None) -> float | None:
    """A bound as a share of the least upper bound of all strategies; None for one that proves nothing."""
    return None if value is None or not found.upper or value <= 0 else value / found.upper


def _chart(run: Run, found: Comparison, name: str, place: Callable[[Point], float]) -> Markup:
    every = [place(point) for each in found.runs for point in each.points]
    high = max(*every, LEAST_SHOWN * 10)
    return drawings(HALF, partial(_bounds_chart, run, found.upper or 1.0, name, place, (LEAST_SHOWN, high * 1.1)))


def _bounds_chart(
    run: Run, best: float, name: str, place: Callable[[Point], float], ends: tuple[float, float], width: int
) -> Markup:
    """Bounds as shares of the best margin, from 0 to 2, against reads or seconds on a logarithmic axis, as in all."""
    low, high = ends
    places = [max(place(point), low) for point in run.points]
    frame = Frame(width, 190, 44, 12, 14, 44)
    x = Scale(low, high, frame.left, width - frame.right, log=True)
    y = Scale(0.0, 2.0, frame.height - frame.bottom, frame.top)
    parts = [svg.value_axis(frame, y, [0.0, 0.5, 1.0, 1.5, 2.0], ["0", "0.5", "1", "1.5", "2"])]
    series: dict[str, list[tuple[float, float]]] = {"upper": [], "lower": [], "own": []}
    for at, point in zip(places, run.points, strict=True):
        for key, value in (("upper", point.upper), ("lower", point.lower), ("own", point.own)):
            if value is not None and (value > 0 or key != "upper"):
                series[key].append((x(at), y(max(0.0, value / best))))
    for key, points in series.items():
        if len(points) > 1:
            parts.append(svg.path(points, f"line-{key}"))
        parts += [svg.tag("circle", cx=px, cy=py, r=2.5, class_=f"dot-{key}") for px, py in points[-1:]]
    marks = [(x(10.0**e), _decade(e)) for e in svg.decades(low, high, 5)]
    parts.append(svg.bottom_axis(frame, marks, name))
    last = run.points[-1]
    shares = [f"{value / best:.3g}" if value is not None else "nothing" for value in (last.own, last.lower, last.upper)]
    description = (
        f"At the end, as shares of the best upper bound: its own hyperplane {shares[0]}, the best one {shares[1]}, its "
        f"upper bound {shares[2]}."
    )
    key = f"bounds-{run.strategy}-{'reads' if 'reads' in name else 'seconds'}"
    return svg.drawing(key, frame, f"Bounds of {run.strategy} against {name}", description, parts)


def _decade(exponent: int) -> str:
    return f"{10.0**exponent:g}" if -4 < exponent < 5 else numbers.power_of_ten(exponent)


def _lesson_chart(lesson: Lesson, axis: str, width: int, *, log: bool) -> Markup:
    """Updates against dimensions or factors, on a logarithmic axis."""
    every = [value for counts in lesson.updates.values() for value in counts] + list(lesson.at_least)
    high, values = 2.0 * max(every), lesson.values
    frame = Frame(width, 270, 62, 16, 26, 44)
    y = Scale(0.8, high, frame.height - frame.bottom, frame.top, log=True)
    x = Scale(min(values), max(values), frame.left + 8, width - frame.right, log=log)
    exponents = svg.decades(0.8, high, 5)
    parts = [svg.text(2, 12, "updates (log scale)", "axis-name", "start")]
    parts.append(svg.value_axis(frame, y, [10.0**e for e in exponents], [_decade(e) for e in exponents]))
    if lesson.at_least:
        parts.append(svg.path(_points(x, y, values, lesson.at_least), "line-theorem"))
    for mark, counts in zip(LINES, lesson.updates.values(), strict=False):
        points = _points(x, y, values, counts)
        parts.append(svg.path(points, f"line-{mark}"))
        parts += [svg.tag("circle", cx=px, cy=py, r=3.0, class_=f"dot-{mark}") for px, py in points]
    parts.append(svg.bottom_axis(frame, [(x(value), f"{value:g}") for value in values], axis))
    description = "; ".join(
        f"{strategy}: {counts[0]:,} to {counts[-1]:,}" for strategy, counts in lesson.updates.items()
    )
    return svg.drawing("logarithmic" if log else "linear", frame, f"Updates against {axis}", description, parts)


def _points(x: Scale, y: Scale, places: Sequence[float], counts: Sequence[int]) -> list[tuple[float, float]]:
    return [(x(place), y(max(count, 0.8))) for place, count in zip(places, counts, strict=True)]
