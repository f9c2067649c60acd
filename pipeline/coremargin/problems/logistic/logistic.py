"""The logistic loss by Newton's method, with a lower and an upper bound of its least value from every scan.

    P(w, b) = 1/2 ||w||^2 + sum_i c_i log(1 + exp(-m_i)),    m_i = y_i (w.x_i + b)
    D(a) = sum_i c_i H(a_i / c_i) - 1/2 ||sum_i a_i y_i x_i||^2,    H(q) = -q log q - (1 - q) log(1 - q)

c_i is C times the weights of the row and its class. For 0 <= a_i <= c_i, with an intercept sum_i a_i y_i = 0, no value
of P is below D(a) (Jaakkola, Haussler 1999; Yu, Huang, Lin 2011). At a hypothesis v = (w, b) the slopes of the loss,
a_i = c_i q_i with q_i = 1 / (1 + exp(m_i)), are such weights but for the balance. Their D is P - 1/2 ||gradient||^2.

Scan. Workers sum up the loss, its gradient, and the curve G = sum_i h_i z_i z_i^T with z = (x, 1), h = c q (1 - q).
The Newton step is p = -(R + G)^-1 gradient, R = 1 for the weights and 0 for b. The next scan is at v + p. In the same
read, it also sums up the loss at points of the segment from the best hypothesis to v + p.

Dual. Along p the slopes change, to first order, to a_i' = a_i - h_i t_i with t_i = y_i z_i.p. With u the sum of a_i
y_i z_i, that of a_i' y_i z_i is u - G p: by the choice of p it consists of the weights of v + p, and of 0 for the
balance. So D(a') is below the least value by terms of third order in p only.

- At once, by sums alone. For q' = a' / c, H(q') is H(q) + m (q' - q) less the divergence of q from q', which is at
  most K/2 q (1 - q) t^2 with K = min(2, 1 + T / (3 (1 - T))), where no |t| is above T < 1. With sum_i h_i m_i t_i =
  v.G p this gives

      D(a') >= sum_i c_i H(q_i) - v.G p - K/2 p.G p - 1/2 ||(u - G p) without b||^2.

- By the next scan, row by row, whatever t is: a q' outside of 0 to 1 is moved to the nearer end. Where the sums of
  both classes then differ, the larger one is scaled down by s. H is concave and 0 at 0, so that H(s q') >= s H(q').

The verifier computes a' from v and p again (verify/logistic.py).
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from functools import cached_property
from typing import TYPE_CHECKING, Any, Literal

import numpy as np
import scipy.linalg
from numpy.typing import NDArray

from coremargin.data.extent import Extent, extent
from coremargin.engine.memory_need import MemoryNeed
from coremargin.engine.problem import Round
from coremargin.errors import UsageError
from coremargin.maths.margin import gamma, is_certified
from coremargin.maths.rows import take, weighted_sums
from coremargin.maths.stopping import may_stop
from coremargin.problems.common.classes import c_per_class, check_scale, class_weights, two_classes
from coremargin.problems.common.driver_rows import WorkingSet
from coremargin.problems.common.map_rounding import widen_value_bounds
from coremargin.problems.common.result import STOPPED, Result, TwoClassProblem
from coremargin.problems.common.sample import SAMPLE_BYTES, SAMPLE_SHARE, Sample, read_sample, sample_chunks
from coremargin.problems.common.state_arrays import state_from_arrays, state_to_arrays
from coremargin.problems.logistic.probe import (
    LogisticProbe,
    LogisticSummary,
    curve_of,
    loss,
    margins_of,
    shares,
)
from coremargin.spec import format_size

if TYPE_CHECKING:
    from collections.abc import Mapping

Array = NDArray[np.float64]
Status = Literal["running", "certified", "stalled"]
STATUSES: tuple[Status, ...] = ("running", "certified", "stalled")

#: Points of the segment from the best hypothesis (0) to the newest (1) whose loss a scan sums up besides the newest's.
LINE_POINTS = (1e-4, 1e-3, 0.01, 0.03, 0.1, 0.2, 0.35, 0.5, 0.7, 0.85)
#: Matrices of (d + 1)^2 numbers that exist at a time: in transit, merged, or solved.
CURVES = 8
#: Rows of the rarer class for each feature that a sample has, up to this share of the store: fewer say little. Measured
#: on 200,000 x 40 rows of which 1.7 % are positive, gap 1e-3 | 1e-6 after so many reads: 3.12 | 4.12, else 5.04 | 6.04.
ROWS_A_FEATURE, LARGEST_SAMPLE = 10, 0.25
#: A scan that reduces the gap by no more than IDLE_SHARE of the requested one is idle; the job ends after IDLE_SCANS of
#: #: them in a row.
IDLE_SHARE, IDLE_SCANS = 0.1, 4
#: Stores up to this are a sample as a whole.
SMALL_BYTES = 4 << 20
#: If a sample has fewer rows than it should, C times these factors is tried.
SHARES = (0.01, 0.1, 1.0)
#: A step whose predicted value is below this share of the current one is not trusted: the curvature changes on the way.
PROMISE = 0.5
#: Newton steps on a sample, at most.
STEPS = 100
#: Shares of the diagonal that are added to the matrix of a Newton step: where rounding leaves it not definite, any step
#: is better than none.
RIDGES = (0.0, 1e-13, 1e-10, 1e-7)
#: Moves of margins up to this have a dual by sums alone.
MOST_MOVED = 0.9


@dataclass(frozen=True)
class LogisticState:
    """The state between two scans.

    newest (d + 1,): the (w, b) of the next scan; best: the one with the value ``primal``, or, before the first scan,
    the best one without weights. base, move (d + 1,): ``newest`` is the Newton step ``move`` from ``base``, which was
    scanned; else both are zeros. reference, dual_move (d + 1,): the dual point of the bound ``dual``, as a hypothesis
    and a move from it. wrong: rows with a margin of 0 or less at the newest hypothesis of the last scan. idle: number
    of idle scans in a row.
    """

    round: int
    status: Status
    newest: Array
    best: Array
    base: Array
    move: Array
    primal: float
    dual: float
    reference: Array
    dual_move: Array
    wrong: int
    idle: int
    sample_rows: int
    sample_bytes: int

    def to_arrays(self) -> dict[str, NDArray[Any]]:
        """For checkpoints, exact."""
        return state_to_arrays(self, STATUSES)


@dataclass(frozen=True)
class Logistic(TwoClassProblem[LogisticState, LogisticSummary]):
    """Minimise P until the gap between both bounds is at most epsilon of its value.

    class_weight: factors of C for the negative and the positive class, or "balanced". memory_bytes: for sums of d x d
    numbers, and rows.
    """

    epsilon: float
    cost: float
    class_weight: Literal["balanced"] | tuple[float, float] | None = None
    intercept: bool = True
    memory_bytes: int = 256 << 20
    sample_share: float = SAMPLE_SHARE

    def check(self) -> None:
        """Check that the job can be trained. Raises LabelError, StoreError, UsageError."""
        two_classes(self.source, one_vs_rest=False)
        if self._curve_bytes * CURVES > self.memory_bytes:
            raise UsageError(
                f"memory: expected at least {format_size(self._curve_bytes * CURVES)} for the logistic loss of "
                f"{self.source.features:,} features, whose scans sum up d x d numbers; found "
                f"{format_size(self.memory_bytes)}; give more memory, or take the loss squared_hinge or hinge"
            )

    @property
    def _curve_bytes(self) -> int:
        return 8 * (self.source.features + 1) ** 2

    @property
    def least_block_bytes(self) -> int:
        """Blocks must be so large that the matrices of all blocks fit in memory."""
        source = self.source
        return source.nbytes * self._curve_bytes // self.memory_bytes + source.nbytes // source.chunks + 1

    @property
    def holds_all_rows(self) -> bool:
        """Whether all rows fit in half of the memory: each is then read once."""
        return not self.memory_need.short

    @property
    def memory_need(self) -> MemoryNeed:
        """The memory for all rows."""
        return MemoryNeed.of_all_rows(self.source, self.memory_bytes)

    @cached_property
    def totals(self) -> Array:
        """Sums of the sample weights (2,) of the positive and of the negative class, or numbers of rows."""
        return class_weights(self.source, self.codes)

    @property
    def class_c(self) -> Array:
        """c of a row of weight 1 of the positive and of the negative class."""
        return c_per_class(self.cost, self.class_weight, self.totals)

    @property
    def metric(self) -> Array:
        """R (d + 1,): 1 for the weights, 0 for the intercept."""
        return np.append(np.ones(self.source.features), 0.0)

    # start

    @property
    def sample_chunks(self) -> list[int]:
        """The chunks that are read before the first scan."""
        source = self.source
        rare = int(source.scalars().counts.sum(axis=0)[list(self.codes)].min())
        enough = min(LARGEST_SAMPLE, ROWS_A_FEATURE * (source.features + 1) / max(1, rare))
        limit = max(1, min(SAMPLE_BYTES, self.memory_bytes // 4))
        if source.nbytes > SMALL_BYTES:  # workers sum up all rows faster than this process solves them
            limit = min(limit, source.nbytes - 1)
        return sample_chunks(source, self.codes, max(self.sample_share, enough), limit)

    def unsolved(self) -> LogisticState:
        """The state without bounds, whose hypothesis is zero."""
        nothing = np.zeros(self.source.features + 1)
        return LogisticState(
            round=0,
            status="running",
            newest=nothing,
            best=nothing,
            base=nothing,
            move=nothing,
            primal=np.inf,
            dual=0.0,
            reference=nothing,
            dual_move=nothing,
            wrong=0,
            idle=0,
            sample_rows=0,
            sample_bytes=0,
        )

    def start(self) -> LogisticState:
        """Solve on a sample of chunks."""
        check_scale(self.source, self.class_c, self.totals)
        found, first = read_sample(self.source, self.sample_chunks, self.codes), np.zeros(self.source.features + 1)
        if self.intercept:
            costs = self.class_c * self.totals
            first[-1] = np.log(costs[0]) - np.log(costs[1])
        rare = min(np.count_nonzero(found.signs > 0), np.count_nonzero(found.signs < 0))
        scarce = len(found.signs) < self.source.rows and rare < ROWS_A_FEATURE * (self.source.features + 1)
        return replace(
            self.unsolved(),
            newest=(self._solve_scarce if scarce else self._solve)(found, first),
            best=first,
            sample_rows=len(found.ids),
            sample_bytes=found.nbytes(self.source),
        )

    def _solve_scarce(self, found: Sample, point: Array) -> Array:
        """Solve few rows per feature, which overfit: choose among several C by the loss on a held-out fifth."""
        held = np.arange(len(found.signs)) % 5 == 4
        rest, fifth = (_part(found, np.flatnonzero(mine)) for mine in (~held, held))
        row_c, best, least = self._scaled_c(fifth), point, np.inf
        for share in SHARES:
            point = self._solve(rest, point, share)
            margins = margins_of(fifth.rows, fifth.signs, point[:, None])[0]
            value = float(0.5 * (self.metric * point) @ point + row_c @ loss(margins))
            if not value < least:
                break
            best, least = point, value
        return best

    def _scaled_c(self, found: Sample) -> Array:
        """c (m,) of the rows of a sample, scaled up to all rows of their classes."""
        row_c = np.ones(len(found.signs)) if found.weights is None else found.weights
        for k, sign in enumerate((1, -1)):
            mine = found.signs == sign
            shown = row_c[mine].sum()
            row_c = np.where(mine, row_c * (self.class_c[k] * self.totals[k] / shown if shown else 0.0), row_c)
        return row_c

    def _solve(self, found: Sample, point: Array, share: float = 1.0) -> Array:
        """The minimiser (d + 1,) over the rows of a sample, each class with that share of its weight in the store."""
        signs, rows, row_c = found.signs, found.rows, share * self._scaled_c(found)
        # The minimum over all rows differs by about (d + 1) / 2 losses: a more accurate solution is of no use.
        part = len(signs) / self.source.rows
        spare = 0.02 * (self.source.features + 1) * (1.0 - part) * float(row_c.mean())
        margins = margins_of(rows, signs, point[:, None])[0]
        for _ in range(STEPS):
            may_stop()
            value = float(0.5 * (self.metric * point) @ point + row_c @ loss(margins))
            q, other = shares(margins)
            gradient = self.metric * point - vector_of(rows, signs * row_c * q)
            step = self._newton(gradient, curve_of(rows, row_c * q * other))
            slope = float(gradient @ step)
            if not -slope > max(spare, 0.01 * self.epsilon * value):
                break
            along = margins_of(rows, signs, step[:, None])[0]
            length = 1.0
            while length > 1e-10:
                nearby = point + length * step
                trial = float(0.5 * (self.metric * nearby) @ nearby + row_c @ loss(margins + length * along))
                if trial <= value + 0.1 * length * slope:
                    break
                length *= 0.5
            if not length > 1e-10:
                break
            point = point + length * step
            margins = margins_of(rows, signs, point[:, None])[0]
        return point

    # scan

    def points(self, state: LogisticState) -> Array:
        """Points from the best hypothesis (0) to the newest (1) at which the next scan sums up the loss."""
        if np.array_equal(state.best, state.newest):
            return np.ones(1)
        return np.array([1.0, *LINE_POINTS] if state.round else [1.0, *LINE_POINTS, 0.0])  # no scan was about that one

    def probe(self, state: LogisticState) -> LogisticProbe:
        """The probe of the next scan."""
        return LogisticProbe(
            state.newest, state.best, state.base, state.move, self.points(state), self.codes, self.class_c
        )

    def round_of(self, state: LogisticState) -> Round:
        """The report of a state."""
        lower = state.dual if state.round else -np.inf
        return Round(
            number=state.round,
            status=state.status,
            lower=lower,
            lower_now=lower,
            upper=state.primal,
            working_set_rows=state.sample_rows,
            coreset_rows=0,
            new_rows=0,
        )

    def restore(self, arrays: Mapping[str, NDArray[Any]]) -> LogisticState:
        """A state from a checkpoint."""
        return LogisticState(**state_from_arrays(LogisticState, arrays, {}, STATUSES))

    # update

    def update(self, state: LogisticState, summary: LogisticSummary) -> LogisticState:
        """Bounds and the next hypothesis after a scan."""
        newest, known = state.newest, state.primal - state.dual
        pull = summary.vectors[0] - summary.vectors[1], summary.duals[0] - summary.duals[1]
        slopes = np.append(*pull)
        step = self._newton(self.metric * newest - slopes, summary.curve)
        duals = [(self._next_dual(newest, step, slopes, summary), newest, step)]
        if state.move.any():
            duals.append((self._moved_dual(summary), state.base, state.move))
        dual, reference, move = max(duals, key=lambda one: one[0])
        if dual > state.dual:
            state = replace(state, dual=dual, reference=reference, dual_move=move)
        values = [self._value(state, t, losses) for t, losses in zip(self.points(state), summary.losses, strict=True)]
        place = int(np.argmin(values))
        improved = values[place] < state.primal
        if improved:
            state = replace(state, primal=float(values[place]), best=_between(state, self.points(state)[place]))
        # A Newton step from the newest point, where the curvature is known, may predict a lower value than the best
        # point.
        promised = values[0] + 0.5 * float(step @ (self.metric * newest - slopes))
        promising = improved and PROMISE * state.primal < promised < state.primal
        if promising or np.array_equal(newest, state.best):
            state = replace(state, newest=newest + step, base=newest, move=step)
        else:
            state = replace(state, newest=state.best, base=np.zeros_like(step), move=np.zeros_like(step))
        gained = known - (state.primal - state.dual) if np.isfinite(known) else np.inf
        idle = 0 if gained > IDLE_SHARE * self.epsilon * state.primal else state.idle + 1
        state = replace(state, round=state.round + 1, wrong=int(summary.wrong[0]), idle=idle)
        if is_certified(state.dual, state.primal, self.epsilon):
            return replace(state, status="certified")
        stuck = idle >= IDLE_SCANS or not np.isfinite(state.newest).all()
        return replace(state, status="stalled") if stuck else state

    def _newton(self, gradient: Array, curve: Array) -> Array:
        """-(R + G)^-1 gradient (d + 1,), in units that give the matrix a diagonal of ones."""
        used = len(gradient) if self.intercept else len(gradient) - 1
        matrix = (curve + np.diag(self.metric))[:used, :used]
        step, diagonal = np.zeros(len(gradient)), np.diag(matrix)
        scale = 1.0 / np.sqrt(np.where(diagonal > 0, diagonal, 1.0))
        scaled = matrix * scale * scale[:, None]
        for ridge in RIDGES:
            try:
                factor = scipy.linalg.cho_factor(scaled + ridge * np.eye(used), check_finite=False)
            except np.linalg.LinAlgError:
                continue
            step[:used] = -scale * scipy.linalg.cho_solve(factor, scale * gradient[:used], check_finite=False)
            break
        return step if np.isfinite(step).all() else np.zeros(len(gradient))

    # bounds: rounded outward by more than the verifier's rounding

    @cached_property
    def _error(self) -> float:
        """Relative error of a sum of terms over all rows; several times the known bound."""
        return 8.0 * gamma(self.source.chunk_rows + self.source.chunks + self.source.features + 64)

    @cached_property
    def _longest(self) -> float:
        return float(self.source.scalars().max_norm.max())

    def _reach(self, size: Array) -> float:
        """No row has a larger sum_j |x_j| size_j, size (d,) >= 0."""
        by_length, by_box = self._longest * float(np.linalg.norm(size)), float(self._extent.widest @ size)
        return min(by_length, by_box) * (1.0 + 1e-9)

    @cached_property
    def _extent(self) -> Extent:
        return extent(self.source)

    def _largest_move(self, move: Array) -> float:
        """No row has a larger |dw.x + db|: by the box that all rows lie in, or by the longest of them."""
        middle, half = 0.5 * (self._extent.low + self._extent.high), 0.5 * (self._extent.high - self._extent.low)
        box = abs(float(move[:-1] @ middle + move[-1])) + float(np.abs(move[:-1]) @ half)
        size = self._reach(np.abs(move[:-1])) + abs(float(move[-1]))
        return min(box + 1e-9 * size, size)

    def _value(self, state: LogisticState, t: float, losses: float) -> float:
        """The value of a point of the segment, rounded up; losses: the sums there."""
        w, b = np.split(_between(state, t), [-1])
        # Each margin has this error; the slope of the loss is at most c, and at most the loss.
        size = min(max(self._reach(np.abs(w)), 1024.0), self._longest * float(np.linalg.norm(w)))
        off = 8.0 * gamma(self.source.features + 8) * (size + abs(float(b[0])) + 1.0)
        total = float(self.class_c @ self.totals)
        lost = off * (min(total, 2.0 * losses) if off < 0.1 else total)
        value = (0.5 * float(w @ w) + losses) * (1.0 + self._error) + lost
        return value if np.isfinite(value) else np.inf

    def _next_dual(self, newest: Array, step: Array, slopes: Array, summary: LogisticSummary) -> float:
        """Lower bound on D at the slopes of the newest hypothesis, moved by a step, from sums; 0 if unknown."""
        furthest = self._largest_move(step)
        if not furthest <= MOST_MOVED or (self.intercept and not summary.duals.all()):
            return 0.0
        error, total, spread = self._error, float(summary.duals.sum()), float(np.linalg.norm(summary.spread))
        moved = summary.curve @ step
        size = self._reach(np.abs(step[:-1])) + abs(float(step[-1]))  # errors are shares of sums of absolute values
        left = slopes - moved
        length = float(np.linalg.norm(left[:-1])) + error * (1.0 + size) * spread
        sharper = min(2.0, 1.0 + furthest / (3.0 * (1.0 - furthest)))
        bent, along = float(step @ moved), float(newest @ moved)
        dual = float(summary.entropy.sum()) - along - 0.5 * sharper * bent - 0.5 * length * length
        reach = float(summary.spread @ np.abs(newest[:-1])) + total * abs(float(newest[-1]))
        dual -= error * (abs(dual) + float(summary.entropy.sum()) + size * (reach + total) + length * length)
        if self.intercept:  # scaling removes the imbalance that rounding leaves
            unbalanced = abs(float(left[-1])) + error * (1.0 + size) * total
            share = unbalanced / (1.0 - furthest) / float(summary.duals.min())
            dual -= share * (2.0 * float(summary.entropy.sum()) + 2.0 * spread * (length + 2.0 * share * spread))
        return dual if np.isfinite(dual) else 0.0

    def _moved_dual(self, summary: LogisticSummary) -> float:
        """D of the dual point whose sums a scan computed row by row; 0 without one."""
        sums, scale = summary.moved_duals, np.ones(2)
        if self.intercept:
            if not sums.all():
                return 0.0
            scale = sums.min() / sums
        vector = scale[0] * summary.moved_vectors[0] - scale[1] * summary.moved_vectors[1]
        length = float(np.linalg.norm(vector) + self._error * np.linalg.norm(summary.spread))
        dual = float(scale @ summary.moved_entropy) * (1.0 - self._error) - 0.5 * length * length * (1.0 + self._error)
        return dual if np.isfinite(dual) else 0.0

    # result

    def result(self, state: LogisticState) -> Result:
        """The result of a state."""
        w, b = (state.best if state.round else state.newest)[:-1], (state.best if state.round else state.newest)[-1]
        none = np.zeros(0, np.int64)
        found = Result(
            status="certified" if state.status == "certified" else "stopped",
            reason=STOPPED.get(state.status, state.status),
            kind="duality_gap",
            w=w,
            b=float(b),
            lower=state.dual if state.round else None,
            upper=state.primal,
            proof=WorkingSet(none, np.zeros((0, 0)), none.astype(np.int8), np.zeros(0)),
            final=False,
            extra={"reference": state.reference, "move": state.dual_move},
        )
        total = float(self.class_c @ self.totals) if state.round else 0.0
        return widen_value_bounds(found, self.source, self.epsilon, lambda margin, _: margin * total)


def _part(found: Sample, places: NDArray[np.intp]) -> Sample:
    """Some of the rows of a sample."""
    weights = None if found.weights is None else found.weights[places]
    return Sample(found.chunks, found.ids[places], take(found.rows, places), found.signs[places], weights)


def _between(state: LogisticState, t: float) -> Array:
    """A point of the segment from the best hypothesis (0) to the newest (1)."""
    return state.newest if t == 1 else t * state.newest + (1.0 - t) * state.best


def vector_of(rows: Any, weights: Array) -> Array:
    """sum_i weight_i z_i (d + 1,), z = (x, 1)."""
    return np.append(weighted_sums(rows, weights[:, None])[0], weights.sum())
