"""Rows of a soft margin in the driver, each with its C: class weight times sample weight times C."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np
from numpy.typing import NDArray

from coremargin.maths.rows import as_float64, products, take
from coremargin.problems.common.driver_rows import SignedRows

if TYPE_CHECKING:
    from coremargin.problems.common.sample import Sample

Array = NDArray[np.float64]


@dataclass(frozen=True)
class RowsWithC(SignedRows):
    """ids (m,) int64, rows (m, d), signs (m,) int8, row_c (m,): the C of each row, no dual weight can be larger."""

    row_c: Array

    def margins(self, at: Array) -> Array:
        """y (w.x + b) (m,) at a hypothesis (d + 1,)."""
        return np.asarray(self.signs * (products(self.rows, at[:-1, None])[0] + at[-1]))

    @classmethod
    def of_sample(cls, found: Sample, few: NDArray[np.intp] | None, class_c: Array) -> RowsWithC:
        """Some rows of the sample in float64; None: all of them, just as they are.

        class_c (2,): C of rows of weight 1 of each class.
        """
        each = np.where(found.signs > 0, class_c[0], class_c[1])
        if found.weights is not None:
            each = each * found.weights
        if few is None:
            return cls(found.ids, found.rows, found.signs, each)
        return cls(found.ids[few], as_float64(take(found.rows, few)), found.signs[few], each[few])
