"""A nearly optimal dual point of the squared hinge: the slopes at a hypothesis, corrected by one move for all rows.

At a hypothesis (w, b) the slope of a row with slack xi is 2 c xi. Where the slopes are not yet consistent, as sums over
rows that have crossed the margin are not, each row is corrected as for one move p = (dw, db) of all of them:

    a = 2 c (xi - r y (dw.x + db)),     r = min(1, xi / ramp)

None is negative if no |dw.x + db| is above ``ramp``. With z = (x, 1), A = sum c xi, B = sum c xi^2, q = sum c xi y z,
t = sum c r (xi - 1) y z and G = sum c r z z^T the dual is, since r^2 <= r, at least

    2 A - B + 2 p.t - p.G p - 1/2 ||v||^2,     v = 2 (q - G p) without its last entry, which has to be 0 for balance

for any p; with p = -(R + 2 G)^-1 (R (w, b) - 2 q), R being 1 for the weights and 0 for b, that entry is 0, and the
dual is as far below the value as g.(R + 2 G)^-1 g / 2, g being the gradient there.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np
import scipy.linalg

from coremargin.verify.sums import UNIT, gamma, length

_FEW = 16 * UNIT  # error of a handful of operations


@dataclass(frozen=True)
class Slopes:
    """Sums over all rows of both classes; d + 1 = p.

    losses, squares: A, B; least: the smaller sum of c xi of the two classes; q, t (p,), curve (p, p): G. low, high
    (d,): the extremes of the features; radius: the longest row. reach, spread: bounds on sum c xi ||x||, of some rows,
    and (d,) on sum c xi |x|, of the others. error, curve_error: how far sums may be off, and G, as shares of the sizes
    of their terms. moved: error of a mapped row.
    """

    losses: float
    squares: float
    least: float
    q: np.ndarray
    t: np.ndarray
    curve: np.ndarray
    low: np.ndarray
    high: np.ndarray
    radius: float
    reach: float
    spread: np.ndarray
    error: float
    curve_error: float
    moved: float

    def dual(self, at: np.ndarray, ramp: float, *, intercept: bool) -> float:
        """The dual value of the point that follows from ``at`` (d + 1,), rounded down; -inf if there is none."""
        p = self._move(at, intercept)
        if p is None or not self._most(p) <= ramp * (1 - _FEW):
            return -math.inf
        error = self.error + self.curve_error + gamma(len(p) + 8)
        size = self._size(p)
        more = size / ramp
        total = 2.0 * self.losses - self.squares + 2.0 * float(p @ self.t) - float(p @ self.curve @ p)
        total -= error * (2.0 * self.losses + self.squares + self.losses * (2.0 * (size + more) + size * more))
        v = 2.0 * (self.q - self.curve @ p)
        each = 2.0 * error * self.spread * (1.0 + more)
        longest = length(np.abs(v[:-1]) + each) * (1 + _FEW) + 2.0 * error * self.reach * (1.0 + more)
        longest += 2.0 * self.moved * self.losses * (1.0 + more) * (1.0 + error)  # duals sum to at most that
        if intercept:
            move = abs(float(v[-1])) + 2.0 * error * self.losses * (1.0 + more)
            if not move <= 2.0 * self.least * (1.0 - self._most(p) / ramp) * (1.0 - error):
                return -math.inf
            total, longest = total - move, longest + self.radius * (1 + gamma(len(p) + 4)) * move
        return total * (1 - _FEW) - 0.5 * longest * longest * (1 + _FEW)

    def _move(self, at: np.ndarray, intercept: bool) -> np.ndarray | None:
        """p (d + 1,), to float64 accuracy: the bound holds for any p."""
        used = len(self.q) if intercept else len(self.q) - 1
        matrix, metric = 2.0 * self.curve[:used, :used], np.append(np.ones(len(at) - 1), 0.0)[:used]
        right = 2.0 * self.q[:used] - metric * at[:used]
        diagonal = np.diag(matrix) + metric
        if not (np.isfinite(matrix).all() and np.isfinite(right).all() and (diagonal > 0).all()):
            return None
        scale = 1.0 / np.sqrt(diagonal)
        scaled = (matrix + np.diag(metric)) * scale * scale[:, None]
        try:
            factor = scipy.linalg.cho_factor(scaled, check_finite=False)
            found = scipy.linalg.cho_solve(factor, right * scale, check_finite=False) * scale
        except np.linalg.LinAlgError:
            return None
        p = np.zeros(len(self.q))
        p[:used] = found
        return p if np.isfinite(p).all() else None

    def _most(self, p: np.ndarray) -> float:
        """Upper bound on |dw.x + db| over all rows, by the longest row or by the box that contains all rows."""
        middle, half = 0.5 * (self.low + self.high), 0.5 * (self.high - self.low)
        rounded = gamma(len(p) + 8)
        way = np.abs(p[:-1])
        box = abs(float(p[:-1] @ middle + p[-1])) + float(way @ half) + rounded * float(way @ (np.abs(middle) + half))
        ball = length(p[:-1]) * self.radius + abs(float(p[-1]))
        return min(box, ball) * (1 + rounded) + rounded * abs(float(p[-1]))

    def _size(self, p: np.ndarray) -> float:
        """Upper bound on sum |dw_j x_j| + |db| over all rows."""
        widest = np.maximum(np.abs(self.low), np.abs(self.high))
        by_box, ball = float(np.abs(p[:-1]) @ widest), length(p[:-1]) * self.radius
        return (min(by_box, ball) + abs(float(p[-1]))) * (1 + gamma(len(p) + 8))
