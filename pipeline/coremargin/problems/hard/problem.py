"""The hard-margin problem: its start, its probe, its update, its bounds.

    fast           sample start, many rows a scan, ledger skips, search on the segment between two hypotheses
    paper          Figure 1 of Har-Peled, Roth, Zimak (2006): one example to start, the worst example of each scan
    any-violator   Corollary 3.2: any example that breaks the bound will do; a scan ends at the first one

All three keep the same bound pair: ``upper`` from the dual weights of the pool, ``lower`` from a scan of all rows.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any, Literal

import numpy as np
from numpy.typing import NDArray

from coremargin.engine.problem import BaseProblem
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
    first_row,
    pool_row_bytes,
    read_sample,
    row_bytes,
    sample_chunks,
    two_classes,
)
from coremargin.problems.hard.ledger import Ledger, worthwhile
from coremargin.problems.hard.probe import MarginProbe
from coremargin.problems.hard.result import result, round_of
from coremargin.problems.hard.state import HardMarginState, Hypothesis
from coremargin.problems.hard.summary import MarginSummary

if TYPE_CHECKING:
    from collections.abc import Mapping

    from coremargin.engine.problem import Round
    from coremargin.engine.result import Result

Strategy = Literal["fast", "paper", "any-violator"]

#: Points of the segment from the best hypothesis (0) to the newest (1) that a scan evaluates besides the newest.
SEGMENT = (0.25, 0.5, 0.75, 0.9)
#: Share of the store that one scan may send home, and its bounds.
KEEP_SHARE, KEEP_BYTES_LEAST, KEEP_BYTES_MOST = 0.01, 4 << 20, 64 << 20
#: However long its rows are, a scan may send home so many (within the most bytes). rcv1: 5 scans instead of 30.
KEEP_ROWS_LEAST = 1000
SKETCH_ROWS, BINS = 1000, 200


@dataclass(frozen=True)
class HardMargin(BaseProblem[HardMarginState, MarginSummary]):
    """Maximum-margin separation of two classes, to a share 1 - epsilon of the best possible margin.

    epsilon in (0, 1); pool_bytes: memory for the pool's rows; blocks: tasks a scan has (rows are kept per task).
    """

    epsilon: float
    intercept: bool = True
    strategy: Strategy = "fast"
    pool_bytes: int = 256 << 20
    sample_share: float = SAMPLE_SHARE
    sample_bytes: int = SAMPLE_BYTES
    blocks: int = 1

    @property
    def eager(self) -> bool:
        """A scan may end at the first violator."""
        return self.strategy == "any-violator"

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
    def codes(self) -> tuple[int, int]:
        """Codes of the positive and the negative class."""
        return two_classes(self.source)

    def check(self) -> None:
        """Refuse what cannot be trained, before a row is read. Raises LabelError, StoreError."""
        two_classes(self.source)

    @property
    def pool_rows(self) -> int:
        """How many rows the pool may hold."""
        return max(min(4 * (self.source.features + 2), 1000), self.pool_bytes // pool_row_bytes(self.source))

    # start

    def start(self) -> HardMarginState:
        """Solve on a sample of chunks; the paper's strategies start from one row."""
        if self.strategy != "fast":
            return self.begin(first_row(self.source, self.codes))
        return self.begin(read_sample(self.source, self.sample_chunks, self.codes))

    @property
    def sample_chunks(self) -> list[int]:
        """The chunks that are read before the first scan."""
        source = self.source
        # Of fewer rows than features nearly all carry the margin: a sample of them tells little.
        wide = source.rows < source.features
        limit = max(self.sample_bytes, self.pool_bytes) if wide else self.sample_bytes
        return sample_chunks(source, self.codes, self.sample_share, limit)

    def begin(self, sample: Sample) -> HardMarginState:
        """The state before the first scan, from some rows of both classes or, with the paper's strategies, one row."""
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
        kept = state.pool.lowest(self._margins(state, state.pool), min(self.pool_rows // 2, 2 * self._rows_home))
        return replace(state, pool=state.pool.take(kept))

    # probe

    def probe(self, state: HardMarginState) -> MarginProbe:
        """The question of the next scan."""
        base, mix = state.newest.w[:, None], np.ones((1, 1))
        if self.strategy == "fast" and state.best is not None:
            base = np.column_stack([state.newest.w, state.best.w])
            t = np.array([1.0, *SEGMENT])
            mix = np.stack([t, 1 - t])
        low, high = self._range(state)
        return MarginProbe(
            base=base, mix=mix, offset=state.newest.b, codes=self.codes,
            level=(1 - self.epsilon if self.strategy == "any-violator" else 1.0) * min(state.upper, 1e300),
            keep=self._keep_per_block, known=state.pool.ids, low=low, high=high, bins=BINS,
            dtype=self.source.dtype.name, chunk_rows=self.source.chunk_rows,
            first_only=self.strategy == "any-violator", sparse=self.source.sparse,
        )  # fmt: skip

    def skip(self, state: HardMarginState) -> NDArray[np.bool_]:
        """Chunks (c,) whose rows the ledger already proves to be far enough away."""
        if self.strategy != "fast" or not np.isfinite(state.upper) or not worthwhile(self.source):
            return np.zeros(self.source.chunks, bool)
        floor = state.ledger.screen(self.source, state.newest.w[:, None], np.arange(self.source.chunks))[0]
        offset = np.array([[state.newest.b], [-state.newest.b]])
        # Half of epsilon is left for the offset, which is chosen after the scan.
        return np.asarray((floor + offset >= (1 - self.epsilon / 2) * state.upper).all(axis=0))

    def enough(self, summary: MarginSummary) -> bool:
        """True when the scan may end early: any violator will do."""
        return self.strategy == "any-violator" and len(summary.row_id) > 0

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
        """The pool with what the scan sent home; room is made first where the budget is reached."""
        ids, rows, signs = summary.row_id, summary.row_x, summary.row_sign
        if self.strategy != "fast" and len(ids):
            margins = signs * (as_float64(rows) @ state.newest.w + state.newest.b)
            k = np.lexsort([ids, margins])[:1] if self.strategy == "paper" else np.argsort(ids)[:1]
            ids, rows, signs = ids[k], take(rows, k), signs[k]
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
        """The ledger after the pool took its rows: floors speak again of those that a scan sent home in vain."""
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
    def _rows_home(self) -> int:
        """Rows that one scan may send home.

        More than violate the bound now: rows just above it are those that would break the next hypothesis. Measured on
        1e6 x 100: with violators only a third scan is needed, with the lowest 5,000 rows it is not.
        """
        if self.strategy != "fast":
            return 1
        size = max(1, row_bytes(self.source))
        least = max(KEEP_BYTES_LEAST, KEEP_ROWS_LEAST * size)  # w of many features is carried by many rows
        home = min(max(KEEP_SHARE * self.source.nbytes, least), KEEP_BYTES_MOST)
        return max(1, min(int(home) // size, self.pool_rows // 4))

    @property
    def _keep_per_block(self) -> int:
        return max(1, self._rows_home // (2 * self.blocks))
