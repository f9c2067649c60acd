"""What the soft margin of two classes minimises, with how much memory, and how its rows are kept.

As sums of d x d numbers, as some of the rows, or as all of them. CPU seconds measured for whole calls on dense float32
rows with 2 to 10 % noise, C = 1, gap 1e-3, by sums | on all rows:

    rows x features     hinge          squared hinge
    30,000 x 300        2.5 | 1.2      1.4 | 0.7
    100,000 x 300       7.0 | 2.2      1.5 | 1.3
    200,000 x 300      10.5 | 3.6      2.1 | 2.7
    60,000 x 784      > 18  | 4.2      6.7 | 2.0
    100,000 x 100       1.8 | 1.1      1.2 | 0.7
    300,000 x 100       1.3 | 2.2      1.0 | 1.3     C = 0.001 and C = 100: the same

Steps by sums cost n d^2, those on all rows n d; few features are left to the sums, which mind odd units less.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property
from typing import TYPE_CHECKING, Any, Literal

import numpy as np
from numpy.typing import NDArray

from coremargin.data.mapped import map_arrays
from coremargin.data.scaled import scaling_of
from coremargin.data.view import view_digest
from coremargin.engine.want import Want
from coremargin.problems.common.classes import balanced_c, class_weights
from coremargin.problems.common.map_rounding import widen_value_bounds
from coremargin.problems.common.result import TwoClassProblem
from coremargin.problems.common.sample import SAMPLE_BYTES, SAMPLE_SHARE
from coremargin.problems.common.sizes import float64_row_bytes
from coremargin.problems.common.zone import Zone
from coremargin.problems.soft.objective import Magnitudes, Objective
from coremargin.problems.soft.probe import NearMarginProbe
from coremargin.problems.soft.rows_with_c import RowsWithC
from coremargin.problems.soft.start import BINS
from coremargin.problems.soft.state import Bounds, LastScan, RowCache, SoftState, Terms
from coremargin.problems.soft.summary import NearMarginSummary

if TYPE_CHECKING:
    from coremargin.problems.common.result import Result
    from coremargin.problems.soft.losses.loss import Loss

Array = NDArray[np.float64]

#: Points of the segment from the best hypothesis (0) to the newest (1) whose losses a scan sums up besides the newest.
LINE_POINTS = (0.03, 0.1, 0.25, 0.5, 0.75, 0.9)
#: So many rows per feature are few, and so many features many: then all rows are cached, where they fit.
FEW_ROWS, MANY_FEATURES = 50, 200
#: Summaries of squared hinge hold a (d + 1) x (d + 1) matrix; so many are on the way at a time.
CURVES = 8
#: Share of the rows that are sent from one scan.
NEAR_SHARE = 0.05
#: Share of the memory for these rows: dense ones of models of sums, copied while they are solved, and all others.
NEAR_PART = (0.25, 0.625)
#: Bytes that there always are for such matrices.
LEAST_FOR_SUMS = 32 << 20
#: Bytes that each of the problems which share the memory keeps of a row that they all hold.
KNOWN = 17


@dataclass(frozen=True)
class SoftBase(TwoClassProblem[SoftState, NearMarginSummary]):
    """Minimise 1/2 ||w||^2 + C sum_i s_i loss(y_i (w.x_i + b)) until the duality gap is at most epsilon of the value.

    class_weight: factors of C for the negative and the positive class, or "balanced". memory_bytes: for rows and
    matrices; sharing: so many problems share the memory; copies: of the rows that all of them hold, how many there are
    at a time; near_bytes: of it, for the rows that one scan sends, None: NEAR_PART; duals_fit: whether the memory has
    room for a dual of each row and each of these problems, which segments take.
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

    @property
    def row_bytes(self) -> int:
        """Bytes of a row in float64, with its 1; of sparse rows, whose lengths differ, about the mean."""
        return float64_row_bytes(self.source) + 8

    @cached_property
    def totals(self) -> Array:
        """Sums of the sample weights (2,) of the positive and of the negative class: with no weights, their rows."""
        return class_weights(self.source, self.codes)

    @property
    def class_c(self) -> Array:
        """c of a row of weight 1 of the positive and of the negative class."""
        if self.class_weight is None:
            return np.full(2, self.cost)
        if self.class_weight == "balanced":
            return balanced_c(self.cost, self.totals)
        negative, positive = self.class_weight
        return self.cost * np.array([positive, negative])

    @cached_property
    def objective(self) -> Objective:
        """What is minimised."""
        return Objective(self.loss, self.class_c, self.intercept, self.epsilon, Magnitudes(self.source))

    @cached_property
    def terms(self) -> Terms:
        """What rows are and what they cost."""
        scaling = scaling_of(self.source)
        how: tuple[Any, ...] = () if scaling is None else (scaling.kind, scaling.shift, scaling.factor)
        how += tuple(sorted(map_arrays(self.source).items()))
        digest = bytes.fromhex(view_digest("", "scaling", how).partition(":")[2])
        return Terms(np.array(self.codes, np.int64), self.class_c, np.frombuffer(digest, np.uint8))

    def claimed(self, found: Result) -> Result:
        """A result as it is claimed: of mapped rows a little less."""
        total = float(self.class_c @ self.totals)
        return widen_value_bounds(
            found, self.source, self.epsilon, lambda margin, value: self.loss.lost(margin, value, total)
        )

    def unsolved(self) -> SoftState:
        """No row is known; the hypothesis is zero."""
        source, nothing = self.source, np.zeros(self.source.features + 1)
        none = RowsWithC.nothing(source.features, source.dtype, sparse=source.sparse)
        return SoftState(
            round=0, status="running", newest=nothing, best=None, bounds=Bounds.nothing(nothing),
            rows=RowCache(none, none, np.zeros(0)), zone=Zone(widen=1, idle=0), last_scan=LastScan.nothing(0.0, 1.0),
            total_rows=int(source.scalars().counts.sum(axis=0)[list(self.codes)].sum()), sample_bytes=0,
        )  # fmt: skip

    def points(self, state: SoftState) -> Array:
        """Where on the segment from the best hypothesis (0) to the newest (1) the next scan sums up losses."""
        return np.ones(1) if state.best is None else np.array([1.0, *LINE_POINTS])

    def near_probe(
        self, state: SoftState, *, keep: int, cached: NDArray[np.int64], curve: bool = False
    ) -> NearMarginProbe:  # fmt: skip
        """The question about a state's newest hypothesis, and its best one.

        keep: rows that each chunk sends; cached: ids of those that the driver has; curve: d x d sums are wanted.
        """
        base = state.newest[:, None]
        if state.best is not None:
            base = np.column_stack([state.newest, state.best])
        return NearMarginProbe(
            base=base, points=self.points(state), codes=self.codes, class_c=self.class_c, loss=self.loss,
            keep=keep, cached=cached, curve=curve, low=state.low, high=state.high, bins=BINS,
            chunk_rows=self.source.chunk_rows, dtype=self.source.dtype.name, sparse=self.source.sparse,
        )  # fmt: skip

    @property
    def by_rows(self) -> bool:
        """True for models that are kept as rows (row_steps.py, block_steps.py), False as d x d sums (steps.py).

        As rows where such sums do not fit into the memory, and where all rows fit and there are few per feature, of
        which a sample tells little, or many features, or they are sparse. With the hinge, sparse rows of which only
        some fit are gone over in segments though sums would fit: for a9a and w8a, with memory for a quarter of their
        rows, that took 3 scans and 0.2 s each, by sums 6 scans and 0.4 s for a9a, and w8a was given up after 73 scans
        (129 s). What bends the squared hinge is in its sums alone.
        """
        source = self.source
        if source.rows < source.features or self.sums_bytes > max(self.memory_bytes, LEAST_FOR_SUMS):
            return True
        if source.sparse and not self.loss.curves and self.duals_fit:
            return True
        return self._better_as_rows and self.fits

    @property
    def _better_as_rows(self) -> bool:
        """Whether models of all rows are the better ones."""
        source = self.source
        short = source.rows < FEW_ROWS * source.features
        return source.sparse or short or source.features >= MANY_FEATURES

    @property
    def want(self) -> Want:
        """Room for all rows, where that is better than sums, or for sums; with sums for the rows near the margin."""
        source, size = self.source, self.all_bytes
        what, less = "rows", "with less, sums stand for most rows, and more of them are read again"
        rows = source.rows
        if self.in_segments:
            less = "with less, rows are read a segment at a time, pass after pass"
            if source.rows >= source.features and (self.loss.curves or not source.sparse):
                size = min(size, max(self.sums_bytes, LEAST_FOR_SUMS))
        elif not (self.by_rows or self._better_as_rows):
            rows = max(1, int(NEAR_SHARE * source.rows))
            size, what = int(rows * 8 * (source.features + 1) / NEAR_PART[False]), "rows near the margin"
        return Want(self.memory_bytes, size, rows, what, less)

    @property
    def sums_bytes(self) -> int:
        """Bytes of the d x d sums that exist at a time."""
        copies = CURVES * self.sharing if self.loss.curves else 2  # the hinge's exist while it is solved
        return 8 * (self.source.features + 1) ** 2 * copies

    @property
    def all_cached(self) -> bool:
        """True for models of all rows, which are cached: they are read before the first scan, which is the proof."""
        return self.by_rows and self.fits

    @property
    def holds_all_rows(self) -> bool:
        """Where they are cached."""
        return self.all_cached

    @property
    def in_segments(self) -> bool:
        """True for models of rows that do not all fit: a segment of them is read at a time (block_minimisation.py)."""
        return self.by_rows and not self.fits

    @property
    def fits(self) -> bool:
        """Whether the memory has room for all rows."""
        return self.all_bytes <= self.memory_bytes

    @property
    def all_bytes(self) -> int:
        """Bytes that it takes to cache all rows as they are read, or what members know of each, whichever is more.

        Sparse rows have their values in float64. Problems that share the memory hold the same rows, once; members that
        leave a fold out have a copy each while they are solved.
        """
        source = self.source
        values = source.nbytes * (8 // source.dtype.itemsize if source.sparse else 1)
        return max(self.copies * (values + 8 * source.rows), KNOWN * self.sharing * source.rows)
