"""Cutting planes on rows with labels: Louche and Ralaivola 2015, Algorithms 1 to 3.

The algorithms search a point of the version space: the newest plane cuts off the last query point. Planes are rows, so
the picked rows are a compression set: with the same centres and picks, they alone give the same result (Proposition 1).
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Literal, TypeAlias

import numpy as np
from numpy.typing import NDArray

from coremargin.maths.rows import filled, lengths, take

if TYPE_CHECKING:
    from coremargin.maths.margin import Array
    from coremargin.maths.rows import Rows


@dataclass(frozen=True)
class PerceptronResult:
    """w (d,), not of unit length; updates: number of updates."""

    w: Array
    updates: int


def perceptron(z: Array, start: Array, most: int = 10_000_000) -> PerceptronResult:
    """Perceptron updates from w = start until z.w > 0 for all rows z = y x (n, d).

    Each update adds the row with the least z.w, the first of equal ones, as in section 4.1. The paper updates for z.w <
    0: then w = 0, where Algorithm 3 starts, would never change. Raises ValueError if ``most`` updates are not enough.
    """
    w, products = start.astype(np.float64), z @ z.T if len(z) <= len(z.T) else None
    scores = z @ w
    for updates in range(most + 1):
        worst = int(scores.argmin())
        if scores[worst] > 0:
            return PerceptronResult(w, updates)
        w = w + z[worst]
        scores = scores + products[worst] if products is not None else z @ w
    raise ValueError(f"expected rows that a hyperplane separates within {most} updates, found none that does")


#: A query point (d,) from the normals (t, d) of the planes so far.
Query: TypeAlias = Callable[["Array"], "Array"]
#: The row and normal (d,) of a plane that cuts off a point (d,); None: the point is in the set.
Oracle: TypeAlias = Callable[["Array"], "tuple[int, Array] | None"]
#: Picks the row to cut with, among those with scores (n,) of at most 0.
Pick: TypeAlias = Callable[["Array"], int]


@dataclass
class Located:
    """w (d,), a point of the set; planes: the rows that cut, in order; updates: of the perceptron for each query."""

    w: Array
    planes: list[int]
    updates: list[int] = field(default_factory=list)


def localise(dimensions: int, query: Query, oracle: Oracle, most: int = 10_000) -> Located:
    """Algorithm 1, the set being a cone within the unit ball: all planes go through the origin, b_t = 0.

    Raises ValueError if ``most`` planes are not enough.
    """
    normals, planes = np.zeros((0, dimensions)), list[int]()
    while len(planes) <= most:
        point = query(normals)
        cut = oracle(point)
        if cut is None:
            return Located(point, planes)
        planes.append(cut[0])
        normals = np.vstack([normals, cut[1]])
    raise ValueError(f"expected a point of the version space after {most} planes, found none")


def cutting_planes(z: Array, query: Query, pick: Pick) -> Located:
    """Algorithm 2: cut with rows z = y x (n, d) as planes, until all have z.w > 0.

    The centre 0 of the ball is in the closed version space of (7). The planes of line 7 are open, and so is the test
    here, so that any row cuts off 0.
    """
    return localise(z.shape[1], query, _rows_that_cut(z, pick))


def perceptron_cutting_planes(z: Array, pick: Pick) -> Located:
    """Algorithm 3: query points by a perceptron on the planes so far, started at the last query point.

    Its updates are at most (R / gamma)^2 in all, where all z.w* >= gamma and ||z|| <= R (Novikoff): Proposition 2 with
    1 / gamma^2 is about rows of length 1, gamma being their margin; the radius of the largest ball inside the version
    space is smaller than that margin, so that the proposition holds for it too.
    """
    w, updates = np.zeros(z.shape[1]), list[int]()

    def query(normals: Array) -> Array:
        nonlocal w
        if not len(normals):
            return w
        trained = perceptron(normals, w)
        w = trained.w
        updates.append(trained.updates)
        return w / np.linalg.norm(w)

    found = localise(z.shape[1], query, _rows_that_cut(z, pick))
    return Located(found.w, found.planes, updates)


def _rows_that_cut(z: Array, pick: Pick) -> Oracle:
    def oracle(point: Array) -> tuple[int, Array] | None:
        scores = z @ point
        if scores.min() > 0:
            return None
        row = pick(scores)
        return row, z[row]

    return oracle


def largest_error(scores: Array) -> int:
    """The row with the least score, furthest on the wrong side; the first of equal ones."""
    return int(scores.argmin())


def smallest_error(scores: Array) -> int:
    """The misclassified row with the largest score, nearest to the plane."""
    return int(np.where(scores <= 0, scores, -np.inf).argmax())


def random_error(seed: int) -> Pick:
    """A random misclassified row, from a generator with this seed."""
    rng = np.random.default_rng(seed)

    def pick(scores: Array) -> int:
        wrong: NDArray[np.intp] = np.flatnonzero(scores <= 0)
        return int(wrong[rng.integers(len(wrong))])

    return pick


#: w (d,) and b from rows (m, d) and their signs (m,).
Centre: TypeAlias = "Callable[[Rows, NDArray[np.int8]], tuple[Array, float]]"
Cuts = Literal["all", "errors"]


@dataclass(frozen=True)
class Asked:
    """An answer: the queried row, its sign, and the centre (w, b) before the answer."""

    row: int
    sign: int
    w: Array
    b: float


def nearest(rows: Rows, w: Array, b: float, open_ones: NDArray[np.bool_], constant: float = 0.0) -> int:
    """The open row whose plane passes nearest to the centre: least |w.x + b| / ||(x, constant)||.

    The paper prints the least <g, x>, without the absolute value: that would be the most certainly negative row.
    """
    sizes = np.sqrt(lengths(rows) ** 2 + constant**2)
    away = np.abs(np.asarray(rows @ w).ravel() + b) / np.where(sizes > 0, sizes, 1.0)
    return int(np.where(open_ones, away, np.inf).argmin())


def active_cutting_planes(
    rows: Rows, label: Callable[[int], int], centre: Centre, first: NDArray[np.integer], *, cuts: Cuts = "all"
) -> Iterator[Asked]:
    """Algorithm 4: query rows (n, d) one by one, as long as the caller iterates and rows are left.

    label(row) is 1 or -1. first: rows to query first. cuts: "errors": only answers that the centre predicts wrongly
    cut, as in the paper; "all": every answer cuts, as in Active-SVM.
    """
    open_ones = np.ones(rows.shape[0], bool)
    open_ones[first] = False
    held, signs = [int(row) for row in first], [label(int(row)) for row in first]
    while open_ones.any():
        w, b = centre(take(rows, np.array(held)), np.array(signs, np.int8))
        row = nearest(rows, w, b, open_ones)
        sign, open_ones[row] = label(row), False
        yield Asked(row, sign, w, b)
        if cuts == "all" or sign * float((filled(take(rows, np.array([row]))) @ w)[0] + b) <= 0:
            held.append(row)
            signs.append(sign)
