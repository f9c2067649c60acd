"""The published algorithms, as a reference: every subset of a coreset's size (Har-Peled, Roth, Zimak 2006, Figure 4).

Some c rows of the best D minus V* carry its maximum-margin hyperplane to a share 1 - epsilon, c being the size of a
coreset. So the best of the hyperplanes of all subsets of c rows, measured by rho_k, is as good as that. c depends on
the margin that is looked for:

    OUTLIER SVM (Figure 4a)         for i = 0, 1, ...: guess rho = R / 2^i, c = coreset_size(rho);
                                    stop when the best rho_k reaches (1 - epsilon) rho
    SIMPLE OUTLIER SVM (Figure 4b)  for i = 0, 1, ...: c = 2^i;
                                    stop when c reaches coreset_size(the best rho_k)

Where this differs from the figure: coreset_size has the constant 8 instead of 32 and R about the mean of the rows
instead of the largest length (the figure: c = ceil(32 R^2 / (epsilon rho^2))); c is at most d + 1, as many rows as
carry any hyperplane, and n - k; (a) stops at (1 - epsilon) rho instead of rho.

There are n! / (c! (n - c)!) subsets: the search of this package needs a few hundred nodes where this needs 1e16 solves.
Subsets are numbered in lexicographic order; a task gets a range of numbers and unranks the first, so that nothing is
enumerated where the tasks are made. An enumeration is a frozen state and ``further`` its only step, a wave of tasks:
it can be stopped, kept and gone on with between any two, and how it is cut changes nothing.
"""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Literal

import numpy as np
from numpy.typing import NDArray

from coremargin.maths.nearest import nearest_point
from coremargin.maths.outliers.heuristic import Found, measure

if TYPE_CHECKING:
    from coremargin.maths.outliers.certificates import SearchRows
    from coremargin.maths.outliers.tasks import Map

Published = Literal["outlier-svm", "simple-outlier-svm"]

#: Subsets that are tried at most unless more are asked for: minutes on a core.
MOST_SUBSETS = 5_000_000
#: Rows of all its subsets together that one task solves with, and tasks that are in flight together. A solve takes some
#: 20 us a row (measured, 2 to 50 features): a wave is over within half a second on one core, and then a job may end.
RANGE, WAVE = 1_000, 16


@dataclass(frozen=True)
class Enumerated:
    """An enumeration on its way, or at its end.

    radius: rows lie within it of the centre. sizes: c of each turn, the last always suffices; turn: which one it is at;
    number: of the subset of this size that is next. found: the best hyperplane so far over the arena's rows. subsets:
    so many were tried in all.
    """

    k: int
    epsilon: float
    algorithm: Published
    radius: float
    sizes: tuple[int, ...]
    found: Found
    turn: int = 0
    number: int = 0
    subsets: int = 0
    ended: bool = False

    @property
    def size(self) -> int:
        """Rows of a subset at this turn, or the last one."""
        return self.sizes[self.turn]


def coreset_size(radius: float, margin: float, epsilon: float) -> int | None:
    """Rows that carry a share 1 - epsilon of a margin, of rows within ``radius`` of the centre; None: no bound.

    ceil(2 E / epsilon) with E = (diameter / distance)^2 (Gärtner, Jaggi 2009, for the distance of polytopes).
    """
    size = 8.0 * (radius / margin) ** 2 / epsilon if margin > 0 else math.inf
    return math.ceil(size) if size < 1e9 else None


def sizes_of(rows: int, features: int, k: int, epsilon: float, algorithm: Published) -> tuple[int, ...]:
    """The sizes c of subsets in the order in which they are tried; the rules that stop may spare the last of them.

    c is never more than the rows - k that stay, nor than features + 1, which always suffices: there the result is
    exact, and the loop ends whatever its stopping rule says (it never does where no set of k outliers leaves rows
    separable).
    """
    most = min(rows - k, features + 1)
    sizes: list[int] = []
    while not sizes or sizes[-1] < most:
        i = len(sizes)
        wanted = coreset_size(1.0, 0.5**i, epsilon) if algorithm == "outlier-svm" else 2**i
        sizes.append(most if wanted is None else min(wanted, most))
    return tuple(sizes)


def most_subsets_of(rows: int, features: int, k: int, epsilon: float, algorithm: Published) -> int:
    """How many subsets may have to be tried in all."""
    return sum(math.comb(rows, size) for size in sizes_of(rows, features, k, epsilon, algorithm))


def begun(search_rows: SearchRows, k: int, epsilon: float, algorithm: Published) -> Enumerated:
    """The enumeration before its first subset; epsilon in (0, 1), k less than the rows of each class."""
    n, d = search_rows.x.shape
    radius = float(np.sqrt(np.einsum("ij,ij->i", search_rows.z, search_rows.z).max()))
    return Enumerated(k, epsilon, algorithm, radius, sizes_of(n, d, k, epsilon, algorithm), Found.nothing(d))


def further(enumerated: Enumerated, search_rows: SearchRows, run: Map) -> Enumerated:
    """After one more wave of subsets; only for one that has not ended. ``search_rows``: those that it began with."""
    size, start = enumerated.size, enumerated.number
    total, each = math.comb(len(search_rows), size), max(1, RANGE // size)
    stop = min(start + each * WAVE, total)
    tasks = [(search_rows, enumerated.k, size, i, min(i + each, stop)) for i in range(start, stop, each)]
    best = enumerated.found
    for found in run(best_of_range, tasks):
        best = found if found.margin > best.margin else best
    subsets = enumerated.subsets + stop - start
    enumerated = replace(enumerated, found=best, number=stop, subsets=subsets)
    return enumerated if stop < total else _turned(enumerated)


def _turned(enumerated: Enumerated) -> Enumerated:
    """All subsets of a size were tried: the stopping rules of Figure 4, or the next size."""
    margin, epsilon, turn = enumerated.found.margin, enumerated.epsilon, enumerated.turn
    if enumerated.algorithm == "outlier-svm":
        enough = margin >= (1 - epsilon) * enumerated.radius / 2**turn
    else:
        needed = coreset_size(enumerated.radius, margin, epsilon)
        enough = needed is not None and enumerated.size >= needed
    if enough or turn + 1 == len(enumerated.sizes):
        return replace(enumerated, ended=True)
    return replace(enumerated, turn=turn + 1, number=0)


def by_enumeration(
    search_rows: SearchRows, k: int, epsilon: float, run: Map, algorithm: Published = "outlier-svm"
) -> Enumerated:
    """The best margin with k outliers to a share 1 - epsilon, from every subset of c rows; epsilon in (0, 1)."""
    enumerated = begun(search_rows, k, epsilon, algorithm)
    while not enumerated.ended:
        enumerated = further(enumerated, search_rows, run)
    return enumerated


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
