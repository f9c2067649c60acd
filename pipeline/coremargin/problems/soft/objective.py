"""What a soft margin minimises, and how large the rows are that it is about: what its steps and its bounds read."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property
from typing import TYPE_CHECKING

import numpy as np
from numpy.typing import NDArray

from coremargin.data.extent import Extent, extent
from coremargin.maths.margin import gamma
from coremargin.problems.soft.probe import CURVE_ROWS

if TYPE_CHECKING:
    from coremargin.data.source import Source
    from coremargin.problems.soft.losses.loss import Loss

Array = NDArray[np.float64]

#: Sums of products up to this size are exact enough whatever they are made of.
LONG = 1024.0


@dataclass(frozen=True)
class Magnitudes:
    """How large the rows of a source are, as it shows them: bounds on what float64 loses are made of it."""

    source: Source

    @cached_property
    def sum_error(self) -> float:
        """Relative error of a sum of non-negative terms over all rows or features: within chunks, then over chunks."""
        return gamma(self.source.chunk_rows + self.source.chunks + self.source.features + 64)

    @cached_property
    def longest(self) -> float:
        """No row is longer."""
        return float(self.source.scalars().max_norm.max())

    @cached_property
    def columns(self) -> Extent:
        """How far rows reach in each feature."""
        return extent(self.source)

    def reach(self, size: Array) -> float:
        """No row has a larger sum_j |x_j| size_j, size (d,) >= 0: by its length, or if that is large by its features.

        A few huge values make rows long; where w is small just there, the features' largest values say much less.
        """
        by_length = self.longest * float(np.linalg.norm(size))
        if by_length <= LONG:
            return by_length
        return min(by_length, max(LONG, float(self.columns.widest @ size)))

    def curve_errors(self, weight: float, spread: float) -> tuple[float, float]:
        """How far a curve may be off: the length of its part for the weights as a matrix, and that of its last column.

        weight: sum of its rows' weights; spread: that of weights times squares of distances from where it was made. Of
        dense rows it is made of products in their own precision, CURVE_ROWS at a time.
        """
        source, size = self.source, 2.0 * self.longest + 1.0
        tile, precision = (source.chunk_rows, np.dtype(np.float64)) if source.sparse else (CURVE_ROWS, source.dtype)
        body = 1.01 * gamma(tile + 64, precision) * spread + self.sum_error * weight * size * size
        edge = 1.01 * gamma(64, precision) * np.sqrt(weight * spread) + self.sum_error * weight * size
        # Made around a row z, the matrix has the column times z, twice.
        return float(body + 2.0 * self.longest * edge), float(edge)

    def sizes(self, total: float, squares: float) -> Array:
        """Bounds (d,) on sum_i a_i |x_ij|, a >= 0 with sum a = total; sum a^2 <= squares, where no row has a weight."""
        widest = total * self.columns.widest
        if self.source.weights(0) is not None:
            return np.asarray(widest)
        square = self.source.rows * self.columns.square * (1.0 + 1e-9)
        return np.asarray(np.minimum(widest, np.sqrt(squares * square)))  # Cauchy and Schwarz


@dataclass(frozen=True)
class Objective:
    """1/2 ||w||^2 + sum_i c_i loss_i, to a gap of epsilon; class_c (2,): c of a row of weight 1 of each class."""

    loss: Loss
    class_c: Array
    intercept: bool
    epsilon: float
    magnitudes: Magnitudes

    @property
    def metric(self) -> Array:
        """R (d + 1,): 1 for the weights, 0 for the intercept."""
        return np.append(np.ones(self.magnitudes.source.features), 0.0)
