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
from coremargin.problems.common.sample import first_row_of_each
from coremargin.problems.hard.state import Hypothesis
from coremargin.problems.hard.strategies.iterative import Iterative

if TYPE_CHECKING:
    from collections.abc import Callable

    from coremargin.data.source import Source
    from coremargin.maths.margin import Array
    from coremargin.problems.common.sample import Sample
    from coremargin.problems.hard.state import Carried
    from coremargin.problems.hard.strategies.iterative import Proven, RowBlock, Task


class HullPoints(Iterative):
    """What strategies share that carry a point of each hull."""

    def first(self, source: Source, codes: tuple[int, int]) -> Sample:
        """The first row of each class."""
        return first_row_of_each(source, codes)

    def begin(self, task: Task) -> Carried:
        """The first row of each class."""
        points = [task.first.vector(int(np.flatnonzero(task.first.signs == sign)[0])) for sign in (1, -1)]
        p, q = points if task.intercept else (points[0], np.zeros(len(points[0])))
        numbers = {"intercept": task.intercept, "epsilon": task.epsilon, "updates": 0}
        carried = {name: np.array(value) for name, value in numbers.items()}
        return carried | _points(p, q, task.first.inner, intercept=task.intercept)

    def hypothesis(self, carried: Carried) -> Hypothesis | None:
        """The hyperplane across the middle of the slab."""
        w = carried["p"] - carried["q"]
        length = float(np.linalg.norm(w))
        if not length > SHORTEST:
            return None
        return Hypothesis(w / length, -float(carried["across"]) / length)

    def most_updates(self, proven: Proven, carried: Carried, *, intercept: bool) -> float | None:
        """Lemma 1.1 of Har-Peled 2015 with the constant of ``slab_steps``; hulls are twice the margin apart."""
        return slab_steps(2 * proven.radius(), 2 * proven.margin, float(carried["epsilon"]))


def places_of(block: RowBlock, carried: Carried, first: int = 0, stop: int | None = None) -> Array:
    """Places (m,) of the rows of a block from ``first`` to ``stop``; infinite where the points are the same."""
    values, square = block.values(carried["p"] - carried["q"], first, stop), float(carried["square"])
    if not square > SHORTEST**2:
        return np.full(len(values), np.inf)
    share = 2.0 if carried["intercept"] else 1.0
    return np.asarray(share / square * block.signs[first:stop] * (values - float(carried["across"])))


def moved_towards(carried: Carried, row: Array, sign: int, inner: Callable[[Array, Array], float]) -> Carried:
    """The numbers after the point of the row's class moved; row: a vector."""
    p, q, intercept = carried["p"], carried["q"], bool(carried["intercept"])
    if not intercept:
        p = _nearest_of_segment(p, sign * row, q, inner)
    elif sign > 0:
        p = _nearest_of_segment(p, row, q, inner)
    else:
        q = _nearest_of_segment(q, row, p, inner)
    return {**carried, **_points(p, q, inner, intercept=intercept), "updates": carried["updates"] + 1}


def _points(p: Array, q: Array, inner: Callable[[Array, Array], float], *, intercept: bool) -> dict[str, Array]:
    """Both points with ||w||^2, and w.x of the middle of the slab, or of the origin."""
    w = p - q
    across = inner(w, (p + q) / 2) if intercept else 0.0
    return {"p": p, "q": q, "square": np.array(inner(w, w)), "across": np.array(across)}


def _nearest_of_segment(start: Array, end: Array, other: Array, inner: Callable[[Array, Array], float]) -> Array:
    along = end - start
    size = inner(along, along)
    share = min(1.0, max(0.0, inner(other - start, along) / size)) if size > 0 else 0.0
    return np.asarray(start + share * along)
