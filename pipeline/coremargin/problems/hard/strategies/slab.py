"""Har-Peled 2015, Remark A: the slab between two hull points, with all labels known.

Each pass moves a point towards the row that lies deepest in the slab or beyond it, until none lies in the slab that is
shrunk by 1 - epsilon. Kowalczyk's maximal margin perceptron (2000) makes the same updates if it takes the worst row.
``slab_of_labelled`` (maths/active/slabs.py) is the method for rows in memory.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from coremargin.maths.rows import vector
from coremargin.problems.hard.strategies.hulls import HullPoints, moved_towards, places_of
from coremargin.problems.hard.strategies.iterative import RowSearch

if TYPE_CHECKING:
    from coremargin.maths.margin import Array
    from coremargin.problems.common.sent import SentRows
    from coremargin.problems.hard.state import Carried
    from coremargin.problems.hard.strategies.iterative import RowBlock


class SlabMethod(HullPoints, RowSearch):
    """One step a pass, for the row of the least place."""

    repeats = True

    reading = "a read for each step, often hundreds"

    def scores(self, block: RowBlock, carried: Carried) -> Array:
        """The places; infinite outside of the shrunk slab."""
        places = places_of(block, carried)
        return np.where(places < 1 - carried["epsilon"], places, np.inf)

    def step(self, carried: Carried, found: SentRows, used: RowBlock) -> Carried:
        """The point of the row's class moves."""
        return moved_towards(carried, vector(found.rows, 0), int(found.signs[0]), used.inner)
