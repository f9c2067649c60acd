"""Scaling of rows, defined to the bit: repeating these operations gives the same rows.

All numbers are those of the store's precision (float32 or float64) unless float64 is stated; every operation is rounded
once, to nearest.

    standard, minmax, maxabs    z_j = (x_j - shift_j) * factor_j       two operations: difference, product
    rownorm                     z_j = x_j / r                          in float64, then rounded to the store's precision

with r the square root, in float64, of the squares x_j * x_j added in float64 from the first column to the last. A row
of zeros is not changed. No operation is fused, reordered or done in another precision; if all shifts are 0, the
difference changes no value. Zeros between the values of a sparse row add nothing to r and stay zeros.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from coremargin.formats.choices import ScalingKind
from coremargin.maths.rows import is_sparse

if TYPE_CHECKING:
    from scipy.sparse import csr_array

Kind = ScalingKind
KINDS: tuple[Kind, ...] = ("standard", "minmax", "maxabs", "rownorm")
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
class Scaling:
    """How rows are scaled. shift, factor (d,) in the store's precision, factor > 0; both None for ``rownorm``.

    dtype: the store's precision. All methods also return the lengths r (n,) of the rows, or None if rows are not
    divided by them.
    """

    kind: Kind
    dtype: np.dtype[Any]
    shift: NDArray[Any] | None = None
    factor: NDArray[Any] | None = None

    def into(self, rows: NDArray[Any], out: NDArray[Any]) -> NDArray[np.float64] | None:
        """Scaled rows (n, d), C order, to ``out`` of the same shape and precision."""
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
        if is_sparse(rows) and self.shift is not None and self.shift.any():
            rows = rows.toarray()
        if is_sparse(rows):
            values, found = self.values(rows)
            return type(rows)((values, rows.indices, rows.indptr), shape=rows.shape), found
        out = np.empty(rows.shape, rows.dtype)
        return out, self.into(rows, out)


def folded(w: Array, b: float, shift: NDArray[Any], factor: NDArray[Any]) -> tuple[Array, float]:
    """(coef, intercept) for rows x before shift and factor: w.z + b = coef.x + intercept, up to rounding.

    If a shift is large compared with the range of its column, rounding may exceed the decision values themselves: scale
    the rows in that case. Numbers that overflow are not finite; callers reject them.
    """
    with np.errstate(over="ignore", invalid="ignore"):
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
