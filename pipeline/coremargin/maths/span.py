"""Few rows of many features, or sparse ones, as coordinates in the space that they span: the same geometry, but dense.

By eigenvectors of the Gram matrix G = X X^T = E diag(s) E^T: coordinates E sqrt(s), basis s^(-1/2) E^T X. That keeps
products between rows to float64's precision, and lengths down to its root; whatever is claimed in the end is evaluated
on the rows themselves.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np
import scipy.linalg as sla

from coremargin.maths.multiclass import scores_of
from coremargin.maths.rows import as_float64, is_sparse, weighted_sums

if TYPE_CHECKING:
    from coremargin.maths.margin import Array
    from coremargin.maths.rows import Rows

#: From so many times more features than rows on, rows are taken as coordinates.
WIDE = 2
#: Eigenvalues below this share of the largest are rounding.
VANISHED = 1e-15


@dataclass(frozen=True)
class Span:
    """flat (m, q): coordinates of the rows (x, constant); mixed (m, q): the basis as sums of rows, None: no other."""

    rows: Rows
    constant: float
    flat: Array
    mixed: Array | None

    def up(self, at: Array) -> Array:
        """(K, q) in coordinates -> (K, d + 1)."""
        if self.mixed is None:
            return at
        weights = self.mixed @ at.T
        return np.column_stack([weighted_sums(self.rows, weights), self.constant * weights.sum(axis=0)])

    def down(self, at: Array) -> Array:
        """The part of (K, d + 1) in the span, in coordinates (K, q)."""
        return at if self.mixed is None else scores_of(self.rows, at, self.constant).T @ self.mixed


def span_of(rows: Rows, constant: float) -> Span:
    """Rows (m, d) with a last entry ``constant`` as they are, or in coordinates where they are wide or sparse."""
    exact = as_float64(rows)
    if not is_sparse(exact) and exact.shape[1] < WIDE * len(exact):
        return Span(exact, constant, np.column_stack([exact, np.full(len(exact), constant)]), None)
    products = exact @ exact.T
    gram = (products.toarray() if is_sparse(products) else products) + constant**2
    values, vectors = sla.eigh(gram, check_finite=False)
    kept = values > VANISHED * max(float(values.max(initial=0.0)), np.finfo(np.float64).tiny)
    if not kept.any():  # nothing but zeros
        return Span(exact, constant, np.zeros((exact.shape[0], 1)), np.zeros((exact.shape[0], 1)))
    root = np.sqrt(values[kept])
    return Span(exact, constant, vectors[:, kept] * root, vectors[:, kept] / root)
