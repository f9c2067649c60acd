"""The points of two hulls, one of each class, that online algorithms move towards rows: Kowalczyk 2000, Har-Peled 2015.

With an intercept p and q are convex combinations of the rows of the positive and of the negative class, and the *slab*
is the set of points between them across w = p - q. Without one, p is a combination of y x for rows of both classes, and
q the origin. The *place* of a row is 1 where it lies as far from the middle of the slab (or the origin) as the point of
its class, and -1 at the other one; so a hyperplane across the middle has the margin ||w|| / 2 (or ||w||) times the
least place. The distance ||w|| is never less than that of the hulls.

An update moves the point of the row's class to the point of the segment from it to the row that is nearest to the other
point: a line would leave the hull. It is made for a place below 1 - epsilon, so that by (1.1) of Har-Peled 2015
1 / ||w||^2 grows by epsilon^2 / (4 diameter^2) and more.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from coremargin.maths.margin import SHORTEST
from coremargin.maths.published_bounds import slab_steps
from coremargin.maths.rows import vector
from coremargin.problems.common.balls import enclosing_radius
from coremargin.problems.common.sample import first_row_of_each
from coremargin.problems.hard.state import Hypothesis
from coremargin.problems.hard.strategies.iterative import Iterative

if TYPE_CHECKING:
    from coremargin.data.source import Source
    from coremargin.maths.margin import Array
    from coremargin.problems.common.sample import Sample
    from coremargin.problems.hard.state import Carried, HardMarginState
    from coremargin.problems.hard.strategies.iterative import RowBlock, Task


class HullPoints(Iterative):
    """What strategies share that carry a point of each hull."""

    def first(self, source: Source, codes: tuple[int, int]) -> Sample:
        """The first row of each class."""
        return first_row_of_each(source, codes)

    def begin(self, task: Task) -> Carried:
        """The first row of each class."""
        rows, signs = task.first.rows, task.first.signs
        points = [vector(rows, int(np.flatnonzero(signs == sign)[0])) for sign in (1, -1)]
        p, q = points if task.intercept else (points[0], np.zeros(len(points[0])))
        return {
            "p": p,
            "q": q,
            "intercept": np.array(task.intercept),
            "epsilon": np.array(task.epsilon),
            "updates": np.array(0),
        }

    def hypothesis(self, carried: Carried) -> Hypothesis | None:
        """The hyperplane across the middle of the slab."""
        w = carried["p"] - carried["q"]
        length = float(np.linalg.norm(w))
        if not length > SHORTEST:
            return None
        return Hypothesis(w / length, -float(w @ _middle(carried)) / length)

    def most_updates(self, source: Source, state: HardMarginState, *, intercept: bool) -> float | None:
        """Lemma 1.1 of Har-Peled 2015 with the constant of ``slab_steps``; hulls are twice the margin apart."""
        if state.progress is None or not state.lower > 0:
            return None
        R, epsilon = enclosing_radius(source, origin=not intercept), float(state.progress.carried["epsilon"])
        return slab_steps(2 * R, 2 * state.lower, epsilon)


def places_of(block: RowBlock, carried: Carried) -> Array:
    """Places (n,) of the rows of a block; infinite where the points are the same."""
    w = carried["p"] - carried["q"]
    square = float(w @ w)
    if not square > SHORTEST**2:
        return np.full(len(block.ids), np.inf)
    share = 2.0 if carried["intercept"] else 1.0
    return np.asarray(share / square * block.signs * (block.rows @ w - w @ _middle(carried)))


def moved_towards(carried: Carried, row: Array, sign: int) -> Carried:
    """The numbers after the point of the row's class moved; row: (d,)."""
    p, q = carried["p"], carried["q"]
    if not carried["intercept"]:
        moved = {"p": _nearest_of_segment(p, sign * row, q)}
    elif sign > 0:
        moved = {"p": _nearest_of_segment(p, row, q)}
    else:
        moved = {"q": _nearest_of_segment(q, row, p)}
    return {**carried, **moved, "updates": carried["updates"] + 1}


def _nearest_of_segment(start: Array, end: Array, other: Array) -> Array:
    along = end - start
    size = float(along @ along)
    share = min(1.0, max(0.0, float((other - start) @ along) / size)) if size > 0 else 0.0
    return np.asarray(start + share * along)


def _middle(carried: Carried) -> Array:
    return np.asarray((carried["p"] + carried["q"]) / 2 if carried["intercept"] else np.zeros(len(carried["p"])))
