"""A separating hyperplane by linear programming (Awasthi's lecture, section 1), with constraint generation.

    maximise t   subject to   y (w.x + b) >= t for the rows of the working set,   |w_j| <= 1 for every feature

Each scan adds the rows with the smallest margins, until all margins are at least half of t. The margin of such a
hyperplane is not the largest: the box, unlike a ball, depends on the units of the features. Rows are divided by the
length of the longest, as HiGHS has absolute tolerances.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from coremargin.maths.rows import as_float64, is_sparse, lengths
from coremargin.problems.common.sample import few_rows
from coremargin.problems.hard.state import Hypothesis
from coremargin.problems.hard.strategies.strategy import Strategy

if TYPE_CHECKING:
    from coremargin.data.source import Source
    from coremargin.problems.common.driver_rows import WorkingSet
    from coremargin.problems.common.sample import Sample
    from coremargin.problems.common.sent import SentRows
    from coremargin.problems.hard.probe import MarginSummary
    from coremargin.problems.hard.state import HardMarginState

#: Rows of the first program, at most, and rows that join the working set after a scan.
FIRST, ROWS = 100, 50
#: Share of t that all rows must have for the last scan.
ENOUGH = 0.5


class LinearProgram(Strategy):
    """The working set is solved by HiGHS; the bounds are those of all strategies."""

    proposes = True

    reading = f"a scan for each {ROWS} rows that are added, often a dozen"

    def first(self, source: Source, codes: tuple[int, int]) -> Sample:
        """A few rows of both classes."""
        return few_rows(source, codes, FIRST)

    def rows_sent(self, source: Source, working_set_rows: int) -> int:
        """As many of each class as may join."""
        return 2 * ROWS

    def joining(self, summary: MarginSummary, newest: Hypothesis) -> SentRows:
        """The rows with the least margins, of equal ones the first."""
        sent = summary.sent
        margins = sent.signs * (as_float64(sent.rows) @ newest.w + newest.b)
        lowest = np.lexsort([sent.ids, margins])[:ROWS]
        return sent.where(np.isin(np.arange(len(sent)), lowest))

    def propose(self, working_set: WorkingSet, exact: Hypothesis, *, intercept: bool) -> Hypothesis:
        """The program's hyperplane; the exact one if HiGHS finds none."""
        from scipy.optimize import linprog
        from scipy.sparse import csr_array, diags_array, hstack

        y, d = working_set.signs.astype(np.float64), working_set.rows.shape[1]
        longest = float(lengths(working_set.rows).max()) or 1.0
        scaled = working_set.rows * (1 / longest)
        ends = np.column_stack([-y, np.ones(len(y))])
        if is_sparse(scaled):
            rows = hstack([-(diags_array(y) @ scaled), csr_array(ends)], format="csr")
        else:
            rows = np.column_stack([-y[:, None] * scaled, ends])
        offset = (None, None) if intercept else (0, 0)
        found = linprog(
            np.append(np.zeros(d + 1), -1.0),
            A_ub=rows,
            b_ub=np.zeros(len(y)),
            bounds=[(-1, 1)] * d + [offset, (None, None)],
            method="highs",
        )
        length = 0.0 if found.x is None else float(np.linalg.norm(found.x[:d]))
        return Hypothesis(found.x[:d] / length, longest * float(found.x[d]) / length) if length > 0 else exact

    def converged(self, state: HardMarginState, summary: MarginSummary) -> bool:
        """Whether no row is further below the hyperplane than the program allows."""
        w, b, rows = state.newest.w, state.newest.b, state.working_set
        level = float((rows.signs * (rows.rows @ w + b)).min())
        least = float((summary.smallest[:, 0] + [b, -b]).min())
        return least > 0 and least >= ENOUGH * level
