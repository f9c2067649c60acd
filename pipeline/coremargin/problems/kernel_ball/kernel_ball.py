"""The smallest or the soft ball in a kernel's feature space over data out of core, with a working set in the driver.

maths/kernel/enclosing.py states both problems; the smallest ball is the soft one without boxes. The algorithm:

1.  *First read.* It is made in stages. Of the first stage the working set gets some rows, of the others those that lie
    outside of the ball so far. It is solved after each stage, with boxes as if the rows seen were all.
2.  *Scans.* Workers measure all rows. That gives the value of the ball, an upper bound: its squared radius and what
    lies beyond. They send rows outside that the working set lacks.
3.  *Lower bound.* Any weights a_i >= 0 of rows of the working set prove one, whatever their sum t: with
    m = max(1, t) max(1, max a_i / C_i), the weights a_i / m are in their boxes and sum to at most 1, and no ball has a
    value below

        sum_i (a_i / m) min_p ||phi(x_i) - p||^2 = (sum_i a_i k_ii - a' K a / t) / m,

    as r >= 0 (Lagrange). Without boxes m = t. All bounds are rounded outward.

All rows outside of a soft ball carry weight, a share nu of the store: they have to fit into the working set.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass, fields, replace
from functools import cached_property
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from coremargin.data.moments import moments
from coremargin.data.transformed import untransformed
from coremargin.engine.problem import BaseProblem, Round
from coremargin.errors import StoreError, UsageError
from coremargin.maths import rows as row_ops
from coremargin.maths.breakdown import exact_sum
from coremargin.maths.kernel.enclosing import diagonal_error, solve_kernel_ball
from coremargin.maths.kernel.expansion import Expansion
from coremargin.maths.kernel.functions import Kernel, Lengths, Points
from coremargin.maths.kernel.gram import Gram
from coremargin.maths.margin import is_certified
from coremargin.problems.ball.enclosing_ball import EnclosingBall
from coremargin.problems.common.classes import check_scale
from coremargin.problems.common.driver_rows import ClassRows
from coremargin.problems.common.result import STOPPED
from coremargin.problems.common.sample import SAMPLE_BYTES, SAMPLE_SHARE
from coremargin.problems.common.stages import Stages, plan_stages, scan_position
from coremargin.problems.common.state_arrays import state_from_arrays, state_to_arrays
from coremargin.problems.kernel.bounds import EPS, WIDENED, squared_norm
from coremargin.problems.kernel.kernel_margin import FIRST, GROWTH, NEARER, UNEVEN, check_digits, largest_norms
from coremargin.problems.kernel.spec import HELP
from coremargin.problems.kernel.working_set import Capacity, select_candidates
from coremargin.problems.kernel_ball.probe import KernelBallProbe, KernelBallSummary
from coremargin.problems.one_class.rows import BINS
from coremargin.problems.soft_ball.soft_ball import SoftBall

if TYPE_CHECKING:
    from coremargin.engine.memory_need import MemoryNeed
    from coremargin.problems.one_class.rows import EnclosedRows

Array = NDArray[np.float64]
STATUSES = ("running", "certified", "stalled", "full")

#: Why a job ended without a proof.
REASONS = STOPPED | {
    "full": "the working set is full: more rows carry weight than memory holds kernel values of; give more memory, or "
    f"{HELP}",
    "stalled": "float64 cannot distinguish the remaining rows: all are nearly equal to the kernel, or its values are "
    "too many powers of ten apart; take a larger gamma, or scale the features",
}
#: Gap to which stages are solved; after that a share of the gap that the last scan left, but not less than a share of
#: epsilon; least if no row is outside of a ball that is not yet proven.
ROUGH, SHARE, FINE, LEAST = 1e-2, 0.01, 0.1, 1e-3
#: Stores of so few rows are solved as a whole.
SMALL = 4096
#: r is rounded up by this share, so that rows on the sphere are inside; by the second one with a matrix in float32.
LIFT, LIFT_FLOAT32 = 1e-12, 1e-6
#: The sum of boxes that too small a working set is given.
FEASIBLE = 1.05
#: The histogram of distances ends at so many radii.
HIGH = 1.25
#: From so many rows on, a working set of which nearly all carry weight shows that the kernel is too narrow: of those
#: that may be inside less than this share is. Rows whose distances suggest another gamma.
MANY, INSIDE, COMPARED = 200, 0.1, 400
#: Room for rows that carry weight on the sphere, in addition to those outside.
ON_SPHERE = 1.1


@dataclass(frozen=True)
class WeightedBall:
    """A ball around the point sum_i weights_i phi(x_i) of the rows (p,) of the working set.

    norm, norm_error: the point's squared length, and a bound on its error. square: the squared radius. lower, upper:
    bounds on the value; upper is infinite before a scan.
    """

    weights: Array
    norm: float
    norm_error: float
    square: float
    lower: float
    upper: float

    @classmethod
    def nothing(cls) -> WeightedBall:
        """Around 0, without rows."""
        return cls(np.zeros(0), 0.0, 0.0, 0.0, 0.0, np.inf)

    def extended(self, rows: int) -> WeightedBall:
        """With more rows, of weight 0."""
        return replace(self, weights=np.concatenate([self.weights, np.zeros(rows)]))

    def take(self, positions: NDArray[np.intp]) -> WeightedBall:
        """The rows at these positions; all others must have weight 0."""
        return replace(self, weights=self.weights[positions])

    @property
    def gap(self) -> float:
        """The share of the value that the bounds leave open."""
        return 1.0 - self.lower / self.upper if self.upper > 0 else 0.0

    def to_arrays(self, name: str) -> dict[str, NDArray[Any]]:
        """Plain arrays, exact."""
        return {f"{name}_{field.name}": np.asarray(getattr(self, field.name)) for field in fields(self)}

    @classmethod
    def from_arrays(cls, name: str, arrays: Mapping[str, NDArray[Any]]) -> WeightedBall:
        """Inverse of ``to_arrays``."""
        found: dict[str, Any] = {field.name: arrays[f"{name}_{field.name}"] for field in fields(cls)}
        return cls(**{key: value if value.ndim else value.item() for key, value in found.items()})


@dataclass(frozen=True)
class KernelBallState:
    """The state between two queries.

    round: queries answered so far. newest: the solution on the working set, which the next query is about; best: that
    with the smallest gap so far. seen: the sum of the sample weights of the rows that have been measured, at most; a
    first stage that sends some of its rows counts for these. outside, histogram (bins,): of the last query; high: the
    histogram's upper end. share_outside: upper bound on the share of the weight that lies outside of the best ball.
    """

    round: int
    status: str
    working_set: ClassRows
    newest: WeightedBall
    best: WeightedBall
    seen: float
    new_rows: int
    dropped: int
    outside: int
    histogram: NDArray[np.int64]
    high: float
    share_outside: float
    sample_bytes: int = 0

    def to_arrays(self) -> dict[str, NDArray[Any]]:
        """Plain arrays, exact: ``KernelBall.restore`` gives the same bits back."""
        return state_to_arrays(self, STATUSES)


@dataclass(frozen=True)
class KernelBall(BaseProblem[KernelBallState, KernelBallSummary]):
    """The smallest ball in feature space around all rows of weight above 0, or the soft ball.

    epsilon in (0, 1): of the radius or, with nu, of the value. nu: the share of the rows that may lie outside; None:
    none may. only: the label of the rows that count; None: all do. memory_bytes: for the kernel matrix.
    """

    kernel: Kernel
    epsilon: float
    nu: float | None = None
    only: Any = None
    memory_bytes: int = 256 << 20
    sample_share: float = SAMPLE_SHARE
    sample_bytes: int = SAMPLE_BYTES

    # The question

    @cached_property
    def _plain(self) -> EnclosingBall | SoftBall:
        """The same in the rows' own space, which has the same rows and boxes."""
        if self.nu is None:
            return EnclosingBall(self.source, self.epsilon, self.only)
        return SoftBall(self.source, self.epsilon, self.nu, self.only)

    @property
    def code(self) -> int | None:
        """The label code of the rows that count, None: of all. Raises LabelError for a class that the store lacks."""
        return self.enclosed.code

    @cached_property
    def box(self) -> float:
        """C of a row of sample weight 1; without nu of any row."""
        return self._plain.box if isinstance(self._plain, SoftBall) else 1.0

    @property
    def enclosed(self) -> EnclosedRows:
        """The rows that count."""
        return self._plain.enclosed

    @property
    def counted(self) -> int:
        """The number of rows that count."""
        return self.enclosed.count

    @cached_property
    def total(self) -> float:
        """The sum of the sample weights of the rows that count; without nu their number."""
        return float(self.counted) if self.nu is None else 1.0 / (self.nu * self.box)

    @property
    def capacity(self) -> Capacity:
        """The rows that the working set may have."""
        return Capacity(self.memory_bytes, self.source)

    @property
    def outside(self) -> int:
        """About how many rows lie outside of the ball, all of which carry weight."""
        return 0 if self.nu is None else math.ceil(self.nu * self.counted)

    def check(self) -> None:
        """Refuse what cannot be enclosed before a row is read. Raises LabelError, StoreError, BadRow, UsageError."""
        source = self.source
        self._plain.check()
        check_scale(source)
        check_digits(source, (self.kernel,))
        if bool(moments(untransformed(source)).constant.all()):
            raise StoreError(
                f"{source.name}: expected different rows, found that all are equal: the smallest ball around them has "
                f"radius 0, whatever the kernel; leave kernel out"
            )
        least = math.ceil(ON_SPHERE * self.outside) + 2
        if self.capacity.rows < min(least, self.counted):
            needed = self.capacity.memory_need(least)
            raise UsageError(
                f"{source.name}: nu {self.nu} leaves about {self.outside:,} of {self.counted:,} rows outside, all of "
                f"which carry the ball: {needed.holds}; or take a smaller nu, or a map instead of the kernel"
            )

    # Which rows are read when

    @cached_property
    def sample_chunks(self) -> list[int]:
        """The chunks of the first stage; all of a small store."""
        return self.enclosed.sample_chunks(self.sample_share, self.sample_bytes)

    @cached_property
    def stages(self) -> Stages:
        """The chunks of each stage of the first read."""
        return plan_stages(self.source.chunks, self.sample_chunks)

    @property
    def stage_chunks(self) -> tuple[int, ...]:
        """The sizes of the stages."""
        return self.stages.sizes

    @property
    def reads_again(self) -> bool:
        """True: the proof needs a scan of all rows after the first read."""
        return True

    def skip(self, state: KernelBallState) -> NDArray[np.bool_]:
        """Chunks (c,) of other stages."""
        if state.round >= self.stages.count:
            return np.zeros(self.source.chunks, bool)
        return self.stages.skipping(state.round)

    def ahead(self, state: KernelBallState) -> NDArray[np.intp]:
        """The chunks of the stage after the next."""
        return self.stages.chunks(state.round + 1) if state.round + 1 < self.stages.count else super().ahead(state)

    # Queries

    def start(self) -> KernelBallState:
        """The state without any row: the stages send the first ones."""
        return self.unsolved()

    def unsolved(self) -> KernelBallState:
        """The state before any query."""
        source = self.source
        return KernelBallState(
            round=0,
            status="running",
            working_set=ClassRows.nothing(source.features, sparse=source.sparse),
            newest=WeightedBall.nothing(),
            best=WeightedBall.nothing(),
            seen=0.0,
            new_rows=0,
            dropped=0,
            outside=0,
            histogram=np.zeros(BINS, np.int64),
            high=HIGH * self._reach or 1.0,
            share_outside=1.0,
        )

    def restore(self, arrays: Mapping[str, NDArray[Any]]) -> KernelBallState:
        """A state from a checkpoint."""
        makers = {"working_set": ClassRows.from_arrays} | dict.fromkeys(("newest", "best"), WeightedBall.from_arrays)
        return KernelBallState(**state_from_arrays(KernelBallState, arrays, makers, STATUSES))

    def probe(self, state: KernelBallState) -> KernelBallProbe:
        """The query of the next stage, or of a scan of all rows."""
        source, newest = self.source, state.newest
        chunks = int(np.count_nonzero(~self.skip(state)))
        class_of = np.full(len(source.classes) + 1, 0 if self.code is None else -1, np.int32)
        if self.code is not None:
            class_of[self.code] = 0
        return KernelBallProbe(
            centre=self.expansion(state, newest),
            norm=(newest.norm, newest.norm_error),
            square=newest.square,
            class_of=class_of,
            keep=min(source.chunk_rows, -(-UNEVEN * self._most_new_rows(state) // max(1, chunks))),
            known=np.sort(state.working_set.ids),
            high=state.high,
            bins=BINS,
            dtype=source.dtype.name,
            sparse=source.sparse,
            chunk_rows=source.chunk_rows,
        )

    def expansion(self, state: KernelBallState, ball: WeightedBall) -> Expansion:
        """The centre of a ball as a function, without rows that carry nothing."""
        used = np.flatnonzero(ball.weights)
        rows = row_ops.as_float64(row_ops.take(state.working_set.rows, used))
        return Expansion(self.kernel, rows, ball.weights[used, None], np.zeros(1))

    def _most_new_rows(self, state: KernelBallState) -> int:
        """The most rows that the next query may add."""
        if not len(state.working_set):
            return min(FIRST if self.counted > SMALL else SMALL, self.capacity.rows)
        grown = max((GROWTH - 1) * len(state.working_set) + FIRST, int(ON_SPHERE * self.outside))
        return min(grown, self.capacity.rows)

    # Update: bounds after a scan of all rows, then a larger working set, solved

    def update(self, state: KernelBallState, summary: KernelBallSummary) -> KernelBallState:
        """The state after a stage or a scan. Raises UsageError if nearly every row carries weight."""
        in_stages, first, before = state.round < self.stages.count, not len(state.working_set), state.best
        outside = int(summary.outside[0])
        state = replace(state, round=state.round + 1, outside=outside, histogram=summary.histogram)
        if not in_stages:
            state = self._update_bounds(state, summary)
            if self.proven(state.best):
                return replace(state, status="certified", new_rows=0)
        state, all_fit = self._add_candidates(state, summary)
        weight = float(state.working_set.shares.sum() if first else state.seen + summary.weight[0])
        state = replace(state, seen=weight if in_stages else self.total)
        gap = state.best.gap if math.isfinite(state.best.upper) else ROUGH
        tolerance = max(SHARE * gap, FINE * self.epsilon)
        if in_stages:
            if not len(state.working_set):
                return state
            if state.round < self.stages.count:
                tolerance = max(ROUGH, tolerance)
        elif not all_fit or state.new_rows == 0:
            if not state.best.gap < NEARER * before.gap:
                return replace(state, status="stalled" if all_fit else "full")
            tolerance = LEAST * self.epsilon
        state = self._solve(state, tolerance)
        if first:
            self._refuse_narrow(state)
        return state

    def proven(self, ball: WeightedBall) -> bool:
        """Whether the bounds prove epsilon."""
        return is_certified(*claimed_bounds(ball, hard=self.nu is None), self.epsilon)

    def _update_bounds(self, state: KernelBallState, summary: KernelBallSummary) -> KernelBallState:
        """With the value that a scan of all rows has found, if it is the best so far."""
        if self.nu is None:
            upper = float(summary.farthest[0])
        else:
            rounded = 1.0 + (int(summary.counted[0]) + 64) * EPS
            upper = state.newest.square + self.box * float(summary.beyond[0]) * rounded
        newest = replace(state.newest, upper=upper * (1.0 + WIDENED))
        better = newest.gap < state.best.gap or math.isinf(state.best.upper)
        if not better:
            return replace(state, newest=newest)
        share = float(summary.weight_outside[0]) / self.total * (1.0 + (int(summary.counted[0]) + 64) * EPS)
        return replace(state, newest=newest, best=newest, share_outside=min(1.0, share))

    def _add_candidates(self, state: KernelBallState, summary: KernelBallSummary) -> tuple[KernelBallState, bool]:
        """With candidates in the working set, and whether all fit; if not, rows that carry nothing make room."""
        sent, most = summary.sent, self._most_new_rows(state)
        mine = select_candidates(summary.scores, sent.ids, sent.classes, most) if len(sent) else np.zeros(0, np.intp)
        all_fit = len(state.working_set) + len(mine) <= self.capacity.rows
        if not all_fit:
            kept = np.flatnonzero((state.newest.weights > 0) | (state.best.weights > 0))
            state = replace(
                state,
                working_set=state.working_set.take(kept),
                newest=state.newest.take(kept),
                best=state.best.take(kept),
                dropped=state.dropped + len(state.working_set) - len(kept),
            )
            room, some = max(0, self.capacity.rows - len(kept)), sent.take(mine)
            all_fit = len(mine) <= room
            mine = mine[select_candidates(summary.scores[mine], some.ids, some.classes, room)[:room]]
        new = sent.take(mine).exact()
        after = replace(
            state,
            working_set=ClassRows.concatenate([state.working_set, new]),
            newest=state.newest.extended(len(new)),
            best=state.best.extended(len(new)),
            new_rows=len(new),
        )
        return after, all_fit

    def _boxes(self, state: KernelBallState) -> Array:
        """C of the rows of the working set (p,), as if the rows seen were all."""
        shares = state.working_set.shares
        if self.nu is None:
            return np.ones(len(shares))
        boxes = shares * (self.box if state.seen >= self.total else 1.0 / (self.nu * state.seen))
        # Too few rows: with larger boxes nearly all lie outside, so that the next scan sends more.
        short = float(boxes.sum())
        return np.asarray(boxes if short >= 1.0 else boxes * (FEASIBLE / short))

    @cached_property
    def _matrix_cache(self) -> list[Gram]:
        """The kernel matrix of the last solve. No bit of a result depends on this cache."""
        return [Gram.empty()]

    def _solve(self, state: KernelBallState, tolerance: float) -> KernelBallState:
        """With the working set solved to a gap of ``tolerance``, and the lower bound that its weights prove."""
        own = state.working_set
        points = self.kernel.points(own.rows)
        gram = self.capacity.extend_matrix(self._matrix_cache, (self.kernel,), points, own.ids, self.epsilon)
        found = solve_kernel_ball(gram.buffer[0], self._boxes(state), state.newest.weights, tolerance)
        norm = squared_norm(self.kernel, points, found.weights, Lengths.from_points(points, found.weights[:, None]))
        boxes = None if self.nu is None else self.box * own.shares
        lower = lower_bound(self.kernel, points, found.weights, norm, boxes)
        lift = LIFT if gram.buffer.dtype == np.float64 else LIFT_FLOAT32
        square = max(0.0, found.bound if self.nu is None else found.square * (1.0 + lift))
        newest = WeightedBall(found.weights, *norm, square, lower, np.inf)
        return replace(state, newest=newest, high=HIGH * math.sqrt(found.square) or 1.0)

    def _refuse_narrow(self, state: KernelBallState) -> None:
        """Raise UsageError if nearly every row carries weight, as of a kernel that takes all rows for different ones.

        Of an rbf kernel only: the error names a gamma, from the median distance of rows.
        """
        own, used = state.working_set, np.count_nonzero(state.newest.weights)
        inside = 1.0 - (self.nu or 0.0)
        if self.kernel.name != "rbf" or len(own) < MANY or len(own) - used >= INSIDE * inside * len(own):
            return
        some = self.kernel.points(row_ops.take(own.rows, np.arange(min(len(own), COMPARED))))
        apart = -self.kernel.products(some, some)
        median = float(np.median(apart[np.triu_indices(len(some), 1)]))
        better = min(self.kernel.gamma / 10.0, 1.0 / median if median > 0 else np.inf)
        raise UsageError(
            f"gamma: {self.kernel.gamma:g} is so large that {used:,} of the first {len(own):,} rows carry the ball: "
            f"nearly every row would, and the ball would say nothing about others; take a smaller gamma, such as "
            f"{better:.2g}"
        )

    # Results

    def best(self, state: KernelBallState) -> WeightedBall:
        """The ball with the smallest gap; before any scan the one that was solved last.

        The smallest ball then has the upper bound that no row is farther from 0 than the longest.
        """
        if math.isfinite(state.best.upper):
            return state.best
        newest = state.newest
        if self.nu is not None:
            return newest
        farthest = math.sqrt(newest.norm + newest.norm_error) + self._reach
        return replace(newest, upper=farthest * farthest * (1.0 + WIDENED))

    @property
    def _reach(self) -> float:
        """A bound on sqrt(k(x, x)) of all rows."""
        return float(largest_norms((self.kernel,), float(self.source.scalars().max_norm.max()))[0])

    def round_of(self, state: KernelBallState) -> Round:
        """Progress of a state."""
        queries, stages, hard = state.round, self.stages.count, self.nu is None
        lower, upper = claimed_bounds(state.best, hard=hard) if math.isfinite(state.best.upper) else (-np.inf, np.inf)
        return Round(
            status=state.status,
            lower=lower,
            lower_now=claimed_bounds(state.newest, hard=hard)[0] if math.isfinite(state.newest.upper) else lower,
            upper=upper,
            working_set_rows=len(state.working_set),
            coreset_rows=int(np.count_nonzero(self.best(state).weights)),
            new_rows=state.new_rows,
            rows_below=None,
            **scan_position(
                queries, min(queries, stages), stages, going_on=queries < stages and state.status == "running"
            ),
        )

    def wanted(self, state: KernelBallState) -> MemoryNeed | None:
        """Memory for the expected working set, if it does not fit."""
        if state.status != "full":
            return None
        return self.capacity.memory_need(max(state.outside, 2 * int(np.count_nonzero(state.newest.weights))))


def lower_bound(
    kernel: Kernel, points: Points, weights: Array, norm: tuple[float, float], boxes: Array | None
) -> float:
    """The value that no ball is below by weights (p,) >= 0 of rows (p, d) with boxes (p,), None: no ball contains them.

    norm: ||sum_i weights_i phi(x_i)||^2, and a bound on its error. Rounded down; not below 0.
    """
    used = np.flatnonzero(weights)
    own, some = weights[used], points.take(used)
    total, spread = exact_sum(own.tolist()), exact_sum((own * kernel.diagonal(some)).tolist())
    lost = exact_sum((own * diagonal_error(kernel, some)).tolist()) + norm[1] / total
    lost += WIDENED * (spread + norm[0] / total)
    scale = total if boxes is None else max(1.0, total) * max(1.0, float((own / boxes[used]).max()))
    return max(0.0, (spread - norm[0] / total - lost) / scale * (1.0 - WIDENED))


def claimed_bounds(ball: WeightedBall, *, hard: bool) -> tuple[float, float]:
    """The bounds that a record claims: of the value, or for the smallest ball of the radius, its root."""
    if not hard:
        return ball.lower, ball.upper
    return math.sqrt(ball.lower) * (1 - 4 * EPS), math.sqrt(ball.upper) * (1 + 4 * EPS)
