"""The answer to a scan about several classes: the smallest margins or the losses, sums over far rows, and near rows."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
from numpy.typing import NDArray

from coremargin.problems.common.driver_rows import ClassRows
from coremargin.problems.common.state_arrays import state_from_arrays, state_to_arrays

Array = NDArray[np.float64]


@dataclass(frozen=True)
class ClassesSummary:
    """What the rows of some blocks say about k hypotheses on the segment from the best (0) to the newest (1).

    smallest (k,): the smallest margins, rounded down so that they are proofs, newest first. losses
    (k,): sum c max_r t_r. Far rows on the losing side at the newest: far_c (1,) sum c,
    far_linear (K, d + 1) sum c z, z being Kesler's vector of the row and its worst rival (0 x 0 for the hard margin).
    near: the rows that are sent. total_c (1,): sum c; confusion (K, K): rows of class i that are given class j;
    below (1,): rows with a margin below what was asked about.
    """

    smallest: Array
    losses: Array
    far_c: Array
    far_linear: Array
    near: ClassRows
    total_c: Array
    confusion: NDArray[np.int64]
    below: NDArray[np.int64]

    @classmethod
    def nothing(cls, points: int, classes: int, near: ClassRows, shape: tuple[int, int]) -> ClassesSummary:
        """The identity of ``merge``."""
        return cls(
            smallest=np.full(points, np.inf), losses=np.zeros(points),
            far_c=np.zeros(1), far_linear=np.zeros(shape), near=near, total_c=np.zeros(1),
            confusion=np.zeros((classes, classes), np.int64), below=np.zeros(1, np.int64),
        )  # fmt: skip

    def merge(self, later: ClassesSummary) -> ClassesSummary:
        """This answer and that of later blocks."""
        return ClassesSummary(
            smallest=np.minimum(self.smallest, later.smallest),
            near=ClassRows.concatenate([self.near, later.near]),
            **{name: getattr(self, name) + getattr(later, name) for name in _SUMS},
        )

    def less(self, gone: ClassesSummary) -> ClassesSummary:
        """This answer without rows that it was about, all of whose near ones are in ``gone``, which they answer alone.

        The smallest margins stay: without some rows they are bounds.
        """
        near = self.near.take(np.flatnonzero(np.isin(self.near.ids, gone.near.ids, invert=True)))
        # What is left after rounding of a sum that is nothing now is nothing.
        sums = {name: np.maximum(0, getattr(self, name) - getattr(gone, name)) for name in _SUMS if name != _LINEAR}
        return replace(self, near=near, far_linear=self.far_linear - gone.far_linear, **sums)

    def times(self, factor: float) -> ClassesSummary:
        """The answer where each row costs so many times as much."""
        return replace(self, **{name: factor * getattr(self, name) for name in _COSTS})

    def to_arrays(self) -> dict[str, NDArray[Any]]:
        """For checkpoints."""
        return state_to_arrays(self)

    @classmethod
    def from_arrays(cls, arrays: Mapping[str, NDArray[Any]]) -> ClassesSummary:
        """Inverse of ``to_arrays``."""
        return cls(**state_from_arrays(cls, arrays, {"near": ClassRows.from_arrays}))


_LINEAR = "far_linear"
_COSTS = ("losses", "far_c", _LINEAR, "total_c")
_SUMS = (*_COSTS, "confusion", "below")
