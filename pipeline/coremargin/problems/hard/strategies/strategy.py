"""What tells one way to the largest margin from another."""

from __future__ import annotations

from abc import ABC, abstractmethod
from typing import TYPE_CHECKING

import numpy as np
from numpy.typing import NDArray

from coremargin.problems.common.start import first_row

if TYPE_CHECKING:
    from coremargin.data.source import Source
    from coremargin.problems.common.sent import SentRows
    from coremargin.problems.common.start import Sample
    from coremargin.problems.hard.probe import MarginProbe
    from coremargin.problems.hard.state import HardMarginState, Hypothesis
    from coremargin.problems.hard.summary import MarginSummary


class Strategy(ABC):
    """Which rows to begin with, what a scan asks, and which of the rows that it finds join the pool.

    Bounds are no strategy's own: ``HardMargin`` has the upper one from the dual weights of the pool and the lower one
    from a scan of all rows, whichever rows these are. Strategies have no state; ``table.py`` knows them by name.
    """

    eager: bool = False  #: a scan may end as soon as ``enough`` holds for the blocks so far

    staged: bool = False  #: the first read is made in stages, the first of which brings the rows to begin with

    def first(self, source: Source, codes: tuple[int, int]) -> Sample:
        """The rows to begin with, where no stage brings them."""
        return first_row(source, codes)

    @abstractmethod
    def rows_sent(self, source: Source, pool_rows: int) -> int:
        """Rows that one scan may send; pool_rows: how many the pool may hold."""

    def question(self, plain: MarginProbe, best: Hypothesis | None, epsilon: float) -> MarginProbe:
        """What a scan asks, made of the plain question: the margin of the newest hypothesis, and the lowest rows.

        best: the hypothesis with the best lower bound, None before there is one.
        """
        return plain

    def skip(self, source: Source, state: HardMarginState, epsilon: float) -> NDArray[np.bool_]:
        """Chunks (c,) that the next scan need not read: none."""
        return np.zeros(source.chunks, bool)

    def enough(self, summary: MarginSummary) -> bool:
        """True when a scan may end with the blocks so far: never."""
        return False

    @abstractmethod
    def joining(self, summary: MarginSummary, newest: Hypothesis) -> SentRows:
        """Of the rows that a scan about ``newest`` sent, those that join the pool."""
