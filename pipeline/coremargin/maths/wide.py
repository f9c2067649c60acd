"""The nearest points of convex hulls of rows with many features: Newton's method in the rows' span.

The problem is that of ``nearest.py``: minimise || sum_i a_i z_i || over a >= 0 that sum to 1 within each group. If
there are far more features than rows, as in documents, nearly all rows carry the margin, and a method that changes one
row at a time is slow. Here many rows change at a time. With the Gram matrix G of the z_i, y_i = +-1 by group, and a
free offset b if there are two groups, the multiples alpha of the weights a solve

    minimise 1/2 alpha'G alpha - sum alpha  over alpha >= 0, y.alpha = 0      (margins G alpha + b y >= 1),

and the proximal point method (Rockafellar 1976) solves instead, for a small delta and an earlier alpha0,

    minimise 1/2 alpha'G alpha + 1/(2 delta) sum max(0, 1 + delta alpha0 - margin)^2,

which Newton's method with exact line search solves in finitely many steps (Mangasarian 2002; Keerthi, DeCoste 2005).
From one step to the next alpha0 is set to alpha; each gains a factor of delta over the least eigenvalue of the
support's Gram matrix. The price is the squared condition number of a Gram matrix: callers check every result on the
rows themselves, and use the other kernel if it is not accurate enough.
"""

from __future__ import annotations

from contextlib import suppress
from dataclasses import dataclass

import numpy as np
import scipy.linalg as sla
from numpy.typing import NDArray

from coremargin.maths.conjugate import conjugate_gradients
from coremargin.maths.nearest import Nearest, Status
from coremargin.maths.rows import Array, Rows, gram, lengths, products, take, weighted_sum
from coremargin.maths.stopping import may_stop

#: Up to this many rows, the Gram matrix is stored (128 MiB); with more, conjugate gradients solve the equations.
GRAM_ROWS = 4096
#: delta as shares of the mean squared length: the first ones without and with a warm start, then that of the proximal
#: #: steps, and the least.
COLD, WARM, NEAR, LEAST = (1.0, 1e-2, 1e-4), (1e-3,), 1e-6, 1e-13
NEWTON_STEPS, PROXIMAL_STEPS = 60, 40
#: Step lengths this near to 1 count as full Newton steps.
SAME = 1e-6
#: A proximal step that leaves more than SLOW of the gap is too slow: the next delta is multiplied by FASTER.
SLOW, FASTER = 0.25, 0.01
#: Relative residual of the conjugate gradients as a multiple of delta's share, and their steps.
RESIDUAL, GRADIENT_STEPS = 1e-3, 500


class _Span:
    """Products of the rows with each other."""

    def __init__(self, z: Rows) -> None:
        self.z = z
        self.squares = lengths(z) ** 2
        self.gram = gram(z) if z.shape[0] <= GRAM_ROWS else None

    def levels(self, alpha: Array) -> Array:
        """G alpha (n,)."""
        if self.gram is not None:
            return np.asarray(self.gram @ alpha)
        return np.asarray(products(self.z, weighted_sum(self.z, alpha)[:, None])[0])

    def solve(self, active: NDArray[np.intp], delta: float, right: Array) -> Array:
        """(G + delta)^-1 right (m, k) on the active rows (m,). Raises LinAlgError when rounding made G indefinite."""
        if len(active) > GRAM_ROWS:
            return self._by_products(active, delta, right)
        matrix = gram(take(self.z, active)) if self.gram is None else self.gram[np.ix_(active, active)]
        matrix.flat[:: len(active) + 1] += delta
        factor = sla.cho_factor(matrix, lower=True, overwrite_a=True, check_finite=False)
        return np.asarray(sla.cho_solve(factor, right, check_finite=False))

    def _by_products(self, active: NDArray[np.intp], delta: float, right: Array) -> Array:
        """The same for more rows, without a Gram matrix, to a tolerance relative to delta."""
        part, share = take(self.z, active), max(LEAST, RESIDUAL * delta / float(self.squares.mean())) ** 2
        diagonal = self.squares[active] + delta

        def product(v: Array) -> Array:
            return np.asarray(products(part, weighted_sum(part, v)[:, None])[0] + delta * v)

        found = [
            conjugate_gradients(product, column, share, GRADIENT_STEPS, diagonal=diagonal, scaled=False)[0]
            for column in np.ascontiguousarray(right.T)
        ]
        return np.stack(found, axis=1)


@dataclass
class _Iterate:
    """alpha (n,), b, and the levels G alpha (n,)."""

    alpha: Array
    b: float
    levels: Array


def _newton(span: _Span, y: Array | None, delta: float, target: Array, now: _Iterate) -> int:
    """Minimise 1/2 alpha'G alpha + 1/(2 delta) sum max(0, target - margin)^2; y: None without offset. Steps taken."""
    side = np.zeros(len(target)) if y is None else y
    active = now.levels + now.b * side < target
    for step in range(1, NEWTON_STEPS + 1):
        may_stop()
        rows = np.flatnonzero(active)
        alpha, b = np.zeros(len(target)), now.b
        if len(rows):
            found = span.solve(rows, delta, np.column_stack([target[rows], side[rows]]))
            if y is not None:
                b = float(y[rows] @ found[:, 0]) / float(y[rows] @ found[:, 1])
            alpha[rows] = found[:, 0] - b * found[:, 1] if y is not None else found[:, 0]
        levels = span.levels(alpha)
        new = levels + b * side
        # A full step is exact on this piece: take sides from alpha, not from small differences.
        sides = np.where(active, alpha > 0, new < target)
        if (sides == active).all():
            now.alpha, now.b, now.levels = alpha, b, levels
            return step
        margins = now.levels + now.b * side
        t = _line_search(now, alpha, levels, target - margins, new - margins, delta)
        now.alpha = now.alpha + t * (alpha - now.alpha)
        now.b += t * (b - now.b)
        now.levels = now.levels + t * (levels - now.levels)
        active = sides if abs(t - 1.0) <= SAME else now.levels + now.b * side < target
    return NEWTON_STEPS


def _line_search(now: _Iterate, alpha: Array, levels: Array, slack: Array, change: Array, delta: float) -> float:
    """The exact minimum t >= 0 of the objective along the line, by the breakpoints of its derivative."""
    move = alpha - now.alpha
    on = (slack > 0) | ((slack == 0) & (change < 0))
    start = float(now.levels @ move) - float(slack[on] @ change[on]) / delta
    slope = float((levels - now.levels) @ move) + float(change[on] @ change[on]) / delta
    with np.errstate(divide="ignore", invalid="ignore"):
        breaks = slack / change
    turning = np.flatnonzero((breaks > 0) & np.isfinite(breaks) & (on == (change > 0)))
    turning = turning[np.argsort(breaks[turning], kind="stable")]
    sign = np.where(on[turning], 1.0, -1.0)
    starts = start + np.concatenate([[0.0], np.cumsum(sign * slack[turning] * change[turning])]) / delta
    slopes = slope - np.concatenate([[0.0], np.cumsum(sign * change[turning] ** 2)]) / delta
    places = breaks[turning]
    rising = np.flatnonzero(starts[:-1] + places * slopes[:-1] >= 0)
    k = int(rising[0]) if len(rising) else len(places)
    if slopes[k] > 0:
        return max(0.0, -float(starts[k]) / float(slopes[k]))
    return float(places[k]) if k < len(places) else 1.0


def nearest_wide(
    z: Rows, groups: NDArray[np.integer], start: Array | None = None, *, tolerance: float = 1e-12, zero: float = 1e-13
) -> Nearest:
    """Shortest vector sum_i a_i z_i with a >= 0 summing to 1 within each of one or two groups.

    z: (n, d); groups: (n,) in {0} or {0, 1}; start: (n,) weights of an earlier solution. tolerance: on
    gap / ||point||^2; zero: a length at or below this counts as zero.
    """
    span = _Span(z)
    y = np.where(groups > 0, 1.0, -1.0) if groups.any() and not groups.all() else None
    size, ones = float(span.squares.mean()), np.ones(len(groups))
    best = _answer(z, groups, ones if start is None else start, tolerance, zero, 0)
    if best.status != "stalled":
        return best
    steps, delta = 0, NEAR * size
    now = (
        _Iterate(np.zeros(len(groups)), 0.0, np.zeros(len(groups))) if start is None else _from_weights(span, y, start)
    )
    with suppress(np.linalg.LinAlgError):  # delta is below the resolution of float64: keep the best so far
        for share in COLD if start is None else WARM:
            steps += _newton(span, y, share * size, ones + share * size * np.maximum(now.alpha, 0.0), now)
        for _ in range(PROXIMAL_STEPS):
            steps += _newton(span, y, delta, ones + delta * np.maximum(now.alpha, 0.0), now)
            found = _answer(z, groups, now.alpha, tolerance, zero, steps)
            if found.status != "stalled":
                return found
            if found.gap > SLOW * best.gap:
                delta *= FASTER
            if found.gap < best.gap:
                best = found
            if delta < LEAST * size:
                break
    return best


def _from_weights(span: _Span, y: Array | None, weights: Array) -> _Iterate:
    """The multiple of weights that sum to 1 within each group whose margins are about 1."""
    levels = span.levels(weights)
    scale = (1.0 if y is None else 2.0) / float(weights @ levels)
    alpha, levels = scale * weights, scale * levels
    return _Iterate(alpha, 0.0 if y is None else float(levels[y < 0].min() - levels[y > 0].min()) / 2, levels)


def _answer(z: Rows, groups: NDArray[np.integer], alpha: Array, tolerance: float, zero: float, steps: int) -> Nearest:
    """The point of alpha, computed from the rows, and its gap."""
    weights = np.maximum(alpha, 0.0)
    members = [np.flatnonzero(groups == group) for group in np.unique(groups)]
    for mine in members:
        total = float(weights[mine].sum())
        weights[mine] = weights[mine] / total if total > 0 else 1.0 / len(mine)
    point = weighted_sum(z, weights)
    levels, square = products(z, point[:, None])[0], float(point @ point)
    gap = sum(max(0.0, float(weights[mine] @ levels[mine]) - float(levels[mine].min())) for mine in members)
    status: Status = "stalled"
    if square <= zero * zero:
        status = "zero"
    elif gap <= tolerance * square:
        status = "optimal"
    return Nearest(point, weights, gap, status, steps)
