"""The published algorithms, as a reference: every subset of a coreset's size (Har-Peled, Roth, Zimak 2006, Figure 4).

Some c rows of the best D minus V* carry its maximum-margin hyperplane to a share 1 - epsilon, c being the size of a
coreset. So the best of the hyperplanes of all subsets of c rows, measured by rho_k, is as good as that. c depends on
the margin that is looked for:

    OUTLIER SVM (Figure 4a)         for i = 0, 1, ...: guess rho = R / 2^i, c = coreset_size(rho);
                                    stop when the best rho_k reaches (1 - epsilon) rho
    SIMPLE OUTLIER SVM (Figure 4b)  for i = 0, 1, ...: c = 2^i;
                                    stop when c reaches coreset_size(the best rho_k)

There are n! / (c! (n - c)!) subsets: the search of this package needs a few hundred nodes where this needs 1e16 solves.
Subsets are numbered in lexicographic order; a task gets a range of numbers and unranks the first, so that nothing is
enumerated where the tasks are made.
"""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import dataclass
from typing import TYPE_CHECKING, Literal

import numpy as np
from numpy.typing import NDArray

from coremargin.maths.nearest import nearest_point
from coremargin.maths.outliers.heuristic import Found, measure

if TYPE_CHECKING:
    from coremargin.maths.outliers.certificates import SearchRows
    from coremargin.maths.outliers.search import Map

Published = Literal["outlier-svm", "simple-outlier-svm"]

#: Subsets that one task tries, and tasks that are in flight together.
RANGE, WAVE = 5_000, 64


@dataclass(frozen=True)
class Enumerated:
    """The best hyperplane over the arena's rows, the last c, and how many subsets were solved in all."""

    found: Found
    size: int
    subsets: int


def coreset_size(radius: float, margin: float, epsilon: float) -> int | None:
    """Rows that carry a share 1 - epsilon of a margin, of rows within ``radius`` of the centre; None: no bound.

    ceil(2 E / epsilon) with E = (diameter / distance)^2 (Gärtner, Jaggi 2009, for the distance of polytopes).
    """
    size = 8.0 * (radius / margin) ** 2 / epsilon if margin > 0 else math.inf
    return math.ceil(size) if size < 1e9 else None


def by_enumeration(
    search_rows: SearchRows, k: int, epsilon: float, run: Map, algorithm: Published = "outlier-svm"
) -> Enumerated:
    """The best margin with k outliers to a share 1 - epsilon, from every subset of c rows; epsilon in (0, 1).

    c is never more than the n - k rows that stay, nor than d + 1, which always suffice: there the result is exact, and
    the loop ends whatever its stopping rule says (it never does where no set of k outliers leaves rows separable).
    """
    n, d = search_rows.x.shape
    most = min(n - k, d + 1)
    radius = float(np.sqrt(np.einsum("ij,ij->i", search_rows.z, search_rows.z).max()))
    best, tried, i = Found.nothing(d), 0, 0
    while True:
        guess = radius / 2**i
        wanted = coreset_size(radius, guess, epsilon) if algorithm == "outlier-svm" else 2**i
        size = most if wanted is None else min(wanted, most)
        found, count = best_of_all(search_rows, k, size, run)
        best, tried, i = (found if found.margin > best.margin else best), tried + count, i + 1
        if algorithm == "outlier-svm":
            stop = best.margin >= (1 - epsilon) * guess
        else:
            needed = coreset_size(radius, best.margin, epsilon)
            stop = needed is not None and size >= needed
        if stop or size == most:
            return Enumerated(best, size, tried)


def best_of_all(search_rows: SearchRows, k: int, size: int, run: Map) -> tuple[Found, int]:
    """The best rho_k over the hyperplanes of all subsets of ``size`` rows, and their number; ranges run as tasks."""
    total = math.comb(len(search_rows), size)
    best = Found.nothing(search_rows.x.shape[1])
    for wave in range(0, total, RANGE * WAVE):
        starts = range(wave, min(wave + RANGE * WAVE, total), RANGE)
        for found in run(best_of_range, [(search_rows, k, size, start, min(start + RANGE, total)) for start in starts]):
            best = found if found.margin > best.margin else best
    return best, total


def best_of_range(search_rows: SearchRows, k: int, size: int, start: int, stop: int) -> Found:
    """The best rho_k over the subsets numbered ``start`` to ``stop`` - 1; of equal ones the first."""
    best = Found.nothing(search_rows.x.shape[1])
    for rows in subsets(len(search_rows), size, start, stop):
        groups = search_rows.groups[rows]
        if search_rows.intercept and (groups == groups[0]).all():
            continue  # of one class: no hyperplane
        found = measure(search_rows, nearest_point(search_rows.z[rows], groups).point, k)
        best = found if found.margin > best.margin else best
    return best


def subsets(n: int, size: int, start: int, stop: int) -> Iterator[NDArray[np.intp]]:
    """Subsets of range(n) numbered ``start`` to ``stop`` - 1 in lexicographic order."""
    current = unrank(n, size, start)
    for number in range(start, stop):
        yield np.array(current, np.intp)
        if number + 1 < stop:
            place = max(j for j in range(size) if current[j] < n - size + j)
            current[place:] = range(current[place] + 1, current[place] + 1 + size - place)


def unrank(n: int, size: int, number: int) -> list[int]:
    """The subset of range(n) with this number in lexicographic order."""
    chosen, row = [], 0
    for left in range(size, 0, -1):
        while (here := math.comb(n - row - 1, left - 1)) <= number:
            number -= here
            row += 1
        chosen.append(row)
        row += 1
    return chosen
