"""What becomes of a block whose task failed: it is sent again after a pause, or alone, or is the end of the scan."""

from __future__ import annotations

import logging
import time
from collections import Counter, deque
from concurrent.futures import CancelledError
from typing import TYPE_CHECKING

from distributed import KilledWorker

from coremargin.engine.payload import KEY
from coremargin.engine.slots import UNREACHABLE, ask_scheduler, brief, scheduler_lost
from coremargin.engine.task import place
from coremargin.errors import BlockFailed, CoremarginError

if TYPE_CHECKING:
    from distributed import Client

    from coremargin.data.source import Source
    from coremargin.engine.in_flight import Task, TasksInFlight
    from coremargin.engine.patience import Patience
    from coremargin.engine.protocols import Block

log = logging.getLogger(__name__)


class Retries:
    """The blocks of one scan that are to be sent again.

    suspects: those that may kill their worker. Each is sent alone, so that no other dies with it and it cannot blame
    another.
    """

    def __init__(self, tasks: TasksInFlight, client: Client, source: Source, patience: Patience) -> None:
        self._tasks = tasks
        self._client = client
        self._source = source
        self._patience = patience
        self._tries: Counter[int] = Counter()
        self._later: list[tuple[float, Block]] = []
        self._deadly: set[str] = set()  # questions that killed their workers since a block was done
        self.suspects: deque[Block] = deque()

    def worked(self) -> None:
        """A block was done."""
        self._deadly.clear()

    def take_due(self) -> list[Block]:
        """The blocks whose pause is over."""
        now = time.monotonic()
        due = [block for when, block in self._later if when <= now]
        self._later = [(when, block) for when, block in self._later if when > now]
        return due

    def pausing(self) -> bool:
        """Whether blocks wait for their pause to be over."""
        return bool(self._later)

    def next_due_s(self) -> float:
        """Seconds until a pause is over."""
        return min((when for when, _ in self._later), default=float("inf")) - time.monotonic()

    def failed(self, task: Task, error: BaseException) -> None:
        """Have the block of a failed task sent again. Raises what cannot be healed."""
        block, where = task.block, place(self._source, task.block)
        if isinstance(error, CoremarginError):
            raise error
        if isinstance(error, KilledWorker) and not str(error.task).startswith(KEY):
            if task.alone:
                raise BlockFailed(
                    f"{where}: the worker died each time it ran this block, also when nothing else ran; a chunk that "
                    f"kills its reader is usually truncated: run `coremargin check {self._source.name}`; "
                    f"if that finds nothing, the worker ran out of memory or walltime"
                ) from error
            log.warning("%s: its worker died several times; it is tried again alone", where)
            self._tasks.cancel(block)
            self.suspects.append(block)
        elif isinstance(error, (KilledWorker, CancelledError, *UNREACHABLE)):
            if "scheduler" in str(getattr(error, "reason", "")):
                raise scheduler_lost(error) from error
            ask_scheduler(self._client)  # which is the one thing that cannot be replaced
            self._tasks.send_arrays_anew(task)
            if isinstance(error, KilledWorker):
                self._deadly.add(str(error.task))
            # else a copy is still in flight, on which one can rely
            if len(self._deadly) >= self._patience.tries or all(other.copied for other in self._tasks.of(block)):
                self._tasks.cancel(block)
                self._try_later(block, where, error)
        else:
            raise error

    def _try_later(self, block: Block, where: str, error: BaseException) -> None:
        self._tries[block.index] += 1
        own = self._tries[block.index]
        if (tries := max(own, len(self._deadly))) >= self._patience.tries:
            raise BlockFailed(f"{where}: failed {tries} times, the last time with: {brief(error)}") from error
        pause = self._patience.pause_s * 2 ** (own - 1)
        log.warning("%s: %s; tried again in %.1f s", where, brief(error), pause)
        self._later.append((time.monotonic() + pause, block))
