"""The nearest points of convex hulls, exactly: Wolfe's active-set method on QR factors of differences.

Minimise || sum_i a_i z_i || over a >= 0 that sum to 1 within each group of rows. One group: the point of a hull
nearest to the origin (hard margin without intercept). Two groups with z_i = y_i x_i: the nearest points of the
hulls of two classes (with intercept). Both are the dual of the maximum-margin problem.

The rows with non-zero weight (the *support*) are affinely independent, and the current point is the shortest vector
of their affine hull. It is computed by projecting onto the orthogonal complement of the rows' differences, never by
normal equations, which square the condition number (Wolfe, Finding the nearest point in a polytope, 1976; the
treatment of several groups by one reference row a group is ours).

Not a solver by others: a bound is the length of an explicit combination of few rows, which an active set ends with and
an interior point does not, and the outlier search stops the method as soon as its side is clear. The tests hold it
against daqp.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Literal

import numpy as np
import scipy.linalg as sla
from numpy.typing import NDArray
from scipy.linalg.lapack import dtrtrs

if TYPE_CHECKING:
    from coremargin.maths.margin import Array

Status = Literal["optimal", "zero", "stalled", "short", "clear"]

#: A new row counts as affinely dependent when this share of its difference is left after projection.
DEPENDENT = 1e-13
#: Weights at or below this are on the boundary.
VANISHING = 1e-14
#: What new factors must gain over the last ones, as a share of the squared length; less would go round in circles.
PROGRESS = 1e-12


@dataclass(frozen=True)
class Nearest:
    """Answer of ``nearest_point``.

    point (d,): sum_i a_i z_i; weights (n,): a; gap: the sum over groups of (support level - smallest z.point), which
    bounds ||point||^2 - optimum^2 from above; status: "optimal" (gap within tolerance), "zero" (the hulls meet as
    far as float64 can tell), "stalled" (rounding stops progress before the tolerance), "short" and "clear" (it is
    known on which side of the caller's length the optimum lies).
    """

    point: Array
    weights: Array
    gap: float
    status: Status
    steps: int


class _Face:
    """The affine hull of the support: one reference row a group, QR of the other rows minus their reference.

    ``point`` is its shortest vector. The support is ``members[:size]``, the references first.
    """

    def __init__(self, rows: Array, groups: NDArray[np.integer]) -> None:
        self.rows, self.groups = rows, groups
        self.capacity = min(rows.shape[1], len(rows)) + 1
        self.q = np.zeros((rows.shape[1], self.capacity), order="F")
        self.r = np.zeros((self.capacity, self.capacity), order="F")
        self.head = np.zeros(self.capacity)  # of the origin in the basis q
        self.members = np.zeros(self.capacity + 2, np.intp)
        self.size, self.references = 0, 0
        self.reference: dict[int, int] = {}  # group -> its reference
        self.origin = self.point = np.zeros(rows.shape[1])

    @property
    def support(self) -> NDArray[np.intp]:
        return self.members[: self.size]

    def rebuild(self, support: NDArray[np.integer], weights: Array) -> None:
        """Factor afresh; the heaviest row of each group becomes its reference, as it is the last to leave.

        Rows that depend on heavier ones leave the support: their weights are set to zero.
        """
        groups, self.reference = self.groups[support], {}
        for group in sorted(set(groups.tolist())):
            mine = support[groups == group]
            self.reference[group] = int(mine[np.argmax(weights[mine])])
        first = list(self.reference.values())
        self.members = np.zeros(self.capacity + len(first), np.intp)
        self.members[: len(first)] = first
        self.size = self.references = len(first)
        self.origin = self.rows[first].sum(axis=0)
        self.point = self.origin
        for row in support[np.argsort(-weights[support], kind="stable")].tolist():
            if row not in first and not self.add(row):
                weights[row] = 0.0

    def add(self, row: int) -> bool:
        """Extend the factors by one row; False when it depends on the others to working precision."""
        m = self.size - self.references
        if m + 1 >= self.capacity:
            return False
        column, q = self.rows[row] - self.rows[self.reference[int(self.groups[row])]], self.q[:, :m]
        head = column @ q
        rest = column - q @ head
        again = rest @ q  # twice is enough (Giraud, Langou, Rozloznik 2005)
        rest -= q @ again
        length = math.sqrt(rest @ rest)
        if length <= DEPENDENT * math.sqrt(column @ column):
            return False
        rest /= length
        self.q[:, m] = rest
        self.r[:m, m] = head + again
        self.r[m, :m] = 0.0
        self.r[m, m] = length
        self.head[m] = part = float(rest @ self.point)
        self.point = self.point - part * rest
        self.members[self.size] = row
        self.size += 1
        return True

    def drop(self, place: int, weights: Array) -> None:
        """Take out the row at ``place``; a reference that leaves hands over to the heaviest row of its group."""
        if place < self.references:
            self.rebuild(np.delete(self.support, place), weights)
            return
        m, k = self.size - self.references, place - self.references
        q, r = sla.qr_delete(self.q[:, :m], self.r[:m, :m], k, which="col", check_finite=False)
        self.q[:, : m - 1] = q[:, : m - 1]
        self.r[: m - 1, : m - 1] = r[: m - 1, :]
        self.members[place : self.size - 1] = self.members[place + 1 : self.size]
        self.size -= 1
        q = self.q[:, : m - 1]
        self.head[: m - 1] = self.origin @ q
        self.point = self.origin - q @ self.head[: m - 1]

    def shortest(self) -> Array:
        """The affine weights of the shortest vector, in the order of ``support``."""
        k, m = self.references, self.size - self.references
        q, weights = self.q[:, :m], np.ones(self.size)
        self.point = self.point - q @ (self.point @ q)
        if m:
            solution, _ = dtrtrs(self.r[:m, :m], self.head[:m])  # the bare routine: checks would cost more than it does
            weights[k:] = -solution
            mine = self.groups[self.members[k : self.size]]
            for place, group in enumerate(self.reference):
                weights[place] += solution[mine == group].sum() if k > 1 else solution.sum()
        return weights


def _descend(face: _Face, weights: Array) -> Array:
    """Wolfe's minor cycle: walk to the shortest vector of the face, dropping rows on the way; returns the point."""
    while True:
        target = face.shortest()
        if target.min() > VANISHING:
            weights[face.support] = target
            return face.point
        support, outside = face.support.copy(), target <= VANISHING
        now = weights[support]
        with np.errstate(divide="ignore", invalid="ignore"):
            steps = np.where(outside & (now > target), now / (now - target), np.where(outside, 0.0, np.inf))
        k = int(np.argmin(steps))
        step = min(1.0, float(steps[k]))
        weights[support] = np.maximum((1 - step) * now + step * target, 0.0)
        weights[support[k]] = 0.0
        face.drop(k, weights)


def nearest_point(
    rows: Array,
    groups: NDArray[np.integer],
    start: Array | None = None,
    *,
    tolerance: float = 1e-12,
    zero: float = 1e-13,
    side: float | None = None,
    max_steps: int = 100_000,
) -> Nearest:
    """Shortest vector sum_i a_i z_i with a >= 0 summing to 1 within each group.

    Parameters
    ----------
    rows: (n, d) the z_i; groups: (n,) small non-negative integers, every group with at least one row.
    start: (n,) weights of an earlier solution with affinely independent support; None starts from the shortest rows.
    tolerance: on gap / ||point||^2. zero: a length at or below this counts as zero.
    side: a length; end as soon as a vector is that short, or it is clear that none is.
    """
    members = _members(groups)
    if start is None:
        start = np.zeros(len(rows))
        lengths = np.einsum("ij,ij->i", rows, rows)
        for mine in members:
            start[_row(mine, int(lengths[mine].argmin()))] = 1.0
    weights, face = start.copy(), _Face(rows, groups)
    face.rebuild(np.flatnonzero(weights > 0), weights)
    fresh, steps, gap, best, mark = True, 0, np.inf, np.inf, np.inf
    point = np.zeros(rows.shape[1])
    status: Status = "stalled"
    while steps < max_steps:
        point = _descend(face, weights)
        steps += 1
        square = float(point @ point)
        if square <= zero * zero:
            return Nearest(point, weights, 0.0, "zero", steps)
        if side is not None and square <= side * side:
            return Nearest(point, weights, np.inf, "short", steps)
        gap, row = _price(rows @ point, members, weights)
        if gap <= tolerance * square:
            status = "optimal"
            break
        if side is not None and square - gap > side * math.sqrt(square):  # every v has v.point >= square - gap
            status = "clear"
            break
        progress = square < best * (1 - 1e-15)
        best = min(best, square)
        if not progress or row is None or not face.add(row):
            # Rounding has eaten the factors up, or this is the end: factor once more and see whether that helps.
            if fresh or square > mark * (1 - PROGRESS):
                break
            face.rebuild(np.flatnonzero(weights > 0), weights)
            fresh, best, mark = True, np.inf, square
            continue
        fresh = False
    return Nearest(point, weights, gap, status, steps)


def _members(groups: NDArray[np.integer]) -> list[NDArray[np.intp] | slice]:
    """Where the rows of each group are; a slice where they lie side by side, which saves copies in every step."""
    found: list[NDArray[np.intp] | slice] = []
    for group in np.unique(groups):
        mine = np.flatnonzero(groups == group)
        whole = int(mine[-1]) - int(mine[0]) + 1 == len(mine)
        found.append(slice(int(mine[0]), int(mine[-1]) + 1) if whole else mine)
    return found


def _price(levels: Array, members: Sequence[NDArray[np.intp] | slice], weights: Array) -> tuple[float, int | None]:
    """The gap, and the row furthest below its group's level that is not in the support yet."""
    gap, row, most = 0.0, None, 0.0
    for mine in members:
        values, shares = levels[mine], weights[mine]
        k = int(values.argmin())
        below = float(shares @ values) - float(values[k])
        if below > 0:
            gap += below
            if below > most and shares[k] == 0:
                row, most = _row(mine, k), below
    return gap, row


def _row(mine: NDArray[np.intp] | slice, k: int) -> int:
    """Number of the k-th row of a group."""
    return int(mine.start) + k if isinstance(mine, slice) else int(mine[k])
