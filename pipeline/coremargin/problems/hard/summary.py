"""The answer to a margin probe: a few kilobytes a block, whatever the block holds."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from coremargin.maths import rows as maths_rows
from coremargin.problems.common.stored import arrays_of, fields_of

if TYPE_CHECKING:
    from coremargin.maths.margin import Array

NO_ROW = np.iinfo(np.int64).max


@dataclass(frozen=True)
class MarginSummary:
    """What the rows of some blocks say about k hypotheses; index 0 is the positive class, 1 the negative.

    smallest (2, k) float64: smallest y w.x, rounded down so that it is a proof; smallest_id (2, k) int64 its row.
    floor_chunk (c,) int64 and floor (c, 2) float64: for each chunk read, a lower bound on y w.x of hypothesis 0 over
    its rows that are neither in the pool nor among ``row_id``.
    row_id (m,), row_x (m, d), row_sign (m,) int8: the rows worth having, in row order within a block.
    histogram (2, bins) int64 of the margins of hypothesis 0;
    below (1,) int64: rows whose margin at hypothesis 0 is below the upper bound, as far as the scan's precision tells.
    """

    smallest: Array
    smallest_id: NDArray[np.int64]
    floor_chunk: NDArray[np.int64]
    floor: Array
    row_id: NDArray[np.int64]
    row_x: maths_rows.Rows
    row_sign: NDArray[np.int8]
    histogram: NDArray[np.int64]
    below: NDArray[np.int64]

    @classmethod
    def nothing(
        cls, hypotheses: int, features: int, dtype: np.dtype[Any], bins: int, *, sparse: bool = False
    ) -> MarginSummary:
        """The identity of ``merge``."""
        return cls(
            smallest=np.full((2, hypotheses), np.inf),
            smallest_id=np.full((2, hypotheses), NO_ROW),
            floor_chunk=np.zeros(0, np.int64),
            floor=np.zeros((0, 2)),
            row_id=np.zeros(0, np.int64),
            row_x=maths_rows.nothing(features, dtype, sparse=sparse),
            row_sign=np.zeros(0, np.int8),
            histogram=np.zeros((2, bins), np.int64),
            below=np.zeros(1, np.int64),
        )

    def merge(self, later: MarginSummary) -> MarginSummary:
        """This answer and that of later blocks. Ties between smallest values go to the smaller row id."""
        mine = (self.smallest < later.smallest) | (
            (self.smallest == later.smallest) & (self.smallest_id <= later.smallest_id)
        )
        return MarginSummary(
            smallest=np.where(mine, self.smallest, later.smallest),
            smallest_id=np.where(mine, self.smallest_id, later.smallest_id),
            floor_chunk=np.concatenate([self.floor_chunk, later.floor_chunk]),
            floor=np.concatenate([self.floor, later.floor]),
            row_id=np.concatenate([self.row_id, later.row_id]),
            row_x=maths_rows.concatenate([self.row_x, later.row_x]),
            row_sign=np.concatenate([self.row_sign, later.row_sign]),
            histogram=self.histogram + later.histogram,
            below=self.below + later.below,
        )

    def to_arrays(self) -> dict[str, NDArray[Any]]:
        """For checkpoints."""
        return arrays_of(self)

    @classmethod
    def from_arrays(cls, arrays: Mapping[str, NDArray[Any]]) -> MarginSummary:
        """Inverse of ``to_arrays``."""
        return cls(**fields_of(cls, arrays, {"row_x": maths_rows.from_arrays}))
