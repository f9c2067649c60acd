"""The published algorithms, as a reference: every subset of a coreset's size (Har-Peled, Roth, Zimak 2006, Figure 4).

Some c rows of the best D minus V* carry its maximum-margin hyperplane to a share 1 - epsilon, c being the size of a
coreset. So the best of the hyperplanes of all subsets of c rows, measured by rho_k, is as good as that. c depends on
the unknown margin:

    OUTLIER SVM (Figure 4a)         for i = 0, 1, ...: guess rho = R / 2^i, c = coreset_size(rho);
                                    stop when the best rho_k reaches (1 - epsilon) rho
    SIMPLE OUTLIER SVM (Figure 4b)  for i = 0, 1, ...: c = 2^i;
                                    stop when c reaches coreset_size(the best rho_k)

Differences from the figure: coreset_size has the constant 8 instead of 32, and R about the mean of the rows instead of
the largest norm (the figure: c = ceil(32 R^2 / (epsilon rho^2))); c is at most d + 1, as many rows as carry any
hyperplane, and n - k; (a) stops at (1 - epsilon) rho instead of rho.

There are n! / (c! (n - c)!) subsets: the search of this package needs a few hundred nodes where this needs 1e16 solves.
Subsets are numbered in lexicographic order; a task gets a range of numbers and unranks the first, so that the driver
enumerates nothing. An Enumeration is a frozen state and ``next_wave`` its only step, a wave of tasks: it can be
stopped, stored and resumed between any two, and the division into waves changes nothing.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any, Literal, get_args

import numpy as np
from numpy.typing import NDArray

from coremargin.maths.nearest import nearest_point
from coremargin.maths.outliers.heuristic import Hyperplane, measure

if TYPE_CHECKING:
    from coremargin.maths.outliers.certificates import SearchRows
    from coremargin.maths.outliers.tasks import TaskRunner

Published = Literal["outlier-svm", "simple-outlier-svm"]

#: The default limit on the number of subsets: minutes on a core.
MOST_SUBSETS = 5_000_000
#: Rows of all subsets of a task together, and tasks of a wave. A solve takes about 20 us a row (measured, 2 to 50
#: features), so that a wave ends within half a second on one core, after which a job may stop.
RANGE, WAVE = 1_000, 16

_COUNTS = ("k", "turn", "number", "subsets", "ended")


@dataclass(frozen=True)
class Enumeration:
    """The state of an enumeration.

    radius: rows lie within it of the centre. sizes: c of each turn, the last of which always suffices; turn: the
    current one; number: of the next subset of this size. best: the best hyperplane so far over all rows. subsets: tried
    so far.
    """

    k: int
    epsilon: float
    algorithm: Published
    radius: float
    sizes: tuple[int, ...]
    best: Hyperplane
    turn: int = 0
    number: int = 0
    subsets: int = 0
    ended: bool = False

    @property
    def size(self) -> int:
        """Rows of a subset at the current or last turn."""
        return self.sizes[self.turn]

    def to_arrays(self) -> dict[str, NDArray[Any]]:
        """Plain arrays, exact."""
        best = self.best
        return {
            "counts": np.array([getattr(self, name) for name in _COUNTS], np.int64),
            "numbers": np.array([self.epsilon, self.radius, best.b, best.margin]),
            "algorithm": np.array(get_args(Published).index(self.algorithm)),
            "sizes": np.array(self.sizes, np.int64),
            "w": best.w,
        }

    @classmethod
    def from_arrays(cls, arrays: Mapping[str, NDArray[Any]]) -> Enumeration:
        """Inverse of ``to_arrays``."""
        counts = dict(zip(_COUNTS, arrays["counts"].tolist(), strict=True))
        epsilon, radius, b, margin = arrays["numbers"].tolist()
        return cls(
            **counts | {"ended": bool(counts["ended"])},
            epsilon=epsilon,
            radius=radius,
            algorithm=get_args(Published)[int(arrays["algorithm"])],
            sizes=tuple(arrays["sizes"].tolist()),
            best=Hyperplane(arrays["w"], b, margin),
        )


def coreset_size(radius: float, margin: float, epsilon: float) -> int | None:
    """Rows that carry a share 1 - epsilon of a margin, for rows within ``radius`` of the centre; None: no bound.

    ceil(2 E / epsilon) with E = (diameter / distance)^2 (Gärtner, Jaggi 2009, for the distance of polytopes).
    """
    size = 8.0 * (radius / margin) ** 2 / epsilon if margin > 0 else math.inf
    return math.ceil(size) if size < 1e9 else None


def subset_sizes(rows: int, features: int, k: int, epsilon: float, algorithm: Published) -> tuple[int, ...]:
    """The sizes c of subsets, in the order in which they are tried unless a stopping rule ends the loop.

    c is at most the rows - k that stay, and at most features + 1, which always suffices: there the result is exact and
    the loop ends regardless of its stopping rule (which never does when no k outliers leave the rows separable).
    """
    most = min(rows - k, features + 1)
    sizes: list[int] = []
    while not sizes or sizes[-1] < most:
        i = len(sizes)
        wanted = coreset_size(1.0, 0.5**i, epsilon) if algorithm == "outlier-svm" else 2**i
        sizes.append(most if wanted is None else min(wanted, most))
    return tuple(sizes)


def max_subsets(rows: int, features: int, k: int, epsilon: float, algorithm: Published) -> int:
    """The largest number of subsets that an algorithm may try."""
    return sum(math.comb(rows, size) for size in subset_sizes(rows, features, k, epsilon, algorithm))


def start_enumeration(search_rows: SearchRows, k: int, epsilon: float, algorithm: Published) -> Enumeration:
    """The enumeration before its first subset; epsilon in (0, 1), k less than the rows of each class."""
    n, d = search_rows.x.shape
    radius = float(np.sqrt(np.einsum("ij,ij->i", search_rows.z, search_rows.z).max()))
    return Enumeration(k, epsilon, algorithm, radius, subset_sizes(n, d, k, epsilon, algorithm), Hyperplane.none(d))


def next_wave(enumeration: Enumeration, search_rows: SearchRows, run: TaskRunner) -> Enumeration:
    """Try one more wave of subsets of an enumeration that has not ended; ``search_rows``: those that it began with."""
    size, start = enumeration.size, enumeration.number
    total, each = math.comb(len(search_rows), size), max(1, RANGE // size)
    stop = min(start + each * WAVE, total)
    tasks = [(search_rows, enumeration.k, size, i, min(i + each, stop)) for i in range(start, stop, each)]
    best = enumeration.best
    for found in run(best_of_range, tasks):
        best = found if found.margin > best.margin else best
    subsets = enumeration.subsets + stop - start
    enumeration = replace(enumeration, best=best, number=stop, subsets=subsets)
    return enumeration if stop < total else _next_size(enumeration)


def _next_size(enumeration: Enumeration) -> Enumeration:
    """Apply the stopping rule of Figure 4 once all subsets of a size are tried, or continue with the next size."""
    margin, epsilon, turn = enumeration.best.margin, enumeration.epsilon, enumeration.turn
    if enumeration.algorithm == "outlier-svm":
        enough = margin >= (1 - epsilon) * enumeration.radius / 2**turn
    else:
        needed = coreset_size(enumeration.radius, margin, epsilon)
        enough = needed is not None and enumeration.size >= needed
    if enough or turn + 1 == len(enumeration.sizes):
        return replace(enumeration, ended=True)
    return replace(enumeration, turn=turn + 1, number=0)


def enumerate_subsets(
    search_rows: SearchRows, k: int, epsilon: float, run: TaskRunner, algorithm: Published = "outlier-svm"
) -> Enumeration:
    """Run an algorithm to its end: the best margin with k outliers to a share 1 - epsilon; epsilon in (0, 1)."""
    enumeration = start_enumeration(search_rows, k, epsilon, algorithm)
    while not enumeration.ended:
        enumeration = next_wave(enumeration, search_rows, run)
    return enumeration


def best_of_range(search_rows: SearchRows, k: int, size: int, start: int, stop: int) -> Hyperplane:
    """The best rho_k over the subsets numbered ``start`` to ``stop`` - 1; of equal ones the first. One task."""
    best = Hyperplane.none(search_rows.x.shape[1])
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
