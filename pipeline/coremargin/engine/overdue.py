"""What becomes of a block whose result does not arrive: a copy is sent to other workers; the first answer counts."""

from __future__ import annotations

import logging
import time
from collections import Counter, defaultdict
from typing import TYPE_CHECKING

from coremargin.engine.slots import EVERY_S
from coremargin.engine.task import place
from coremargin.errors import RunError

if TYPE_CHECKING:
    from collections.abc import Sequence

    from coremargin.data.source import Source
    from coremargin.engine.in_flight import Task, TasksInFlight
    from coremargin.engine.patience import Patience
    from coremargin.engine.protocols import BlockResult
    from coremargin.engine.slots import Slots

log = logging.getLogger(__name__)

#: After so many seconds without an answer, look whether the workers for which blocks were meant are still there.
_QUIET_S = 1.0
#: A block with so many copies is waited for twice as long each time: Dask may give any of them to a worker that hangs,
#: so that no number of copies is enough, and a block that is merely slow gets few.
_LONGER = 2


class Overdue:
    """Looks after the tasks of one scan that are late."""

    def __init__(self, tasks: TasksInFlight, slots: Slots, source: Source, patience: Patience) -> None:
        self._tasks = tasks
        self._slots = slots
        self._source = source
        self._patience = patience
        self._copies: Counter[int] = Counter()
        self._meant: defaultdict[int, set[str]] = defaultdict(set)  # by block, who had it and was late
        self._heard = time.monotonic()
        self._slowest_s = 0.0

    def worked(self, task: Task, result: BlockResult) -> None:
        """A block was done."""
        self._heard = time.monotonic()
        self._slots.trust(task.hint)
        self._slowest_s = max(self._slowest_s, result.seconds)

    def look(self) -> None:
        """Send copies where it is time to. Raises RunError when nobody is there, or answers, for too long."""
        now = time.monotonic()
        if not self._tasks:
            self._heard = now
            return
        quiet = now - self._heard > _QUIET_S
        there = set(self._slots.known(_QUIET_S if quiet else EVERY_S))
        if gone := [task for task in self._tasks if quiet and task.hint and task.hint not in there]:
            # without a hint they cannot be sent again for this: Dask itself counts from here on how many workers die
            self._send_copies(gone, "its worker is gone", anywhere=True)
        if self._slots.no_workers():
            self._heard = now  # where nobody is, nobody is late
            for task in self._tasks:
                task.sent = now
            return
        patience = max(self._patience.overdue_s, 20 * self._slowest_s)
        if overdue := [task for task in self._tasks if now - task.sent > patience * self._longer(task)]:
            for task in overdue:
                task.sent = now
                self._slots.distrust(task.hint)
                self._tasks.send_arrays_anew(task)  # it may wait for the question, from a worker that hangs
            newest = {task.block.index: task for task in overdue if not task.alone}
            self._send_copies(list(newest.values()), f"no answer for {patience:.0f} s or longer")
        if now - self._heard > max(self._patience.give_up_s, 2 * patience):
            raise RunError(
                f"no answer from any worker for {now - self._heard:.0f} s; {len(there)} workers are known; see whether "
                f"the cluster runs, then run again"
            )

    def _longer(self, task: Task) -> int:
        """How many times as long as its block's first task is waited for."""
        return int(_LONGER ** self._copies[task.block.index])

    def _send_copies(self, tasks: Sequence[Task], why: str, *, anywhere: bool = False) -> None:
        for number, task in enumerate(tasks):
            if not number:
                more = f", and {len(tasks) - 1} more blocks" if len(tasks) > 1 else ""
                log.warning("%s%s: %s; sent to another worker", place(self._source, task.block), more, why)
            meant = self._meant[task.block.index]
            if task.hint is not None:
                meant.add(task.hint)
            task.hint, task.copied = None, True
            self._copies[task.block.index] += 1
            self._tasks.send(task.block, anywhere=anywhere, beside=meant)
