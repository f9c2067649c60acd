"""Kowalczyk's maximal margin perceptron (2000): in row order, each violating row moves the point of its class.

A row violates if its place is below 1 - epsilon (``hulls.py``). With a kernel points are combinations of rows, as in
the source. Section 3.1 of Har-Peled, Roth and Zimak (2006) prints
O((R^2 / epsilon^2) log(R / 2)) updates. That cannot be meant: the algorithm does not change with the unit of the rows,
as this number does, which is 0 for R = 2. It lacks the margin. The bound here is that of the slab, whose steps these
are. With the worst row of each pass instead of any, Kowalczyk's algorithm is the strategy ``slab``.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from coremargin.problems.hard.strategies.hulls import HullPoints, moved_towards, places_of
from coremargin.problems.hard.strategies.iterative import Walk

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from coremargin.problems.hard.state import Carried
    from coremargin.problems.hard.strategies.iterative import RowBlock

#: Rows whose places are computed at a time; after an update those of the rest are computed again.
SLAB = 256


class Kowalczyk(HullPoints, Walk):
    """One pass after another, until no row violates."""

    vectors = ("p", "q")

    reading = "a read for each pass, until no row violates: more the smaller epsilon is, often hundreds"

    def walk(self, block: RowBlock, carried: Carried) -> tuple[Carried, NDArray[np.intp]]:
        """The point of the class of each violating row moves."""
        touched = list[int]()
        for first in range(0, len(block.ids), SLAB):
            at, stop = first, min(first + SLAB, len(block.ids))
            while at < stop:
                places = places_of(block, carried, at, stop)
                violating = np.flatnonzero(places < 1 - carried["epsilon"])
                if not len(violating):
                    break
                at += int(violating[0])
                carried = moved_towards(carried, block.vector(at), int(block.signs[at]), block.inner)
                touched.append(at)
                at += 1
        return carried, np.array(touched, np.intp)
