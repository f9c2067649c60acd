"""The hard-margin problem: its start, its probe, its update, its bounds.

A strategy (``strategies/``) says which rows to begin with, what a scan asks, and which rows join the pool. All keep the
same bound pair: ``upper`` from the dual weights of the pool, ``lower`` from a scan of all rows.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from coremargin.maths.margin import Array, best_offset, is_certified, lower_bound, safe_projections
from coremargin.maths.pool import hulls_meet, solve_pool
from coremargin.maths.rows import as_float64, take, vector
from coremargin.problems.common.pool import Pool
from coremargin.problems.common.start import (
    SAMPLE_BYTES,
    SAMPLE_SHARE,
    Sample,
    check_scale,
    class_weights,
    pool_row_bytes,
    sample_chunks,
)
from coremargin.problems.common.two_class_problem import TwoClassProblem
from coremargin.problems.hard.ledger import Ledger
from coremargin.problems.hard.probe import MarginProbe
from coremargin.problems.hard.result import result, round_of
from coremargin.problems.hard.state import HardMarginState, Hypothesis
from coremargin.problems.hard.strategies.table import STRATEGIES
from coremargin.problems.hard.summary import MarginSummary

if TYPE_CHECKING:
    from collections.abc import Mapping

    from coremargin.engine.problem import Round
    from coremargin.formats.choices import Strategy as Name
    from coremargin.problems.common.result import Result
    from coremargin.problems.hard.strategies.strategy import Strategy

SKETCH_ROWS, BINS = 1000, 200


@dataclass(frozen=True)
class HardMargin(TwoClassProblem[HardMarginState, MarginSummary]):
    """Maximum-margin separation of two classes, to a share 1 - epsilon of the best possible margin.

    epsilon in (0, 1); pool_bytes: memory for the pool's rows; blocks: tasks a scan has (rows are kept per task).
    """

    epsilon: float
    intercept: bool = True
    strategy: Name = "fast"
    pool_bytes: int = 256 << 20
    sample_share: float = SAMPLE_SHARE
    sample_bytes: int = SAMPLE_BYTES
    blocks: int = 1

    @property
    def rule(self) -> Strategy:
        """What the strategy's name stands for."""
        return STRATEGIES[self.strategy]

    @property
    def eager(self) -> bool:
        """As the strategy says."""
        return self.rule.eager

    def round_of(self, state: HardMarginState) -> Round:
        """What is told of a state."""
        return round_of(state)

    def result(self, state: HardMarginState) -> Result:
        """The model that a state stands for."""
        return result(state)

    def restore(self, arrays: Mapping[str, NDArray[Any]]) -> HardMarginState:
        """A state from a checkpoint."""
        return HardMarginState.from_arrays(arrays)

    @property
    def pool_rows(self) -> int:
        """How many rows the pool may hold."""
        return max(min(4 * (self.source.features + 2), 1000), self.pool_bytes // pool_row_bytes(self.source))

    # start

    def start(self) -> HardMarginState:
        """Solve on the strategy's first rows."""
        return self.begin(self.rule.first(self.source, self.codes, self.sample_chunks))

    @property
    def sample_chunks(self) -> list[int]:
        """The chunks that are read before the first scan."""
        source = self.source
        # Of fewer rows than features nearly all carry the margin: a sample of them tells little.
        wide = source.rows < source.features
        limit = max(self.sample_bytes, self.pool_bytes) if wide else self.sample_bytes
        return sample_chunks(source, self.codes, self.sample_share, limit)

    def begin(self, sample: Sample) -> HardMarginState:
        """The state before the first scan, from some rows of both classes, or of one."""
        source = self.source
        check_scale(source)
        class_weights(source, self.codes)  # a class must not be left out as a whole
        empty = Pool.nothing(source.features, sparse=source.sparse)
        pool = empty.add(sample.ids, sample.rows, sample.signs)
        sketch = np.linspace(0, len(pool) - 1, min(SKETCH_ROWS, len(pool))).astype(int)
        state = HardMarginState(
            round=0, status="running", pool=empty, newest=Hypothesis.zero(source.features), best=None, lower=-np.inf,
            upper=np.inf, coreset=empty, ledger=Ledger.blank(source.chunks, source.features),
            sketch=pool.take(sketch), histogram=np.zeros((2, BINS), np.int64), low=0.0, high=1.0, rows_below=None,
            new_rows=len(pool), upper_at_eviction=np.inf,
            sample_bytes=sample.nbytes(source),
        )  # fmt: skip
        state = self._solve(state, pool)
        kept = state.pool.lowest(self._margins(state, state.pool), min(self.pool_rows // 2, 2 * self._rows_sent))
        return replace(state, pool=state.pool.take(kept))

    # probe

    def probe(self, state: HardMarginState) -> MarginProbe:
        """The question of the next scan."""
        low, high = self._range(state)
        plain = MarginProbe(
            base=state.newest.w[:, None], mix=np.ones((1, 1)), offset=state.newest.b, codes=self.codes,
            level=min(state.upper, 1e300), keep=max(1, self._rows_sent // (2 * self.blocks)), known=state.pool.ids,
            low=low, high=high, bins=BINS, dtype=self.source.dtype.name, chunk_rows=self.source.chunk_rows,
            sparse=self.source.sparse,
        )  # fmt: skip
        return self.rule.question(plain, state.best, self.epsilon)

    def skip(self, state: HardMarginState) -> NDArray[np.bool_]:
        """Chunks (c,) that the strategy need not see."""
        return self.rule.skip(self.source, state, self.epsilon)

    def enough(self, summary: MarginSummary) -> bool:
        """As the strategy says."""
        return self.rule.enough(summary)

    # update

    def update(self, state: HardMarginState, summary: MarginSummary) -> HardMarginState:
        """Bounds, pool and hypothesis after a scan."""
        probe = self.probe(state)
        state = replace(
            state, round=state.round + 1, histogram=summary.histogram, low=probe.low, high=probe.high,
            rows_below=int(summary.below[0]), new_rows=0,
        )  # fmt: skip
        if not self.enough(summary):  # an early end leaves rows unseen: no bound, and no ledger
            state = self._prove(state, summary, probe)
            if is_certified(state.lower, state.upper, self.epsilon):
                return replace(state, status="certified", ledger=self._truthful(state, summary, state.pool))
        pool, state = self._grow(state, summary)
        state = replace(state, ledger=self._truthful(state, summary, pool))
        if state.new_rows == 0:
            return replace(state, status="stalled")
        return self._solve(state, pool)

    def _prove(self, state: HardMarginState, summary: MarginSummary, probe: MarginProbe) -> HardMarginState:
        """The lower bound of every hypothesis of the scan; the best one is kept."""
        directions, smallest = probe.directions, summary.smallest
        skipped = np.setdiff1d(np.arange(self.source.chunks), summary.floor_chunk)
        if len(skipped):
            floors = state.ledger.screen(self.source, directions, skipped).min(axis=2).T
            pool = np.stack([
                safe_projections(take(state.pool.rows, m), state.pool.signs[m], directions).min(axis=0, initial=np.inf)
                for m in (state.pool.signs > 0, state.pool.signs < 0)
            ])  # fmt: skip
            smallest = np.minimum(smallest, np.minimum(floors, pool))
        lower = lower_bound(smallest, directions, self.intercept)
        offset = best_offset(smallest, self.intercept)
        k = int(np.argmax(lower))
        if lower[k] > state.lower:
            length = float(np.linalg.norm(directions[:, k]))
            best = Hypothesis(directions[:, k] / length, float(offset[k]) / length)
            state = replace(state, best=best, lower=float(lower[k]))
        ledger = state.ledger.record(summary.floor_chunk, summary.floor, state.newest.w)
        return replace(state, ledger=ledger, lower_now=float(lower[0]))

    def _grow(self, state: HardMarginState, summary: MarginSummary) -> tuple[Pool, HardMarginState]:
        """The pool with rows that the scan sent; room is made first where the budget is reached."""
        ids, rows, signs = self.rule.joining(summary, state.newest)
        pool = state.pool
        if len(pool) + len(ids) > self.pool_rows and state.upper < state.upper_at_eviction:
            pool, state = self._make_room(state, len(ids))
        grown = pool.add(ids, rows, signs)
        if len(grown) == len(pool):  # the scan's own evidence, where selection by fast values left it out
            worst = np.unique(summary.smallest_id[:, 0][np.isfinite(summary.smallest[:, 0])])
            rows, codes = self.source.rows_at(worst)
            grown = pool.add(worst, rows, np.where(codes == self.codes[0], 1, -1).astype(np.int8))
        return grown, replace(state, new_rows=len(grown) - len(pool))

    def _truthful(self, state: HardMarginState, summary: MarginSummary, pool: Pool) -> Ledger:
        """The ledger after the pool took its rows: floors speak again of those that a scan sent in vain."""
        out = np.isin(summary.row_id, pool.ids, invert=True)
        rows = as_float64(take(summary.row_x, out))
        return state.ledger.lowered(summary.row_id[out] // self.source.chunk_rows, rows, summary.row_sign[out])

    def _make_room(self, state: HardMarginState, coming: int) -> tuple[Pool, HardMarginState]:
        """Give up the rows with the largest margins; never a row with weight. Bounds have moved, so it cannot cycle."""
        pool = state.pool
        kept = pool.lowest(self._margins(state, pool), max(0, self.pool_rows - coming))
        gone = np.setdiff1d(np.arange(len(pool)), kept)
        chunks = pool.ids[gone] // self.source.chunk_rows
        ledger = state.ledger.lowered(chunks, take(pool.rows, gone), pool.signs[gone])
        return pool.take(kept), replace(state, ledger=ledger, upper_at_eviction=state.upper)

    def _solve(self, state: HardMarginState, pool: Pool) -> HardMarginState:
        """Newest hypothesis and upper bound from the pool."""
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

    def _margins(self, state: HardMarginState, pool: Pool) -> Array:
        return np.asarray(pool.signs * (pool.rows @ state.newest.w + state.newest.b))

    def _range(self, state: HardMarginState) -> tuple[float, float]:
        """Where the margins of a sample lie, with some room: the range of the histogram."""
        margins = self._margins(state, state.sketch)
        low, high = float(margins.min()), float(margins.max())
        size = max(high - low, 1e-6 * abs(low), 1e-6 * abs(high))
        room = 0.25 * size if size > 1e-150 else 1.0  # equal margins, however large, still have a range around them
        return low - room, high + room

    @property
    def _rows_sent(self) -> int:
        return self.rule.rows_sent(self.source, self.pool_rows)
