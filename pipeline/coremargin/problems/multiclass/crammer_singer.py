"""The soft margin of several classes (Crammer, Singer 2001) by the near-margin method, certified by the duality gap.

A scan at a hypothesis finds for each row which class is the worst for it, its own one included, and by how much. Clear
rows are summed up, a sum of c and a vector of K x (d + 1); the others are sent. The model made of both lies below the
objective everywhere and equals it where no row changes sides: its minimum is the dual bound and the next hypothesis.

The first scan is the first read of the store, in two stages: the rows of a sample are solved, and probed in memory at
the solution; the other rows are probed at the same hypothesis. The larger the sample, the less its minimiser loses on
all rows: with enough rows for epsilon the one read proves it.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from functools import cached_property
from typing import TYPE_CHECKING, Any, Literal

import numpy as np
from numpy.typing import NDArray

from coremargin.engine.memory_need import MemoryNeed
from coremargin.engine.problem import CannotWarmStart
from coremargin.maths import multiclass as mc
from coremargin.maths import soft_margin as soft
from coremargin.maths.margin import gamma, is_certified
from coremargin.maths.simplex_newton import ClassesModel, Minimum, minimise_classes
from coremargin.problems.common.classes import c_per_class, check_scale, class_weights
from coremargin.problems.common.driver_rows import ClassRows, thin_by_class
from coremargin.problems.common.map_rounding import widen_value_bounds
from coremargin.problems.common.sample import sample_chunks
from coremargin.problems.common.sizes import row_bytes
from coremargin.problems.common.stages import scan_position
from coremargin.problems.common.warm_start import most_cached_rows
from coremargin.problems.common.zone import NearRows, Progress, Zone, has_moved, smallest_positions
from coremargin.problems.multiclass.classes_problem import ClassesProblem, ClassesState
from coremargin.problems.multiclass.probe import ClassesProbe, ClassesSummary, lead_of_worst

if TYPE_CHECKING:
    from coremargin.engine.allowance import Allowance
    from coremargin.engine.problem import Round
    from coremargin.problems.multiclass.classes_problem import ClassesResult

Array = NDArray[np.float64]

#: Share of the rows that a scan sends, and its smallest size in bytes, as stored. Measured on usps, 7,291 rows for
#: 2,570 entries of a hypothesis: with 5 % the model's bound is 4 % low, with all rows it is exact.
NEAR_SHARE, NEAR_BYTES_LEAST = 0.1, 16 << 20
#: The part of the memory that near rows may take; smaller when the sample stays.
NEAR_PART = {False: 3 / 8, True: 1 / 4}
#: With fewer rows for each entry of a hypothesis, as many are sent as the memory holds.
FEW = 50
#: Rows of the sample for each entry of a hypothesis, times epsilon: its minimiser then loses a few tenths of epsilon on
#: all rows. Measured on 4e6 x 100 of three classes, 5 % wrong labels: a sample of 30,000 rows loses 8e-3, of 130,000
#: 1.5e-3, of 400,000 3e-4, in 1, 3 and 8 s, where the model of a scan takes 10 to 25 s.
ENOUGH = 1.5
#: The sample has at most this many rows times K (d + 1), ten to twenty seconds, and must fit in memory.
SOLVE_COST = 2e8
#: A sample with more than this many times the rows to be solved is thinned.
THIN = 1.3
#: Rows of the sample that represent the far ones in a step.
SURROGATES = 5_000
#: Bytes for each row and class that a solve takes besides the rows: measured 123 to 133 with 3, 10 and 26 classes.
PER_ROW = 130
#: The sample is solved to this share of epsilon: when it is all rows, and when there are others.
ALL_SHARE, SOME_SHARE = 0.3, 1.0
#: The model of a scan is solved to this share of epsilon.
MODEL_SHARE = 0.05
#: mu of the first proximal step of a warm start, as a multiple of the last one before it.
AGAIN = 3.0
#: Many rows are first solved on a part of them: every STAGE-th row, down to STAGE_LEAST, to this relative gap.
STAGE, STAGE_LEAST, STAGE_GAP = 6, 500, 2e-2


@dataclass(frozen=True)
class CrammerSinger(ClassesProblem):
    """Minimise 1/2 ||V||^2 + sum c_i max_r t_ir until the duality gap is at most epsilon of the value.

    cost: C; class_weight "balanced": times n / (K n_class).
    """

    cost: float = 1.0
    class_weight: Literal["balanced"] | None = None
    sample_bytes: int = 1 << 30  #: at most; memory limits the sample, too

    soft = True

    @cached_property
    def totals(self) -> Array:
        """Sums of the sample weights (K,) of the classes; without weights, their numbers of rows."""
        return class_weights(self.source, self.codes)

    @property
    def class_c(self) -> Array:
        """c (K,) of a row of weight 1 of each class."""
        return c_per_class(self.cost, self.class_weight, self.totals)

    # Sizes.

    @property
    def few(self) -> bool:
        """Whether there are few rows per entry of a hypothesis: a sample then shows little about the others."""
        return self.source.rows <= FEW * self.shape[0] * self.shape[1]

    @property
    def all_cached(self) -> bool:
        """Whether rows are few and fit in memory, with what a solve needs."""
        return self.few and self._row_bytes * self.source.rows <= self.memory_bytes

    @property
    def _row_bytes(self) -> float:
        return self.source.nbytes / self.source.rows + PER_ROW * self.shape[0]

    @property
    def memory_need(self) -> MemoryNeed:
        """Memory for all rows where they are few, else for the sample that epsilon needs and solves allow."""
        rows = self.source.rows if self.few else self._sample_rows(1 << 60)
        what = "rows" if self.few else "rows of the sample that is solved"
        size = int(rows * self._row_bytes) + 1
        return MemoryNeed(self.memory_bytes, size, rows, what, "with less, there are more scans")

    def _sample_rows(self, memory_bytes: int) -> int:
        """Rows of the sample to solve with this memory, when they are not all rows."""
        classes, p = self.shape
        if self.few:
            return max(1000, int(memory_bytes / 2 / self._row_bytes))
        wanted = max(ENOUGH * classes * p / self.epsilon, self.sample_share * self.source.rows)
        room = min(SOLVE_COST / (classes * p), memory_bytes / self._row_bytes)
        return int(min(self.source.rows, max(1000, 5 * p, min(wanted, room))))

    @property
    def sample_chunks(self) -> list[int]:
        """The chunks of the sample; where rows are few, as many as fit in memory."""
        if self.all_cached:
            return list(range(self.source.chunks))
        share = self._sample_rows(self.memory_bytes) / self.source.rows
        limit = int(share * self.source.nbytes)
        return sample_chunks(self.source, self.codes, share, limit if self.few else min(limit, self.sample_bytes))

    @property
    def stage_chunks(self) -> tuple[int, ...]:
        """Number of chunks of the sample, and of the rest if there is one."""
        first = len(self.sample_chunks)
        return tuple(size for size in (first, self.source.chunks - first) if size)

    @property
    def reads_again(self) -> bool:
        """Whether there may be scans after the first read: unless all rows are cached."""
        return not self.all_cached

    @property
    def _near_rows(self) -> NearRows:
        """Rows that a scan sends: a share of them or, where they are few, all that memory allows."""
        return NearRows(
            self.source,
            row_bytes(self.source) + 16 * self.shape[0],
            share=1.0 if self.few else NEAR_SHARE,
            least=NEAR_BYTES_LEAST,
            most=self.memory_bytes * NEAR_PART[self.few],
            grows=not self.few,
        )

    # The algorithm.

    def start(self) -> ClassesState:
        """Read and solve the sample, with C scaled up to all rows, and probe it in memory at the solution."""
        check_scale(self.source, self.class_c, self.totals)
        every, read = self.read_sample()
        state = replace(self._solve_sample(every), sample_bytes=read)
        partial = self.probe(state).in_memory(self.source, self.sample_chunks, every)
        if len(self.stage_chunks) == 1:
            return self.update(state, partial)
        return replace(state, partial=partial, partial_chunks=np.array(self.sample_chunks))

    def _solve_sample(self, every: ClassRows) -> ClassesState:
        """The state before any scan."""
        sample, classes, most = every, self.shape[0], self._sample_rows(self.memory_bytes)
        if len(sample) > THIN * most and not self.all_cached:
            sample = sample.take(thin_by_class(sample.classes, most))
        sample = sample.ready()
        sampled = np.bincount(sample.classes, weights=sample.shares, minlength=classes)
        row_c = (self.class_c * self.totals / np.where(sampled > 0, sampled, 1.0))[sample.classes] * sample.shares
        share = ALL_SHARE if self.all_cached else SOME_SHARE
        found = minimise_rows(self._objective(), sample, row_c, tolerance=max(share * self.epsilon, 1e-9))
        duals = found.duals
        own = duals > 0.0
        mixed = np.flatnonzero(own.any(axis=1) & (own.sum(axis=1) + (duals.sum(axis=1) < row_c) > 1))
        if not self.all_cached:  # these duals belong to another C
            mixed = mixed[:0]
        return replace(
            self.unsolved(),
            newest=found.at,
            working_set=sample.take(thin_by_class(sample.classes, SURROGATES)),
            proof=sample.take(mixed).bare(),
            duals=duals[mixed],
            rows_held=len(sample),
            mu=found.mu,
        )

    def probe(self, state: ClassesState) -> ClassesProbe:
        """The probe of the next scan."""
        points = self.points(state)
        return ClassesProbe(
            newest=state.newest,
            best=state.best if len(points) > 1 else None,
            points=points,
            place=self.place,
            constant=self.constant,
            class_c=self.class_c,
            keep=self._near_rows.of_chunk(state.zone.widen),
            known=np.zeros(0, np.int64),
            level=0.0,
            dtype=self.source.dtype.name,
            sparse=self.source.sparse,
            chunk_rows=self.source.chunk_rows,
        )

    def update(self, state: ClassesState, summary: ClassesSummary) -> ClassesState:
        """Bounds and the next hypothesis after a scan."""
        state, summary = self.add_partial(state, summary)
        before, value = soft.relative_gap(state.upper, state.lower), state.upper
        state = replace(
            state,
            round=state.round + 1,
            confusion=summary.confusion,
            rows_below=int(summary.below[0]),
            rows_held=len(summary.near),
            new_rows=len(summary.near),
        )
        rose = float(summary.losses[0]) + _penalty(state.newest) > state.upper
        state = self._with_primal_bound(state, summary)
        step, state = dual_step(self._objective(), state, summary)
        gap = soft.relative_gap(state.upper, state.lower)
        state = replace(state, lower_now=state.lower)
        if is_certified(state.lower, state.upper, self.epsilon):
            return replace(state, status="certified", partial=summary)
        same = np.array_equal(step, state.newest)
        progress = Progress((before, gap), (value, state.upper), rose=rose, same=same)
        if state.zone.stuck(progress, self.epsilon, self._near_rows):
            return replace(state, status="stalled")
        near, widen = self._near_rows, state.zone.widen
        capped = near.capped(widen) and near.of_chunk(widen) < self.source.chunk_rows
        if capped and has_moved(state.newest, state.best) and state.best is not None:
            step = state.best  # a zone that memory keeps small led too far: the next scan is at the best point
        return replace(state, newest=step, zone=state.zone.after(progress, self.epsilon))

    def _with_primal_bound(self, state: ClassesState, summary: ClassesSummary) -> ClassesState:
        """The primal bound from the best point of the segment, rounded up."""
        best, value = state.best, state.upper
        for k, t in enumerate(self.points(state)):
            at = self.at(state, float(t))
            ends = [state.newest] if t == 1 or state.best is None else [state.newest, state.best]
            here = self._rounded_up(_penalty(at) + float(summary.losses[k]), ends, summary)
            if here < value:
                best, value = at, here
        return replace(state, best=best, upper=value)

    def _rounded_up(self, value: float, ends: list[Array], summary: ClassesSummary) -> float:
        """The value plus twice what float64 may have lost, in each margin and in the sums."""
        longest, d = float(self.source.scalars().max_norm.max()), self.source.features
        lost = float(summary.total_c[0]) * sum(mc.score_error(d, longest, end, self.constant) for end in ends)
        return value * (1.0 + 4.0 * self.sum_error) + 4.0 * lost

    @property
    def sum_error(self) -> float:
        """Relative error of a sum of non-negative terms over all rows or entries: within chunks, then over chunks."""
        return gamma(self.source.chunk_rows + self.source.chunks + self.shape[0] * self.shape[1] + 64)

    def _objective(self) -> Objective:
        longest = float(self.source.scalars().max_norm.max()) + self.constant
        return Objective(self.shape, self.class_c, self.constant, longest, self.sum_error, self.epsilon)

    def round_of(self, state: ClassesState) -> Round:
        """The report of a round: the sample and the scan of the rest are stages of one read."""
        stages = len(self.stage_chunks)
        number = state.round + stages - 1
        return replace(super().round_of(state), **scan_position(number, number, stages, going_on=number < stages))

    def claimed(self, found: ClassesResult) -> ClassesResult:
        """The result with bounds on the value moved outward for mapped rows."""
        total = float(self.class_c @ self.totals)
        return widen_value_bounds(found, self.source, self.epsilon, lambda margin, _: margin * total)

    # Warm start.

    def warm_start_state(self, state: ClassesState, allowance: Allowance) -> Mapping[str, NDArray[Any]]:
        """The warm-start state; empty where rows are few, as every update then moves the hypothesis far."""
        partial = state.partial
        if partial is None or self.few:
            return {}
        return allowance.within(
            lambda rows: self.warm_start_arrays(replace(state, partial=self._with_fewer_near(state, partial, rows))),
            most_cached_rows(self.source, allowance),
        )

    def _with_fewer_near(self, state: ClassesState, summary: ClassesSummary, most: int) -> ClassesSummary:
        """A summary of all rows with at most ``most`` near rows: the clearest of them join the sums."""
        near, probe = summary.near, replace(self.probe(replace(state, best=None)), keep=0)
        if len(near) <= most:
            return summary
        t = mc.violations(mc.scores_of(near.rows, state.newest, self.constant), near.classes)
        stay = np.zeros(len(near), bool)
        stay[smallest_positions(lead_of_worst(t), most)] = True
        clear = near.take(np.flatnonzero(~stay))
        more = probe.in_memory(self.source, np.unique(clear.ids // self.source.chunk_rows).tolist(), clear)
        return replace(
            summary,
            near=near.take(np.flatnonzero(stay)),
            far_c=summary.far_c + more.far_c,
            far_linear=summary.far_linear + more.far_linear,
        )

    def before_changes(self, old: ClassesState, changed: NDArray[np.int64]) -> ClassesState:
        """The state at the hypothesis of the last scan, with its summary."""
        if old.partial is None:
            raise CannotWarmStart("the model was not certified")
        at_newest = replace(old.partial, losses=old.partial.losses[:1], smallest=old.partial.smallest[:1])
        stay, carry = old.working_set.unlike(changed), old.proof.unlike(changed)
        return replace(
            old,
            status="running",
            best=None,
            lower=0.0,
            lower_now=-np.inf,
            upper=np.inf,
            zone=Zone(widen=1, idle=0),
            working_set=old.working_set.take(stay),
            proof=old.proof.take(carry),
            duals=old.duals[carry],
            partial=at_newest,
        )


def _penalty(at: Array) -> float:
    """1/2 ||V||^2."""
    return 0.5 * float((at * at).sum())


# Minimising the model of a scan.


@dataclass(frozen=True)
class Objective:
    """1/2 ||V||^2 + the losses, class_c (K,) being the c of a row of each class.

    shape: (K, d + 1) of V; constant: the last entry of every row; longest: the norm of the longest row with it;
    sum_error: relative error of a sum over all rows; epsilon: the gap to reach.
    """

    shape: tuple[int, int]
    class_c: Array
    constant: float
    longest: float
    sum_error: float
    epsilon: float


@dataclass(frozen=True)
class NearMarginModel:
    """fixed_loss - <linear, V> + 1/2 ||V||^2 + the losses of some rows with row_c (m,)."""

    fixed_loss: float
    linear: Array
    rows: ClassRows
    row_c: Array


@dataclass(frozen=True)
class WarmStart:
    """A hypothesis (K, d + 1) near the minimiser, and duals (m, K) of some rows; others are on their side there.

    mu: of the last proximal step.
    """

    at: Array
    ids: NDArray[np.int64]
    duals: Array
    mu: float


def minimise_rows(objective: Objective, rows: ClassRows, row_c: Array, tolerance: float) -> WarmStart:
    """Minimise the objective over these rows alone; of many rows first over a part of them."""
    warm_start = None
    if len(rows) > STAGE * STAGE_LEAST:
        part = thin_by_class(rows.classes, len(rows) // STAGE)
        classes, size = rows.classes, objective.shape[0]
        whole, sampled = (np.bincount(classes[k], row_c[k], minlength=size) for k in (slice(None), part))
        part_c = row_c[part] * (whole / np.where(sampled > 0, sampled, 1.0))[classes[part]]
        found = minimise_rows(objective, rows.take(part), part_c, max(STAGE_GAP, tolerance))
        warm_start = replace(found, ids=found.ids[:0], duals=found.duals[:0])
    model = NearMarginModel(0.0, np.zeros(objective.shape), rows, row_c)
    return minimise_model(objective, model, tolerance, warm_start=warm_start)


def minimise_model(
    objective: Objective,
    model: NearMarginModel,
    tolerance: float,
    scale: float = 0.0,
    warm_start: WarmStart | None = None,
) -> WarmStart:
    """Minimise the model; tolerance: relative to its value, or to ``scale`` when that is larger."""
    rows, linear, row_c = model.rows, model.linear, model.row_c
    violations0 = mc.violations(mc.scores_of(rows.rows, linear, objective.constant), rows.classes)
    fixed_loss = model.fixed_loss - 0.5 * float((linear * linear).sum())
    flat, start = ClassesModel(fixed_loss, violations0, rows.rows, rows.classes, row_c, objective.constant), None
    if warm_start is not None and len(rows):
        at = warm_start.at - linear
        worst = flat.violations(flat.scores(at)).argmax(axis=1)
        duals = np.eye(objective.shape[0])[worst] * np.where(worst == rows.classes, 0.0, row_c)[:, None]
        _, mine, known = np.intersect1d(rows.ids, warm_start.ids, assume_unique=True, return_indices=True)
        duals[mine] = warm_start.duals[known]
        start = Minimum(at, np.inf, duals, -np.inf, float(row_c.mean()) / (AGAIN * warm_start.mu))
    found = minimise_classes(flat, tolerance, start, scale=scale)
    mu = float(row_c.mean()) / found.curvature if len(row_c) else 1.0
    return WarmStart(linear + found.at, rows.ids, found.duals, mu)


def dual_step(objective: Objective, state: ClassesState, summary: ClassesSummary) -> tuple[Array, ClassesState]:
    """The minimiser of a scan's model, and the state with its dual bound, which holds for all rows."""
    near = summary.near.ready()
    row_c, far_c = objective.class_c[near.classes] * near.shares, float(summary.far_c[0])
    tolerance = max(MODEL_SHARE * objective.epsilon, 1e-12)
    model = NearMarginModel(far_c, summary.far_linear, near, row_c)
    known = WarmStart(state.newest, state.proof.ids, state.duals, state.mu)
    step = minimise_model(objective, model, tolerance, state.upper, known)
    state = replace(_with_dual_bound(objective, state, summary, near, step.duals), mu=step.mu)
    guarded = _guarded_step(objective, state, summary, near, step.at, tolerance)
    return step.at if guarded is None else guarded, state


def _with_dual_bound(
    objective: Objective, state: ClassesState, summary: ClassesSummary, near: ClassRows, duals: Array
) -> ClassesState:
    """The state with the dual bound, rounded down, if it is better."""
    far_c = float(summary.far_c[0])
    v = summary.far_linear + mc.kesler_sum(near.rows, near.classes, duals, objective.constant)
    total, length = far_c + float(duals.sum()), float(np.linalg.norm(v))
    error = objective.sum_error + gamma(duals.size)
    off = 16.0 * error * total * objective.longest  # the error of v, whose square matters where v is short
    lower = total - 0.5 * length**2 - 8.0 * error * total - off * (length + 0.5 * off)
    if not lower > state.lower:
        return state
    return replace(state, lower=lower, reference=state.newest, proof=near.bare(), duals=duals)


def _guarded_step(
    objective: Objective, state: ClassesState, summary: ClassesSummary, near: ClassRows, step: Array, tolerance: float
) -> Array | None:
    """The step recomputed with rows of the sample in place of far ones; None when none of them would change sides."""
    away = state.working_set.take(np.flatnonzero(np.isin(state.working_set.ids, near.ids, invert=True)))
    if not len(away):
        return None
    t = mc.violations(mc.scores_of(away.rows, state.newest, objective.constant), away.classes)
    was = t.argmax(axis=1)
    would = mc.violations(mc.scores_of(away.rows, step, objective.constant), away.classes).argmax(axis=1)
    if (was == would).all():
        return None
    row_c = objective.class_c[away.classes] * away.shares
    near_c = objective.class_c[near.classes] * near.shares
    row_c = row_c * max(0.0, float(summary.total_c[0]) - float(near_c.sum())) / float(row_c.sum())
    # Subtract the sample's far rows from the sums, and add them again as rows that may change sides.
    weights = np.zeros(t.shape)
    weights[np.arange(len(was)), was] = np.where(was == away.classes, 0.0, row_c)
    linear = summary.far_linear - mc.kesler_sum(away.rows, away.classes, weights, objective.constant)
    fixed_loss = float(summary.far_c[0]) - float(weights.sum())
    rows, row_c = ClassRows.concatenate([near, away]), np.concatenate([near_c, row_c])
    warm_start = WarmStart(state.newest, state.proof.ids, state.duals, state.mu)
    model = NearMarginModel(fixed_loss, linear, rows, row_c)
    # No rougher than the near-margin model: else the newest hypothesis may do, and the job would stand still.
    return minimise_model(objective, model, max(tolerance, 1e-7), state.upper, warm_start).at
