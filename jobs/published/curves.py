"""Lines with their names, as an SVG picture that needs nothing else: what the scripts here draw.

Published values are dots beside the lines. Colours are told apart without colour vision, and so are the dashes.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path

from coremargin.report.svg import (
    Frame,
    Scale,
    bottom_axis,
    nice_ticks,
    number_axis,
    tag,
    text,
    tick_labels,
    value_axis,
)

WIDTH, HEIGHT = 460, 320
_COLOURS = ("#0072b2", "#d55e00", "#009e73", "#cc79a7", "#555555")
_DASHES = ("none", "7 3", "2 3", "9 3 2 3", "4 4")
_STYLE = (
    "text{font:12px sans-serif;fill:#333}.axis{stroke:#333}.grid{stroke:#ddd}.name{font-weight:600}"
    ".line{fill:none;stroke-width:2} .word{font-size:11px}"
)

Points = Sequence[tuple[float, float]]


@dataclass(frozen=True)
class Panel:
    """A diagram. lines: (x, y) by name; published: (x, y) that others state; low, high: of the values, where given.

    log: both by their logarithms; words: by name of a line what its points, which are then dots, are called; below: the
    lines whose words stand below them.
    """

    title: str
    x: str
    lines: Mapping[str, Points]
    published: Points = ()
    low: float | None = None
    high: float | None = None
    log: bool = False
    words: Mapping[str, Sequence[str]] = field(default_factory=dict)
    below: Sequence[str] = ()


def draw(file: Path, panels: Sequence[Panel], note: str) -> None:
    """Write panels side by side, with a line of text below. Beyond what a panel shows lines run along its edge."""
    parts: list[str] = [tag("rect", width="100%", height="100%", fill="white"), tag("style", _STYLE)]
    for place, panel in enumerate(panels):
        parts.append(f'<g transform="translate({place * WIDTH} 0)">{"".join(_panel(panel))}</g>')
    parts.append(text(12, HEIGHT + 14, note, anchor="start"))
    size = f'width="{WIDTH * len(panels)}" height="{HEIGHT + 24}"'
    head = f'<svg xmlns="http://www.w3.org/2000/svg" {size} viewBox="0 0 {WIDTH * len(panels)} {HEIGHT + 24}">'
    file.write_text(head + "".join(parts) + "</svg>\n", encoding="utf-8")


def _panel(panel: Panel) -> list[str]:
    frame = Frame(WIDTH, HEIGHT, 58, 14, 44 + 16 * ((len(panel.lines) + 2) // 2), 44)
    points = [point for line in panel.lines.values() for point in line] + list(panel.published)
    low = min(y for _, y in points) if panel.low is None else panel.low
    high = max(y for _, y in points) * 1.05 if panel.high is None else panel.high
    x = _across(frame, [x for x, _ in points], log=panel.log)
    y = Scale(low, high, frame.height - frame.bottom, frame.top, panel.log)
    ticks = _decimals(y) if panel.log else nice_ticks(low, high, 5)
    parts: list[str] = [
        text(12, 18, panel.title, "name", anchor="start"),
        value_axis(frame, y, ticks, tick_labels(ticks)[0]),
        bottom_axis(frame, [(x(tick), f"{tick:g}") for tick in _decimals(x)], panel.x)
        if panel.log
        else number_axis(frame, x, panel.x),
    ]  # fmt: skip
    for place, (name, line) in enumerate(panel.lines.items()):
        look = f"stroke:{_COLOURS[place]};stroke-dasharray:{_DASHES[place]}"
        at, top = 12 + WIDTH / 2 * (place % 2), 36 + 16 * (place // 2)
        key = tag("path", d=f"M{at} {top - 4}h26", class_="line", style=look)
        drawn = "M" + "L".join(f"{x(a):.1f} {y(b):.1f}" for a, b in line)
        shown = tag("path", d=drawn, class_="line", style=look)
        parts += [key, text(at + 32, top, name, anchor="start"), shown]
        for (a, b), word in zip(line, panel.words.get(name, ()), strict=False):
            parts.append(tag("circle", cx=x(a), cy=y(b), r=3.5, fill=_COLOURS[place]))
            beside = (-5, 14, "end") if name in panel.below else (6, -6, "start")
            parts.append(text(x(a) + beside[0], y(b) + beside[1], word, "word", anchor=beside[2]))
    for a, b in panel.published:
        parts.append(tag("circle", cx=x(a), cy=y(b), r=4, fill="none", stroke="black", stroke_width=2))
    return parts


def _across(frame: Frame, values: Sequence[float], *, log: bool) -> Scale:
    """Of the values along the bottom; by logarithms a little wider, for what stands beside the points."""
    low, high = (min(values) / 1.2, max(values) * 1.5) if log else (min(values), max(values))
    return Scale(low, high, frame.left, frame.width - frame.right, log)


def _decimals(scale: Scale) -> list[float]:
    """1, 2 and 5 times powers of ten, as far as a scale goes."""
    powers = range(math.floor(math.log10(scale.low)), math.ceil(math.log10(scale.high)) + 1)
    ticks = [share * 10.0**power for power in powers for share in (1, 2, 5)]
    return [tick for tick in ticks if scale.low <= tick <= scale.high]
