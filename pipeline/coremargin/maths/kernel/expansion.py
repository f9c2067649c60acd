"""Kernel expansions: decision functions that are weighted sums of kernel values."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property
from typing import TYPE_CHECKING

import numpy as np
from numpy.typing import NDArray

from coremargin.maths.kernel.functions import Lengths, kernel_sums

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
        """The rows, prepared for products."""
        return self.kernel.points(self.rows)

    @cached_property
    def lengths(self) -> Lengths:
        """The lengths of the rows, as bounds need them."""
        return Lengths.from_points(self.points, self.weights)

    def values(self, x: Points) -> Array:
        """Decision values (n, k) of rows x (n, d)."""
        return self.kernel.sums(x, self.points, self.weights) + self.offsets

    def errors(self, x: Points) -> Array:
        """Bounds (n, k) on the rounding errors of ``values``, in whatever order they are summed."""
        size = np.abs(self.weights).sum(axis=0)
        found = self.kernel.sums_error(x, self.lengths, size, len(self.points))
        return self.kernel.SAFETY * (found + np.finfo(np.float64).eps * (1.0 + np.abs(self.offsets)))


@dataclass(frozen=True)
class Expansions:
    """Functions of kernels that differ only in gamma, on the same rows; kernel_index (k,): of each column."""

    kernels: tuple[Kernel, ...]
    kernel_index: NDArray[np.intp]
    rows: row_ops.Rows
    weights: Array
    offsets: Array

    @cached_property
    def points(self) -> Points:
        """The rows, prepared for the products of all kernels."""
        return self.kernels[0].points(self.rows)

    @cached_property
    def lengths(self) -> Lengths:
        """The lengths of the rows, for all columns."""
        return Lengths.from_points(self.points, self.weights)

    @cached_property
    def _columns(self) -> list[NDArray[np.intp]]:
        return [np.flatnonzero(self.kernel_index == k) for k in range(len(self.kernels))]

    def values(self, x: Points) -> Array:
        """Decision values (n, k) of rows x (n, d)."""
        return kernel_sums(self.kernels, self._columns, x, self.points, self.weights) + self.offsets

    def errors(self, x: Points) -> Array:
        """Bounds (n, k) on the rounding errors of ``values``."""
        found = np.empty((len(x), len(self.offsets)))
        for kernel, mine in zip(self.kernels, self._columns, strict=True):
            own = Expansion(kernel, self.rows, self.weights[:, mine], self.offsets[mine])
            vars(own).update(points=self.points, lengths=self.lengths)
            found[:, mine] = own.errors(x)
        return found
