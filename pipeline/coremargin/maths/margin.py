"""The definitions of margins, bounds and certificates, with rounding that keeps them true.

Hard margin. A hypothesis is (w, b) with w (d,) and ||w|| = 1; the margin of a row x of class y in {-1, +1} is
y (w.x + b). rho* is the largest smallest margin.

- With intercept rho* = 1/2 dist(conv P, conv N). Dual weights a >= 0 that sum to 1 over each class give the upper
  bound rho* <= 1/2 || sum_i a_i y_i x_i ||. A direction w with p = min over P of w.x and n = min over N of -w.x has
  its best offset b = (n - p) / 2 and proves rho* >= (p + n) / 2.
- Without intercept rho* = dist(0, conv{y_i x_i}). Weights that sum to 1 over all rows give
  rho* <= || sum_i a_i y_i x_i ||; a direction proves rho* >= min(p, n).

(Har-Peled, Roth, Zimak 2006, section 2; Bennett, Bredensteiner 2000 for the hulls.)

Every claim is rounded outward: lower bounds down and upper bounds up by the standard bound on the rounding error of
a dot product, gamma_n |x|.|w| with gamma_n = n u / (1 - n u) (Higham 2002, section 3.1). A lower bound gives away
twice that, so that checking it in float64, in any order of summation, needs no tolerance.
"""

from __future__ import annotations

from fractions import Fraction
from typing import Any

import numpy as np
from numpy.typing import NDArray

from coremargin.maths.rows import (
    Rows,
    all_zero,
    as_float64,
    is_sparse,
    lengths,
    products,
    signed,
    take,
    terms,
    weighted_sum,
    weighted_sums,
)

Array = NDArray[np.float64]

#: Columns of a per-class pair: rows of the positive class first.
POSITIVE, NEGATIVE = 0, 1

#: Directions shorter than this have lengths whose squares underflow.
SHORTEST = 1e-100
#: Squares of components below this underflow.
VANISHED = 2e-154
#: Numbers of rows that are copied at a time for many small sets of rows.
_ENTRIES = 1 << 20
#: A relative gap of the bounds that counts as zero, for epsilon = 0.
EXACT = 1e-8


def gamma(n: int, dtype: np.dtype[np.floating] | type = np.float64) -> float:
    """Bound on the relative rounding error of a sum of ``n`` products in ``dtype``; inf when there is none."""
    u = float(np.finfo(dtype).eps) / 2
    return n * u / (1 - n * u) if n * u < 0.5 else np.inf


def projections(rows: Rows, directions: Array) -> Array:
    """Dot products (n, k) of rows (n, d) with directions (d, k) in float64.

    Every entry is one sum over contiguous memory (of sparse rows, in the order of their stored values), so it depends
    on its row and its direction only: not on the rows around it, the BLAS or the number of threads.
    """
    if is_sparse(rows):
        return np.asarray(products(rows, directions).T)
    exact = np.ascontiguousarray(rows, dtype=np.float64)
    return np.stack([np.einsum("ij,j->i", exact, np.ascontiguousarray(w)) for w in directions.T], axis=1)


def projection_error(rows: Rows, directions: Array) -> Array:
    """Bound (n, k) on the rounding error of ``projections``, with room for that of a rescaled direction.

    Products may underflow as well, each by less than the smallest normal number. Products with a zero are exact.
    """
    n = terms(rows)
    size = projections(abs(as_float64(rows)), np.abs(directions))
    return np.asarray(gamma(n + 8) * size + n * float(np.finfo(np.float64).tiny))


def safe_projections(rows: Rows, signs: NDArray[np.integer], directions: Array) -> Array:
    """Lower bounds (n, k) on y w.x that any later float64 evaluation confirms.

    Parameters
    ----------
    rows: (n, d); signs: (n,) in {-1, +1}; directions: (d, k), one hypothesis a column. Values that overflow are -inf,
    which proves nothing and stays the minimum.
    """
    with np.errstate(over="ignore", invalid="ignore"):
        bound = signs[:, None] * projections(rows, directions) - 2 * projection_error(rows, directions)
    return np.asarray(np.where(np.isnan(bound), -np.inf, bound))


def smallest_projections(rows: Rows, signs: NDArray[np.integer], directions: Array) -> Array:
    """Smallest ``safe_projections`` (2, k) of the positive and the negative class, inf where one has no row.

    Rows are ranked in their own precision; only those that may be smallest are evaluated in float64.
    """
    dtype = np.dtype(np.float64) if is_sparse(rows) else rows.dtype
    fast, found = products(rows, directions, dtype), np.full((2, directions.shape[1]), np.inf)
    longest = float(lengths(rows).max(initial=0.0))
    error = gamma(len(directions) + 8, dtype.type) * longest * np.linalg.norm(directions, axis=0)
    error += len(directions) * float(np.finfo(dtype).tiny)
    for place, sign in ((POSITIVE, 1), (NEGATIVE, -1)):
        mine = np.flatnonzero(signs == sign)
        values = sign * fast[:, mine]
        if not len(mine):
            continue
        with np.errstate(invalid="ignore"):  # NaN after an overflow is a candidate: hence "not above"
            near = mine[(~(values > (values.min(axis=1) + 3 * error)[:, None])).any(axis=0)]
        for part in np.array_split(near, 1 + len(near) // 4096):
            exact = safe_projections(take(rows, part), np.full(len(part), sign), directions)
            found[place] = np.minimum(found[place], exact.min(axis=0, initial=np.inf))
    return found


def best_offset(smallest: Array, intercept: bool) -> Array:
    """Best b (k,) for the smallest signed projections (2, k) of the positive and the negative class."""
    if not intercept:
        return np.zeros(smallest.shape[1])
    with np.errstate(invalid="ignore"):  # inf - inf: a class has no rows yet
        return np.asarray((smallest[NEGATIVE] - smallest[POSITIVE]) / 2)


def lower_bound(smallest: Array, directions: Array, intercept: bool) -> Array:
    """Margins (k,) proven by the smallest ``safe_projections`` (2, k) of each class, at the best offset, rounded down.

    ``directions`` (d, k) need not have unit length; a direction of (nearly) no length proves nothing (-inf).
    """
    b = best_offset(smallest, intercept)
    slack = 4 * float(np.finfo(np.float64).eps) * np.abs(smallest).max(axis=0)
    with np.errstate(invalid="ignore", divide="ignore"):
        value = np.minimum(smallest[POSITIVE] + b, smallest[NEGATIVE] - b) - slack
        length = np.linalg.norm(directions, axis=0)
        value = np.where(length > SHORTEST, value / length, -np.inf)
    # The length itself is rounded: give away its error on the side that keeps the claim true.
    value = value - np.abs(value) * gamma(directions.shape[0] + 8)
    return np.asarray(np.where(np.isnan(value), -np.inf, value))


def normalised_weights(weights: Array, signs: NDArray[np.integer], intercept: bool) -> Array:
    """Dual weights (m,) clipped at zero and scaled: each class sums to 1 with intercept, all to 1 without."""
    a = np.maximum(np.asarray(weights, dtype=np.float64), 0.0)
    if not intercept:
        return np.asarray(a / a.sum())
    scaled = a.copy()
    for sign in (1, -1):
        scaled[signs == sign] /= a[signs == sign].sum()
    return scaled


def dual_vector(rows: Rows, signs: NDArray[np.integer], weights: Array) -> Array:
    """sum_i a_i y_i x_i (d,) in float64."""
    return weighted_sum(rows, weights * signs)


def upper_bound(rows: Rows, signs: NDArray[np.integer], weights: Array, intercept: bool) -> float:
    """No hypothesis has a larger margin on any data with these rows (m, d); rounded up.

    ``weights`` (m,) are from ``normalised_weights``. The bound is true for any weights; good ones make it tight. With
    intercept, the margin is unbounded if a class is missing.
    """
    if intercept and not ((signs > 0).any() and (signs < 0).any()):
        return np.inf
    length = float(np.linalg.norm(dual_vector(rows, signs, weights)))
    mean_length = float(weights @ lengths(rows))
    return float(
        _rounded_up(length, mean_length, len(weights), rows.shape[1], some=not all_zero(rows), intercept=intercept)
    )


def upper_bounds(
    x: Array,
    signs: NDArray[np.integer],
    rows: NDArray[np.integer],
    weights: Array,
    owner: NDArray[np.integer],
    intercept: bool,
) -> tuple[Array, Array]:
    """``upper_bound`` of many small sets of rows at once: their weights (e,), normalised, and their bounds (c,).

    x (n, d), signs (n,); entry e of a set is row ``rows[e]`` with a weight above 0, and belongs to set ``owner[e]``:
    increasing, each of c sets with at least one row, with an intercept of each class.
    """
    sets = int(owner[-1]) + 1 if len(owner) else 0
    side = owner * 2 + (signs[rows] < 0) if intercept else owner
    shares = weights / np.bincount(side, weights)[side]
    signed, starts = shares * signs[rows], np.searchsorted(owner, np.arange(sets + 1))
    long, mean, some = np.zeros(sets), np.zeros(sets), np.zeros(sets, bool)
    step = max(1, _ENTRIES // max(1, x.shape[1] * int(np.diff(starts).max(initial=1))))
    for first in range(0, sets, step):  # in parts, because rows are copied
        stop = min(first + step, sets)
        mine, cut = slice(starts[first], starts[stop]), starts[first:stop] - starts[first]
        part = x[rows[mine]]
        long[first:stop] = np.linalg.norm(np.add.reduceat(signed[mine, None] * part, cut), axis=1)
        mean[first:stop] = np.add.reduceat(shares[mine] * np.linalg.norm(part, axis=1), cut)
        some[first:stop] = np.logical_or.reduceat(part.any(axis=1), cut)
    return shares, _rounded_up(long, mean, np.diff(starts), x.shape[1], some=some, intercept=intercept)


def _rounded_up(length: Any, mean_length: Any, rows: Any, features: int, *, some: Any, intercept: bool) -> Any:
    """The margin that a combination of this computed length allows at most, for one set of rows or for many."""
    # Weights sum to 1 up to rounding, too: both errors are of the order of gamma times the mean row length.
    terms_u = (rows + 4) * (float(np.finfo(np.float64).eps) / 2)
    length = length * (1 + gamma(features + 4)) + 2 * terms_u / (1 - terms_u) * mean_length
    length = length + np.where(some, float(np.sqrt(features)) * VANISHED, 0.0)
    return length / 2 if intercept else length


def resolution(radius: float, rows: int, features: int) -> float:
    """Margins below this cannot be distinguished from zero in float64, for rows no longer than ``radius``."""
    return 8 * gamma(rows + features + 8) * radius


def ratio(lower: float, upper: float) -> float:
    """lower / upper, the share of the best possible margin that is proven; 0 when nothing is."""
    if not np.isfinite(lower) or not np.isfinite(upper) or lower <= 0:
        return 0.0
    return min(1.0, lower / upper)


def is_certified(lower: float, upper: float, epsilon: float) -> bool:
    """True if two bounds above 0 prove epsilon: lower >= (1 - epsilon) upper, for a margin and for a value alike.

    In exact arithmetic, as in the verifier, so that rounding does not affect the result.
    """
    if not (np.isfinite(upper) and np.isfinite(lower) and lower > 0):
        return False
    return Fraction(float(lower)) >= (1 - Fraction(epsilon)) * Fraction(float(upper))


def meets(rows: Rows, signs: NDArray[np.integer], weights: Array, intercept: bool) -> bool:
    """Whether normalised weights (m,) of rows (m, d) combine to zero, so that nothing separates the rows.

    With an intercept the rows' common offset does not matter, and is subtracted from dense rows.
    """
    used = np.flatnonzero(weights)
    x, share = as_float64(take(rows, used)), weights[used]
    if intercept and not is_sparse(x):
        x = x - share @ x / 2
    length = float(true_lengths(dual_vector(x, signs[used], share)[None, :])[0])
    enough = is_nothing(length, float(share @ true_lengths(x)), rows.shape[1])
    return enough and cancels(x, (share * signs[used])[:, None], share)


def cancels(rows: Rows, mixes: Array, weights: Array) -> bool:
    """Whether sums of rows (m, d) with the columns of ``mixes`` (m, k) are zero in each feature, up to rounding.

    weights (m,) >= 0: rounding errors are relative to these times the values of a feature. A sum may be tiny compared
    with the rows' lengths because one feature has large values, while another one separates the rows.
    """
    x = scaled_columns(rows, unit_scales(rows))
    return bool((np.abs(weighted_sums(x, mixes)) <= nothing_share(rows.shape[1]) * weighted_sum(abs(x), weights)).all())


def unit_scales(rows: Rows) -> Array:
    """Powers of two (d,) that bring the largest value of each feature of rows (m, d) near to 1; 1 where all are 0."""
    largest = abs(rows).max(axis=0)
    largest = np.asarray(largest.toarray() if is_sparse(rows) else largest, np.float64).ravel()
    return np.where(largest > 0, np.ldexp(1.0, -np.clip(np.frexp(largest)[1], -1000, 1000)), 1.0)


def scaled_columns(rows: Rows, scales: Array) -> Rows:
    """Rows (m, d) in float64 with each feature times a number (d,)."""
    if not is_sparse(rows):
        return np.asarray(rows, np.float64) * scales
    exact = rows.astype(np.float64)
    exact.data *= scales[exact.indices]
    return exact


def is_nothing(upper: float, size: float, features: int) -> bool:
    """Whether an upper bound is zero for rows of this weighted length, up to rounding of their sum.

    Only the rows that carry the proof count, so that a long row elsewhere makes no margin zero.
    """
    return bool(np.isfinite(upper)) and upper <= nothing_share(features) * size


def nothing_share(features: int) -> float:
    """The rounding error of a sum that is zero, relative to the sizes of its terms."""
    return min(32 * gamma(2 * features + 18), 5e-13)


def true_lengths(rows: Rows) -> Array:
    """||x|| (n,) of rows (n, d) without underflow of squares, as claims of zero depend on them.

    If lengths only bound an error, ``rows.lengths`` is enough, and makes no copy.
    """
    largest = np.asarray(abs(rows).max(axis=1).toarray() if is_sparse(rows) else np.abs(rows).max(axis=1, initial=0.0))
    scale = np.ldexp(1.0, -np.clip(np.frexp(largest.ravel())[1], -1000, 1000))
    return np.asarray(lengths(signed(rows, scale)) / scale)
