"""The hard margin of two classes on all rows but k, from products of rows alone: the fit of outliers/row_search.py.

Rows are given in coordinates: their own or, with a kernel, those of their images in the span of the images. A
certificate is a few rows whose own best margin is too small; the caller says what their weights prove, so that no bound
rests on coordinates.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from functools import cached_property
from typing import TYPE_CHECKING

import numpy as np

from coremargin.maths.margin import resolution
from coremargin.maths.outliers.certificates import SearchRows
from coremargin.maths.outliers.heuristic import Hyperplane, concentrate, find_hyperplane, measure, soft_directions
from coremargin.maths.outliers.row_search import Carried, margin_gap, margin_target

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from coremargin.maths.margin import Array
    from coremargin.maths.outliers.row_search import Places

#: Eigenvalues of a kernel matrix below this share of the largest are rounding errors.
VANISHED = 1e-14


def coordinates(matrix: Array) -> Array:
    """Rows (n, q) whose products are those of a positive semi-definite matrix (n, n)."""
    values, vectors = np.linalg.eigh(matrix)
    kept = values > VANISHED * max(float(values.max(initial=0.0)), np.finfo(np.float64).tiny)
    return np.ascontiguousarray(vectors[:, kept] * np.sqrt(values[kept]))


@dataclass(frozen=True)
class HullFit:
    """Hyperplanes between rows x (n, q) with signs (n,); proven: the margin that weights of rows at some places prove.

    floor: margins up to this one may be rounding errors of ``proven``. Every class must have more rows than are
    removed.
    """

    x: Array
    signs: NDArray[np.int8]
    intercept: bool
    proven: Callable[[Places, Array], float]
    floor: float = 0.0

    @cached_property
    def rows(self) -> SearchRows:
        """The rows as solves use them."""
        return SearchRows(self.x, self.signs, self.x.mean(axis=0), intercept=self.intercept)

    @cached_property
    def nothing(self) -> float:
        """Margins up to this one are none, as far as float64 resolves."""
        radius = float(np.sqrt(np.einsum("ij,ij->i", self.x, self.x).max()))
        return max(self.floor, resolution(2.0 * radius, *self.x.shape))

    @property
    def dimension(self) -> int:
        """As many rows as may carry a margin."""
        return int(self.x.shape[1]) + 1

    def start(self, k: int) -> Hyperplane:
        """A good hyperplane for all rows but k."""
        return find_hyperplane(self.rows, k, soft_directions(self.rows), thorough=False)

    def scores(self, plane: Hyperplane) -> Array:
        """Minus the margins (n,)."""
        return np.asarray(-self.signs * (self.x @ plane.w + plane.b))

    def concentrate(self, k: int, plane: Hyperplane) -> Hyperplane:
        """At least as good a hyperplane."""
        return concentrate(self.rows, measure(self.rows, plane.w, k), k)[0] if plane.w.any() else plane

    def carried(self, places: Places, enough: float) -> Carried[Hyperplane] | None:
        """The largest margin of some rows, or weights that prove it to be at most -``enough``; None without a class."""
        free = np.zeros(len(self.x), bool)
        free[places] = True
        if not self.rows.has_bound(free):
            return None
        found = self.rows.decide(free, -enough) if np.isfinite(enough) else self.rows.best(free)
        if found is None:
            return None
        order = np.argsort(found.rows)
        used, weights = found.rows[order], found.weights[order]
        some = self.rows.with_rows(self.x[places], self.signs[places])
        plane = Hyperplane.none(self.x.shape[1]) if found.too_small else measure(some, found.point, 0)
        return Carried(used, weights, -self.proven(used, weights), plane)

    def target(self, reached: float, gap: float) -> float:
        """See ``margin_target``."""
        return margin_target(reached, gap, self.nothing)

    def gap(self, reached: float, bound: float) -> float:
        """See ``margin_gap``."""
        return margin_gap(reached, bound)
