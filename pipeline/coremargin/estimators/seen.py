"""What batches have brought: the rows that the answer was learnt from, and those that wait to be learnt from.

Taking a batch in costs what it brings: what is asked of all that wait are sums, to which it adds its own. Rows wait in
parts, of which as many as ``MANY`` of about one size become one, so that however many batches come there are few parts,
and each row is copied log(batches) / log(MANY) times, and once more to learn.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from functools import cached_property
from typing import TYPE_CHECKING, Any

import numpy as np

from coremargin.estimators.history import History, most_rows, padded
from coremargin.estimators.support import positives
from coremargin.maths.rows import is_sparse
from coremargin.problems.common.classes import check_class_c, check_longest

if TYPE_CHECKING:
    from collections.abc import Sequence

    from numpy.typing import NDArray

    from coremargin.formats.columns import ColumnsRecord

#: So many parts of about one size are joined.
MANY = 256


@dataclass(frozen=True)
class Sums:
    """Of rows that are kept: how many, the values they store, the longest of them, and their weight by class (k,)."""

    rows: int
    values: int
    longest: float
    weights: NDArray[np.float64]

    @classmethod
    def of(cls, history: History) -> Sums:
        """Of those that a history keeps."""
        rows = history.rows
        values = int(rows.nnz if is_sparse(rows) else rows.size)
        return cls(len(history.ids), values, history.radius, history.weights_of_classes)

    def __add__(self, other: Sums) -> Sums:
        """Of both."""
        classes = max(len(self.weights), len(other.weights))
        return Sums(
            self.rows + other.rows,
            self.values + other.values,
            max(self.longest, other.longest),
            padded(self.weights, classes) + padded(other.weights, classes),
        )


@dataclass(frozen=True)
class Seen:
    """terms: the parameters that the proof of all rows rests on; columns: what the features come from.

    declared: the labels that there may be, in order; rows of some may yet have to come.
    history: of the rows that were learnt from, None before the first time; waiting: batches that came since; sums: of
    both, None before the first.
    """

    terms: Mapping[str, Any]
    columns: ColumnsRecord | None
    declared: tuple[Any, ...]
    history: History | None = None
    waiting: tuple[History, ...] = ()
    sums: Sums | None = None

    @cached_property
    def parts(self) -> tuple[History, ...]:
        """All of it, in order; the first one tells what all have in common."""
        return self.waiting if self.history is None else (self.history, *self.waiting)

    @property
    def classes(self) -> tuple[Any, ...]:
        """The labels that rows had so far, by code."""
        return self.parts[-1].classes if self.parts else ()

    @property
    def present(self) -> list[int]:
        """Codes of those that have rows of a weight above 0, in the order of their labels."""
        found = np.flatnonzero(self._known.weights).tolist()
        if self.history is not None:  # rows that were let go count as well
            found = sorted({*found, *self.history.present})
        return sorted(found, key=self.classes.__getitem__)

    @property
    def rows(self) -> int:
        """How many are kept."""
        return self._known.rows

    def describe_missing(self) -> str:
        """Which classes have no rows yet."""
        found = {self.classes[code] for code in self.present}
        missing = ", ".join(repr(label) for label in self.declared if label not in found)
        return f"expected rows of two classes, partial_fit has had none of {missing} yet"

    def then(self, batch: History) -> Seen:
        """With a batch that waits. Of many that do some are joined: few are counted, no row is copied often."""
        waiting = (*self.waiting, batch)
        while len(waiting) >= MANY and waiting[-MANY].seen < MANY * waiting[-1].seen:
            waiting = (*waiting[:-MANY], History.joined(waiting[-MANY:]))
        own = Sums.of(batch)
        return replace(self, waiting=waiting, sums=own if self.sums is None else self.sums + own)

    def learnt(self, history: History) -> Seen:
        """Once all of it was learnt from, and this is kept."""
        return replace(self, history=history, waiting=(), sums=Sums.of(history))

    def whole(self) -> History:
        """The history of all of it."""
        return History.joined(self.parts)

    def fits(self, memory_bytes: int) -> bool:
        """Whether so much memory holds the rows kept, in float64."""
        found = self._known
        most = most_rows(found.rows, found.values, memory_bytes, sparse=is_sparse(self.parts[0].rows))
        return found.rows <= most

    def check(self, class_c: Sequence[NDArray[np.float64]] | None) -> None:
        """Refuse rows that no training takes, before they wait for one.

        class_c (2,) of the sides of each problem, None while there is none. Raises BadRow, UsageError.
        """
        check_longest("X", self._known.longest)
        if class_c is None:
            return
        totals = self._known.weights
        for positive, sides in zip(positives(self.present), class_c, strict=True):
            check_class_c("X", sides, np.array([totals[positive], totals.sum() - totals[positive]]))

    @property
    def _known(self) -> Sums:
        assert self.sums is not None  # noqa: S101 - for the type checker: there is a batch
        return self.sums
