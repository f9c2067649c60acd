"""The machine with a kernel as a problem: its read in stages, its scans, its bounds.

The pool's rows carry f; it is solved on them exactly, and all rows are asked what that is worth and which of them break
it. The first read is made in stages of growing size, each asked at the solution of those before: by the time that most
rows are read, few of them break it. Then scans of all rows prove it, or bring what is missing.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from functools import cached_property
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from coremargin.engine.problem import Round
from coremargin.errors import UsageError
from coremargin.maths import rows as row_ops
from coremargin.maths.kernel.expansion import Expansions
from coremargin.models.brought import check_same
from coremargin.problems.common.classes import check_class_c, check_scale, class_index
from coremargin.problems.common.driver_rows import ClassRows
from coremargin.problems.common.sample import SAMPLE_BYTES, SAMPLE_SHARE, sample_chunks
from coremargin.problems.common.stages import Stages, plan_stages, scan_position
from coremargin.problems.kernel.brought import tried
from coremargin.problems.kernel.columns import count_of, side_totals
from coremargin.problems.kernel.growing import Growing
from coremargin.problems.kernel.probe import KernelProbe
from coremargin.problems.kernel.result import KernelResult, margins_of, result
from coremargin.problems.kernel.state import KernelState, Machine

if TYPE_CHECKING:
    from collections.abc import Mapping

    from coremargin.engine.want import Want
    from coremargin.maths.kernel.functions import Kernel
    from coremargin.problems.kernel.summary import KernelSummary

Array = NDArray[np.float64]

#: Each chunk may send so many times its part of what all may send.
UNEVEN = 4


@dataclass(frozen=True)
class KernelMargin(Growing):
    """A machine with a kernel, to a gap of epsilon in each of its columns: which rows are read when, and asked what."""

    sample_share: float = SAMPLE_SHARE
    sample_bytes: int = SAMPLE_BYTES

    def check(self) -> None:
        """Refuse what cannot be trained, before a row is read. Raises LabelError, StoreError, BadRow, UsageError."""
        _ = self.totals
        check_scale(self.source)
        if self.brought is None:
            self._check_digits()
        else:
            _ = self.rate
        if self.room.capacity < 2 * len(self.codes):
            raise UsageError(f"{self.source.name}: {self.room.told}; give more memory")

    def _check_digits(self) -> None:
        """Raises UsageError for values of a kernel that overflow, or have no digit that is proven."""
        known, terms = self.source.scalars(), self.source.features
        if not (self.reaches(float(known.max_norm.max())) <= 1e100).all():
            raise UsageError(
                f"{self.source.name}: the longest row has a length of {known.max_norm.max():g}, at which the kernel "
                f"{self.kernels[0].name!r} overflows; scale the rows (--scaling), or take a smaller gamma or degree"
            )
        for kernel in self.kernels:
            length = float(known.max_norm.max() if kernel.centre is None else known.radius[0])
            if not float(kernel.error(length, length, terms)) < max(1.0, float(kernel.largest(length, length))):
                raise UsageError(
                    f"{self.source.name}: gamma {kernel.gamma:g} leaves no digit of the kernel values of rows of "
                    f"length {length:g}, as float64 computes them, and nothing can be proven; take a smaller one"
                )

    @cached_property
    def rate(self) -> float | None:
        """How many values a second a function gives, on one core; None of other kernels.

        Raises UsageError for what is no kernel.
        """
        if self.brought is None:
            return None
        return tried(self.brought, self.source, class_index(self.codes), self.sample_chunks[0])

    def expected(self, state: KernelState) -> int:
        """How many rows will carry the machine, about: of all rows as many as of those that were looked at.

        After the first read those that the last scan found below a margin of 1 are such rows.
        """
        carry = int(np.count_nonzero(state.newest.duals.any(axis=1)))
        if state.round < self.stages.count and state.looked:
            return int(carry * max(1.0, self.source.rows / state.looked))
        return max(carry, state.rows_below or 0) if state.status == "full" else carry

    def wanted(self, state: KernelState) -> Want | None:
        """Memory for the pool that is expected, where what there is does not do."""
        rows = self.expected(state)
        return self.room.want(rows) if state.status == "full" or rows > self.room.capacity else None

    # which rows are read when

    @property
    def sample_chunks(self) -> list[int]:
        """The chunks of the first stage: of a small store all."""
        return sample_chunks(self.source, self.codes, self.sample_share, self.sample_bytes)

    @cached_property
    def stages(self) -> Stages:
        """Which chunks the stages of the first read are about."""
        return plan_stages(self.source.chunks, self.sample_chunks)

    @property
    def stage_chunks(self) -> tuple[int, ...]:
        """Of the first read."""
        return self.stages.sizes

    @property
    def reads_again(self) -> bool:
        """All rows, for the proof."""
        return True

    @property
    def holds_all_rows(self) -> bool:
        """As many as fit, and their kernel values."""
        return True

    def skip(self, state: KernelState) -> NDArray[np.bool_]:
        """Chunks (c,) of other stages."""
        if state.round >= self.stages.count:
            return np.zeros(self.source.chunks, bool)
        return self.stages.skipping(state.round)

    def ahead(self, state: KernelState) -> NDArray[np.intp]:
        """The next stage but one."""
        return self.stages.chunks(state.round + 1) if state.round + 1 < self.stages.count else super().ahead(state)

    # states

    def start(self) -> KernelState:
        """Nothing: stages bring the rows to begin with."""
        if not self.hard:  # a class must not be left out as a whole
            totals = np.concatenate([side_totals(self.totals[one.fold]) for one in self.settings])
            check_class_c(self.source.name, self.columns.class_c.ravel(), totals.ravel())
        return self.unsolved()

    def unsolved(self) -> KernelState:
        """No row is known."""
        source, classes = self.source, len(self.codes)
        settings = len(self.settings)
        nothing = Machine.nothing(0, settings * count_of(classes))
        return KernelState(
            round=0, status="running", pool=ClassRows.nothing(source.features, sparse=source.sparse), newest=nothing,
            best=nothing, rows_below=None, new_rows=0, sample_bytes=0, looked=0, dropped=0,
            confusion=np.zeros((settings, classes, classes), np.int64), undecided=np.zeros(settings, np.int64),
        )  # fmt: skip

    def restore(self, arrays: Mapping[str, NDArray[Any]]) -> KernelState:
        """A state from a checkpoint. Raises UsageError where a kernel is another function than it was."""
        state = KernelState.from_arrays(arrays)
        if self.brought is not None and state.told is not None:
            check_same(self.brought, state.pool.rows, state.told, "the checkpoint")
        return state

    def round_of(self, state: KernelState) -> Round:
        """What is told of a state."""
        (lower, upper), (lower_now, _) = (bounds_of(one, hard=self.hard) for one in (state.best, state.newest))
        asked, stages = state.round, self.stages.count
        going_on = asked < stages and state.status == "running"
        return Round(
            status=state.status, lower=lower, lower_now=lower_now, upper=upper, pool_rows=len(state.pool),
            coreset_rows=int(np.count_nonzero(state.best.duals.any(axis=1))), new_rows=state.new_rows,
            rows_below=state.rows_below, more=self._forecast(state),
            **scan_position(asked, min(asked, stages), stages, going_on=going_on),
        )  # fmt: skip

    def _forecast(self, state: KernelState) -> dict[str, Any]:
        """How many rows the pool will need, and how many have room, while there is time to say so."""
        if state.round >= self.stages.count or not state.looked:
            return {}
        return {"pool_expected": self.expected(state), "pool_room": self.room.capacity}

    def results(self, state: KernelState) -> list[KernelResult]:
        """The models that a state stands for, one for each setting."""
        every = enumerate(self.settings)
        return [self._result(state, self.columns.of(k), self.kernels[one.kernel], k) for k, one in every]

    def _result(self, state: KernelState, mine: slice, kernel: Kernel, number: int) -> KernelResult:
        own = replace(
            state, newest=state.newest.only(mine), best=state.best.only(mine), confusion=state.confusion[number],
            undecided=state.undecided[number],
        )  # fmt: skip
        return result(own, kernel, self.epsilon, hard=self.hard)

    # scans

    def expansions(self, state: KernelState, machine: Machine) -> Expansions:
        """A machine on the pool as functions of rows: without rows that carry nothing."""
        used = np.flatnonzero(machine.duals.any(axis=1))
        signs = self.columns.signs(state.pool.classes[used], state.pool.ids[used])
        rows = row_ops.as_float64(row_ops.take(state.pool.rows, used))
        return Expansions(
            self.kernels, self.columns.kernels, rows, signs * machine.duals[used], machine.offsets
        )  # fmt: skip

    def probe(self, state: KernelState) -> KernelProbe:
        """The question of the next stage, or of a scan of all rows."""
        source = self.source
        chunks = int(np.count_nonzero(~self.skip(state)))
        keep = min(source.chunk_rows, -(-UNEVEN * self.most_new(state) // max(1, chunks)))
        return KernelProbe(
            machine=self.expansions(state, state.newest), columns=self.columns, place=class_index(self.codes),
            worth=self._worth(state), keep=keep, known=np.sort(state.pool.ids), dtype=source.dtype.name,
            sparse=source.sparse, chunk_rows=source.chunk_rows,
        )  # fmt: skip

    def _worth(self, state: KernelState) -> Array:
        """What a unit of loss counts in each column (k,): a share of what is known of its value."""
        open_ones = ~self.proven(state.best)
        value = np.where(state.newest.lower > 0, state.newest.lower, 1.0) if not self.hard else 1.0
        return np.asarray(open_ones / value)

    def update(self, state: KernelState, summary: KernelSummary) -> KernelState:
        """Bounds after a scan of all rows; then the pool with what broke it, solved."""
        in_stages, before = state.round < self.stages.count, state.best
        state = replace(state, round=state.round + 1, confusion=summary.confusion, undecided=summary.undecided)
        if not in_stages:
            state = replace(self.bounded(state, summary), rows_below=int(summary.below.max()))
            if self.proven(state.best).all():
                return replace(state, status="certified", new_rows=0)
        state, fits = self.joined(state, summary)
        if in_stages:
            share = state.new_rows / max(1, int(summary.broken[0]))
            state = replace(state, looked=state.looked + int(share * summary.counted[0]))
        elif not fits and np.array_equal(state.best.upper, before.upper):
            return self.crowded(state)
        elif state.new_rows == 0:
            return self.idle(state, before)
        last = in_stages and state.round == self.stages.count
        return self.solved(state, self.tolerances(state, rough=in_stages and not last))


def bounds_of(machine: Machine, *, hard: bool) -> tuple[float, float]:
    """Bounds on the sum of the columns' values, or on their smallest margin; nothing is known before a scan."""
    if hard:
        return margins_of(machine)
    upper = float(machine.upper.sum())
    return (float(machine.lower.sum()) if np.isfinite(upper) else -np.inf), upper
