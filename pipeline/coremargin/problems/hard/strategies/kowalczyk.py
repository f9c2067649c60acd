"""Kowalczyk's maximal margin perceptron (2000): in row order, each violating row moves the point of its class.

A row violates if its place is below 1 - epsilon (``hulls.py``). Section 3.1 of Har-Peled, Roth and Zimak (2006) prints
O((R^2 / epsilon^2) log(R / 2)) updates, which lacks the margin; the bound here is that of the slab, whose steps these
are. With the worst row of each pass instead of any, Kowalczyk's algorithm is the strategy ``slab``.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from coremargin.maths.rows import vector
from coremargin.problems.hard.strategies.hulls import HullPoints, moved_towards, places_of
from coremargin.problems.hard.strategies.iterative import RowBlock, Walk

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from coremargin.problems.hard.state import Carried

#: Rows whose places are computed at a time; after an update those of the rest are computed again.
SLAB = 256


class Kowalczyk(HullPoints, Walk):
    """One pass after another, until no row violates."""

    reading = "a read for each pass, until no row violates: more the smaller epsilon is, often hundreds"

    def walk(self, block: RowBlock, carried: Carried) -> tuple[Carried, NDArray[np.intp]]:
        """The point of the class of each violating row moves."""
        touched = list[int]()
        for first in range(0, len(block.ids), SLAB):
            part, at = slice(first, first + SLAB), 0
            rows, signs, ids = block.rows[part], block.signs[part], block.ids[part]
            while at < len(ids):
                places = places_of(RowBlock(rows[at:], signs[at:], ids[at:], block.name), carried)
                violating = np.flatnonzero(places < 1 - carried["epsilon"])
                if not len(violating):
                    break
                at += int(violating[0])
                carried = moved_towards(carried, vector(rows, at), int(signs[at]))
                touched.append(first + at)
                at += 1
        return carried, np.array(touched, np.intp)
