"""The answer to a scan of a machine with a kernel: losses, smallest margins, and rows that break the hypothesis."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from coremargin.problems.common.driver_rows import ClassRows
from coremargin.problems.common.state_arrays import state_from_arrays, state_to_arrays

if TYPE_CHECKING:
    from coremargin.problems.kernel.columns import Columns

Array = NDArray[np.float64]


@dataclass(frozen=True)
class KernelSummary:
    """What the rows of some blocks say about k columns.

    losses (k,): sums of c loss, of slacks rounded up; smallest (k,): the smallest y (f(x) + b), rounded down; below
    (k,): rows with margins below 1. longest (1,): the largest length of a row, as points have it. sent: rows that break
    a column, scores (m,): by how much. counted (1,): rows; broken (1,): how many break a column, sent or not. confusion
    (s, K, K): of each setting rows of class i that are given class j; undecided (s,): rows whose class
    rounding decides.
    """

    losses: Array
    smallest: Array
    below: NDArray[np.int64]
    longest: Array
    sent: ClassRows
    scores: Array
    counted: NDArray[np.int64]
    broken: NDArray[np.int64]
    confusion: NDArray[np.int64]
    undecided: NDArray[np.int64]

    @classmethod
    def nothing(cls, columns: Columns, sent: ClassRows) -> KernelSummary:
        """The identity of ``merge``; sent: no rows, of the kind of those that will come."""
        k, classes = len(columns), columns.classes
        return cls(
            losses=np.zeros(k), smallest=np.full(k, np.inf), below=np.zeros(k, np.int64), longest=np.zeros(1),
            sent=sent, scores=np.zeros(0), counted=np.zeros(1, np.int64), broken=np.zeros(1, np.int64),
            confusion=np.zeros((len(columns.settings), classes, classes), np.int64),
            undecided=np.zeros(len(columns.settings), np.int64),
        )  # fmt: skip

    def merge(self, later: KernelSummary) -> KernelSummary:
        """This answer and that of later blocks."""
        return KernelSummary(
            smallest=np.minimum(self.smallest, later.smallest), longest=np.maximum(self.longest, later.longest),
            sent=ClassRows.concatenate([self.sent, later.sent]), scores=np.concatenate([self.scores, later.scores]),
            **{name: getattr(self, name) + getattr(later, name) for name in _SUMS},
        )  # fmt: skip

    def to_arrays(self) -> dict[str, NDArray[Any]]:
        """For checkpoints."""
        return state_to_arrays(self)

    @classmethod
    def from_arrays(cls, arrays: Mapping[str, NDArray[Any]]) -> KernelSummary:
        """Inverse of ``to_arrays``."""
        return cls(**state_from_arrays(cls, arrays, {"sent": ClassRows.from_arrays}))


_SUMS = ("losses", "below", "counted", "broken", "confusion", "undecided")
