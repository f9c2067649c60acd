"""Chunking (Vapnik 1982) and Osuna's decomposition (Osuna, Freund, Girosi 1997), for a hard margin.

The working set is solved exactly; a scan finds the rows that violate its margin the most. Chunking keeps the rows with
a dual weight, drops all others, and adds a chunk of violating rows, so that its working set grows with the number of
support rows. Osuna's has a fixed size: violating rows take the place of rows without weight, those farthest from the
hyperplane first. Only if support rows and violating rows together are more than that, it has all of these. In both each
round lowers the upper bound, so that no working set returns.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np

from coremargin.maths.rows import as_float64
from coremargin.problems.common.sample import few_rows
from coremargin.problems.hard.strategies.strategy import Strategy

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from coremargin.data.source import Source
    from coremargin.maths.margin import Array
    from coremargin.problems.common.driver_rows import WorkingSet
    from coremargin.problems.common.sample import Sample
    from coremargin.problems.common.sent import SentRows
    from coremargin.problems.hard.probe import MarginSummary
    from coremargin.problems.hard.state import Hypothesis

#: Rows of a chunk, and of Osuna's working set; for many features, this many times their number.
ROWS, ROWS_A_FEATURE = 300, 4


@dataclass(frozen=True)
class ReducedSets(Strategy):
    """Keeps support rows and swaps violating rows in."""

    fixed_size: bool  #: Osuna's; else chunking

    reading = "a scan for each chunk of violating rows, often dozens"

    def rows_sent(self, source: Source, working_set_rows: int) -> int:
        """A chunk of each class."""
        return min(working_set_rows, 2 * max(ROWS, ROWS_A_FEATURE * source.features))

    def first(self, source: Source, codes: tuple[int, int]) -> Sample:
        """The first chunk: rows of both classes, without which all rows would have to leave again."""
        return few_rows(source, codes, max(ROWS, ROWS_A_FEATURE * source.features))

    def joining(self, summary: MarginSummary, newest: Hypothesis) -> SentRows:
        """The rows of the lowest margins, at most a chunk of them; all of them lie below the upper bound."""
        sent, size = summary.sent, max(ROWS, ROWS_A_FEATURE * len(newest.w))
        margins = sent.signs * (as_float64(sent.rows) @ newest.w + newest.b)
        lowest = np.lexsort([sent.ids, margins])[:size]
        return sent.where(np.isin(np.arange(len(sent)), lowest))

    def staying(self, working_set: WorkingSet, margins: Array, coming: int) -> NDArray[np.bool_]:
        """The rows with weight and, of a set of fixed size, those of the lowest margins that still have room."""
        stay = working_set.weights > 0
        if self.fixed_size:
            size = max(ROWS, ROWS_A_FEATURE * working_set.rows.shape[1])
            room = max(0, size - coming - int(stay.sum()))
            spare = np.flatnonzero(~stay)
            stay[spare[np.lexsort([working_set.ids[spare], margins[spare]])[:room]]] = True
        return stay
