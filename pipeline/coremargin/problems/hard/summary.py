"""The answer to a margin probe: a few kilobytes a block, whatever the block holds."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from coremargin.problems.common.sent import SentRows
from coremargin.problems.common.stored import arrays_of, fields_of

if TYPE_CHECKING:
    from coremargin.maths.margin import Array
    from coremargin.maths.rows import Rows

NO_ROW = np.iinfo(np.int64).max


@dataclass(frozen=True)
class MarginSummary:
    """What the rows of some blocks say about k hypotheses; index 0 is the positive class, 1 the negative.

    smallest (2, k) float64: smallest y w.x, rounded down so that it is a proof; smallest_id (2, k) int64 its row.
    floor_chunk (c,) int64 and floor (c, 2) float64: for each chunk read, a lower bound on y w.x of hypothesis 0 over
    its rows that are neither in the pool nor ``sent``.
    sent: the rows worth having, in row order within a block.
    histogram (2, bins) int64 of the margins of hypothesis 0;
    below (1,) int64: rows whose margin at hypothesis 0 is below the upper bound, as far as the scan's precision tells.
    """

    smallest: Array
    smallest_id: NDArray[np.int64]
    floor_chunk: NDArray[np.int64]
    floor: Array
    sent: SentRows
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
            sent=SentRows.nothing(features, dtype, sparse=sparse),
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
            sent=self.sent.merge(later.sent),
            histogram=self.histogram + later.histogram,
            below=self.below + later.below,
        )

    @property
    def row_id(self) -> NDArray[np.int64]:
        """Of the rows that are sent."""
        return self.sent.ids

    def with_rows(self, rows: Rows) -> MarginSummary:
        """The same with these rows (m, d) for those that are sent."""
        return replace(self, sent=SentRows.of(self.sent.ids, rows, self.sent.signs))

    def to_arrays(self) -> dict[str, NDArray[Any]]:
        """For checkpoints."""
        return arrays_of(self)

    @classmethod
    def from_arrays(cls, arrays: Mapping[str, NDArray[Any]]) -> MarginSummary:
        """Inverse of ``to_arrays``."""
        return cls(**fields_of(cls, arrays, {"sent": SentRows.from_arrays}))
