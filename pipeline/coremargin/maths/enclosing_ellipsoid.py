"""The ellipsoid of least volume around rows: Newton's method on a working set, its bounds, and the rows' span.

Minimise the volume of {x : ||F (x - c)|| <= 1} over c (d,) and F (d, d) with ||F (x_i - c)|| <= 1 for all rows. For any
weights u >= 0 that sum to 1, with m = sum_i u_i x_i and S = sum_i u_i (x_i - m)(x_i - m)', an ellipsoid that contains
the rows has tr(F S F') <= 1, hence det(F'F) <= d^-d / det S. In terms of the *volume radius*, the radius of the ball of
the same volume, no ellipsoid that contains the rows has less than

    sqrt(d) det(S)^(1/2d).

The ellipsoid about m with the metric S^-1 and the level l = max_i ||S^-1/2 (x_i - m)|| contains all rows, and has the
volume radius l det(S)^(1/2d). So its volume exceeds the least one by a factor of at most (l^2 / d)^(d/2).

The best weights are those of a D-optimal design of the rows x~ = (x, 1), and l^2 = d for them: with M = sum u x~x~',
they maximise log det M. On a working set Newton's method follows the central path (Sun, Freund 2004, with a slack):

    w_i = x~_i' M^-1 x~_i,    w + s = d + 1,    u_i s_i = t -> 0,
    (W.W + diag(s / u)) du = t / u - s - (d + 1 - w - s),    W = X~ M^-1 X~'.

All of it happens in coordinates z = W (x - o) of a *frame*, in which a sample of the rows has mean 0 and covariance I:
the solution does not depend on the coordinates, rounding does.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from fractions import Fraction
from typing import Any

import numpy as np
import scipy.linalg as sla
from numpy.typing import NDArray

from coremargin.errors import BadRow
from coremargin.maths.margin import Array, gamma
from coremargin.maths.rows import Rows, dense, tiles
from coremargin.maths.stopping import may_stop

#: Steps of Newton's method; the path's parameter shrinks by this factor in each, a step ends so near to the boundary.
STEPS, SHRINK, DAMPED = 80, 0.1, 0.95
#: The working set begins with so many rows, more for many features, and grows by as many at a time.
WORK, WORK_EACH = 400, 6
#: Rows whose squared level is less than this share of the largest leave the working set after a solve that was of use.
NEAR = 0.97
#: Rows of less weight leave the support if what is left proves as much.
LIGHT = (1e-7, 1e-9, 1e-11, 0.0)
#: A column is a linear function of others if this share of its range is left, or so many roundings.
DEPENDENT, ROUNDINGS = 1e-10, 4
#: A row is in the span of others if it is off by so many times what those are.
SPAN_ROOM = 4.0
_BISECTIONS = 60


# The span


@dataclass(frozen=True)
class Frame:
    """Coordinates z = whiten (x[columns] - origin) (r,) of rows x (d,) that lie in a flat of dimension r <= d.

    columns (r,): those that determine the ``others`` (d - r,), which are slopes (d - r, r) x[columns] + offsets, give
    or take ``allowed`` (d - r,), and so many units of rounding of the rows' precision. whiten (r, r): lower triangular.
    """

    features: int
    columns: NDArray[np.int64]
    origin: Array
    whiten: Array
    slopes: Array
    offsets: Array
    allowed: Array
    unit: float

    @property
    def rank(self) -> int:
        """The dimension of the flat."""
        return len(self.columns)

    @property
    def others(self) -> NDArray[np.int64]:
        """The columns that are linear functions of ``columns``."""
        return np.setdiff1d(np.arange(self.features), self.columns)

    def coordinates(self, x: Array) -> Array:
        """z (n, r) of dense rows (n, d)."""
        return np.asarray((self._determining(x) - self.origin) @ self.whiten.T)

    def residuals(self, x: Array) -> tuple[Array, Array]:
        """How far the other columns (n, d - r) of dense rows (n, d) are off, rounded up, and what is allowed."""
        size = np.abs(x[:, self.others]) + np.abs(x[:, self.columns]) @ np.abs(self.slopes.T) + np.abs(self.offsets)
        off = np.abs(x[:, self.others] - (x[:, self.columns] @ self.slopes.T + self.offsets))
        rounding_of_sums = 4 * gamma(self.rank + 4) * size
        return off + rounding_of_sums, self.allowed + 2 * rounding_of_sums + 8.0 * self.unit * size

    def _determining(self, x: Array) -> Array:
        return x if self.rank == self.features else x[:, self.columns]


def frame_of(rows: Rows, dtype: np.dtype[np.floating]) -> Frame:
    """The frame of rows (n, d), n >= 1, which are exact in ``dtype``; of rank 0 if all rows are equal."""
    x = dense(rows)
    n, d = x.shape
    unit = float(np.finfo(dtype).eps) / 2
    mean = x.mean(axis=0)
    off = x - mean
    ranges, largest = np.abs(off).max(axis=0), np.abs(x).max(axis=0)
    varies = ranges > 4 * unit * largest
    scale = np.where(varies, ranges, 1.0)
    # Columns of this triangle have the lengths and angles of the centred columns, each divided by its range.
    triangle = sla.qr(off / scale, mode="r", check_finite=False)[0][: min(n, d)] / np.sqrt(n)
    noise = unit * largest / scale
    chosen: list[int] = []
    left = triangle * varies
    while len(chosen) < min(n - 1, d):
        slopes = np.linalg.lstsq(triangle[:, chosen], triangle, rcond=None)[0] if chosen else np.zeros((0, d))
        lost = np.linalg.norm(left, axis=0)
        floor = np.maximum(DEPENDENT, ROUNDINGS * (noise + np.abs(slopes.T) @ noise[chosen]))
        lost[chosen] = 0.0
        new = int(np.where(lost > floor, lost, -1.0).argmax())
        if not lost[new] > floor[new]:
            break
        chosen.append(new)
        direction = left[:, new] / np.linalg.norm(left[:, new])
        for _ in range(2):  # once more: rounding
            left = left - np.outer(direction, direction @ left)
    while True:
        columns = np.sort(np.array(chosen, np.int64))
        others = np.setdiff1d(np.arange(d), columns)
        slopes = np.linalg.lstsq(triangle[:, columns], triangle[:, others], rcond=None)[0].T
        slopes = np.where(varies[others, None], slopes, 0.0).reshape(len(others), len(columns))
        floor = np.maximum(DEPENDENT, ROUNDINGS * (noise[others] + np.abs(slopes) @ noise[columns])) * scale[others]
        slopes = slopes * scale[others, None] / scale[columns]
        residual = np.abs(off[:, others] - off[:, columns] @ slopes.T).max(axis=0, initial=0.0)
        excess = np.where(varies[others], residual / floor, 0.0)
        if excess.max(initial=0.0) <= 1.0 or len(chosen) == min(n - 1, d):
            break
        chosen.append(int(others[excess.argmax()]))  # few rows differ: too few for the lengths of columns
    r = len(columns)
    factor = sla.qr(triangle[:, columns], mode="r")[0][:r] if r else np.zeros((0, 0))
    whiten = sla.solve_triangular(factor, np.eye(r), trans="T") / scale[columns] if r else factor
    offsets = mean[others] - slopes @ mean[columns]
    return Frame(
        features=d,
        columns=columns,
        origin=mean[columns],
        whiten=np.tril(whiten * np.where(np.diag(whiten) < 0, -1.0, 1.0)[:, None]) if r else whiten,
        slopes=slopes,
        offsets=offsets,
        allowed=SPAN_ROOM * np.maximum(residual, floor * varies[others]),
        unit=unit,
    )


# Ellipsoids


@dataclass(frozen=True)
class Ellipsoid:
    """Levels ||factor (z - centre)|| of points z (r,); factor (r, r), lower triangular."""

    centre: Array
    factor: Array

    def levels(self, z: Array) -> Array:
        """Levels (n,) of points (n, r)."""
        off = (z - self.centre) @ self.factor.T
        return np.asarray(np.sqrt(np.einsum("ij,ij->i", off, off)))

    @property
    def volume_radius(self) -> float:
        """Of level 1: det(factor)^(-1/r), to a few units in the last place, however large or small numbers are."""
        mantissas, exponents = np.frexp(np.diag(self.factor))
        whole, rest = divmod(-int(exponents.sum()), len(self.factor))
        return float(np.ldexp(np.exp((np.log(2.0) * rest - np.log(mantissas).sum()) / len(self.factor)), whole))

    def of_frame(self, frame: Frame) -> Ellipsoid:
        """The same of rows' ``columns`` instead of their coordinates in a frame."""
        moved = sla.solve_triangular(frame.whiten, self.centre, lower=True)
        return Ellipsoid(frame.origin + moved, np.tril(self.factor @ frame.whiten))

    def to_arrays(self, name: str) -> dict[str, Array]:
        """Plain arrays, exact."""
        return {f"{name}_centre": self.centre, f"{name}_factor": self.factor}

    @classmethod
    def from_arrays(cls, name: str, arrays: Mapping[str, NDArray[Any]]) -> Ellipsoid:
        """Inverse of ``to_arrays``."""
        return cls(arrays[f"{name}_centre"], arrays[f"{name}_factor"])


def weighted_ellipsoid(z: Array, weights: Array) -> Ellipsoid:
    """The mean of points (n, r) by weights (n,) that sum to 1, and the metric of their covariance.

    Raises LinAlgError if it is not positive definite.
    """
    centre = weights @ z
    off = z - centre
    root = np.linalg.cholesky((off * weights[:, None]).T @ off)
    return Ellipsoid(centre, sla.solve_triangular(root, np.eye(len(root)), lower=True))


def largest_levels(inner: Ellipsoid, outer: Ellipsoid, levels: Array) -> Array:
    """Upper bounds (c,) of the levels in ``outer`` of points within ``levels`` (c,) in ``inner``; -inf: of none.

    With points T0^-1 y + m0, ||y|| <= t, levels are ||B y + v||, B = T1 T0^-1 = U diag(s) V', v = T1 (m0 - m1). With
    g = U'v, any l > s_1^2 proves l t^2 + sum_i (s_i g_i)^2 / (l - s_i^2) + g.g; the best l is found by bisection.
    """
    found = np.where(np.isposinf(levels), np.inf, -np.inf)
    some = np.flatnonzero(np.isfinite(levels))
    if not len(some):
        return found
    a, b, at_centre = _map_between(inner, outer)
    t = np.maximum(levels[some], 1e-150)
    low, high = np.full(len(t), a[0]), a[0] * (1.0 + 1e-12) + np.linalg.norm(b) / t
    for _ in range(_BISECTIONS):
        middle = (low + high) / 2
        with np.errstate(divide="ignore", invalid="ignore", over="ignore"):
            length = np.sqrt(np.nansum((b / (middle[:, None] - a)) ** 2, axis=1))
        low, high = np.where(length > t, middle, low), np.where(length > t, high, middle)
    with np.errstate(divide="ignore", invalid="ignore"):
        rest = np.where(b == 0, 0.0, b * b / (high[:, None] - a)).sum(axis=1)
    square = high * t * t + rest + at_centre
    found[some] = np.sqrt(square) * (1.0 + rounding(inner) + rounding(outer))
    return found


def safe_level(inner: Ellipsoid, outer: Ellipsoid, level: float) -> float:
    """A level in ``inner`` whose points are all within ``level`` in ``outer``: the largest, rounded down; perhaps 0.

    Of the bounds in ``largest_levels`` each l > s_1^2 gives the level that it proves, the square root of
    (level^2 - g.g - sum_i (s_i g_i)^2 / (l - s_i^2)) / l. Where the bound is reached, l proves most.
    """
    a, b, at_centre = _map_between(inner, outer)
    left = (level / (1.0 + rounding(inner) + rounding(outer))) ** 2 - at_centre
    if not left > 0:
        return 0.0
    low, high = float(a[0]), float(2.0 * a[0] + 6.0 * (b @ b) / left)
    for _ in range(_BISECTIONS):
        middle = (low + high) / 2
        with np.errstate(divide="ignore", invalid="ignore"):
            bound = float(np.where(b == 0, 0.0, b * b / (middle - a) * (1.0 + middle / (middle - a))).sum())
        low, high = (middle, high) if bound > left else (low, middle)
    with np.errstate(divide="ignore", invalid="ignore"):
        rest = float(np.where(b == 0, 0.0, b * b / (high - a)).sum())
    return float(np.sqrt(max(left - rest, 0.0) / high)) * (1.0 - 1e-14)


def _map_between(inner: Ellipsoid, outer: Ellipsoid) -> tuple[Array, Array, float]:
    """s_i^2 (r,), decreasing, s_i g_i (r,) and g.g of ``largest_levels``."""
    stretch = sla.solve_triangular(inner.factor, outer.factor.T, lower=True, trans="T").T
    u, s, _ = np.linalg.svd(stretch)
    g = u.T @ (outer.factor @ (inner.centre - outer.centre))
    return s * s, s * g, float(g @ g)


def rounding(one: Ellipsoid) -> float:
    """What levels may be off by, as a share of them and of the distance of the centre from the origin."""
    r = len(one.centre)
    inverse = sla.solve_triangular(one.factor, np.eye(r), lower=True)
    return 16 * gamma(2 * r + 16) * float(np.linalg.norm(one.factor) * np.linalg.norm(inverse))


# The solver


def least_ellipsoid(z: Array, tolerance: float, start: Array | None = None) -> Array:
    """Weights (n,) that sum to 1 of the least ellipsoid around points (n, r) that span their space, n > r.

    tolerance: the share by which a squared level may exceed r; about 1e-11 is what float64 can do. start: weights (n,)
    of an earlier solution, whose points begin the working set. Raises BadRow for points that do not span it.
    """
    n, r = z.shape
    most = max(WORK, WORK_EACH * r)
    squares = np.einsum("ij,ij->i", z, z)
    work = np.arange(n)
    if n > 2 * most:
        if start is None:
            chosen = [np.argpartition(-squares, most)[:most], z.argmax(axis=0), z.argmin(axis=0)]
        else:
            used = np.flatnonzero(start)
            levels = weighted_ellipsoid(z[used], start[used] / start.sum()).levels(z)
            chosen = [used, np.argpartition(-levels, most)[:most]]
        work = np.unique(np.concatenate(chosen))
        if np.linalg.matrix_rank(z[work] - z[work].mean(axis=0), rtol=1e-6) < r:
            work = np.union1d(work, spanning_points(z))
    best, best_level = np.zeros(n), np.inf
    while True:
        found = _follow_path(z[work], 0.02 * tolerance)
        weights = np.zeros(n)
        weights[work] = found / found.sum()
        weights, levels = _without_light(z, weights, tolerance)
        level = float(levels.max())
        improved = level < best_level
        if improved:
            best, best_level = weights, level
        elif len(work) == n:
            break
        outside = np.setdiff1d(np.flatnonzero(levels * levels > r * (1.0 + tolerance)), work)
        if not len(outside):
            break
        if len(outside) > most:
            outside = outside[np.argpartition(-levels[outside], most)[:most]]
        near = work
        if improved or len(work) >= 3 * most:
            near = work[(weights[work] > 0) | (np.square(levels[work]) > NEAR * r)]
        near = near if len(near) < 3 * most else np.flatnonzero(weights)
        work = np.unique(np.concatenate([near, outside]))
    return best


def spanning_points(z: Array) -> NDArray[np.intp]:
    """Indices (r + 1,) of points (n, r) that span their space, by pivoting."""
    lifted = np.vstack([z.T, np.ones(len(z))])
    order = sla.qr(lifted, mode="r", pivoting=True, check_finite=False)[1]
    return np.asarray(order[: len(lifted)], np.intp)


def _without_light(z: Array, weights: Array, tolerance: float) -> tuple[Array, Array]:
    """Weights (n,) without the lightest as far as it costs next to nothing, and levels (n,)."""
    enough = z.shape[1] * (1.0 + 0.8 * tolerance)
    used = np.flatnonzero(weights)
    points, own = z[used], weights[used]
    try:
        present = float(weighted_ellipsoid(points, own).levels(points).max())
    except np.linalg.LinAlgError:
        raise _degenerate() from None
    enough = max(enough, present * present * (1.0 + 0.25 * tolerance))
    for least in LIGHT:
        kept = np.where(own > least, own, 0.0)
        kept /= kept.sum()
        heavy = np.flatnonzero(kept)
        try:
            one = weighted_ellipsoid(points[heavy], kept[heavy])
        except np.linalg.LinAlgError:
            continue
        if least == LIGHT[-1] or float(one.levels(points).max()) ** 2 <= enough:
            lightened = np.zeros(len(z))
            lightened[used] = kept
            return lightened, one.levels(z)
    raise _degenerate()


def _follow_path(z: Array, tolerance: float) -> Array:
    """Weights (n,), about d + 1 in all, of the D-optimal design of (z, 1), by Newton's method on all points."""
    n, r = z.shape
    p = r + 1
    lifted = np.hstack([z, np.ones((n, 1))])
    first, second = np.triu_indices(p)
    root_two = np.where(first == second, 1.0, np.sqrt(2.0))
    wide = n > len(first)
    u = np.full(n, 1.0 / n)
    w, white = _leverages(lifted, u)
    s = np.maximum(p - w, 0.1 * p)
    previous = np.inf
    for step in range(STEPS):
        may_stop()
        t, miss = float(u @ s) / n, p - w - s
        off = max(t * n / p, float(np.abs(miss).max()) / (10 * p))
        if off < tolerance or (step > STEPS // 4 and off > 0.5 * previous):
            break
        previous = off if step > STEPS // 4 else np.inf
        t *= SHRINK if step else 0.5
        diagonal, right = s / u, t / u - s - miss
        try:
            if wide:  # W.W = Q'Q, of products of two coordinates each (Woodbury)
                q = white[first] * white[second] * root_two[:, None]
                scaled = q / diagonal
                inner = scaled @ q.T
                inner[np.diag_indices(len(inner))] += 1.0
                plain = right / diagonal
                correction = sla.cho_solve(sla.cho_factor(inner, check_finite=False), q @ plain, check_finite=False)
                du = plain - scaled.T @ correction
            else:
                matrix = np.square(white.T @ white)
                matrix[np.diag_indices(n)] += diagonal
                du = sla.cho_solve(
                    sla.cho_factor(matrix, overwrite_a=True, check_finite=False), right, check_finite=False
                )
        except sla.LinAlgError:  # float64 is exhausted
            break
        ds = (t - s * du) / u - s
        u, s = u + _step_to(u, du) * du, s + _step_to(s, ds) * ds
        w, white = _leverages(lifted, u)
    return u


def _leverages(lifted: Array, u: Array) -> tuple[Array, Array]:
    """w (n,), and the points (p, n) in coordinates in which M is I."""
    try:
        root = np.linalg.cholesky((lifted * u[:, None]).T @ lifted)
    except np.linalg.LinAlgError:
        raise _degenerate() from None
    white = sla.solve_triangular(root, lifted.T, lower=True, check_finite=False)
    return np.einsum("ij,ij->j", white, white), white


def _step_to(values: Array, move: Array) -> float:
    """How far to go so that values stay above 0, at most 1."""
    falling = move < 0
    return min(1.0, DAMPED * float((values[falling] / -move[falling]).min())) if falling.any() else 1.0


def _degenerate() -> BadRow:
    return BadRow("the rows span less than their columns, to within float64; rescale the features or leave some out")


# Bounds


def lower_bound(rows: Rows, weights: Array, one: Ellipsoid) -> float:
    """No ellipsoid around rows (m, r) with these weights (m,) has a smaller volume radius; rounded down.

    one: any ellipsoid of rows, the nearer to that of the weights the better. With z = F (x - c) and
    G = sum u z z' - (sum u z)(sum u z)', det S = det G / det(F)^2. If G = I + N, log det G >= tr N - ||N||^2.
    """
    share = weights / weights.sum()
    r = rows.shape[1]
    for _ in range(2):  # of weights whose ellipsoid is another one, N is small the second time only
        square, mean, error = np.zeros((r, r)), np.zeros(r), 0.0
        for tile in tiles(rows):
            off = dense(rows[tile]) - one.centre
            z = off @ one.factor.T
            lost = gamma(r + 8) * (np.abs(off) @ np.abs(one.factor).T)
            square += (z * share[tile, None]).T @ z
            mean += share[tile] @ z
            error += float(share[tile] @ np.einsum("ij,ij->i", lost, lost))
        spread = square - np.outer(mean, mean)
        size = float(np.trace(square))
        error = 4.0 * (np.sqrt(error * size) + gamma(len(share) + r + 16) * size)
        excess = spread - np.eye(r)
        norm = float(np.linalg.norm(excess)) + error
        if norm < 0.01:
            log_det = float(np.trace(excess)) - np.sqrt(r) * error - norm * norm
            return float(np.sqrt(r) * np.exp(log_det / (2 * r))) * one.volume_radius * (1.0 - 64 * gamma(r + 8))
        try:
            root = np.linalg.cholesky(spread)
        except np.linalg.LinAlgError:
            return 0.0
        one = Ellipsoid(one.centre, np.tril(sla.solve_triangular(root, one.factor, lower=True)))
    return 0.0


def volume_radius(one: Ellipsoid, frame: Frame, level: float) -> float:
    """The volume radius of a level in a frame, once it is written as an ellipsoid of rows; rounded up."""
    own = one.of_frame(frame)
    r = frame.rank
    sizes = np.abs(one.factor) @ np.abs(frame.whiten) @ np.abs(np.linalg.inv(own.factor))
    error = 16 * gamma(4 * r + 32) * float(np.linalg.norm(sizes))
    moved = float(np.linalg.norm(one.factor @ one.centre))
    rounded_centre = gamma(4) * float(np.linalg.norm(np.abs(own.factor) @ np.abs(own.centre)))
    return own.volume_radius * (level + error * (level + moved) + rounded_centre) * (1.0 + 64 * gamma(r + 8))


def take_columns(rows: Rows, columns: NDArray[np.int64]) -> Rows:
    """Some columns (n, r) of rows."""
    return rows if len(columns) == rows.shape[1] else rows[:, columns]


def is_certified(lower: float, upper: float, epsilon: float, rank: int) -> bool:
    """Whether two volume radii prove epsilon of the volume: (lower / upper)^rank >= 1 - epsilon, in exact numbers."""
    if not 0 < lower < np.inf or not upper < np.inf:
        return False
    return bool(Fraction(lower) ** rank >= (1 - Fraction(epsilon)) * Fraction(upper) ** rank)
