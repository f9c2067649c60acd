"""What a scan of all rows says of functions and of smaller ones in their place: how far apart, what these are worth."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np
from numpy.typing import NDArray

from coremargin.maths.kernel.machine import losses
from coremargin.models.brought import faults_named
from coremargin.problems.common.driver_rows import ClassRows, confusion_counts, read_labelled_rows
from coremargin.problems.kernel.probe import given

if TYPE_CHECKING:
    from coremargin.data.source import Source
    from coremargin.engine.protocols import Block
    from coremargin.maths.kernel.expansion import Expansion
    from coremargin.problems.kernel.columns import Columns

Array = NDArray[np.float64]


@dataclass(frozen=True)
class Compared:
    """Of some rows. losses (k,), smallest (k,), confusion (K, K): as of ``KernelSummary``, of the smaller functions.

    distance: the largest |f - f'| of a row and a column, rounded up; changed: rows whose class may be another one,
    whatever rounding does; rows: how many there are; longest: the largest length of one, as points have it.
    """

    losses: Array
    smallest: Array
    confusion: NDArray[np.int64]
    distance: float
    changed: int
    rows: int
    longest: float

    @classmethod
    def nothing(cls, columns: int, classes: int) -> Compared:
        """Of no row."""
        return cls(np.zeros(columns), np.full(columns, np.inf), np.zeros((classes, classes), np.int64), 0.0, 0, 0, 0.0)

    def merge(self, later: Compared) -> Compared:
        """Of these rows and later ones."""
        return Compared(
            losses=self.losses + later.losses, smallest=np.minimum(self.smallest, later.smallest),
            confusion=self.confusion + later.confusion, distance=float(np.maximum(self.distance, later.distance)),
            changed=self.changed + later.changed, rows=self.rows + later.rows,
            longest=max(self.longest, later.longest),
        )  # fmt: skip


@dataclass(frozen=True)
class Compare:
    """The question. both: of 2 k columns on the same rows the smaller functions, then the whole ones."""

    both: Expansion
    columns: Columns
    place: NDArray[np.int32]

    def __call__(self, source: Source, block: Block) -> Compared:
        """Of the rows of a block that count."""
        answer = Compared.nothing(len(self.columns), self.columns.classes)
        for chunk in block.chunks:
            rows = read_labelled_rows(source, chunk, self.place)
            if len(rows):
                with faults_named(self.both.kernel, source.name, rows.ids, chunk):
                    answer = answer.merge(self._of(rows))
        return answer

    def _of(self, rows: ClassRows) -> Compared:
        x, k = self.both.kernel.points(rows.rows), len(self.columns)
        values, errors = self.both.values(x), self.both.errors(x)
        small, whole = (values[:, :k], errors[:, :k]), (values[:, k:], errors[:, k:])
        signs = self.columns.signs(rows.classes, rows.ids)
        margins = signs * small[0] - small[1]
        lost = losses(self.columns.loss, self.columns.costs(signs, rows.shares), 1.0 - margins)
        apart = np.abs(small[0] - whole[0]) + small[1] + whole[1]
        now, before = _certain(*small), _certain(*whole)
        return Compared(
            losses=lost.sum(axis=0), smallest=margins.min(axis=0),
            confusion=confusion_counts(rows.classes, given(small[0]), self.columns.classes),
            distance=float(apart.max()),
            changed=int(np.count_nonzero((now != before) | (now < 0))), rows=len(rows), longest=x.longest,
        )  # fmt: skip


def _certain(values: Array, errors: Array) -> NDArray[np.intp]:
    """The classes (n,) that values (n, k) name, whatever they are within errors; -1 where these leave it open."""
    if values.shape[1] == 1:
        found = np.where(values > errors, 1, np.where(values < -errors, 0, -1))
        return np.asarray(found[:, 0], np.intp)
    own, rows = values.argmax(axis=1), np.arange(len(values))
    others = values + errors
    others[rows, own] = -np.inf
    return np.where((values - errors)[rows, own] > others.max(axis=1), own, -1)
