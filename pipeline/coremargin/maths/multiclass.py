"""The definitions for several classes at once: margins, bounds, primal, dual, C and intercept.

(Crammer, Singer 2001; Kesler's construction in Har-Peled, Roth, Zimak 2006, section 6.)

A hypothesis is V (K, p), with a row v_k for each class; the score of class k is v_k.x, and the predicted class is that
of the largest score. A row x of class y has, against a rival class r, the margin (v_y - v_r).x; its margin is the least
of these.

Kesler: with z_(x, r) in R^(K p), x in the place of y and -x in that of r, the margin is <V, z_(x, r)>: the problem of
several classes is that of one class of vectors z and a hyperplane through the origin.

Hard margin. rho* = max over ||V||_F = 1 of the least margin = dist(0, conv z): weights a >= 0 over (row, rival) that
sum to 1 give rho* <= || sum a z ||_F.

Soft margin. f(V) = 1/2 ||V||_F^2 + sum_i c_i max_r t_ir,  t_ir = [r != y_i] - (v_(y_i) - v_r).x_i,  c_i = C times the
weights of the row. This is ``LinearSVC(multi_class="crammer_singer", C=C)`` of scikit-learn and LIBLINEAR's ``-s 4``.
Dual: a_i >= 0 over rivals with sum_r a_ir <= c_i,  D(a) = sum a - 1/2 || sum a z ||_F^2 <= f*.

Intercept. The construction has none. With one, every row has a last entry, the constant s: the intercept of class k is
b_k = s V_(k, p) and its square is penalised as (b_k / s)^2, as in LIBLINEAR (``intercept_scaling``). ``constant`` is s:
the length of the longest row, rounded up to a power of two, so that the intercept has the scale of the rows and its
product is exact. Without an intercept s = 0.

For two classes V = (-w, w) / sqrt 2 with a hyperplane's w: the hard margin is sqrt 2 times that of the hyperplane, the
value of the soft margin half that of the hyperplane's hinge at 2 C.
"""

from __future__ import annotations

import math

import numpy as np
from numpy.typing import NDArray

from coremargin.maths.breakdown import exact_sum
from coremargin.maths.exact import exact_decisions
from coremargin.maths.margin import SHORTEST, VANISHED, Array, cancels, gamma, is_nothing, true_lengths
from coremargin.maths.rows import Rows, is_sparse, lengths, many_products, parts, take, weighted_sum, weighted_sums

Codes = NDArray[np.integer]


def constant(longest: float, *, intercept: bool) -> float:
    """s, the last entry of every row: a power of two not below the length of the longest row; 0 without intercept."""
    if not intercept:
        return 0.0
    return 2.0 ** math.ceil(math.log2(longest)) if longest > 0 else 1.0


def scores_of(rows: Rows, at: Array, constant: float) -> Array:
    """Scores (n, K) in float64 of rows (n, d) at a hypothesis (K, d + 1), every row's last entry being ``constant``."""
    found = many_products(rows, np.ascontiguousarray(at[:, :-1].T))
    return np.ascontiguousarray(found.T) + constant * at[:, -1]


def exact_scores(rows: Rows, at: Array, constant: float) -> Array:
    """The same, each rounded once: the same bits in any order of summation."""
    return np.stack([exact_decisions(rows, v[:-1], constant * float(v[-1])) for v in at], axis=1)


def violations(scores: Array, codes: Codes) -> Array:
    """t (n, K) from scores (n, K) and classes (n,): how far a row is below margin 1 for each class; 0 at its own."""
    own = np.arange(len(codes)), codes
    t = (1.0 + scores) - scores[own][:, None]
    t[own] = 0.0
    return np.asarray(t)


def margins(scores: Array, codes: Codes) -> tuple[Array, NDArray[np.intp]]:
    """Margins (n,) and their rivals (n,); of equal rivals the first."""
    own = np.arange(len(codes)), codes
    rivals = scores.copy()
    rivals[own] = -np.inf
    rival = rivals.argmax(axis=1)
    return scores[own] - rivals[own[0], rival], rival


def spread(weights: Array, codes: Codes) -> Array:
    """M (m, K) such that sum a z = M^T X, for weights a (m, K) that are 0 at each row's own class."""
    m = -weights
    m[np.arange(len(codes)), codes] += weights.sum(axis=1)
    return m


def kesler_sum(rows: Rows, codes: Codes, weights: Array, constant: float) -> Array:
    """sum a z (K, d + 1) for rows (m, d), classes (m,), weights (m, K)."""
    return class_sums(rows, spread(weights, codes), constant)


def class_sums(rows: Rows, m: Array, constant: float) -> Array:
    """M^T X (K, d + 1) for M (m, K) and rows (m, d), every row's last entry being ``constant``."""
    return np.column_stack([weighted_sums(rows, m), constant * m.sum(axis=0)])


def score_error(features: int, longest: float, hypothesis: Array, constant: float) -> float:
    """Bound on the error of a margin evaluated in float64, plus that of an evaluation in another order.

    hypothesis (K, d + 1): the last column is for the ``constant``; rows (d,) are no longer than ``longest``.
    """
    return float(score_errors(features, np.array([longest]), hypothesis, constant)[0])


def score_errors(features: int, lengths: Array, hypothesis: Array, constant: float) -> Array:
    """The same (n,) for rows of these lengths (n,)."""
    size = lengths * float(np.linalg.norm(hypothesis[:, :-1], axis=1).max())
    size += constant * float(np.abs(hypothesis[:, -1]).max())
    return 2.0 * gamma(features + 8) * (size + 1.0) + 2.0 * features * float(np.finfo(np.float64).tiny)


def lower_bound(smallest: float, hypothesis: Array) -> float:
    """The margin that a smallest margin (rounded down) of V (K, p) proves once V has length 1, rounded down."""
    length = float(np.linalg.norm(hypothesis))
    if not length > SHORTEST or not np.isfinite(smallest):
        return -np.inf
    value = smallest / length
    return value - abs(value) * gamma(hypothesis.size + 8)


def upper_bound(rows: Rows, codes: Codes, weights: Array, constant: float) -> float:
    """No hypothesis has a larger margin on data with these rows (m, d); rounded up.

    weights (m, K) >= 0, 0 at each row's own class, sum 1 up to rounding.
    """
    m, classes = weights.shape
    total = kesler_sum(rows, codes, weights, constant)
    mean_length = float(weights.sum(axis=1) @ (lengths(rows) + constant))
    length = float(np.linalg.norm(total)) * (1 + gamma(total.size + 4)) + 4 * gamma(m + classes + 8) * mean_length
    return length + float(np.sqrt(total.size)) * VANISHED


def class_balance(weights: Array, codes: Codes) -> Array:
    """r (K,): sums of weights (m, K) of the rows of each class, minus those of pairs with it as rival, rounded once."""
    row, rival = np.nonzero(weights)
    own, found = codes[row], weights[row, rival]
    terms = [[*found[own == k].tolist(), *(-found[rival == k]).tolist()] for k in range(weights.shape[1])]
    return np.array([exact_sum(part) for part in terms])


def lengths_about(rows: Rows, point: Array) -> Array:
    """||x - point|| (m,) of rows (m, d) without underflow; sparse rows are made dense one at a time."""
    if not is_sparse(rows):
        return true_lengths(np.asarray(rows, np.float64) - point)
    found = np.empty(rows.shape[0])
    for k, (row, columns) in enumerate(parts(rows)):
        away = -point
        away[columns] += row
        found[k] = true_lengths(away[None, :])[0]
    return found


def meets(rows: Rows, codes: Codes, weights: Array, *, intercept: bool) -> bool:
    """Whether weights (m, K) that sum to 1 combine to zero, so that nothing separates the rows (m, d).

    Rows and constant are checked separately: the sum of the rows that carry weight, about their mean, has to be zero in
    each feature, and the weights of each class have to balance. The length of the constant, which depends on other
    rows, does not matter. An intercept may be as large as the longest row that carries weight: an imbalance counts
    times that.
    """
    used = np.flatnonzero(weights.any(axis=1))
    rows, codes, weights = take(rows, used), codes[used], weights[used]
    shares, features = weights.sum(axis=1), rows.shape[1]
    mean, given = np.zeros(features), np.zeros(weights.shape[1])
    if intercept:
        mean, given = weighted_sum(rows, shares), class_balance(weights, codes)
    mixes = spread(weights, codes)
    if is_sparse(rows):
        left, mixes = weighted_sums(rows, mixes) - given[:, None] * mean, mixes - shares[:, None] * given
    else:
        left = weighted_sums(np.asarray(rows, np.float64) - mean, mixes)
    about = true_lengths(rows) if not intercept else lengths_about(rows, mean)
    size, excess = math.sqrt(2) * float(shares @ about), 0.5 * float(np.abs(given).sum())
    return (
        is_nothing(float(true_lengths(left.reshape(1, -1))[0]), size, features)
        and is_nothing(excess, 1.0, features)
        and is_nothing(excess * float(about.max()), size, features)
        and cancels(rows if is_sparse(rows) else np.asarray(rows, np.float64) - mean, mixes, shares)
    )


def simplex(values: Array) -> Array:
    """The nearest points (n, K) to the rows of ``values`` with entries >= 0 that sum to 1."""
    return np.ascontiguousarray(simplex_columns(np.array(values.T, order="C")).T)


def simplex_columns(values: Array) -> Array:
    """The same for the columns of ``values`` (K, n), which are overwritten: sums over few classes are fast this way.

    Entries by 1 or more below the largest are zero: most columns are at a corner, the others are sorted.
    """
    values -= values.max(axis=0)
    found: Array = (values == 0.0).astype(np.float64)
    between = np.flatnonzero(np.count_nonzero(values > -1.0, axis=0) > 1)
    shifted = values[:, between]
    falling = -np.sort(-shifted, axis=0)
    excess = np.cumsum(falling, axis=0) - 1.0
    count = np.arange(1.0, len(falling) + 1)[:, None]
    inside = np.count_nonzero(falling * count > excess, axis=0)
    level = excess[inside - 1, np.arange(len(between))] / inside
    found[:, between] = np.maximum(shifted - level, 0.0)
    return found
