"""Coordinates of few wide or sparse rows in their span: the same geometry, but dense.

By eigenvectors of the Gram matrix G = X X^T = E diag(s) E^T: coordinates E sqrt(s), basis s^(-1/2) E^T X. That
preserves products between rows to the precision of float64, and lengths to its square root; all claims are evaluated on
the rows themselves.
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

#: With this many times more features than rows, rows are replaced by coordinates.
WIDE = 2
#: Eigenvalues below this share of the largest are rounding errors.
VANISHED = 1e-15


@dataclass(frozen=True)
class Span:
    """flat (m, q): coordinates of the rows (x, constant); mixed (m, q): the basis as sums of rows; None: features."""

    rows: Rows
    constant: float
    flat: Array
    mixed: Array | None

    def up(self, at: Array) -> Array:
        """Map (K, q) in coordinates to (K, d + 1)."""
        if self.mixed is None:
            return at
        weights = self.mixed @ at.T
        return np.column_stack([weighted_sums(self.rows, weights), self.constant * weights.sum(axis=0)])

    def down(self, at: Array) -> Array:
        """Project (K, d + 1) on the span, in coordinates (K, q)."""
        return at if self.mixed is None else scores_of(self.rows, at, self.constant).T @ self.mixed


def span_of(rows: Rows, constant: float) -> Span:
    """Rows (m, d) with a last entry ``constant``, unchanged or, if they are wide or sparse, in coordinates."""
    exact = as_float64(rows)
    if not is_sparse(exact) and exact.shape[1] < WIDE * len(exact):
        return Span(exact, constant, np.column_stack([exact, np.full(len(exact), constant)]), None)
    products = exact @ exact.T
    gram = (products.toarray() if is_sparse(products) else products) + constant**2
    values, vectors = sla.eigh(gram, check_finite=False)
    kept = values > VANISHED * max(float(values.max(initial=0.0)), np.finfo(np.float64).tiny)
    if not kept.any():  # all zeros
        return Span(exact, constant, np.zeros((exact.shape[0], 1)), np.zeros((exact.shape[0], 1)))
    root = np.sqrt(values[kept])
    return Span(exact, constant, vectors[:, kept] * root, vectors[:, kept] / root)
