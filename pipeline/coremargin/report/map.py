"""The map of the store: which parts each stage and scan read."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

from coremargin.formats.run_record import parts_of, step_name
from coremargin.report import svg
from coremargin.report.numbers import count, finite
from coremargin.report.svg import Frame, Scale

if TYPE_CHECKING:
    from markupsafe import Markup

Round = Mapping[str, Any]

LINE, GAP = 18, 4  #: pixels of a line, and between lines
SHADES = 4  #: for the share of a part that was read
MOST = 24  #: rounds drawn at most


def rounds_to_draw(rounds: Sequence[Round]) -> list[Round]:
    """Rounds to draw, if any round was read in parts."""
    if not any(row.get("where") for row in rounds):
        return []
    return [row for row in rounds if row.get("kind") != "sample" and _shares(row)][:MOST]


def _shares(row: Round) -> list[float]:
    """Share of each part of the store that a round read; empty if not known."""
    chunks, read = finite(row.get("chunks")), finite(row.get("chunks_read"))
    if not chunks or read is None:
        return []
    sizes = parts_of(int(chunks))
    if not row.get("where"):
        return [1.0] * len(sizes) if read == chunks else []
    counts = [finite(value) or 0.0 for value in row["where"]]
    return [min(1.0, c / size) for c, size in zip(counts, sizes, strict=True)] if len(counts) == len(sizes) else []


def store_map(rounds: Sequence[Round], width: int) -> Markup:
    """A line for each round, a column for each part of the store, shaded by the share that was read."""
    names = [_line_name(row, width) for row in rounds]
    left = max(len(name) for name in names) * svg.CHARACTER + 14
    frame = Frame(width, len(rounds) * (LINE + GAP) + 64, left, 10, 22, 42)
    x = Scale(0.0, 1.0, frame.left, width - frame.right)
    parts = [svg.text(2, 12, "read", "axis-name", "start")]
    for line, (row, name) in enumerate(zip(rounds, names, strict=True)):
        top, shares = frame.top + line * (LINE + GAP), _shares(row)
        parts.append(svg.rect(frame.left, top, x(1.0) - frame.left, LINE, "unread"))
        for shade in range(1, SHADES + 1):
            boxes = [
                (x(start), top, x(stop) - x(start), LINE)
                for start, stop, share in _columns(shares)
                if math.ceil(share * SHADES) == shade
            ]
            if boxes:
                parts.append(svg.bars(boxes, f"read part-{shade}"))
        parts.append(svg.text(frame.left - 8, top + LINE - 5, name, anchor="end"))
        parts.append(svg.rect(frame.left, top, x(1.0) - frame.left, LINE, "hover", _describe(row)))
    marks = [(x(share), f"{share:.0%}".replace("%", "\u00a0%")) for share in (0.0, 0.25, 0.5, 0.75, 1.0)]
    parts.append(svg.bottom_axis(frame, marks, "position in the store"))
    return svg.drawing("map", frame, "Where each round read", "; ".join(_describe(row) for row in rounds) + ".", parts)


def _columns(shares: Sequence[float]) -> list[tuple[float, float, float]]:
    """Start, stop and share of each part, as shares of the store."""
    return [(k / len(shares), (k + 1) / len(shares), share) for k, share in enumerate(shares)]


def _line_name(row: Round, width: int) -> str:
    """Name of a line, short in narrow drawings."""
    if row.get("kind") == "stage":
        return f"stage {row.get('stage')}"
    return (
        f"scan {row.get('round')}" if width < 600 or row.get("kind") != "scan" else f"scan {row.get('round')}, re-read"
    )


def _describe(row: Round) -> str:
    name = step_name(row)
    return f"{name[:1].upper()}{name[1:]} read {count(row.get('chunks_read'))} of {count(row.get('chunks'))} chunks"
