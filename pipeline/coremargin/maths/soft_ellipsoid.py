"""The soft ellipsoid around rows: what it minimises, its dual, and the solver of a band.

For rows x_i with boxes C_i = s_i / (nu sum_j s_j), s_i being sample weights, and an ellipsoid of centre c and factor F,
let q_i = ||F (x_i - c)||^2, and

    m = min_r r + sum_i C_i (q_i - r)_+ = max { sum_i u_i q_i : 0 <= u_i <= C_i, sum_i u_i = 1 },

the mean squared level of the farthest share nu of the weight. The soft ellipsoid is the one of least volume radius
sqrt(m) det(F)^(-1/d). It is that of a machine with slacks on squared Mahalanobis distances (Shivaswamy, Jebara 2007),
whose price of a slack is chosen such that rows beyond the square r have a share of at most nu; with nu = 1/n all rows
are within, and it is the ellipsoid of least volume. For any such u, with S the covariance by these weights,

    m >= tr(F S F') >= d det(F S F')^(1/d),

so no ellipsoid has a value below sqrt(d) det(S)^(1/2d). The best u maximise det S, a D-optimal design with upper bounds
of weights; then F = S^(-1/2) has m = d. Rows outside have u_i = C_i, rows inside 0: all of them are known by the
*moments* sum u (z, 1)(z, 1)', and only a *band* of rows near the surface is solved. As log det S is concave with the
gradient q, a value of F = S^(-1/2) exceeds the least one by a factor of at most sqrt(m / d).
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np
import scipy.linalg as sla

from coremargin.maths.enclosing_ellipsoid import Ellipsoid, spanning_points
from coremargin.maths.margin import gamma
from coremargin.maths.soft_ball import best_square, largest_fall, longest_step, rows_to_solve
from coremargin.maths.stopping import may_stop

if TYPE_CHECKING:
    from coremargin.maths.enclosing_ellipsoid import Frame
    from coremargin.maths.margin import Array

#: Interior-point steps at most; share of the way to the boundary that a step takes.
STEPS, BOUNDARY = 100, 0.98
#: Steps of a simple method that come first, and the share of even weights that keeps its weights off their bounds: from
#: even weights alone, the interior-point method needs many short steps if few rows are far outside.
AHEAD, INSIDE = 20, 0.02
#: Gain of log det S that is left when a solution is exact; and from which on steps end as soon as one gains nothing.
EXACT, FINE = 1e-12, 1e-7
#: Rows whose box is less than this share of the largest one are left without a weight.
LIGHT = 1e-25
#: Weights nearer to 0 or to the box than this share of it are put there.
AT_BOUND = 1e-6
#: Rounds over working sets of the same rows, at most, and how many of them may gain nothing.
ROUNDS, IDLE = 60, 3


def moments_of(z: Array, weights: Array) -> Array:
    """sum u (z, 1)(z, 1)' (r + 1, r + 1) of points (n, r) with weights (n,)."""
    lifted = np.column_stack([z, np.ones(len(z))])
    return np.asarray((lifted * weights[:, None]).T @ lifted)


def ellipsoid_of(moments: Array) -> Ellipsoid:
    """The mean and the metric of the covariance. Raises LinAlgError if it is not positive definite."""
    mean = moments[:-1, -1] / moments[-1, -1]
    covariance = moments[:-1, :-1] / moments[-1, -1] - np.outer(mean, mean)
    root = np.linalg.cholesky(covariance)
    return Ellipsoid(mean, np.tril(sla.solve_triangular(root, np.eye(len(root)), lower=True)))


def sum_of_squares(moments: Array, one: Ellipsoid) -> tuple[float, float]:
    """sum u q of the points behind moments, and the size of the terms that it is computed of."""
    turn = np.column_stack([one.factor, -(one.factor @ one.centre)])
    size = np.abs(turn) @ np.abs(moments) @ np.abs(turn).T
    return max(0.0, float(np.trace(turn @ moments @ turn.T))), float(np.trace(size))


def weights_by_rank(squares: Array, boxes: Array, total: float = 1.0) -> Array:
    """The weights (n,) of the points with the largest squares (n,): their boxes, until they sum to ``total``."""
    order = np.argsort(-squares, kind="stable")
    weights = np.empty(len(order))
    weights[order] = np.clip(total - (np.cumsum(boxes[order]) - boxes[order]), 0.0, boxes[order])
    return weights


def solve_sample(z: Array, boxes: Array, tolerance: float, most: int) -> Array | None:
    """The best weights (n,) of points (n, r) that span their space; arguments as of ``solve_near_surface``."""
    none, n = np.zeros((z.shape[1] + 1, z.shape[1] + 1)), len(z)
    if n <= most:
        return solve_band(z, boxes, none, tolerance)
    few = np.union1d(np.linspace(0, n - 1, most // 2).astype(np.intp), spanning_points(z))
    found = solve_band(z[few], boxes[few] * (boxes.sum() / boxes[few].sum()), none, max(tolerance, 1e-4))
    if found is None:
        return None
    squares = np.square(ellipsoid_of(moments_of(z[few], found)).levels(z))
    return solve_near_surface(z, boxes, none, weights_by_rank(squares, boxes), tolerance, most)


def solve_near_surface(z: Array, boxes: Array, fixed: Array, start: Array, tolerance: float, most: int) -> Array | None:
    """Weights (n,) of points (n, r) with boxes (n,) > 0, all others being fixed; None if no weights sum to 1.

    fixed (r + 1, r + 1): the moments of the others. start (n,): weights to begin with. tolerance: what log det S may
    still gain. most: points that are solved at a time: those of free weight, those that violate the conditions of
    optimality, and those nearest to the surface. The others keep their weights, so that det S never falls.
    """
    total, weights, idle, least = 1.0 - float(fixed[-1, -1]), start.copy(), 0, np.inf
    if len(z) <= most or not 0.0 < total < boxes.sum():
        return solve_band(z, boxes, fixed, tolerance)
    for _ in range(ROUNDS):
        may_stop()
        try:
            squares = np.square(ellipsoid_of(fixed + moments_of(z, weights)).levels(z))
        except np.linalg.LinAlgError:
            weights = boxes * (total / boxes.sum())
            squares = np.square(ellipsoid_of(fixed + moments_of(z, weights)).levels(z))
        left = largest_fall(-squares, weights, boxes, total)
        if left <= tolerance or idle >= IDLE:
            break
        idle, least = (0 if left < 0.7 * least else idle + 1), min(least, left)
        square = best_square(squares, boxes, 1.0 - total)
        chosen = rows_to_solve(squares - square, weights, boxes, most)
        rest = np.setdiff1d(np.arange(len(z)), chosen, assume_unique=True)
        found = solve_band(z[chosen], boxes[chosen], fixed + moments_of(z[rest], weights[rest]), 0.1 * tolerance)
        if found is None:
            break
        weights[chosen] = found
    return weights


def solve_band(z: Array, boxes: Array, fixed: Array, tolerance: float) -> Array | None:
    """The best weights (n,) of all points (n, r) by an interior-point method; arguments as of ``solve_near_surface``.

    Raises LinAlgError for points that span too little. Newton steps on the conditions of optimality with barriers, each
    corrected by what a first one without barriers would miss (Mehrotra 1992). With w = q + 1, and multipliers s and v
    (n,) of both bounds,

        w - level + s - v = 0,   u s = t,   (C - u) v = t,   sum u = total,
        (W.W + diag(s / u + v / (C - u))) du + dlevel = w - level + t / u - t / (C - u),   W = X~ M^-1 X~'.
    """
    light = boxes < LIGHT * boxes.max(initial=0.0)
    if light.any():  # weights that move nothing
        found = solve_band(z[~light], boxes[~light], fixed, tolerance)
        weights = np.zeros(len(z))
        weights[~light] = 0.0 if found is None else found
        return None if found is None else weights
    n, total, room = len(z), 1.0 - float(fixed[-1, -1]), float(boxes.sum())
    if total <= 0.0 or total >= room:
        if total < -1e-12 or total > room * (1.0 + 1e-12) or not n:
            return None
        return np.zeros(n) if total <= 0.0 else boxes.copy()
    p = z.shape[1] + 1
    lifted = np.column_stack([z, np.ones(n)])
    first, second = np.triu_indices(p)
    root_two, wide = np.where(first == second, 1.0, np.sqrt(2.0)), n > len(first)
    even = boxes * (total / room)
    u = even
    w, white = _leverages(lifted, u, fixed)
    for step in range(AHEAD):  # towards the best weights for the present gradient (Frank, Wolfe 1956)
        u = u + (2.0 / (step + 3)) * (weights_by_rank(w, boxes, total) - u)
        w, white = _leverages(lifted, u, fixed)
    u = (1.0 - INSIDE) * u + INSIDE * even
    w, white = _leverages(lifted, u, fixed)
    level = float(w @ u) / total
    s, v = np.maximum(level - w, 0.0) + 0.1 * p, np.maximum(w - level, 0.0) + 0.1 * p
    best, least = u, np.inf
    for _ in range(STEPS):
        may_stop()
        left = largest_fall(-w, u, boxes, total)
        if left < least:
            best, improved, least = u, left < 0.5 * least, left
        else:
            improved = False
        if least <= max(0.1 * tolerance, EXACT) or (least <= max(FINE, tolerance) and not improved):
            break
        rest = boxes - u
        with np.errstate(over="ignore", divide="ignore", invalid="ignore"):
            diagonal = s / u + v / rest
            q = white[first] * white[second] * root_two[:, None] if wide else white
            scaled = q / diagonal
            if wide:  # W.W = Q'Q, of products of two coordinates each (Woodbury)
                inner = scaled @ q.T
                inner[np.diag_indices(len(inner))] += 1.0
            else:
                inner = np.square(white.T @ white)
                inner[np.diag_indices(n)] += diagonal
            try:
                factor = sla.cho_factor(inner, overwrite_a=True)
            except (np.linalg.LinAlgError, ValueError):  # float64 is exhausted
                break
            if wide:
                pushes = np.column_stack([np.ones(n), w - level]) / diagonal[:, None]
                solved = pushes - scaled.T @ sla.cho_solve(factor, q @ pushes)
            else:
                solved = sla.cho_solve(factor, np.column_stack([np.ones(n), w - level]))
            to_level, missing = solved[:, 0], total - float(u.sum())
            du = solved[:, 1] - to_level * ((solved[:, 1].sum() - missing) / to_level.sum())
            ds, dv = -s - s / u * du, -v + v / rest * du
            gap = float(u @ s + rest @ v)
            length = longest_step((u, du), (rest, -du), (s, ds), (v, dv))
            ahead = float((u + length * du) @ (s + length * ds) + (rest - length * du) @ (v + length * dv))
            t = gap / (2 * n) * max((ahead / gap) ** 3, 1e-6)
            lower, upper = (t - du * ds) / u, (t + du * dv) / rest
            push = w - level + lower - upper
            if wide:
                plain = push / diagonal
                main = plain - scaled.T @ sla.cho_solve(factor, q @ plain)
            else:
                main = sla.cho_solve(factor, push)
            rise = (main.sum() - missing) / to_level.sum()
            du = main - rise * to_level
            ds, dv = lower - s - s / u * du, upper - v + v / rest * du
        if not (np.isfinite(du).all() and np.isfinite(ds).all() and np.isfinite(dv).all()):
            break
        length = BOUNDARY * longest_step((u, du), (rest, -du), (s, ds), (v, dv))
        u, s, v, level = u + length * du, s + length * ds, v + length * dv, level + length * rise
        w, white = _leverages(lifted, u, fixed)
    bounded = _at_bounds(best, boxes, total, _leverages(lifted, best, fixed)[0])
    gains = [largest_fall(-_leverages(lifted, one, fixed)[0], one, boxes, total) for one in (best, bounded)]
    return bounded if gains[1] <= max(2.0 * gains[0], tolerance) else best


def _at_bounds(u: Array, boxes: Array, total: float, w: Array) -> Array:
    """The weights with those that are nearly at a bound put there, and the sum made right in the order of w (n,)."""
    shares = u / boxes
    found = np.where(shares < AT_BOUND, 0.0, np.where(shares > 1.0 - AT_BOUND, boxes, u))
    missing = total - float(found.sum())
    order = np.argsort(-w if missing > 0 else w, kind="stable")
    room = (boxes - found if missing > 0 else found)[order]
    found[order] += np.sign(missing) * np.clip(abs(missing) - (np.cumsum(room) - room), 0.0, room)
    return np.asarray(np.clip(found, 0.0, boxes))


def _leverages(lifted: Array, u: Array, fixed: Array) -> tuple[Array, Array]:
    """w (n,), and the points (p, n) in coordinates in which M is I."""
    root = np.linalg.cholesky(fixed + (lifted * u[:, None]).T @ lifted)
    white = sla.solve_triangular(root, lifted.T, lower=True, check_finite=False)
    return np.einsum("ij,ij->j", white, white), white


# Bounds


def skeel_condition(factor: Array) -> float:
    """The norm of |F| |F^-1| of a triangle (r, r), which multiplies the rounding errors of products."""
    inverse = sla.solve_triangular(factor, np.eye(len(factor)), lower=True)
    return float(np.linalg.norm(np.abs(factor) @ np.abs(inverse)))


def rounding_of_levels(one: Ellipsoid, frame: Frame) -> float:
    """Levels in an ellipsoid of a frame are off by at most this share of them, or of 1."""
    moved = float(np.linalg.norm(one.factor @ one.centre))
    share = (1.0 + skeel_condition(frame.whiten)) * (1.0 + skeel_condition(one.factor))
    share += skeel_condition(one.of_frame(frame).factor)
    return 8 * gamma(2 * frame.rank + 32) * share * (1.0 + moved)


def dual_bound(moments: Array, one: Ellipsoid, frame: Frame, error: float) -> float:
    """The volume radius below which no ellipsoid has a value, by the moments of weights that sum to 1; rounded down.

    one: the ellipsoid of the moments, or one near it. error: of sums over rows, relative to their terms.
    """
    r, mass = frame.rank, float(moments[-1, -1])
    turn = np.column_stack([one.factor, -(one.factor @ one.centre)])
    lifted = np.vstack([turn, np.eye(r + 1)[-1]])
    about = lifted @ moments @ lifted.T
    mean = about[:-1, -1]
    spread = about[:-1, :-1] - np.outer(mean, mean) / mass
    lost = 8.0 * error * (sum_of_squares(moments, one)[1] + r)
    eigenvalues = np.linalg.eigvalsh(spread / max(1.0, mass)) - lost
    if not (eigenvalues > 0).all() or not abs(mass - 1.0) < 0.5:
        return 0.0
    log_det = float(np.log(eigenvalues).sum()) + min(0.0, np.log(mass))
    return float(np.sqrt(r) * np.exp(log_det / (2 * r))) * one.of_frame(frame).volume_radius * (1.0 - 64 * error)
