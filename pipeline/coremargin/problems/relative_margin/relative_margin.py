"""The relative margin machine (Shivaswamy, Jebara 2010), linear, out of core, to a gap epsilon of its value.

maths/relative_margin.py states the problem and its dual. The algorithm:

1.  *Sample.* The rows of some chunks are solved in memory. Rows that it has not seen lie beyond the bound B. By how
    much, the solution of one half of the sample shows on the other half; the sample is solved for a B that is smaller
    by that.
2.  *Scan.* Workers sum up the losses of the hypothesis at several scales t, find the largest |f| of all rows, send the
    rows nearest to the margin and those with the largest and smallest f, and sum up the far rows with a loss.
3.  *Value.* Scaled by t = B / max |f|, the hypothesis keeps all rows within the bound. The losses are convex in t, so
    that those of two scales bound them at any scale between.
4.  *Dual.* Far rows keep the dual weight of their side, c or 0; the driver solves the near rows exactly, while rows
    of large |f| keep the bound. For any such weights the dual value is exact, and no value is below it.
5.  *Next hypothesis.* The same solution, unless far rows would cross the margin there: then rows that stand for them
    have the loss of crossing, too.
6.  *Warm start.* The hypothesis of an earlier commit takes the place of the sample's.

A model names the rows whose dual weight is not that of their side: near rows, and rows at the bound.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass, replace
from functools import cached_property
from typing import TYPE_CHECKING, Any, Literal

import numpy as np
from numpy.typing import NDArray

from coremargin.engine.memory_need import MemoryNeed
from coremargin.engine.problem import CannotWarmStart, Round
from coremargin.errors import UsageError
from coremargin.maths.margin import Array, gamma, is_certified
from coremargin.maths.relative_margin import BoundedMinimum, Pieces, minimise_within, phi
from coremargin.maths.rows import dense
from coremargin.problems.common.classes import c_per_class, check_scale, class_weights, two_classes
from coremargin.problems.common.driver_rows import WorkingSet
from coremargin.problems.common.map_rounding import margin_rounding, widen_bounds
from coremargin.problems.common.result import Result, TwoClassProblem
from coremargin.problems.common.sample import SAMPLE_BYTES, SAMPLE_SHARE, Sample, read_sample, sample_chunks
from coremargin.problems.common.state_arrays import state_from_arrays, state_to_arrays
from coremargin.problems.common.zone import REASONS
from coremargin.problems.relative_margin.probe import ProjectionProbe, ProjectionSummary
from coremargin.problems.soft.magnitudes import LONG, Magnitudes
from coremargin.spec import format_size

if TYPE_CHECKING:
    from coremargin.data.difference import Difference
    from coremargin.engine.allowance import Allowance

STATUSES = ("running", "certified", "stalled")

#: Scales of the hypothesis at which a scan sums up losses, besides 0.
SCALES = (1.0, 0.9999, 0.999, 0.99, 0.97, 0.93, 0.85, 0.7, 0.4)
#: Share of the rows that a scan sends as near rows: so many at least, and at most that a step of the solver takes so
#: many multiplications.
NEAR_SHARE, NEAR_LEAST, NEAR_COST = 0.05, 5000, 4e8
#: Rows that stand for far rows, as a share of the near rows; rows with extreme decision values in a scan, of each side.
FEW_SHARE, EXTREME = 0.4, 800
#: Share of the memory for the rows that a scan sends, of which there are copies in float64; and the number of d x d
#: matrices that exist at a time.
SENT_PART, MATRICES = 0.25, 4
#: How much wider the zone of near rows may become where scans gain little.
WIDEST = 8
#: A scan that leaves more than SLOW of the gap widens the zone; one that gains no more than IDLE_SHARE of epsilon is
#: idle, and the job ends after IDLE_SCANS of them in a row.
SLOW, IDLE_SHARE, IDLE_SCANS = 0.3, 0.1, 6
#: Gap of the solutions: of all rows as a share of epsilon, of a sample as a share of the value.
WHOLE_SAMPLE, PART_SAMPLE = 0.01, 1e-6
#: Dual weights below this share of the largest one are 0; nearer to c than this share of it, they are c. The fewest
#: rows need a name with the first share; the others are tried if the bound is not good enough.
NEGLIGIBLE = (1e-4, 1e-6, 1e-8)
#: Share of the sizes of the dual weights that may be missing in their balance, in sums of another order.
BALANCE = 2.0**-46
#: Bins of the histogram of decision values, which ends at so many times B.
BINS, HIGH = 120, 1.2


@dataclass(frozen=True)
class RelativeMarginState:
    """What is known between two scans.

    newest (d + 1,): the (w, b) of the next scan; best: the one with the value ``primal``. reference (d + 1,): that of
    the scan which proved ``dual``; named_ids, named_signs, named_weights (m,): the dual weights of rows that do not
    follow from their side of it; mass: the sum of the sizes of all dual weights. widen: of the zone of near rows. idle:
    scans in a row that gained little. sent_rows, below, wrong, histogram (2, bins): of the last scan; scale: by which
    its hypothesis became the best one, 0 if it did not.
    """

    round: int
    status: str
    newest: Array
    best: Array
    primal: float
    dual: float
    reference: Array
    named_ids: NDArray[np.int64]
    named_signs: NDArray[np.int8]
    named_weights: Array
    mass: float
    widen: int
    idle: int
    sent_rows: int
    below: int
    wrong: int
    histogram: NDArray[np.int64]
    scale: float
    sample_rows: int = 0
    sample_bytes: int = 0

    def to_arrays(self) -> dict[str, NDArray[Any]]:
        """Plain arrays, exact."""
        return state_to_arrays(self, STATUSES)


@dataclass(frozen=True)
class RelativeMargin(TwoClassProblem[RelativeMarginState, ProjectionSummary]):
    """Minimise the hinge loss of two classes subject to |w.x + b| <= bound for all rows that count.

    class_weight: factors of C for the negative and the positive class, or "balanced". memory_bytes: for the rows that a
    scan sends, and d x d matrices.
    """

    epsilon: float
    bound: float
    cost: float
    class_weight: Literal["balanced"] | tuple[float, float] | None = None
    intercept: bool = True
    memory_bytes: int = 256 << 20
    sample_share: float = SAMPLE_SHARE
    sample_bytes: int = SAMPLE_BYTES

    def check(self) -> None:
        """Check that the job can be trained. Raises LabelError, StoreError, UsageError."""
        two_classes(self.source, one_vs_rest=False)
        needed = MATRICES * 8 * (self.source.features + 1) ** 2
        if needed > self.memory_bytes:
            raise UsageError(
                f"memory: expected at least {format_size(needed)} for a relative margin of {self.source.features:,} "
                f"features, whose solver has matrices of d x d numbers; found {format_size(self.memory_bytes)}; give "
                f"more memory, or leave relative_margin out"
            )

    @cached_property
    def totals(self) -> Array:
        """Sums of the sample weights (2,) of the positive and of the negative class."""
        return class_weights(self.source, self.codes)

    @property
    def class_c(self) -> Array:
        """c (2,) of a row of weight 1 of the positive and of the negative class."""
        return c_per_class(self.cost, self.class_weight, self.totals)

    @property
    def total_c(self) -> float:
        """sum c of all rows, which is the value of w = 0, b = 0."""
        return float(self.class_c @ self.totals)

    @property
    def metric(self) -> Array:
        """R (d + 1,): 1 for the weights, 0 for the intercept."""
        return np.append(np.ones(self.source.features), 0.0)

    # Sizes

    @property
    def near_rows(self) -> int:
        """How many near rows a scan sends at first."""
        p, n = self.source.features + 1, self.source.rows
        affordable = max(5 * p, min(NEAR_COST / p**2, max(NEAR_LEAST, NEAR_SHARE * n)))
        return int(max(2 * p, min(affordable, self._room)))

    @property
    def _room(self) -> float:
        return SENT_PART * self.memory_bytes / (8 * (self.source.features + 1))

    @property
    def sample_chunks(self) -> list[int]:
        """The chunks that are read before the first scan."""
        limit = min(self.sample_bytes, self.memory_bytes // 4)
        return sample_chunks(self.source, self.codes, self.sample_share, limit)

    @property
    def holds_all_rows(self) -> bool:
        """Whether all rows fit in half of the memory: each is then read once."""
        return not self.memory_need.short

    @property
    def memory_need(self) -> MemoryNeed:
        """The memory for all rows."""
        return MemoryNeed.of_all_rows(self.source, self.memory_bytes)

    # Start

    def unsolved(self) -> RelativeMarginState:
        """No row is known."""
        nothing = np.zeros(self.source.features + 1)
        return RelativeMarginState(
            round=0,
            status="running",
            newest=nothing,
            best=nothing,
            primal=np.inf,
            dual=0.0,
            reference=nothing,
            named_ids=np.zeros(0, np.int64),
            named_signs=np.zeros(0, np.int8),
            named_weights=np.zeros(0),
            mass=0.0,
            widen=1,
            idle=0,
            sent_rows=0,
            below=0,
            wrong=0,
            histogram=np.zeros((2, BINS), np.int64),
            scale=0.0,
        )

    def start(self) -> RelativeMarginState:
        """Solve the rows of a sample. Raises BadRow for rows whose squares overflow."""
        check_scale(self.source, self.class_c, self.totals)
        found = read_sample(self.source, self.sample_chunks, self.codes)
        point = self._solve_sample(found)
        return replace(
            self.unsolved(),
            newest=point,
            best=point,
            sample_rows=len(found.ids),
            sample_bytes=found.nbytes(self.source),
        )

    def _solve_sample(self, found: Sample) -> Array:
        """The hypothesis of a sample, for a bound that other rows are expected to keep."""
        most = int(max(5 * (self.source.features + 1), NEAR_COST / (self.source.features + 1) ** 2))
        whole = len(found.chunks) == self.source.chunks and len(found.ids) <= most
        few = found if len(found.ids) <= most else found.thin(-(-len(found.ids) // most))
        rows, costs = with_ones(few.rows, intercept=self.intercept), self._scaled_c(few)
        if whole:
            return self._solve(rows, few.signs, costs, self.bound, WHOLE_SAMPLE * self.epsilon)
        half = np.arange(len(costs)) % 2 == 0
        known = self._solve(rows[half], few.signs[half], 2.0 * costs[half], self.bound, PART_SAMPLE)
        beyond = float(np.abs(rows[~half] @ known).max(initial=0.0)) / self.bound
        return self._solve(rows, few.signs, costs, self.bound / max(1.0, beyond), PART_SAMPLE)

    def _scaled_c(self, found: Sample) -> Array:
        """c (m,) of the rows of a sample, scaled up to all rows of their classes."""
        costs = np.ones(len(found.signs)) if found.weights is None else found.weights
        for k, sign in enumerate((1, -1)):
            mine = found.signs == sign
            shown = float(costs[mine].sum())
            costs = np.where(mine, costs * (self.class_c[k] * self.totals[k] / shown if shown else 0.0), costs)
        return costs

    def _solve(self, rows: Array, signs: NDArray[np.int8], costs: Array, bound: float, tolerance: float) -> Array:
        nothing = np.zeros(rows.shape[1])
        pieces = Pieces(self.metric, nothing, rows * signs[:, None], np.ones(len(rows)), costs)
        middle = costs @ rows / costs.sum() if costs.any() else nothing
        return minimise_within(pieces, rows, middle, bound, tolerance).point

    # Scans

    def probe(self, state: RelativeMarginState) -> ProjectionProbe:
        """The probe of the next scan."""
        source = self.source
        near = -(-state.widen * self.near_rows // source.chunks)
        return ProjectionProbe(
            newest=state.newest,
            codes=self.codes,
            class_c=self.class_c,
            scales=np.array(SCALES),
            near=min(source.chunk_rows, near),
            extreme=max(1, -(-EXTREME // source.chunks)),
            few=max(1, int(FEW_SHARE * near)),
            high=HIGH * self.bound,
            bins=BINS,
            dtype=source.dtype.name,
            sparse=source.sparse,
        )

    def update(self, state: RelativeMarginState, summary: ProjectionSummary) -> RelativeMarginState:
        """Bounds after a scan, and the hypothesis of the next one."""
        known, before = state.primal - state.dual, state.primal
        state = replace(
            self._with_value(state, summary),
            round=state.round + 1,
            sent_rows=len(summary.sent),
            below=int(summary.below[0]),
            wrong=int(summary.wrong[0]),
            histogram=summary.histogram,
        )
        rows = with_ones(summary.sent.rows, intercept=self.intercept)
        solved = self._solve_sent(state.newest, summary, rows, guarded=False)
        for negligible in NEGLIGIBLE:
            state = self._with_dual(state, summary, rows, solved, negligible)
            if is_certified(state.dual, state.primal, self.epsilon):
                return replace(state, status="certified")
        gap = state.primal - state.dual
        idle = 0 if known - gap > IDLE_SHARE * self.epsilon * state.primal else state.idle + 1
        widen = state.widen if gap <= SLOW * known and state.primal < before else self._wider(state)
        point = solved.point
        if self._crosses(state.newest, point, summary, rows) or not solved.within:
            point = self._solve_sent(state.newest, summary, rows, guarded=True).point
        stuck = idle >= IDLE_SCANS or (np.array_equal(point, state.newest) and widen == state.widen)
        if stuck or not np.isfinite(point).all():
            return replace(state, idle=idle, status="stalled")
        return replace(state, idle=idle, widen=widen, newest=point)

    def _wider(self, state: RelativeMarginState) -> int:
        return max(state.widen, min(2 * state.widen, WIDEST, int(self._room / self.near_rows)))

    def _solve_sent(self, at: Array, summary: ProjectionSummary, rows: Array, *, guarded: bool) -> BoundedMinimum:
        """The minimiser of the model of a scan at a hypothesis; guarded: far rows have a loss where they cross, too.

        rows (m, d + 1): those that the scan sent.
        """
        signed, costs, linear = rows * summary.sent.signs[:, None], summary.costs, summary.far_linear.copy()
        if not self.intercept:
            linear[-1] = 0.0
        near = np.flatnonzero(summary.near)
        used, targets, prices = signed[near], np.ones(len(near)), costs[near]
        if guarded:
            few = np.flatnonzero(summary.far_c > 0)
            side = np.where(summary.by_side[few] > 0, -1.0, 1.0)
            used = np.concatenate([used, side[:, None] * signed[few]])
            targets, prices = np.append(targets, side), np.append(prices, summary.far_c[few])
        pieces = Pieces(self.metric, linear, used, targets, prices)
        found = minimise_within(pieces, rows, at, self.bound, min(1e-9, WHOLE_SAMPLE * self.epsilon))
        return replace(found, duals=found.duals[: len(near)])

    def _crosses(self, before: Array, after: Array, summary: ProjectionSummary, rows: Array) -> bool:
        """Whether a row that stands for far rows crosses the margin between two hypotheses."""
        few = np.flatnonzero(summary.far_c > 0)
        signed = rows[few] * summary.sent.signs[few, None]
        return bool(((signed @ before < 1.0) != (signed @ after < 1.0)).any())

    # Bounds: rounded outward by more than the verifier's rounding

    @cached_property
    def _magnitudes(self) -> Magnitudes:
        return Magnitudes(self.source)

    def _decision_error(self, point: Array) -> float:
        """Bound on the error of every decision value and margin; of mapped rows also by the rounding of the map."""
        rounding = 8.0 * gamma(self.source.features + 8) * self._magnitudes.margin_size(point)
        return rounding + margin_rounding(self.source) * float(np.linalg.norm(point[:-1]))

    def _longest_vector(self, vector: Array, mass: float, error: float, moved: float) -> float:
        """Upper bound on the length of a sum of rows (d,) whose weights have sizes that sum up to ``mass``.

        error: relative, of the sum; moved: the size of a further weight of any row.
        """
        longest = self._magnitudes.longest
        if longest <= LONG:
            return float(np.linalg.norm(vector)) + (error * mass + moved) * longest
        each = error * mass * self._magnitudes.columns.widest
        return float(np.linalg.norm(np.abs(vector) + each)) + moved * longest

    def _with_value(self, state: RelativeMarginState, summary: ProjectionSummary) -> RelativeMarginState:
        """With the value of the scan's hypothesis, scaled into the bound, if it is the least so far."""
        at, error = state.newest, self._decision_error(state.newest)
        widest = max(-float(summary.lowest[0]), float(summary.highest[0])) + error
        scale = 1.0 if widest <= self.bound else self.bound / widest * (1.0 - 1e-14)
        scales, losses = np.append(SCALES, 0.0), np.append(summary.losses, self.total_c)
        if not np.isfinite(scale) or not np.isfinite(losses).all():
            return replace(state, scale=0.0)
        place = max(1, int(np.searchsorted(-scales, -scale)))  # scales[place] <= scale <= scales[place - 1]
        share = (scale - scales[place]) / (scales[place - 1] - scales[place])
        lost = share * losses[place - 1] + (1.0 - share) * losses[place] + error * self.total_c
        rounded = 1.0 + 8.0 * self._magnitudes.sum_error
        value = (0.5 * scale**2 * float(at[:-1] @ at[:-1]) + lost) * rounded
        if not value < state.primal:
            return replace(state, scale=0.0)
        return replace(state, best=scale * at, primal=value, scale=scale)

    def _with_dual(
        self,
        state: RelativeMarginState,
        summary: ProjectionSummary,
        rows: Array,
        solved: BoundedMinimum,
        negligible: float,
    ) -> RelativeMarginState:
        """With the bound of these dual weights, if it is the best so far; negligible: a share as in NEGLIGIBLE."""
        signs, costs, by_side = summary.sent.signs, summary.costs, summary.by_side
        if not np.isfinite(solved.point).all() or not np.isfinite(solved.duals).all():
            return state
        margins, error = signs * (rows @ state.newest), self._decision_error(state.newest)
        duals, limits = solved.duals, costs[summary.near]
        largest = min(float(duals.max(initial=0.0)), float(limits.max(initial=0.0)))
        duals = np.where(duals < negligible * largest, 0.0, duals)
        duals = np.where(duals > (1.0 - negligible) * limits, limits, duals)
        # A multiplier of the bound adds to the dual weight of the row, and the model names the sum.
        weights = by_side.copy()
        weights[summary.near] = duals
        np.subtract.at(weights, solved.active, solved.multipliers * solved.sides * signs[solved.active])
        if self.intercept and summary.near.any():
            inner = np.where(summary.near, np.minimum(weights, costs - weights), -np.inf)
            k = int(np.argmax(inner))  # whose margin is 1, so that a small change costs next to nothing
            weights[k] -= signs[k] * float(summary.far_linear[-1] + signs @ (weights - by_side))
        # Near rows with the weight of their side, of which there is no doubt, need no name.
        likely = np.where(margins < 1.0, costs, 0.0)
        named = summary.near & ((weights != likely) | (np.abs(margins - 1.0) <= error))
        named[solved.active] = True
        far_total = float(summary.far_total[0])
        unnamed_c = far_total + float(np.where(summary.near & ~named, weights, 0.0).sum())
        in_sums = np.where(named, by_side, 0.0)  # of rows at the bound that the sums of far rows count by their side
        vector = summary.far_linear + ((weights - by_side) * signs) @ rows
        mass = unnamed_c + float(np.abs(weights[named]).sum() + in_sums.sum())
        unbalanced = (abs(float(vector[-1])) + BALANCE * mass) * self.intercept
        error = 8.0 * (self._magnitudes.sum_error + gamma(len(costs)))
        length = self._longest_vector(vector[:-1], mass, error, unbalanced)
        total = unnamed_c + float(phi(weights, costs, self.bound)[named].sum() - in_sums.sum())
        beyond = (weights < 0) | (weights > (1.0 - 1e-9) * costs)
        sizes = mass + self.bound * float((np.abs(weights) + costs)[named & beyond].sum())
        dual = total - error * sizes - self.bound * unbalanced - 0.5 * length**2 * (1.0 + error)
        if not dual > state.dual:
            return state
        order = np.flatnonzero(named)
        order = order[np.argsort(summary.sent.ids[order], kind="stable")]
        return replace(
            state,
            dual=dual,
            reference=state.newest,
            named_ids=summary.sent.ids[order],
            named_signs=signs[order],
            named_weights=weights[order],
            mass=mass,
        )

    # Results

    def round_of(self, state: RelativeMarginState) -> Round:
        """The report of a round."""
        lower = state.dual if state.round else -np.inf
        return Round(
            number=state.round,
            status=state.status,
            lower=lower,
            lower_now=lower,
            upper=state.primal,
            working_set_rows=state.sent_rows if state.round else state.sample_rows,
            coreset_rows=len(state.named_ids),
            new_rows=state.sent_rows,
            rows_below=state.below if state.round else None,
        )

    def restore(self, arrays: Mapping[str, NDArray[Any]]) -> RelativeMarginState:
        """A state from a checkpoint."""
        return RelativeMarginState(**state_from_arrays(RelativeMarginState, arrays, {}, STATUSES))

    def result(self, state: RelativeMarginState) -> Result:
        """The result of a state."""
        known = bool(state.round) and math.isfinite(state.primal)
        none = np.zeros((len(state.named_ids), 0))  # the verifier reads these rows from the store
        found = Result(
            status="certified" if state.status == "certified" else "stopped",
            reason=REASONS.get(state.status, state.status),
            kind="duality_gap",
            w=state.best[:-1],
            b=float(state.best[-1]),
            lower=state.dual if known else None,
            upper=state.primal,
            proof=WorkingSet(state.named_ids, none, state.named_signs, state.named_weights),
            final=state.scale > 0,
            extra={"reference": state.reference},
        )
        moved = margin_rounding(self.source)
        if not moved or not known:
            return found
        # Mapped rows move the dual's vector by ``far`` at most; the value's loss of margins is in its own bound.
        far = moved * state.mass
        below = far * math.sqrt(2.0 * state.primal) + far * far
        return widen_bounds(found, self.source, min(below, state.dual), 0.0, self.epsilon)

    # Warm start

    def warm_start_state(self, state: RelativeMarginState, allowance: Allowance) -> Mapping[str, NDArray[Any]]:
        """The best hypothesis, if there is one: its rows near the margin and the bound are read again."""
        return {"best": state.best} if np.isfinite(state.primal) else {}

    def warm_start(self, arrays: Mapping[str, Any], difference: Difference) -> RelativeMarginState:
        """See ``WarmStarts``: the best hypothesis of the earlier commit, whose bounds are not those of these rows."""
        check_scale(self.source, self.class_c, self.totals)
        if "best" not in arrays:
            raise CannotWarmStart("no value was proven")
        best = np.asarray(arrays["best"])
        return replace(self.unsolved(), newest=best, best=best, sample_bytes=difference.nbytes)


def with_ones(rows: Any, *, intercept: bool) -> Array:
    """Rows (m, d + 1) in float64 with a last column of ones, of zeros without an intercept."""
    return np.column_stack([dense(rows), np.full(rows.shape[0], float(intercept))])
