"""Building blocks of charts: scales, ticks, axes and escaped SVG text.

Coordinates are CSS pixels of a drawing that is shown at its own size or slightly larger. Marks have classes, and the
style sheet gives them colours for light and dark mode.

No plotting library is used: a page is one file that loads nothing and runs no script, is the same to the byte for the
same model, and adapts to colours and width by its style sheet.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from itertools import pairwise

from markupsafe import Markup, escape

from coremargin.report.numbers import Precision, magnitude, power_of_ten

CHARACTER = 6.7  #: width of one digit of axis text, pixels
_DIGITS = 16  # of a float


@dataclass(frozen=True)
class Frame:
    """The plotting area inside a drawing of ``width`` x ``height``."""

    width: int
    height: int
    left: float
    right: float
    top: float
    bottom: float


@dataclass(frozen=True)
class Scale:
    """Maps values in [low, high] to pixels in [start, stop]; ``log`` maps their logarithms."""

    low: float
    high: float
    start: float
    stop: float
    log: bool = False

    def __call__(self, value: float) -> float:
        """Pixel of a value; values outside of the range are drawn at its ends."""
        low, high = self.low, self.high
        if self.log:
            low, high, value = math.log10(low), math.log10(high), math.log10(max(value, self.low))
        span = high - low
        share = (value - low) / span if span else 0.5
        return self.start + (self.stop - self.start) * min(max(share, 0.0), 1.0)


def padded(values: Iterable[float], share: float = 0.08) -> tuple[float, float]:
    """A range slightly wider than the values, never empty."""
    listed = list(values)
    low, high = min(listed), max(listed)
    pad = (high - low) * share or abs(high) * 0.01 or 1.0
    return low - pad, high + pad


def nice_ticks(low: float, high: float, wanted: int) -> list[float]:
    """About ``wanted`` round numbers (1, 2, 5 times a power of ten) within [low, high]."""
    raw = (high - low) / max(wanted, 1)
    if not raw > 0.0:
        return [low]
    exponent = magnitude(raw)
    step = next(s * 10.0**exponent for s in (1.0, 2.0, 5.0, 10.0) if s * 10.0**exponent >= raw * 0.999999)
    first, last = math.ceil(low / step - 1e-9), math.floor(high / step + 1e-9)
    return [i * step for i in range(first, last + 1)]


def tick_labels(ticks: Sequence[float]) -> tuple[list[str], str]:
    """Labels with as many digits as the step needs, and the common power of ten ("" for none)."""
    top = max((abs(t) for t in ticks), default=0.0)
    leading = magnitude(top)
    exponent = 0 if -4 < leading < 6 else leading
    step = min((b - a for a, b in pairwise(ticks)), default=top or 1.0)
    wanted, known = exponent - magnitude(step * 1.000001), exponent - leading + _DIGITS
    precision = Precision(max(min(wanted, known), 0), exponent)
    return [precision.tick(t) for t in ticks], power_of_ten(exponent) if exponent else ""


def decades(low: float, high: float, wanted: int = 6) -> list[int]:
    """Exponents of the powers of ten within [low, high], thinned to about ``wanted``."""
    first, last = math.ceil(math.log10(low) - 1e-9), math.floor(math.log10(high) + 1e-9)
    step = max(1, math.ceil((last - first + 1) / wanted))
    return list(range(first, last + 1, step))


def tag(name: str, content: str = "", **attributes: object) -> Markup:
    """One SVG element; names like ``text_anchor`` become ``text-anchor``, ``class_`` becomes ``class``."""
    written = "".join(
        f' {key.rstrip("_").replace("_", "-")}="{escape(_number(value))}"' for key, value in attributes.items()
    )
    return Markup(f"<{name}{written}>{escape(content)}</{name}>")


def _number(value: object) -> object:
    return f"{value:.2f}".rstrip("0").rstrip(".") if isinstance(value, float) else value


def text(x: float, y: float, content: str, class_: str = "tick", anchor: str = "middle") -> Markup:
    """A line of text, escaped."""
    return tag("text", escape(content), x=x, y=y, class_=class_, text_anchor=anchor)


def line(x1: float, y1: float, x2: float, y2: float, class_: str) -> Markup:
    """A straight line."""
    return tag("line", x1=x1, y1=y1, x2=x2, y2=y2, class_=class_)


def rect(x: float, y: float, width: float, height: float, class_: str, title: str = "") -> Markup:
    """A rectangle; title: its tooltip."""
    content = tag("title", escape(title)) if title else ""
    return tag("rect", content, x=x, y=y, width=max(width, 0.0), height=max(height, 0.0), class_=class_)


def path(points: Sequence[tuple[float, float]], class_: str, *, closed: bool = False) -> Markup:
    """A line through points."""
    d = "M" + "L".join(f"{x:.2f} {y:.2f}" for x, y in points) + ("Z" if closed else "")
    return tag("path", d=d, class_=class_)


def bars(boxes: Iterable[tuple[float, float, float, float]], class_: str) -> Markup:
    """Many rectangles (x, y, width, height) as one path, without seams."""
    d = "".join(f"M{x:.2f} {y:.2f}h{w:.2f}v{h:.2f}h{-w:.2f}z" for x, y, w, h in boxes)
    return tag("path", d=d, class_=class_)


def drawing(name: str, frame: Frame, title: str, description: str, parts: Iterable[str]) -> Markup:
    """The SVG element, with title and description for screen readers."""
    key = f"{name}-{frame.width}"
    head = tag("title", escape(title), id=f"{key}-title") + tag("desc", escape(description), id=f"{key}-desc")
    return tag(
        "svg",
        head + Markup("").join(parts),
        class_=f"w{frame.width}",
        viewBox=f"0 0 {frame.width} {frame.height}",
        role="img",
        aria_labelledby=f"{key}-title {key}-desc",
    )


def value_axis(frame: Frame, scale: Scale, ticks: Sequence[float], labels: Sequence[str]) -> Markup:
    """Horizontal grid lines with their labels on the left."""
    parts = []
    for value, label in zip(ticks, labels, strict=True):
        y = scale(value)
        parts.append(line(frame.left, y, frame.width - frame.right, y, "grid"))
        parts.append(text(frame.left - 8, y + 4, label, anchor="end"))
    return Markup("").join(parts)


def bottom_axis(frame: Frame, marks: Iterable[tuple[float, str]], name: str) -> Markup:
    """Base line, labels and name of the axis."""
    base = frame.height - frame.bottom
    parts = [line(frame.left, base, frame.width - frame.right, base, "axis")]
    for x, label in marks:
        parts += [line(x, base, x, base + 4, "axis"), text(x, base + 18, label)]
    parts.append(text((frame.left + frame.width - frame.right) / 2, frame.height - 6, name, "axis-name"))
    return Markup("").join(parts)


def number_axis(frame: Frame, x: Scale, name: str) -> Markup:
    """A horizontal axis of numbers; their common factor is added to the name."""
    ticks = nice_ticks(x.low, x.high, max(int(frame.width / 80), 5))
    labels, unit = tick_labels(ticks)
    marks = [(x(tick), label) for tick, label in zip(ticks, labels, strict=True)]
    return bottom_axis(frame, marks, name + (f" (\u00d7 {unit})" if unit else ""))


def tips(frame: Frame, x: Scale, bars: Iterable[tuple[float, float, str]]) -> list[Markup]:
    """Tooltips of bars (low, high, text) that are at least two pixels wide."""
    height = frame.height - frame.bottom - frame.top
    wide = [(x(low), x(high) - x(low), text) for low, high, text in bars if x(high) - x(low) >= 2.0]
    return [rect(left, frame.top, width, height, "hover", text) for left, width, text in wide]
