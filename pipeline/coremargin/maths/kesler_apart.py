"""The hard margin of several classes if lengths of rows differ by many orders: separates rows from the constant. The
constant, the last entry of every row, is as long as the longest row. In float64, rows of ordinary length then nearly
vanish next to it. But with a constant much longer than the rows that carry the margin, the intercepts are practically
free, and the weights of each class balance. Moreover a constraint may be scaled: one very long row only determines on
which side of its direction the hypothesis lies.

So the working set is solved with rows about their median, long ones shortened, and a constant that is many times their
usual distance. This finds the pairs of row and rival that carry the margin. Their weights are then computed for the
original rows: the shortest sum with balanced weights, by least squares on rows scaled to one length, and rounded so
that they balance to the last bit, because the bound multiplies any imbalance by the constant.
"""

from __future__ import annotations

import math
from dataclasses import replace
from typing import TYPE_CHECKING

import numpy as np
import scipy.linalg as sla

from coremargin.maths.breakdown import exact_sum
from coremargin.maths.kesler import KeslerSolution, solve_kesler
from coremargin.maths.margin import VANISHED, gamma
from coremargin.maths.multiclass import class_balance, margins, meets, scores_of, spread
from coremargin.maths.stopping import may_stop

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from coremargin.maths.margin import Array
    from coremargin.maths.multiclass import Codes

#: Rows are shortened to these multiples of their median distance from the median. The first resolves the rows better,
#: #: the second the choice of those that carry the margin.
CUTS = 2.0**14, 2.0**20
#: Weights are multiples of GRID, which float64 represents up to 1, except weights below ROUGH, of very long rows.
GRID, ROUGH = 2.0**-53, 2.0**-24
#: Rows of LONG times the median distance are long; their margins have a reserve of SPARE times their length.
LONG, SPARE = 1024.0, 2.0**-47
#: Most entries of a table of pairs, by coordinates or by pairs: its factorisation takes a second.
TABLE = 4_000_000


def solve_apart(rows: Array, codes: Codes, classes: int, constant: float, *, tolerance: float) -> KeslerSolution:
    """Maximum-margin hypothesis of rows (m, d) without their ``constant``, 0: no intercepts.

    at is (K, d + 1). "stalled" if float64 can neither find one nor show that there is none.
    """
    pairs = _Pairs(rows, codes, classes, constant)
    tried = []
    for cut in CUTS:
        found = pairs.solved(cut, tolerance)
        share = pairs.margin(found.at) / found.upper if found.upper > 0.0 else 0.0
        if found.status == "zero" or (found.status == "optimal" and share >= 1.0 - tolerance):
            return found
        tried.append((share, -found.upper, -cut, found))
    return max(tried)[-1]


def upper_apart(rows: Array, codes: Codes, weights: Array, constant: float) -> float:
    """No hypothesis has a larger margin on data with these rows (m, d); rounded up.

    As ``upper_bound``, which takes rows and constant together and multiplies rounding errors of the weights by the
    constant. Here the weights of each class cancel before they are multiplied.
    """
    used = weights.any(axis=1)
    rows, codes, weights = rows[used], codes[used], weights[used]
    m = spread(weights, codes)
    given, total = class_balance(weights, codes), exact_sum(weights.ravel().tolist())
    middle = weights.sum(axis=1) @ rows / total if constant else np.zeros(rows.shape[1])
    away = rows - middle
    kept = m.T @ away + given[:, None] * middle
    mean_length = float(weights.sum(axis=1) @ np.linalg.norm(away, axis=1))
    mean_length += float(np.abs(given).sum() * np.linalg.norm(middle))
    length = math.hypot(float(np.linalg.norm(kept)), constant * float(np.linalg.norm(given)))
    length = length * (1.0 + gamma(kept.size + 16)) + 4.0 * gamma(weights.size + 8) * mean_length
    return length / total * (1.0 + gamma(8)) + float(np.sqrt(kept.size)) * VANISHED


def _clear(rows: Array, codes: Codes, w: Array, b: Array, margin: float) -> None:
    """Rotate W (K, d), by a few units of rounding, until very long rows have the margin plus their rounding error.

    For a row of length 1e14 the last bit of W decides about a margin of 0.01, and nothing else depends on that bit.
    """
    for x, own in zip(rows, codes, strict=True):
        may_stop()
        scores, size = w @ x + b, float(np.linalg.norm(x))
        wanted = margin + SPARE * size * float(np.linalg.norm(w, axis=1).max())
        for rival in np.flatnonzero(scores[own] - scores < wanted):
            if rival != own:
                turn = (wanted - (scores[own] - scores[rival])) / (2.0 * size) * (x / size)
                w[own] += turn
                w[rival] -= turn


class _Pairs:
    """Pairs of row and rival; rows are about their median, wide ones in coordinates of their span.

    scale (m,): divisors of rows for computations that depend on lengths.
    """

    def __init__(self, rows: Array, codes: Codes, classes: int, constant: float) -> None:
        self.given, self.codes, self.classes, self.constant = rows, codes, classes, constant
        self.intercept = constant > 0.0
        self.middle = np.median(rows, axis=0) if self.intercept else np.zeros(rows.shape[1])
        self.rows, self.basis = rows - self.middle, None
        distance = np.linalg.norm(self.rows, axis=1)
        self.usual = float(np.median(distance[distance > 0.0])) if distance.any() else 1.0
        self.scale = np.maximum(distance / self.usual, 1.0)
        if rows.shape[1] > len(rows):
            scaled = self.rows / self.scale[:, None]
            self.basis, factor = sla.qr(scaled.T, mode="economic", check_finite=False)
            self.rows = factor.T * self.scale[:, None]

    def solved(self, cut: float, tolerance: float) -> KeslerSolution:
        """The solution for the pairs of shortened rows with a constant of ``cut`` times the usual length."""
        flat = self.rows / np.maximum(self.scale / cut, 1.0)[:, None]
        last = np.full((len(flat), int(self.intercept)), cut * self.usual)
        found = solve_kesler(np.hstack([flat, last]), self.codes, self.classes, tolerance=tolerance)
        origin = replace(found, at=np.zeros((self.classes, self.given.shape[1] + 1)), upper=np.inf, status="stalled")
        weights = self.shortest_weights(found.weights)
        if weights is None:
            return origin
        upper = upper_apart(self.given, self.codes, weights, self.constant)
        origin = replace(origin, weights=weights, upper=upper)
        if found.status == "zero":
            used = weights.any(axis=1)
            meet = meets(self.given[used], self.codes[used], weights[used], intercept=self.intercept)
            return replace(origin, status="zero") if meet else origin
        at = self.hypothesis(weights, upper)
        return replace(origin, at=at, status=found.status) if at.any() else origin

    def margin(self, at: Array) -> float:
        """The smallest margin of all but very long rows, which ``_clear`` treats."""
        usual = np.flatnonzero(self.scale <= LONG)
        return float(margins(scores_of(self.given[usual], at, self.constant), self.codes[usual])[0].min())

    def shortest_weights(self, guess: Array) -> Array | None:
        """Weights (m, K), sum 1, of the shortest sum of the pairs with weight in ``guess``; None: none found.

        Pairs whose weight would be negative are removed, the lower half of them at a time: few steps for any number of
        pairs; removing all at once would sometimes give a longer sum.
        """
        row, rival = self._distinct(*np.nonzero(guess))
        size = self.classes * self.rows.shape[1]
        while len(row) and len(row) * max(size, len(row)) <= TABLE:
            may_stop()
            alpha = self._shortest(row, rival)
            if alpha is None:
                return None
            if alpha.min() >= 0.0:
                weights = np.zeros_like(guess)
                weights[row, rival] = alpha / self.scale[row]
                weights /= weights.sum()
                return self._balanced(weights) if self.intercept else weights
            low = np.argsort(alpha, kind="stable")[: (np.count_nonzero(alpha < 0.0) + 1) // 2]
            row, rival = np.delete(row, low), np.delete(rival, low)
        return None

    def _distinct(self, row: NDArray[np.intp], rival: NDArray[np.intp]) -> tuple[NDArray[np.intp], NDArray[np.intp]]:
        """The pairs (n,) in their order; of equal rows of a class, those of the first only."""
        used, place = np.unique(row, return_inverse=True)
        pairs = np.column_stack([self.codes[used], self.given[used]])
        _, first, same = np.unique(pairs, axis=0, return_index=True, return_inverse=True)
        pairs = np.unique(np.column_stack([used[first[same.ravel()][place]], rival]), axis=0)
        return pairs[:, 0], pairs[:, 1]

    def _given(self, row: NDArray[np.intp], rival: NDArray[np.intp]) -> Array:
        """(K, n): 1 / scale for the class to which a pair adds, -1 / scale for the one from which it subtracts."""
        given, every = np.zeros((self.classes, len(row))), np.arange(len(row))
        given[self.codes[row], every] = 1.0 / self.scale[row]
        given[rival, every] = -1.0 / self.scale[row]
        return given

    def _shortest(self, row: NDArray[np.intp], rival: NDArray[np.intp]) -> Array | None:
        """Balanced weights (n,) of scaled pairs with the shortest sum; None: there are none."""
        rules = (1.0 / self.scale[row])[None, :]
        if self.intercept:
            rules = np.vstack([rules, self._given(row, rival)])
        wanted = np.eye(len(rules))[0]
        if not (np.isfinite(rules).all() and np.isfinite(self.rows[row] / self.scale[row][:, None]).all()):
            return None
        first = sla.lstsq(rules, wanted, lapack_driver="gelsy")[0]
        if np.linalg.norm(rules @ first - wanted) > 1e-9:
            return None
        z = np.zeros((len(row), self.classes, self.rows.shape[1]))
        scaled, every = self.rows[row] / self.scale[row][:, None], np.arange(len(row))
        z[every, self.codes[row]] = scaled
        z[every, rival] = -scaled
        flat, (basis, triangle, _) = z.reshape(len(row), -1).T, sla.qr(rules.T, pivoting=True)
        sizes = np.abs(triangle.diagonal())
        free = basis[:, np.count_nonzero(sizes > _noise(rules) * sizes[0]) :]
        if not free.shape[1]:
            return np.asarray(first)
        may_stop()
        moved = flat @ free
        return np.asarray(first - free @ sla.lstsq(moved, flat @ first, cond=_noise(moved), lapack_driver="gelsy")[0])

    def hypothesis(self, weights: Array, upper: float) -> Array:
        """V (K, d + 1) of length 1 along the sum; its intercepts give all pairs with weight the same margin."""
        row, rival = np.nonzero(weights * self.scale[:, None] >= ROUGH)
        total = spread(weights, self.codes).T @ self.rows
        margin = float(np.linalg.norm(total))
        w, b = total / margin if margin > 0.0 else total, np.zeros(self.classes)
        if self.intercept:
            level = np.einsum("ij,ij->i", self.rows[row], w[self.codes[row]] - w[rival])
            if not np.isfinite(level).all():
                return np.zeros((self.classes, self.given.shape[1] + 1))
            b = sla.lstsq(self._given(row, rival).T, (margin - level) / self.scale[row])[0]
        w = w if self.basis is None else w @ self.basis.T
        b -= w @ self.middle
        long = self.scale > LONG
        _clear(self.given[long], self.codes[long], w, b, upper)
        at = np.column_stack([w, b / self.constant if self.intercept else b])
        return at / (float(np.linalg.norm(at)) or 1.0)

    def _balanced(self, weights: Array) -> Array:
        """The weights rounded so that each class balances exactly, as close to the originals as possible."""
        small = (weights > 0.0) & (weights < ROUGH)
        weights = (
            weights / self._balanced_on_grid(self._with_balanced_small(weights, small)).sum()
        )  # the added weight is not negligible
        rounded = np.where(small, weights, np.round(weights / GRID) * GRID)
        return np.maximum(self._balanced_on_grid(self._with_balanced_small(rounded, small)), 0.0)

    def _balanced_on_grid(self, weights: Array) -> Array:
        """Change the weights of the heaviest pairs that connect the classes, so that all balance on the grid."""
        found = weights.copy()
        row, rival = np.nonzero(found)
        tree = _heaviest_tree(found[row, rival], self.codes[row], rival, self.classes)
        for k, edge in tree:  # from the leaves on: balance each class with its parent
            place = row[edge], rival[edge]
            excess = round(float(class_balance(found, self.codes)[k]) / GRID) * GRID
            found[place] += -excess if self.codes[place[0]] == k else excess
        return found

    def _with_balanced_small(self, weights: Array, small: NDArray[np.bool]) -> Array:
        """Balance each ``small`` weight (m, K) by an equal one on a pair of the same classes in the other direction.

        Nothing else can balance weights below the grid; with rows of usual length, these add nothing to the sum.
        """
        found = weights.copy()
        for row, rival in np.argwhere(small).tolist():
            own = self.codes[row]
            others = np.flatnonzero((self.codes == rival) & (self.scale <= LONG))
            if len(others):  # the lightest, which loses least of so small a weight by rounding
                found[others[int(weights[others, own].argmin())], own] += weights[row, rival]
        return found


def _noise(table: Array) -> float:
    """Singular values below this share of the largest are rounding errors, for a table of this shape."""
    return float(np.finfo(np.float64).eps * max(*table.shape))


def _heaviest_tree(weights: Array, own: Codes, rival: NDArray[np.intp], classes: int) -> list[tuple[int, int]]:
    """(class, edge) from the leaves on, of the maximum spanning tree of the classes."""
    above, tree = list(range(classes)), []

    def root(k: int) -> int:
        while above[k] != k:
            k = above[k]
        return k

    for edge in np.argsort(-weights, kind="stable").tolist():
        one, other = root(int(own[edge])), root(int(rival[edge]))
        if one != other:
            above[one] = other
            tree.append(edge)
    found, left = [], tree
    while left:
        ends = np.bincount(np.concatenate([own[left], rival[left]]), minlength=classes)
        for edge in left:
            leaf = next((int(k) for k in (own[edge], rival[edge]) if ends[k] == 1), None)
            if leaf is not None:
                found.append((leaf, edge))
                break
        left = [edge for edge in left if edge != found[-1][1]]
    return found
