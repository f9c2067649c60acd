"""One scan on a Dask cluster: which block is sent when, and what happens if something goes wrong.

========================================  =====================================================================
the task raises a CoremarginError         it is raised here at once: damaged data does not heal
the task raises any other exception       it is raised here at once: a bug does not heal either
OSError on the way to or from a worker    sent again after a pause, up to ``RetryPolicy.tries`` times
the worker dies                           Dask runs the block again elsewhere; after several deaths (KilledWorker) the
                                          block is sent *alone*: the block that kills even then is BlockFailed
the worker that has an array dies         Dask computes it again, see probe_transport.py; after several deaths
                                          (KilledWorker of the array) it is submitted again, and the block sent again
no answer for long (a stopped worker)     a copy is sent to other workers; the first answer counts
all workers died at once                  a copy without a hint is sent: Dask keeps hinted tasks for their worker when
                                          none is there, even with ``allow_other_workers``
no worker comes back                      the launcher starts new ones, or RunError: cluster_workers.py
no answer from any worker for very long   RunError
the scheduler is lost                     RunError; the run can be resumed. Lost means that our connection broke or that
                                          it does not answer; any other broken connection is a worker's
========================================  =====================================================================

Dask alone does not do this: its ``retries`` repeat bugs and damaged data too, its ``worker-ttl`` notices a process that
stopped but not a task that hangs in a read, and it gives up a block after ``allowed-failures`` deaths without trying
which of the blocks that ran together was the cause.
"""

from __future__ import annotations

import asyncio
import logging
import time
import uuid
from collections import Counter, defaultdict, deque
from concurrent.futures import CancelledError
from contextlib import nullcontext, suppress
from dataclasses import dataclass
from itertools import count
from queue import Empty, SimpleQueue
from typing import TYPE_CHECKING, Any

import dask
from distributed import KilledWorker

from coremargin.engine.cluster_workers import REFRESH_S, UNREACHABLE, ask_scheduler, brief, scheduler_lost
from coremargin.engine.probe_transport import ARRAY_KEY, Transport, run_packed
from coremargin.engine.protocols import BlockResult
from coremargin.engine.read_ahead import is_fetched
from coremargin.engine.task import place, task_name
from coremargin.errors import BlockFailed, CoremarginError, RunError
from coremargin.maths.stopping import may_stop

if TYPE_CHECKING:
    from collections.abc import Collection, Generator, Iterable, Iterator, Sequence

    from distributed import Client, Future

    from coremargin.data.source import Source
    from coremargin.engine.cluster_workers import WorkerThreads
    from coremargin.engine.probe_transport import BlasPin
    from coremargin.engine.protocols import Block, Probe

log = logging.getLogger(__name__)

#: Tasks in flight per worker thread: enough that a worker never waits for the driver.
PER_THREAD = 4
#: How many blocks the newest task may be ahead of the oldest: bounds the summaries that wait to be merged in order.
AHEAD = 1024
#: At least so many per worker thread: with fewer, one late block would idle the workers of a large cluster.
_AHEAD_PER_THREAD = 3
#: Most blocks in one graph. The scheduler takes a millisecond for a graph, and a tenth of it for each task in one.
GROUP = 64
#: Blocks after its own that a worker fetches: one is read within the time that two take to come from a bucket.
NEXT = 2
#: Most bytes of probes in one graph; Dask warns from 10 MB on.
GRAPH_BYTES = 2 << 20
#: Results that arrive within so many seconds, for each task in flight and in all, are fetched by one request.
_FETCH_EVERY_S, _FETCH_AT_LEAST_EVERY_S = 1e-4, 0.05
_TICK_S = 1.0  # between two checks while nothing arrives
_LATE_EVERY_S = 0.1  # between two looks for late blocks, of which there are thousands on a large cluster
#: After so many seconds without an answer, look whether the workers for which blocks were meant are still there.
_SILENT_S = 1.0
#: A block with so many copies is waited for twice as long each time: Dask may give any of them to a worker that hangs,
#: so that no number of copies is enough, and a block that is merely slow gets few.
_LONGER = 2


@dataclass(frozen=True)
class RetryPolicy:
    """How long to wait for a block, and how often to try it; seconds."""

    overdue_s: float = 60.0  #: then a block is also sent elsewhere (or after 20 times the slowest block, if longer)
    give_up_s: float = 900.0  #: after this without an answer from any worker the scan ends with RunError
    tries: int = 4  #: for errors that heal
    pause_s: float = 0.5  #: before the second try; doubles


class ClusterScan:
    """One scan; ``results`` may be called once."""

    def __init__(
        self,
        workers: WorkerThreads,
        source: Source,
        probe: Probe,
        blocks: Sequence[Block],
        policy: RetryPolicy,
        *,
        pin: BlasPin,
    ) -> None:
        self._workers = workers
        self._waiting = deque(blocks)
        self._left = {block.index: None for block in blocks}  # in increasing order, which a dict preserves
        self._tasks = SentTasks(workers, source, probe, blocks if is_fetched(source) else None, pin=pin)
        self._failed = FailedBlocks(self._tasks, workers, source, policy)
        self._late = LateBlocks(self._tasks, workers, source, policy)

    def results(self) -> Generator[BlockResult, None, None]:
        """Results as they arrive. Closing the generator cancels what has not run."""
        try:
            while self._left:
                may_stop()  # also while all workers are busy
                self._send_more()
                pause_s = max(0.0, min(_TICK_S, self._failed.next_due_s()))
                if (arrival := self._tasks.next_arrival(pause_s)) is not None:
                    task, outcome = arrival
                    if isinstance(outcome, BlockResult):
                        self._finish(task, outcome)
                        yield outcome
                    else:
                        self._failed.retry(task, outcome)
                if self._tasks.none_arrived():  # else only the consumer of our results is late
                    self._late.check()
        finally:
            self._tasks.cancel_all()

    def _send_more(self) -> None:
        for block in self._failed.take_due():
            self._waiting.appendleft(block)
        if self._failed.suspects:
            if not self._tasks:
                self._tasks.send([self._failed.suspects.popleft()], alone=True)
            return
        if self._failed.pausing():
            return  # while something heals, no more blocks are put at risk, and the tries come to their end
        threads = max(1, len(self._workers.addresses()))
        most, last = PER_THREAD * threads, next(iter(self._left)) + max(AHEAD, _AHEAD_PER_THREAD * threads)
        while self._waiting:
            size = min(GROUP, max(1, most // 4), len(self._waiting))
            blocks = [block for block, _ in zip(self._waiting, range(size), strict=False) if block.index < last]
            # groups that are not full wait, unless the workers have nothing else to do
            if len(self._tasks) + size > most or (len(blocks) < size and self._tasks):
                return
            if not blocks:
                return
            self._tasks.send(blocks)
            for _ in blocks:
                self._waiting.popleft()

    def _finish(self, task: Task, result: BlockResult) -> None:
        self._workers.wait.block_done()
        self._failed.block_done()
        self._late.block_done(task, result)
        del self._left[task.block.index]
        self._tasks.cancel(task.block)


@dataclass
class Task:
    """A block that was sent to a worker."""

    key: str
    block: Block
    future: Future
    sent: float
    alone: bool
    hint: str | None  #: address of the worker that should run it
    arrays: frozenset[str]  #: keys of the large arrays that it depends on
    copied: bool = False  #: its result may never arrive: no worker has it, or one that hangs


class SentTasks:
    """Sends blocks, cancels them, and fetches their results in the background; iterates over tasks, oldest first.

    A block may have several tasks, copies of each other.
    """

    def __init__(
        self,
        workers: WorkerThreads,
        source: Source,
        probe: Probe,
        fetched: Sequence[Block] | None = None,
        *,
        pin: BlasPin,
    ) -> None:
        """fetched: all blocks in order, where workers have to fetch their chunks."""
        self._workers, self._client = workers, workers.client
        self._source, self._handle = source, source.handle()
        self._probe = probe
        self._pin = pin
        self._transport = Transport(workers.client)
        self._packed: dict[int, tuple[bytes, dict[int, Future]]] = {}  # of handle and probe, the same for all blocks
        self._order = fetched
        self._positions = {block.index: position for position, block in enumerate(fetched or ())}
        self._name, self._scan, self._number = task_name(probe), uuid.uuid4().hex[:12], count()
        self._tasks: dict[str, Task] = {}
        self._keys: defaultdict[int, set[str]] = defaultdict(set)  # by block
        self._arrived: SimpleQueue[tuple[str, Any]] = SimpleQueue()
        self._results = ResultFetcher(self._client, self._arrived)

    def __len__(self) -> int:
        return len(self._tasks)

    def __iter__(self) -> Iterator[Task]:
        return iter(self._tasks.values())

    def of_block(self, block: Block) -> list[Task]:
        """The tasks of one block."""
        return [self._tasks[key] for key in self._keys[block.index]]

    def send(
        self, blocks: Sequence[Block], *, alone: bool = False, anywhere: bool = False, avoid: Collection[str] = ()
    ) -> None:
        """Send one more task for each block, all in one graph.

        anywhere: without a hint; alone: without a hint too, and as the only one in flight; avoid: addresses of workers
        that should not get it, if there are others.
        """
        # the name and the block come first: Dask groups tasks by what precedes the first number
        keys = [f"{self._name}-{block.index}-{self._scan}-{next(self._number)}" for block in blocks]
        hints = None if alone or anywhere else self._workers.for_blocks([block.index for block in blocks], avoid)
        by_key = dict(zip(keys, hints, strict=True)) if hints is not None else {}
        where = dask.annotate(workers=by_key.__getitem__, allow_other_workers=True) if by_key else nullcontext()
        futures: list[Future] = []
        try:
            handle, shared = self._pack(self._handle)
            probes, arrays = zip(*(self._pack(self._probe.narrow(block)) for block in blocks), strict=True)
            arrays = [shared | own if own else shared for own in arrays]
            following = [self._following(block) for block in blocks]
            with where:
                for stop in _graphs(probes):
                    part = slice(len(futures), stop)
                    same = stop - len(futures)
                    # fifo_timeout: Dask runs graphs that are sent shortly one after the other in any order
                    futures += self._client.map(
                        run_packed, [handle] * same, list(probes[part]), arrays[part], list(blocks[part]),
                        [self._pin] * same, following[part], key=keys[part], pure=False, retries=0, fifo_timeout=0,
                    )  # fmt: skip
        except UNREACHABLE:
            ask_scheduler(self._client)  # raises, as only the scheduler was contacted
            raise
        except BaseException:  # an interrupt between two graphs
            self._cancel_futures(futures)
            raise
        sent = time.monotonic()
        for key, block, future, large in zip(keys, blocks, futures, arrays, strict=True):
            names = frozenset(array.key for array in large.values())
            self._tasks[key] = Task(key, block, future, sent, alone, by_key.get(key), names)
            self._keys[block.index].add(key)
        self._client.loop.add_callback(self._results.fetch, dict(zip(keys, futures, strict=True)))

    def _following(self, block: Block) -> tuple[Block, ...] | None:
        """The blocks that the worker of a block is to have next; None where no chunks are fetched."""
        if self._order is None:
            return None
        threads = len(self._workers.addresses())
        start = self._positions[block.index]
        others = [self._order[at] for at in range(start, len(self._order), max(1, threads))][1 : 1 + NEXT]
        hints = self._workers.for_blocks([block.index, *(other.index for other in others)])
        if hints is None:
            return tuple(others)
        return tuple(other for other, hint in zip(others, hints[1:], strict=True) if hint == hints[0])

    def _pack(self, value: Any) -> tuple[bytes, dict[int, Future]]:
        """``value`` as bytes and futures of its large arrays; what all blocks have in common is packed once."""
        if value is not self._probe and value is not self._handle:
            return self._transport.pack(value)
        if id(value) not in self._packed:
            self._packed[id(value)] = self._transport.pack(value)
        return self._packed[id(value)]

    def next_arrival(self, timeout_s: float) -> tuple[Task, Any] | None:
        """A task that is no longer in flight, and what it returned or raised; None if none arrives in time."""
        with suppress(Empty):
            key, outcome = self._arrived.get(timeout=timeout_s)
            task = self._tasks.pop(key, None)
            if task is not None:  # else a copy was faster
                self._keys[task.block.index].discard(key)
                task.future.release()  # the traceback of its error may hold it long after the scan
                return task, outcome
        return None

    def none_arrived(self) -> bool:
        """Whether ``next_arrival`` has returned all that arrived."""
        return self._arrived.empty()

    def resend_arrays(self, task: Task) -> None:
        """Submit the large arrays that a task depends on again, from the next task on."""
        self._transport.forget(task.arrays)
        self._packed.clear()

    def cancel(self, block: Block) -> None:
        """Cancel all tasks of a block."""
        self._cancel([self._tasks.pop(key) for key in self._keys.pop(block.index, ())])

    def cancel_all(self) -> None:
        """Cancel what has not run, and release the large arrays: the client may live on, and a traceback hold us."""
        self._cancel(self._tasks.values())
        self._cancel_futures(self._transport.forget_all())

    def _cancel(self, tasks: Iterable[Task]) -> None:
        self._cancel_futures([task.future for task in tasks])

    def _cancel_futures(self, futures: Sequence[Future]) -> None:
        if futures and self._client.status == "running":
            with suppress(CancelledError, *UNREACHABLE):
                self._client.cancel(futures, force=True)


def _graphs(probes: Sequence[bytes]) -> Iterator[int]:
    """Where the graphs end in which probes are sent: each has one probe, or at most GRAPH_BYTES of different ones."""
    total, last = 0, None
    for number, probe in enumerate(probes):
        size = 0 if probe is last else len(probe)
        if number and total + size > GRAPH_BYTES:
            yield number
            total, size = 0, len(probe)
        total, last = total + size, probe
    yield len(probes)


class ResultFetcher:
    """Fetches what tasks return or raise, in the client's event loop, so that it overlaps with the driver.

    A request for each result would cost the scheduler as much as the task itself. So results of different workers are
    fetched together, in less time than the tasks that wait on the workers take. Requests do not wait for each other: a
    worker that hangs delays those results only that were ready at the same time as its own.
    """

    def __init__(self, client: Client, arrived: SimpleQueue[tuple[str, Any]]) -> None:
        self._client, self._arrived = client, arrived
        self._waiting = 0
        self._ready: dict[str, Future] = {}
        self._timer: asyncio.TimerHandle | None = None
        self._fetched = 0.0

    async def fetch(self, futures: dict[str, Future]) -> None:
        """Put keys and outcomes into the queue as they arrive."""
        self._waiting += len(futures)
        await asyncio.gather(*(self._wait(key, future) for key, future in futures.items()))

    async def _wait(self, key: str, future: Future) -> None:
        try:
            with suppress(CancelledError, asyncio.CancelledError):
                await future._state.wait()  # noqa: SLF001  ``distributed.wait`` needs a default client
        finally:
            self._waiting -= 1
        if future.status != "finished":
            await self._put(key, future)
            return
        self._ready[key] = future
        if self._timer is None:
            loop = asyncio.get_running_loop()
            due = self._fetched + min(_FETCH_AT_LEAST_EVERY_S, _FETCH_EVERY_S * self._waiting)
            self._timer = loop.call_at(max(due, loop.time()), self._fetch_ready)

    def _fetch_ready(self) -> None:
        loop = asyncio.get_running_loop()
        ready, self._ready = self._ready, {}
        self._timer, self._fetched = None, loop.time()
        self._request = loop.create_task(self._gather(ready))

    async def _gather(self, ready: dict[str, Future]) -> None:
        try:
            for outcome in (await self._client.gather(ready, asynchronous=True)).items():
                self._arrived.put(outcome)
        except BaseException:  # noqa: BLE001 -- of one of them, or of none: each has its own outcome
            await asyncio.gather(*(self._put(key, future) for key, future in ready.items()))

    async def _put(self, key: str, future: Future) -> None:
        try:
            outcome: Any = await future
        except BaseException as error:  # noqa: BLE001 -- the driver handles all errors
            outcome = error
        self._arrived.put((key, outcome))


class FailedBlocks:
    """Blocks whose task failed: each is sent again after a pause, or alone, or ends the scan.

    suspects: blocks that may kill their worker. Each is sent alone, so that no other dies with it and it cannot blame
    another.
    """

    def __init__(self, tasks: SentTasks, workers: WorkerThreads, source: Source, policy: RetryPolicy) -> None:
        self._tasks = tasks
        self._client = workers.client
        self._source = source
        self._policy = policy
        self._tries: Counter[int] = Counter()
        self._later: list[tuple[float, Block]] = []
        self._deadly: set[str] = set()  # arrays that killed their workers since a block was done
        self.suspects: deque[Block] = deque()

    def block_done(self) -> None:
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

    def retry(self, task: Task, error: BaseException) -> None:
        """Have the block of a failed task sent again. Raises errors that do not heal."""
        block, where = task.block, place(self._source, task.block)
        if isinstance(error, CoremarginError):
            raise error
        if isinstance(error, KilledWorker) and not str(error.task).startswith(ARRAY_KEY):
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
            ask_scheduler(self._client)  # the one thing that cannot be replaced
            self._tasks.resend_arrays(task)
            if isinstance(error, KilledWorker):
                self._deadly.add(str(error.task))
            # else a copy that can be relied on is still in flight
            if len(self._deadly) >= self._policy.tries or all(other.copied for other in self._tasks.of_block(block)):
                self._tasks.cancel(block)
                self._try_later(block, where, error)
        else:
            raise error

    def _try_later(self, block: Block, where: str, error: BaseException) -> None:
        self._tries[block.index] += 1
        own = self._tries[block.index]
        if (tries := max(own, len(self._deadly))) >= self._policy.tries:
            raise BlockFailed(f"{where}: failed {tries} times, the last time with: {brief(error)}") from error
        pause = self._policy.pause_s * 2 ** (own - 1)
        log.warning("%s: %s; tried again in %.1f s", where, brief(error), pause)
        self._later.append((time.monotonic() + pause, block))


class LateBlocks:
    """Blocks whose result does not arrive: a copy is sent to other workers, and the first answer counts."""

    def __init__(self, tasks: SentTasks, workers: WorkerThreads, source: Source, policy: RetryPolicy) -> None:
        self._tasks = tasks
        self._workers = workers
        self._source = source
        self._policy = policy
        self._copies: Counter[int] = Counter()
        self._avoid: defaultdict[int, set[str]] = defaultdict(set)  # by block, the workers that had it and were late
        self._last_result = self._checked = time.monotonic()
        self._slowest_s = 0.0

    def block_done(self, task: Task, result: BlockResult) -> None:
        """A block was done."""
        self._last_result = time.monotonic()
        self._workers.mark_responsive(task.hint)
        self._slowest_s = max(self._slowest_s, result.seconds)

    def check(self) -> None:
        """Send copies where it is time to. Raises RunError if no worker is there, or answers, for too long."""
        now = time.monotonic()
        if not self._tasks:
            self._last_result = now
            return
        if now - self._checked < _LATE_EVERY_S:
            return
        self._checked = now
        silent = now - self._last_result > _SILENT_S
        there = set(self._workers.addresses(_SILENT_S if silent else REFRESH_S))
        if gone := [task for task in self._tasks if silent and task.hint and task.hint not in there]:
            # sent once, as the copy has no hint; Dask itself counts how many more workers die of it
            self._send_copies(gone, "its worker is gone", anywhere=True)
        if self._workers.none_left():
            self._last_result = now  # without workers, none is late
            for task in self._tasks:
                task.sent = now
            return
        patience_s = max(self._policy.overdue_s, 20 * self._slowest_s)
        late = [
            task for task in self._tasks if now - task.sent > patience_s * _LONGER ** self._copies[task.block.index]
        ]
        if late:
            for task in late:
                task.sent = now
                self._workers.mark_unresponsive(task.hint)
                self._tasks.resend_arrays(task)  # it may wait for an array from a worker that hangs
            newest = {task.block.index: task for task in late if not task.alone}
            self._send_copies(list(newest.values()), f"no answer for {patience_s:.0f} s or longer")
        if now - self._last_result > max(self._policy.give_up_s, 2 * patience_s):
            raise RunError(
                f"no answer from any worker for {now - self._last_result:.0f} s; {len(there)} workers are known; see "
                f"whether the cluster runs, then run again"
            )

    def _send_copies(self, tasks: Sequence[Task], why: str, *, anywhere: bool = False) -> None:
        for number, task in enumerate(tasks):
            if not number:
                more = f", and {len(tasks) - 1} more blocks" if len(tasks) > 1 else ""
                log.warning("%s%s: %s; sent to another worker", place(self._source, task.block), more, why)
            avoid = self._avoid[task.block.index]
            if task.hint is not None:
                avoid.add(task.hint)
            task.hint, task.copied = None, True
            self._copies[task.block.index] += 1
            self._tasks.send([task.block], anywhere=anywhere, avoid=avoid)
