"""Random walks through a version space with a uniform limit distribution: the mean of their points is its centre.

Several walks run in parallel, all from the analytic centre. Walks that need a step size or shape take it from the Dikin
ellipsoid there, so that thin cones are no harder than round ones. The same seed gives the same points.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np
import scipy.linalg as sla

from coremargin.maths.active.version_space import ball_chords, chebyshev

if TYPE_CHECKING:
    from coremargin.maths.active.version_space import VersionSpace
    from coremargin.maths.margin import Array

# The logarithmic barrier of a version space: its analytic centre, and the Dikin ellipsoids of its Hessian


#: A Newton decrement below this ends the search; a tenth of a Dikin ellipsoid would be enough for a start.
NEAR = 1e-9


def hessians(space: VersionSpace, points: Array) -> Array:
    """F'' (k, q, q) at points (k, q) inside."""
    depths = points @ space.planes.T
    scaled = space.planes[None, :, :] / depths[:, :, None]
    room = 1.0 - (points**2).sum(axis=1)[:, None, None]
    ball = 2.0 * np.eye(points.shape[1]) / room + 4.0 * points[:, :, None] * points[:, None, :] / room**2
    return np.asarray(scaled.transpose(0, 2, 1) @ scaled + ball)


def gradient(space: VersionSpace, point: Array) -> Array:
    """F' (q,) at a point (q,) inside."""
    return np.asarray(-(1.0 / (space.planes @ point)) @ space.planes + 2.0 * point / (1.0 - float(point @ point)))


def analytic_centre(space: VersionSpace, start: Array, steps: int = 100) -> Array:
    """The point (q,) with the least barrier, by damped Newton steps from a point inside; all iterates stay inside."""
    point = start
    for _ in range(steps):
        slope, bend = gradient(space, point), hessians(space, point[None, :])[0]
        step = np.linalg.solve(bend, slope)
        decrement = float(np.sqrt(max(float(slope @ step), 0.0)))
        if decrement < NEAR:
            break
        point = point - step / (1.0 + decrement)
    return point


#: Number of parallel walks.
WALKS = 32
#: Share of the steps of a walk that are burn-in, and do not count.
ON_THE_WAY = 0.2
#: The length of steps of the Dikin walk, in the metric of the Dikin ellipsoid.
DIKIN_RADIUS = 1.0
#: Distance from a plane below which it counts as reached, so that a reflected point is never past it.
TOUCH = 1e-12


def steps_for(dimensions: int) -> int:
    """Steps of each walk for a mean within some hundredths of the space's width."""
    return 100 + 20 * dimensions


def hit_and_run(space: VersionSpace, seed: int, steps: int | None = None, walks: int = WALKS) -> Array:
    """Points (k, q): each uniform on the chord through the one before in a random direction (Lovász, Vempala 2006)."""
    rng, steps = np.random.default_rng(seed), steps or steps_for(space.dimensions)
    points, factor = _start(space, walks)
    seen = []
    for _ in range(steps):
        directions = sla.solve_triangular(factor, rng.standard_normal(points.shape).T, lower=True, trans="T").T
        low, high = space.chords(points, directions)
        points = points + (low + (high - low) * rng.random(walks))[:, None] * directions
        seen.append(points)
    return _counted(seen, steps)


def dikin_walk(space: VersionSpace, seed: int, steps: int | None = None, walks: int = WALKS) -> Array:
    """Points (k, q): normal steps in the shape of the Dikin ellipsoid of the point, with Metropolis' filter.

    Kannan and Narayanan 2012 draw from the ellipsoid itself; the normal form is Narayanan's (2016). Both are
    reversible with respect to the uniform distribution.
    """
    rng, steps = np.random.default_rng(seed), steps or steps_for(space.dimensions)
    q = space.dimensions
    points, _ = _start(space, walks)
    bends, seen = hessians(space, points), []
    for _ in range(steps):
        noise, chance = rng.standard_normal((walks, q, 1)), rng.random(walks)
        factors = np.linalg.cholesky(bends)
        moved = points + np.linalg.solve(factors.transpose(0, 2, 1), noise)[:, :, 0] * DIKIN_RADIUS / np.sqrt(q)
        inside = ((moved @ space.planes.T).min(axis=1) > 0) & ((moved**2).sum(axis=1) < 1)
        moved = np.where(inside[:, None], moved, points)
        there = hessians(space, moved)
        steps_taken = moved - points
        sizes = [np.einsum("ki,kij,kj->k", steps_taken, bend, steps_taken) for bend in (bends, there)]
        logs = [np.linalg.slogdet(bend)[1] for bend in (bends, there)]
        ratio = (logs[1] - logs[0]) / 2 - (sizes[1] - sizes[0]) * q / (2 * DIKIN_RADIUS**2)
        taken = inside & (np.log(chance) < ratio)
        points = np.where(taken[:, None], moved, points)
        bends = np.where(taken[:, None, None], there, bends)
        seen.append(points)
    return _counted(seen, steps)


def billiard(space: VersionSpace, seed: int, steps: int | None = None, walks: int = WALKS) -> Array:
    """The gravity centre (q,) as the mean along the paths of balls that planes and sphere reflect (Ruján 1997).

    A ball in a half ball keeps its angular momentum and never fills the space. So each ball gets a new direction after
    a random length (Gryazina and Polyak 2014), which preserves the uniform distribution. The space is first transformed
    so that the Dikin ellipsoid of its analytic centre is a ball; centres of gravity are equivariant.
    """
    rng, events = np.random.default_rng(seed), 4 * (steps or steps_for(space.dimensions))
    points, factor = _start(space, walks)
    table = _Table(space, factor)
    at = points @ factor
    courses, left = _unit(rng.standard_normal(at.shape)), rng.exponential(size=walks)
    total, length = np.zeros(at.shape[1]), 0.0
    for event in range(events):
        spans, normals = table.next_wall(at, courses)
        stop = left <= spans
        ways = np.where(stop, left, spans)
        if event >= ON_THE_WAY * events:
            total += ways @ (at + ways[:, None] / 2 * courses)
            length += float(ways.sum())
        at = at + ways[:, None] * courses
        bounced = courses - 2.0 * (courses * normals).sum(axis=1)[:, None] * normals
        fresh, lengths = _unit(rng.standard_normal(at.shape)), rng.exponential(size=walks)
        courses = np.where(stop[:, None], fresh, bounced)
        left = np.where(stop, lengths, left - ways)
    return np.asarray(sla.solve_triangular(factor, total / length, lower=True, trans="T"))


class _Table:
    """The space in coordinates u = L' v, L L' = F''(centre): planes and an ellipsoid instead of the sphere."""

    def __init__(self, space: VersionSpace, factor: Array) -> None:
        self.factor = factor
        walls = sla.solve_triangular(factor, space.planes.T, lower=True).T
        self.walls = walls / np.linalg.norm(walls, axis=1)[:, None]

    def next_wall(self, at: Array, courses: Array) -> tuple[Array, Array]:
        """The distance (k,) to the next wall from points (k, q), and the unit normals (k, q) there, pointing inside."""
        depths, slopes = np.maximum(at @ self.walls.T, 0.0), courses @ self.walls.T
        with np.errstate(divide="ignore", invalid="ignore"):
            ways = np.where(slopes < -TOUCH, -depths / slopes, np.inf)
        wall = ways.argmin(axis=1)
        spans, normals = ways.min(axis=1), self.walls[wall]
        back = sla.solve_triangular(self.factor, np.vstack([at, courses]).T, lower=True, trans="T").T
        rim = np.maximum(ball_chords(back[: len(at)], back[len(at) :])[1], 0.0)
        outside = rim < spans
        touched = back[: len(at)] + rim[:, None] * back[len(at) :]
        inward = -_unit(sla.solve_triangular(self.factor, touched.T, lower=True).T)
        return np.where(outside, rim, spans), np.where(outside[:, None], inward, normals)


def _start(space: VersionSpace, walks: int) -> tuple[Array, Array]:
    """The analytic centre as initial points (k, q), and the Cholesky factor of the barrier's Hessian there."""
    centre = analytic_centre(space, chebyshev(space)[0])
    factor = np.linalg.cholesky(hessians(space, centre[None, :])[0])
    return np.repeat(centre[None, :], walks, axis=0), factor


def _counted(seen: list[Array], steps: int) -> Array:
    return np.concatenate(seen[int(ON_THE_WAY * steps) :])


def _unit(vectors: Array) -> Array:
    return np.asarray(vectors / np.linalg.norm(vectors, axis=1)[:, None])
