"""Passive-aggressive updates (Crammer, Dekel, Keshet, Shalev-Shwartz, Singer 2006, Figure 1).

The new w is the nearest vector v to w with y v.x >= 1: w + l y x / ||x||^2, where l = max(0, 1 - y w.x) is the loss. A
vector u with y u.x >= 1 for all rows comes nearer: ||u - w||^2 falls by l^2 / ||x||^2 or more. So the squares of the
losses have a sum of at most (R / g)^2, R being the length of the longest row and g any margin that a hyperplane through
the origin has on all rows (u = w* / g), as the paper states for separable rows. It would go on for ever: here a row
counts as having the margin 1 from 1 - epsilon on, so that there are at most (R / g)^2 / epsilon^2 updates. With an
intercept rows are (x, r), r being the length of the longest row.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np

from coremargin.maths.rows import vector
from coremargin.problems.hard.strategies.iterative import Walk
from coremargin.problems.hard.strategies.perceptron import SLAB, hyperplane, novikoff, sizes_of

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from coremargin.data.source import Source
    from coremargin.problems.hard.state import Carried, HardMarginState, Hypothesis
    from coremargin.problems.hard.strategies.iterative import RowBlock, Task


@dataclass(frozen=True)
class PassiveAggressive(Walk):
    """One pass after another, until one makes no update."""

    reading = "a read for each pass, until one makes no update, often dozens"

    def begin(self, task: Task) -> Carried:
        """w = 0; a row with y w.x below ``least`` calls for an update."""
        numbers = {"last": 0.0, "constant": task.constant, "least": 1 - task.epsilon, "updates": 0}
        return {"w": np.zeros(task.source.features), **{name: np.array(value) for name, value in numbers.items()}}

    def walk(self, block: RowBlock, carried: Carried) -> tuple[Carried, NDArray[np.intp]]:
        """The nearest vector that gives the row the margin 1, for each row that calls for it."""
        w, last, constant = carried["w"].copy(), float(carried["last"]), float(carried["constant"])
        sizes, touched = sizes_of(block, constant, "passive-aggressive"), list[int]()
        for first in range(0, len(sizes), SLAB):
            rows, signs, at = block.rows[first : first + SLAB], block.signs[first : first + SLAB], 0
            while at < len(signs):
                values = signs[at:] * (rows[at:] @ w + constant * last)
                low = np.flatnonzero(values < carried["least"])
                if not len(low):
                    break
                at += int(low[0])
                step = float(signs[at]) * (1.0 - float(values[low[0]])) / float(sizes[first + at] ** 2)
                w += step * vector(rows, at)
                last += step * constant
                touched.append(first + at)
                at += 1
        updates = int(carried["updates"]) + len(touched)
        found = {**carried, "w": w, "last": np.array(last), "updates": np.array(updates)}
        return found, np.array(touched, np.intp)

    def hypothesis(self, carried: Carried) -> Hypothesis | None:
        """The hyperplane for rows without the constant."""
        return hyperplane(carried["w"], float(carried["last"]), float(carried["constant"]))

    def most_updates(self, source: Source, state: HardMarginState, *, intercept: bool) -> float | None:
        """(R / g)^2 / epsilon^2: each update has a loss above epsilon."""
        square = novikoff(source, state, intercept=intercept)
        if square is None or state.progress is None:
            return None
        epsilon = 1.0 - float(state.progress.carried["least"])
        return square / epsilon**2 if epsilon > 0 else None
