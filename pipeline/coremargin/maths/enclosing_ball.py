"""The smallest ball around rows, exactly: an active set on QR factors of differences, and the bounds that it proves.

Minimise over p the largest ||x_i - p||. The dual: over weights b >= 0 that sum to 1, maximise

    sum_i b_i ||x_i - q||^2 - ||sum_i b_i (x_i - q)||^2,    the same number for any point q.

Its root is a lower bound of the radius for any weights, and the radius itself for the best ones, whose centre is
p = sum_i b_i x_i. Written with q = p no digits cancel, however far the rows are from the origin.

The rows with weight (the *support*) are affinely independent, and lie on the sphere around p. This is Wolfe's active
set (nearest.py) with a linear term: with x_0 a row of the support, D the differences of the others from it as columns,
D = Q R, the point of their affine hull that is equally far from all of them is

    p = x_0 + Q z,    R' z = (||D_j||^2 / 2)_j,    and its weights are R^-1 z, and 1 less their sum for x_0.

Upper bounds are distances, rounded up. Dense rows are measured in their own precision about a reference point m near
them, by ||x - c||^2 = ||y||^2 - 2 y.e + ||e||^2 with y = x - m, e = c - m: one pass gives the distances to m and c.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
import scipy.linalg as sla
from numpy.typing import NDArray
from scipy.linalg.lapack import dtrtrs

from coremargin.maths.factors import delete_column, split
from coremargin.maths.margin import VANISHED, Array, gamma
from coremargin.maths.rows import TILE_BYTES, Rows, dense, filled, is_sparse, lengths, take, tiles, weighted_sum
from coremargin.maths.stopping import may_stop

#: A row counts as affinely dependent when this share of its difference is left after projection.
DEPENDENT = 1e-12
#: Steps of a solve that make no progress before float64 counts as exhausted, and steps before a loose tolerance counts.
NO_PROGRESS, PATIENCE, PATIENCE_EACH = 4, 1000, 20
#: A solve looks at so many rows at a time, those farthest from the centre; more for many features, within so many
#: numbers; in any case at some.
WORK, WORK_EACH, WORK_NUMBERS, WORK_LEAST = 1000, 4, 1 << 21, 200
#: From so many times more features than rows on, rows are solved in coordinates of their own span.
WIDE = 3


@dataclass(frozen=True)
class Ball:
    """weights (n,): dual weights of the rows; centre (d,); radius: the largest distance of a row with weight."""

    weights: Array
    centre: Array
    radius: float


# The active set


class _Support:
    """Affinely independent rows by their places: ``members``, the first of which is x_0, and the factors of D."""

    def __init__(self, rows: Array, members: list[int]) -> None:
        self.rows = rows
        capacity = min(rows.shape) + 1
        self.q, self.r = np.zeros((capacity, rows.shape[1])), np.zeros((capacity, capacity)).T
        self.members: list[int] = []
        self._factor(members)

    def _factor(self, members: list[int]) -> None:
        self.members = members[:1]
        for row in members[1:]:
            self.add(row)

    def add(self, row: int) -> Array | None:
        """Add a row; if it lies in the affine hull, it is not added, and its affine coordinates (m,) are returned."""
        size = len(self.members) - 1
        column = self.rows[row] - self.rows[self.members[0]]
        head, rest = split(self.q, size, column)
        length = float(np.linalg.norm(rest))
        if size < len(self.q) - 1 and length > DEPENDENT * float(np.linalg.norm(column)):
            self.q[size] = rest / length
            self.r[:size, size], self.r[size, size] = head, length
            self.members.append(row)
            return None
        return self._affine(head)

    def remove(self, place: int) -> None:
        """Remove the member at a place."""
        if place:
            delete_column(self.q, self.r, len(self.members) - 1, place - 1)
            del self.members[place]
        else:
            self._factor(self.members[1:])

    def solve(self) -> tuple[Array, Array]:
        """The point (d,) that is equally far from all members, in their affine hull, and its weights (m,)."""
        size, base = len(self.members) - 1, self.rows[self.members[0]]
        if not size:
            return base, np.ones(1)
        differences = self.rows[self.members[1:]] - base
        z, _ = dtrtrs(self.r[:size, :size], np.einsum("ij,ij->i", differences, differences) / 2, trans=1)
        return base + z @ self.q[:size], self._affine(z)

    def _affine(self, head: Array) -> Array:
        size = len(self.members) - 1
        others = dtrtrs(self.r[:size, :size], head)[0] if size else np.zeros(0)
        return np.concatenate([[1.0 - others.sum()], others])


def smallest_ball(
    rows: Array,
    start: Array | None = None,
    *,
    tolerance: float = 1e-12,
    loose: float = 0.0,
    enough: float = np.inf,
) -> Array:
    """Dual weights (n,) of the smallest ball around rows (n, d) float64, n >= 1.

    start: weights (n,) of an earlier solution. tolerance: the share of the radius by which a row may lie outside;
    loose: the same after many steps, as for rows on a sphere. enough: end once the weights prove such a radius. Where
    float64 is exhausted the best weights are returned.
    """
    z = rows - rows.mean(axis=0)
    squares = np.einsum("ij,ij->i", z, z)
    weights = np.zeros(len(z)) if start is None else start.copy()
    if not weights.any():
        weights[int(squares.argmax())] = 1.0
    support = _Support(z, np.argsort(-weights, kind="stable")[: np.count_nonzero(weights)].tolist())
    kept = np.zeros(len(z))  # dependent rows of the start have left
    kept[support.members] = weights[support.members]
    weights, best, idle = kept / kept.sum(), -1.0, 0
    patience = PATIENCE + PATIENCE_EACH * z.shape[1]
    for step in range(100 * patience):
        may_stop()
        while True:
            centre, target = support.solve()
            members = support.members
            if len(members) == 1 or target.min() >= 0:
                break
            now = weights[members]
            shares = np.where(target < 0, now / np.maximum(now - target, 1e-300), np.inf)
            first = int(shares.argmin())
            weights[members] = np.maximum(now + min(1.0, float(shares[first])) * (target - now), 0.0)
            weights[members[first]] = 0.0
            support.remove(first)
        weights[members] = target
        off = z[members[0]] - centre
        radius = float(off @ off)
        distances = squares - 2.0 * (z @ centre)
        distances[members] = -np.inf
        farthest = int(distances.argmax())
        away = z[farthest] - centre
        allowed = max(tolerance, loose) if step > patience else tolerance
        if float(away @ away) <= radius * (1.0 + allowed) ** 2 or len(members) == len(z) or radius >= enough * enough:
            break
        idle = 0 if radius > best * (1.0 + 1e-15) else idle + 1
        best = max(best, radius)
        if idle > NO_PROGRESS:
            break
        shares_of_farthest = support.add(farthest)
        if shares_of_farthest is None:
            continue
        # It lies in the affine hull: its weight grows, and the centre stays, until another weight vanishes.
        grown = np.where(shares_of_farthest > 0, target / np.maximum(shares_of_farthest, 1e-300), np.inf)
        first = int(grown.argmin())
        weights[members] = np.maximum(target - grown[first] * shares_of_farthest, 0.0)
        weights[members[first]], weights[farthest] = 0.0, grown[first]
        support.remove(first)
        if support.add(farthest) is not None:  # rounding
            weights[farthest] = 0.0
            weights /= weights.sum()
    return np.asarray(weights / weights.sum())


def solve_rows(rows: Rows, start: Array | None = None, *, tolerance: float = 1e-12, loose: float = 0.0) -> Ball:
    """The smallest ball around rows (n, d), dense or sparse, n >= 1; the arguments are those of ``smallest_ball``.

    Of many rows it is solved for few, the farthest, until no other is outside.
    """
    n, d = rows.shape
    most = max(WORK_LEAST, min(max(WORK, WORK_EACH * d), WORK_NUMBERS // d))
    weights = np.zeros(n) if start is None else start.copy()
    if n <= 2 * most:
        work = np.arange(n)
    else:
        used = np.flatnonzero(weights)
        centre = weighted_sum(rows, np.full(n, 1.0 / n)) if start is None else centre_of(rows, weights)
        distances = distances_to(rows, centre)
        work = np.union1d(used, np.argpartition(-distances, most)[:most])
    while True:
        may_stop()
        found = smallest_ball(_coordinates(take(rows, work)), weights[work], tolerance=tolerance, loose=loose)
        weights = np.zeros(n)
        weights[work] = found
        centre = centre_of(rows, weights)
        if len(work) == n:
            radius = float(distances_to(take(rows, np.flatnonzero(weights)), centre).max())
            return Ball(weights, centre, radius)
        distances = distances_to(rows, centre)
        radius = float(distances[weights > 0].max())
        outside = np.setdiff1d(np.flatnonzero(distances > radius * (1.0 + max(tolerance, 1e-13))), work)
        if not len(outside):
            return Ball(weights, centre, radius)
        if len(outside) > most // 2:
            outside = outside[np.argpartition(-distances[outside], most // 2)[: most // 2]]
        near = work[distances[work] > np.median(distances[work])]  # it stays a small multiple of the support
        work = np.unique(np.concatenate([np.flatnonzero(weights), near, outside]))


def _coordinates(rows: Rows) -> Array:
    """Rows (n, d) as dense ones of the same geometry: of sparse ones the features that occur, of wide ones the span."""
    z = filled(rows)
    if z.shape[1] < WIDE * len(z) or len(z) < 2:
        return z
    z = z - z.mean(axis=0)
    factor: Array = sla.qr(z.T, mode="r", check_finite=False)[0][: len(z)]
    return np.ascontiguousarray(factor.T)


def centre_of(rows: Rows, weights: Array) -> Array:
    """sum_i b_i x_i (d,) of rows (n, d) and weights (n,) that sum to 1, about one of the rows where they are dense."""
    used = np.flatnonzero(weights)
    some = take(rows, used)
    if is_sparse(some):
        return weighted_sum(some, weights[used])
    exact = np.asarray(some, np.float64)
    heaviest = exact[int(weights[used].argmax())]
    return np.asarray(heaviest + weights[used] @ (exact - heaviest))


# Bounds


def lower_bound(rows: Rows, weights: Array, point: Array) -> float:
    """No ball around rows (m, d) with these weights (m,) >= 0 has a smaller radius; rounded down.

    point (d,): any; near the centre of the best ball no digits are lost.
    """
    total, square, moved = float(weights.sum()), 0.0, np.zeros(len(point))
    for tile in tiles(rows):
        off, share = dense(rows[tile]) - point, weights[tile] / total
        square += float(share @ np.einsum("ij,ij->i", off, off))
        moved += share @ off
    size = 12 * gamma(rows.shape[0] + rows.shape[1] + 16)  # differences, squares and sums, and as much for who checks
    return float(np.sqrt(max(0.0, square * (1.0 - size) - float(moved @ moved)))) * (1.0 - 4 * gamma(2))


def distances_to(rows: Rows, point: Array) -> Array:
    """||x - point|| (n,) of rows (n, d) in float64, as differences."""
    found = np.empty(rows.shape[0])
    for tile in tiles(rows):
        off = dense(rows[tile]) - point
        found[tile] = np.sqrt(np.einsum("ij,ij->i", off, off))
    return found


def upper_bounds(rows: Rows, point: Array) -> Array:
    """||x - point|| (n,) of rows (n, d), rounded up, by more than any float64 evaluation rounds; 0 for equal ones."""
    return _rounded_up(distances_to(rows, point), rows, point)


def _rounded_up(distances: Array, rows: Rows, point: Array) -> Array:
    d = rows.shape[1]
    found = distances * (1.0 + 4 * gamma(d + 16))
    small = np.flatnonzero(distances < 1e-140)  # squares may have underflowed
    if len(small):
        same = ~(dense(take(rows, small)) - point).any(axis=1)
        found[small] += np.where(same, 0.0, np.sqrt(d) * VANISHED)
    return np.asarray(found)


@dataclass(frozen=True)
class FastDistances:
    """Distances (n,) of rows to a reference and to a centre, rounded up and, to the centre, down."""

    reference_upper: Array
    centre_upper: Array
    centre_lower: Array
    centre: Array  #: to the nearest


def fast_distances(rows: Rows, reference: NDArray[Any], centre: Array, dtype: np.dtype[Any]) -> FastDistances:
    """Both distances of each row (n, d), in one pass of products in ``dtype``.

    reference (d,): of a precision that ``dtype`` holds exactly, so that a difference from it has an error of one
    rounding; zeros for sparse rows. With a = ||x - reference|| and e = centre - reference, the square of the distance
    to the centre is off by at most gamma (a + ||e||)^2.
    """
    d = rows.shape[1]
    move = centre - np.asarray(reference, np.float64)
    fast_move = move.astype(dtype)
    if is_sparse(rows):
        squares, products = np.square(lengths(rows)), np.asarray(rows.astype(np.float64, copy=False) @ move)
    else:
        squares, products = np.empty(len(rows)), np.empty(len(rows))
        own, step = reference.astype(dtype), max(1, TILE_BYTES // (d * dtype.itemsize))
        for first in range(0, len(rows), step):
            y = np.subtract(rows[first : first + step], own, dtype=dtype)
            part = slice(first, first + len(y))
            squares[part] = np.einsum("ij,ij->i", y, y)
            products[part] = y @ fast_move
    error, tiny = gamma(d + 8, dtype.type), d * float(np.finfo(dtype).tiny)
    length = float(np.linalg.norm(move))
    a = np.sqrt(squares)
    slack = error * np.square(a + length) + tiny
    square = squares - 2.0 * products + length * length
    up = 1.0 + 4 * gamma(4)
    return FastDistances(
        reference_upper=np.sqrt(squares * (1.0 + error) + tiny) * up,
        centre_upper=np.sqrt(np.maximum(square + slack, 0.0)) * up,
        centre_lower=np.sqrt(np.maximum(square - slack, 0.0)) / up,
        centre=np.sqrt(np.maximum(square, 0.0)),
    )
