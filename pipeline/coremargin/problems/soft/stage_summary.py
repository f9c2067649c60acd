"""The answer to a question of a soft margin's first read: sums over far rows, and the rows near the margin."""

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
class StageSummary:
    """What the rows of some blocks say at a hypothesis; c is a row's C.

    Of far rows, a being the slope of a row's loss (``Loss.slopes``): value (1,) sum of losses, duals (2,) sum a,
    dual_sum (2, d + 1) sum a y (x, 1) of those that lose, of the positive (0) and of the negative class. rings (r, d +
    1, d + 1): of those in a ring (``StageProbe``), q being what they weigh there, sum q (x, 1)(x, 1)^T; ring_weight,
    ring_spread (r,) sum q, sum q ||x - z||^2, z being the point around which the products of a ring were made; least
    (1,) the least |margin - 1|; below (1,) how many lose; histogram (2, bins) of the margins of both classes.
    total_c (2,): sums of c of all rows of each class. row_id (m,), row_x (m, d), row_sign (m,) int8, row_c (m,): the
    rows near the margin.
    """

    value: Array
    duals: Array
    dual_sum: Array
    rings: Array
    ring_weight: Array
    ring_spread: Array
    least: Array
    below: NDArray[np.int64]
    histogram: NDArray[np.int64]
    total_c: Array
    row_id: NDArray[np.int64]
    row_x: row_ops.Rows
    row_sign: NDArray[np.int8]
    row_c: Array

    @classmethod
    def nothing(cls, rings: int, bins: int, rows: row_ops.Rows) -> StageSummary:
        """The identity of ``merge``; rows (0, d): none, of the kind that will come."""
        p = rows.shape[1] + 1
        return cls(
            value=np.zeros(1), duals=np.zeros(2), dual_sum=np.zeros((2, p)), rings=np.zeros((rings, p, p)),
            ring_weight=np.zeros(rings), ring_spread=np.zeros(rings), least=np.full(1, np.inf),
            below=np.zeros(1, np.int64), histogram=np.zeros((2, bins), np.int64),
            total_c=np.zeros(2), row_id=np.zeros(0, np.int64), row_x=rows, row_sign=np.zeros(0, np.int8),
            row_c=np.zeros(0),
        )  # fmt: skip

    def merge(self, later: StageSummary) -> StageSummary:
        """This answer and that of later blocks."""
        joined = {name: np.concatenate([getattr(self, name), getattr(later, name)]) for name in _LISTS}
        sums = {name: getattr(self, name) + getattr(later, name) for name in _SUMS}
        rows = row_ops.concatenate([self.row_x, later.row_x])
        return StageSummary(row_x=rows, least=np.minimum(self.least, later.least), **joined, **sums)

    def with_rows(self, rows: row_ops.Rows) -> StageSummary:
        """The same with these rows (m, d) for those that are near."""
        return replace(self, row_x=rows)

    def to_arrays(self) -> dict[str, NDArray[Any]]:
        """For checkpoints."""
        return state_to_arrays(self)

    @classmethod
    def from_arrays(cls, arrays: Mapping[str, NDArray[Any]]) -> StageSummary:
        """Inverse of ``to_arrays``."""
        return cls(**state_from_arrays(cls, arrays, {"row_x": row_ops.from_arrays}))


_LISTS = ("row_id", "row_sign", "row_c")
_SUMS = tuple(f.name for f in fields(StageSummary) if f.name not in (*_LISTS, "row_x", "least"))
