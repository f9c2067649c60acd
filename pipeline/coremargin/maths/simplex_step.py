"""Solve Newton's equations of the smoothed soft margin of several classes, by the cheapest of several methods.

H = I + sum_i w_i (P_i x x_i x_i^T), P_i = diag(inside_i) - inside_i inside_i^T / count_i centring the classes with a
share in row i: it is the identity plus a rank-one term for each pair of an undecided row and a class beyond its first,
H = I + A^T A. A Cholesky factorisation solves it unless one column is so much larger than the others that rounding
loses the identity; then a QR factorisation of A is used, which does not square the condition number.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np
import scipy.linalg as sla
from numpy.typing import NDArray

from coremargin.maths.conjugate import conjugate_gradients
from coremargin.maths.multiclass import class_sums, scores_of
from coremargin.maths.rows import as_float64, dense, gram, lengths, row_sizes, take
from coremargin.maths.stopping import may_stop

if TYPE_CHECKING:
    from coremargin.maths.margin import Array
    from coremargin.maths.rows import Rows

#: Up to NARROW numbers of a hypothesis, H itself is built and factored, in blocks of BLOCK rows.
NARROW, BLOCK = 1000, 4096
#: Up to DIRECT undecided pairs, their Gram matrix is factored; otherwise conjugate gradients run, to CG_SHARE.
DIRECT, CG_STEPS, CG_SHARE = 2500, 100, 1e-2
#: Up to QR_SIZE numbers of a hypothesis, A is reduced to a triangle, QR_NUMBERS numbers at a time.
QR_SIZE, QR_NUMBERS = 1000, 1 << 20
#: With a diagonal entry of A^T A above this, the identity is lost in rounding.
STEEP = 1e12
#: Undecided rows are copied if they take at most COPIED_BYTES, or are fewer than one in COPIED_SHARE of all rows.
COPIED_BYTES, COPIED_SHARE = 32 << 20, 4


def newton_step(rows: Rows, constant: float, weights: Array, shares: Array, gradient: Array) -> Array:
    """-H^-1 gradient (K, d + 1) for rows (m, d) with a last entry ``constant``, w (m,) and shares (m, K)."""
    undecided = np.flatnonzero(shares.max(axis=1) < 1.0)
    pairs = int((shares[undecided] > 0).sum()) - len(undecided)
    narrow = gradient.size <= min(NARROW, pairs)
    # If a large share of many rows is undecided, none are copied: the others get a weight of 0.
    few = COPIED_SHARE * len(undecided) < len(shares) or int(row_sizes(rows)[undecided].sum()) <= COPIED_BYTES
    if narrow or pairs <= DIRECT or few:
        rows, weights, shares = as_float64(take(rows, undecided)), weights[undecided], shares[undecided]
    inside = shares > 0
    if narrow:
        return _by_hessian(rows, constant, weights, inside, gradient)
    if pairs <= DIRECT:
        return _by_pairs(rows, constant, weights, inside, gradient)
    return _by_conjugate_gradients(rows, constant, weights, inside, gradient)


def _by_hessian(rows: Rows, constant: float, weights: Array, inside: NDArray[np.bool_], gradient: Array) -> Array:
    classes, p = gradient.shape
    h = np.zeros((classes, p, classes, p))
    for first in range(0, rows.shape[0], BLOCK):
        part = slice(first, first + BLOCK)
        x = np.column_stack([dense(rows[part]), np.full(len(weights[part]), constant)])
        inside_part, w = inside[part], weights[part]
        each = w / inside_part.sum(axis=1)
        for k in range(classes):
            may_stop()
            for r in range(k + 1):
                both = np.flatnonzero(inside_part[:, k] & inside_part[:, r])
                if len(both):
                    w_kr = (w if k == r else 0.0) - each
                    h[k, :, r] += (x[both] * w_kr[both, None]).T @ x[both]
    square = h.reshape(classes * p, classes * p)  # only the lower half is filled
    if not square.diagonal().max() < STEEP:
        return _by_qr(rows, constant, weights, inside, gradient)
    square[np.diag_indices_from(square)] += 1.0
    try:
        factor = sla.cho_factor(square, lower=True, overwrite_a=True, check_finite=False)
    except sla.LinAlgError:
        return _by_qr(rows, constant, weights, inside, gradient)
    return np.asarray(-sla.cho_solve(factor, gradient.ravel(), check_finite=False).reshape(classes, p))


def _pairs(weights: Array, inside: NDArray[np.bool_]) -> tuple[NDArray[np.intp], Array]:
    """The rows (q,) and class vectors (q, K) whose products are the rows of A: Helmert bases of centred vectors."""
    rank = np.cumsum(inside, axis=1) - 1
    row, cls = np.nonzero(inside & (rank > 0))
    order = rank[row, cls].astype(np.float64)
    basis = (inside[row] & (np.arange(inside.shape[1]) < cls[:, None])).astype(np.float64)
    basis[np.arange(len(row)), cls] = -order
    basis *= np.sqrt(weights[row] / (order * (order + 1.0)))[:, None]
    return row, basis


def _by_pairs(rows: Rows, constant: float, weights: Array, inside: NDArray[np.bool_], gradient: Array) -> Array:
    row, basis = _pairs(weights, inside)
    inner = (basis @ basis.T) * (gram(rows) + constant**2)[np.ix_(row, row)]
    if not inner.diagonal().max(initial=0.0) < STEEP:
        return _by_qr(rows, constant, weights, inside, gradient)
    inner[np.diag_indices_from(inner)] += 1.0
    right = (basis * scores_of(rows, gradient, constant)[row]).sum(axis=1)
    try:
        factor = sla.cho_factor(inner, overwrite_a=True, check_finite=False)
    except sla.LinAlgError:
        return _by_qr(rows, constant, weights, inside, gradient)
    y = sla.cho_solve(factor, right, check_finite=False)
    along = np.zeros(inside.shape)
    np.add.at(along, row, basis * y[:, None])
    return np.asarray(class_sums(rows, along, constant) - gradient)


def _by_qr(rows: Rows, constant: float, weights: Array, inside: NDArray[np.bool_], gradient: Array) -> Array:
    """The step as a least-squares problem: the s that minimises ||s + gradient||^2 + ||A s||^2.

    A is reduced to a triangle, a few rows at a time. If that fails, or there are too many numbers, the result is a
    short gradient step, scaled by a lower bound on 1 / H, which always descends.
    """
    row, basis = _pairs(weights, inside)
    features = rows.shape[1] + 1
    size, step = gradient.size, max(1, QR_NUMBERS // gradient.size)
    if size <= QR_SIZE and np.isfinite(basis).all():
        triangle = np.column_stack([np.eye(size), -gradient.ravel()])
        for first in range(0, len(row), step):
            may_stop()
            part = slice(first, first + step)
            x = np.column_stack([dense(rows[row[part]]), np.full(len(row[part]), constant)])
            a = (basis[part, :, None] * x[:, None, :]).reshape(-1, inside.shape[1] * features)
            stacked = np.vstack([triangle, np.column_stack([a, np.zeros(len(a))])])
            # Householder's method is stable for rows of very different sizes when the large ones come first.
            stacked = stacked[np.argsort(-np.abs(stacked[:, :-1]).max(axis=1), kind="stable")]
            triangle = sla.qr(stacked, mode="r", overwrite_a=True, check_finite=False)[0][:size]
        found = sla.solve_triangular(triangle[:, :-1], triangle[:, -1], check_finite=False)
        if np.isfinite(found).all():
            return np.asarray(found.reshape(gradient.shape))
    bend = float((basis * basis).sum(axis=1) @ (lengths(rows) ** 2 + constant**2)[row])
    return np.asarray(-gradient / (1.0 + bend))


def _by_conjugate_gradients(
    rows: Rows, constant: float, weights: Array, inside: NDArray[np.bool_], gradient: Array
) -> Array:
    count = inside.sum(axis=1, keepdims=True)

    def curved(v: Array) -> Array:
        along = np.where(inside, scores_of(rows, v, constant), 0.0)
        along = np.where(inside, along - along.sum(axis=1, keepdims=True) / count, 0.0) * weights[:, None]
        return np.asarray(v + class_sums(rows, along, constant))

    return conjugate_gradients(curved, -gradient, CG_SHARE, CG_STEPS)[0]
