"""The answer to a slab's question: how near the rows come to each hyperplane, and the nearest of them."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from coremargin.maths import rows as maths_rows
from coremargin.problems.common.state_arrays import state_from_arrays, state_to_arrays

if TYPE_CHECKING:
    from coremargin.maths.margin import Array

NO_ROW = np.iinfo(np.int64).max


@dataclass(frozen=True)
class SlabSummary:
    """What the rows of some blocks without an answer say about hyperplanes.

    nearest (k,): a lower bound on |w.x + b| of all of them, nearest_id (k,) the row that has it; homeless_id (1,): the
    first row that is given no class. sides (K + 1,) int64: how many are given each class, and none. row_id (m,), row_x
    (m, d): some of the nearest rows; drawn_id (t,), drawn_side (t,) int32: those of the rows drawn that are in these
    blocks, and the classes that they are given; held_id (h,), held_x (h, d): some of them.
    """

    nearest: Array
    nearest_id: NDArray[np.int64]
    homeless_id: NDArray[np.int64]
    sides: NDArray[np.int64]
    row_id: NDArray[np.int64]
    row_x: maths_rows.Rows
    drawn_id: NDArray[np.int64]
    drawn_side: NDArray[np.int32]
    held_id: NDArray[np.int64]
    held_x: maths_rows.Rows

    @classmethod
    def nothing(cls, planes: int, features: int, dtype: np.dtype[Any], *, sparse: bool = False) -> SlabSummary:
        """The identity of ``merge``."""
        none, rows = np.zeros(0, np.int64), maths_rows.nothing(features, dtype, sparse=sparse)
        sides, counts = np.zeros(0, np.int32), np.zeros(max(2, planes) + 1, np.int64)
        far, nobody = np.full(planes, np.inf), np.full(planes, NO_ROW)
        return cls(far, nobody, np.array([NO_ROW]), counts, none, rows, none, sides, none, rows)

    def merge(self, later: SlabSummary) -> SlabSummary:
        """This answer and that of later blocks; of equal distances the smaller row id has it."""
        mine = (self.nearest < later.nearest) | (
            (self.nearest == later.nearest) & (self.nearest_id <= later.nearest_id)
        )
        return SlabSummary(
            np.where(mine, self.nearest, later.nearest),
            np.where(mine, self.nearest_id, later.nearest_id),
            np.minimum(self.homeless_id, later.homeless_id),
            self.sides + later.sides,
            np.concatenate([self.row_id, later.row_id]),
            maths_rows.concatenate([self.row_x, later.row_x]),
            np.concatenate([self.drawn_id, later.drawn_id]),
            np.concatenate([self.drawn_side, later.drawn_side]),
            np.concatenate([self.held_id, later.held_id]),
            maths_rows.concatenate([self.held_x, later.held_x]),
        )

    def to_arrays(self) -> dict[str, NDArray[Any]]:
        """For checkpoints."""
        return state_to_arrays(self)

    @classmethod
    def from_arrays(cls, arrays: Mapping[str, NDArray[Any]]) -> SlabSummary:
        """Inverse of ``to_arrays``."""
        rows = maths_rows.from_arrays
        return cls(**state_from_arrays(cls, arrays, {"row_x": rows, "held_x": rows}))
