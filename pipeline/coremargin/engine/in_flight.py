"""The tasks in flight of one scan: sent to a Dask cluster, not answered yet. A block may have several, copies."""

from __future__ import annotations

import time
import uuid
from collections import defaultdict
from collections.abc import Collection, Iterable, Iterator
from concurrent.futures import CancelledError
from contextlib import suppress
from dataclasses import dataclass
from queue import Empty, SimpleQueue
from typing import TYPE_CHECKING, Any

from coremargin.engine.payload import Payloads, run_payload
from coremargin.engine.slots import UNREACHABLE, ask_scheduler

if TYPE_CHECKING:
    from distributed import Future

    from coremargin.data.source import Source
    from coremargin.engine.protocols import Block, Probe
    from coremargin.engine.slots import Slots


@dataclass
class Task:
    """A block on its way to a worker and back."""

    key: str
    block: Block
    future: Future
    sent: float
    alone: bool
    hint: str | None  #: address of the worker it was meant for
    arrays: frozenset[str]  #: keys of the large arrays that it waits for
    copied: bool = False  #: its result may never arrive: no worker has it, or one that hangs


class TasksInFlight:
    """Sends blocks, cancels them, and fetches their results beside; iterates over what was sent, oldest first."""

    def __init__(self, slots: Slots, source: Source, probe: Probe, *, pin: bool) -> None:
        self._slots, self._client = slots, slots.client
        self._source = source
        self._probe = probe
        self._pin = pin
        self._payloads = Payloads(slots.client)
        self._handle: tuple[bytes, dict[int, Future]] | None = None  # packed once, it is the same for all blocks
        self._name = f"{type(probe).__name__.strip('_').lower()}-{uuid.uuid4().hex[:12]}"
        self._tasks: dict[str, Task] = {}
        self._keys: defaultdict[int, set[str]] = defaultdict(set)  # by block
        self._arrived: SimpleQueue[tuple[str, Any]] = SimpleQueue()

    def __len__(self) -> int:
        return len(self._tasks)

    def __iter__(self) -> Iterator[Task]:
        return iter(self._tasks.values())

    def of(self, block: Block) -> list[Task]:
        """The tasks of one block."""
        return [self._tasks[key] for key in self._keys[block.index]]

    def send(self, block: Block, *, alone: bool = False, anywhere: bool = False, beside: Collection[str] = ()) -> None:
        """One more task for a block. anywhere: it is meant for nobody; alone: so, too, as the only one in flight;
        beside: for somebody else than these workers, if there is one.
        """
        key = f"{self._name}-{block.index}-{uuid.uuid4().hex[:8]}"
        hint = None if alone or anywhere else self._slots.for_block(block.index, beside)
        where = {} if hint is None else {"workers": [hint], "allow_other_workers": True}
        try:
            handle, large = self._handle or self._payloads.pack(self._source.handle())
            self._handle = (handle, large)
            question, more = self._payloads.pack(self._probe.narrow(block))
            large = large | more
            future = self._client.submit(
                run_payload, handle, question, large, block, self._pin, key=key, pure=False, retries=0, **where
            )
        except UNREACHABLE:
            ask_scheduler(self._client)  # raises, since nobody else was spoken to
            raise
        arrays = frozenset(array.key for array in large.values())
        self._tasks[key] = Task(key, block, future, time.monotonic(), alone, hint, arrays)
        self._keys[block.index].add(key)
        self._client.loop.add_callback(_fetch, self._arrived, key, future)

    def next_arrival(self, timeout_s: float) -> tuple[Task, Any] | None:
        """A task that is in flight no more, and what it returned or raised; None when none arrives in time."""
        with suppress(Empty):
            key, outcome = self._arrived.get(timeout=timeout_s)
            task = self._tasks.pop(key, None)
            if task is not None:  # else a copy was faster
                self._keys[task.block.index].discard(key)
                return task, outcome
        return None

    def none_waits(self) -> bool:
        """Whether every result that arrived was taken."""
        return self._arrived.empty()

    def send_arrays_anew(self, task: Task) -> None:
        """Hand the large arrays that a task waits for over anew, from the next task on."""
        self._payloads.forget(task.arrays)
        self._handle = None

    def cancel(self, block: Block) -> None:
        """Cancel all tasks of a block."""
        self._cancel([self._tasks.pop(key) for key in self._keys.pop(block.index, ())])

    def cancel_all(self) -> None:
        """Cancel what has not run."""
        self._cancel(self._tasks.values())

    def _cancel(self, tasks: Iterable[Task]) -> None:
        futures = [task.future for task in tasks]
        if futures and self._client.status == "running":
            with suppress(CancelledError, *UNREACHABLE):
                self._client.cancel(futures, force=True)


async def _fetch(arrived: SimpleQueue[tuple[str, Any]], key: str, future: Future) -> None:
    """Fetch what a task returned or raised; runs in the client's event loop, so that it overlaps with the driver."""
    try:
        outcome: Any = await future
    except BaseException as error:  # noqa: BLE001 -- whatever it is, the driver must hear of it
        outcome = error
    arrived.put((key, outcome))
