"""Sizes of the rows of a source, which bound rounding errors of margins and sums; and d x d sums of rows."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property
from typing import TYPE_CHECKING

import numpy as np
from numpy.typing import NDArray

from coremargin.data.extent import Extent, extent
from coremargin.maths.margin import gamma
from coremargin.maths.rows import TILE_BYTES, Rows, curvature, is_sparse, signed_points

if TYPE_CHECKING:
    from coremargin.data.source import Source

Array = NDArray[np.float64]

#: Sums of products up to this size are exact enough whatever the rows are.
LONG = 1024.0
#: Number of products that are added up in the precision of the rows.
CURVE_ROWS = 256
#: Sizes of terms between which float32 squares and sums do not over- or underflow.
SAFE = (1e-12, 1e12)


@dataclass(frozen=True)
class Magnitudes:
    """Bounds on the rows of a source."""

    source: Source

    @cached_property
    def sum_error(self) -> float:
        """Relative error of a sum of non-negative terms over all rows or features: within chunks, then over chunks."""
        return gamma(self.source.chunk_rows + self.source.chunks + self.source.features + 64)

    @cached_property
    def longest(self) -> float:
        """Upper bound on the length of every row."""
        return float(self.source.scalars().max_norm.max())

    @cached_property
    def columns(self) -> Extent:
        """Range of the values of each feature."""
        return extent(self.source)

    def reach(self, size: Array) -> float:
        """Upper bound on sum_j |x_j| size_j over all rows, size (d,) >= 0.

        By the length of the longest row or, if that is large, by the largest value of each feature: a few huge values
        make rows long, but w is often small for just those features.
        """
        by_length = self.longest * float(np.linalg.norm(size))
        if by_length <= LONG:
            return by_length
        return min(by_length, max(LONG, float(self.columns.widest @ size)))

    def margin_size(self, point: Array) -> float:
        """Upper bound on the terms of every margin at a hypothesis (d + 1,), and of 1 - margin."""
        return self.reach(np.abs(point[:-1])) + abs(float(point[-1])) + 1.0

    def curve_errors(self, weight: float, spread: float) -> tuple[float, float]:
        """Error of a ``tiled_curve``: of its part for the weights, as a matrix norm, and of its last column.

        weight: sum of the weights of its rows; spread: as ``tiled_curve`` returns it.
        """
        source, size = self.source, 2.0 * self.longest + 1.0
        tile, precision = (source.chunk_rows, np.dtype(np.float64)) if source.sparse else (CURVE_ROWS, source.dtype)
        body = 1.01 * gamma(tile + 64, precision) * spread + self.sum_error * weight * size * size
        edge = 1.01 * gamma(64, precision) * np.sqrt(weight * spread) + self.sum_error * weight * size
        # The products are formed around a row z: the matrix has the column times z, twice.
        return float(body + 2.0 * self.longest * edge), float(edge)

    def sizes(self, total: float, squares: float) -> Array:
        """Bounds (d,) on sum_i a_i |x_ij| for a >= 0 with sum a = total and, without weights, sum a^2 <= squares."""
        widest = total * self.columns.widest
        if self.source.weights(0) is not None:
            return np.asarray(widest)
        square = self.source.rows * self.columns.square * (1.0 + 1e-9)
        return np.asarray(np.minimum(widest, np.sqrt(squares * square)))  # Cauchy-Schwarz


def tiled_curve(rows: Rows, weights: Array) -> tuple[Array, float]:
    """sum_i weight_i (x_i, 1)(x_i, 1)^T (d + 1, d + 1), and sum_i weight_i ||x_i - z||^2.

    Products of dense rows are formed in the precision of the rows, around a row z of them (far from the origin, little
    else would be left of float32), and CURVE_ROWS of them are added up before the sum continues in float64. Products of
    sparse rows are in float64, with z = 0.
    """
    if is_sparse(rows):
        curve = curvature(signed_points(rows, np.ones(rows.shape[0]), 1.0), weights)
        return curve, float(np.trace(curve[:-1, :-1]))
    d = rows.shape[1]
    step = max(1, TILE_BYTES // (8 * d))
    curve = np.zeros((d + 1, d + 1))
    if not rows.shape[0]:
        return curve, 0.0
    centre, root = rows[len(rows) // 2], np.sqrt(weights)
    size = float(root.max()) * max(float(rows.max()) - float(rows.min()), 0.0)
    precise = rows.dtype if SAFE[0] < size < SAFE[1] else np.dtype(np.float64)
    for first in range(0, len(rows), step):
        part = slice(first, first + step)
        scaled = rows[part].astype(precise) - centre.astype(precise)
        scaled *= root[part, None].astype(precise)
        for k in range(0, len(scaled), CURVE_ROWS):
            few = scaled[k : k + CURVE_ROWS]
            curve[:d, :d] += few.T @ few
        curve[d, :d] += root[part] @ scaled.astype(np.float64)
    spread = float(np.trace(curve[:d, :d]))
    edge, total, middle = curve[d, :d].copy(), float(weights.sum()), centre.astype(np.float64)
    curve[:d, :d] += np.outer(middle, edge) + np.outer(edge, middle) + total * np.outer(middle, middle)
    curve[d, :d] += total * middle
    curve[:d, d], curve[d, d] = curve[d, :d], total
    return curve, spread
