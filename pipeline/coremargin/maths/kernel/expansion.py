"""Sums over rows with weights: what machines with kernels are made of, wherever they decide."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property
from typing import TYPE_CHECKING

import numpy as np
from numpy.typing import NDArray

from coremargin.maths.kernel.functions import Lengths, sums

if TYPE_CHECKING:
    from coremargin.maths import rows as row_ops
    from coremargin.maths.kernel.functions import Kernel, Points

Array = NDArray[np.float64]


@dataclass(frozen=True)
class Expansion:
    """k functions sum_j weights_jc k(rows_j, .) + offsets_c: rows (m, d) float64, weights (m, k), offsets (k,)."""

    kernel: Kernel
    rows: row_ops.Rows
    weights: Array
    offsets: Array

    @cached_property
    def points(self) -> Points:
        """The rows as they are multiplied."""
        return self.kernel.points(self.rows)

    @cached_property
    def lengths(self) -> Lengths:
        """How long they are."""
        return Lengths.of(self.points, self.weights)

    def values(self, x: Points) -> Array:
        """What the functions are (n, k) at rows x (n, d)."""
        return self.kernel.sums(x, self.points, self.weights) + self.offsets

    def errors(self, x: Points) -> Array:
        """Bounds (n, k) on what rounding did to them, with room for whoever does it otherwise."""
        size = np.abs(self.weights).sum(axis=0)
        found = self.kernel.sums_error(x, self.lengths, size, len(self.points))
        return self.kernel.room * (found + np.finfo(np.float64).eps * (1.0 + np.abs(self.offsets)))


@dataclass(frozen=True)
class Expansions:
    """The same of kernels that differ in gamma only, on the same rows: ``of`` (k,) says which of them a column has."""

    kernels: tuple[Kernel, ...]
    of: NDArray[np.intp]
    rows: row_ops.Rows
    weights: Array
    offsets: Array

    @cached_property
    def points(self) -> Points:
        """The rows as they are multiplied, with all kernels."""
        return self.kernels[0].points(self.rows)

    @cached_property
    def lengths(self) -> Lengths:
        """How long they are, whichever of the functions they carry."""
        return Lengths.of(self.points, self.weights)

    @cached_property
    def _columns(self) -> list[NDArray[np.intp]]:
        return [np.flatnonzero(self.of == k) for k in range(len(self.kernels))]

    def values(self, x: Points) -> Array:
        """What the functions are (n, k) at rows x (n, d)."""
        return sums(self.kernels, self._columns, x, self.points, self.weights) + self.offsets

    def errors(self, x: Points) -> Array:
        """As ``Expansion`` has them."""
        found = np.empty((len(x), len(self.offsets)))
        for kernel, mine in zip(self.kernels, self._columns, strict=True):
            own = Expansion(kernel, self.rows, self.weights[:, mine], self.offsets[mine])
            vars(own).update(points=self.points, lengths=self.lengths)
            found[:, mine] = own.errors(x)
        return found
