"""ROMMA, the relaxed online maximum margin algorithm (Li, Long 2002), and its aggressive form.

The new w is the shortest vector v with v.w >= ||w||^2 and y v.x >= 1: all earlier rows are relaxed to one half-space.

    v = c w + e x,   c = (||x||^2 ||w||^2 - y w.x) / D,   e = ||w||^2 (y - w.x) / D,   D = ||x||^2 ||w||^2 - (w.x)^2

or v = y x / ||x||^2 if y w.x >= ||x||^2 ||w||^2, where the half-space of w no longer counts. ROMMA updates for mistakes
alone, at most (R / g)^2 of them, as many as the perceptron; the aggressive form whenever y w.x < 1, and ends with a
margin near the largest one. It has no bound on its updates. It would go on for ever: here a row counts as having the
margin 1 from 1 - epsilon on. With an intercept rows are (x, r), r being the length of the longest row.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np

from coremargin.problems.hard.strategies.iterative import Walk
from coremargin.problems.hard.strategies.perceptron import SLAB, hyperplane, novikoff, sizes_of

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from coremargin.problems.hard.state import Carried, Hypothesis
    from coremargin.problems.hard.strategies.iterative import Proven, RowBlock, Task


@dataclass(frozen=True)
class Romma(Walk):
    """One pass after another, until one makes no update."""

    aggressive: bool = False

    vectors = ("w",)

    reading = "a read for each pass, until one makes no update, often dozens"

    def begin(self, task: Task) -> Carried:
        """w = 0; the aggressive form updates for y w.x below ``least``."""
        least = 1 - task.epsilon if self.aggressive else 0.0
        numbers = {"last": 0.0, "constant": task.constant, "least": least, "updates": 0}
        return {"w": np.zeros(task.features), **{name: np.array(value) for name, value in numbers.items()}}

    def walk(self, block: RowBlock, carried: Carried) -> tuple[Carried, NDArray[np.intp]]:
        """The shortest vector in two half-spaces, for each row that calls for it."""
        w, last, constant = carried["w"].copy(), float(carried["last"]), float(carried["constant"])
        sizes, touched = sizes_of(block, constant, "aggressive-romma" if self.aggressive else "romma"), list[int]()
        square = block.inner(w, w) + last**2
        for first in range(0, len(sizes), SLAB):
            at, stop = first, min(first + SLAB, len(sizes))
            while at < stop:
                values = block.signs[at:stop] * (block.values(w, at, stop) + constant * last)
                low = np.flatnonzero(values < carried["least"] if self.aggressive else values <= 0)
                if not len(low):
                    break
                at += int(low[0])
                y, value, size = float(block.signs[at]), float(values[low[0]]), float(sizes[at] ** 2)
                spread = size * square - value**2
                touched.append(at)
                if not square or value >= size * square:
                    c, e = 0.0, y / size
                elif spread > 0:
                    c, e = (size * square - value) / spread, y * square * (1 - value) / spread
                else:  # x and w are parallel and opposite, to within rounding: no such vector
                    c, e = 1.0, 0.0
                w = c * w + e * block.vector(at)
                last = c * last + e * constant
                square = block.inner(w, w) + last**2
                at += 1
        updates = int(carried["updates"]) + len(touched)
        found = {**carried, "w": w, "last": np.array(last), "updates": np.array(updates)}
        return found, np.array(touched, np.intp)

    def hypothesis(self, carried: Carried) -> Hypothesis | None:
        """The hyperplane for rows without the constant."""
        return hyperplane(carried["w"], float(carried["last"]), float(carried["constant"]))

    def most_updates(self, proven: Proven, carried: Carried, *, intercept: bool) -> float | None:
        """(R / g)^2 of ROMMA; None for the aggressive form."""
        return None if self.aggressive else novikoff(proven, intercept=intercept)
