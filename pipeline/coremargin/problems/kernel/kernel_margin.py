"""Kernel machines over data out of core, with a working set in the driver.

The rows of the working set carry the decision functions. These are solved exactly on the set, and every row is queried
for its loss and for whether it violates them. The first read is made in stages of growing size, each queried with the
solution of those before: by the time most rows are read, few violate it. Scans of all rows follow, which prove the
solution or send the rows that are missing.

All settings (a gamma, a C, a fold) are columns of one problem: they share the working set, its kernel matrices and
every scan.
"""

from __future__ import annotations

import math
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property, partial
from typing import TYPE_CHECKING, Any, Literal, cast, get_args

import numpy as np
from numpy.typing import NDArray

from coremargin.data.extent import gamma_scale
from coremargin.engine.problem import BaseProblem, Round
from coremargin.errors import LabelError, UsageError
from coremargin.maths import rows as row_ops
from coremargin.maths.kernel.callables import CallableKernel, check_semidefinite
from coremargin.maths.kernel.expansion import Expansions
from coremargin.maths.kernel.functions import Kernel, Lengths, Points, relocate_faults
from coremargin.maths.kernel.gram import Gram
from coremargin.maths.kernel.machine import Solution, solve
from coremargin.maths.kernel.relative_machine import solve_within
from coremargin.models.user_kernel import check_same, faults_named, reference_values
from coremargin.problems.common.classes import (
    check_class_c,
    check_scale,
    class_codes,
    class_index,
    class_weights,
    count_weighted_rows,
    held_out_views,
)
from coremargin.problems.common.driver_rows import ClassRows, read_labelled_rows
from coremargin.problems.common.result import STOPPED
from coremargin.problems.common.sample import SAMPLE_BYTES, SAMPLE_SHARE, sample_chunks
from coremargin.problems.common.stages import Stages, plan_stages, scan_position
from coremargin.problems.common.state_arrays import state_from_arrays, state_to_arrays
from coremargin.problems.common.threads import map_in_threads
from coremargin.problems.fleet.risk import check_rows
from coremargin.problems.fleet.spec import member_name
from coremargin.problems.kernel.bounds import (
    WIDENED,
    claimed_bounds,
    lower_bound,
    round_bounds,
    squared_norm,
    total_bound,
    upper_bound,
)
from coremargin.problems.kernel.columns import Columns, Setting, class_costs, column_count, side_totals
from coremargin.problems.kernel.probe import KernelProbe, KernelSummary
from coremargin.problems.kernel.spec import HELP, OWN, KernelFleetJob
from coremargin.problems.kernel.working_set import Capacity, select_candidates
from coremargin.problems.outliers.removal import Removal

if TYPE_CHECKING:
    from coremargin.data.source import Source
    from coremargin.engine.memory_need import MemoryNeed
    from coremargin.formats.choices import KernelName, Loss
    from coremargin.formats.model_record import Known
    from coremargin.maths.outliers.row_search import Proof
    from coremargin.problems.kernel.spec import KernelOptions, KernelSpec

Array = NDArray[np.float64]
Status = Literal["running", "certified", "stalled", "full", "inseparable", "converged", "unfinished"]
STATUSES: tuple[Status, ...] = get_args(Status)

#: Why a job ended without a proof.
REASONS = STOPPED | {
    "full": "the working set is full: more rows carry weight than memory holds kernel values of; give more memory, or "
    f"{HELP}",
    "stalled": "float64 cannot distinguish the remaining rows: kernel values or costs are too many powers of ten "
    "apart; scale the features, use a smaller degree or gamma, or weights and a C that differ less from 1",
    "inseparable": "nothing separates the rows of the working set: with a loss rows may lie on the wrong side",
}

#: Scales at which a scan sums up the losses of functions with a relative margin.
SCALES = (1.0, 1 - 1e-6, 1 - 1e-4, 0.999, 0.99, 0.97, 0.93, 0.85, 0.7, 0.4)
#: The most rows that the first stage adds, and the most times that one query multiplies the working set.
FIRST, GROWTH = 2000, 4
#: Gap to which the set is solved while stages bring rows; after that a share of the gap that the last scan left, but
#: not less than a share of epsilon.
ROUGH, SHARE, FINE = 1e-2, 0.1, 0.1
#: Share of epsilon to which the set is solved if no row violates a solution that is not yet proven.
LEAST = 1e-4
#: The job stalls if such a scan leaves more than this share of the gap.
NEARER = 0.9
#: With a full working set, the dual must grow by this share of the gap to be worth another scan.
GROWN = 0.05
#: A chunk may send this many times its share of the candidates.
UNEVEN = 4
#: Rows of the working set whose kernel matrix is checked before a solve, for user-defined kernels.
CHECKED = 512

#: Rows of the first trial of a user-defined kernel, and the most rows and seconds of the second, whose size follows
#: from the first.
TRIED_FIRST, TRIED, TRIED_SECONDS = 8, 256, 0.5


@dataclass(frozen=True)
class Machine:
    """k columns on the rows of the working set: duals (p, k) and offsets (k,).

    lower, upper (k,): bounds on the value of each column, from its duals and a scan; upper is infinite before a scan.
    Without a loss the value is 1/2 ||f||^2 with all margins at least 1. scales (k,): with a relative margin, the
    functions and their duals times these are what the bounds are about, else 1.
    """

    duals: Array
    offsets: Array
    lower: Array
    upper: Array
    scales: Array

    @classmethod
    def zero(cls, rows: int, columns: int) -> Machine:
        """f = 0."""
        none = np.zeros(columns)
        return cls(np.zeros((rows, columns)), none, none, np.full(columns, np.inf), np.ones(columns))

    def extended(self, rows: int) -> Machine:
        """With more rows, whose duals are 0."""
        return replace(self, duals=np.concatenate([self.duals, np.zeros((rows, self.duals.shape[1]))]))

    def take(self, positions: NDArray[np.intp]) -> Machine:
        """The rows at these positions; all others must have duals of 0."""
        return replace(self, duals=self.duals[positions])

    def select_columns(self, columns: slice) -> Machine:
        """Some of the columns."""
        return Machine(*(getattr(self, name)[..., columns] for name in _FIELDS))

    def where(self, columns: NDArray[np.bool_], other: Machine) -> Machine:
        """These columns of this machine, all others of another one on the same rows."""
        return Machine(*(np.where(columns, getattr(self, name), getattr(other, name)) for name in _FIELDS))

    def certified(self, epsilon: float, *, margins: bool) -> NDArray[np.bool_]:
        """Which columns are proven; margins: epsilon is about margins, whose inverse squares are the values."""
        share = (1 - epsilon) ** 2 if margins else 1 - epsilon
        return np.asarray((self.lower > 0) & (self.lower >= share * self.upper))

    def carriers(self) -> NDArray[np.intp]:
        """Positions of the rows with a dual above 0 in some column."""
        return np.flatnonzero(self.duals.any(axis=1))

    def to_arrays(self, name: str) -> dict[str, NDArray[Any]]:
        """Plain arrays, exact."""
        return {f"{name}_{field}": getattr(self, field) for field in _FIELDS}

    @classmethod
    def from_arrays(cls, name: str, arrays: Mapping[str, NDArray[Any]]) -> Machine:
        """Inverse of ``to_arrays``."""
        return cls(**{field: arrays[f"{name}_{field}"] for field in _FIELDS})


#: A dual weight within this share of its limit is at the limit.
AT_LIMIT = 1e-9

_FIELDS = ("duals", "offsets", "lower", "upper", "scales")


@dataclass(frozen=True)
class KernelState:
    """The state between two scans.

    round: queries answered so far. working_set: rows in the driver. newest: the solution on them, which the next scan
    queries; best: for each column the solution with the smallest gap so far. rows_below: rows with margins below 1 in
    the last scan, None before a scan of all rows. inspected: about how many rows of the first read have sent all their
    violators. dropped: rows removed from the working set. confusion (s, K, K), undecided (s,): of each setting, by the
    last scan. known_values (m, m): of a user-defined kernel, some values by which a resumed run recognises it.
    """

    round: int
    status: Status
    working_set: ClassRows
    newest: Machine
    best: Machine
    rows_below: int | None
    new_rows: int
    sample_bytes: int
    inspected: int
    dropped: int
    confusion: NDArray[np.int64]
    undecided: NDArray[np.int64]
    known_values: Array | None = None
    removal: Removal | None = None

    @property
    def removed(self) -> Removal:
        """The rows that are removed, of a job with outliers."""
        return cast("Removal", self.removal)

    def to_arrays(self) -> dict[str, NDArray[Any]]:
        """Plain arrays, exact: ``from_arrays`` gives the same bits back."""
        return state_to_arrays(self, STATUSES)

    @classmethod
    def from_arrays(cls, arrays: Mapping[str, NDArray[Any]]) -> KernelState:
        """Inverse of ``to_arrays``."""
        makers = {
            "working_set": ClassRows.from_arrays,
            "newest": Machine.from_arrays,
            "best": Machine.from_arrays,
            "removal": Removal.from_arrays,
        }
        return cls(**state_from_arrays(cls, arrays, makers, STATUSES, may_lack=("rows_below", "known_values")))


@dataclass(frozen=True)
class KernelResult:
    """The functions of one setting, their bounds, and what a proof needs.

    rows, duals (m, k): the coreset; offsets (k,). lowers, uppers (k,): of each column, about margins without a loss,
    else about values, NaN where nothing is known; lower, upper: of all columns together. undecided: rows whose
    predicted class depends on rounding. final: the last scan was about these functions. outliers: ids of rows that are
    left out; proof: of the upper bound then, by places of the rows.
    """

    status: Literal["certified", "not_separable", "stopped"]
    reason: str
    kind: Known
    kernel: Kernel
    rows: ClassRows
    duals: Array
    offsets: Array
    lowers: Array
    uppers: Array
    confusion: NDArray[np.int64]
    undecided: int
    final: bool
    outliers: NDArray[np.int64] = field(default_factory=lambda: np.zeros(0, np.int64))
    proof: Proof | None = None

    @property
    def lower(self) -> float | None:
        """The lower bound of all columns together."""
        return total_bound(self.lowers, hard=self.kind == "margin")

    @property
    def upper(self) -> float | None:
        """The upper bound of all columns together."""
        return total_bound(self.uppers, hard=self.kind == "margin")


@dataclass(frozen=True)
class KernelMargin(BaseProblem[KernelState, KernelSummary]):
    """Kernel machines with a gap of at most epsilon in each column.

    kernels: they differ only in gamma. settings: the models. bound: of the decision values of all rows, with the hinge.
    memory_bytes: for the kernel matrices. folds, seed: of cross-validation, 0: none. names: of the members, one for
    each setting, if several models are trained together. removed: sorted ids of rows that are left out.
    """

    kernels: tuple[Kernel, ...]
    settings: tuple[Setting, ...]
    epsilon: float
    loss: Loss | None = None
    bound: float = np.inf
    folds: int = 0
    seed: int = 0
    class_weight: str | tuple[float, float] | None = None
    intercept: bool = True
    memory_bytes: int = 256 << 20
    sample_share: float = SAMPLE_SHARE
    sample_bytes: int = SAMPLE_BYTES
    names: tuple[str, ...] = ()
    removed: NDArray[np.int64] = field(default_factory=lambda: np.zeros(0, np.int64))

    # The question

    @cached_property
    def codes(self) -> tuple[int, ...]:
        """Label codes of the classes, by label. Raises StoreError, LabelError."""
        return class_codes(self.source)

    @cached_property
    def totals(self) -> dict[int | None, Array]:
        """Sums of weights (K,) of the classes, of all rows and without each fold.

        Raises LabelError for a class that weighs nothing, or has no row in a fold.
        """
        found: dict[int | None, Array] = {None: class_weights(self.source, self.codes)}
        if self.folds:
            views = held_out_views(self.source, self.codes, self.folds, self.seed)
            found |= {fold: class_weights(view, self.codes) for fold, view in enumerate(views)}
        return found

    @cached_property
    def columns(self) -> Columns:
        """The columns of all settings, with the costs of their rows."""
        costs = [class_costs(one.cost, self.class_weight, self.totals[one.fold]) for one in self.settings]
        return Columns(
            self.settings,
            len(self.codes),
            np.concatenate(costs),
            self.loss,
            self.intercept,
            self.folds,
            self.seed,
            self.bound,
            self.removed,
        )

    @cached_property
    def total_c(self) -> Array:
        """sum c (k,) of the rows of each column, which is the value of f = 0, b = 0."""
        totals = np.concatenate([side_totals(self.totals[one.fold]) for one in self.settings])
        return np.asarray((self.columns.class_c * totals).sum(axis=1))

    @property
    def hard(self) -> bool:
        """Without a loss: bounds are about margins."""
        return self.loss is None

    @property
    def user_kernel(self) -> CallableKernel | None:
        """The kernel, if it is a user-defined function."""
        return self.kernels[0] if isinstance(self.kernels[0], CallableKernel) else None

    @property
    def capacity(self) -> Capacity:
        """The rows that the working set may have."""
        columns = len(self.settings) * column_count(len(self.codes))
        return Capacity(self.memory_bytes, self.source, len(self.kernels), columns)

    @cached_property
    def rate(self) -> float | None:
        """Values per second of a user-defined kernel on one core; None for other kernels.

        Raises UsageError if it is no kernel.
        """
        if self.user_kernel is None:
            return None
        return measure_kernel(self.user_kernel, self.source, class_index(self.codes), self.sample_chunks[0])

    def proven(self, machine: Machine) -> NDArray[np.bool_]:
        """Which columns (k,) of a machine are certified."""
        return machine.certified(self.epsilon, margins=self.hard)

    def proven_members(self, state: KernelState) -> list[bool]:
        """Which settings are certified."""
        proven = self.proven(state.best)
        return [bool(proven[self.columns.of_setting(k)].all()) for k in range(len(self.settings))]

    def check(self) -> None:
        """Raises LabelError, StoreError, BadRow, UsageError for what cannot be trained, before a row is read."""
        _ = self.totals
        check_scale(self.source)
        if self.user_kernel is None:
            check_digits(self.source, self.kernels)
        else:
            _ = self.rate
        if self.capacity.rows < 2 * len(self.codes):
            raise UsageError(f"{self.source.name}: {self.capacity.describe()}; give more memory")

    # Which rows are read when

    @property
    def sample_chunks(self) -> list[int]:
        """The chunks of the first stage; all of a small store."""
        return sample_chunks(self.source, self.codes, self.sample_share, self.sample_bytes)

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

    @property
    def holds_all_rows(self) -> bool:
        """True: the working set takes as many rows as fit."""
        return True

    def skip(self, state: KernelState) -> NDArray[np.bool_]:
        """Chunks (c,) of other stages."""
        if state.round >= self.stages.count:
            return np.zeros(self.source.chunks, bool)
        return self.stages.skipping(state.round)

    def ahead(self, state: KernelState) -> NDArray[np.intp]:
        """The chunks of the stage after the next."""
        return self.stages.chunks(state.round + 1) if state.round + 1 < self.stages.count else super().ahead(state)

    # Start

    def start(self) -> KernelState:
        """An empty working set: the stages send its first rows."""
        if not self.hard:  # a class must not be excluded as a whole
            totals = np.concatenate([side_totals(self.totals[one.fold]) for one in self.settings])
            check_class_c(self.source.name, self.columns.class_c.ravel(), totals.ravel())
        return self.unsolved()

    def unsolved(self) -> KernelState:
        """The state before any query."""
        source, classes, settings = self.source, len(self.codes), len(self.settings)
        zero = Machine.zero(0, settings * column_count(classes))
        return KernelState(
            round=0,
            status="running",
            working_set=ClassRows.nothing(source.features, sparse=source.sparse),
            newest=zero,
            best=zero,
            rows_below=None,
            new_rows=0,
            sample_bytes=0,
            inspected=0,
            dropped=0,
            confusion=np.zeros((settings, classes, classes), np.int64),
            undecided=np.zeros(settings, np.int64),
        )

    def restore(self, arrays: Mapping[str, NDArray[Any]]) -> KernelState:
        """A state from a checkpoint. Raises UsageError if a user-defined kernel now returns other values."""
        state = KernelState.from_arrays(arrays)
        if self.user_kernel is not None and state.known_values is not None:
            check_same(self.user_kernel, state.working_set.rows, state.known_values, "the checkpoint")
        return state

    # Scan

    def probe(self, state: KernelState) -> KernelProbe:
        """The query of the next stage, or of a scan of all rows."""
        source = self.source
        chunks = int(np.count_nonzero(~self.skip(state)))
        value = np.where(state.newest.lower > 0, state.newest.lower, 1.0) if not self.hard else 1.0
        worth = np.asarray(~self.proven(state.best) / value)
        return KernelProbe(
            expansions=self._expansions(state, state.newest),
            columns=self.columns,
            scales=np.array(SCALES if np.isfinite(self.bound) else SCALES[:1]),
            class_of=class_index(self.codes),
            worth=worth,
            excess_worth=worth * self.total_c,  # about what scaling all of f back costs
            keep=min(source.chunk_rows, -(-UNEVEN * self._most_new_rows(state) // max(1, chunks))),
            known=np.sort(state.working_set.ids),
            dtype=source.dtype.name,
            sparse=source.sparse,
            chunk_rows=source.chunk_rows,
        )

    def _expansions(self, state: KernelState, machine: Machine) -> Expansions:
        """A machine on the working set as decision functions, without rows that carry nothing."""
        used, own = machine.carriers(), state.working_set
        signs = self.columns.signs(own.classes[used], own.ids[used])
        rows = row_ops.as_float64(row_ops.take(own.rows, used))
        return Expansions(self.kernels, self.columns.kernels, rows, signs * machine.duals[used], machine.offsets)

    def _most_new_rows(self, state: KernelState) -> int:
        """The most rows that the next query may add."""
        grown = max(FIRST, (GROWTH - 1) * len(state.working_set) + FIRST)
        return min(grown, self.capacity.rows)

    # Update: bounds after a scan of all rows, then a larger working set, solved

    def update(self, state: KernelState, summary: KernelSummary) -> KernelState:
        """The state after a stage or a scan."""
        in_stages, before = state.round < self.stages.count, state.best
        state = replace(state, round=state.round + 1, confusion=summary.confusion, undecided=summary.undecided)
        if not in_stages:
            state = replace(self._update_bounds(state, summary), rows_below=int(summary.below.max()))
            if self.proven(state.best).all():
                return replace(state, status="certified", new_rows=0)
        state, all_fit = self._add_candidates(state, summary)
        if in_stages:
            share = state.new_rows / max(1, int(summary.broken[0]))
            state = replace(state, inspected=state.inspected + int(share * summary.counted[0]))
        elif not all_fit and np.array_equal(state.best.upper, before.upper):
            return self._continue_full(state)
        elif state.new_rows == 0:
            return self._continue_without_candidates(state, before)
        last = in_stages and state.round == self.stages.count
        return self._solve(state, self._tolerances(state, rough=in_stages and not last))

    def _update_bounds(self, state: KernelState, summary: KernelSummary) -> KernelState:
        """With the bounds that a scan of all rows proves, in each column where they are better than before."""
        own, columns, newest = state.working_set, self.columns, state.newest
        signs, kernels = columns.signs(own.classes, own.ids), columns.kernels
        costs, rows = columns.costs(signs, own.shares), int(summary.counted[0])
        with faults_named(self.kernels[0], self.source.name, own.ids):
            points = self.kernels[0].points(own.rows)
            lengths = Lengths.from_points(points, newest.duals)
            if self.user_kernel is not None:
                used = newest.carriers()
                relocate_faults(partial(self.user_kernel.check_values, points.take(used)), used)
            scales = self._scales(summary)
            duals = newest.duals * scales
            weights = signs * duals
            norms = [
                squared_norm(self.kernels[kernels[k]], points, weights[:, k], lengths) for k in range(len(columns))
            ]
        # for a user-defined kernel only the scan knows the largest k(x, x)
        longest = self.source.scalars().max_norm.max() if self.user_kernel is None else summary.longest[0]
        reaches = largest_norms(self.kernels, float(longest))
        lower, upper = np.empty(len(columns)), np.empty(len(columns))
        for k, norm in enumerate(norms):
            side, smallest = columns.side(k, signs, costs), float(summary.smallest[k])
            losses = self._losses_at(float(scales[k]), summary.losses[:, k], k)
            upper[k] = upper_bound(norm, losses, smallest, rows, hard=self.hard)
            found = lower_bound(side, duals[:, k], norm, float(reaches[kernels[k]]), float(upper[k]))
            lower[k] = max(0.0, found)
        now = replace(newest, lower=lower, upper=upper, scales=scales)
        with np.errstate(invalid="ignore"):
            better = ~(state.best.upper - state.best.lower <= upper - lower)
        return replace(state, newest=now, best=now.where(better, state.best))

    def _scales(self, summary: KernelSummary) -> Array:
        """Scales (k,) that bring all decision values within the bound of a relative margin; 0 where these overflow."""
        widest = np.where(np.isfinite(summary.widest), summary.widest, np.inf)
        with np.errstate(divide="ignore", invalid="ignore"):
            return np.where(widest <= self.bound, 1.0, self.bound / widest * (1.0 - WIDENED))

    def _losses_at(self, scale: float, losses: Array, k: int) -> float:
        """An upper bound on the losses of column k at a scale: they are convex in it, and known (s,) at some."""
        if scale in (0.0, 1.0):
            return float(losses[0] if scale else self.total_c[k] * (1.0 + WIDENED))
        scales, known = np.append(SCALES, 0.0), np.append(losses, self.total_c[k])
        place = int(np.searchsorted(-scales, -scale))  # scales[place] <= scale < scales[place - 1]
        share = (scale - scales[place]) / (scales[place - 1] - scales[place])
        return float(share * known[place - 1] + (1.0 - share) * known[place]) * (1.0 + WIDENED)

    def _add_candidates(self, state: KernelState, summary: KernelSummary) -> tuple[KernelState, bool]:
        """With candidates in the working set, and whether all fit; if not, rows that carry nothing make room."""
        sent, most = summary.sent, self._most_new_rows(state)
        mine = select_candidates(summary.scores, sent.ids, sent.classes, most) if len(sent) else np.zeros(0, np.intp)
        all_fit = len(state.working_set) + len(mine) <= self.capacity.rows
        if not all_fit:
            state = self._without_idle_rows(state)
            room, some = max(0, self.capacity.rows - len(state.working_set)), sent.take(mine)
            all_fit = len(mine) <= room
            fitting = select_candidates(summary.scores[mine], some.ids, some.classes, room)
            mine = mine[fitting[:room]]  # shares of classes are rounded up
        new = sent.take(mine).exact()
        after = replace(
            state,
            working_set=ClassRows.concatenate([state.working_set, new]),
            newest=state.newest.extended(len(new)),
            best=state.best.extended(len(new)),
            new_rows=len(new),
        )
        return after, all_fit

    def _without_idle_rows(self, state: KernelState) -> KernelState:
        kept = np.flatnonzero(state.newest.duals.any(axis=1) | state.best.duals.any(axis=1))
        return replace(
            state,
            working_set=state.working_set.take(kept),
            newest=state.newest.take(kept),
            best=state.best.take(kept),
            dropped=state.dropped + len(state.working_set) - len(kept),
        )

    def _tolerances(self, state: KernelState, *, rough: bool) -> Array:
        """The gap (k,) to which each column is solved next."""
        if rough:
            return np.full(len(self.columns), max(ROUGH, FINE * self.epsilon))
        best = state.best
        gaps = np.where(np.isfinite(best.upper), 1.0 - best.lower / best.upper, ROUGH)
        return np.maximum(SHARE * gaps, FINE * self.epsilon)

    def _continue_full(self, state: KernelState) -> KernelState:
        """The working set is full and the last scan gained nothing: continue as long as the dual grows.

        Rows that carry nothing make room for others, which lowers no dual; the value may rise meanwhile.
        """
        solved = self._solve(state, self._tolerances(state, rough=False))
        grown, left = solved.newest.lower - state.newest.lower, state.best.upper - state.newest.lower
        if solved.status == "running" and float(grown.sum()) > GROWN * float(left.sum()):
            return solved
        return replace(state, status="full")

    def _continue_without_candidates(self, state: KernelState, before: Machine) -> KernelState:
        """No row violates a solution that is not proven: solve the set as exactly as float64 allows.

        before: the best machine before this scan. The job stalls unless the scan has reduced its gap.
        """
        with np.errstate(invalid="ignore"):
            gap, was = (float((one.upper - one.lower).sum()) for one in (state.best, before))
        if not gap < NEARER * was:
            return replace(state, status="stalled")
        return self._solve(state, np.full(len(self.columns), LEAST * self.epsilon))

    def _solve(self, state: KernelState, tolerances: Array) -> KernelState:
        """With the columns that are not proven solved on the working set, in parallel, to gaps of ``tolerances``.

        Raises LabelError for equal rows of different classes, if a hard margin does not exist.
        """
        own, columns = state.working_set, self.columns
        with faults_named(self.kernels[0], self.source.name, own.ids):
            matrix = self._kernel_matrix(own)
            if self.user_kernel is not None:
                state = replace(state, known_values=reference_values(self.user_kernel, own.rows))
        signs, kernels = columns.signs(own.classes, own.ids), columns.kernels
        costs, done = columns.costs(signs, own.shares), self.proven(state.best)

        def solve_column(k: int) -> Solution:
            side, start = columns.side(k, signs, costs), state.newest.duals[:, k]
            solver = solve_within if np.isfinite(self.bound) else solve
            return solver(matrix.buffer[kernels[k]], side, start, float(tolerances[k]))

        newest = state.newest
        duals, offsets, lower = newest.duals.copy(), newest.offsets.copy(), newest.lower.copy()
        scales = newest.scales.copy()
        left = np.flatnonzero(~done).tolist()
        found = map_in_threads(solve_column, left)
        for k, solution in zip(left, found, strict=True):
            duals[:, k], offsets[k], lower[k] = solution.duals, solution.offset, solution.bound
            scales[k] = solution.scale
        newest = state.best.where(done, Machine(duals, offsets, lower, np.full(len(columns), np.inf), scales))
        if all(solution.separable for solution in found):
            return replace(state, newest=newest)
        self._refuse_equal_rows(own)
        return replace(state, newest=newest, status="inseparable")

    @cached_property
    def _matrix_cache(self) -> list[Gram]:
        """The kernel matrix of the last solve. No bit of a result depends on this cache."""
        return [Gram.empty()]

    def _kernel_matrix(self, rows: ClassRows) -> Gram:
        """The kernel matrices of the working set. Raises UsageError, KernelFault."""
        points = self.kernels[0].points(rows.rows)
        gram = self.capacity.extend_matrix(self._matrix_cache, self.kernels, points, rows.ids, self.epsilon)
        if self.user_kernel is not None:  # a solve needs a positive semi-definite matrix
            some = np.unique(np.linspace(0, len(rows) - 1, min(len(rows), CHECKED)).astype(np.intp))
            with faults_named(self.user_kernel, self.source.name, rows.ids[some]):
                check_semidefinite(gram.values[0][np.ix_(some, some)], points.lengths[some], self.user_kernel.eta)
        return gram

    def _refuse_equal_rows(self, rows: ClassRows) -> None:
        """Raise LabelError if two of the rows are equal and of different classes."""
        first: dict[bytes, int] = {}
        for k, (values, features) in enumerate(row_ops.parts(rows.rows)):
            where = np.arange(rows.rows.shape[1]) if isinstance(features, slice) else features
            there = np.flatnonzero(values)
            same = first.setdefault(values[there].tobytes() + where[there].astype(np.int64).tobytes(), k)
            if rows.classes[same] != rows.classes[k]:
                labels = [self.source.classes[self.codes[rows.classes[at]]] for at in (same, k)]
                raise LabelError(
                    f"{self.source.name}: rows {rows.ids[same]} and {rows.ids[k]} are equal, of classes "
                    f"{labels[0]!r} and {labels[1]!r}: no function separates them under a hard margin; correct one of "
                    f"them, or give loss"
                )

    # Results

    def results(self, state: KernelState) -> list[KernelResult]:
        """The model of each setting: what was proven, or before any scan what was solved."""
        return [self._result(state, number) for number in range(len(self.settings))]

    def _result(self, state: KernelState, number: int) -> KernelResult:
        mine = self.columns.of_setting(number)
        best, newest = state.best.select_columns(mine), state.newest.select_columns(mine)
        machine = best if np.isfinite(best.upper).all() else newest
        used = machine.carriers()
        lowers, uppers = claimed_bounds(machine.lower, machine.upper, hard=self.hard)
        return KernelResult(
            status="certified" if self.proven(best).all() else "stopped",
            reason=REASONS.get(state.status, state.status),
            kind="margin" if self.hard else "duality_gap",
            kernel=self.kernels[self.settings[number].kernel],
            rows=state.working_set.take(used),
            duals=machine.duals[used] * machine.scales,
            offsets=machine.offsets * machine.scales,
            lowers=lowers,
            uppers=uppers,
            confusion=state.confusion[number],
            undecided=int(state.undecided[number]),
            final=np.array_equal(machine.duals, newest.duals),
        )

    def kkt_classes(self, state: KernelState, number: int = 0) -> NDArray[np.int64] | None:
        """Rows (k, 3) of each column of a setting: non-critical, on the margin, and violators, by their dual weights.

        With the hinge these are 0, between 0 and C, and C; with the squared hinge every row with a weight is a
        violator, without a loss it is on the margin. None with a relative margin, where rows may be at the bound too.
        """
        if math.isfinite(self.bound):
            return None
        mine, own = self.columns.of_setting(number), state.working_set
        best, newest = state.best.select_columns(mine), state.newest.select_columns(mine)
        duals = (best if np.isfinite(best.upper).all() else newest).duals
        signs = self.columns.signs(own.classes, own.ids)
        limits = self.columns.costs(signs, own.shares)[:, mine] * (1.0 - AT_LIMIT)
        weighted = duals > 0
        violating = weighted & ((duals >= limits) if self.loss == "hinge" else self.loss is not None)
        rows = int(count_weighted_rows(self.source).sum())
        counts = [weighted.sum(axis=0), violating.sum(axis=0)]
        return np.column_stack([rows - counts[0], counts[0] - counts[1], counts[1]]).astype(np.int64)

    def round_of(self, state: KernelState) -> Round:
        """Progress of a state. Of several models, the bounds are those of the one with the lowest ratio."""
        best, newest, more = state.best, state.newest, dict[str, Any]()
        queries, stages = state.round, self.stages.count
        if queries < stages and state.inspected:
            more = {"expected_working_set_rows": self.expected_rows(state), "working_set_room": self.capacity.rows}
        if self.names:
            each = [self.columns.of_setting(k) for k in range(len(self.settings))]
            bounds = [round_bounds(best.lower[own], best.upper[own], hard=self.hard) for own in each]
            ratios = [low / high if low > 0 and np.isfinite(high) else 0.0 for low, high in bounds]
            worst, done = int(np.argmin(ratios)), self.proven_members(state)
            ended = state.status != "running"
            more |= {
                "members": len(done),
                "members_certified": sum(done),
                "members_done": len(done) if ended else sum(done),
                "worst": self.names[worst],
            }
            best, newest = best.select_columns(each[worst]), newest.select_columns(each[worst])
        lower, upper = round_bounds(best.lower, best.upper, hard=self.hard)
        return Round(
            status=state.status,
            lower=lower,
            lower_now=round_bounds(newest.lower, newest.upper, hard=self.hard)[0],
            upper=upper,
            working_set_rows=len(state.working_set),
            coreset_rows=len(state.best.carriers()),
            new_rows=state.new_rows,
            rows_below=state.rows_below,
            more=more,
            **scan_position(
                queries, min(queries, stages), stages, going_on=queries < stages and state.status == "running"
            ),
        )

    def describe_strategy(self, state: KernelState) -> dict[str, Any]:
        """What ``run.json`` states about the own hyperplane of a published strategy: nothing."""
        return {}

    def expected_rows(self, state: KernelState) -> int:
        """About how many rows will carry the machine.

        In the first read: the present share of the inspected rows, of all rows. Later the present number, or with a
        full working set the rows with margins below 1.
        """
        carriers = len(state.newest.carriers())
        if state.round < self.stages.count and state.inspected:
            return int(carriers * max(1.0, self.source.rows / state.inspected))
        return max(carriers, state.rows_below or 0) if state.status == "full" else carriers

    def wanted(self, state: KernelState) -> MemoryNeed | None:
        """Memory for the expected working set, if it does not fit."""
        rows = self.expected_rows(state)
        full = state.status == "full" or rows > self.capacity.rows
        return self.capacity.memory_need(rows) if full else None


def kernel_problem(job: KernelSpec, source: Source) -> KernelMargin:
    """The problem of a job on these rows.

    Raises LabelError for a class without rows in a fold, and for more than two classes without ``classes``; DataError
    if gamma "scale" is undefined; UsageError for a function that cannot be imported.
    """
    folds, seed = (job.folds or 0, job.seed) if isinstance(job, KernelFleetJob) else (0, 0)
    settings = [
        Setting(kernel, cost, fold)
        for fold in (None, *range(folds))
        for kernel in range(len(job.gammas))
        for cost in job.costs
    ]
    names: tuple[str, ...] = ()
    if isinstance(job, KernelFleetJob):
        names = tuple(member_name(None, *job.setting_of(one.kernel, one.cost), one.fold) for one in settings)
        if job.choose == "risk":
            check_rows(source, int(np.count_nonzero(source.scalars().counts.sum(axis=0))))
    problem = KernelMargin(
        source,
        tuple(kernel_of(job, gamma, source) for gamma in job.gammas),
        tuple(settings),
        job.epsilon,
        loss=job.loss,
        bound=math.inf if job.relative_margin is None else job.relative_margin,
        folds=folds,
        seed=seed,
        class_weight=job.class_weight,
        intercept=job.intercept,
        memory_bytes=job.memory_bytes,
        sample_share=job.sample,
        names=names,
    )
    labels = [repr(source.classes[code]) for code in problem.codes]
    if job.classes is None and len(labels) > 2:
        raise LabelError(
            f"{source.name}: expected two classes, found {len(labels)} ({', '.join(labels[:8])}"
            f"{', ...' if len(labels) > 8 else ''}); train each against the rest with --classes ovr, or ingest the "
            f"pair you mean with --only"
        )
    return problem


def kernel_of(job: KernelOptions, gamma: str | float, source: Source) -> Kernel:
    """The kernel of a job with this gamma, with numbers for all parameters. Raises DataError, UsageError."""
    function = job.function
    if function is not None:
        return CallableKernel(function=function, eta=job.error)
    own: dict[str, Any] = {name: gamma if name == "gamma" else getattr(job, name) for name in OWN[job.kernel]}
    if own.get("gamma") == "scale":
        own["gamma"] = gamma_scale(source)
    centre = source.centres(0, 1)[0] if job.kernel == "rbf" and not source.sparse else None
    return Kernel(cast("KernelName", job.kernel), **own, centre=centre)


def check_digits(source: Source, kernels: Sequence[Kernel]) -> None:
    """Raise UsageError if values of kernels that differ only in gamma overflow, or have no correct digit."""
    known, terms = source.scalars(), source.features
    if not (largest_norms(kernels, float(known.max_norm.max())) <= 1e100).all():
        raise UsageError(
            f"{source.name}: the longest row has a length of {known.max_norm.max():g}, at which the kernel "
            f"{kernels[0].name!r} overflows; scale the rows (--scaling), or take a smaller gamma or degree"
        )
    for kernel in kernels:
        length = float(known.max_norm.max() if kernel.centre is None else known.radius[0])
        if not float(kernel.value_error(length, length, terms)) < max(1.0, float(kernel.value_bound(length, length))):
            raise UsageError(
                f"{source.name}: gamma {kernel.gamma:g} leaves no digit of the kernel values of rows of "
                f"length {length:g} in float64, and nothing can be proven; take a smaller one"
            )


def largest_norms(kernels: Sequence[Kernel], longest: float) -> Array:
    """Bounds on sqrt(k(x, x)) of rows no longer than ``longest``, for each kernel."""
    return np.sqrt([float(kernel.value_bound(longest, longest)) for kernel in kernels])


# A user-defined kernel is tried on a few rows before a run


def measure_kernel(kernel: CallableKernel, source: Source, class_of: NDArray[np.int32], chunk: int) -> float:
    """Values per second on one core, measured on rows of a chunk, which are also checked.

    Raises UsageError if the function is no kernel.
    """
    rows = read_labelled_rows(source, chunk, class_of)
    some = _spread(rows, TRIED_FIRST)
    with faults_named(kernel, source.name, some.ids, chunk):
        rate = _rate(kernel, kernel.points(some.rows))
        kernel.check_values(kernel.points(some.rows))
    some = _spread(rows, int(np.clip(np.sqrt(TRIED_SECONDS * rate / 8), TRIED_FIRST, TRIED)))
    with faults_named(kernel, source.name, some.ids, chunk):
        points = kernel.points(some.rows)
        kernel.check_values(points)
        return _rate(kernel, points)


def _spread(rows: ClassRows, most: int) -> ClassRows:
    return rows.take(np.unique(np.linspace(0, len(rows) - 1, min(most, len(rows))).astype(np.intp)))


def _rate(kernel: CallableKernel, points: Points) -> float:
    began = time.perf_counter()
    kernel.block(points, points)
    return len(points) ** 2 / max(1e-9, time.perf_counter() - began)
