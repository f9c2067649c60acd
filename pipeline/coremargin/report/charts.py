"""The charts of a report, as inline SVG.

Each function draws for one width. The page contains several widths, of which the style sheet shows the one that fits,
so that text keeps its size on a phone. Missing and non-finite values are omitted. svg.py explains why no plotting
library is used.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from typing import TYPE_CHECKING, Any

from markupsafe import Markup

from coremargin.formats.run_record import step_name
from coremargin.report import svg
from coremargin.report.map import rounds_to_draw, store_map
from coremargin.report.numbers import DASH, Precision, count, finite, power_of_ten, relative_gap, significant
from coremargin.report.svg import Frame, Scale
from coremargin.spec import format_size

if TYPE_CHECKING:
    from coremargin.report.view import Claims

FULL = (1040, 620, 340)  #: widths of a chart as wide as the page
HALF = (520, 340)  #: widths of a chart that shares a line with another

Round = Mapping[str, Any]


def drawings(widths: Sequence[int], draw: Callable[[int], Markup]) -> Markup:
    """The same chart for every width; the style sheet shows one of them."""
    return Markup("").join(draw(width) for width in widths)


def by_round(
    rounds: Sequence[Round], run: Mapping[str, Any], claims: Claims, *, of: str = "margin", closing: bool = True
) -> dict[str, Markup | None]:
    """Charts of the rounds by name; None if there are no numbers for a chart.

    of: the quantity that is bounded. closing: False if the run does not end by closing the gap.
    """
    found: dict[str, Markup | None] = {"bounds": None, "gaps": None, "bytes": reading(rounds, run)}
    where = rounds_to_draw(rounds)
    found["map"] = drawings(FULL, partial(store_map, where)) if where else None
    if rounds:
        found["bounds"] = drawings(HALF, partial(bounds, rounds, claims.precision, of=of))
    if closing and any(relative_gap(row) is not None for row in rounds):
        found["gaps"] = drawings(HALF, partial(gaps, rounds, claims.epsilon))
    return found


def reading(rounds: Sequence[Round], run: Mapping[str, Any]) -> Markup | None:
    """Bytes read in each round; None if they are not known."""
    store = finite(run.get("store_bytes"))
    return drawings(HALF, partial(bytes_per_round, rounds, store)) if rounds and store else None


@dataclass(frozen=True)
class RoundAxis:
    """The horizontal axis of rounds."""

    frame: Frame
    rounds: Sequence[Round]

    @property
    def band(self) -> float:
        """Pixels per round."""
        return (self.frame.width - self.frame.left - self.frame.right) / len(self.rounds)

    def centre(self, index: int) -> float:
        """x of the middle of a round's band."""
        return self.frame.left + (index + 0.5) * self.band

    def draw(self) -> Markup:
        """The axis, with as many labels as fit."""
        step = next(s for s in (1, 2, 5, 10, 20, 50, 100, 200, 500, 10**3, 10**4, 10**6) if s * self.band >= 34)
        marks = []
        for index, row in enumerate(self.rounds):
            plain, number = row.get("kind") not in ("sample", "stage"), row.get("round", index)
            if step == 1 or (plain and number % step == 0):
                marks.append((self.centre(index), str(number) if plain else _short_name(row, self.band)))
        return svg.bottom_axis(self.frame, marks, "round")

    def hover(self, describe: Callable[[Round], str]) -> Markup:
        """Tooltips with the numbers of each round, if columns are wide enough."""
        if self.band < 3:
            return Markup("")
        height = self.frame.height - self.frame.top - self.frame.bottom
        return Markup("").join(
            svg.rect(self.centre(i) - self.band / 2, self.frame.top, self.band, height, "hover", describe(row))
            for i, row in enumerate(self.rounds)
        )


def _short_name(row: Round, width: float) -> str:
    """Label of a sample or a stage that fits in ``width`` pixels."""
    if row.get("kind") == "sample":
        return ("changes" if row.get("changed") else "sample") if width >= 48 else "0"
    return f"stage {row.get('stage')}" if width >= 52 else f"s{row.get('stage')}"


def capitalised_name(row: Round) -> str:
    """Name of a round, capitalised."""
    name = step_name(row)
    return name[:1].upper() + name[1:]


def _axis_frame(width: int, height: int, labels: Sequence[str], *, top: float = 26) -> Frame:
    left = max(len(label) for label in labels) * svg.CHARACTER + 14
    return Frame(width, height, left, 10, top, 44)


def bounds(rounds: Sequence[Round], precision: Precision, width: int, *, of: str = "margin") -> Markup:
    """Lower and upper bounds by round with the gap between them; of: the quantity that is bounded."""
    lows = [(i, v) for i, r in enumerate(rounds) if (v := finite(r.get("lower"))) is not None]
    ups = [(i, v) for i, r in enumerate(rounds) if (v := finite(r.get("upper"))) is not None]
    tried = [(i, v) for i, r in enumerate(rounds) if (v := finite(r.get("lower_now"))) is not None]
    tried = tried if of == "margin" else []
    low, high = svg.padded([v for _, v in lows + ups + tried] or [0.0, 1.0])
    ticks = svg.nice_ticks(low, high, 5)
    labels, unit = svg.tick_labels(ticks)
    frame = _axis_frame(width, 270, labels)
    scale = Scale(low, high, frame.height - frame.bottom, frame.top)
    axis = RoundAxis(frame, rounds)

    def points(series: Sequence[tuple[int, float]]) -> list[tuple[float, float]]:
        return [(axis.centre(i), scale(v)) for i, v in series]

    both = {i for i, _ in lows} & {i for i, _ in ups}
    parts = [svg.text(2, 12, of + (f" \u00d7 {unit}" if unit else ""), "axis-name", "start")]
    parts.append(svg.value_axis(frame, scale, ticks, labels))
    if both:
        over, under = points([p for p in ups if p[0] in both]), points([p for p in lows if p[0] in both])
        parts.append(svg.path(over + under[::-1], "gap-area", closed=True))
    dots = axis.band >= 12
    ring, name = (5.5, "dot-tried") if dots else (1.5, "dot-tried many")
    parts += [svg.tag("circle", cx=x, cy=y, r=ring, class_=name) for x, y in points(tried)]
    parts += _series(points(ups), "upper", dots=dots)
    parts += _series(points(lows), "lower", dots=dots)
    parts.append(axis.draw())
    parts.append(
        axis.hover(
            lambda r: (
                f"{capitalised_name(r)}: lower {precision.down(r.get('lower'))}, upper {precision.up(r.get('upper'))}"
            )
        )
    )
    description = "No bounds yet."
    if rounds:
        last = rounds[-1]
        description = f"After {len(rounds)} rounds: lower bound {precision.down(last.get('lower'))}, upper bound "
        description += f"{precision.up(last.get('upper'))}. The table of rounds has all numbers."
    return svg.drawing("bounds", frame, f"Lower and upper bound of the {of}, by round", description, parts)


def _series(points: Sequence[tuple[float, float]], name: str, *, dots: bool) -> list[Markup]:
    """A line with dots, or with a dot on the last point only."""
    parts = [svg.path(points, f"line-{name}")] if len(points) > 1 else []
    marked = points if dots else points[-1:]
    return parts + [svg.tag("circle", cx=x, cy=y, r=3.5, class_=f"dot-{name}") for x, y in marked]


def gaps(rounds: Sequence[Round], epsilon: float, width: int) -> Markup:
    """Relative gap by round on a logarithmic scale, and epsilon."""
    found = [(i, v) for i, r in enumerate(rounds) if (v := relative_gap(r)) is not None]
    positive = [v for _, v in found if v > 0.0] + [epsilon]
    low, high = min(positive) / 2.5, max(positive) * 2.5
    exponents = svg.decades(low, high, 5)
    ticks, labels = [10.0**e for e in exponents], [_decade(e) for e in exponents]
    frame = _axis_frame(width, 270, [*labels, "0.01"])
    scale = Scale(low, high, frame.height - frame.bottom, frame.top, log=True)
    axis = RoundAxis(frame, rounds)
    y = scale(epsilon)
    parts = [
        svg.text(2, 12, "relative gap (log scale)", "axis-name", "start"),
        svg.rect(frame.left, y, width - frame.left - frame.right, frame.height - frame.bottom - y, "goal"),
        svg.value_axis(frame, scale, ticks, labels),
        svg.line(frame.left, y, width - frame.right, y, "mark-goal"),
        svg.text(frame.left + 6, y - 6, f"epsilon: {significant(epsilon)}", "note", "start"),
        *_series([(axis.centre(i), scale(v)) for i, v in found], "gap", dots=axis.band >= 12),
        axis.draw(),
        axis.hover(lambda r: f"{capitalised_name(r)}: gap {significant(relative_gap(r))}"),
    ]
    description = (
        f"Epsilon is {significant(epsilon)}; the last round has {significant(found[-1][1]) if found else DASH}."
    )
    return svg.drawing("gap", frame, "Relative gap between the bounds, by round", description, parts)


def _decade(exponent: int) -> str:
    return f"{10.0**exponent:.{max(-exponent, 0)}f}" if -3 <= exponent <= 2 else power_of_ten(exponent)


def bytes_per_round(rounds: Sequence[Round], store_bytes: float, width: int) -> Markup:
    """Bytes read by round as a share of the store, and what block bounds allowed to skip."""
    read = [(finite(r.get("bytes_read")) or 0.0) / store_bytes for r in rounds]
    skipped = [skipped_share(r) for r in rounds]
    top = max([1.0, *(a + b for a, b in zip(read, skipped, strict=True))]) * 1.12
    ticks = [t for t in svg.nice_ticks(0.0, top, 5) if t <= top]
    labels = [f"{t:.0%}".replace("%", "\u00a0%") for t in ticks]
    frame = _axis_frame(width, 250, labels)
    scale = Scale(0.0, top, frame.height - frame.bottom, frame.top)
    axis = RoundAxis(frame, rounds)
    thick = min(axis.band * 0.7, 76.0) if axis.band > 5 else axis.band
    base, store = scale(0.0), scale(1.0)
    boxes = [(axis.centre(i) - thick / 2, scale(v), thick, base - scale(v)) for i, v in enumerate(read)]
    over = [
        (axis.centre(i) - thick / 2, scale(read[i] + s), thick, scale(read[i]) - scale(read[i] + s))
        for i, s in enumerate(skipped)
        if s > 0.0
    ]
    parts = [
        svg.text(2, 12, "share of the store", "axis-name", "start"),
        svg.value_axis(frame, scale, ticks, labels),
        svg.bars(over, "skipped"),
        svg.bars(boxes, "read"),
        svg.line(frame.left, store, width - frame.right, store, "mark-store"),
        svg.text(width - frame.right, store - 6, f"the store: {format_size(store_bytes)}", "note", "end"),
    ]
    if thick >= 58:
        parts += [
            svg.text(x + w / 2, min(y + 15, base - 5) if h > 24 else y - 5, format_size(r.get("bytes_read") or 0), c)
            for (x, y, w, h), r in zip(boxes, rounds, strict=True)
            for c in ("in-bar" if h > 24 else "note",)
        ]
    parts += [axis.draw(), axis.hover(_describe_bytes)]
    description = f"{len(rounds)} rounds read {sum(read):.2f} times the store's {format_size(store_bytes)}."
    return svg.drawing("bytes", frame, "Bytes read in each round", description, parts)


def skipped_share(row: Round) -> float:
    """Share of the chunks that a scan skipped; 0 for samples and stages."""
    chunks, skipped = finite(row.get("chunks")), finite(row.get("chunks_skipped"))
    if row.get("kind") in ("sample", "stage") or not chunks or skipped is None:
        return 0.0
    return skipped / chunks


def _describe_bytes(row: Round) -> str:
    description = f"{capitalised_name(row)}: {format_size(finite(row.get('bytes_read')) or 0)} read"
    if row.get("kind") in ("sample", "stage"):
        return description
    return f"{description}, {count(row.get('chunks_skipped'))} of {count(row.get('chunks'))} chunks skipped"
