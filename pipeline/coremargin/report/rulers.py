"""The certificate on a ruler: what is proven impossible, what was reached, and what epsilon requires."""

from __future__ import annotations

from functools import partial
from typing import TYPE_CHECKING

from coremargin.report import svg
from coremargin.report.charts import drawings
from coremargin.report.svg import Frame, Scale

if TYPE_CHECKING:
    from markupsafe import Markup

    from coremargin.report.numbers import Precision
    from coremargin.report.view import Claims

RULER = (460, 340)


def margin(claims: Claims) -> Markup | None:
    """Of a margin, which is maximised; None without a positive bound."""
    lower, upper = claims.lower, claims.upper
    if lower is None or upper is None or lower <= 0.0 or upper <= 0.0:
        return None
    return drawings(RULER, partial(_margin, lower, upper, (1.0 - claims.epsilon) * upper, claims.precision))


def value(claims: Claims, name: str = "value", thing: str = "classifier") -> Markup | None:
    """Of an objective, which is minimised: the ``name`` of the ``thing``; None without a positive lower bound."""
    lower, upper = claims.lower, claims.upper
    if lower is None or upper is None or lower <= 0.0:
        return None
    requested = lower / (1.0 - claims.epsilon)
    return drawings(RULER, partial(_value, lower, upper, requested, claims.precision, (name, thing)))


def _margin(lower: float, upper: float, requested: float, precision: Precision, width: int) -> Markup:
    """No classifier is beyond the right mark; this one is at the left mark."""
    frame = Frame(width, 132, 4, 4, 0, 0)
    floor = min(lower, requested)
    scale = Scale(floor, upper, width * 0.16, width - 132.0)  # space for text on the right
    at_lower, at_upper, at_requested, y = scale(lower), scale(upper), scale(requested), 66.0
    end = width - frame.right
    early = at_lower < width * 0.42
    anchor = "start" if early else "end"
    x_label = at_lower - 5 if early else at_lower + 5
    parts = [
        svg.rect(at_upper, y - 9, end - at_upper, 18, "beyond"),
        svg.rect(frame.left, y - 9, at_lower - frame.left, 18, "reached"),
        svg.rect(at_lower, y - 9, at_upper - at_lower, 18, "gap-band"),
        svg.line(at_upper, y - 16, at_upper, y + 16, "mark-upper"),
        svg.line(at_lower, y - 16, at_lower, y + 16, "mark-lower"),
        svg.text(x_label, y - 40, "reached by this classifier", "note", anchor),
        svg.text(x_label, y - 23, precision.down(lower), "value-lower", anchor),
        svg.text(at_upper - 5, y + 34, precision.up(upper), "value-upper", "start"),
        svg.text(at_upper - 5, y + 52, "no classifier beyond", "note", "start"),
    ]
    if at_upper - at_requested > width * 0.3:  # else its label would run into the other
        parts += _required(at_requested, y, precision.nearest(requested), "required")
    description = f"Reached {precision.down(lower)}; proven impossible beyond {precision.up(upper)}."
    return svg.drawing("ruler", frame, "The certificate on a ruler", description, parts)


def _value(
    lower: float, upper: float, requested: float, precision: Precision, words: tuple[str, str], width: int
) -> Markup:
    """No ``thing`` is below the left mark; this one is at the right mark. words: the name of the value, the thing."""
    name, thing = words
    frame = Frame(width, 132, 4, 4, 0, 0)
    scale = Scale(lower, max(upper, requested), 132.0, width * 0.84)
    at_lower, at_upper, at_requested, y = scale(lower), scale(upper), scale(requested), 66.0
    end = width - frame.right
    right = at_upper > width * 0.58
    side, shift = ("end", 5) if right else ("start", -5)
    parts = [
        svg.rect(frame.left, y - 9, at_lower - frame.left, 18, "beyond"),
        svg.rect(at_upper, y - 9, end - at_upper, 18, "reached"),
        svg.rect(at_lower, y - 9, at_upper - at_lower, 18, "gap-band"),
        svg.line(at_lower, y - 16, at_lower, y + 16, "mark-lower"),
        svg.line(at_upper, y - 16, at_upper, y + 16, "mark-upper"),
        svg.text(at_upper + shift, y - 40, f"{name} of this {thing}", "note", side),
        svg.text(at_upper + shift, y - 23, precision.up(upper), "value-upper", side),
        svg.text(at_lower + 5, y + 34, precision.down(lower), "value-lower", "end"),
        svg.text(at_lower + 5, y + 52, f"no {thing} below", "note", "end"),
    ]
    if at_requested - at_lower > width * 0.3:  # else its label would run into the other
        parts += _required(at_requested, y, precision.nearest(requested), "required")
    description = f"{name.capitalize()} {precision.up(upper)}; proven impossible below {precision.down(lower)}."
    return svg.drawing("ruler", frame, "The certificate on a ruler", description, parts)


def _required(x: float, y: float, number: str, words: str) -> list[Markup]:
    """The mark of the value that epsilon requires, with two lines of text."""
    return [
        svg.line(x, y - 9, x, y + 16, "mark-limit"),
        svg.text(x, y + 34, number, "value", "middle"),
        svg.text(x, y + 52, words, "note", "middle"),
    ]
