"""Minimiser of the soft margin of several classes in memory: proximal points of the dual, by Newton, with an exact gap.

The model is that of the band method: rows far from a change of sides are a constant and a linear part, the others are
kept one by one,

    F(V) = price - <push, V> + 1/2 ||V||^2 + sum_i c_i max_r t_ir(V).

max_r t_r is the largest a.t over the simplex. With - mu/2 ||a - a0||^2 in it, a0 the shares found so far, it becomes
smooth: its a is the point of the simplex nearest to a0 + t / mu, and its curvature lives on the classes with a_r > 0,
so that Newton's equations are about rows that are undecided between classes only. The minimum is one step of the
proximal point method on the dual (Rockafellar 1976; with such Newton steps Li, Sun, Toh 2018): mu need not vanish, but
the smaller it is the fewer steps there are. c_i a_i are feasible duals of F at every step, so the gap is known exactly.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np
import scipy.linalg as sla
from numpy.typing import NDArray

from coremargin.maths.multiclass import Codes, lacks, simplex

if TYPE_CHECKING:
    from coremargin.maths.margin import Array

#: Up to so many undecided (row, class) pairs Newton's equations are solved by Cholesky factors, beyond by conjugate
#: gradients; those are for the first, smooth steps.
DIRECT, CG_STEPS, CG_SHARE = 2500, 100, 1e-4
#: mu falls by this factor after a proximal step that took few Newton steps.
FALL, EASY = 0.3, 10
PROXIMAL_STEPS, NEWTON_STEPS = 100, 100
#: A proximal step ends when the squared gradient is this share of what the shares moved.
INNER = 0.1
#: A Newton step is long enough when the slope at its end is this share of that at its start.
SLOPE, LONGEST, TRIES = 0.1, 1e6, 30


@dataclass(frozen=True)
class ClassesModel:
    """price, push (K, p): the rows that are summed up; rows (m, p), codes (m,), prices (m,): those one by one."""

    price: float
    push: Array
    rows: Array
    codes: Codes
    prices: Array

    def value(self, at: Array, scores: Array) -> float:
        """F(V) with scores (m, K) = rows V^T."""
        losses = lacks(scores, self.codes).max(axis=1)
        return self.price - float((self.push * at).sum()) + 0.5 * float((at * at).sum()) + float(self.prices @ losses)

    def dual(self, shares: Array) -> tuple[float, Array]:
        """D and its hypothesis (K, p) for shares a / c (m, K) on the simplex; that of a row's own class is idle."""
        at = self.push - self.signed(shares).T @ self.rows
        idle = shares[np.arange(len(self.codes)), self.codes]
        return self.price + float(self.prices @ (1.0 - idle)) - 0.5 * float((at * at).sum()), at

    def signed(self, shares: Array) -> Array:
        """N (m, K) such that the gradient of the rows' part is N^T X: c_i (a_i - e_(y_i))."""
        signed = shares.copy()
        signed[np.arange(len(self.codes)), self.codes] -= 1.0
        return signed * self.prices[:, None]


@dataclass(frozen=True)
class Minimum:
    """at (K, p): the best hypothesis; value: F there; duals (m, K): a, nothing at own classes; dual: D of them."""

    at: Array
    value: float
    duals: Array
    dual: float


def minimise_classes(model: ClassesModel, start: Array, tolerance: float, duals: Array | None = None) -> Minimum:
    """Minimise F until the gap between F and D is at most ``tolerance`` of F, or float64 ends it.

    start (K, p) and duals (m, K): where to begin; without duals, as if no row lost anything.
    """
    best = _Best(model)
    at, shares = start, np.eye(start.shape[0])[model.codes]
    if duals is not None:
        shares = duals / model.prices[:, None]
        shares[np.arange(len(duals)), model.codes] = 1.0 - shares.sum(axis=1)
    lengths = (model.rows * model.rows).sum(axis=1)
    mu = float(model.prices @ lengths) / len(lengths) if len(lengths) else 1.0
    for _ in range(PROXIMAL_STEPS):
        at, shares, steps = _proximal_minimum(model, at, shares, mu, best, tolerance)
        if best.gap <= tolerance * abs(best.value):
            break
        mu *= FALL if steps <= EASY else 1.0
    return best.minimum()


class _Best:
    """The best hypothesis and the best duals so far."""

    def __init__(self, model: ClassesModel) -> None:
        self.model = model
        self.value, self.dual = np.inf, -np.inf
        self.at, self.shares = np.zeros_like(model.push), np.zeros((0, 0))

    @property
    def gap(self) -> float:
        return self.value - self.dual

    def see(self, at: Array, scores: Array, shares: Array) -> None:
        """Take a hypothesis with its scores, and the shares that it suggests."""
        self._try(at, scores)
        dual, suggested = self.model.dual(shares)
        if dual > self.dual:
            self.dual, self.shares = dual, shares
            self._try(suggested, self.model.rows @ suggested.T)

    def _try(self, at: Array, scores: Array) -> None:
        value = self.model.value(at, scores)
        if value < self.value:
            self.value, self.at = value, at

    def minimum(self) -> Minimum:
        duals = self.shares * self.model.prices[:, None]
        duals[np.arange(len(duals)), self.model.codes] = 0.0
        return Minimum(self.at, self.value, duals, self.dual)


def _proximal_minimum(
    model: ClassesModel, at: Array, centre: Array, mu: float, best: _Best, tolerance: float
) -> tuple[Array, Array, int]:
    """Newton on the F that is smooth around ``centre``, until its gradient is small beside what the shares moved."""
    scores = model.rows @ at.T
    shares, steps = centre, 0
    while steps < NEWTON_STEPS:
        shares = simplex(centre + lacks(scores, model.codes) / mu)
        best.see(at, scores, shares)
        if best.gap <= tolerance * abs(best.value):
            break
        gradient = at - model.push + model.signed(shares).T @ model.rows
        move = shares - centre
        if float((gradient * gradient).sum()) <= INNER * mu * float(model.prices @ (move * move).sum(axis=1)):
            break
        step = _newton_step(model, shares, gradient, mu)
        moved = model.rows @ step.T
        t = _length(model, centre, at, scores, step, moved, mu)
        if t == 0.0:
            break
        at, scores, steps = at + t * step, scores + t * moved, steps + 1
    return at, shares, steps


def _newton_step(model: ClassesModel, shares: Array, gradient: Array, mu: float) -> Array:
    """-H^-1 gradient with H = I + sum_i c_i / mu (P_i x x_i x_i^T), P_i centring the classes with a share."""
    undecided = shares.max(axis=1) < 1.0
    inside = shares[undecided] > 0
    rows, weights = model.rows[undecided], model.prices[undecided] / mu
    if int(inside.sum()) - len(inside) > DIRECT:
        return _conjugate_gradients(rows, weights, inside, gradient)
    # A (q, K p): an orthonormal basis of the centred vectors, row by row (Helmert), times the rows; H = I + A^T A.
    rank = np.cumsum(inside, axis=1) - 1
    row, cls = np.nonzero(inside & (rank > 0))
    order = rank[row, cls].astype(np.float64)
    basis = (inside[row] & (np.arange(inside.shape[1]) < cls[:, None])).astype(np.float64)
    basis[np.arange(len(row)), cls] = -order
    basis *= np.sqrt(weights[row] / (order * (order + 1.0)))[:, None]
    inner = (basis @ basis.T) * (rows @ rows.T)[np.ix_(row, row)]
    inner[np.diag_indices_from(inner)] += 1.0
    right = (basis * (rows @ gradient.T)[row]).sum(axis=1)
    factor = sla.cho_factor(inner, overwrite_a=True, check_finite=False)
    y = sla.cho_solve(factor, right, check_finite=False)
    along = np.zeros(inside.shape)
    np.add.at(along, row, basis * y[:, None])
    return np.asarray(along.T @ rows - gradient)


def _conjugate_gradients(rows: Array, weights: Array, inside: NDArray[np.bool_], gradient: Array) -> Array:
    count, step = inside.sum(axis=1, keepdims=True), np.zeros_like(gradient)

    def curved(v: Array) -> Array:
        along = np.where(inside, rows @ v.T, 0.0)
        along = np.where(inside, along - along.sum(axis=1, keepdims=True) / count, 0.0) * weights[:, None]
        return np.asarray(v + along.T @ rows)

    rest = -gradient
    direction, square = rest.copy(), float((rest * rest).sum())
    goal = CG_SHARE * square
    for _ in range(CG_STEPS):
        if square <= goal:
            break
        bent = curved(direction)
        t = square / float((direction * bent).sum())
        step = step + t * direction
        rest = rest - t * bent
        before, square = square, float((rest * rest).sum())
        direction = rest + (square / before) * direction
    return step


def _length(
    model: ClassesModel, centre: Array, at: Array, scores: Array, step: Array, moved: Array, mu: float
) -> float:
    """How far to go: where the slope of the smoothed F, which rises, has (nearly) vanished; 0 when it does not fall."""
    constant, linear = float(((at - model.push) * step).sum()), float((step * step).sum())

    def slope(t: float) -> float:
        shares = simplex(centre + lacks(scores + t * moved, model.codes) / mu)
        return constant + t * linear + float((model.signed(shares) * moved).sum())

    first = slope(0.0)
    if not first < 0:
        return 0.0
    low, high, at_low, at_high = 0.0, 1.0, first, slope(1.0)
    while at_high < SLOPE * first and high < LONGEST:
        low, high, at_low = high, 2.0 * high, at_high
        at_high = slope(high)
    t, found = high, at_high
    for k in range(TRIES):
        if abs(found) <= -SLOPE * first:
            break
        t = low - at_low * (high - low) / (at_high - at_low) if k % 2 == 0 else 0.5 * (low + high)
        found = slope(t)
        low, at_low, high, at_high = (t, found, high, at_high) if found < 0 else (low, at_low, t, found)
    return t
