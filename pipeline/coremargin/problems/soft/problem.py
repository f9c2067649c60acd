"""The soft margin of two classes, whatever the method: its objective, its memory, and what its states stand for.

Rows are kept as d x d sums, as some of the rows, or as all of them. CPU seconds of whole calls on dense float32 rows
with 2 to 10 % noise, C = 1, gap 1e-3, by sums | on all rows:

    rows x features     hinge          squared hinge
    30,000 x 300        2.5 | 1.2      1.4 | 0.7
    100,000 x 300       7.0 | 2.2      1.5 | 1.3
    200,000 x 300      10.5 | 3.6      2.1 | 2.7
    60,000 x 784      > 18  | 4.2      6.7 | 2.0
    100,000 x 100       1.8 | 1.1      1.2 | 0.7
    300,000 x 100       1.3 | 2.2      1.0 | 1.3     C = 0.001 and C = 100: the same

Steps by sums cost n d^2, steps on all rows n d. Few features are left to the sums, which are less sensitive to scaling.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from functools import cached_property
from typing import TYPE_CHECKING, Any, Literal

import numpy as np
from numpy.typing import NDArray

from coremargin.data.mapped import map_arrays
from coremargin.data.scaled import scaling_of
from coremargin.data.view import view_digest
from coremargin.engine.memory_need import MemoryNeed
from coremargin.engine.problem import Round
from coremargin.maths import soft_margin as soft
from coremargin.problems.common.classes import c_per_class, class_weights
from coremargin.problems.common.driver_rows import WorkingSet
from coremargin.problems.common.map_rounding import widen_value_bounds
from coremargin.problems.common.result import Result, TwoClassProblem
from coremargin.problems.common.sample import SAMPLE_BYTES, SAMPLE_SHARE
from coremargin.problems.common.sizes import float64_row_bytes
from coremargin.problems.common.stages import scan_position
from coremargin.problems.common.zone import REASONS, Zone
from coremargin.problems.soft.losses.loss import Objective
from coremargin.problems.soft.magnitudes import Magnitudes
from coremargin.problems.soft.probe import NearMarginProbe
from coremargin.problems.soft.rows_with_c import RowsWithC
from coremargin.problems.soft.state import Bounds, LastScan, RowCache, SoftState, Terms
from coremargin.problems.soft.summary import BINS

if TYPE_CHECKING:
    from coremargin.problems.soft.losses.loss import Loss
    from coremargin.problems.soft.summary import NearMarginSummary

Array = NDArray[np.float64]

#: Points of the segment from the best hypothesis (0) to the newest (1) whose losses a scan sums up besides the newest.
LINE_POINTS = (0.03, 0.1, 0.25, 0.5, 0.75, 0.9)
#: With fewer rows per feature, or more features, all rows are cached if they fit.
FEW_ROWS, MANY_FEATURES = 50, 200
#: Number of (d + 1) x (d + 1) matrices that exist at a time, if summaries hold one.
CURVES = 8
#: Share of the rows that one scan sends.
NEAR_SHARE = 0.05
#: Share of the memory for these rows: dense rows in addition to sums, copied while they are solved, and all others.
NEAR_PART = (0.25, 0.625)
#: Bytes that are always available for matrices.
LEAST_FOR_SUMS = 32 << 20
#: Bytes that each of the problems which share the memory keeps per row that all of them hold.
KNOWN = 17


@dataclass(frozen=True)
class SoftProblem(TwoClassProblem[SoftState, Any]):
    """Minimise 1/2 ||w||^2 + C sum_i s_i loss(y_i (w.x_i + b)) until the duality gap is at most epsilon of the value.

    class_weight: factors of C for the negative and the positive class, or "balanced". memory_bytes: for rows and
    matrices; sharing: number of problems that share the memory; copies: of the rows that all of them hold at a time;
    near_bytes: for the rows that one scan sends, None: NEAR_PART; duals_fit: whether there is memory for a dual of each
    row in each of these problems, which block minimisation needs.
    """

    epsilon: float
    loss: Loss
    cost: float
    class_weight: Literal["balanced"] | tuple[float, float] | None = None
    intercept: bool = True
    memory_bytes: int = 256 << 20
    sharing: int = 1
    copies: int = 1
    near_bytes: int | None = None
    duals_fit: bool = True
    sample_share: float = SAMPLE_SHARE
    sample_bytes: int = SAMPLE_BYTES

    # the objective

    @cached_property
    def totals(self) -> Array:
        """Sums of the sample weights (2,) of the positive and of the negative class."""
        return class_weights(self.source, self.codes)

    @property
    def class_c(self) -> Array:
        """c (2,) of a row of weight 1 of the positive and of the negative class."""
        return c_per_class(self.cost, self.class_weight, self.totals)

    @cached_property
    def objective(self) -> Objective:
        """The objective."""
        return Objective(self.loss, self.class_c, self.intercept, self.epsilon, Magnitudes(self.source))

    @cached_property
    def terms(self) -> Terms:
        """What sums of far rows depend on besides the rows."""
        scaling = scaling_of(self.source)
        how: tuple[Any, ...] = () if scaling is None else (scaling.kind, scaling.shift, scaling.factor)
        if scaling is not None and scaling.metric is not None:
            how += scaling.metric.affine()
        how += tuple(sorted(map_arrays(self.source).items()))
        digest = bytes.fromhex(view_digest("", "scaling", how).partition(":")[2])
        return Terms(np.array(self.codes, np.int64), self.class_c, np.frombuffer(digest, np.uint8))

    # memory

    @property
    def row_bytes(self) -> int:
        """Bytes of a row in float64 with its 1; the mean of sparse rows."""
        return float64_row_bytes(self.source) + 8

    @property
    def all_bytes(self) -> int:
        """Bytes of all rows as they are read or, if that is more, of what the problems that share them keep per row.

        Sparse rows have their values in float64. Problems that share the memory hold the same rows once; those that
        leave a fold out have a copy each while they are solved.
        """
        source = self.source
        values = source.nbytes * (8 // source.dtype.itemsize if source.sparse else 1)
        return max(self.copies * (values + 8 * source.rows), KNOWN * self.sharing * source.rows)

    @property
    def sums_bytes(self) -> int:
        """Bytes of the d x d matrices that exist at a time."""
        copies = CURVES * self.sharing if self.loss.curves else 2  # the latter while a model is solved
        return 8 * (self.source.features + 1) ** 2 * copies

    @property
    def fits(self) -> bool:
        """Whether there is memory for all rows."""
        return self.all_bytes <= self.memory_bytes

    @property
    def by_rows(self) -> bool:
        """Whether models consist of rows, not of d x d sums.

        They do if such sums do not fit, and if all rows fit and are few per feature (of which a sample shows little),
        have many features, or are sparse. Sparse rows of which only some fit are partitioned if the loss does not
        curve: with the hinge and memory for a quarter of the rows, a9a and w8a took 3 scans and 0.2 s each; by sums,
        a9a took 6 scans and 0.4 s, and w8a stopped without a proof after 73 scans (129 s).
        """
        source = self.source
        if source.rows < source.features or self.sums_bytes > max(self.memory_bytes, LEAST_FOR_SUMS):
            return True
        if source.sparse and not self.loss.curves and self.duals_fit:
            return True
        return self._better_as_rows and self.fits

    @property
    def _better_as_rows(self) -> bool:
        source = self.source
        short = source.rows < FEW_ROWS * source.features
        return source.sparse or short or source.features >= MANY_FEATURES

    @property
    def all_cached(self) -> bool:
        """Whether all rows are cached: they are read before the first scan, which is the proof."""
        return self.by_rows and self.fits

    @property
    def holds_all_rows(self) -> bool:
        """See ``Problem``."""
        return self.all_cached

    @property
    def in_segments(self) -> bool:
        """Whether models consist of rows that do not all fit, so that block minimisation has to solve them."""
        return self.by_rows and not self.fits

    @property
    def memory_need(self) -> MemoryNeed:
        """Memory for all rows if that is better than sums, or for sums and the rows near the margin."""
        source, size = self.source, self.all_bytes
        what, less = "rows", "with less, sums stand for most rows, and more of them are read again"
        rows = source.rows
        if self.in_segments:
            less = "with less, rows are read a part at a time, pass after pass"
            if source.rows >= source.features and (self.loss.curves or not source.sparse):
                size = min(size, max(self.sums_bytes, LEAST_FOR_SUMS))
        elif not (self.by_rows or self._better_as_rows):
            rows = max(1, int(NEAR_SHARE * source.rows))
            size, what = int(rows * 8 * (source.features + 1) / NEAR_PART[False]), "rows near the margin"
        return MemoryNeed(self.memory_bytes, size, rows, what, less)

    # scans

    def points(self, state: SoftState) -> Array:
        """Points from the best hypothesis (0) to the newest (1) at which the next scan sums up losses."""
        return np.ones(1) if state.best is None else np.array([1.0, *LINE_POINTS])

    def near_probe(
        self, state: SoftState, *, keep: int, cached: NDArray[np.int64], curve: bool = False
    ) -> NearMarginProbe:
        """The probe of a state's newest hypothesis, and its best one.

        keep: rows that each chunk sends; cached: ids of the rows that the driver has; curve: d x d sums are wanted.
        """
        base = state.newest[:, None]
        if state.best is not None:
            base = np.column_stack([state.newest, state.best])
        return NearMarginProbe(
            base=base,
            points=self.points(state),
            codes=self.codes,
            class_c=self.class_c,
            loss=self.loss,
            keep=keep,
            cached=cached,
            curve=curve,
            low=state.low,
            high=state.high,
            bins=BINS,
            chunk_rows=self.source.chunk_rows,
            dtype=self.source.dtype.name,
            sparse=self.source.sparse,
        )

    def with_best_point(self, points: Array, state: SoftState, summary: NearMarginSummary) -> SoftState:
        """The state with the upper bound of the best of the points (k,) whose losses a scan summed up, rounded up."""
        objective = self.objective
        best, least, total_c = state.best, state.upper, float(summary.total_c.sum())
        for k, t in enumerate(points):
            point, size = state.newest, np.abs(state.newest)
            if t != 1 and state.best is not None:  # margins between two hypotheses have the errors of both
                point, size = t * point + (1 - t) * state.best, t * size + (1 - t) * np.abs(state.best)
            value = soft.penalty(point, objective.metric) + float(summary.losses[k])
            value = objective.rounded_up(value, size, total_c)
            if value < least:
                best, least = point, value
        return replace(state, best=best, bounds=replace(state.bounds, primal=least))

    # states

    def unsolved(self) -> SoftState:
        """See ``Problem``: no row is known, the hypothesis is zero."""
        source, nothing = self.source, np.zeros(self.source.features + 1)
        none = RowsWithC.nothing(source.features, source.dtype, sparse=source.sparse)
        return SoftState(
            round=0,
            status="running",
            newest=nothing,
            best=None,
            bounds=Bounds.unknown(nothing),
            rows=RowCache(none, none, np.zeros(0)),
            zone=Zone(widen=1, idle=0),
            last_scan=LastScan.none(0.0, 1.0),
            total_rows=int(source.scalars().counts.sum(axis=0)[list(self.codes)].sum()),
            sample_bytes=0,
        )

    def restore(self, arrays: Mapping[str, NDArray[Any]]) -> SoftState:
        """See ``Problem``."""
        return SoftState.from_arrays(arrays)

    def round_of(self, state: SoftState) -> Round:
        """See ``Problem``: the dual is the lower bound; before the first scan nothing is proven."""
        last_scan, lower = state.last_scan, state.lower if np.isfinite(state.upper) else -np.inf
        held, running = len(state.rows.cached) or last_scan.near_rows, state.status == "running"
        if state.reading is not None:
            held = len(state.reading.near)
        return Round(
            status=state.status,
            lower=lower,
            lower_now=lower,
            upper=state.upper,
            working_set_rows=held,
            coreset_rows=len(state.bounds.near_ids),
            new_rows=last_scan.near_rows,
            rows_below=last_scan.rows_below,
            **scan_position(state.round, state.round, state.stages, going_on=state.reading is not None and running),
        )

    def result(self, state: SoftState) -> Result:
        """The result of a state; with mapped rows, slightly less is claimed."""
        best, bounds = state.newest if state.best is None else state.best, state.bounds
        more = {"reference_of": bounds.reference_of} if len(bounds.reference_of) else {}
        if bounds.ramp:
            more["ramp"] = np.array([bounds.ramp])
        none = np.zeros((len(bounds.near_ids), 0))  # the verifier reads these rows from the store
        found = Result(
            status="certified" if state.status == "certified" else "stopped",
            reason=REASONS.get(state.status, state.status),
            kind="duality_gap",
            w=best[:-1],
            b=float(best[-1]),
            lower=bounds.dual if np.isfinite(bounds.primal) else None,
            upper=bounds.primal,
            proof=WorkingSet(bounds.near_ids, none, bounds.near_signs, bounds.near_duals),
            final=np.array_equal(best, state.newest) and state.reading is None,
            staged=state.reading is not None,
            extra={"reference": bounds.reference} | more,
        )
        total = float(self.class_c @ self.totals)
        return widen_value_bounds(
            found, self.source, self.epsilon, lambda margin, value: self.loss.value_error(margin, value, total)
        )
