"""Query strategies: each has the hyperplane of the answered rows, and picks the row to ask about.

When to ask, when to scan, and what is claimed at the end is the same for all: ``ActiveMargin`` asks as long as a
row in memory lies within the slab, scans when none does, draws when none of all rows does, and proves its bounds from
the dual weights, whatever hyperplane these belong to. Any row within the slab is covered by Corollary 3.2 and
Lemma 4.2 of Har-Peled, Roth, Zimak (2006), whichever it is; a row beyond it is one label more.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

import numpy as np
from numpy.typing import NDArray

from coremargin.maths.active.centres import CentreName, centre_of
from coremargin.maths.active.cutting_planes import nearest
from coremargin.maths.active.slabs import slab_of_labelled
from coremargin.maths.breakdown import quiet
from coremargin.maths.hard_margin import HardMarginSolution, solve_hard_margin
from coremargin.maths.margin import dual_vector, projections, upper_bound
from coremargin.maths.rows import lengths
from coremargin.maths.span import span_of

if TYPE_CHECKING:
    from collections.abc import Mapping

    from coremargin.formats.choices import Method as Name
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
        """The same numbers for the same seed and number of answers."""
        return np.random.default_rng([self.seed, len(self.answered)])


class Method(ABC):
    """Methods have no state: ``table.py`` knows them by name, and the rows answered are all that they go by."""

    def solve(self, working_set: WorkingSet, *, intercept: bool, epsilon: float) -> HardMarginSolution:
        """The hypothesis of rows with labels, of both classes, and its weights: here that of the largest margin."""
        start = working_set.weights if working_set.take(working_set.support).both_classes else None
        return solve_hard_margin(working_set.rows, working_set.signs, intercept=intercept, start=start)

    @abstractmethod
    def pick(self, asking: Asking) -> int:
        """The place of the row to ask about next."""


class Coreset(Method):
    """The default; Tong and Koller's (2002) with an offset, and with an end."""

    def pick(self, asking: Asking) -> int:
        """The nearest."""
        return int(asking.sizes.argmin())


class Stream(Method):
    """Section 4.1's variant: any row within the slab will do, here the first by its id, as rows of a stream come."""

    def pick(self, asking: Asking) -> int:
        """The first within the slab."""
        inside = np.flatnonzero(asking.within)
        return int(inside[asking.rows.ids[inside].argmin()])


class Random(Method):
    """Any row in memory, near or far; the largest margin of what is answered."""

    def pick(self, asking: Asking) -> int:
        """Each with the same chance."""
        return int(asking.chance.choice(len(asking.sizes)))


#: Halvings of the interval between the largest margin and a centre.
HALVINGS = 40
#: After so many steps the exact solver has the word: rows that no slab separates would never end.
STEPS = 20_000
#: Of epsilon: the rest is for the rounding of what is proven.
SHARE = 0.99


class Slab(Method):
    """Instead of the largest margin at least 1 - epsilon of it, by projections on segments (Remark A)."""

    def solve(self, working_set: WorkingSet, *, intercept: bool, epsilon: float) -> HardMarginSolution:
        """From the weights of the last slab, the two points being sums of rows.

        Through the origin: all rows y x are one class, the origin the other, which never moves; half of that slab, from
        the origin to the middle, is what stands for the other side.
        """
        flat = span_of(working_set.rows, 0.0).flat
        rows, signs, weights = (
            (flat, working_set.signs, working_set.weights) if intercept else _around_origin(flat, working_set)
        )
        begun = weights if all((weights[signs == sign] > 0).any() for sign in (1, -1)) else None
        try:
            slab = slab_of_labelled(rows, signs, SHARE * epsilon * (1 if intercept else 2), begun, most=STEPS)
        except ValueError:
            return solve_hard_margin(working_set.rows, working_set.signs, intercept=intercept)
        found = slab.weights[: len(working_set)]
        across = dual_vector(working_set.rows, working_set.signs, found)
        w = across / np.linalg.norm(across)
        b = -float(found @ projections(working_set.rows, w[:, None])[:, 0]) / 2 if intercept else 0.0
        return HardMarginSolution(
            w, b, found, upper_bound(working_set.rows, working_set.signs, found, intercept), "optimal"
        )

    def pick(self, asking: Asking) -> int:
        """The nearest to the middle."""
        return int(asking.sizes.argmin())


def _around_origin(flat: Array, working_set: WorkingSet) -> tuple[Array, NDArray[np.int8], Array]:
    """Rows y x (m + 1, q) as one class and the origin as the other, with their signs and weights."""
    rows = np.vstack([flat * working_set.signs[:, None], np.zeros(flat.shape[1])])
    return rows, np.append(np.ones(len(working_set), np.int8), np.int8(-1)), np.append(working_set.weights, 1.0)


class Centred(Method):
    """By the centre of a name."""

    def __init__(self, name: CentreName) -> None:
        self.name = name

    def pick(self, asking: Asking) -> int:
        """The nearest to the centre, by angle; to the hyperplane where the version space is too thin for its centre."""
        constant = _constant(asking.answered, intercept=asking.intercept)
        found = self._centre(asking.answered, constant, int(asking.chance.integers(2**31)))
        if found is None:
            return int(asking.sizes.argmin())
        return nearest(asking.rows.rows, *found, asking.within, constant)

    def _centre(self, working_set: WorkingSet, constant: float, seed: int) -> tuple[Array, float] | None:
        """w (d,) and b; None where the version space is too thin."""
        try:
            with quiet():
                w, b = centre_of(self.name, working_set.rows, working_set.signs, constant=constant, seed=seed)
        except (ValueError, ArithmeticError):
            return None
        return (w, b) if np.isfinite([*w, b]).all() else None

    def toward_centre(
        self, working_set: WorkingSet, solution: HardMarginSolution, *, intercept: bool, epsilon: float
    ) -> HardMarginSolution:
        """The solution with the centre's hyperplane, or the one nearest to it with 1 - epsilon of the largest margin.

        Between two hyperplanes that separate all rows every mixture does, and its margin is quasi-concave: the first
        mixture whose margin suffices is found by halving. With the centre of gravity it is a Bayes point machine.
        """
        found = self._centre(working_set, _constant(working_set, intercept=intercept), len(working_set))
        if found is None:
            return solution
        ends = np.column_stack([found[0], solution.w]), np.array([found[1], solution.b])
        margins = working_set.signs[:, None] * (projections(working_set.rows, ends[0]) + ends[1])
        target, low, high = (1.0 - SHARE * epsilon) * solution.upper, 0.0, 1.0

        def suffices(share: float) -> bool:
            mixture = np.array([1.0 - share, share])
            return float((margins @ mixture).min()) >= target * float(np.linalg.norm(ends[0] @ mixture))

        high = 0.0 if suffices(0.0) else high
        for _ in range(HALVINGS if high else 0):
            middle = 0.5 * (low + high)
            low, high = (low, middle) if suffices(middle) else (middle, high)
        mixture = np.array([1.0 - high, high])
        w, b = ends[0] @ mixture, float(ends[1] @ mixture)
        size = float(np.linalg.norm(w))
        return replace(solution, w=w / size, b=b / size)


def _constant(working_set: WorkingSet, *, intercept: bool) -> float:
    """The last entry of all rows that gives hyperplanes an offset: the root mean square of their lengths."""
    return float(np.sqrt((lengths(working_set.rows) ** 2).mean())) if intercept else 0.0


METHODS: Mapping[Name, Method] = {
    "coreset": Coreset(),
    "stream": Stream(),
    "slab": Slab(),
    "random": Random(),
    "chebyshev": Centred("chebyshev"),
    "analytic": Centred("analytic"),
    "ep": Centred("ep"),
    "hit-and-run": Centred("hit-and-run"),
    "billiard": Centred("billiard"),
    "dikin": Centred("dikin"),
    "permutations": Centred("permutations"),
    "perceptron": Centred("perceptron"),
}
