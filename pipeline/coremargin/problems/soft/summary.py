"""The answer to a near-margin probe: sums over the rows far from the margin, and the rows near it themselves."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, fields, replace
from typing import Any

import numpy as np
from numpy.typing import NDArray

from coremargin.maths import rows as row_ops
from coremargin.problems.common.state_arrays import state_from_arrays, state_to_arrays

Array = NDArray[np.float64]


@dataclass(frozen=True)
class NearMarginSummary:
    """What the rows of some blocks say at a hypothesis; index 0 is the positive class, 1 the negative.

    With xi = max(0, 1 - y (w.x + b)) and c the per-sample C of a row:
    losses (k,): sum c loss at k points of the segment from the best hypothesis (0) to the newest (1), newest first.
    slack, squares (2,), dual_sum (2, d): sums of c xi, c xi^2, c xi x at the newest.
    Far rows on the losing side: far_c (1,) sum c, far_value (1,) sum c xi^2, far_linear (d + 1,) sum c y (x, 1),
    far_slope (d + 1,) sum c xi y (x, 1), far_curve (d + 1, d + 1) sum c (x, 1)(x, 1)^T (0 x 0 where nobody asked),
    far_spread (1,) sum c ||x - z||^2 over it, z being the point around which its products were made.
    row_id (m,), row_x (m, d), row_sign (m,) int8, row_c (m,): the rows near the margin.
    histogram (2, bins) of margins; total_c (2,): sums of c of each class; below (1,): rows with margin below 1,
    below_c (1,): their sum of c. far_least (1,): the least |margin - 1| of far rows, of both sides.
    """

    losses: Array
    slack: Array
    squares: Array
    dual_sum: Array
    far_c: Array
    far_value: Array
    far_linear: Array
    far_slope: Array
    far_curve: Array
    far_spread: Array
    row_id: NDArray[np.int64]
    row_x: row_ops.Rows
    row_sign: NDArray[np.int8]
    row_c: Array
    histogram: NDArray[np.int64]
    total_c: Array
    below: NDArray[np.int64]
    below_c: Array
    far_least: Array

    @classmethod
    def nothing(cls, points: int, bins: int, rows: row_ops.Rows, *, curve: bool) -> NearMarginSummary:
        """The identity of ``merge``; rows (0, d): none, of the kind that will come."""
        features = rows.shape[1]
        p = features + 1
        return cls(
            losses=np.zeros(points), slack=np.zeros(2), squares=np.zeros(2), dual_sum=np.zeros((2, features)),
            far_c=np.zeros(1), far_value=np.zeros(1), far_linear=np.zeros(p), far_slope=np.zeros(p),
            far_curve=np.zeros((p, p) if curve else (0, 0)), far_spread=np.zeros(1),
            row_id=np.zeros(0, np.int64), row_x=rows, row_sign=np.zeros(0, np.int8), row_c=np.zeros(0),
            histogram=np.zeros((2, bins), np.int64), total_c=np.zeros(2),
            below=np.zeros(1, np.int64), below_c=np.zeros(1), far_least=np.full(1, np.inf),
        )  # fmt: skip

    def merge(self, later: NearMarginSummary) -> NearMarginSummary:
        """This answer and that of later blocks."""
        joined = {name: np.concatenate([getattr(self, name), getattr(later, name)]) for name in _LISTS}
        sums = {name: getattr(self, name) + getattr(later, name) for name in _SUMS}
        sums["far_least"] = np.minimum(self.far_least, later.far_least)
        return NearMarginSummary(row_x=row_ops.concatenate([self.row_x, later.row_x]), **joined, **sums)

    def with_rows(self, rows: row_ops.Rows) -> NearMarginSummary:
        """The same with these rows (m, d) for those that are near."""
        return replace(self, row_x=rows)

    def to_arrays(self) -> dict[str, NDArray[Any]]:
        """For checkpoints."""
        return state_to_arrays(self)

    @classmethod
    def from_arrays(cls, arrays: Mapping[str, NDArray[Any]]) -> NearMarginSummary:
        """Inverse of ``to_arrays``."""
        return cls(**state_from_arrays(cls, arrays, {"row_x": row_ops.from_arrays}))


_LISTS = ("row_id", "row_sign", "row_c")
_SUMS = tuple(f.name for f in fields(NearMarginSummary) if f.name not in (*_LISTS, "row_x", "far_least"))
