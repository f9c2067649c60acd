"""The bar chart of feature effects, positive to the right and negative to the left.

Names of columns may be of any length; tooltips have the full name.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

from coremargin.report import svg
from coremargin.report.numbers import significant, visible
from coremargin.report.svg import Frame, Scale

if TYPE_CHECKING:
    from markupsafe import Markup

_LINE = 24  # pixels per bar
_NAMES = 0.36  # of the width, at most


def influence(
    key: str, effects: Sequence[tuple[str, float]], about: str, width: int, *, title: str | None = None
) -> Markup:
    """Bars of (name, effect); key: id of the drawing; about: the class; title: replaces the default."""
    names = [visible(name) for name, _ in effects]
    longest = int(_NAMES * width / svg.CHARACTER)
    shown = [name if len(name) <= longest else name[: longest - 1] + "\u2026" for name in names]
    left = max(map(len, shown)) * svg.CHARACTER + 14
    frame = Frame(width, len(effects) * _LINE + 12, left, 4, 4, 8)
    scale = _scale(frame, [effect for _, effect in effects])
    parts = [svg.line(scale(0.0), frame.top, scale(0.0), frame.height - frame.bottom, "axis")]
    for number, ((_, effect), name, full) in enumerate(zip(effects, shown, names, strict=True)):
        parts += _bar(frame, scale, frame.top + number * _LINE, name, f"{full}: {significant(effect)}", effect)
    first = f"{names[0]} ({significant(effects[0][1])})"
    description = f"{len(effects)} features, the most important first: {first}. The table has all numbers."
    return svg.drawing(key, frame, title or f"Features in favour of and against {about}", description, parts)


def _scale(frame: Frame, effects: Sequence[float]) -> Scale:
    """Scale of effects with space for numbers at both ends."""
    negative, positive = [effect for effect in effects if effect <= 0], [effect for effect in effects if effect > 0]
    before, behind = (
        max((len(significant(effect)) for effect in some), default=-2) * svg.CHARACTER + 14
        for some in (negative, positive)
    )
    low, high = min([0.0, *negative]), max([0.0, *positive])
    return Scale(low, high, frame.left + before, frame.width - frame.right - behind)


def _bar(frame: Frame, scale: Scale, top: float, name: str, tip: str, effect: float) -> list[Markup]:
    """Name, bar and number."""
    base, end = scale(0.0), scale(effect)
    side = "positive" if effect > 0 else "negative"
    beyond = (end + 6, "start") if effect > 0 else (end - 6, "end")
    return [
        svg.text(frame.left - 8, top + 16, name, anchor="end"),
        svg.rect(min(base, end), top + 4, abs(end - base), _LINE - 8.0, f"bar-{side}"),
        svg.text(beyond[0], top + 16, significant(effect), "note", beyond[1]),
        svg.rect(0.0, top, float(frame.width), float(_LINE), "hover", tip),
    ]
