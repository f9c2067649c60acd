"""The logarithmic barrier of a version space: its analytic centre, and the ellipsoids (Dikin's) that its Hessian spans.

F(v) = - sum log a.v - log(1 - ||v||^2), over the planes a and the ball. {y: (y - v)' F''(v) (y - v) < 1} lies inside.
(Louche and Ralaivola 2015, section 2.3: the analytic centre; Nesterov 1995.)
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

if TYPE_CHECKING:
    from coremargin.maths.active.version_space import VersionSpace
    from coremargin.maths.margin import Array

#: A Newton decrement below this ends the search: a tenth of a Dikin ellipsoid would do for a start.
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
    """The point (q,) with the least barrier, by damped Newton steps from a point inside, none of which leaves it."""
    point = start
    for _ in range(steps):
        slope, bend = gradient(space, point), hessians(space, point[None, :])[0]
        step = np.linalg.solve(bend, slope)
        decrement = float(np.sqrt(max(float(slope @ step), 0.0)))
        if decrement < NEAR:
            break
        point = point - step / (1.0 + decrement)
    return point
