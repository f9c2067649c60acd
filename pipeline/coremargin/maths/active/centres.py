"""Centres of the version space by name, as hyperplanes: the queries of Algorithm 4 of Louche and Ralaivola 2015."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING, Literal, TypeAlias

import numpy as np
from numpy.typing import NDArray

from coremargin.maths.active.cutting_planes import perceptron
from coremargin.maths.active.ep import bayes_point
from coremargin.maths.active.version_space import VersionSpace, chebyshev
from coremargin.maths.active.walks import analytic_centre, billiard, dikin_walk, hit_and_run

if TYPE_CHECKING:
    from coremargin.maths.margin import Array
    from coremargin.maths.rows import Rows

CentreName = Literal["chebyshev", "analytic", "ep", "hit-and-run", "billiard", "dikin", "permutations", "perceptron"]
#: A point (q,) of a version space; the seed is for centres that use random numbers.
Centre: TypeAlias = "Callable[[VersionSpace, int], Array]"

#: Most updates of the perceptron for a centre: a version space that needs more is too thin for it.
UPDATES = 100_000

#: Perceptrons whose mean is the centre by permutations, and the most passes of each.
PERMUTATIONS, PASSES = 100, 1_000


def permuted_perceptrons(space: VersionSpace, seed: int) -> Array:
    """The mean (q,) of the directions of perceptrons, each through the planes in a random order until none is wrong.

    Herbrich, Graepel and Campbell 2001 take it for the centre of gravity. Their solutions are not uniform in the
    version space: an approximation, coarser the fewer the planes are. Raises ValueError if a perceptron does not end.
    """
    rng, total = np.random.default_rng(seed), np.zeros(space.dimensions)
    for _ in range(PERMUTATIONS):
        w = np.zeros(space.dimensions)
        for _ in range(PASSES):
            mistakes = 0
            for row in space.planes[rng.permutation(len(space.planes))]:
                if row @ w <= 0:
                    w, mistakes = w + row, mistakes + 1
            if not mistakes:
                break
        else:
            raise ValueError(f"expected planes that a perceptron satisfies within {PASSES:,} passes, found none")
        total += w / np.linalg.norm(w)
    return total / PERMUTATIONS


CENTRES: Mapping[CentreName, Centre] = {
    "chebyshev": lambda space, seed: chebyshev(space)[0],
    "analytic": lambda space, seed: analytic_centre(space, chebyshev(space)[0]),
    "ep": lambda space, seed: bayes_point(space),
    "hit-and-run": lambda space, seed: hit_and_run(space, seed).mean(axis=0),
    "billiard": billiard,
    "dikin": lambda space, seed: dikin_walk(space, seed).mean(axis=0),
    "permutations": permuted_perceptrons,
    "perceptron": lambda space, seed: perceptron(space.planes, np.zeros(space.dimensions), UPDATES).w,
}


def centre_of(
    name: CentreName, rows: Rows, signs: NDArray[np.integer], *, constant: float = 0.0, seed: int = 0
) -> tuple[Array, float]:
    """w (d,), ||w|| = 1, and b: the centre of the version space of rows (m, d) with signs (m,), m at least 1.

    constant: a last entry of all rows, so that hyperplanes have an offset; 0: they go through the origin, as in the
    paper. Raises ValueError if no hyperplane separates the rows, or if the margin is too small to find the centre.
    """
    space = VersionSpace.of(rows, signs, constant)
    w, b = space.up(CENTRES[name](space, seed))
    length = float(np.linalg.norm(w))
    return (w / length, b / length) if length > 0 else (w, b)
