"""The soft ball around rows (SVDD, the one-class SVM): its value for a centre, its dual, and the solver of a band.

For rows x_i with boxes C_i = s_i / (nu sum_j s_j), s_i being sample weights,

    P(c, r) = r + sum_i C_i (||x_i - c||^2 - r)_+
    D(a)    = sum_i a_i ||x_i - p||^2 - ||sum_i a_i (x_i - p)||^2,    0 <= a_i <= C_i,  sum_i a_i = 1

No value of P is below D, which is the same number for every point p (Tax, Duin 2004). The best r of a centre is the
square of the distance beyond which a share nu of the weight lies, and P is then the mean square of these distances:
sum_i a_i ||x_i - c||^2, largest over all such a. The best centre is sum_i a_i x_i for the best a. Rows outside of the
ball have a_i = C_i, rows inside 0: all of them are known by three sums, and only a *band* of rows is solved.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np
import scipy.linalg as sla

from coremargin.maths.enclosing_ball import distances_to
from coremargin.maths.rows import dense, is_sparse, lengths, take, tiles, weighted_sum
from coremargin.maths.stopping import may_stop

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from coremargin.maths.margin import Array
    from coremargin.maths.rows import Rows

#: Interior-point steps at most; share of the way to the boundary that a step takes.
STEPS, BOUNDARY = 80, 0.98
#: How many times the equations of a step are solved, each time for what the time before has left: if many weights are
#: free, as on a sphere, large numbers cancel in the first solution.
REFINED = 2
#: Duality gap of a band, relative to its largest square, at which its solution is exact; and from which on steps end as
#: soon as rounding makes one worse.
EXACT_BAND, FINE_BAND = 1e-13, 1e-9
#: Rows whose box is less than this share of the largest one move no centre.
LIGHT = 1e-25
#: Weights nearer to 0 or to the box than this share of it are moved there.
AT_BOUND = 1e-8
#: Newton steps on the rows of free weight at most, and how many of these there may be in any case.
POLISHING, FREE = 20, 500
#: A sum of weights that misses its total by this share is rounded only.
ROUNDED = 1e-15
#: Rounds over working sets of the same rows, at most, and how many of them may gain nothing.
ROUNDS, IDLE = 30, 2


@dataclass(frozen=True)
class Outside:
    """Sums over the rows outside of a ball, about a point p: mass sum C_i, pull (d,) sum C_i (x_i - p), squares sum
    C_i ||x_i - p||^2.
    """

    mass: float
    pull: Array
    squares: float


@dataclass(frozen=True)
class BandSolution:
    """weights (m,) of the rows of a band; move (d,): from the sums' point p to the centre; dual: D, not rounded."""

    weights: Array
    move: Array
    dual: float


def squares_to(rows: Rows, point: Array) -> Array:
    """||x - point||^2 (n,) of rows (n, d) in float64; of sparse rows as ||x||^2 - 2 x.point + ||point||^2."""
    if not is_sparse(rows):
        return np.square(distances_to(rows, point))
    found = np.square(lengths(rows)) - 2.0 * np.asarray(rows.astype(np.float64, copy=False) @ point) + point @ point
    return np.asarray(np.maximum(found, 0.0))


def best_square(squares: Array, boxes: Array, outside: float = 0.0) -> float:
    """The least r such that rows beyond it, and others of mass ``outside``, have a mass of at most 1.

    squares, boxes (m,), m >= 1. It minimises r + sum C (q - r)_+.
    """
    order = np.argsort(-squares, kind="stable")
    beyond = outside + np.cumsum(boxes[order])
    place = min(int(np.searchsorted(beyond, 1.0, side="right")), len(order) - 1)
    return float(squares[order[place]])


def solve_band(z: Array, boxes: Array, outside: Outside) -> BandSolution | None:
    """The best weights of the rows of a band, all others being fixed, by an interior-point method.

    z (m, d) float64: rows less the point of the sums. boxes (m,) > 0. None if no weights sum to 1.
    """
    total, room = 1.0 - outside.mass, float(boxes.sum())
    squares = np.einsum("ij,ij->i", z, z)
    if total <= 0.0 or total >= room:
        if total < -1e-12 or total > room * (1.0 + 1e-12) or not len(z):
            return None
        return _solution(np.zeros(len(z)) if total <= 0.0 else boxes, z, squares, outside)
    if (light := boxes < LIGHT * boxes.max()).any():
        return _with_light_rows(z, boxes, squares, outside, light)
    scale = float(squares.max()) or 1.0
    gains = (squares - 2.0 * (z @ outside.pull)) / scale
    y = z / np.sqrt(scale)
    if y.shape[1] > len(y):  # the same geometry in fewer coordinates
        y = np.ascontiguousarray(sla.qr(y.T, mode="r", check_finite=False)[0][: len(y)].T)
    weights = _at_bounds(_interior_point(y, gains, boxes, total), boxes, total)
    # The dual value does not tell them apart: it is off by the square of what the centre is off by.
    weights = min(
        (weights, _on_the_sphere(y, gains, boxes, weights)),
        key=lambda a: largest_fall(2.0 * (y @ (a @ y)) - gains, a, boxes, total),
    )
    return _solution(weights, z, squares, outside)


def _with_light_rows(
    z: Array, boxes: Array, squares: Array, outside: Outside, light: NDArray[np.bool_]
) -> BandSolution | None:
    """The solution of the other rows of a band, to which rows of a weight too light to move it add their side's."""
    found = solve_band(z[~light], boxes[~light], outside)
    if found is None:
        return None
    away = np.einsum("ij,ij->i", z - found.move, z - found.move)
    square = best_square(away[~light], boxes[~light], outside.mass)
    weights = np.where(away > square, boxes, 0.0)
    weights[~light] = found.weights
    return _solution(weights, z, squares, outside)


def _interior_point(y: Array, gains: Array, boxes: Array, total: float) -> Array:
    """Weights (n,) that minimise ||sum a y||^2 - gains.a for 0 <= a <= boxes, sum a = total.

    Newton steps on the conditions of optimality with barriers, each corrected by what a first one without barriers
    would miss (Mehrotra 1992): z and v (n,) are the multipliers of both bounds. The matrix of a step is diagonal plus
    2 y y', so that a step costs n d^2 (Woodbury).
    """
    n, d = y.shape
    size = float(np.abs(gains).max()) or 1.0
    a = boxes * (total / boxes.sum())
    z, v, best, least = np.full(n, size), np.full(n, size), a, np.inf
    for _ in range(STEPS):
        may_stop()
        gradient, room = 2.0 * (y @ (a @ y)) - gains, boxes - a
        gap = float(a @ z + room @ v)
        if gap <= FINE_BAND:
            gap = largest_fall(gradient, a, boxes, total)
            if not gap < least:
                break
            best, least = a, gap
            if gap <= EXACT_BAND:
                break
        else:
            best = a
        mean = gap / (2 * n)
        with np.errstate(over="ignore", divide="ignore", invalid="ignore"):
            diagonal = z / a + v / room
            scaled = y / diagonal[:, None]
            matrix = 2.0 * (scaled.T @ y)
            matrix[np.diag_indices(d)] += 1.0
            try:
                system = _Step(y, diagonal, scaled, sla.cho_factor(matrix, check_finite=True), total - float(a.sum()))
            except (np.linalg.LinAlgError, ValueError):
                break
            step = system.solve(-gradient, 1)
            step_z, step_v = -z * step / a - z, v * step / room - v
            length = longest_step((a, step), (room, -step), (z, step_z), (v, step_v))
            ahead = (a + length * step) @ (z + length * step_z) + (room - length * step) @ (v + length * step_v)
            barrier = mean * (ahead / gap) ** 3
            lower, upper = barrier - step * step_z, barrier + step * step_v
            step = system.solve(lower / a - upper / room - gradient, REFINED)
            step_z, step_v = (lower - z * step) / a - z, (upper + v * step) / room - v
        if not (np.isfinite(step).all() and np.isfinite(step_z).all() and np.isfinite(step_v).all()):
            break
        # One length of all, so that conditions that are met stay so.
        length = BOUNDARY * longest_step((a, step), (room, -step), (z, step_z), (v, step_v))
        a, z, v = a + length * step, z + length * step_z, v + length * step_v
    return np.asarray(best)


def largest_fall(gradient: Array, weights: Array, boxes: Array, total: float) -> float:
    """How much a linear function of weights with this gradient may fall: a bound on what better weights may gain."""
    order = np.argsort(gradient, kind="stable")
    beyond = np.minimum(np.cumsum(boxes[order]), total)
    above = gradient - gradient[order[min(int(np.searchsorted(beyond, total)), len(order) - 1)]]
    return float(above @ weights - np.diff(beyond, prepend=0.0) @ above[order])


@dataclass(frozen=True)
class _Step:
    """The equations of a step (n,): (diagonal + 2 y y') step - level = pushes, sum step = missing.

    scaled (n, d): y / diagonal; factor: of 1 + 2 scaled' y.
    """

    y: Array
    diagonal: Array
    scaled: Array
    factor: tuple[Array, bool]
    missing: float

    def solve(self, pushes: Array, times: int) -> Array:
        """The step; times: how often the equations are solved, each time for what the time before has left."""
        to_level = self._without_level(np.ones(len(pushes)))
        step, level = np.zeros(len(pushes)), 0.0
        for _ in range(times):
            more = self._without_level(pushes + level - self.diagonal * step - 2.0 * (self.y @ (step @ self.y)))
            rise = (self.missing - step.sum() - more.sum()) / to_level.sum()
            step, level = step + more + rise * to_level, level + rise
        return np.asarray(step)

    def _without_level(self, pushes: Array) -> Array:
        found = pushes / self.diagonal
        return np.asarray(found - 2.0 * self.scaled @ sla.cho_solve(self.factor, found @ self.y, check_finite=False))


def longest_step(*pairs: tuple[Array, Array]) -> float:
    """The share of steps, at most 1, with which no value becomes negative; pairs of values and steps."""
    longest = 1.0
    for values, step in pairs:
        falling = step < 0
        if falling.any():
            longest = min(longest, float((values[falling] / -step[falling]).min()))
    return longest


def _at_bounds(weights: Array, boxes: Array, total: float) -> Array:
    """The weights with those that are nearly at a bound put there, and the sum made right by the others."""
    shares = np.clip(weights / boxes, 0.0, 1.0)
    shares = np.where(shares < AT_BOUND, 0.0, np.where(shares > 1.0 - AT_BOUND, 1.0, shares))
    found = shares * boxes
    for mine in (np.flatnonzero((shares > 0) & (shares < 1)), np.arange(len(found))):
        missing = total - float(found.sum())
        room = boxes[mine] - found[mine] if missing > 0 else found[mine]
        if abs(missing) > ROUNDED * total and room.sum() > 0:
            change = missing * min(1.0, float(room.sum()) / abs(missing)) / float(room.sum())
            found[mine] = np.clip(found[mine] + room * change, 0.0, boxes[mine])
    return found


def _on_the_sphere(y: Array, gains: Array, boxes: Array, weights: Array) -> Array:
    """Weights (n,) with which the rows whose weights are free, between 0 and the box, are all at one distance.

    Newton steps on these rows alone, by their differences from one of them: products of these lose fewer digits than
    the matrix of an interior point. A step ends where a weight reaches a bound, and the next is without that row.
    """
    found = weights.copy()
    for _ in range(POLISHING):
        free = np.flatnonzero((found > 0) & (found < boxes))
        if not 1 < len(free) <= max(2 * (y.shape[1] + 1), FREE):
            break
        differences = y[free[1:]] - y[free[0]]
        uneven = gains[free] - 2.0 * (y[free] @ (found @ y))
        turn = sla.lstsq(differences, 0.5 * (uneven[1:] - uneven[0]), check_finite=False)[0]
        steps = sla.lstsq(differences.T, turn, check_finite=False)[0]
        step = np.concatenate([[-steps.sum()], steps])
        own, limit = found[free], boxes[free]
        least = np.divide(own, -step, where=step < 0, out=np.full(len(own), np.inf))
        most = np.divide(limit - own, step, where=step > 0, out=np.full(len(own), np.inf))
        blocked = int(np.minimum(least, most).argmin())
        length = min(1.0, float(min(least[blocked], most[blocked])))
        found[free] = np.clip(own + length * step, 0.0, limit)
        if length == 1.0:
            break
        found[free[blocked]] = 0.0 if step[blocked] < 0 else limit[blocked]
    return found


def _solution(weights: Array, z: Array, squares: Array, outside: Outside) -> BandSolution:
    move = outside.pull + weights @ z
    return BandSolution(weights, move, outside.squares + float(weights @ squares) - float(move @ move))


def sums_about(rows: Rows, boxes: Array, point: Array, squares: Array) -> Outside:
    """The sums over rows (n, d) with boxes (n,), whose squares (n,) of distances from the point (d,) are known."""
    mass = float(boxes.sum())
    if is_sparse(rows):
        pull = weighted_sum(rows, boxes) - mass * point
    else:
        pull = np.zeros(len(point))
        for tile in tiles(rows):
            pull += boxes[tile] @ (dense(rows[tile]) - point)
    return Outside(mass, pull, float(boxes @ squares))


@dataclass(frozen=True)
class SoftBall:
    """centre (d,) and the square r of the radius; primal and dual: values, not rounded."""

    centre: Array
    square: float
    primal: float
    dual: float


def rows_to_solve(beyond: Array, weights: Array, boxes: Array, most: int) -> NDArray[np.intp]:
    """At most ``most`` rows: of each kind a quarter, or as many as there are, and the nearest to the sphere.

    Kinds are rows of free weight, rows outside without weight, and rows inside with full weight; of the latter two
    those farthest from the sphere. beyond (n,): squares of distances less r.
    """
    away, few = np.abs(beyond), most // 4
    free = np.where((weights > 0) & (weights < boxes), away, np.inf)
    missing = np.where((beyond > 0) & (weights <= 0), -away, np.inf)
    superfluous = np.where((beyond < 0) & (weights >= boxes), -away, np.inf)
    chosen = np.zeros(len(beyond), bool)
    for rank, count in ((free, few), (missing, few), (superfluous, few), (away, 0)):
        rest = np.where(chosen, np.inf, rank)
        best = np.argpartition(rest, count or most - int(chosen.sum()))[: count or most - int(chosen.sum())]
        chosen[best[np.isfinite(rest[best])]] = True
    return np.flatnonzero(chosen)


def solve_soft_ball(rows: Rows, boxes: Array, start: Array, *, epsilon: float, most: int) -> SoftBall:
    """The soft ball around rows (n, d) in memory with boxes (n,) > 0, to a gap of epsilon, n >= 1.

    start (d,): a centre to begin with. most: rows of a working set: those whose weight is free, those that violate the
    conditions of optimality (outside without the full weight, inside with any), and those nearest to the sphere. The
    others keep their weights, so that the dual value never falls.
    """
    best, dual, centre, idle = SoftBall(start, 0.0, np.inf, 0.0), 0.0, start, 0
    weights: Array | None = None
    for _ in range(ROUNDS):
        may_stop()
        squares = squares_to(rows, centre)
        square = best_square(squares, boxes)
        primal = square + float(boxes @ np.maximum(squares - square, 0.0))
        before = best.primal - dual
        if primal < best.primal:
            best = SoftBall(centre, square, primal, dual)
        if best.primal - dual <= epsilon * best.primal:
            break
        outside = squares > square
        if weights is None:
            weights = np.where(outside, boxes, 0.0)
        few = len(squares) > most
        work = rows_to_solve(squares - square, weights, boxes, most) if few else np.arange(len(squares))
        fixed = weights.copy()
        fixed[work] = 0.0
        others = np.flatnonzero(fixed)
        sums = sums_about(take(rows, others), fixed[others], centre, squares[others])
        found = solve_band(dense(take(rows, work)) - centre, boxes[work], sums)
        if found is None:
            break
        weights[work] = found.weights
        dual, centre = max(dual, found.dual), centre + found.move
        idle = 0 if before - (best.primal - dual) > 0.3 * before else idle + 1
        if best.primal - dual <= epsilon * best.primal or idle > IDLE:
            break
    return SoftBall(best.centre, best.square, best.primal, dual)
