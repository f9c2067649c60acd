"""The picture of a soft margin: all rows by their margin, in three zones.

A row's margin is y (w.x + b): below 0 it lies on the wrong side, below 1 it costs something, from 1 on it is free.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

from coremargin.report import svg
from coremargin.report.numbers import count, rows_between
from coremargin.report.svg import Frame, Scale

if TYPE_CHECKING:
    from markupsafe import Markup

ZONES = ("on the wrong side", "within the margin", "beyond it")


@dataclass(frozen=True)
class MarginBin:
    """Rows of both classes with a margin in [low, high)."""

    low: float
    high: float
    negative: float
    positive: float

    @property
    def rows(self) -> float:
        """Of both classes."""
        return self.negative + self.positive


def margins(bins: Sequence[MarginBin], width: int) -> Markup:
    """Rows per bin of margin, the classes on top of each other; what is wrong and what costs stands on other ground."""
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
    """What the lines at 0 and 1 are, where there is room to say it beside them."""
    top = frame.top - 14
    at_plane, at_one = x(0.0), x(1.0)
    wide = len("hyperplane") * svg.CHARACTER
    left = svg.text(max(at_plane - 4, wide), top, "hyperplane", "note", "end")
    right = min(at_one + 4, frame.width - wide)
    return [left, svg.text(right, top, "margin 1", "value-lower", "start")]
