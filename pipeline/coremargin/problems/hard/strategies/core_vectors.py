"""Core vector machines (Tsang, Kwok, Cheung 2005): the smallest ball around points, by one farthest row a scan.

The points are z = y (x, r) / ||(x, r)||, r being the length of the longest row, or z = y x / ||x|| without an
intercept. As all have the length 1, the centre of the smallest ball around some of them is the point of their hull that
is nearest to the origin, and the radius is R^2 = 1 - ||c||^2: the ball is the hard margin of these rows. The core set
grows by the point farthest from the centre until all lie within (1 + epsilon) R.

That rule says little of the margin, as R is close to 1 where ||c|| is small: for a margin of (1 - delta) ||c|| it needs
an epsilon of delta ||c||^2 / (1 - ||c||^2), the factor that section 3 of Har-Peled, Roth and Zimak (2006) claims. The
certificate shows the margin that the ball's hyperplane has.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from coremargin.problems.hard.strategies.iterative import RowSearch
from coremargin.problems.hard.strategies.perceptron import hyperplane, sizes_of

if TYPE_CHECKING:
    from coremargin.maths.margin import Array
    from coremargin.problems.common.sent import SentRows
    from coremargin.problems.hard.state import Carried, Hypothesis
    from coremargin.problems.hard.strategies.iterative import RowBlock, Task


class CoreVectors(RowSearch):
    """One farthest row a scan."""

    in_feature_space = True

    reading = "a scan for each row that is added, often dozens; a small epsilon needs hundreds"

    def begin(self, task: Task) -> Carried:
        """No ball."""
        numbers = {"last": 0.0, "constant": task.constant, "epsilon": task.epsilon, "radius": -1.0, "square": 0.0}
        numbers |= {"updates": 0}
        return {"w": np.zeros(task.features), **{name: np.array(value) for name, value in numbers.items()}}

    def scores(self, block: RowBlock, carried: Carried) -> Array:
        """z.c, least for the farthest point; infinite within (1 + epsilon) R."""
        constant, radius = float(carried["constant"]), float(carried["radius"])
        sizes = sizes_of(block, constant, "cvm")
        values = np.asarray(block.signs * (block.values(carried["w"]) + constant * carried["last"]) / sizes)
        if radius < 0:
            return values
        distances = np.sqrt(np.maximum(0.0, 1 - 2 * values + carried["square"]))
        return np.where(distances > (1 + carried["epsilon"]) * radius, values, np.inf)

    def step(self, carried: Carried, found: SentRows, used: RowBlock) -> Carried:
        """The ball around the core set, exactly."""
        constant = float(carried["constant"])
        w, last, length = used.nearest_point(used.signs / np.hypot(used.lengths(), constant), constant)
        numbers = {"last": last, "square": length**2, "radius": float(np.sqrt(max(0.0, 1 - length**2)))}
        numbers |= {"updates": int(carried["updates"]) + 1}
        return {**carried, "w": w, **{name: np.array(value) for name, value in numbers.items()}}

    def hypothesis(self, carried: Carried) -> Hypothesis | None:
        """The hyperplane through the origin that is orthogonal to the centre."""
        return hyperplane(carried["w"], float(carried["last"]), float(carried["constant"]))
