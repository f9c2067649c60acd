"""The exact nearest points of convex hulls: Wolfe's active-set method on QR factors of differences.

Minimise || sum_i a_i z_i || over a >= 0 that sum to 1 within each group of rows. One group: the point of a hull
nearest to the origin (hard margin without intercept). Two groups with z_i = y_i x_i: the nearest points of the
hulls of two classes (with intercept). Both are the dual of the maximum-margin problem.

The rows with non-zero weight (the *support*) are affinely independent, and the current point is the shortest vector
of their affine hull. It is computed by projecting onto the orthogonal complement of the rows' differences, never by
normal equations, which square the condition number (Wolfe, Finding the nearest point in a polytope, 1976; the
treatment of several groups by one reference row a group is ours).

``walk`` and what it calls is plain code on arrays, which numba compiles as it stands (compiled.py): the outlier search
takes hundreds of thousands of small solves. The linear algebra is LAPACK's here (factors.py), loops there (loops.py).

Why no general QP solver: a bound is the length of an explicit combination of few rows, which an active-set method
returns and an interior-point method does not, and the outlier search stops the method as soon as its side is clear.
Tests compare it with daqp.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass
from typing import Literal, NamedTuple

import numpy as np
from numpy.typing import NDArray

from coremargin.maths.factors import carried, clear, delete_column, lowest, solve_upper, split, step_begins

Array = NDArray[np.float64]
Numbers = NDArray[np.int64]
Status = Literal["optimal", "zero", "stalled", "short", "clear"]

#: What ``walk`` ends with, by number.
OPTIMAL, ZERO, STALLED, SHORT, CLEAR = range(5)
STATUSES: tuple[Status, ...] = ("optimal", "zero", "stalled", "short", "clear")

#: A new row counts as affinely dependent when this share of its difference is left after projection.
DEPENDENT = 1e-13
#: Weights at or below this are on the boundary.
VANISHING = 1e-14
#: Least gain of new factors over the last ones, as a share of the squared length; with less the method could cycle.
PROGRESS = 1e-12
#: Most steps of any solve: far more than needed.
MOST_STEPS = 100_000


@dataclass(frozen=True)
class Nearest:
    """The result of ``nearest_point``.

    point (d,): sum_i a_i z_i; weights (n,): a; gap: the sum over groups of (support level - smallest z.point), which
    bounds ||point||^2 - optimum^2 from above; status: "optimal" (gap within tolerance), "zero" (the hulls meet as
    far as float64 resolves), "stalled" (rounding stops progress before the tolerance), "short" and "clear" (it is
    known on which side of the caller's length the optimum lies).
    """

    point: Array
    weights: Array
    gap: float
    status: Status
    steps: int


class Face(NamedTuple):
    """The affine hull of the support: one reference row a group, QR of the other rows minus their reference.

    rows (n, d), groups (n,). The support is ``members[:size]``, the references first; counts is (size, references), and
    reference (groups,) is that of each group. q (capacity, d) has the orthonormal basis in its rows, r the triangle,
    head (capacity,) the origin in that basis; point (d,) is the shortest vector, origin (d,) the sum of the references.
    """

    rows: Array
    groups: Numbers
    q: Array
    r: Array
    head: Array
    members: Numbers
    reference: Numbers
    counts: Numbers
    origin: Array
    point: Array


class Limits(NamedTuple):
    """When ``walk`` ends: see ``nearest_point``. side: below 0 there is none."""

    tolerance: float
    zero: float
    side: float
    most_steps: int


def face_of(rows: Array, groups: Numbers, count: int) -> Face:
    """A face without a support, of rows in so many groups."""
    n, d = rows.shape
    capacity = min(d, n) + 1
    return Face(
        rows,
        groups,
        np.zeros((capacity, d)),
        np.zeros((capacity, capacity)).T,
        np.zeros(capacity),
        np.zeros(capacity + count, np.int64),
        np.zeros(count, np.int64),
        np.zeros(2, np.int64),
        np.zeros(d),
        np.zeros(d),
    )


def rebuild(face: Face, support: Numbers, weights: Array) -> None:
    """Factor afresh; the heaviest row of each group becomes its reference, as it is the last to leave.

    Rows that depend on heavier ones leave the support: their weights are set to zero.
    """
    face.reference[:] = -1
    for row in support:
        at = face.reference[face.groups[row]]
        if at < 0 or weights[row] > weights[at]:
            face.reference[face.groups[row]] = row
    k = 0
    face.origin[:] = 0.0
    for row in face.reference:
        if row >= 0:
            face.members[k] = row
            face.origin[:] += face.rows[row]
            k += 1
    face.counts[:] = k
    face.point[:] = face.origin
    for place in np.argsort(-weights[support], kind="mergesort"):
        step_begins()
        row = support[place]
        if row != face.reference[face.groups[row]] and not add(face, row):
            weights[row] = 0.0


def add(face: Face, row: int) -> bool:
    """Extend the factors by one row; False when it depends on the others to working precision."""
    m = face.counts[0] - face.counts[1]
    if m + 1 >= len(face.head):
        return False
    column = face.rows[row] - face.rows[face.reference[face.groups[row]]]
    head, rest = split(face.q, m, column)
    length = math.sqrt(rest @ rest)
    if length <= DEPENDENT * math.sqrt(column @ column):
        return False
    rest /= length
    face.q[m] = rest
    face.r[:m, m] = head
    face.r[m, :m] = 0.0
    face.r[m, m] = length
    part = rest @ face.point
    face.head[m] = part
    face.point[:] -= part * rest
    face.members[face.counts[0]] = row
    face.counts[0] += 1
    return True


def drop(face: Face, place: int, weights: Array) -> None:
    """Take out the row at ``place``; a reference that leaves hands over to the heaviest row of its group."""
    size = face.counts[0]
    if place < face.counts[1]:
        rebuild(face, np.delete(face.members[:size], place), weights)
        return
    m = size - face.counts[1]
    delete_column(face.q, face.r, m, place - face.counts[1])
    face.members[place : size - 1] = face.members[place + 1 : size].copy()
    face.counts[0] -= 1
    face.head[: m - 1], face.point[:] = split(face.q, m - 1, face.origin)


def shortest(face: Face) -> Array:
    """The affine weights of the shortest vector, in the order of the support."""
    size, k = face.counts[0], face.counts[1]
    m, weights = size - k, np.ones(size)
    clear(face.q, m, face.point)
    if m:
        solution = solve_upper(face.r, m, face.head)
        weights[k:] = -solution
        passed = np.bincount(face.groups[face.members[k:size]], solution, len(face.reference))
        weights[:k] += passed[face.groups[face.members[:k]]]
    return weights


def descend(face: Face, weights: Array) -> None:
    """Wolfe's minor cycle: walk to the shortest vector of the face, dropping rows on the way."""
    while True:
        step_begins()
        target, support = shortest(face), face.members[: face.counts[0]].copy()
        if target.min() > VANISHING:
            weights[support] = target
            return
        now, step, k = weights[support], 1.0, -1
        for place in range(len(support)):
            if target[place] <= VANISHING:
                share = now[place] / (now[place] - target[place]) if now[place] > target[place] else 0.0
                if k < 0 or share < step:
                    step, k = share, place
        step = min(1.0, step)
        weights[support] = np.maximum((1 - step) * now + step * target, 0.0)
        weights[support[k]] = 0.0
        drop(face, k, weights)


def price(face: Face, weights: Array, blocked: Array, tiers: Numbers, enough: float) -> tuple[float, int]:
    """The gap, and the row furthest below its group's level that is not in the support yet; -1: there is none.

    Tiers are looked at one after the other, until those so far have a gap above ``enough`` and such a row.
    """
    count = tiers.shape[1] - 1
    level = carried(face.rows, face.groups, face.members[: face.counts[0]], weights, face.point, count)
    least, which = np.full(count, np.inf), np.zeros(count, np.int64)
    gap, row = 0.0, -1
    for tier in tiers:
        gap, row, most = 0.0, -1, 0.0
        for group in range(count):
            if tier[group + 1] > tier[group]:
                value, k = lowest(face.rows, blocked, tier[group], tier[group + 1], face.point)
                if value < least[group]:
                    least[group], which[group] = value, k
            below = level[group] - least[group]
            if below > 0:
                gap += below
                if below > most and weights[which[group]] == 0:
                    row, most = which[group], below
        if row >= 0 and gap > enough:
            break
    return gap, row


def walk(face: Face, weights: Array, blocked: Array, tiers: Numbers, limits: Limits) -> tuple[int, float, int]:
    """Wolfe's method from weights (n,), which it changes, as the face's point: how it ended, the gap, its steps.

    blocked (n,): 0, or infinite for rows that are not there. tiers (t, groups + 1): where in the rows each group begins
    and ends, tier by tier: rows that are likely to matter come in the first.
    """
    rebuild(face, np.flatnonzero(weights > 0), weights)
    fresh, best, mark, gap, steps = True, np.inf, np.inf, np.inf, 0
    while True:
        step_begins()
        descend(face, weights)
        steps += 1
        square = float(face.point @ face.point)
        if square <= limits.zero * limits.zero:
            return ZERO, 0.0, steps
        if limits.side >= 0 and square <= limits.side * limits.side:
            return SHORT, np.inf, steps
        # Every vector v of the hull has v.point >= square - gap.
        beyond = square - limits.side * math.sqrt(square) if limits.side >= 0 else -np.inf
        gap, row = price(face, weights, blocked, tiers, max(limits.tolerance * square, beyond))
        if gap <= limits.tolerance * square:
            return OPTIMAL, gap, steps
        if gap < beyond:
            return CLEAR, gap, steps
        if steps >= limits.most_steps:
            return STALLED, gap, steps
        progress = square < best * (1 - 1e-15)
        best = min(best, square)
        if not progress or row < 0 or not add(face, row):
            # Rounding has eaten the factors up, or this is the end: factor once more and see whether that helps.
            if fresh or square >= mark * (1 - PROGRESS):
                return STALLED, gap, steps
            rebuild(face, np.flatnonzero(weights > 0), weights)
            fresh, best, mark = True, np.inf, square
            continue
        fresh = False


def nearest_point(  # noqa: PLR0913 - the rows, when to end, and how it runs; all but two with a default
    rows: Array,
    groups: NDArray[np.integer],
    start: Array | None = None,
    *,
    tolerance: float = 1e-12,
    zero: float = 1e-13,
    side: float | None = None,
    max_steps: int = MOST_STEPS,
    walk: Callable[..., tuple[int, float, int]] = walk,
) -> Nearest:
    """Shortest vector sum_i a_i z_i with a >= 0 summing to 1 within each group.

    Parameters
    ----------
    rows: (n, d) the z_i; groups: (n,) small non-negative integers, every group with at least one row.
    start: (n,) weights of an earlier solution with affinely independent support; None starts from the shortest rows.
    tolerance: on gap / ||point||^2. zero: a length at or below this counts as zero.
    side: a length; end as soon as a vector is that short, or it is clear that none is.
    walk: the method, as it stands or compiled.
    """
    present, mine = np.unique(groups, return_inverse=True)
    order = None if (mine[1:] >= mine[:-1]).all() else np.argsort(mine, kind="stable")
    if order is not None:  # each group side by side
        rows, mine = rows[order], mine[order]
    tiers = np.searchsorted(mine, np.arange(len(present) + 1))[None].astype(np.int64)
    if start is None:
        weights = np.zeros(len(rows))
        lengths = np.einsum("ij,ij->i", rows, rows)
        for first, stop in zip(tiers[0, :-1], tiers[0, 1:], strict=True):
            weights[first + int(lengths[first:stop].argmin())] = 1.0
    else:
        weights = start.copy() if order is None else start[order]
    face = face_of(rows, mine.astype(np.int64), len(present))
    limits = Limits(tolerance, zero, -1.0 if side is None else side, min(max_steps, MOST_STEPS))
    status, gap, steps = walk(face, weights, np.zeros(len(rows)), tiers, limits)
    if order is not None:
        weights[order] = weights.copy()
    return Nearest(face.point, weights, gap, STATUSES[status], steps)
