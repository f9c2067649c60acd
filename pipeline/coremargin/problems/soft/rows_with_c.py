"""Rows of a soft margin in the memory of the driver, and how to choose some of them evenly."""

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
    """ids (m,) int64, rows (m, d), signs (m,) int8, and row_c (m,): C times class weight times sample weight.

    With the hinge, row_c is also the upper limit of a row's dual weight.
    """

    row_c: Array

    def margins(self, at: Array) -> Array:
        """y (w.x + b) (m,) at a hypothesis (d + 1,)."""
        return np.asarray(self.signs * (products(self.rows, at[:-1, None])[0] + at[-1]))

    @classmethod
    def of_sample(cls, found: Sample, few: NDArray[np.intp] | None, class_c: Array) -> RowsWithC:
        """The rows of a sample at the positions ``few``, in float64; None: all rows, in the precision they have.

        class_c (2,): C of a row of weight 1 of the positive and of the negative class.
        """
        each = np.where(found.signs > 0, class_c[0], class_c[1])
        if found.weights is not None:
            each = each * found.weights
        if few is None:
            return cls(found.ids, found.rows, found.signs, each)
        return cls(found.ids[few], as_float64(take(found.rows, few)), found.signs[few], each[few])


def evenly(rows: int, most: int) -> NDArray[np.intp]:
    """At most ``most`` positions below ``rows``, evenly spread."""
    return np.unique(np.linspace(0, rows - 1, min(rows, most)).astype(np.intp))


def evenly_by_class(signs: NDArray[np.int8], most: int) -> NDArray[np.intp]:
    """At most ``most`` positions, evenly spread within each class; a rare class keeps up to half of them."""
    positive, negative = np.flatnonzero(signs > 0), np.flatnonzero(signs < 0)
    rare, common = (positive, negative) if len(positive) < len(negative) else (negative, positive)
    kept = rare[evenly(len(rare), max(1, most // 2))]
    return np.sort(np.concatenate([kept, common[evenly(len(common), max(1, most - len(kept)))]]))
