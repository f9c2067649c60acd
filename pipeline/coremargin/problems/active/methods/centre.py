"""Louche and Ralaivola 2015, Algorithm 4: the row whose plane passes nearest to a centre of the version space.

The version space is that of the rows answered, as directions, with a last entry for the offset: as long as the rows are
on average, so that it weighs as much as they do. (The paper has no offset.) The paper ends when the space "is small
enough": here when no row in memory lies within the slab of the largest margin, which is the hypothesis in the end.
For that, rows within the slab alone are chosen from. Measured on 1e5 x 20 rows pushed 0.3 apart, three seeds: EP needs
65 to 73 labels so, 81 to 84 when it may choose from all rows, the Chebyshev centre 69 to 78 instead of 82 to 93, the
perceptron 96 to 103 instead of 129 to 257; the coreset method 71 to 75.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from coremargin.maths.active.asking import nearest
from coremargin.maths.active.centres import CentreName, centre_of
from coremargin.maths.breakdown import quiet
from coremargin.maths.rows import lengths
from coremargin.problems.active.methods.method import Method

if TYPE_CHECKING:
    from coremargin.problems.active.methods.method import Asking


class Centred(Method):
    """By the centre of a name."""

    def __init__(self, name: CentreName) -> None:
        self.name = name

    def pick(self, asking: Asking) -> int:
        """The nearest to the centre, by angle; to the hyperplane where the version space is too thin for its centre."""
        pool = asking.answered
        constant = float(np.sqrt((lengths(pool.rows) ** 2).mean())) if asking.intercept else 0.0
        seed = int(asking.chance.integers(2**31))
        try:
            with quiet():
                w, b = centre_of(self.name, pool.rows, pool.signs, constant=constant, seed=seed)
        except (ValueError, ArithmeticError):
            return int(asking.sizes.argmin())
        if not np.isfinite([*w, b]).all():
            return int(asking.sizes.argmin())
        return nearest(asking.rows.rows, w, b, asking.within, constant)
