"""Minimise the soft margin of several classes in memory: proximal point method on the dual, with an exact gap.

The model is that of the near-margin method: rows far from a change of sides are a constant and a linear part, the
others are rows,

    F(V) = fixed_loss - <linear, V> + 1/2 ||V||^2 + sum_i c_i max_r t_ir(V).

With U = V - linear it is

    fixed_loss - 1/2 ||linear||^2 + 1/2 ||U||^2 + sum_i c_i max_r (t_ir(linear) - (u_(y_i) - u_r).x_i).

Rows keep their precision and kind; products with them are in float64, a tile at a time.

max_r t_r is the largest a.t over the simplex. With an added - mu/2 ||a - a0||^2, a0 being the shares so far, it becomes
smooth: its a is the point of the simplex nearest to a0 + t / mu, and its curvature involves only the classes with a_r >
0, so that Newton's equations contain only rows that are undecided between classes. The minimum is one step of the
proximal point method on the dual (Rockafellar 1976; with such Newton steps Li, Sun, Toh 2018): mu need not vanish, but
the smaller it is the fewer steps there are. c_i a_i are feasible duals of F at every step, so the gap is known exactly.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property
from typing import TYPE_CHECKING

import numpy as np

from coremargin.maths.multiclass import Codes, class_sums, scores_of, simplex, simplex_columns
from coremargin.maths.rows import lengths
from coremargin.maths.simplex_step import newton_step
from coremargin.maths.stopping import may_stop

if TYPE_CHECKING:
    from coremargin.maths.margin import Array
    from coremargin.maths.rows import Rows

#: Factors of mu after a proximal step, by its number of Newton steps: (at most this number, factor).
CHANGES = ((3, 0.1), (10, 0.3), (39, 1.0), (40, 5.0))
PROXIMAL_STEPS, NEWTON_STEPS = 200, 40
#: A proximal step ends when the squared gradient is at most INNER of the squared move of the shares, or is rounding #:
#: error: LAST_PLACES units in the last place of every share.
INNER, LAST_PLACES = 0.1, 4.0
#: A line search ends when the slope is at most SLOPE of that at its start; its limits.
SLOPE, LONGEST, TRIES = 0.1, 1e6, 30


@dataclass(frozen=True)
class ClassesModel:
    """F as a function of U (K, d + 1): fixed_loss + 1/2 ||U||^2 + sum_i c_i max_r (t_ir(0) - (u_(y_i) - u_r).x_i).

    rows (m, d) with a last entry ``constant``, codes (m,), row_c (m,); violations0 (m, K), 0 at each row's own class: t
    of the rows at U = 0.
    """

    fixed_loss: float
    violations0: Array
    rows: Rows
    codes: Codes
    row_c: Array
    constant: float = 0.0

    @property
    def origin(self) -> Array:
        """U = 0 (K, d + 1)."""
        return np.zeros((self.violations0.shape[1], self.rows.shape[1] + 1))

    @cached_property
    def squares(self) -> Array:
        """Squared lengths (m,) of the rows."""
        return lengths(self.rows) ** 2 + self.constant**2

    @property
    def noise(self) -> float:
        """The size of the squared gradient that rounding of shares causes."""
        return float((LAST_PLACES * np.finfo(np.float64).eps) ** 2 * (self.row_c**2 @ self.squares))

    def scores(self, at: Array) -> Array:
        """Scores (m, K) of all rows at U = ``at``."""
        return scores_of(self.rows, at, self.constant)

    def sums(self, signed: Array) -> Array:
        """N^T X (K, d + 1) for N (m, K)."""
        return class_sums(self.rows, signed, self.constant)

    def violations(self, scores: Array) -> Array:
        """t (m, K) from scores (m, K)."""
        return self.violations0 + scores - scores[np.arange(len(self.codes)), self.codes][:, None]

    def value(self, at: Array, scores: Array) -> float:
        """F at U = ``at`` with scores (m, K)."""
        return self.fixed_loss + 0.5 * float((at * at).sum()) + float(self.row_c @ self.violations(scores).max(axis=1))

    def dual(self, shares: Array) -> tuple[float, Array]:
        """D and its U (K, d + 1) for shares a / c (m, K) on the simplex; a share at a row's own class has no effect."""
        at = -self.sums(self.signed(shares))
        return self.fixed_loss + float(self.row_c @ (shares * self.violations0).sum(axis=1)) - 0.5 * float(
            (at * at).sum()
        ), at

    def signed(self, shares: Array) -> Array:
        """N (m, K) such that the gradient of the rows' part is N^T X: c_i (a_i - e_(y_i))."""
        signed = shares.copy()
        signed[np.arange(len(self.codes)), self.codes] -= 1.0
        return signed * self.row_c[:, None]


@dataclass(frozen=True)
class Minimum:
    """at (K, d + 1): the best U; value: F there; duals (m, K): a, 0 at own classes; dual: D of them.

    curvature: mean c / mu of the last proximal step, for a warm start.
    """

    at: Array
    value: float
    duals: Array
    dual: float
    curvature: float


def minimise_classes(
    model: ClassesModel, tolerance: float, start: Minimum | None = None, *, scale: float = 0.0
) -> Minimum:
    """Minimise F until the gap between F and D is at most ``tolerance`` of F, or float64 allows no progress.

    start: the result for the same rows with another C or a larger tolerance, as a warm start. scale: the tolerance is
    relative to this if it is larger than F.
    """
    best, size = _Best(model, tolerance, scale), float(model.row_c.mean()) if len(model.row_c) else 1.0
    if start is None:
        at, shares = model.origin, np.eye(model.violations0.shape[1])[model.codes]
        mu = size * (float(model.squares.mean()) or 1.0) if len(model.row_c) else 1.0  # rows of zeros
    else:
        at, mu = start.at, size / start.curvature
        shares = start.duals / model.row_c[:, None]
        shares[np.arange(len(shares)), model.codes] = 1.0 - shares.sum(axis=1)
    for _ in range(PROXIMAL_STEPS):
        before = best.gap
        at, shares, steps, exact = _proximal_minimum(model, at, shares, mu, best)
        if best.enough or (exact and not best.gap < before):
            break
        mu *= next(change for most, change in CHANGES if steps <= most)
    return best.minimum(size / mu)


class _Best:
    """The best hypothesis and the best duals so far."""

    def __init__(self, model: ClassesModel, tolerance: float, scale: float) -> None:
        self.model, self.tolerance, self.scale = model, tolerance, scale
        self.value, self.dual = np.inf, -np.inf
        self.at, self.shares = model.origin, np.zeros_like(model.violations0)

    @property
    def gap(self) -> float:
        return self.value - self.dual

    @property
    def enough(self) -> bool:
        return self.gap <= self.tolerance * max(abs(self.value), self.scale)

    def see(self, at: Array, scores: Array, shares: Array) -> None:
        """Update with a hypothesis, its scores, and its shares."""
        self._try(at, scores)
        dual, suggested = self.model.dual(shares)
        if dual > self.dual:
            self.dual, self.shares = dual, shares
            self._try(suggested, self.model.scores(suggested))

    def _try(self, at: Array, scores: Array) -> None:
        value = self.model.value(at, scores)
        if value < self.value:
            self.value, self.at = value, at

    def minimum(self, curvature: float) -> Minimum:
        duals = self.shares * self.model.row_c[:, None]
        duals[np.arange(len(duals)), self.model.codes] = 0.0
        return Minimum(self.at, self.value, duals, self.dual, curvature)


def _proximal_minimum(
    model: ClassesModel, at: Array, centre: Array, mu: float, best: _Best
) -> tuple[Array, Array, int, bool]:
    """Newton's method on F smoothed around ``centre``, until the gradient is small compared with the shares' change.

    Returns the minimiser, its shares, the number of steps, and whether float64 allows no further progress.
    """
    scores = model.scores(at)
    shares, steps, exact = centre, 0, False
    while steps < NEWTON_STEPS:
        may_stop()
        shares = simplex(centre + model.violations(scores) / mu)
        best.see(at, scores, shares)
        if best.enough:
            break
        gradient = at + model.sums(model.signed(shares))
        move, square = shares - centre, float((gradient * gradient).sum())
        exact = square <= model.noise
        if exact or square <= INNER * mu * float(model.row_c @ (move * move).sum(axis=1)):
            break
        step = newton_step(model.rows, model.constant, model.row_c / mu, shares, gradient)
        moved = model.scores(step)
        t = _length(model, centre, at, scores, step, moved, mu)
        if t == 0.0:
            exact = True
            break
        at, scores, steps = at + t * step, scores + t * moved, steps + 1
    return at, shares, steps, exact


def _length(
    model: ClassesModel, centre: Array, at: Array, scores: Array, step: Array, moved: Array, mu: float
) -> float:
    """The step length at which the increasing slope of the smoothed F nearly vanishes; 0 if F does not decrease.

    A tenth of the slope at the start is enough. A root finder such as scipy.optimize.brentq would continue to the root,
    and every value of the slope evaluates all rows and classes.
    """
    constant, linear = float((at * step).sum()), float((step * step).sum())
    begin = np.ascontiguousarray((centre + model.violations(scores) / mu).T)
    along = np.ascontiguousarray((moved - moved[np.arange(len(moved)), model.codes][:, None]).T)
    rising, paid = along / mu, along * model.row_c

    def slope(t: float) -> float:
        return constant + t * linear + float(np.vdot(simplex_columns(begin + t * rising), paid))

    first = slope(0.0)
    if not first < 0:
        return 0.0
    low, high, at_low, at_high = 0.0, 1.0, first, slope(1.0)
    while at_high < SLOPE * first and high < LONGEST:
        low, high, at_low = high, 2.0 * high, at_high
        at_high = slope(high)
    t, found = high, at_high
    for k in range(TRIES):
        may_stop()
        if abs(found) <= -SLOPE * first:
            break
        t = low - at_low * (high - low) / (at_high - at_low) if k % 2 == 0 else 0.5 * (low + high)
        found = slope(t)
        low, at_low, high, at_high = (t, found, high, at_high) if found < 0 else (low, at_low, t, found)
    return t
