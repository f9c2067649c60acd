"""The default: many rows a scan, chunks skipped by their bounds, line search between hypotheses."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

import numpy as np
from numpy.typing import NDArray

from coremargin.problems.common.sizes import rows_sent
from coremargin.problems.hard.strategies.strategy import Strategy

if TYPE_CHECKING:
    from coremargin.data.source import Source
    from coremargin.problems.common.sent import SentRows
    from coremargin.problems.hard.probe import MarginProbe, MarginSummary
    from coremargin.problems.hard.state import HardMarginState, Hypothesis

#: Points of the segment from the best hypothesis (0) to the newest (1) that a scan evaluates besides the newest.
LINE_POINTS = (0.25, 0.5, 0.75, 0.9)


class Fast(Strategy):
    """Reads as little as possible: the store once, in stages, and chunks again that block bounds leave unproven."""

    staged = True

    def rows_sent(self, source: Source, working_set_rows: int) -> int:
        """Rows that violate the bound, and those just above it."""
        return rows_sent(source, working_set_rows)

    def probe(self, plain: MarginProbe, best: Hypothesis | None, epsilon: float) -> MarginProbe:
        """Adds points between the newest hypothesis and the best one."""
        if best is None:
            return plain
        t = np.array([1.0, *LINE_POINTS])
        return replace(plain, base=np.column_stack([plain.base[:, 0], best.w]), mix=np.stack([t, 1 - t]))

    def skip(self, source: Source, state: HardMarginState, epsilon: float) -> NDArray[np.bool_]:
        """Chunks (c,) whose bounds already prove that their rows have large enough margins."""
        if not np.isfinite(state.upper):
            return super().skip(source, state, epsilon)
        lower = state.block_bounds.screen(source, state.newest.w[:, None], np.arange(source.chunks))[0]
        offset = np.array([[state.newest.b], [-state.newest.b]])
        # Half of epsilon is left for the offset, which is chosen after the scan.
        return np.asarray((lower + offset >= (1 - epsilon / 2) * state.upper).all(axis=0))

    def joining(self, summary: MarginSummary, newest: Hypothesis) -> SentRows:
        """All sent rows."""
        return summary.sent
