"""How the pool of a machine with a kernel grows: what joins and what leaves, how well it is solved, when it ends."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

import numpy as np
from numpy.typing import NDArray

from coremargin.problems.common.driver_rows import ClassRows
from coremargin.problems.kernel.chosen import chosen
from coremargin.problems.kernel.solving import Solving

if TYPE_CHECKING:
    from coremargin.problems.kernel.state import KernelState, Machine
    from coremargin.problems.kernel.summary import KernelSummary

Array = NDArray[np.float64]

#: Rows of the first stage that are solved on, at most, and how many times as large a pool may grow by one question.
FIRST, GROWTH = 2000, 4
#: While stages bring rows the pool is solved to this gap; later to this share of what a scan has left of it, and no
#: better than to this share of epsilon.
ROUGH, SHARE, FINE = 1e-2, 0.1, 0.1
#: Where a scan has found nothing that breaks it, and it is not proven, it is solved to this share of epsilon.
LEAST = 1e-4
#: And it ends where such a scan leaves more than this share of the gap.
NEARER = 0.9
#: What the dual has to grow by on a full pool, as a share of what is left, for another scan to be made.
GROWN = 0.05


@dataclass(frozen=True)
class Growing(Solving):
    """The pool between two questions."""

    def most_new(self, state: KernelState) -> int:
        """How many rows the next question may bring."""
        grown = max(FIRST, (GROWTH - 1) * len(state.pool) + FIRST)
        return min(grown, self.room.capacity)

    def joined(self, state: KernelState, summary: KernelSummary) -> tuple[KernelState, bool]:
        """The pool with rows that were sent, and whether they all had room; what carries nothing leaves where not."""
        sent, most = summary.sent, self.most_new(state)
        mine = chosen(summary.scores, sent.ids, sent.classes, most) if len(sent) else np.zeros(0, np.intp)
        fits = len(state.pool) + len(mine) <= self.room.capacity
        if not fits:
            state = self._without_idle(state)
            room, some = max(0, self.room.capacity - len(state.pool)), sent.take(mine)
            fits = len(mine) <= room
            mine = mine[
                chosen(summary.scores[mine], some.ids, some.classes, room)[:room]
            ]  # classes have parts, rounded
        new = sent.take(mine).exact()
        return replace(
            state, pool=ClassRows.concatenate([state.pool, new]), newest=state.newest.grown(len(new)),
            best=state.best.grown(len(new)), new_rows=len(new),
        ), fits  # fmt: skip

    def _without_idle(self, state: KernelState) -> KernelState:
        """Without the rows that carry nothing."""
        kept = np.flatnonzero(state.newest.duals.any(axis=1) | state.best.duals.any(axis=1))
        return replace(
            state, pool=state.pool.take(kept), newest=state.newest.take(kept), best=state.best.take(kept),
            dropped=state.dropped + len(state.pool) - len(kept),
        )  # fmt: skip

    def tolerances(self, state: KernelState, *, rough: bool) -> Array:
        """To what gap (k,) each column is worth solving now."""
        if rough:
            return np.full(len(self.columns), max(ROUGH, FINE * self.epsilon))
        best = state.best
        gaps = np.where(np.isfinite(best.upper), 1.0 - best.lower / best.upper, ROUGH)
        return np.maximum(SHARE * gaps, FINE * self.epsilon)

    def crowded(self, state: KernelState) -> KernelState:
        """The pool is full, and the last scan has brought nothing nearer: it goes on as long as the dual still grows.

        Rows that carry nothing make room for others, which lowers no dual; the value may rise meanwhile.
        """
        solved = self.solved(state, self.tolerances(state, rough=False))
        grown, left = solved.newest.lower - state.newest.lower, state.best.upper - state.newest.lower
        if solved.status == "running" and float(grown.sum()) > GROWN * float(left.sum()):
            return solved
        return replace(state, status="full")

    def idle(self, state: KernelState, before: Machine) -> KernelState:
        """No row breaks what is not proven: the pool was not solved well enough, as far as float64 can tell.

        before: the best machine before this scan, which has to have come nearer.
        """
        with np.errstate(invalid="ignore"):
            gap, was = (float((one.upper - one.lower).sum()) for one in (state.best, before))
        if not gap < NEARER * was:
            return replace(state, status="stalled")
        return self.solved(state, np.full(len(self.columns), LEAST * self.epsilon))
