"""The workers of a Dask cluster: which exist, which block goes to which, and what happens when none is left.

A worker process that dies is started again by its nanny, a pod by its operator. The jobs of a batch system end with
their walltime or are cancelled, and an ssh connection breaks: then the launcher starts the same workers again.
"""

from __future__ import annotations

import logging
import math
import time
from collections.abc import Callable, Collection, Sequence
from typing import TYPE_CHECKING, Any

from distributed.client import ClosedClientError
from distributed.comm import CommClosedError

from coremargin.errors import RunError
from coremargin.spec import format_seconds

if TYPE_CHECKING:
    from distributed import Client

log = logging.getLogger(__name__)

#: Seconds between looks at the list of workers; late joiners get work after at most this time.
REFRESH_S = 5.0
#: How long to wait for new workers if no cluster file says so.
WAIT_S = 300.0
#: Seconds without any worker before the launcher starts new ones: a nanny is quicker than a queue.
RESTART_AFTER_S = 15.0
#: Restarts without a finished block in between, after which the workers count as defective.
_RESTARTS = 3
#: Seconds in which the scheduler has to answer, and how often it is asked: the first answer may be late only because
#: the driver was stopped for a while.
_ANSWER_S = 60.0
_TRIES = 2
#: What a client raises if it cannot reach its scheduler.
UNREACHABLE = (OSError, CommClosedError, ClosedClientError)

#: Starts new workers and returns what it did, as text; RunError if it was refused.
Restart = Callable[[], str]


class WorkerWait:
    """Waits for workers while none is there, starts new ones if possible, and gives up after a while.

    wait_s: how long to wait, counted from the first restart; restart: None if others start the workers; delay_s: how
    long to wait before a restart, and between two attempts.
    """

    def __init__(
        self, wait_s: float = WAIT_S, restart: Restart | None = None, *, delay_s: float = RESTART_AFTER_S
    ) -> None:
        self._wait_s, self._delay_s = wait_s, delay_s
        self._restart = restart
        self._waiting = False
        self._restart_at = self._until = 0.0
        self._refused: RunError | None = None
        self._restarts = 0  # since a block was done

    def worker_seen(self) -> None:
        """A worker is there."""
        self._waiting = False

    def block_done(self) -> None:
        """A worker finished a block."""
        self._restarts = 0

    def check(self) -> None:
        """Call repeatedly while no worker is there. Raises RunError after too long."""
        now = time.monotonic()
        if not self._waiting:
            log.warning("no worker is left; waiting for new ones")
            self._waiting, self._refused = True, None
            self._restart_at = math.inf if self._restart is None else now + self._delay_s
            # even a short wait allows one restart
            self._until = self._wait_s + (now if self._restart is None else self._restart_at)
        if self._restart is not None and now >= self._restart_at:
            self._start_workers(self._restart, now)
        elif now > self._until:
            raise self._refused or RunError(
                f"no worker is left, and none came within {format_seconds(self._wait_s)}; see whether the cluster runs "
                f"and the queue moves, and what the output of the jobs says, then run again"
            )

    def _start_workers(self, restart: Restart, now: float) -> None:
        if self._restarts == _RESTARTS:
            raise RunError(
                f"workers were started again {_RESTARTS} times, and each time left before they had done one block; see "
                f"the output of the jobs, and whether their walltime is enough for a block"
            )
        try:
            log.warning("no worker is left: %s", restart())
        except RunError as error:
            log.warning("no worker is left, and new ones cannot be started: %s", error)
            self._refused, self._restart_at = error, now + self._delay_s
        else:
            self._refused, self._restart_at, self._until = None, math.inf, now + self._wait_s
            self._restarts += 1


class WorkerThreads:
    """The addresses of workers, each once per thread; ``wait`` decides what to do while there are none."""

    def __init__(self, client: Client, wait: WorkerWait) -> None:
        self.client = client
        self.wait = wait
        self._threads: list[str] = []
        self._refreshed = float("-inf")
        self._unresponsive: set[str] = set()  # addresses of workers that left a block unanswered

    def addresses(self, max_age_s: float = REFRESH_S) -> list[str]:
        """In order of the workers' names; refreshed every few seconds. Raises RunError if the scheduler is lost."""
        now = time.monotonic()
        if now - self._refreshed > max_age_s or not self._threads:
            workers = ask_scheduler(self.client)["workers"]
            # by name and not by address: a worker that the nanny starts again has a new address but its old name
            ordered = sorted(workers.items(), key=lambda item: str(item[1]["name"]))
            self._threads = [address for address, worker in ordered for _ in range(worker["nthreads"])]
            self._refreshed = now
        return self._threads

    def none_left(self) -> bool:
        """True while no worker is there. Raises RunError after too long."""
        if self.addresses():
            self.wait.worker_seen()
            return False
        self.wait.check()
        return True

    def for_blocks(self, indices: Sequence[int], avoid: Collection[str] = ()) -> list[str] | None:
        """The worker that should have each block: the same in every scan, as it has the block's pages mapped already.

        None if there is no choice. avoid: workers that already have the blocks and are late.
        """
        threads = self.addresses()
        if len(set(threads)) < 2:
            return None
        others = [address for address in threads if address not in avoid] or threads
        others = [address for address in others if address not in self._unresponsive] or others
        return [others[index % len(others)] for index in indices]

    def mark_unresponsive(self, address: str | None) -> None:
        """Send no block to a worker that left one unanswered, until it answers again."""
        if address is not None:
            self._unresponsive.add(address)

    def mark_responsive(self, address: str | None) -> None:
        """A worker answered: if it was late, it was slow and does not hang."""
        self._unresponsive.discard(address or "")


def ask_scheduler(client: Client) -> dict[str, Any]:
    """The scheduler's description of itself and its workers. Raises RunError if it is lost."""
    for left in reversed(range(_TRIES)):
        try:
            # not Client.scheduler_info: that hides errors, and returns the previous answer
            return client.sync(_identity, client, callback_timeout=_ANSWER_S)  # type: ignore[no-any-return]
        except TimeoutError as error:
            if not left:
                raise scheduler_lost(error) from error
        except UNREACHABLE as error:
            raise scheduler_lost(error) from error
    raise AssertionError("unreachable")


async def _identity(client: Client) -> dict[str, Any]:
    if client.scheduler is None:
        raise ClosedClientError(f"the client is {client.status}")
    return await client.scheduler.identity()  # type: ignore[no-any-return]


def scheduler_lost(error: BaseException) -> RunError:
    """The error for a scan whose scheduler does not answer."""
    return RunError(f"the Dask scheduler was lost ({brief(error)}); see whether the cluster runs, then run again")


def brief(error: BaseException) -> str:
    """The type of an error and the first line of its text."""
    return f"{type(error).__name__}: {str(error).partition(chr(10))[0]}"
