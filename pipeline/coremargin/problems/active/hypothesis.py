"""A hypothesis about all rows: a hyperplane between two classes, or one per class, and which rows are near.

With several classes each has a hyperplane against the rest. Without a loss a row belongs to the one class that claims
it; a row that no class claims, or more than one, is as near as can be: some hyperplane has it on the wrong side.

With classes at once (Crammer and Singer) there is one margin of all: a row has the class of the largest w.x + b, and
its distance is what the largest has more than the second.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property
from typing import TYPE_CHECKING

import numpy as np
from numpy.typing import NDArray

from coremargin.formats.draws import hypothesis_hash
from coremargin.maths.margin import gamma, safe_projections
from coremargin.maths.multiclass import margins
from coremargin.maths.rows import is_sparse, lengths, products

if TYPE_CHECKING:
    from coremargin.maths.margin import Array
    from coremargin.maths.multiclass import Codes
    from coremargin.maths.rows import Rows

#: The side of rows that no class, or more than one, claims; the code of rows without an answer.
NONE = -1


@dataclass(frozen=True)
class Hypothesis:
    """Hyperplanes w.x + b = 0: w (k, d), b (k,); slab (s,): a row that is nearer than this lies within its slab.

    s is k, and 1 for classes at once.

    soft: made with a loss, where w has any length, and of several classes the largest w.x + b decides.
    """

    w: Array
    b: Array
    slab: Array
    soft: bool

    @classmethod
    def empty(cls, features: int, planes: int, *, soft: bool, at_once: bool = False) -> Hypothesis:
        """Before the first solve."""
        return cls(np.zeros((planes, features)), np.zeros(planes), np.zeros(1 if at_once else planes), soft)

    @cached_property
    def hash(self) -> str:
        """Its hash in the log."""
        return hypothesis_hash(self.w, self.b)

    @property
    def planes(self) -> int:
        """How many hyperplanes there are."""
        return len(self.b)

    @property
    def at_once(self) -> bool:
        """Whether several hyperplanes have one margin."""
        return len(self.slab) < self.planes

    @property
    def classes(self) -> int:
        """How many classes there are."""
        return max(2, self.planes)

    def decisions(self, rows: Rows) -> Array:
        """w.x + b (n, k) of rows (n, d), in float64, each depending on its own row only."""
        return np.column_stack([decisions(rows, w, float(b)) for w, b in zip(self.w, self.b, strict=True)])

    def sizes(self, values: Array) -> Array:
        """Distances (n, s) of rows with these w.x + b (n, k)."""
        if not self.at_once:
            return np.abs(values)
        two = np.partition(values, -2, axis=1)[:, -2:]
        return np.asarray(two[:, 1:] - two[:, :1])

    def distances(self, rows: Rows) -> Array:
        """Lower bounds (n, s) on distances of rows (n, d) that any later float64 evaluation confirms; at least 0."""
        return np.column_stack([self.distances_from(rows, k) for k in range(len(self.slab))])

    def distances_from(self, rows: Rows, slab: int) -> Array:
        """The same (n,) from the middle of one slab."""
        if not self.at_once:
            return distances_below(rows, self.w[slab], float(self.b[slab]))
        values = self.decisions(rows)
        return np.maximum(margins_below(rows, values.argmax(axis=1), values, self.w, self.b), 0.0)

    def sides(self, values: Array) -> NDArray[np.int32]:
        """The class (n,) of rows with these w.x + b (n, k), or NONE."""
        if self.planes == 1:
            return np.asarray(values[:, 0] >= 0, np.int32)
        if self.soft or self.at_once:
            return np.asarray(values.argmax(axis=1), np.int32)
        claimed = values > 0
        return np.asarray(np.where(claimed.sum(axis=1) == 1, claimed.argmax(axis=1), NONE), np.int32)

    def nearness(self, sizes: Array, sides: NDArray[np.int32]) -> Array:
        """How near rows (n,) are to a hyperplane, by distances (n, s) and sides: below ``limit``, within a slab.

        Rows of no class come first, below 0.
        """
        if len(self.slab) == 1:
            return np.asarray(sizes[:, 0])
        near = self.in_slabs(sizes).min(axis=1)
        return np.asarray(np.where(sides == NONE, -1.0 / (1.0 + near), near))

    def in_slabs(self, sizes: Array) -> Array:
        """Distances (n, s) in units of ``limit``; with several slabs in those of each, inf where there is none."""
        if len(self.slab) == 1:
            return sizes
        with np.errstate(divide="ignore", invalid="ignore"):
            return np.asarray(np.where(self.slab > 0, sizes / self.slab, np.inf))

    @property
    def limit(self) -> float:
        """The nearness below which rows lie within a slab."""
        return float(self.slab[0]) if len(self.slab) == 1 else 1.0

    def within(self, nearest: Array, sides: NDArray[np.int64]) -> bool:
        """Whether any row lies within a slab: nearest (s,) of all rows, and how many there are of each side."""
        return bool((nearest < self.slab).any()) or int(sides[NONE]) > 0


def decisions(rows: Rows, w: Array, b: float) -> Array:
    """w.x + b (n,) of rows (n, d), in float64, each depending on its own row only."""
    if is_sparse(rows):
        return np.asarray(products(rows, w[:, None])[0] + b)
    return np.asarray(np.einsum("ij,j->i", np.ascontiguousarray(rows, np.float64), w) + b)


def distances_below(rows: Rows, w: Array, b: float) -> Array:
    """Lower bounds (n,) on |w.x + b| of rows (n, d) that any later float64 evaluation confirms; at least 0."""
    signs = np.where(decisions(rows, w, b) >= 0, 1, -1)
    bound = safe_projections(rows, signs, w[:, None])[:, 0] + signs * b
    slack = 4 * float(np.finfo(np.float64).eps) * (np.abs(bound) + 2 * abs(b))
    return np.asarray(np.maximum(bound - slack, 0.0))


def margin_below(rows: Rows, signs: NDArray[np.int8], w: Array, b: float) -> float:
    """The margin of w.x + b on rows (n, d) with signs (n,), rounded down."""
    values = safe_projections(rows, signs, w[:, None])[:, 0] + signs * b
    return float((values - 4 * np.finfo(np.float64).eps * (np.abs(values) + 2 * abs(b))).min())


def margins_below(rows: Rows, codes: Codes, values: Array, w: Array, b: Array) -> Array:
    """Margins (n,) of rows of these classes (n,) at once, whose w.x + b are ``values`` (n, k), rounded down."""
    n, sizes = w.shape[1] + 8, lengths(rows) * float(np.linalg.norm(w, axis=1).max()) + float(np.abs(b).max())
    found = margins(values, codes)[0] - 2.0 * gamma(n) * sizes - 2.0 * n * float(np.finfo(np.float64).tiny)
    return np.asarray(found - gamma(w.size + n) * np.abs(found))  # V has length 1 up to rounding
