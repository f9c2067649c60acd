"""The perceptron, Algorithm 1 of Awasthi's lecture: a row on the wrong side is divided by its length and added to w.

With an intercept rows are (x, r), r being the length of the longest row. A row with y w.x <= 0 is a mistake: with "<
0", w = 0 would never change. Theorem 2: no more than (R / g)^2 mistakes, R being the length of the longest of these
rows and g any margin that a hyperplane through the origin has on all of them.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from coremargin.errors import BadRow
from coremargin.maths.rows import lengths, vector
from coremargin.problems.hard.state import Hypothesis
from coremargin.problems.hard.strategies.walk import Walk

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from coremargin.data.source import Source
    from coremargin.problems.hard.state import Carried, HardMarginState
    from coremargin.problems.hard.strategies.walk import WalkBlock

#: Rows whose scores are computed at a time; after a mistake those of the rest are computed again.
SLAB = 256


class Perceptron(Walk):
    """One pass after another, until one makes no mistake."""

    reading = "a read for each pass, until one makes no mistake: more the thinner the margin is, often dozens"

    def begin(self, source: Source, *, intercept: bool) -> Carried:
        """w = 0."""
        constant = float(source.scalars().max_norm.max()) if intercept else 0.0
        numbers = {"last": 0.0, "constant": constant, "updates": 0}
        return {"w": np.zeros(source.features), **{name: np.array(value) for name, value in numbers.items()}}

    def walk(self, block: WalkBlock, carried: Carried) -> tuple[Carried, NDArray[np.intp]]:
        """Adds y x / ||x|| for each mistake; last: the weight of the constant."""
        w, last, constant = carried["w"].copy(), float(carried["last"]), float(carried["constant"])
        sizes, touched = np.hypot(lengths(block.rows), constant), list[int]()
        if len(sizes) and not sizes.all():
            raise BadRow(
                f"{block.name}, row {block.ids[int(np.argmin(sizes))]}: a row of zeros has no direction, which the "
                f"perceptron without an intercept needs; leave the row out, or choose another strategy"
            )
        for first in range(0, len(sizes), SLAB):
            rows, signs, at = block.rows[first : first + SLAB], block.signs[first : first + SLAB], 0
            while at < len(signs):
                wrong = np.flatnonzero(signs[at:] * (rows[at:] @ w + constant * last) <= 0)
                if not len(wrong):
                    break
                at += int(wrong[0])
                step = float(signs[at] / sizes[first + at])
                w += step * vector(rows, at)
                last += step * constant
                touched.append(first + at)
                at += 1
        updates = int(carried["updates"]) + len(touched)
        found = {**carried, "w": w, "last": np.array(last), "updates": np.array(updates)}
        return found, np.array(touched, np.intp)

    def hypothesis(self, carried: Carried) -> Hypothesis | None:
        """The hyperplane for rows without the constant."""
        length = float(np.linalg.norm(carried["w"]))
        if not length:
            return None
        return Hypothesis(carried["w"] / length, float(carried["constant"] * carried["last"]) / length)

    def most_updates(self, state: HardMarginState, longest: float, *, intercept: bool) -> float | None:
        """(R / g)^2 for the hyperplane with the proven margin."""
        if state.best is None or not state.lower > 0:
            return None
        if not intercept:
            return float((longest / state.lower) ** 2)
        return float(2 * (longest**2 + state.best.b**2) / state.lower**2)
