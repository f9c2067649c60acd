"""How near rows come to a hyperplane as more of them are answered: those that were asked about, and rows by chance."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

from coremargin.report import svg
from coremargin.report.numbers import significant
from coremargin.report.svg import Frame, Scale

if TYPE_CHECKING:
    from markupsafe import Markup


def expected_least(values: Sequence[float], n: int) -> float:
    """The least of n values drawn without replacement from some (m,), by expectation; n from 1 to m.

    The i-th smallest is the least with probability C(m - i, n - 1) / C(m, n): from n / m on each is the one before
    times (m - i - n + 1) / (m - i).
    """
    ordered, m = sorted(values), len(values)
    share, found = n / m, 0.0
    for i, value in enumerate(ordered[: m - n + 1], 1):
        found += share * value
        share *= (m - i - n + 1) / (m - i) if m > i else 0.0
    return found


def least_so_far(values: Sequence[float]) -> list[float]:
    """The least of the first k values, for each k."""
    found = list[float]()
    for value in values:
        found.append(min(value, found[-1]) if found else value)
    return found


def nearness(asked: Sequence[float], drawn: Sequence[float], width: int) -> Markup:
    """asked: distances of the rows answered, in their order; drawn: of rows drawn by lot; both in margins, none empty.

    The lines are the least distance among the first k rows asked about, and that of k rows by chance, by expectation.
    """
    ours = least_so_far(asked)
    chance = [expected_least(drawn, n) for n in range(1, len(drawn) + 1)]
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
    told = f"The nearest of {len(ours):,} rows asked about lies {significant(ours[-1])} margins away; of as many drawn "
    told += f"by lot, {significant(chance[min(len(ours), len(chance)) - 1])} by expectation."
    return svg.drawing("nearness", frame, "How near the rows come to the hyperplane, by answers", told, parts)
