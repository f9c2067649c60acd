"""The interface of strategies, which distinguish the algorithms for the hard margin."""

from __future__ import annotations

from abc import ABC, abstractmethod
from typing import TYPE_CHECKING

import numpy as np
from numpy.typing import NDArray

from coremargin.problems.common.sample import first_row

if TYPE_CHECKING:
    from coremargin.data.source import Source
    from coremargin.maths.margin import Array
    from coremargin.problems.common.driver_rows import WorkingSet
    from coremargin.problems.common.sample import Sample
    from coremargin.problems.common.sent import SentRows
    from coremargin.problems.hard.probe import MarginProbe, MarginSummary
    from coremargin.problems.hard.state import HardMarginState, Hypothesis


class Strategy(ABC):
    """The first rows, the probe of a scan, and which of the rows that it sends join the working set.

    ``HardMargin`` proves the bounds for any choice of rows: the upper one from the dual weights of the working set, the
    lower one from a scan of all rows. No bound depends on the strategy. A strategy may *propose* another hypothesis
    than the best one for the working set; ``iterative.py`` is for strategies that carry numbers from one update to the
    next. Strategies have no state of their own; ``table.py`` lists them by name.
    """

    reading: str = ""  #: a text about the number of reads; "": in stages, about one

    iterates: bool = False  #: whether it is ``Iterative``

    proposes: bool = False  #: whether it has a ``propose`` of its own; scans then prove the exact solution too

    eager: bool = False  #: whether a scan may end as soon as ``enough`` holds for the blocks so far

    staged: bool = False  #: whether the first read is made in stages, the first of which sends the first rows

    def refusal(self, source: Source, memory: int) -> str:
        """Why it cannot solve such rows, "" if it can; memory: bytes that it may use."""
        return ""

    def first(self, source: Source, codes: tuple[int, int]) -> Sample | None:
        """The first rows of the working set, if the first read is not made in stages; None: no rows."""
        return first_row(source, codes)

    @abstractmethod
    def rows_sent(self, source: Source, working_set_rows: int) -> int:
        """The number of rows that one scan may send; working_set_rows: the capacity of the working set."""

    def probe(self, plain: MarginProbe, best: Hypothesis | None, epsilon: float) -> MarginProbe:
        """The probe of a scan, made from one for the margin of the newest hypothesis and the lowest rows.

        best: the hypothesis with the best lower bound, None before there is one.
        """
        return plain

    def skip(self, source: Source, state: HardMarginState, epsilon: float) -> NDArray[np.bool_]:
        """Chunks (c,) that the next scan need not read: none."""
        return np.zeros(source.chunks, bool)

    def enough(self, summary: MarginSummary) -> bool:
        """Whether a scan may end with the blocks so far: never."""
        return False

    def propose(self, working_set: WorkingSet, exact: Hypothesis, *, intercept: bool) -> Hypothesis:
        """The hypothesis of the next scan, ||w|| = 1: by default the exact solution of the working set."""
        return exact

    def converged(self, state: HardMarginState, summary: MarginSummary) -> bool:
        """Whether it ends by a rule of its own after a scan of all rows at the newest hypothesis: never."""
        return False

    def staying(self, working_set: WorkingSet, margins: Array, coming: int) -> NDArray[np.bool_] | None:
        """Rows (m,) of the working set that stay when so many others join; None: all.

        margins (m,): at the newest hypothesis. Rows with a dual weight must stay.
        """
        return None

    @abstractmethod
    def joining(self, summary: MarginSummary, newest: Hypothesis) -> SentRows:
        """Those of the rows sent by a scan at ``newest`` that join the working set."""
