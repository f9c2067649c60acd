"""What a hard-margin problem does with rows in the driver: it solves them, makes room, and proves bounds."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, cast

import numpy as np
from numpy.typing import NDArray

from coremargin.engine.want import Want
from coremargin.maths.margin import Array, best_offset, is_certified, lower_bound, smallest_projections
from coremargin.maths.pool import hulls_meet, solve_pool
from coremargin.maths.rows import Rows, as_float64, products, take, vector
from coremargin.problems.common.ids import among
from coremargin.problems.common.sent import Brought, SentRows
from coremargin.problems.common.start import SAMPLE_BYTES, SAMPLE_SHARE, pool_row_bytes, pool_wanted
from coremargin.problems.common.two_class_problem import TwoClassProblem
from coremargin.problems.hard.forecast import forecast
from coremargin.problems.hard.probe import binned
from coremargin.problems.hard.state import HardMarginState, Hypothesis
from coremargin.problems.hard.strategies.table import STRATEGIES
from coremargin.problems.hard.summary import MarginSummary

if TYPE_CHECKING:
    from coremargin.formats.choices import Strategy as Name
    from coremargin.problems.common.pool import Pool
    from coremargin.problems.hard.ledger import Ledger
    from coremargin.problems.hard.strategies.strategy import Strategy


@dataclass(frozen=True)
class HardMarginBase(TwoClassProblem[HardMarginState, MarginSummary | Brought]):
    """What a job says, and what each of its steps does with rows.

    epsilon in (0, 1); pool_bytes: memory for the pool's rows; first_chunks: of the first stage, where several problems
    are read together, None: ``sample_chunks``. near_share: so many of the rows stay with the model for
    the next commit, those nearest to the hyperplane (onward.py).
    """

    epsilon: float
    intercept: bool = True
    strategy: Name = "fast"
    pool_bytes: int = 256 << 20
    sample_share: float = SAMPLE_SHARE
    sample_bytes: int = SAMPLE_BYTES
    first_chunks: tuple[int, ...] | None = None
    near_share: float = 0.0

    @property
    def rule(self) -> Strategy:
        """What the strategy's name stands for."""
        return STRATEGIES[self.strategy]

    @property
    def pool_rows(self) -> int:
        """How many rows the pool may hold."""
        return max(min(4 * (self.source.features + 2), 1000), self.pool_bytes // pool_row_bytes(self.source))

    @property
    def want(self) -> Want:
        """Room in the pool for what scans may send."""
        rows = pool_wanted(self.source)
        size = rows * pool_row_bytes(self.source)
        return Want(self.pool_bytes, size, rows, "candidates", "with less, chunks are read again")

    def _prove(
        self, state: HardMarginState, directions: Array, smallest: Array, unread: NDArray[np.int64]
    ) -> HardMarginState:
        """The lower bound of directions (d, k), the newest first; the best one is kept.

        smallest (2, k): smallest y w.x of the chunks that were read; ``unread`` chunks have floors, and pool rows.
        """
        if len(unread):
            floors = state.ledger.screen(self.source, directions, unread).min(axis=2).T
            pool = smallest_projections(state.pool.rows, state.pool.signs, directions)
            smallest = np.minimum(smallest, np.minimum(floors, pool))
            if state.near is not None:
                smallest = np.minimum(smallest, state.near.screen(directions))
        lower = lower_bound(smallest, directions, self.intercept)
        offset = best_offset(smallest, self.intercept)
        k = int(np.argmax(lower))
        if lower[k] > state.lower:
            length = float(np.linalg.norm(directions[:, k]))
            best = Hypothesis(directions[:, k] / length, float(offset[k]) / length)
            state = replace(state, best=best, lower=float(lower[k]))
        return replace(state, lower_now=float(lower[0]))

    def _proven(self, state: HardMarginState) -> HardMarginState:
        """What the floors of all chunks and the pool prove of the newest hypothesis."""
        state = self._prove(state, state.newest.w[:, None], np.full((2, 1), np.inf), np.arange(self.source.chunks))
        certified = is_certified(state.lower, state.upper, self.epsilon)
        return replace(state, status="certified") if certified else state

    def _grow(self, state: HardMarginState, summary: MarginSummary) -> tuple[Pool, HardMarginState]:
        """The pool with rows that the scan sent; room is made first where the budget is reached."""
        coming = self.rule.joining(summary, state.newest)
        if len(state.known) + len(coming) > self.pool_rows and state.upper < state.upper_at_eviction:
            state = self._make_room(state.at_home(), len(coming))
        pool = state.pool
        grown = pool.add(coming)
        return grown, replace(state, new_rows=len(grown) - len(pool))

    def _with_evidence(
        self, state: HardMarginState, summary: MarginSummary, pool: Pool
    ) -> tuple[Pool, HardMarginState]:
        """The pool with the scan's own evidence, where selection by fast values left it out."""
        worst = np.unique(summary.smallest_id[:, 0][np.isfinite(summary.smallest[:, 0])])
        rows, codes = self.source.rows_at(worst)
        signs = np.where(codes == self.codes[0], 1, -1).astype(np.int8)
        grown = pool.add(SentRows.of(worst, cast("Rows", rows.astype(self.source.dtype)), signs))
        return grown, replace(state, new_rows=len(grown) - len(pool))

    def _truthful(self, state: HardMarginState, summary: MarginSummary, pool: Pool) -> Ledger:
        """The ledger after the pool took its rows: floors speak again of those that a scan sent in vain."""
        out = summary.sent.where(~among(summary.sent.ids, pool.ids))
        return state.ledger.lowered(out.ids // self.source.chunk_rows, as_float64(out.rows), out.signs)

    def _make_room(self, state: HardMarginState, coming: int) -> HardMarginState:
        """Give up the rows with the largest margins; never a row with weight. Bounds have moved, so it cannot cycle."""
        kept = state.pool.lowest(self._margins(state, state.pool), max(0, self.pool_rows - coming))
        if state.reading and not state.onward:  # what stays is counted when all is read
            gone = state.pool.take(np.setdiff1d(np.arange(len(state.pool)), kept))
            state = replace(state, histogram=state.histogram + self._histogram(state, gone))
        return replace(self._without(state, kept), upper_at_eviction=state.upper)

    def _without(self, state: HardMarginState, kept: NDArray[np.intp]) -> HardMarginState:
        """With the pool's rows at these places only: floors speak of the others again."""
        pool, away = state.pool, np.ones(len(state.pool), bool)
        away[kept] = False
        gone = np.flatnonzero(away)
        chunks = pool.ids[gone] // self.source.chunk_rows
        ledger = state.ledger.lowered(chunks, take(pool.rows, gone), pool.signs[gone])
        return replace(state, pool=pool.take(kept), ledger=ledger)

    def _solve(self, state: HardMarginState, pool: Pool) -> HardMarginState:
        """Newest hypothesis and upper bound from the pool; rows that lie near have come home."""
        if state.near is not None:
            state = replace(state, pool=pool).at_home()
            pool = state.pool
        if self.intercept and not pool.both_classes:  # the margin of one class alone is unbounded
            first = vector(pool.rows, 0)
            if not first.any():
                first[0] = pool.signs[0]
            return replace(state, pool=pool, newest=Hypothesis(pool.signs[0] * first / np.linalg.norm(first), 0.0))
        start = pool.weights if (pool.weights > 0).any() else None
        solution = solve_pool(
            pool.rows, pool.signs, intercept=self.intercept, start=start, tolerance=min(1e-10, 1e-4 * self.epsilon)
        )  # fmt: skip
        meet, solution = hulls_meet(pool.rows, pool.signs, solution, intercept=self.intercept)
        pool = pool.weighted(solution.weights)
        if meet or solution.upper < state.upper:
            state = replace(state, upper=solution.upper, coreset=pool.take(pool.support))
        if solution.status == "zero":  # what a scan has proven to be separable stays so: float64 has come to its end
            return replace(state, pool=pool, status="not_separable" if meet and state.lower <= 0 else "stalled")
        return replace(state, pool=pool, newest=Hypothesis(solution.w, solution.b))

    def _forecast(self, state: HardMarginState, before: Hypothesis, pace: float) -> HardMarginState:
        return replace(state, move=forecast(before, state.newest, pace, state.move))

    def _margins(self, state: HardMarginState, pool: Pool) -> Array:
        return np.asarray(pool.signs * (products(pool.rows, state.newest.w[:, None])[0] + state.newest.b))

    def _breaks(self, state: HardMarginState, coming: Pool) -> bool:
        """Whether the bound does not hold for some of these rows."""
        return bool((self._margins(state, coming) < (1 - self.epsilon) * state.upper).any())

    def _histogram(self, state: HardMarginState, pool: Pool) -> NDArray[np.int64]:
        """Margins (2, bins) of some of the pool's rows at the newest hypothesis."""
        margins, bins = self._margins(state, pool), state.histogram.shape[1]
        sides = (margins[pool.signs > 0], margins[pool.signs < 0])
        return np.array([binned(side, state.low, state.high, bins) for side in sides])

    def _range(self, state: HardMarginState) -> tuple[float, float]:
        """Where the margins of a sample lie, with some room: the range of the histogram."""
        margins = self._margins(state, state.sketch)
        low, high = float(margins.min()), float(margins.max())
        size = max(high - low, 1e-6 * abs(low), 1e-6 * abs(high))
        room = 0.25 * size if size > 1e-150 else 1.0  # equal margins, however large, still have a range around them
        return low - room, high + room
