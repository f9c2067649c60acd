"""Figure 1 of Har-Peled, Roth, Zimak (2006): one example to start, the worst example of each scan."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from coremargin.maths.rows import as_float64, take
from coremargin.problems.hard.strategies.strategy import Found, Strategy

if TYPE_CHECKING:
    from coremargin.data.source import Source
    from coremargin.problems.hard.state import Hypothesis
    from coremargin.problems.hard.summary import MarginSummary


class Paper(Strategy):
    """The figure in memory is ``maths/coreset_svm.py``: tests hold the two against each other."""

    def rows_sent(self, source: Source, pool_rows: int) -> int:
        """One of each class and block: the worst of all is among them."""
        return 1

    def joining(self, summary: MarginSummary, newest: Hypothesis) -> Found:
        """The example with the least margin, of equal ones the first."""
        ids, rows, signs = summary.row_id, summary.row_x, summary.row_sign
        margins = signs * (as_float64(rows) @ newest.w + newest.b)
        worst = np.lexsort([ids, margins])[:1]
        return ids[worst], take(rows, worst), signs[worst]
