"""The histogram of signed distances to the hyperplane, with one class on each side.

A negative row with margin m is drawn at -m, a positive one at +m, so that the empty corridor is visible, and rows on
the wrong side are drawn there.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import pairwise
from typing import TYPE_CHECKING, Any

from coremargin.report import svg
from coremargin.report.numbers import Precision, count, finite, rows_between
from coremargin.report.svg import Frame, Scale

if TYPE_CHECKING:
    from markupsafe import Markup


@dataclass(frozen=True)
class Bin:
    """Rows of one class with signed distance in [low, high)."""

    low: float
    high: float
    rows: float
    side: str  #: "negative" or "positive"
    height: float  #: rows per regular width


def signed_bins(histogram: Mapping[str, Any] | None, lower: float | None = None) -> list[Bin]:
    """Bins of both classes by signed distance; empty without a complete histogram.

    A bin of the final hypothesis that extends below the proven margin ``lower`` is cut there: no row lies below.
    """
    if not histogram:
        return []
    edges = [finite(e) for e in histogram.get("edges") or ()]
    found: list[Bin] = []
    for side in ("negative", "positive"):
        counts = [finite(rows) or 0.0 for rows in histogram.get(side) or ()]
        spans = [
            Bin(low, high, rows, side, rows)
            for low, high, rows in zip(edges, edges[1:], counts, strict=False)
            if low is not None and high is not None and high > low
        ]
        if lower is not None and histogram.get("hypothesis") == "final":
            spans = _cut(spans, lower)
        found += [_mirrored(part) if side == "negative" else part for part in spans if part.rows]
    return sorted(found, key=lambda part: (part.low, part.side))


def _cut(bins: list[Bin], lower: float) -> list[Bin]:
    """Start the bin around ``lower`` there, and merge it with the next, since it may be very narrow."""
    for k, (part, after) in enumerate(pairwise(bins)):
        if part.low < lower < part.high:
            rows = part.rows + after.rows
            height = rows * (after.high - after.low) / (after.high - lower)
            return [*bins[:k], Bin(lower, after.high, rows, part.side, height), *bins[k + 2 :]]
    return bins


def _mirrored(part: Bin) -> Bin:
    return replace(part, low=-part.high, high=-part.low)


def histogram(
    bins: Sequence[Bin],
    lower: float | None,
    precision: Precision,
    width: int,
    *,
    none_within: tuple[str, str] = ("no row", "none"),
) -> Markup:
    """Rows per bin of both classes, the hyperplane, and the proven margin on both sides.

    none_within: what no row within the margin is called, in the plot and in its description, if some rows may be there.
    """
    no_row, none = none_within
    low, high = svg.padded([*(b.low for b in bins), *(b.high for b in bins), 0.0], 0.02)
    heights = sorted(b.height for b in bins)
    log = heights[-1] > 500.0 * heights[len(heights) // 2]
    if log:
        ticks = [10.0**e for e in svg.decades(1.0, heights[-1] * 1.5, 5)]
        labels = [count(t) for t in ticks]
    else:
        ticks = [t for t in svg.nice_ticks(0.0, heights[-1] * 1.08, 4) if t == int(t)]
        labels = [count(t) for t in ticks]
    frame = Frame(width, 330, max(map(len, labels)) * svg.CHARACTER + 14, 10, 44, 44)
    x = Scale(low, high, frame.left, width - frame.right)
    floor = 0.5 if log else 0.0
    y = Scale(floor, heights[-1] * (1.5 if log else 1.08), frame.height - frame.bottom, frame.top, log=log)
    parts = [
        svg.text(2, 12, "rows per bin" + (" (log scale)" if log else ""), "axis-name", "start"),
        *_corridor(frame, x, lower),
        svg.value_axis(frame, y, ticks, labels),
    ]
    base = frame.height - frame.bottom
    parts += [
        svg.bars([_box(b, x, y, base) for b in bins if b.side == side], f"bar-{side}")
        for side in ("negative", "positive")
    ]
    parts += _marks(frame, x, lower, f"{no_row} within \u00b1\u00a0{precision.down(lower)}")
    parts.append(svg.number_axis(frame, x, "distance to the hyperplane, by class side"))
    parts += svg.tips(frame, x, [(b.low, b.high, rows_between(b.rows, b.low, b.high)) for b in bins])
    proven = f"{none} closer to the hyperplane than {precision.down(lower)}."
    description = (
        f"{count(sum(b.rows for b in bins))} rows; {proven if lower and lower > 0 else 'classes may overlap.'}"
    )
    return svg.drawing("margins", frame, "Signed distance of all rows to the hyperplane", description, parts)


def _box(part: Bin, x: Scale, y: Scale, base: float) -> tuple[float, float, float, float]:
    """A bar, with gaps between wide bars."""
    thick = x(part.high) - x(part.low)
    return x(part.low), y(part.height), max(thick - 0.6 if thick >= 5.0 else thick, 0.6), base - y(part.height)


def _corridor(frame: Frame, x: Scale, lower: float | None) -> list[Markup]:
    if lower is None or lower <= 0.0:
        return []
    return [svg.rect(x(-lower), frame.top, x(lower) - x(-lower), frame.height - frame.bottom - frame.top, "corridor")]


def _marks(frame: Frame, x: Scale, lower: float | None, label: str) -> list[Markup]:
    base, top = frame.height - frame.bottom, frame.top
    parts = [svg.line(x(0.0), top - 8, x(0.0), base, "mark-plane")]
    if lower is None or lower <= 0.0:
        return [*parts, svg.text(x(0.0), top - 14, "hyperplane", "note")]
    parts += [svg.line(x(side), top - 8, x(side), base, "mark-lower") for side in (-lower, lower)]
    half = len(label) * 4.2
    middle = min(max(x(0.0), half), frame.width - half)  # keep the label inside of the drawing
    return [*parts, svg.text(middle, top - 14, label, "value-lower")]
