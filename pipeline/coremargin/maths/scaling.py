"""Scaling of rows, defined to the bit: repeating these operations gives the same rows.

All numbers are those of the store's precision (float32 or float64) unless float64 is stated; every operation is rounded
once, to nearest.

    standard, minmax, maxabs    z_j = (x_j - shift_j) * factor_j       two operations: difference, product
    rownorm                     z_j = x_j / r                          in float64, then rounded to the store's precision
    ellipsoid                   z_j = sum_k F_jk (x_k - c_k)           in float64, then rounded to the store's precision

with r the square root, in float64, of the squares x_j * x_j added in float64 from the first column to the last. A row
of zeros is not changed. The products of an ellipsoid's lower triangle F with the differences from its centre c are
added from the first column to the last; columns that are linear functions of others are left out, and become 0. No
operation is fused, reordered or done in another precision; if all shifts are 0, the difference changes no value. Zeros
between the values of a sparse row add nothing to r and stay zeros.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from coremargin.formats.choices import ScalingKind
from coremargin.formats.ellipsoid_scaling import PREFIX
from coremargin.maths.rows import is_sparse

if TYPE_CHECKING:
    from scipy.sparse import csr_array

Kind = ScalingKind
KINDS: tuple[Kind, ...] = ("standard", "minmax", "maxabs", "rownorm", "ellipsoid")
Array = NDArray[np.float64]

#: Range of the lengths of rows in which squares of their values neither under- nor overflow.
LENGTHS = (1e-140, 1e140)
#: The error for other lengths, for messages.
NO_LENGTH = (
    f"expected zeros or a length from {LENGTHS[0]:g} to {LENGTHS[1]:g}: float64 does not hold the squares of its "
    "values; rescale the features first"
)
#: Numbers processed at a time: they stay in the second-level cache.
_RUN = 1 << 14


@dataclass(frozen=True, eq=False)
class Metric:
    """The metric of an ellipsoid: z[columns] = axes (x[columns] - centre), and 0 in all other columns.

    centre (r,), axes (r, r) lower triangular, columns (r,) of ``features`` d, in the order in which products are added.
    """

    features: int
    centre: Array
    axes: Array
    columns: NDArray[np.int64]

    @classmethod
    def of(cls, features: int, arrays: Mapping[str, NDArray[Any]]) -> Metric:
        """That of the arrays of a model (formats/ellipsoid_scaling.py)."""
        centre, axes = (np.asarray(arrays[PREFIX + name], np.float64) for name in ("centre", "axes"))
        columns = arrays.get(PREFIX + "span_columns", np.arange(len(centre)))
        return cls(features, centre, axes, np.asarray(columns, np.int64))

    def into(self, rows: NDArray[Any], out: NDArray[Any]) -> None:
        """Rows (n, d) in the metric to ``out``."""
        n, rank = len(rows), len(self.centre)
        step = max(1, _RUN // rank)
        if rank < self.features:
            out[:] = 0
        for start in range(0, n, step):
            part = slice(start, start + step)
            y = np.array(rows[part].T[self.columns], dtype=np.float64, order="C")
            y -= self.centre[:, None]
            z = np.zeros(y.shape)
            for k in range(rank):  # a column after the other is added to all z_j that it is part of
                z[k:] += self.axes[k:, k, None] * y[k]
            out[part, self.columns] = z.T

    def rearranged(self, order: NDArray[np.intp]) -> Metric:
        """The same for rows of which feature j is the one that is now at ``order[j]`` (d,); sums keep their order."""
        return replace(self, columns=np.argsort(order)[self.columns])

    def affine(self) -> tuple[Array, Array]:
        """Shift (d,) and matrix (d, d): z = (x - shift) @ matrix."""
        shift, matrix = np.zeros(self.features), np.zeros((self.features, self.features))
        shift[self.columns] = self.centre
        matrix[np.ix_(self.columns, self.columns)] = self.axes.T
        return shift, matrix

    def same(self, other: Metric | None) -> bool:
        """Whether another metric has the same numbers."""
        return other is not None and all(
            np.array_equal(getattr(self, name), getattr(other, name)) for name in ("centre", "axes", "columns")
        )


@dataclass(frozen=True, eq=False)
class Scaling:
    """How rows are scaled. shift, factor (d,) in the store's precision, factor > 0; metric: of an ellipsoid.

    None of these for ``rownorm``. dtype: the store's precision. All methods also return the lengths r (n,) of the rows,
    or None if rows are not divided by them.
    """

    kind: Kind
    dtype: np.dtype[Any]
    shift: NDArray[Any] | None = None
    factor: NDArray[Any] | None = None
    metric: Metric | None = None

    @property
    def fills_zeros(self) -> bool:
        """Whether zeros become other values, so that sparse rows become dense."""
        return self.metric is not None or (self.shift is not None and bool(self.shift.any()))

    def same(self, other: Scaling | None) -> bool:
        """Whether another scaling is the same, with the same numbers."""
        if other is None or self.kind != other.kind:
            return False
        if self.metric is not None:
            return self.metric.same(other.metric)
        return all(np.array_equal(getattr(self, name), getattr(other, name)) for name in ("shift", "factor"))

    def rearranged(self, order: NDArray[np.intp]) -> Scaling:
        """The same for rows of which feature j is the one that is now at ``order[j]`` (d,)."""
        if self.metric is not None:
            return replace(self, metric=self.metric.rearranged(order))
        if self.shift is None or self.factor is None:
            return self
        return replace(self, shift=self.shift[order], factor=self.factor[order])

    def into(self, rows: NDArray[Any], out: NDArray[Any]) -> NDArray[np.float64] | None:
        """Scaled rows (n, d), C order, to ``out`` of the same shape and precision."""
        if self.metric is not None:
            self.metric.into(rows, out)
            return None
        if self.shift is None or self.factor is None:
            return divided_by_length(rows, out)
        # Repeat the pattern over runs of whole rows: broadcasting over short rows would be slow.
        n, d = rows.shape
        step = max(1, min(n, _RUN // d))
        shift, factor = np.tile(self.shift, step), np.tile(self.factor, step)
        moved = bool(self.shift.any())
        source, target = rows.reshape(-1), out.reshape(-1)
        for start in range(0, n * d, step * d):
            piece = target[start : start + step * d]
            values = source[start : start + step * d]
            if moved:
                values = np.subtract(values, shift[: len(piece)], out=piece)
            np.multiply(values, factor[: len(piece)], out=piece)
        return None

    def values(self, rows: csr_array) -> tuple[NDArray[Any], NDArray[np.float64] | None]:
        """Scaled values of sparse rows, whose shift is 0, in their order; small ones may become 0."""
        if self.factor is None:
            row = np.repeat(np.arange(rows.shape[0]), np.diff(rows.indptr))
            exact = rows.data.astype(np.float64)
            # one value after the other is added to its row, in the order of the columns
            r = np.sqrt(np.bincount(row, weights=exact * exact, minlength=rows.shape[0]))
            return (exact / np.where(r > 0, r, 1.0)[row]).astype(rows.dtype), r
        return rows.data * self.factor[rows.indices], None

    def of_rows(self, rows: NDArray[Any] | csr_array) -> tuple[Any, NDArray[np.float64] | None]:
        """Scaled rows, a copy of the same kind and precision; sparse rows become dense if zeros are shifted."""
        if is_sparse(rows) and self.fills_zeros:
            rows = rows.toarray()
        if is_sparse(rows):
            values, found = self.values(rows)
            return type(rows)((values, rows.indices, rows.indptr), shape=rows.shape), found
        out = np.empty(rows.shape, rows.dtype)
        return out, self.into(rows, out)


def folded(w: Array, b: float, scaling: Scaling | None) -> tuple[Array, float]:
    """(coef, intercept) for rows x before they are scaled: w.z + b = coef.x + intercept, up to rounding.

    Of rows that are divided by their lengths, or not scaled, w and b. If a shift is large compared with the range of
    its column, rounding may exceed the decision values themselves: scale the rows in that case. Numbers that overflow
    are not finite; callers reject them.
    """
    with np.errstate(over="ignore", invalid="ignore"):
        if scaling is not None and scaling.metric is not None:
            shift, matrix = scaling.metric.affine()
            coef = matrix @ w
            return coef, float(b - coef @ shift)
        if scaling is None or scaling.shift is None or scaling.factor is None:
            return w, b
        shift, factor = scaling.shift, scaling.factor
        coef = w * factor.astype(np.float64)
        return coef, float(b - coef @ shift.astype(np.float64))


def divided_by_length(rows: NDArray[Any], out: NDArray[Any]) -> NDArray[np.float64]:
    """Rows (n, d) divided by their lengths to ``out``; returns the lengths (n,)."""
    n, d = rows.shape
    step = max(1, min(n, _RUN // d))
    found = np.empty(n)
    for start in range(0, n, step):
        part = rows[start : start + step].astype(np.float64)
        found[start : start + step] = r = lengths(part)
        out[start : start + step] = part / np.where(r > 0, r, 1.0)[:, None]
    return found


def beyond_lengths(found: NDArray[np.float64] | None, rows: NDArray[Any] | csr_array) -> NDArray[np.intp]:
    """Rows (m,) of n with nonzero values whose lengths ``found`` (n,) are out of range; None if there are none."""
    if found is None:
        return np.zeros(0, np.intp)
    odd = np.flatnonzero((found < LENGTHS[0]) | ~(found <= LENGTHS[1]))
    return odd[np.diff(rows.indptr)[odd] > 0 if is_sparse(rows) else rows[odd].any(axis=1)]


def lengths(rows: NDArray[Any]) -> NDArray[np.float64]:
    """r (n,) of rows (n, d). ``accumulate`` adds from left to right by definition; the order of ``sum`` may change."""
    exact = rows.astype(np.float64)
    np.multiply(exact, exact, out=exact)
    return np.asarray(np.sqrt(np.add.accumulate(exact, axis=1)[:, -1]))
