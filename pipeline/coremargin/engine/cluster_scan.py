"""One scan on a Dask cluster: which block is sent when, and what can go wrong.

What happens then:

========================================  =====================================================================
the task raises a CoremarginError         it is raised here at once: damaged data does not heal
the task raises any other exception       it is raised here at once: a bug does not heal either
OSError on the way to or from a worker    sent again after a pause, up to ``Patience.tries`` times
the worker dies                           Dask does the block again elsewhere; after several deaths (KilledWorker) the
                                          block is sent *alone*: innocents pass, the guilty one is BlockFailed
the worker that has the question dies     Dask sends it again, see payload.py; after several deaths (KilledWorker of the
                                          question) it is handed over anew, and the block sent again
no answer for long (a stopped worker)     a copy is sent to other workers; the first answer counts
all workers died at once                  a copy without a hint is sent: Dask keeps hinted tasks for their worker when
                                          none is there, even with ``allow_other_workers``
no worker comes back                      asked for again where that is ours to do, else RunError: absence.py
no answer from anybody for very long      RunError
the scheduler is lost                     RunError; the run can be resumed. Lost means that our connection broke or that
                                          it does not answer; whatever else breaks is a worker's end
========================================  =====================================================================

Failures are the subject of retries.py, results that do not arrive that of overdue.py.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Generator, Sequence
from typing import TYPE_CHECKING, Any

from coremargin.engine.in_flight import TasksInFlight
from coremargin.engine.overdue import Overdue
from coremargin.engine.protocols import BlockResult
from coremargin.engine.retries import Retries
from coremargin.maths.stopping import may_stop

if TYPE_CHECKING:
    from coremargin.data.source import Source
    from coremargin.engine.in_flight import Task
    from coremargin.engine.patience import Patience
    from coremargin.engine.protocols import Block, Probe
    from coremargin.engine.slots import Slots

#: Tasks in flight per worker thread: enough that a worker never waits for the driver.
PER_THREAD = 4
#: How many blocks the newest task may be ahead of the oldest: bounds the summaries that wait to be merged in order.
AHEAD = 1024
_LOOK_S = 1.0  # until something is looked at even when nothing arrives


class ClusterScan:
    """One scan; ``results`` may be called once."""

    def __init__(
        self, slots: Slots, source: Source, probe: Probe, blocks: Sequence[Block], patience: Patience, *, pin: bool
    ) -> None:
        self._slots = slots
        self._waiting = deque(blocks)
        self._left = {block.index: None for block in blocks}  # in increasing order, which a dict keeps
        self._tasks = TasksInFlight(slots, source, probe, pin=pin)
        self._retries = Retries(self._tasks, slots.client, source, patience)
        self._overdue = Overdue(self._tasks, slots, source, patience)

    def results(self) -> Generator[BlockResult, None, None]:
        """Results as they arrive. Closing the generator cancels what has not run."""
        try:
            while self._left:
                may_stop()  # whatever the workers are at
                self._send_more()
                pause_s = max(0.0, min(_LOOK_S, self._retries.next_due_s()))
                if (arrival := self._tasks.next_arrival(pause_s)) is not None:
                    result = self._taken(*arrival)
                    if result is not None:
                        yield result
                if self._tasks.none_waits():  # else nobody is late but the one who takes our results
                    self._overdue.look()
        finally:
            self._tasks.cancel_all()

    def _send_more(self) -> None:
        for block in self._retries.take_due():
            self._waiting.appendleft(block)
        if self._retries.suspects:
            if not self._tasks:
                self._tasks.send(self._retries.suspects.popleft(), alone=True)
            return
        if self._retries.pausing():
            return  # while something heals, no more is put at stake: tries that help nobody come to their end
        most = PER_THREAD * max(1, len(self._slots.known()))
        last = next(iter(self._left)) + AHEAD
        while self._waiting and len(self._tasks) < most and self._waiting[0].index < last:
            self._tasks.send(self._waiting.popleft())

    def _taken(self, task: Task, outcome: Any) -> BlockResult | None:
        """The result of a block; None where its task failed and it is sent again. Raises what cannot be healed."""
        if not isinstance(outcome, BlockResult):
            self._retries.failed(task, outcome)
            return None
        self._slots.absence.worked()
        self._retries.worked()
        self._overdue.worked(task, outcome)
        del self._left[task.block.index]
        self._tasks.cancel(task.block)
        return outcome
