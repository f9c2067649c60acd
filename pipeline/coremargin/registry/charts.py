"""Pictures of a registry's page: the last nights, and what a score was against what was asked of it."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

from coremargin.report import svg
from coremargin.report.svg import Frame, Scale

if TYPE_CHECKING:
    from markupsafe import Markup

_NAMED = 76.0  # pixels from one date to the next, at least


@dataclass(frozen=True)
class NightMark:
    """A night: when, as it is shown; rows that came; its kind: "good", "refused" or "failed"; tip: all about it."""

    when: str
    rows: int
    kind: str
    tip: str


def nights(marks: Sequence[NightMark], width: int) -> Markup:
    """A bar for each night, as high as rows came, in the colour of how it ended; below it a mark of the same colour."""
    frame = Frame(width, 210, 56, 10, 14, 52)
    most = max((mark.rows for mark in marks), default=0)
    y = Scale(0.0, float(max(most, 1)), frame.height - frame.bottom, frame.top)
    step = (frame.width - frame.left - frame.right) / len(marks)
    ticks = [tick for tick in svg.nice_ticks(0.0, float(max(most, 1)), 4) if tick == int(tick)]
    parts = [svg.value_axis(frame, y, ticks, [f"{int(tick):,}" for tick in ticks])]
    base, named = frame.height - frame.bottom, -_NAMED
    for number, mark in enumerate(marks):
        left, wide = frame.left + number * step + step * 0.14, step * 0.72
        top = y(float(mark.rows))
        parts.append(svg.rect(left, top, wide, base - top, f"night-{mark.kind}"))
        parts.append(svg.rect(left, base + 7, wide, 7.0, f"night-{mark.kind}"))
        parts.append(svg.rect(frame.left + number * step, frame.top, step, base - frame.top + 16, "hover", mark.tip))
        if left - named >= _NAMED:
            parts.append(svg.text(left + wide / 2, base + 32, mark.when))
            named = left
    parts.append(svg.line(frame.left, base, frame.width - frame.right, base, "axis"))
    parts.append(
        svg.text(
            frame.left + (frame.width - frame.left - frame.right) / 2, frame.height - 2, "rows that came", "axis-name"
        )
    )
    bad = [mark for mark in marks if mark.kind != "good"]
    told = f"{len(marks)} nights, {len(bad)} of which were refused by a gate or failed; up to {most:,} rows came."
    return svg.drawing("nights", frame, "The last nights", told, parts)


@dataclass(frozen=True)
class ScoreMark:
    """What a version scored, what was asked of it, and whether it passed all of its gates."""

    version: int
    found: float
    asked: float
    ok: bool


def scores(marks: Sequence[ScoreMark], name: str, width: int) -> Markup:
    """A dot for the score of each version that gates were asked about, over the line that it had to reach."""
    frame = Frame(width, 210, 62, 14, 14, 40)
    asked = [mark.asked for mark in marks if mark.asked > 0.0]
    low, high = svg.padded([*(mark.found for mark in marks), *asked])
    y = Scale(low, min(high, 1.0 + (high - low) * 0.05), frame.height - frame.bottom, frame.top)
    step = (frame.width - frame.left - frame.right) / len(marks)
    ticks = [tick for tick in svg.nice_ticks(y.low, y.high, 4) if tick <= 1.0]
    parts = [svg.value_axis(frame, y, ticks, svg.tick_labels(ticks)[0])]
    centres = [frame.left + (number + 0.5) * step for number in range(len(marks))]
    parts.append(svg.path([(x, y(mark.found)) for x, mark in zip(centres, marks, strict=True)], "line-score"))
    named = -1000.0
    for x, mark in zip(centres, marks, strict=True):
        if mark.asked > 0.0:
            parts.append(svg.line(x - step * 0.36, y(mark.asked), x + step * 0.36, y(mark.asked), "mark-asked"))
        kind = "night-good" if mark.ok else "night-refused"
        parts.append(svg.tag("circle", cx=x, cy=y(mark.found), r=4.0, class_=kind))
        tip = f"version {mark.version}: {mark.found:.6g}, at least {mark.asked:.6g} was asked for"
        parts.append(svg.rect(x - step / 2, frame.top, step, frame.height - frame.bottom - frame.top, "hover", tip))
        if x - named >= 34.0:
            parts.append(svg.text(x, frame.height - frame.bottom + 18, str(mark.version)))
            named = x
    base = frame.height - frame.bottom
    parts.append(svg.line(frame.left, base, frame.width - frame.right, base, "axis"))
    parts.append(svg.text((frame.left + frame.width - frame.right) / 2, frame.height - 4, "version", "axis-name"))
    last = marks[-1]
    told = f"{name} of {len(marks)} versions on the held-out rows; version {last.version} has {last.found:.6g}."
    return svg.drawing(f"scores-{name}", frame, f"{name} by version", told, parts)
