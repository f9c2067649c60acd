"""The hard margin of several classes where rows differ in length by many orders: rows and constant are measured apart.

The constant, the last entry of every row, is as long as the longest row. Beside rows of ordinary length float64 then
sees little but the constant. But a constant much longer than the rows that carry the margin is as good as none: the
intercepts are free, and weights give each class what they take from it. And a constraint may be scaled: one very long
row only says on which side of its direction the hypothesis lies.

So the pool is solved with rows about their median, long ones shortened, and a constant that is many times their usual
distance. This finds the pairs of row and rival that carry the margin. Their weights are then found for the rows as they
are: the shortest sum whose weights give each class as much as they take, by least squares on rows scaled to one length,
and rounded so that what is given and taken is the same to the last bit, for the bound has it times the constant.
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

#: Rows are shortened to so many times their median distance from their median. The first tells float64 more about the
#: rows, the second more about which of them carry the margin.
CUTS = 2.0**14, 2.0**20
#: Weights are multiples of this, which all numbers up to 1 can be, but for those below ROUGH, of very long rows.
GRID, ROUGH = 2.0**-53, 2.0**-24
#: Rows of so many times the median distance are long; their margins are kept this share of their length clear.
LONG, SPARE = 1024.0, 2.0**-47
#: Entries of a table of pairs that the driver makes, be it by coordinates or by pairs: factors of it take a second.
TABLE = 4_000_000


def solve_apart(rows: Array, codes: Codes, classes: int, constant: float, *, tolerance: float) -> KeslerSolution:
    """Maximum-margin hypothesis of rows (m, d), to which the ``constant`` is to be added, 0: no intercepts.

    at is (K, d + 1). "stalled" where float64 does not find one, or not that there is none.
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
    """No hypothesis has a larger margin on data that hold these rows (m, d); rounded up.

    As ``upper_bound``, which takes rows and constant together: there the last bits of the weights count times the
    constant, here what each class is given and what is taken from it cancel before they are multiplied.
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
    """Turn W (K, d) until very long rows have the margin and what rounding takes from theirs: a few units of rounding.

    Of a row of length 1e14 the last bit of W decides about a margin of 0.01, and nothing else depends on that bit.
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

    scale (m,): what rows are divided by where lengths matter.
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
        """The solution whose pairs are those of shortened rows and of a constant of ``cut`` times the usual length."""
        flat = self.rows / np.maximum(self.scale / cut, 1.0)[:, None]
        last = np.full((len(flat), int(self.intercept)), cut * self.usual)
        found = solve_kesler(np.hstack([flat, last]), self.codes, self.classes, tolerance=tolerance)
        origin = replace(found, at=np.zeros((self.classes, self.given.shape[1] + 1)), upper=np.inf, status="stalled")
        weights = self.weighed(found.weights)
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
        """The smallest margin of the rows that are not very long, whose margins ``_clear`` sees to."""
        usual = np.flatnonzero(self.scale <= LONG)
        return float(margins(scores_of(self.given[usual], at, self.constant), self.codes[usual])[0].min())

    def weighed(self, guess: Array) -> Array | None:
        """Weights (m, K), sum 1, of the shortest sum of the pairs that have some in ``guess``; None: none found.

        Pairs whose weight would be below 0 leave, the lower half of them at a time: few steps, however many pairs there
        are; all of them at once would at times leave a longer sum.
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
        """The pairs (n,) in their order, of rows of a class that are equal those of the first."""
        used, place = np.unique(row, return_inverse=True)
        pairs = np.column_stack([self.codes[used], self.given[used]])
        _, first, same = np.unique(pairs, axis=0, return_index=True, return_inverse=True)
        pairs = np.unique(np.column_stack([used[first[same.ravel()][place]], rival]), axis=0)
        return pairs[:, 0], pairs[:, 1]

    def _given(self, row: NDArray[np.intp], rival: NDArray[np.intp]) -> Array:
        """(K, n): 1 / scale for the class that a pair gives to, -1 / scale for the one that it takes from."""
        given, every = np.zeros((self.classes, len(row))), np.arange(len(row))
        given[self.codes[row], every] = 1.0 / self.scale[row]
        given[rival, every] = -1.0 / self.scale[row]
        return given

    def _shortest(self, row: NDArray[np.intp], rival: NDArray[np.intp]) -> Array | None:
        """Weights (n,) of scaled pairs whose sum is the shortest of all that balance; None: there are none."""
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
        """The same, rounded so that each class is given exactly what is taken from it, as near as float64 has it."""
        small = (weights > 0.0) & (weights < ROUGH)
        weights = weights / self._settled(self._countered(weights, small)).sum()  # what that adds is not little
        rounded = np.where(small, weights, np.round(weights / GRID) * GRID)
        return np.maximum(self._settled(self._countered(rounded, small)), 0.0)

    def _settled(self, weights: Array) -> Array:
        """With other weights on the heaviest pairs that connect the classes, until they balance to the grid."""
        found = weights.copy()
        row, rival = np.nonzero(found)
        tree = _heaviest_tree(found[row, rival], self.codes[row], rival, self.classes)
        for k, edge in tree:  # from the leaves on: each class settles with the one above it
            place = row[edge], rival[edge]
            excess = round(float(class_balance(found, self.codes)[k]) / GRID) * GRID
            found[place] += -excess if self.codes[place[0]] == k else excess
        return found

    def _countered(self, weights: Array, small: NDArray[np.bool]) -> Array:
        """With as small a weight on a pair of the same classes the other way round for each ``small`` one (m, K).

        Below the grid there is nothing else that could balance them; rows of usual length add nothing to the sum.
        """
        found = weights.copy()
        for row, rival in np.argwhere(small).tolist():
            own = self.codes[row]
            others = np.flatnonzero((self.codes == rival) & (self.scale <= LONG))
            if len(others):  # the lightest, to which most is added of what is so small
                found[others[int(weights[others, own].argmin())], own] += weights[row, rival]
        return found


def _noise(table: Array) -> float:
    """What of a table's largest singular value is rounding."""
    return float(np.finfo(np.float64).eps * max(*table.shape))


def _heaviest_tree(weights: Array, own: Codes, rival: NDArray[np.intp], classes: int) -> list[tuple[int, int]]:
    """(class, edge) from the leaves of a tree on: the heaviest edges that connect the classes, and no circle."""
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
