"""The pool of a machine with a kernel, solved: all columns of a kernel from one matrix of its values, side by side."""

from __future__ import annotations

from dataclasses import dataclass, replace
from functools import cached_property, partial
from typing import TYPE_CHECKING

import numpy as np
from numpy.typing import NDArray

from coremargin.engine.problem import BaseProblem
from coremargin.errors import LabelError
from coremargin.maths import rows as row_ops
from coremargin.maths.kernel.callables import CallableKernel
from coremargin.maths.kernel.functions import Lengths, located
from coremargin.maths.kernel.gram import Gram
from coremargin.maths.kernel.machine import Solved, solve
from coremargin.models.brought import faults_named, kept_values
from coremargin.problems.common.classes import class_codes, class_weights, held_out_views
from coremargin.problems.common.threads import map_in_threads, one_blas_thread
from coremargin.problems.kernel.bounds import lower_bound, square, upper_bound
from coremargin.problems.kernel.brought import check_pool
from coremargin.problems.kernel.columns import Columns, Setting, class_costs, count_of
from coremargin.problems.kernel.room import Room
from coremargin.problems.kernel.state import KernelState, Machine
from coremargin.problems.kernel.summary import KernelSummary

if TYPE_CHECKING:
    from coremargin.formats.choices import Loss
    from coremargin.maths.kernel.functions import Kernel
    from coremargin.problems.common.driver_rows import ClassRows

Array = NDArray[np.float64]


@dataclass(frozen=True)
class Solving(BaseProblem[KernelState, KernelSummary]):
    """What is asked about the rows of a source, and its answer on those of the pool.

    kernels: they differ in gamma only; settings: which functions are asked for; epsilon: the gap of each column;
    memory_bytes: for the kernel values of the pool's rows; folds, seed: of cross-validation, 0: none.
    """

    kernels: tuple[Kernel, ...]
    settings: tuple[Setting, ...]
    epsilon: float
    loss: Loss | None = None
    folds: int = 0
    seed: int = 0
    class_weight: str | tuple[float, float] | None = None
    intercept: bool = True
    memory_bytes: int = 256 << 20

    @cached_property
    def codes(self) -> tuple[int, ...]:
        """Label codes of the classes, by label. Raises StoreError, LabelError."""
        return class_codes(self.source)

    @cached_property
    def totals(self) -> dict[int | None, Array]:
        """Sums of the weights (K,) of the classes, of all rows and without each fold.

        Raises LabelError for a class that weighs nothing, or has no row in a fold.
        """
        found: dict[int | None, Array] = {None: class_weights(self.source, self.codes)}
        if self.folds:
            views = held_out_views(self.source, self.codes, self.folds, self.seed)
            found |= {fold: class_weights(view, self.codes) for fold, view in enumerate(views)}
        return found

    @cached_property
    def columns(self) -> Columns:
        """What stands against what, and what their rows cost."""
        costs = [class_costs(one.cost, self.class_weight, self.totals[one.fold]) for one in self.settings]
        return Columns(
            self.settings, len(self.codes), np.concatenate(costs), self.loss, self.intercept, self.folds, self.seed
        )

    @property
    def hard(self) -> bool:
        """Without a loss: bounds are about margins."""
        return self.loss is None

    @property
    def brought(self) -> CallableKernel | None:
        """The kernel, where it is a function that somebody brought; None of others."""
        (first, *_) = self.kernels
        return first if isinstance(first, CallableKernel) else None

    def reaches(self, longest: float) -> Array:
        """Bounds on sqrt(k(x, x)) of rows no longer than that, for each kernel."""
        return np.sqrt([float(kernel.largest(longest, longest)) for kernel in self.kernels])

    @property
    def room(self) -> Room:
        """How many rows the pool may have."""
        return Room(self.memory_bytes, self.source, len(self.kernels), len(self.settings) * count_of(len(self.codes)))

    def proven(self, machine: Machine) -> NDArray[np.bool_]:
        """Which columns (k,) of a machine are certified."""
        return machine.certified(self.epsilon, margins=self.hard)

    def solved(self, state: KernelState, tolerances: Array) -> KernelState:
        """With the columns that are not proven solved on the pool, to gaps of ``tolerances`` (k,)."""
        with faults_named(self.kernels[0], self.source.name, state.pool.ids):
            matrix = self._matrix(state.pool)
            if self.brought is not None:
                state = replace(state, told=kept_values(self.brought, state.pool.rows))
        pool, columns = state.pool, self.columns
        signs, kernels = columns.signs(pool.classes, pool.ids), columns.kernels
        costs, done = columns.costs(signs, pool.shares), self.proven(state.best)

        def one(k: int) -> Solved:
            own, begun = matrix.memory[kernels[k]], state.newest.duals[:, k]
            return solve(own, columns.side(k, signs, costs), begun, float(tolerances[k]))

        duals, offsets, lower = (
            values.copy() for values in (state.newest.duals, state.newest.offsets, state.newest.lower)
        )
        left = np.flatnonzero(~done).tolist()
        found = map_in_threads(one, left)
        for k, answer in zip(left, found, strict=True):
            duals[:, k], offsets[k], lower[k] = answer.duals, answer.offset, answer.bound
        newest = state.best.where(done, Machine(duals, offsets, lower, np.full(len(columns), np.inf)))
        if all(answer.separable for answer in found):
            return replace(state, newest=newest)
        self._refuse_equal_rows(pool)
        return replace(state, newest=newest, status="inseparable")

    def _refuse_equal_rows(self, pool: ClassRows) -> None:
        """Raises LabelError for two rows of the pool that are equal and of different classes, by name."""
        first: dict[bytes, int] = {}
        for k, (values, places) in enumerate(row_ops.parts(pool.rows)):
            where = np.arange(pool.rows.shape[1]) if isinstance(places, slice) else places
            there = np.flatnonzero(values)
            same = first.setdefault(values[there].tobytes() + where[there].astype(np.int64).tobytes(), k)
            if pool.classes[same] != pool.classes[k]:
                labels = [self.source.classes[self.codes[pool.classes[at]]] for at in (same, k)]
                raise LabelError(
                    f"{self.source.name}: rows {pool.ids[same]} and {pool.ids[k]} are equal, of classes "
                    f"{labels[0]!r} and {labels[1]!r}: no function separates them under a hard margin; correct one of "
                    f"them, or give loss"
                )

    @cached_property
    def _kept(self) -> list[Gram]:
        """The kernel values of the pool that was solved last: a cache, on which no bit depends."""
        return [Gram.nothing()]

    def _matrix(self, pool: ClassRows) -> Gram:
        """The kernel values of the pool's rows."""
        points, room = self.kernels[0].points(pool.rows), self.room
        dtype = room.dtype(len(pool), self.epsilon)
        if self._kept[0].memory.dtype != dtype:  # before there is memory for others
            self._kept[0] = Gram.nothing()
        gram, unknown = self._kept[0].grown(pool.ids, dtype, room.held(dtype), len(self.kernels))
        with one_blas_thread():
            map_in_threads(partial(gram.fill, self.kernels, points), unknown)
        self._kept[0] = gram
        if self.brought is not None:
            check_pool(self.brought, self.source.name, pool.ids, points, gram.values[0])
        return gram

    def bounded(self, state: KernelState, summary: KernelSummary) -> KernelState:
        """With the bounds that a scan of all rows at the newest machine proves, where they are better than before."""
        pool, columns, newest = state.pool, self.columns, state.newest
        signs, kernels = columns.signs(pool.classes, pool.ids), columns.kernels
        costs, rows, reaches = columns.costs(signs, pool.shares), int(summary.counted[0]), self._reaches(summary)
        with faults_named(self.kernels[0], self.source.name, pool.ids):
            points = self.kernels[0].points(pool.rows)
            lengths = Lengths.of(points, newest.duals)
            if self.brought is not None:
                used = np.flatnonzero(newest.duals.any(axis=1))
                located(partial(self.brought.judge, points.take(used)), used)
            weights = signs * newest.duals
            norms = [square(self.kernels[kernels[k]], points, weights[:, k], lengths) for k in range(len(columns))]
        lower, upper = np.empty(len(columns)), np.empty(len(columns))
        for k, norm in enumerate(norms):
            side, smallest = columns.side(k, signs, costs), float(summary.smallest[k])
            upper[k] = upper_bound(norm, float(summary.losses[k]), smallest, rows, hard=self.hard)
            found = lower_bound(side, newest.duals[:, k], norm, float(reaches[kernels[k]]), float(upper[k]))
            lower[k] = max(0.0, found)
        now = replace(newest, lower=lower, upper=upper)
        with np.errstate(invalid="ignore"):
            better = ~(state.best.upper - state.best.lower <= upper - lower)
        return replace(state, newest=now, best=now.where(better, state.best))

    def _reaches(self, summary: KernelSummary) -> Array:
        """Bounds on sqrt(k(x, x)) of all rows, for each kernel: of a function only a scan knows these."""
        known = float(self.source.scalars().max_norm.max()) if self.brought is None else float(summary.longest[0])
        return self.reaches(known)
