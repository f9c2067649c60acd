"""Har-Peled 2015: two points move until the slab between them holds no row answered; the nearest is asked about."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np
from numpy.typing import NDArray

from coremargin.maths.active.slabs import slab_of_labelled
from coremargin.maths.margin import dual_vector, projections, upper_bound
from coremargin.maths.pool import PoolSolution, solve_pool
from coremargin.maths.span import span_of
from coremargin.problems.active.methods.method import Method

if TYPE_CHECKING:
    from coremargin.maths.margin import Array
    from coremargin.problems.active.methods.method import Asking
    from coremargin.problems.common.driver_rows import WorkingSet

#: After so many steps the exact solver has the word: rows that no slab separates would never end.
STEPS = 20_000
#: Of epsilon: the rest is for the rounding of what is proven.
SHARE = 0.99


class Slab(Method):
    """Instead of the largest margin at least 1 - epsilon of it, by projections on segments (Remark A)."""

    def solve(self, pool: WorkingSet, *, intercept: bool, epsilon: float) -> PoolSolution:
        """From the weights of the last slab, the two points being sums of rows.

        Through the origin: all rows y x are one class, the origin the other, which never moves; half of that slab, from
        the origin to the middle, is what stands for the other side.
        """
        flat = span_of(pool.rows, 0.0).flat
        rows, signs, weights = (flat, pool.signs, pool.weights) if intercept else _around_origin(flat, pool)
        begun = weights if all((weights[signs == sign] > 0).any() for sign in (1, -1)) else None
        try:
            slab = slab_of_labelled(rows, signs, SHARE * epsilon * (1 if intercept else 2), begun, most=STEPS)
        except ValueError:
            return solve_pool(pool.rows, pool.signs, intercept=intercept)
        found = slab.weights[: len(pool)]
        across = dual_vector(pool.rows, pool.signs, found)
        w = across / np.linalg.norm(across)
        b = -float(found @ projections(pool.rows, w[:, None])[:, 0]) / 2 if intercept else 0.0
        return PoolSolution(w, b, found, upper_bound(pool.rows, pool.signs, found, intercept), "optimal")

    def pick(self, asking: Asking) -> int:
        """The nearest to the middle."""
        return int(asking.sizes.argmin())


def _around_origin(flat: Array, pool: WorkingSet) -> tuple[Array, NDArray[np.int8], Array]:
    """Rows y x (m + 1, q) as one class and the origin as the other, with their signs and weights."""
    rows = np.vstack([flat * pool.signs[:, None], np.zeros(flat.shape[1])])
    return rows, np.append(np.ones(len(pool), np.int8), np.int8(-1)), np.append(pool.weights, 1.0)
