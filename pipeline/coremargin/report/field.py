"""The plot of a decision function of two features, with its boundary, margins and support vectors."""

from __future__ import annotations

from dataclasses import dataclass
from itertools import pairwise
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from coremargin.report import svg
from coremargin.report.svg import Frame, Scale

if TYPE_CHECKING:
    from collections.abc import Sequence

    from markupsafe import Markup

Array = NDArray[Any]
Segment = tuple[tuple[float, float], tuple[float, float]]

#: Grid of the plot.
COLUMNS, ROWS = 121, 91
#: Rows drawn at most.
MOST = 800
#: Corners of a cell in order, from the lower left.
_CORNERS = ((0, 0), (0, 1), (1, 1), (1, 0))


@dataclass(frozen=True)
class Field:
    """values (ROWS, COLUMNS) of the function at x (COLUMNS,), y (ROWS,); points (m, 2) with their sides (m,) bool."""

    x: Array
    y: Array
    values: Array
    points: Array
    sides: Array
    names: tuple[str, str]


def extents(points: Array) -> tuple[Array, Array]:
    """Grid coordinates slightly beyond all rows (m, 2)."""
    low, high = points.min(axis=0), points.max(axis=0)
    pad = np.where(high > low, 0.12 * (high - low), np.maximum(np.abs(high), 1.0) * 0.1)
    return np.linspace(low[0] - pad[0], high[0] + pad[0], COLUMNS), np.linspace(low[1] - pad[1], high[1] + pad[1], ROWS)


def picture(field: Field, labels: Sequence[str], width: int) -> Markup:
    """Draw the plot; labels: of the negative and the positive class."""
    height = max(260, round(0.5 * width))
    frame = Frame(width, height, 62, 12, 12, 46)
    x = Scale(float(field.x[0]), float(field.x[-1]), frame.left, width - frame.right)
    y = Scale(float(field.y[0]), float(field.y[-1]), height - frame.bottom, frame.top)
    ticks = svg.nice_ticks(y.low, y.high, 5)
    parts = [
        *_sides(field, x, y),
        svg.value_axis(frame, y, ticks, svg.tick_labels(ticks)[0]),
        *[
            _lines(segments(field, level), x, y, name)
            for level, name in ((-1.0, "edge"), (1.0, "edge"), (0.0, "bound"))
        ],
        *_points(field, x, y),
        svg.number_axis(frame, x, field.names[0]),
        svg.text(4, 10, field.names[1], "axis-name", "start"),
    ]
    description = (
        f"The boundary between {labels[0]} and {labels[1]}, the margins on both sides of it, and "
        f"{len(field.points):,} support vectors."
    )
    return svg.drawing("field", frame, "The boundary", description, parts)


def _sides(field: Field, x: Scale, y: Scale) -> list[Markup]:
    """Cells where the function is negative, and where it is positive."""
    middle = field.values[:-1, :-1] + field.values[1:, 1:]
    found = []
    for positive, name in ((False, "field-negative"), (True, "field-positive")):
        boxes = []
        for row, mine in enumerate((middle > 0) == positive):
            ends = np.flatnonzero(np.diff(np.concatenate([[0], mine.astype(int), [0]])))
            top, bottom = y(float(field.y[row + 1])), y(float(field.y[row]))
            for start, stop in zip(ends[::2].tolist(), ends[1::2].tolist(), strict=True):
                left, right = x(float(field.x[start])), x(float(field.x[stop]))
                boxes.append((left, top, right - left, bottom - top))
        if boxes:
            found.append(svg.bars(boxes, name))
    return found


def segments(field: Field, level: float) -> list[Segment]:
    """Contour of a level by marching squares, as line segments."""
    above = field.values > level
    cells = above[:-1, :-1].astype(int) + above[1:, :-1] + above[1:, 1:] + above[:-1, 1:]
    found: list[Segment] = []
    for row, column in np.argwhere((cells > 0) & (cells < 4)).tolist():
        corners = [(row + up, column + right) for up, right in _CORNERS]
        crossed = [
            _between(field, one, other, level)
            for one, other in pairwise([*corners, corners[0]])
            if above[one] != above[other]
        ]
        found += list(zip(crossed[::2], crossed[1::2], strict=True))
    return found


def _between(field: Field, one: tuple[int, int], other: tuple[int, int], level: float) -> tuple[float, float]:
    """Linear interpolation along an edge of a cell."""
    a, b = float(field.values[one]), float(field.values[other])
    share = (level - a) / (b - a)
    return (
        float(field.x[one[1]] + share * (field.x[other[1]] - field.x[one[1]])),
        float(field.y[one[0]] + share * (field.y[other[0]] - field.y[one[0]])),
    )


def _lines(pieces: Sequence[Segment], x: Scale, y: Scale, name: str) -> Markup:
    d = "".join(f"M{x(a):.1f} {y(b):.1f}L{x(c):.1f} {y(e):.1f}" for (a, b), (c, e) in pieces)
    return svg.tag("path", d=d, class_=f"field-{name}")


def _points(field: Field, x: Scale, y: Scale) -> list[Markup]:
    """The rows, one path for each side."""
    found = []
    for positive, name in ((False, "field-row-negative"), (True, "field-row-positive")):
        mine = field.points[field.sides == positive]
        boxes = [(x(float(a)) - 1.75, y(float(b)) - 1.75, 3.5, 3.5) for a, b in mine]
        if boxes:
            found.append(svg.bars(boxes, name))
    return found
