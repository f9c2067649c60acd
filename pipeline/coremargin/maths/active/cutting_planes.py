"""Cutting planes on rows with labels: Louche and Ralaivola 2015, Algorithms 1 to 3.

A point of the version space is searched for: the newest plane cuts the last query point off. Planes are rows, so that
the rows that were picked are a compression set: the same centres and the same picks give the same answer from them
alone (Proposition 1).
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
class Trained:
    """w (d,), not of unit length; updates: how many times a row was added to it."""

    w: Array
    updates: int


def perceptron(z: Array, start: Array, most: int = 10_000_000) -> Trained:
    """Rows z = y x (n, d), no further than ``most`` updates from w = start: until z.w > 0 for all of them.

    Of the rows that it gets wrong the one with the least z.w is added, the first of equal ones, as in section 4.1. The
    paper asks for z.w < 0: then w = 0, where Algorithm 3 starts, would never be left. Raises ValueError where so many
    updates do not do.
    """
    w, products = start.astype(np.float64), z @ z.T if len(z) <= len(z.T) else None
    scores = z @ w
    for updates in range(most + 1):
        worst = int(scores.argmin())
        if scores[worst] > 0:
            return Trained(w, updates)
        w = w + z[worst]
        scores = scores + products[worst] if products is not None else z @ w
    raise ValueError(f"expected rows that a hyperplane separates within {most} updates, found none that does")


#: A query point (d,) from the normals (t, d) of the planes so far.
Query: TypeAlias = Callable[["Array"], "Array"]
#: The normal (d,) of a plane that cuts a point (d,) off, and the row it is; nothing: the point is in the set.
Oracle: TypeAlias = Callable[["Array"], "tuple[int, Array] | None"]
#: Which of the rows with scores (n,) of at most 0 is to cut.
Pick: TypeAlias = Callable[["Array"], int]


@dataclass
class Located:
    """w (d,), a point of the set; planes: the rows that cut, in order; updates: of the perceptron for each query."""

    w: Array
    planes: list[int]
    updates: list[int] = field(default_factory=list)


def localise(dimensions: int, query: Query, oracle: Oracle, most: int = 10_000) -> Located:
    """Algorithm 1, the set being a cone within the unit ball: all planes go through the origin, b_t = 0.

    Raises ValueError where ``most`` planes do not do.
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
    """Algorithm 2: rows z = y x (n, d) cut as planes, until all have z.w > 0.

    The ball alone has its centre 0 in the closed version space of (7); the planes of line 7 are open, and so is the
    test here, so that 0 is cut off by any row.
    """
    return localise(z.shape[1], query, _rows_that_cut(z, pick))


def perceptron_cutting_planes(z: Array, pick: Pick) -> Located:
    """Algorithm 3: query points by a perceptron on the planes so far, each begun where the last one ended.

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
    """The row with the least score: furthest on the wrong side, the first of equal ones."""
    return int(scores.argmin())


def smallest_error(scores: Array) -> int:
    """The row with the largest score of those that are wrong: the nearest to the plane."""
    return int(np.where(scores <= 0, scores, -np.inf).argmax())


def random_error(seed: int) -> Pick:
    """Any of the rows that are wrong, as a generator of this seed has it."""
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
    """After an answer: the row asked about, its sign, and the centre (w, b) before it was known."""

    row: int
    sign: int
    w: Array
    b: float


def nearest(rows: Rows, w: Array, b: float, open_ones: NDArray[np.bool_], constant: float = 0.0) -> int:
    """The row (of those open) whose plane passes nearest to the centre: least |w.x + b| / ||(x, constant)||.

    The paper prints the least <g, x>, without the absolute value: that would be the row it is surest to be negative.
    """
    sizes = np.sqrt(lengths(rows) ** 2 + constant**2)
    away = np.abs(np.asarray(rows @ w).ravel() + b) / np.where(sizes > 0, sizes, 1.0)
    return int(np.where(open_ones, away, np.inf).argmin())


def active_cutting_planes(
    rows: Rows, label: Callable[[int], int], centre: Centre, first: NDArray[np.integer], *, cuts: Cuts = "all"
) -> Iterator[Asked]:
    """Algorithm 4: rows (n, d) are asked about one by one, for as long as the caller goes on and rows are left.

    label(row) is 1 or -1. first: rows asked about to begin with. cuts: whose planes cut; as printed only those of
    answers that the centre had wrong ("errors"), with "all" every answer counts, as in Active-SVM.
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
