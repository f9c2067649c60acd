"""The blocks of one scan in flight on a Dask cluster: sending, landing, trying again, giving up.

What can go wrong, and what happens then:

========================================  =====================================================================
the task raises a CoremarginError         it is raised here at once: damaged data does not heal
the task raises any other exception       it is raised here at once: a bug does not heal either
OSError on the way to or from a worker    sent again after a pause, up to ``Patience.tries`` times
the worker dies                           Dask does the block again elsewhere; after several deaths (KilledWorker) the
                                          block flies again *alone*: innocents pass, the guilty one is BlockFailed
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
"""

from __future__ import annotations

import logging
import time
import uuid
from collections import deque
from collections.abc import Generator, Sequence
from concurrent.futures import CancelledError
from contextlib import suppress
from dataclasses import dataclass, field
from queue import Empty, SimpleQueue
from typing import TYPE_CHECKING, Any

from distributed import KilledWorker

from coremargin.engine.payload import KEY, Parcels, run_parcel
from coremargin.engine.protocols import BlockResult
from coremargin.engine.slots import EVERY_S, UNREACHABLE, ask_scheduler, brief, scheduler_lost
from coremargin.engine.task import place
from coremargin.errors import BlockFailed, CoremarginError, RunError

if TYPE_CHECKING:
    from distributed import Future

    from coremargin.data.source import Source
    from coremargin.engine.protocols import Block, Probe
    from coremargin.engine.slots import Slots

log = logging.getLogger(__name__)

#: Tasks in flight per worker thread: enough that a worker never waits for the driver.
PER_THREAD = 4
#: How many blocks the newest flight may be ahead of the oldest: bounds the summaries that wait to be merged in order.
AHEAD = 1024
#: After so many seconds without an answer, look whether the workers for which blocks were meant are still there.
_QUIET_S = 1.0


@dataclass(frozen=True)
class Patience:
    """How long to wait and how often to try; seconds."""

    overdue_s: float = 60.0  #: then a block is also sent elsewhere (or after 20 times the slowest block, if longer)
    give_up_s: float = 900.0  #: after this without an answer from any worker the scan ends with RunError
    tries: int = 4  #: for errors that heal
    pause_s: float = 0.5  #: before the second try; doubles


@dataclass
class _Flight:
    block: Block
    future: Future
    sent: float
    alone: bool
    hint: str | None  #: address of the worker it was meant for
    parcels: frozenset[str]  #: keys of the large arrays that it waits for
    copied: bool = False  #: it may never land: no worker has it, or one that hangs


@dataclass
class _Record:
    """What happened to one block so far."""

    tries: int = 0
    copies: int = 0
    keys: set[str] = field(default_factory=set)


class Flights:
    """One scan; ``results`` may be called once."""

    def __init__(
        self, slots: Slots, source: Source, probe: Probe, blocks: Sequence[Block], patience: Patience, *, pin: bool
    ) -> None:
        self._slots = slots
        self._client = slots.client
        self._source = source
        self._probe = probe
        self._patience = patience
        self._pin = pin
        self._parcels = Parcels(slots.client)
        self._handle: tuple[bytes, dict[int, Future]] | None = None  # packed once, it is the same for all blocks
        self._name = f"{type(probe).__name__.strip('_').lower()}-{uuid.uuid4().hex[:12]}"
        self._waiting = deque(blocks)
        self._records = {block.index: _Record() for block in blocks}
        self._suspects: deque[Block] = deque()
        self._later: list[tuple[float, Block]] = []
        self._flights: dict[str, _Flight] = {}
        self._landed: SimpleQueue[tuple[str, Any]] = SimpleQueue()
        self._heard = time.monotonic()
        self._slowest_s = 0.0
        self._deadly: set[str] = set()  # questions that killed their workers since a block was done

    def results(self) -> Generator[BlockResult, None, None]:
        """Results as they land. Closing the generator cancels what has not run."""
        try:
            while self._records:
                self._send_more()
                with suppress(Empty):
                    result = self._settle(*self._landed.get(timeout=self._nap()))
                    if result is not None:
                        yield result
                if self._landed.empty():  # else nobody is late but the one who takes our results
                    self._look_after_the_overdue()
        finally:
            self._cancel([flight.future for flight in self._flights.values()])

    # -- sending ------------------------------------------------------------------------------------------------------

    def _send_more(self) -> None:
        now = time.monotonic()
        for due, block in [item for item in self._later if item[0] <= now]:
            self._later.remove((due, block))
            self._waiting.appendleft(block)
        if self._suspects:
            # a block that may kill its worker flies alone, so that no other dies with it and it cannot blame another
            if not self._flights:
                self._send(self._suspects.popleft(), alone=True)
            return
        if self._later:
            return  # while something heals, no more is put at stake: tries that help nobody come to their end
        window = PER_THREAD * max(1, len(self._slots.known()))
        while self._waiting and len(self._flights) < window and self._waiting[0].index < self._oldest() + AHEAD:
            self._send(self._waiting.popleft())

    def _oldest(self) -> int:
        return next(iter(self._records))  # dicts keep their order, and blocks come in increasing order

    def _send(self, block: Block, *, alone: bool = False, anywhere: bool = False) -> None:
        record = self._records.get(block.index)
        if record is None:
            return  # while it waited to be sent again, a copy has answered
        key = f"{self._name}-{block.index}-{uuid.uuid4().hex[:8]}"
        hint = None if alone or anywhere else self._slots.for_block(block.index)
        where = {} if hint is None else {"workers": [hint], "allow_other_workers": True}
        try:
            handle, large = self._handle or self._parcels.pack(self._source.handle())
            self._handle = (handle, large)
            question, more = self._parcels.pack(self._probe.narrow(block))
            large = large | more
            future = self._client.submit(
                run_parcel, handle, question, large, block, self._pin, key=key, pure=False, retries=0, **where
            )
        except UNREACHABLE:
            ask_scheduler(self._client)  # raises, since nobody else was spoken to
            raise
        parcels = frozenset(parcel.key for parcel in large.values())
        self._flights[key] = _Flight(block, future, time.monotonic(), alone, hint, parcels)
        record.keys.add(key)
        self._client.loop.add_callback(_land, self._landed, key, future)

    # -- landing ------------------------------------------------------------------------------------------------------

    def _nap(self) -> float:
        """Seconds until something has to be looked at even when nothing lands."""
        due = min((due for due, _ in self._later), default=float("inf"))
        return max(0.0, min(1.0, due - time.monotonic()))

    def _settle(self, key: str, outcome: Any) -> BlockResult | None:
        """Take what landed; the result, or None when there is none (yet). Raises what cannot be healed."""
        flight = self._flights.pop(key, None)
        if flight is None or flight.block.index not in self._records:
            return None  # a twin was faster
        record = self._records[flight.block.index]
        record.keys.discard(key)
        if isinstance(outcome, BlockResult):
            self._heard = time.monotonic()
            self._slots.absence.worked()
            self._deadly.clear()
            self._slowest_s = max(self._slowest_s, outcome.seconds)
            del self._records[flight.block.index]
            self._cancel_twins(record)
            return outcome
        self._recover(flight, record, outcome)
        return None

    def _recover(self, flight: _Flight, record: _Record, error: BaseException) -> None:
        """Send a failed block again, or raise."""
        block, where = flight.block, place(self._source, flight.block)
        if isinstance(error, CoremarginError):
            raise error
        if isinstance(error, KilledWorker) and not str(error.task).startswith(KEY):
            if flight.alone:
                raise BlockFailed(
                    f"{where}: the worker died each time it ran this block, also when nothing else ran; a chunk that "
                    f"kills its reader is usually truncated: run `coremargin check {self._source.name}`; "
                    f"if that finds nothing, the worker ran out of memory or walltime"
                ) from error
            log.warning("%s: its worker died several times; it is tried again alone", where)
            self._cancel_twins(record)
            self._suspects.append(block)
        elif isinstance(error, (KilledWorker, CancelledError, *UNREACHABLE)):
            if "scheduler" in str(getattr(error, "reason", "")):
                raise scheduler_lost(error) from error
            ask_scheduler(self._client)  # which is the one thing that cannot be replaced
            self._forget_parcels(flight)
            if isinstance(error, KilledWorker):
                self._deadly.add(str(error.task))
            # else a twin still flies, on which one can rely
            if len(self._deadly) >= self._patience.tries or all(self._flights[key].copied for key in record.keys):
                self._cancel_twins(record)
                self._try_later(block, record, where, error)
        else:
            raise error

    def _try_later(self, block: Block, record: _Record, where: str, error: BaseException) -> None:
        record.tries += 1
        if (tries := max(record.tries, len(self._deadly))) >= self._patience.tries:
            raise BlockFailed(f"{where}: failed {tries} times, the last time with: {brief(error)}") from error
        pause = self._patience.pause_s * 2 ** (record.tries - 1)
        log.warning("%s: %s; tried again in %.1f s", where, brief(error), pause)
        self._later.append((time.monotonic() + pause, block))

    def _forget_parcels(self, flight: _Flight) -> None:
        self._parcels.forget(flight.parcels)
        self._handle = None

    # -- what does not land -------------------------------------------------------------------------------------------

    def _look_after_the_overdue(self) -> None:
        now = time.monotonic()
        if not self._flights:
            self._heard = now
            return
        quiet = now - self._heard > _QUIET_S
        there = set(self._slots.known(_QUIET_S if quiet else EVERY_S))
        if gone := [flight for flight in self._flights.values() if quiet and flight.hint and flight.hint not in there]:
            # without a hint they cannot be sent again for this: Dask itself counts from here on how many workers die
            self._send_copies(gone, "its worker is gone", anywhere=True)
        if self._slots.nobody():
            self._heard = now  # where nobody is, nobody is late
            for flight in self._flights.values():
                flight.sent = now
            return
        patience = max(self._patience.overdue_s, 20 * self._slowest_s)
        if overdue := [flight for flight in self._flights.values() if now - flight.sent > patience]:
            for flight in overdue:
                flight.sent = now
                self._slots.distrust(flight.hint)
                self._forget_parcels(flight)  # it may wait for the question, from a worker that hangs
            few = [flight for flight in overdue if self._records[flight.block.index].copies < 2 and not flight.alone]
            self._send_copies(few, f"no answer for {patience:.0f} s")
        if now - self._heard > max(self._patience.give_up_s, 2 * patience):
            raise RunError(
                f"no answer from any worker for {now - self._heard:.0f} s; {len(there)} workers are known; see whether "
                f"the cluster runs, then run again"
            )

    def _send_copies(self, flights: Sequence[_Flight], why: str, *, anywhere: bool = False) -> None:
        for number, flight in enumerate(flights):
            if not number:
                more = f", and {len(flights) - 1} more blocks" if len(flights) > 1 else ""
                log.warning("%s%s: %s; sent to another worker", place(self._source, flight.block), more, why)
            flight.hint, flight.copied = None, True
            self._records[flight.block.index].copies += 1
            self._send(flight.block, anywhere=anywhere)

    def _cancel_twins(self, record: _Record) -> None:
        self._cancel([self._flights.pop(key).future for key in record.keys])
        record.keys.clear()

    def _cancel(self, futures: Sequence[Future]) -> None:
        if futures and self._client.status == "running":
            with suppress(CancelledError, *UNREACHABLE):
                self._client.cancel(list(futures), force=True)


async def _land(landed: SimpleQueue[tuple[str, Any]], key: str, future: Future) -> None:
    """Fetch what a task returned or raised; runs in the client's event loop, so that it overlaps with the driver."""
    try:
        outcome: Any = await future
    except BaseException as error:  # noqa: BLE001 -- whatever it is, the driver must hear of it
        outcome = error
    landed.put((key, outcome))
