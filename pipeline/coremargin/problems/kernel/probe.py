"""What a worker does with a block: decision values, losses, margins, and the candidates for the working set."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from coremargin.maths.kernel.functions import TILE_ROWS
from coremargin.maths.kernel.machine import weighted_losses
from coremargin.models.user_kernel import faults_named
from coremargin.problems.common.driver_rows import ClassRows, confusion_counts, predicted_classes, read_labelled_rows
from coremargin.problems.common.state_arrays import state_from_arrays, state_to_arrays
from coremargin.problems.kernel.working_set import select_candidates

if TYPE_CHECKING:
    from coremargin.data.source import Source
    from coremargin.engine.protocols import Block
    from coremargin.maths.kernel.expansion import Expansions
    from coremargin.problems.kernel.columns import Columns

Array = NDArray[np.float64]

#: Decision values, rows times columns, that are in memory at a time.
VALUES = 1 << 22


@dataclass(frozen=True)
class KernelSummary:
    """What the rows of some blocks mean for k columns and s settings.

    losses (s, k): sums of c loss at each scale of the functions, of slacks rounded up. smallest (k,): the smallest
    margin y (f(x) + b), rounded down. widest (k,): the largest |f(x) + b|, rounded up. below (k,): rows with margins
    below 1. longest (1,): the largest length of a row, as points have it. sent, scores (m,): candidates, and by how
    much they violate their columns. counted (1,): rows. broken (1,): rows that violate a column, sent or not. confusion
    (s, K, K): of each setting, rows of class i that are predicted as class j. undecided (s,): rows whose predicted
    class depends on rounding.
    """

    losses: Array
    smallest: Array
    widest: Array
    below: NDArray[np.int64]
    longest: Array
    sent: ClassRows
    scores: Array
    counted: NDArray[np.int64]
    broken: NDArray[np.int64]
    confusion: NDArray[np.int64]
    undecided: NDArray[np.int64]

    @classmethod
    def empty(cls, columns: Columns, scales: int, sent: ClassRows) -> KernelSummary:
        """The identity of ``merge``; sent: no rows, of the type of those that will come."""
        k, classes = len(columns), columns.classes
        return cls(
            losses=np.zeros((scales, k)),
            smallest=np.full(k, np.inf),
            widest=np.zeros(k),
            below=np.zeros(k, np.int64),
            longest=np.zeros(1),
            sent=sent,
            scores=np.zeros(0),
            counted=np.zeros(1, np.int64),
            broken=np.zeros(1, np.int64),
            confusion=np.zeros((len(columns.settings), classes, classes), np.int64),
            undecided=np.zeros(len(columns.settings), np.int64),
        )

    def of_setting(self, number: int) -> KernelSummary:
        """That of one of several settings of two classes, without candidates."""
        k = slice(number, number + 1)
        return replace(
            self,
            losses=self.losses[:, k],
            smallest=self.smallest[k],
            widest=self.widest[k],
            below=self.below[k],
            sent=self.sent.take(np.arange(0)),
            scores=np.zeros(0),
            confusion=self.confusion[k],
            undecided=self.undecided[k],
        )

    def merge(self, later: KernelSummary) -> KernelSummary:
        """The summary of these blocks and later ones."""
        return KernelSummary(
            losses=self.losses + later.losses,
            smallest=np.minimum(self.smallest, later.smallest),
            widest=np.maximum(self.widest, later.widest),
            below=self.below + later.below,
            longest=np.maximum(self.longest, later.longest),
            sent=ClassRows.concatenate([self.sent, later.sent]),
            scores=np.concatenate([self.scores, later.scores]),
            counted=self.counted + later.counted,
            broken=self.broken + later.broken,
            confusion=self.confusion + later.confusion,
            undecided=self.undecided + later.undecided,
        )

    def to_arrays(self) -> dict[str, NDArray[Any]]:
        """Plain arrays for checkpoints."""
        return state_to_arrays(self)

    @classmethod
    def from_arrays(cls, arrays: Mapping[str, NDArray[Any]]) -> KernelSummary:
        """Inverse of ``to_arrays``."""
        return cls(**state_from_arrays(cls, arrays, {"sent": ClassRows.from_arrays}))


@dataclass(frozen=True)
class KernelProbe:
    """The query of a scan: the decision functions of all columns, and how candidates are chosen.

    scales (s,): of the functions whose losses are summed, the first of them 1. class_of: label code -> class. worth
    (k,): the weight of a column's losses in the scores of candidates, 0 for columns that are done; excess_worth (k,):
    that of the share by which a row exceeds the bound of a relative margin. keep: the most candidates of a chunk.
    known: sorted ids of the working set. level, first_only: of a hard margin, the margin below which a row is a
    candidate, and whether the first such row is the only one.
    """

    expansions: Expansions
    columns: Columns
    scales: Array
    class_of: NDArray[np.int32]
    worth: Array
    excess_worth: Array
    keep: int
    known: NDArray[np.int64]
    dtype: str
    sparse: bool
    chunk_rows: int
    level: float = 1.0
    first_only: bool = False

    def narrow(self, block: Block) -> KernelProbe:
        """The same query with only the ids of the working set that lie in this block."""
        first, stop = np.array([block.chunks[0], block.chunks[-1] + 1]) * self.chunk_rows
        return replace(self, known=self.known[np.searchsorted(self.known, first) : np.searchsorted(self.known, stop)])

    def empty(self) -> KernelSummary:
        """The summary of no rows."""
        no_rows = ClassRows.nothing(self.expansions.rows.shape[1], np.dtype(self.dtype), sparse=self.sparse)
        return KernelSummary.empty(self.columns, len(self.scales), no_rows)

    def from_arrays(self, arrays: Mapping[str, NDArray[Any]]) -> KernelSummary:
        """A summary from a checkpoint."""
        return KernelSummary.from_arrays(arrays)

    def __call__(self, source: Source, block: Block) -> KernelSummary:
        """The summary of a block, chunk by chunk. Raises UsageError for faults of a user-defined kernel."""
        summary = self.empty()
        with faults_named(self.expansions.kernels[0], f"{source.name}, rows of the working set"):
            _ = self.expansions.points
        for chunk in block.chunks:
            data = read_labelled_rows(source, chunk, self.class_of)
            summary = self.with_chunk(summary, data, source.name, chunk)
        return summary

    def with_chunk(self, summary: KernelSummary, data: ClassRows, name: str, chunk: int) -> KernelSummary:
        """A summary with the labelled rows of one chunk more. Raises UsageError for faults of a user-defined kernel."""
        step = max(TILE_ROWS, VALUES // len(self.columns) // TILE_ROWS * TILE_ROWS)
        for first in range(0, len(data), step):
            part = data if len(data) <= step else data.take(np.arange(first, min(first + step, len(data))))
            with faults_named(self.expansions.kernels[0], name, part.ids, chunk):
                summary = summary.merge(self._summarise(part, -(-self.keep * len(part) // len(data))))
        return summary

    def _summarise(self, data: ClassRows, keep: int) -> KernelSummary:
        """The summary of some labelled rows; keep: the most candidates among them."""
        columns = self.columns
        x = self.expansions.kernels[0].points(data.rows)
        values, errors = self.expansions.values(x), self.expansions.errors(x)
        signs = columns.signs(data.classes, data.ids)
        margins = signs * values if columns.has_all_rows else np.where(signs == 0, np.inf, signs * values)
        slack, costs = (1.0 - margins) + errors, columns.costs(signs, data.shares)
        lost, widest = weighted_losses(columns.loss, costs, slack), np.where(signs == 0, 0.0, np.abs(values))
        with np.errstate(over="ignore", invalid="ignore"):
            short = np.maximum(slack - errors - (1.0 - self.level), 0.0)
            scores = (short if columns.loss is None else lost) @ self.worth
            if np.isfinite(columns.bound):
                scores += np.maximum(widest / columns.bound - 1.0, 0.0) @ self.excess_worth
            scores[np.isnan(scores)] = np.inf  # a loss that overflows, in a column that is done
        scaled = [weighted_losses(columns.loss, costs, (1.0 - scale * margins) + errors) for scale in self.scales[1:]]
        new = np.isin(data.ids, self.known, invert=True)
        broken = np.flatnonzero(new & (scores > 0))
        if self.first_only:
            mine = broken[:1]
        else:
            mine = broken[select_candidates(scores[broken], data.ids[broken], data.classes[broken], keep)]
        confusion, undecided = [], []
        for number, rows in enumerate(columns.evaluated_rows(data.ids)):
            own = values[rows, columns.of_setting(number)]
            confusion.append(confusion_counts(data.classes[rows], predicted_classes(own), columns.classes))
            undecided.append(np.count_nonzero(undecided_rows(own, errors[rows, columns.of_setting(number)])))
        return KernelSummary(
            losses=np.stack([each.sum(axis=0) for each in (lost, *scaled)]),
            smallest=(margins - errors).min(axis=0),
            widest=np.where(signs == 0, 0.0, widest + errors).max(axis=0),
            below=np.count_nonzero(margins < 1, axis=0),
            longest=np.array([x.longest]),
            sent=data.take(mine),
            scores=scores[mine],
            counted=np.array([len(data)]),
            broken=np.array([len(broken)]),
            confusion=np.stack(confusion),
            undecided=np.array(undecided),
        )


def undecided_rows(values: Array, errors: Array) -> NDArray[np.bool_]:
    """Rows (n,) whose decision values (n, k) may name another class within their errors (n, k)."""
    if values.shape[1] == 1:
        return np.asarray(~(np.abs(values[:, 0]) > errors[:, 0]))
    best = np.arange(len(values)), values.argmax(axis=1)
    others = values + errors
    others[best] = -np.inf
    return np.asarray(~(others.max(axis=1) < values[best] - errors[best]))
