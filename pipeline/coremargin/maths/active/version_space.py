"""The version space of rows with labels, {v in the unit ball: y x.v >= 0 for each}, in the span of the rows.

Louche and Ralaivola 2015, (1) and (5) to (7). Orthogonally to the span of the rows it is symmetric like the ball, so
that all centres lie in the span: the dimension is at most the number of rows, for any number of features. The direction
of the centre of gravity is that of the mean of the unit vectors. Only the directions of rows matter, as in the paper's
Definition 2 and in Tong and Koller 2002, whose rows are of length 1.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np
import scipy.linalg as sla
from numpy.typing import NDArray

from coremargin.maths.hard_margin import solve_hard_margin
from coremargin.maths.rows import lengths
from coremargin.maths.span import span_of

if TYPE_CHECKING:
    from coremargin.maths.margin import Array
    from coremargin.maths.rows import Rows
    from coremargin.maths.span import Span

#: Singular values below this share of the largest are rounding errors.
VANISHED = 1e-10


@dataclass(frozen=True)
class VersionSpace:
    """planes (m, q): unit normals y x / ||x||, in coordinates of an orthonormal basis of their span.

    basis (q, p): the basis in the coordinates of ``span``, which maps back to features and a constant.
    """

    planes: Array
    basis: Array
    span: Span

    @classmethod
    def of(cls, rows: Rows, signs: NDArray[np.integer], constant: float = 0.0) -> VersionSpace:
        """The version space of rows (m, d), m at least 1, with signs (m,) in {-1, 1}.

        constant: a last entry of all rows, for an offset. Rows of length 0 are no constraint, and are dropped.
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
        """The dimension q of the span."""
        return len(self.basis)

    def up(self, centre: Array) -> tuple[Array, float]:
        """w (d,) and b of a point (q,)."""
        full = self.span.up((centre @ self.basis)[None, :])[0]
        return full[:-1], float(full[-1]) * self.span.constant

    def chords(self, points: Array, directions: Array) -> tuple[Array, Array]:
        """Intersections of lines p + t d with the boundary: least and largest t (k,) for p, d (k, q)."""
        depths, slopes = points @ self.planes.T, directions @ self.planes.T
        with np.errstate(divide="ignore", invalid="ignore"):
            reached = -depths / slopes
        first = np.where(slopes > 0, reached, -np.inf).max(axis=1)
        last = np.where(slopes < 0, reached, np.inf).min(axis=1)
        low, high = ball_chords(points, directions)
        return np.minimum(np.maximum(first, low), 0.0), np.maximum(np.minimum(last, high), 0.0)


def ball_chords(points: Array, directions: Array) -> tuple[Array, Array]:
    """Intersections of lines with the unit sphere: the roots (k,) of ||p + t d||^2 = 1."""
    a, b = (directions**2).sum(axis=1), (points * directions).sum(axis=1)
    c = np.minimum((points**2).sum(axis=1) - 1.0, 0.0)
    root = np.sqrt(b * b - a * c)
    return (-b - root) / a, (-b + root) / a


def chebyshev(space: VersionSpace) -> tuple[Array, float]:
    """Centre (q,) and radius of the largest ball inside.

    With ||v|| + r <= 1 and a.v >= r for all planes it is v = u / (1 + rho), r = rho / (1 + rho), where u is the unit
    vector of the largest margin rho over the planes: the SVM through the origin, on rows of length 1. The paper says
    so, too ("w_SVM is a rescaled Chebyshev's center"), and computes it with libSVM; a linear program would need a
    polytope in place of the ball. Its Definition 2 prints the centre of the smallest ball *around* the set, but its
    text and all uses mean the largest one inside. Raises ValueError if the interior is empty.
    """
    ones = np.ones(len(space.planes), np.int8)
    found = solve_hard_margin(space.planes, ones, intercept=False)
    margin = float((space.planes @ found.w).min())
    if found.status == "zero" or margin <= 0:
        raise ValueError("expected labels that a hyperplane separates, found none that does")
    return found.w / (1.0 + margin), margin / (1.0 + margin)
