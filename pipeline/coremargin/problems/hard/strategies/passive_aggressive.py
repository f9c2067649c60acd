"""Passive-aggressive updates (Crammer, Dekel, Keshet, Shalev-Shwartz, Singer 2006, Figure 1).

A row has the loss l = 1 - y w.x, if that is positive: then w moves to the nearest vector without the loss.

    w <- w + l y x / ||x||^2

Let u have y u.x >= 1 on all rows. Each update brings w nearer to u: ||w - u||^2 falls by at least (l / ||x||)^2 (Lemma
1). So there are at most (R ||u||)^2 = (R / g)^2 mistakes, whose loss is 1 or more, and at most (R / (g epsilon))^2
losses of epsilon or more. The source's updates would go on for ever: here a row counts as having no loss from 1 -
epsilon on. In the end ||w|| <= 2 ||u||, so that w has at least (1 - epsilon) / 2 of the largest margin. With an
intercept rows are (x, r), r being the length of the longest row.
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
class PassiveAggressive(Walk):
    """One pass after another, until one makes no update."""

    vectors = ("w",)

    reading = "a read for each pass, until one makes no update, often dozens"

    def begin(self, task: Task) -> Carried:
        """w = 0."""
        numbers = {"last": 0.0, "constant": task.constant, "epsilon": task.epsilon, "updates": 0}
        return {"w": np.zeros(task.features), **{name: np.array(value) for name, value in numbers.items()}}

    def walk(self, block: RowBlock, carried: Carried) -> tuple[Carried, NDArray[np.intp]]:
        """The nearest w without loss, for each row with a loss above epsilon; last: the weight of the constant."""
        w, last, constant = carried["w"].copy(), float(carried["last"]), float(carried["constant"])
        sizes, touched = sizes_of(block, constant, "passive-aggressive"), list[int]()
        for first in range(0, len(sizes), SLAB):
            at, stop = first, min(first + SLAB, len(sizes))
            while at < stop:
                losses = 1 - block.signs[at:stop] * (block.values(w, at, stop) + constant * last)
                lossy = np.flatnonzero(losses > carried["epsilon"])
                if not len(lossy):
                    break
                loss = float(losses[lossy[0]])
                at += int(lossy[0])
                step = loss * float(block.signs[at]) / float(sizes[at]) ** 2
                w += step * block.vector(at)
                last += step * constant
                touched.append(at)
                at += 1
        updates = int(carried["updates"]) + len(touched)
        found = {**carried, "w": w, "last": np.array(last), "updates": np.array(updates)}
        return found, np.array(touched, np.intp)

    def hypothesis(self, carried: Carried) -> Hypothesis | None:
        """The hyperplane for rows without the constant."""
        return hyperplane(carried["w"], float(carried["last"]), float(carried["constant"]))

    def most_updates(self, proven: Proven, carried: Carried, *, intercept: bool) -> float | None:
        """(R / (g epsilon))^2."""
        return novikoff(proven, intercept=intercept) / float(carried["epsilon"]) ** 2
