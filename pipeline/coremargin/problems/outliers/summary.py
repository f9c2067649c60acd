"""The answer to a probe of outliers: the lowest rows of each class under each direction, whatever the block holds."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, fields
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

if TYPE_CHECKING:
    from coremargin.maths.margin import Array

NO_ROW = np.iinfo(np.int64).max


@dataclass(frozen=True)
class OutlierSummary:
    """What the rows of some blocks say about m directions; index 0 is the positive class, 1 the negative.

    values (2, m, keep) float64: the smallest y w.x in increasing order, rounded down so that they are proofs, inf where
    there are fewer rows; ids (2, m, keep) int64: whose they are. row_id (r,) increasing, row_x (r, d) float64, row_sign
    (r,) int8: these rows, but for those that the question said are known.
    histogram (2, bins) int64 of the margins of direction 0. floor_chunk (c,) int64 and floor (c, 2) float64: for each
    chunk read, a lower bound on y w.x of direction 0 over its rows but for the ``keep`` lowest of each class in it.
    """

    values: Array
    ids: NDArray[np.int64]
    row_id: NDArray[np.int64]
    row_x: Array
    row_sign: NDArray[np.int8]
    histogram: NDArray[np.int64]
    floor_chunk: NDArray[np.int64]
    floor: Array

    @classmethod
    def nothing(cls, directions: int, keep: int, features: int, bins: int) -> OutlierSummary:
        """The identity of ``merge``."""
        return cls(
            values=np.full((2, directions, keep), np.inf),
            ids=np.full((2, directions, keep), NO_ROW),
            row_id=np.zeros(0, np.int64),
            row_x=np.zeros((0, features)),
            row_sign=np.zeros(0, np.int8),
            histogram=np.zeros((2, bins), np.int64),
            floor_chunk=np.zeros(0, np.int64),
            floor=np.zeros((0, 2)),
        )

    def merge(self, later: OutlierSummary) -> OutlierSummary:
        """This answer and that of later blocks: the lowest of both, of equal values those of smaller row ids."""
        values, ids = lowest_of(
            np.concatenate([self.values, later.values], axis=2), np.concatenate([self.ids, later.ids], axis=2),
            self.values.shape[2],
        )  # fmt: skip
        row_id = np.concatenate([self.row_id, later.row_id])
        kept = np.flatnonzero(np.isin(row_id, ids))
        kept = kept[np.argsort(row_id[kept], kind="stable")]
        return OutlierSummary(
            values=values,
            ids=ids,
            row_id=row_id[kept],
            row_x=np.concatenate([self.row_x, later.row_x])[kept],
            row_sign=np.concatenate([self.row_sign, later.row_sign])[kept],
            histogram=self.histogram + later.histogram,
            floor_chunk=np.concatenate([self.floor_chunk, later.floor_chunk]),
            floor=np.concatenate([self.floor, later.floor]),
        )

    def lowest(self, direction: int) -> tuple[Array, Array]:
        """The smallest values of both classes under one direction, as far as there are rows."""
        positive, negative = (self.values[k, direction] for k in range(2))
        return positive[np.isfinite(positive) | (positive == -np.inf)], negative[
            np.isfinite(negative) | (negative == -np.inf)
        ]

    @property
    def floors(self) -> Array:
        """Lower bounds (c, 2) on y w.x of direction 0 over the rows of each chunk read that are not handed out."""
        return np.asarray(np.minimum(self.floor, self.values[:, 0, -1]))

    def to_arrays(self) -> dict[str, NDArray[Any]]:
        """For checkpoints."""
        return {f.name: getattr(self, f.name) for f in fields(self)}

    @classmethod
    def from_arrays(cls, arrays: Mapping[str, NDArray[Any]]) -> OutlierSummary:
        """Inverse of ``to_arrays``."""
        return cls(**{f.name: arrays[f.name] for f in fields(cls)})


def lowest_of(values: Array, ids: NDArray[np.int64], keep: int) -> tuple[Array, NDArray[np.int64]]:
    """The ``keep`` lowest along the last axis, in order of value, then id."""
    order = np.lexsort((ids, values), axis=-1)[..., :keep]
    return np.take_along_axis(values, order, -1), np.take_along_axis(ids, order, -1)
