"""The exact hard margin of several classes on a working set: Newton for soft margins, Wolfe's method if needed.

A soft margin is the hard margin if no dual reaches C. C grows until that is so, each solve starting from the last; the
duals, scaled to sum 1, are weights of the convex hull of Kesler's vectors and give the upper bound. If no C is enough,
because rows are not or hardly separable, Wolfe's method (nearest.py) solves Kesler's vectors themselves, on a set of
(row, rival) pairs that grows by the lowest ones.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import scipy.linalg as sla
from numpy.typing import NDArray

from coremargin.maths.margin import Array, resolution
from coremargin.maths.multiclass import Codes, margins, upper_bound, violations
from coremargin.maths.nearest import Status, nearest_point
from coremargin.maths.simplex_newton import ClassesModel, Minimum, minimise_classes
from coremargin.maths.stopping import may_stop

#: Values of C, in units of 1 / R^2 for the length R of the longest row: enough for margins above R / 3,000.
C_VALUES = (1e5, 1e7)
#: Relative gap of the first solve with each C, which shows whether it separates the rows.
ROUGH = 1e-3
#: Rows that a large working set is solved on at first, and rows added at a time; tolerance until none are added.
WORK, COARSE = 4000, 1e-2
#: Pairs that one round of Wolfe's method adds, and rounds.
BATCH, ROUNDS = 200, 1000


@dataclass(frozen=True)
class KeslerSolution:
    """Maximum-margin hypothesis of the working set.

    at (K, p) with ||V||_F = 1, zero if the hull contains the origin; weights (m, K), sum 1, 0 at own classes; upper:
    the bound that they prove.
    """

    at: Array
    weights: Array
    upper: float
    status: Status


def solve_kesler(rows: Array, codes: Codes, classes: int, *, tolerance: float = 1e-10) -> KeslerSolution:
    """Maximum-margin hypothesis of rows (m, p) of classes codes (m,) below ``classes``, which are at least two.

    tolerance: relative gap between margin and bound on the working set.
    """
    work = _first(codes, WORK)
    found = KeslerSolution(np.zeros((classes, rows.shape[1])), np.zeros((len(rows), classes)), np.inf, "stalled")
    wanted = tolerance if len(work) == len(rows) else max(tolerance, COARSE)
    for _ in range(ROUNDS):
        may_stop()
        part = _solve(rows[work], codes[work], classes, wanted)
        weights = np.zeros((len(rows), classes))
        weights[work] = part.weights
        found = KeslerSolution(part.at, weights, part.upper, part.status)
        if found.status == "zero" or len(work) == len(rows):
            break
        smallest, _ = margins(rows @ found.at.T, codes)
        low = np.setdiff1d(np.argsort(smallest, kind="stable")[:WORK], work)
        low = low[smallest[low] < (1.0 - wanted) * found.upper]
        if not len(low) and wanted == tolerance:
            break
        wanted = wanted if len(low) else tolerance
        cut = max(found.upper, float(np.quantile(smallest[work], 0.5)))
        work = np.union1d(work[(smallest[work] <= cut) | weights[work].any(axis=1)], low)
    return found


def _first(codes: Codes, most: int) -> NDArray[np.intp]:
    """At most about ``most`` rows, evenly spread within each class."""
    if len(codes) <= 2 * most:
        return np.arange(len(codes))
    parts = [np.flatnonzero(codes == code) for code in np.unique(codes)]
    each = max(1, most // len(parts))
    spread = [np.linspace(0, len(part) - 1, min(each, len(part))).astype(np.intp) for part in parts]
    return np.sort(np.concatenate([part[places] for part, places in zip(parts, spread, strict=True)]))


def _solve(rows: Array, codes: Codes, classes: int, tolerance: float) -> KeslerSolution:
    """All rows at once."""
    radius = float(np.linalg.norm(rows, axis=1).max())
    if radius == 0.0:  # all rows are at the origin
        weights = np.zeros((len(rows), classes))
        weights[0, (codes[0] + 1) % classes] = 1.0
        return KeslerSolution(np.zeros((classes, rows.shape[1])), weights, 0.0, "zero")
    zero = resolution(2.0 * radius, len(rows) + classes, classes * rows.shape[1])
    violations0, weights = violations(np.zeros((len(rows), classes)), codes), np.zeros((len(rows), classes))
    found: Minimum | None = None
    for c in C_VALUES:
        model = ClassesModel(0.0, violations0, rows, codes, np.full(len(rows), c / radius**2))
        found = minimise_classes(model, ROUGH, found)
        if margins(model.scores(found.at), codes)[0].min() > 0.0:
            found = minimise_classes(model, 0.1 * tolerance, found)
        at, weights = found.at[:, :-1], found.duals / found.duals.sum()
        smallest, length = float(margins(rows @ at.T, codes)[0].min()), float(np.linalg.norm(at))
        upper = _upper(rows, codes, weights)
        if smallest >= (1.0 - tolerance) * upper * length > zero * length:
            return KeslerSolution(at / length, weights, upper, "optimal")
    return _wolfe(rows, codes, weights, tolerance, zero)


class KeslerVectors:
    """All pairs (row, rival) as Kesler's vectors; pair i K + r is row i against class r."""

    def __init__(self, rows: Array, codes: Codes, classes: int) -> None:
        self.rows, self.codes, self.classes = rows, codes, classes

    def vectors(self, pairs: NDArray[np.intp]) -> tuple[Array, Array | None]:
        """(n, K q): the vectors of some pairs; if the span of their rows is narrower, in its basis (q, p)."""
        used, place = np.unique(pairs // self.classes, return_inverse=True)
        flat, basis = self.rows[used], None
        if flat.shape[1] > len(used):
            basis, flat = (part.T for part in sla.qr(flat.T, mode="economic", check_finite=False))
        z = np.zeros((len(pairs), self.classes, flat.shape[1]))
        every = np.arange(len(pairs))
        z[every, self.codes[used][place]] = flat[place]
        z[every, pairs % self.classes] = -flat[place]
        return z.reshape(len(pairs), -1), basis

    def levels(self, at: Array) -> Array:
        """<V, z> (m K,) of all pairs; inf if the rival is the row's own class."""
        scores, own = self.rows @ at.T, (np.arange(len(self.codes)), self.codes)
        levels = scores[own][:, None] - scores
        levels[own] = np.inf
        return np.asarray(levels.ravel())


def _wolfe(rows: Array, codes: Codes, weights: Array, tolerance: float, zero: float) -> KeslerSolution:
    """Wolfe's method on pairs of row and rival, from the weights (m, K) of an approximate solution."""
    z = KeslerVectors(rows, codes, weights.shape[1])
    work = np.flatnonzero(weights.ravel() > 0)
    status: Status = "stalled"
    point = np.zeros((weights.shape[1], rows.shape[1]))
    for _ in range(ROUNDS):
        may_stop()
        flat, basis = z.vectors(work)
        start = weights.ravel()[work]
        groups = np.zeros(len(work), np.int64)
        found = nearest_point(flat, groups, start / start.sum(), tolerance=0.5 * tolerance, zero=zero)
        status = found.status
        weights = np.zeros_like(weights)
        weights.ravel()[work] = found.weights / found.weights.sum()
        # Not the sum by the weights, which near the origin is mostly rounding error.
        point = found.point.reshape(len(point), -1)
        point = point if basis is None else point @ basis
        if status == "zero":
            break
        levels = z.levels(point)
        level = float(weights.ravel()[work] @ levels[work])
        order = np.argpartition(levels, BATCH)[:BATCH] if len(levels) > BATCH else np.arange(len(levels))
        entering = np.setdiff1d(order[levels[order] < level], work)
        gap = level - float(levels.min())
        if gap <= tolerance * float((point * point).sum()) or not len(entering):
            break
        cut = np.quantile(levels[work], 0.9)
        kept = (levels[work] <= cut) | (weights.ravel()[work] > 0)
        work = np.concatenate([work[kept], entering])
    upper, length = _upper(rows, codes, weights), float(np.linalg.norm(point))
    if status == "zero" or length == 0.0:
        return KeslerSolution(np.zeros_like(point), weights, upper, "zero")
    return KeslerSolution(point / length, weights, upper, status)


def _upper(rows: Array, codes: Codes, weights: Array) -> float:
    used = np.flatnonzero(weights.any(axis=1))
    return upper_bound(rows[used], codes[used], weights[used], 0.0)
