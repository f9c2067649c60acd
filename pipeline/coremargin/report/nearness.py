"""The chart of the nearest row by number of answers: queried rows and random rows."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

from coremargin.report import svg
from coremargin.report.numbers import significant
from coremargin.report.svg import Frame, Scale

if TYPE_CHECKING:
    from markupsafe import Markup


def expected_least(values: Sequence[float], n: int) -> float:
    """Expected minimum of n values drawn without replacement from m values; n from 1 to m.

    The i-th smallest is the minimum with probability C(m - i, n - 1) / C(m, n): the first of these is n / m, and each
    further one is the one before times (m - i - n + 1) / (m - i).
    """
    ordered, m = sorted(values), len(values)
    share, found = n / m, 0.0
    for i, value in enumerate(ordered[: m - n + 1], 1):
        found += share * value
        share *= (m - i - n + 1) / (m - i) if m > i else 0.0
    return found


def least_so_far(values: Sequence[float]) -> list[float]:
    """Cumulative minimum."""
    found = list[float]()
    for value in values:
        found.append(min(value, found[-1]) if found else value)
    return found


def nearness(queried: Sequence[float], random: Sequence[float], width: int) -> Markup:
    """queried: distances of queried rows, in order; random: of random rows; in margins, neither empty.

    Lines: smallest distance of the first k queried rows, and its expectation for k random rows.
    """
    ours = least_so_far(queried)
    chance = [expected_least(random, n) for n in range(1, len(random) + 1)]
    low, high = 0.0, min(max(ours[0], chance[0]), 12.0) * 1.05
    ticks = svg.nice_ticks(low, high, 5)
    labels, _ = svg.tick_labels(ticks)
    frame = Frame(width, 270, max(map(len, labels)) * svg.CHARACTER + 14, 10, 26, 44)
    most = max(len(ours), len(chance), 2)
    x = Scale(1.0, float(most), frame.left, width - frame.right, log=True)
    y = Scale(low, high, frame.height - frame.bottom, frame.top)
    marks = [(x(float(n)), f"{n:,}") for n in (1, 10, 100, 1_000, 10_000, 100_000) if n <= most]
    parts = [
        svg.text(2, 12, "distance, in margins", "axis-name", "start"),
        svg.value_axis(frame, y, ticks, labels),
        svg.line(frame.left, y(1.0), width - frame.right, y(1.0), "mark-goal"),
        svg.path([(x(k + 1.0), y(v)) for k, v in enumerate(chance)], "line-upper"),
        svg.path([(x(k + 1.0), y(v)) for k, v in enumerate(ours)], "line-lower"),
        svg.bottom_axis(frame, marks, "answers (log scale)"),
    ]
    description = (
        f"The nearest of {len(ours):,} queried rows is {significant(ours[-1])} margins away; of as many random "
    )
    description += f"rows, {significant(chance[min(len(ours), len(chance)) - 1])} is expected."
    return svg.drawing(
        "nearness", frame, "Distance of the nearest row to the hyperplane, by answers", description, parts
    )
