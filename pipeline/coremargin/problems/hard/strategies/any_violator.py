"""Corollary 3.2 of Har-Peled, Roth, Zimak (2006): add any example that violates the bound; a scan ends at the first."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

from coremargin.problems.hard.probe import NO_ROW
from coremargin.problems.hard.strategies.strategy import Strategy

if TYPE_CHECKING:
    from coremargin.data.source import Source
    from coremargin.problems.common.sent import SentRows
    from coremargin.problems.hard.probe import MarginProbe, MarginSummary
    from coremargin.problems.hard.state import Hypothesis


class AnyViolator(Strategy):
    """Figure 1, except for the example that each scan adds."""

    eager = True

    reading = "a scan for each row that is added, often hundreds"

    def rows_sent(self, source: Source, working_set_rows: int) -> int:
        """One of each class and block."""
        return 1

    def probe(self, plain: MarginProbe, best: Hypothesis | None, epsilon: float) -> MarginProbe:
        """A probe for the first example, in row order, with a margin below (1 - epsilon) of the upper bound."""
        return replace(plain, level=(1 - epsilon) * plain.level, first_only=True)

    def enough(self, summary: MarginSummary) -> bool:
        """Whether a violation was found."""
        return len(summary.sent) > 0

    def joining(self, summary: MarginSummary, newest: Hypothesis) -> SentRows:
        """The first violation."""
        ids = summary.sent.ids
        return summary.sent.where(ids == ids.min(initial=NO_ROW))
