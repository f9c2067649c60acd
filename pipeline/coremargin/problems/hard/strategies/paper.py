"""Figure 1 of Har-Peled, Roth, Zimak (2006): one example to start, the worst example of each scan."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from coremargin.maths.rows import as_float64
from coremargin.problems.hard.strategies.strategy import Strategy

if TYPE_CHECKING:
    from coremargin.data.source import Source
    from coremargin.problems.common.sent import SentRows
    from coremargin.problems.hard.probe import MarginSummary
    from coremargin.problems.hard.state import Hypothesis


class Paper(Strategy):
    """The figure for data in memory is ``maths/coreset_svm.py``: tests compare the two."""

    reading = "a scan for each row that is added, often hundreds"

    def rows_sent(self, source: Source, working_set_rows: int) -> int:
        """One of each class and block: the worst of all is among them."""
        return 1

    def joining(self, summary: MarginSummary, newest: Hypothesis) -> SentRows:
        """The example with the least margin, of equal ones the first."""
        sent = summary.sent
        margins = sent.signs * (as_float64(sent.rows) @ newest.w + newest.b)
        worst = np.lexsort([sent.ids, margins])[:1]
        return sent.where(np.isin(np.arange(len(sent)), worst))
