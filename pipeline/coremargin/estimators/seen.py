"""What batches have brought: the rows that the answer was learnt from, and those that wait to be learnt from.

Taking a batch in costs what it brings. Rows wait in parts, of which as many as ``MANY`` of about one size become one:
what is asked of all parts stays cheap, and each row is copied log(batches) / log(MANY) times, and once more to learn.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from functools import cached_property
from typing import TYPE_CHECKING, Any

import numpy as np

from coremargin.estimators.history import History, most_rows
from coremargin.maths.rows import is_sparse
from coremargin.problems.common.start import check_class_c, check_longest

if TYPE_CHECKING:
    from collections.abc import Sequence

    from numpy.typing import NDArray

    from coremargin.formats.columns import ColumnsRecord

#: So many parts of about one size are joined.
MANY = 32


@dataclass(frozen=True)
class Seen:
    """terms: the parameters that the proof of all rows rests on; columns: what the features come from.

    history: of the rows that were learnt from, None before the first time; waiting: batches that came since.
    """

    terms: Mapping[str, Any]
    columns: ColumnsRecord | None
    history: History | None
    waiting: tuple[History, ...] = ()

    @cached_property
    def parts(self) -> tuple[History, ...]:
        """All of it, in order; the first one tells what all have in common."""
        return self.waiting if self.history is None else (self.history, *self.waiting)

    def then(self, batch: History) -> Seen:
        """With a batch that waits. Of many that do some are joined: few are counted, no row is copied often."""
        waiting = (*self.waiting, batch)
        while len(waiting) >= MANY and waiting[-MANY].seen < MANY * waiting[-1].seen:
            waiting = (*waiting[:-MANY], History.joined(waiting[-MANY:]))
        return replace(self, waiting=waiting)

    def whole(self) -> History:
        """The history of all of it."""
        return History.joined(self.parts)

    def fits(self, memory_bytes: int) -> bool:
        """Whether so much memory holds the rows kept, in float64."""
        values = sum(part.rows.nnz if is_sparse(part.rows) else part.rows.size for part in self.parts)
        rows = sum(len(part.ids) for part in self.parts)
        return rows <= most_rows(rows, values, memory_bytes, sparse=is_sparse(self.parts[0].rows))

    def check(self, class_c: Sequence[NDArray[np.float64]]) -> None:
        """Refuse rows that no training takes, before they wait for one; class_c (2,) of the sides of each problem.

        Raises BadRow, UsageError.
        """
        first = self.parts[0]
        check_longest("X", max(part.radius for part in self.parts))
        totals = np.sum([part.weights_of_classes for part in self.parts], axis=0)
        for positive, sides in zip(first.positives, class_c, strict=True):
            check_class_c("X", sides, np.array([totals[positive], totals.sum() - totals[positive]]))
