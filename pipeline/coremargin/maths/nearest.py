"""The nearest points of convex hulls, exactly: Wolfe's active-set method on QR factors of differences.

Minimise || sum_i a_i z_i || over a >= 0 that sum to 1 within each group of rows. One group: the point of a hull
nearest to the origin (hard margin without intercept). Two groups with z_i = y_i x_i: the nearest points of the
hulls of two classes (with intercept). Both are the dual of the maximum-margin problem.

The rows with non-zero weight (the *support*) are affinely independent, and the current point is the shortest vector
of their affine hull. It is computed by projecting onto the orthogonal complement of the rows' differences, never by
normal equations, which square the condition number (Wolfe, Finding the nearest point in a polytope, 1976; the
treatment of several groups by one reference row a group is ours).
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Literal

import numpy as np
import scipy.linalg as sla
from numpy.typing import NDArray
from scipy.linalg.lapack import dtrtrs

if TYPE_CHECKING:
    from coremargin.maths.margin import Array

Status = Literal["optimal", "zero", "stalled"]

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
    far as float64 can tell), "stalled" (rounding stops progress before the tolerance).
    """

    point: Array
    weights: Array
    gap: float
    status: Status
    steps: int


class _Face:
    """The affine hull of the support: one reference row a group, QR of the other rows minus their reference."""

    def __init__(self, rows: Array, groups: NDArray[np.integer]) -> None:
        self.rows, self.groups = rows, groups
        self.capacity = min(rows.shape[1], len(rows)) + 1
        self.q = np.zeros((rows.shape[1], self.capacity), order="F")
        self.r = np.zeros((self.capacity, self.capacity), order="F")
        self.references: list[int] = []
        self.others: list[int] = []
        self.origin = np.zeros(rows.shape[1])

    @property
    def support(self) -> list[int]:
        return self.references + self.others

    def rebuild(self, support: NDArray[np.integer], weights: Array) -> None:
        """Factor afresh; the heaviest row of each group becomes its reference, as it is the last to leave.

        Rows that depend on heavier ones leave the support: their weights are set to zero.
        """
        self.references, self.others = [], []
        for group in np.unique(self.groups[support]):
            mine = support[self.groups[support] == group]
            self.references.append(int(mine[np.argmax(weights[mine])]))
        self.origin = self.rows[self.references].sum(axis=0)
        for row in support[np.argsort(-weights[support], kind="stable")]:
            if row not in self.references and not self.add(int(row)):
                weights[row] = 0.0

    def difference(self, row: int) -> Array:
        reference = next(r for r in self.references if self.groups[r] == self.groups[row])
        return np.asarray(self.rows[row] - self.rows[reference])

    def add(self, row: int) -> bool:
        """Extend the factors by one row; False when it depends on the others to working precision."""
        m = len(self.others)
        if m + 1 >= self.capacity:
            return False
        column, q = self.difference(row), self.q[:, :m]
        head = q.T @ column
        rest = column - q @ head
        again = q.T @ rest  # twice is enough (Giraud, Langou, Rozloznik 2005)
        rest -= q @ again
        length = float(np.linalg.norm(rest))
        if length <= DEPENDENT * float(np.linalg.norm(column)):
            return False
        self.q[:, m] = rest / length
        self.r[:m, m] = head + again
        self.r[m, :m] = 0.0
        self.r[m, m] = length
        self.others.append(row)
        return True

    def drop(self, row: int, weights: Array) -> None:
        """Take one row out; a reference that leaves hands over to the heaviest row of its group."""
        if row in self.references:
            rest = np.array([s for s in self.support if s != row])
            self.rebuild(rest, weights)
            return
        m, k = len(self.others), self.others.index(row)
        q, r = sla.qr_delete(self.q[:, :m], self.r[:m, :m], k, which="col", check_finite=False)
        self.q[:, : m - 1] = q[:, : m - 1]
        self.r[: m - 1, : m - 1] = r[: m - 1, :]
        self.others.pop(k)

    def shortest(self) -> tuple[Array, Array]:
        """The shortest vector of the affine hull and its affine weights, in the order of ``support``."""
        m = len(self.others)
        q = self.q[:, :m]
        head = q.T @ self.origin
        point = self.origin - q @ head
        point -= q @ (q.T @ point)
        weights = np.ones(len(self.references) + m)
        if m:
            solution, _ = dtrtrs(self.r[:m, :m], -head)  # the bare routine: checks would cost more than the solve
            weights[len(self.references) :] = solution
            mine = self.groups[self.others]
            for k, reference in enumerate(self.references):
                weights[k] = 1.0 - solution[mine == self.groups[reference]].sum()
        return point, weights


def _descend(face: _Face, weights: Array) -> Array:
    """Wolfe's minor cycle: walk to the shortest vector of the face, dropping rows on the way; returns the point."""
    while True:
        point, target = face.shortest()
        support = np.array(face.support)
        outside = target <= VANISHING
        if not outside.any():
            weights[support] = target
            return point
        now = weights[support]
        with np.errstate(divide="ignore", invalid="ignore"):
            steps = np.where(outside & (now > target), now / (now - target), np.where(outside, 0.0, np.inf))
        k = int(np.argmin(steps))
        step = min(1.0, float(steps[k]))
        weights[support] = np.maximum((1 - step) * now + step * target, 0.0)
        weights[support[k]] = 0.0
        face.drop(int(support[k]), weights)


def nearest_point(
    rows: Array,
    groups: NDArray[np.integer],
    start: Array | None = None,
    *,
    tolerance: float = 1e-12,
    zero: float = 1e-13,
    max_steps: int = 100_000,
) -> Nearest:
    """Shortest vector sum_i a_i z_i with a >= 0 summing to 1 within each group.

    Parameters
    ----------
    rows: (n, d) the z_i; groups: (n,) small non-negative integers, every group with at least one row.
    start: (n,) weights of an earlier solution with affinely independent support; None starts from the shortest rows.
    tolerance: on gap / ||point||^2. zero: a length at or below this counts as zero.
    """
    members = [np.flatnonzero(groups == g) for g in np.unique(groups)]
    lengths = np.einsum("ij,ij->i", rows, rows)
    if start is None:
        start = np.zeros(len(rows))
        start[[m[np.argmin(lengths[m])] for m in members]] = 1.0
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
        levels = rows @ point
        short = [float(weights[m] @ levels[m]) - levels[m] for m in members]
        gap = float(sum(max(0.0, s.max()) for s in short))
        if gap <= tolerance * square:
            status = "optimal"
            break
        row = _entering(short, members, weights)
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


def _entering(short: Sequence[Array], members: Sequence[NDArray[np.integer]], weights: Array) -> int | None:
    """The row furthest below its group's level that is not in the support yet."""
    row, most = None, 0.0
    for shortfall, mine in zip(short, members, strict=True):
        k = int(np.argmax(shortfall))
        if shortfall[k] > most and weights[mine[k]] == 0:
            row, most = int(mine[k]), float(shortfall[k])
    return row
