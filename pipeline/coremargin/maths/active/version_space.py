"""The version space of rows with labels, {v in the unit ball: y x.v >= 0 for each}, in the span of the rows.

Louche and Ralaivola 2015, (1) and (5) to (7). Across the span of the rows it is as symmetric as the ball: no centre has
a part there, so that all happens in at most as many dimensions as there are rows, however many features they have. The
direction of a centre of gravity is the same in both: it is that of the mean of the unit vectors. Rows count by their
directions only, as in the paper's Definition 2 and in Tong and Koller 2002, whose rows are of length 1.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np
import scipy.linalg as sla
from numpy.typing import NDArray

from coremargin.maths.pool import solve_pool
from coremargin.maths.rows import lengths
from coremargin.maths.span import span_of

if TYPE_CHECKING:
    from coremargin.maths.margin import Array
    from coremargin.maths.rows import Rows
    from coremargin.maths.span import Span

#: Singular values below this share of the largest are rounding.
VANISHED = 1e-10


@dataclass(frozen=True)
class VersionSpace:
    """planes (m, q): unit normals y x / ||x||, in coordinates of an orthonormal basis of their span.

    basis (q, p): the basis in the coordinates of ``span``, which leads back to features and a constant.
    """

    planes: Array
    basis: Array
    span: Span

    @classmethod
    def of(cls, rows: Rows, signs: NDArray[np.integer], constant: float = 0.0) -> VersionSpace:
        """Of rows (m, d), m at least 1, with signs (m,) in {-1, 1}; constant: a last entry of all rows, for an offset.

        Rows of length 0 say nothing, and are left out.
        """
        sizes = np.sqrt(lengths(rows) ** 2 + constant**2)
        span = span_of(rows, constant)
        held = sizes > 0
        normals = span.flat[held] * (signs[held] / sizes[held])[:, None]
        values, basis = sla.svd(normals, full_matrices=False, check_finite=False)[1:]
        basis = basis[values > VANISHED * values.max(initial=0.0)]
        planes = normals @ basis.T
        return cls(planes / np.linalg.norm(planes, axis=1)[:, None], basis, span)

    @property
    def dimensions(self) -> int:
        """Of the span: q."""
        return len(self.basis)

    def up(self, centre: Array) -> tuple[Array, float]:
        """w (d,) and b of a point (q,)."""
        full = self.span.up((centre @ self.basis)[None, :])[0]
        return full[:-1], float(full[-1]) * self.span.constant

    def chords(self, points: Array, directions: Array) -> tuple[Array, Array]:
        """Where lines through points (k, q) leave the space: least and largest multiple (k,) of directions (k, q)."""
        depths, slopes = points @ self.planes.T, directions @ self.planes.T
        with np.errstate(divide="ignore", invalid="ignore"):
            reached = -depths / slopes
        first = np.where(slopes > 0, reached, -np.inf).max(axis=1)
        last = np.where(slopes < 0, reached, np.inf).min(axis=1)
        low, high = ball_chords(points, directions)
        return np.minimum(np.maximum(first, low), 0.0), np.maximum(np.minimum(last, high), 0.0)


def ball_chords(points: Array, directions: Array) -> tuple[Array, Array]:
    """Where lines leave the unit ball: the roots (k,) of ||p + t d||^2 = 1."""
    a, b = (directions**2).sum(axis=1), (points * directions).sum(axis=1)
    c = np.minimum((points**2).sum(axis=1) - 1.0, 0.0)
    root = np.sqrt(b * b - a * c)
    return (-b - root) / a, (-b + root) / a


def chebyshev(space: VersionSpace) -> tuple[Array, float]:
    """Centre (q,) and radius of the largest ball inside.

    With ||v|| + r <= 1 and a.v >= r for all planes it is v = u / (1 + rho), r = rho / (1 + rho), where u is the unit
    vector of the largest margin rho over the planes: the SVM through the origin, on rows of length 1. So the paper has
    it ("w_SVM is a rescaled Chebyshev's center") and computes it, with libSVM; a linear program would only do for a
    polytope in the place of the ball. Its Definition 2 prints the centre of the smallest ball *around* the set: the
    words beside it, and all uses, mean the largest inside. Raises ValueError where the space has no inside.
    """
    ones = np.ones(len(space.planes), np.int8)
    found = solve_pool(space.planes, ones, intercept=False)
    margin = float((space.planes @ found.w).min())
    if found.status == "zero" or margin <= 0:
        raise ValueError("expected labels that a hyperplane separates, found none that does")
    return found.w / (1.0 + margin), margin / (1.0 + margin)
