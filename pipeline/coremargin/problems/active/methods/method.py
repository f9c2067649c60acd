"""What tells one way to few labels from another: the hyperplane of the rows answered, and which row is asked about.

When it asks, when a scan is needed, and what is claimed at the end is no method's own: ``ActiveMargin`` asks for as
long as a row in memory lies within the slab, scans when none does, draws when none of all rows does, and proves its
bounds from the dual weights, whatever hyperplane these are of. Any row within the slab is covered by Corollary 3.2 and
Lemma 4.2 of Har-Peled, Roth, Zimak (2006), whichever it is; a row beyond it is one label more.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np
from numpy.typing import NDArray

from coremargin.maths.pool import PoolSolution, solve_pool

if TYPE_CHECKING:
    from coremargin.maths.margin import Array
    from coremargin.problems.common.driver_rows import DriverRows, WorkingSet


@dataclass(frozen=True)
class Asking:
    """What a method chooses by. At least one of the rows lies within the slab.

    rows: those in memory that may be asked about; sizes (n,): their distance from the hyperplane; within (n,): whether
    that is within the slab. answered: the rows with labels, of both classes; seed: of what is left to chance.
    """

    rows: DriverRows
    sizes: Array
    within: NDArray[np.bool_]
    answered: WorkingSet
    intercept: bool
    seed: int

    @property
    def chance(self) -> np.random.Generator:
        """The same numbers for the same seed and as many answers, whoever asks."""
        return np.random.default_rng([self.seed, len(self.answered)])


class Method(ABC):
    """Methods have no state: ``table.py`` knows them by name, and the rows answered are all that they go by."""

    def solve(self, pool: WorkingSet, *, intercept: bool, epsilon: float) -> PoolSolution:
        """The hypothesis of rows with labels, of both classes, and its weights: here that of the largest margin."""
        start = pool.weights if pool.take(pool.support).both_classes else None
        return solve_pool(pool.rows, pool.signs, intercept=intercept, start=start)

    @abstractmethod
    def pick(self, asking: Asking) -> int:
        """The place of the row to ask about next."""
