"""What a worker does with a chunk in a scan of a machine with a kernel. Plain functions on arrays."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from coremargin.maths.kernel.functions import TILE_ROWS
from coremargin.maths.kernel.machine import losses
from coremargin.models.brought import faults_named
from coremargin.problems.common.driver_rows import ClassRows, confusion_counts, read_labelled_rows
from coremargin.problems.kernel.chosen import chosen
from coremargin.problems.kernel.summary import KernelSummary

if TYPE_CHECKING:
    from coremargin.data.source import Source
    from coremargin.engine.protocols import Block
    from coremargin.maths.kernel.expansion import Expansions
    from coremargin.problems.kernel.columns import Columns

Array = NDArray[np.float64]

#: Decision values of so many rows and columns are there at a time.
VALUES = 1 << 22


@dataclass(frozen=True)
class KernelProbe:
    """The question of a scan: losses and margins of k columns, and which rows break them.

    machine: the functions of all columns.
    place: label code -> class; worth (k,): what a unit of loss in each column counts where rows are chosen, 0 of
    columns that are done. keep: rows to send of each chunk at most. known: ids of rows in the pool, sorted.
    """

    machine: Expansions
    columns: Columns
    place: NDArray[np.int32]
    worth: Array
    keep: int
    known: NDArray[np.int64]
    dtype: str
    sparse: bool
    chunk_rows: int

    def narrow(self, block: Block) -> KernelProbe:
        """The same question with the pool's ids in this block only."""
        first, stop = np.array([block.chunks[0], block.chunks[-1] + 1]) * self.chunk_rows
        return replace(self, known=self.known[np.searchsorted(self.known, first) : np.searchsorted(self.known, stop)])

    def empty(self) -> KernelSummary:
        """The answer for no rows."""
        none = ClassRows.nothing(self.machine.rows.shape[1], np.dtype(self.dtype), sparse=self.sparse)
        return KernelSummary.nothing(self.columns, none)

    def from_arrays(self, arrays: Mapping[str, NDArray[Any]]) -> KernelSummary:
        """A summary from a checkpoint."""
        return KernelSummary.from_arrays(arrays)

    def __call__(self, source: Source, block: Block) -> KernelSummary:
        """Answer for one block, chunk by chunk."""
        answer = self.empty()
        with faults_named(self.machine.kernels[0], f"{source.name}, rows of the pool"):
            _ = self.machine.points
        for chunk in block.chunks:
            data = read_labelled_rows(source, chunk, self.place)
            step = max(TILE_ROWS, VALUES // len(self.columns) // TILE_ROWS * TILE_ROWS)
            for first in range(0, len(data), step):
                part = data if len(data) <= step else data.take(np.arange(first, min(first + step, len(data))))
                with faults_named(self.machine.kernels[0], source.name, part.ids, chunk):
                    answer = answer.merge(self.ask(part, -(-self.keep * len(part) // len(data))))
        return answer

    def ask(self, data: ClassRows, keep: int) -> KernelSummary:
        """Answer for rows that count; keep: how many to send at most."""
        x = self.machine.kernels[0].points(data.rows)
        values, errors = self.machine.values(x), self.machine.errors(x)
        signs = self.columns.signs(data.classes, data.ids)
        margins = np.where(signs == 0, np.inf, signs * values) if self.columns.folds else signs * values
        slack = (1.0 - margins) + errors
        lost = losses(self.columns.loss, self.columns.costs(signs, data.shares), slack)
        with np.errstate(over="ignore", invalid="ignore"):
            scores = (np.maximum(slack - errors, 0.0) if self.columns.loss is None else lost) @ self.worth
            scores[np.isnan(scores)] = np.inf  # a loss that overflows, in a column that is done
        fresh = np.isin(data.ids, self.known, invert=True)
        broken = np.flatnonzero(fresh & (scores > 0))
        mine = broken[chosen(scores[broken], data.ids[broken], data.classes[broken], keep)]
        return KernelSummary(
            losses=lost.sum(axis=0), smallest=(margins - errors).min(axis=0),
            below=np.count_nonzero(margins < 1, axis=0), longest=np.array([x.longest]), sent=data.take(mine),
            scores=scores[mine],
            counted=np.array([len(data)]), broken=np.array([len(broken)]),
            confusion=self._confusion(data, values), undecided=self._undecided(data, values, errors),
        )  # fmt: skip

    def _confusion(self, data: ClassRows, values: Array) -> NDArray[np.int64]:
        """Rows (s, K, K) of class i that are given class j, by the functions of each setting."""
        columns = self.columns
        return np.stack([
            confusion_counts(data.classes[mine], given(values[mine, columns.of(number)]), columns.classes)
            for number, mine in enumerate(columns.judged(data.ids))
        ])  # fmt: skip

    def _undecided(self, data: ClassRows, values: Array, errors: Array) -> NDArray[np.int64]:
        """Rows (s,) whose class, by the functions of each setting, rounding decides."""
        columns = self.columns
        return np.array([
            np.count_nonzero(rounded(values[mine, columns.of(number)], errors[mine, columns.of(number)]))
            for number, mine in enumerate(columns.judged(data.ids))
        ])  # fmt: skip


def rounded(values: Array, errors: Array) -> NDArray[np.bool_]:
    """Where (n,) values (n, k) that are off by no more than ``errors`` may name another class than they do."""
    if values.shape[1] == 1:
        return np.asarray(~(np.abs(values[:, 0]) > errors[:, 0]))
    best = np.arange(len(values)), values.argmax(axis=1)
    others = values + errors
    others[best] = -np.inf
    return np.asarray(~(others.max(axis=1) < values[best] - errors[best]))


def given(values: Array) -> NDArray[np.intp]:
    """The classes (n,) that values (n, k) name."""
    return np.asarray((values[:, 0] > 0) if values.shape[1] == 1 else values.argmax(axis=1), np.intp)
