"""The soft-margin problem by the near-margin method: hinge and squared hinge, with the duality gap as its certificate.

A scan at a hypothesis splits the rows: those far from the margin are summed up (they will not change sides on a short
way), those near it are sent. The driver minimises the sum of both exactly and the next scan proves the result, or
shows what moved. Certified means primal - dual <= epsilon primal, both over all rows.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from coremargin.errors import UsageError
from coremargin.maths import soft_margin as soft
from coremargin.maths.margin import is_certified
from coremargin.maths.rows import products
from coremargin.problems.common.classes import check_scale
from coremargin.problems.common.sample import Sample, read_sample, sample_chunks
from coremargin.problems.common.zone import NearRows, Progress, Zone, has_moved
from coremargin.problems.soft import row_steps
from coremargin.problems.soft.base import NEAR_PART, NEAR_SHARE, SoftBase
from coremargin.problems.soft.bounds import best_point
from coremargin.problems.soft.result import result, round_of
from coremargin.problems.soft.rows_with_c import RowsWithC
from coremargin.problems.soft.start import evenly, histogram_range, thinned
from coremargin.problems.soft.state import Bounds, LastScan, RowCache, SoftState
from coremargin.problems.soft.steps import crossed, first_step, hinge_step, squared_step
from coremargin.spec import format_size

if TYPE_CHECKING:
    from collections.abc import Mapping

    from coremargin.engine.problem import Round
    from coremargin.problems.common.result import Result
    from coremargin.problems.soft.probe import NearMarginProbe
    from coremargin.problems.soft.summary import NearMarginSummary

Array = NDArray[np.float64]

#: Bytes of float64 that the rows sent from one scan have at least.
NEAR_BYTES_LEAST = 1 << 20
#: Rows of the sample that stand for the far ones in the hinge's step.
SURROGATES = 20_000
#: Rows longer than this are left to sums, whose steps mind units less.
FAR = 1e6


@dataclass(frozen=True)
class SoftMargin(SoftBase):
    """``SoftBase`` by the near-margin method: its objective until the duality gap is at most epsilon of the value."""

    def check(self) -> None:
        """Refuse what cannot be trained, or not by this method. Raises LabelError, StoreError, UsageError."""
        super().check()
        if self.in_segments:
            raise UsageError(
                f"memory: expected room for all rows, or for sums of d x d numbers, found "
                f"{format_size(self.memory_bytes)}; give more memory, or use coremargin.train, which takes segments"
            )

    # start

    def start(self) -> SoftState:
        """Solve on a sample of chunks."""
        return self.begin(read_sample(self.source, self.sample_chunks, self.codes, stay=self.all_cached))

    @property
    def sample_chunks(self) -> list[int]:
        """The chunks that are read before the first scan."""
        limit = max(self.sample_bytes, self.source.nbytes) if self.all_cached else self.sample_bytes
        return sample_chunks(self.source, self.codes, self.sample_share, limit)

    def begin(self, found: Sample, near: Array | None = None, shares: Array | None = None) -> SoftState:
        """The state before the first scan, from some rows of both classes, their C scaled up to all rows.

        near (d + 1,): a solution to start from, such as that for another C; shares (m,): its duals of these rows / C.
        """
        source, totals = self.source, self.totals
        check_scale(source, self.class_c, totals)
        few = None if self.all_cached else thinned(found.signs, self._solvable)
        sample = RowsWithC.of_sample(found, few, self.class_c)
        positive, counts = sample.signs > 0, source.scalars().counts.sum(axis=0)[list(self.codes)]
        shown = np.array([sample.row_c[positive].sum(), sample.row_c[~positive].sum()])
        nothing, none = np.zeros(source.features + 1), np.zeros(0, np.intp)
        newest, duals = nothing if near is None else near, np.zeros(len(sample))
        if shown.all():
            # Prices of the sample add up to those of all rows.
            share = np.ones(2) if self.all_cached else self.class_c * totals / shown
            scaled = replace(sample, row_c=sample.row_c * np.where(positive, share[0], share[1]))
            if self.all_cached:
                known = None if shares is None else shares * self.cost
                newest, duals = row_steps.first_step(self.objective, scaled, newest, known)
            else:
                newest = first_step(self.objective, scaled, newest)
        margins = sample.signs * (products(sample.rows, newest[:-1, None])[0] + newest[-1])
        low, high = histogram_range(margins)
        return SoftState(
            round=0, status="running", newest=newest, best=None, bounds=Bounds.nothing(nothing),
            rows=RowCache(
                sample=sample.take(evenly(len(sample), 0 if self.all_cached else SURROGATES)),
                cached=sample if self.all_cached else sample.take(none),
                cached_duals=duals if self.all_cached else duals[none],
            ),
            zone=Zone(widen=1, idle=0), last_scan=LastScan.nothing(low, high), total_rows=int(counts.sum()),
            sample_bytes=found.nbytes(source),
        )  # fmt: skip

    @property
    def _solvable(self) -> int:
        """Rows of a sample that are solved in seconds by means of d x d sums."""
        p = self.source.features + 1
        return max(1000, 5 * p, int(self.loss.solve_cost / p**2))

    # scan

    def probe(self, state: SoftState) -> NearMarginProbe:
        """The question of the next scan."""
        keep = self._near_rows.of_chunk(state.zone.widen)
        return self.near_probe(state, keep=keep, cached=state.rows.cached.ids, curve=self._curved)

    @property
    def _curved(self) -> bool:
        """True where scans sum up a d x d matrix."""
        return self.loss.curves and not self.all_cached

    @property
    def _near_rows(self) -> NearRows:
        """Rows that are sent: where models keep sparse ones, or all are cached, as many as memory allows."""
        # Sparse ones are few bytes, and models keep them as they are, but for the hinge's models of sums.
        many = self.all_cached or (self.source.sparse and self.loss.curves)
        size = self.row_bytes if many else 8 * (self.source.features + 1)
        most = self.memory_bytes * NEAR_PART[many] if self.near_bytes is None else self.near_bytes
        share = np.inf if many else NEAR_SHARE
        return NearRows(self.source, size, share=share, least=NEAR_BYTES_LEAST, most=most)

    def round_of(self, state: SoftState) -> Round:
        """What is told of a state."""
        return round_of(state)

    def result(self, state: SoftState) -> Result:
        """The model that a state stands for."""
        return self.claimed(result(state))

    @property
    def least_block_bytes(self) -> int:
        """Squared hinge sends a d x d matrix per block: no more of them than fit into the memory."""
        if not self._curved:
            return 1
        source, matrix = self.source, 8 * (self.source.features + 1) ** 2
        return source.nbytes * matrix * self.sharing // self.memory_bytes + source.nbytes // source.chunks + 1

    def restore(self, arrays: Mapping[str, NDArray[Any]]) -> SoftState:
        """A state from a checkpoint."""
        return SoftState.from_arrays(arrays)

    # update

    def update(self, state: SoftState, summary: NearMarginSummary) -> SoftState:
        """Bounds and the next hypothesis after a scan."""
        before, value = soft.relative_gap(state.upper, state.lower), state.upper
        last_scan = replace(
            state.last_scan, histogram=summary.histogram, rows_below=int(summary.below[0]),
            near_rows=len(summary.row_id)
        )  # fmt: skip
        state = replace(state, round=state.round + 1, last_scan=last_scan)
        astray = crossed(state, summary)
        rose = summary.losses[0] + soft.penalty(state.newest, self.objective.metric) > state.upper
        state = best_point(self.objective, self.points(state), state, summary)
        step, state = self._advance(state, summary)
        gap = soft.relative_gap(state.upper, state.lower)
        if is_certified(state.lower, state.upper, self.epsilon):
            return replace(state, status="certified")
        same = np.array_equal(step, state.newest)
        found = Progress((before, gap), (value, state.upper), rose=bool(rose), same=same)
        stuck = state.zone.stuck(found, self.epsilon, self._near_rows)
        if self._can_change(state, stuck):
            return self._on_all_rows(state)
        if stuck:
            return replace(state, status="stalled")
        if self._overshot(state, astray):
            step = np.array(state.best)
        return replace(state, newest=step, zone=state.zone.after(found, self.epsilon))

    def _advance(self, state: SoftState, summary: NearMarginSummary) -> tuple[Array, SoftState]:
        if len(state.rows.cached):
            return row_steps.step(self.objective, state, summary)
        return (squared_step if self.loss.curves else hinge_step)(self.objective, state, summary)

    def _on_all_rows(self, state: SoftState) -> SoftState:
        """The same job with all rows in memory from now on, which are read here, and the minimiser over them."""
        source = self.source
        found = read_sample(source, list(range(source.chunks)), self.codes, stay=True)
        cached = RowsWithC.of_sample(found, None, self.class_c)
        near = state.newest if state.best is None else state.best
        newest, duals = row_steps.first_step(self.objective, cached, near, None)
        read = state.sample_bytes + found.nbytes(source)
        rows, zone = replace(state.rows, cached=cached, cached_duals=duals), replace(state.zone, idle=0)
        return replace(state, newest=newest, rows=rows, zone=zone, sample_bytes=read)

    def _can_change(self, state: SoftState, stuck: bool) -> bool:
        """Whether a hinge that is solved by sums may go on with all its rows.

        Where very many rows are equal, the zone is full of a few of them, of one class perhaps: no dual point of it is
        in balance, or no wider zone is to be had (stuck). On all rows the job ends.
        """
        if (not stuck and (state.round < 2 or state.lower > 0)) or self.objective.magnitudes.longest > FAR:
            return False
        by_sums = self.loss.names_duals and not len(state.rows.cached)
        return by_sums and self.sharing == 1 and self.fits

    def _overshot(self, state: SoftState, astray: float) -> bool:
        """A small zone led too far, a share ``astray`` of it across the margin: the next is about the best point."""
        capped = state.last_scan.near_rows < state.total_rows and self._near_rows.capped(state.zone.widen)
        cached = len(state.rows.cached) > 0  # all of them
        much = astray > self.loss.crossed
        return not (self._curved or cached) and capped and has_moved(state.newest, state.best) and much
