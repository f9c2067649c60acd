"""The perceptron: a row on the wrong side is added to w. Four variants:

- ``perceptron``, Algorithm 1 of Awasthi's lecture, divides the row by its length. By Theorem 2 it makes no more than
  (R / g)^2 mistakes, R being the length of the longest row and g any margin that a hyperplane through the origin has on
  all of them.
- ``raw-perceptron`` (Rosenblatt 1958) adds the row as it is; the same bound holds for it (Novikoff 1962).
- ``averaged-perceptron`` (Freund, Schapire 1999) makes the mistakes of the first, and its hyperplane is the average of
  w after each row. The average need not separate the rows, and Theorem 2 says nothing about it.
- ``uneven-perceptron`` (Li, Zaragoza, Herbrich, Shawe-Taylor, Kandola 2002) also adds rows of the positive class with
  y w.x <= 1, the rows being divided by their length. An addition lets ||w||^2 grow by at most 3, so that by the same
  argument there are at most 3 (R / g)^2.

With an intercept rows are (x, r), r being the length of the longest row. A row with y w.x <= 0 is a mistake: with "<
0", w = 0 would never change. With a kernel w is kept as the rows that were added, with coefficients (Aizerman,
Braverman, Rozonoer 1964), and lengths are those in feature space.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np

from coremargin.errors import BadRow
from coremargin.maths.published_bounds import perceptron_updates
from coremargin.problems.hard.state import Hypothesis
from coremargin.problems.hard.strategies.iterative import Walk

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from coremargin.maths.margin import Array
    from coremargin.problems.hard.state import Carried
    from coremargin.problems.hard.strategies.iterative import Proven, RowBlock, Task

#: Rows whose scores are computed at a time; after a mistake those of the rest are computed again.
SLAB = 256


def hyperplane(w: Array, last: float, constant: float) -> Hypothesis | None:
    """That of (w, last) about rows (x, constant), for rows without the constant; None if w = 0."""
    length = float(np.linalg.norm(w))
    return Hypothesis(w / length, constant * last / length) if length else None


def sizes_of(block: RowBlock, constant: float, name: str) -> Array:
    """Lengths (n,) of the rows (x, constant). Raises BadRow for a row of zeros."""
    sizes = np.hypot(block.lengths(), constant)
    if len(sizes) and not sizes.all():
        raise BadRow(
            f"{block.name}, row {block.ids[int(np.argmin(sizes))]}: a row of zeros has no direction, which strategy "
            f"{name!r} without an intercept needs; leave the row out, or choose another strategy"
        )
    return np.asarray(sizes)


def novikoff(proven: Proven, *, intercept: bool) -> float:
    """(R / g)^2 for the hyperplane with the proven margin; rows (x, r) are at most sqrt(2) r long."""
    if not intercept:
        return perceptron_updates(proven.longest, proven.margin)
    return 2 * (proven.longest**2 + proven.offset**2) / proven.margin**2


@dataclass(frozen=True)
class Perceptron(Walk):
    """One pass after another, until one makes no mistake."""

    name: str = "perceptron"
    unit: bool = True  #: rows are divided by their length
    averaged: bool = False
    margin: float = 0.0  #: y w.x up to which a row of the positive class is added

    vectors = ("w", "late")

    reading = "a read for each pass, until one makes no mistake: more the thinner the margin is, often dozens"

    def begin(self, task: Task) -> Carried:
        """w = 0."""
        numbers = {"last": 0.0, "constant": task.constant, "updates": 0, "seen": 0, "late_last": 0.0}
        d = task.features
        return {"w": np.zeros(d), "late": np.zeros(d), **{name: np.array(value) for name, value in numbers.items()}}

    def walk(self, block: RowBlock, carried: Carried) -> tuple[Carried, NDArray[np.intp]]:
        """Adds y x / ||x||, or y x, for each mistake; last: the weight of the constant.

        late: the sum of all additions, each times the number of rows seen before it, from which the average follows.
        """
        w, last, constant = carried["w"].copy(), float(carried["last"]), float(carried["constant"])
        late, late_last, seen = carried["late"].copy(), float(carried["late_last"]), int(carried["seen"])
        sizes, touched = sizes_of(block, constant, self.name), list[int]()
        least = np.where(block.signs > 0, self.margin, 0.0) * sizes
        for first in range(0, len(sizes), SLAB):
            at, stop = first, min(first + SLAB, len(sizes))
            while at < stop:
                values = block.values(w, at, stop) + constant * last
                wrong = np.flatnonzero(block.signs[at:stop] * values <= least[at:stop])
                if not len(wrong):
                    break
                at += int(wrong[0])
                step = float(block.signs[at] / sizes[at]) if self.unit else float(block.signs[at])
                added = step * block.vector(at)
                w += added
                last += step * constant
                if self.averaged:
                    late += (seen + at) * added
                    late_last += (seen + at) * step * constant
                touched.append(at)
                at += 1
        numbers = {
            "last": last,
            "updates": int(carried["updates"]) + len(touched),
            "seen": seen + len(sizes),
            "late_last": late_last,
        }
        found = {**carried, "w": w, "late": late, **{name: np.array(value) for name, value in numbers.items()}}
        return found, np.array(touched, np.intp)

    def hypothesis(self, carried: Carried) -> Hypothesis | None:
        """The hyperplane for rows without the constant."""
        w, last, seen = carried["w"], float(carried["last"]), int(carried["seen"])
        if self.averaged and seen:
            w, last = w - carried["late"] / seen, last - float(carried["late_last"]) / seen
        return hyperplane(w, last, float(carried["constant"]))

    def most_updates(self, proven: Proven, carried: Carried, *, intercept: bool) -> float | None:
        """Theorem 2."""
        return (1 + 2 * self.margin) * novikoff(proven, intercept=intercept)
