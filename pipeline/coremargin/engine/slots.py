"""The threads of a cluster's workers as a scan sees them: who is there, and who is meant to have which block."""

from __future__ import annotations

import time
from typing import TYPE_CHECKING, Any

from distributed.client import ClosedClientError
from distributed.comm import CommClosedError

from coremargin.errors import RunError

if TYPE_CHECKING:
    from collections.abc import Collection

    from distributed import Client

    from coremargin.engine.absence import Absence

#: Seconds between looks at the list of workers; late joiners get work after at most this time.
EVERY_S = 5.0

#: Seconds in which the scheduler has to answer, and how often it is asked: a driver that was stopped for a while hears
#: of the first only that it is late.
_ANSWER_S = 60.0
_TRIES = 2
#: What a client raises when its scheduler cannot be reached.
UNREACHABLE = (OSError, CommClosedError, ClosedClientError)


class Slots:
    """Addresses of workers, each once per thread; ``absence`` is asked what to do while there are none."""

    def __init__(self, client: Client, absence: Absence) -> None:
        self.client = client
        self.absence = absence
        self._slots: list[str] = []
        self._seen = float("-inf")
        self._silent: set[str] = set()  # addresses of workers that left a block unanswered

    def known(self, max_age_s: float = EVERY_S) -> list[str]:
        """By name of the worker; looked up every few seconds, or now. Raises RunError when the scheduler is lost."""
        now = time.monotonic()
        if now - self._seen > max_age_s or not self._slots:
            workers = ask_scheduler(self.client)["workers"]
            # by name and not by address: a worker that the nanny starts again has a new address but its old name
            ordered = sorted(workers.items(), key=lambda item: str(item[1]["name"]))
            self._slots = [address for address, worker in ordered for _ in range(worker["nthreads"])]
            self._seen = now
        return self._slots

    def no_workers(self) -> bool:
        """True while no worker is there. Raises RunError when that is so for too long."""
        if self.known():
            self.absence.over()
            return False
        self.absence.look()
        return True

    def for_block(self, index: int, beside: Collection[str] = ()) -> str | None:
        """Who is meant to have a block, the same worker in every scan: its pages are mapped there already.

        None where there is no choice. ``beside``: who was meant to have it before, and is late.
        """
        slots = self.known()
        if len(set(slots)) < 2:
            return None
        others = [slot for slot in slots if slot not in beside] or slots
        others = [slot for slot in others if slot not in self._silent] or others
        return others[index % len(others)]

    def distrust(self, address: str | None) -> None:
        """No block is meant any more for a worker that left one unanswered, until it answers again."""
        if address is not None:
            self._silent.add(address)

    def trust(self, address: str | None) -> None:
        """A worker answered: where it was late, it was slow and does not hang."""
        self._silent.discard(address or "")


def ask_scheduler(client: Client) -> dict[str, Any]:
    """What the scheduler says of itself and its workers. Raises RunError when it is lost."""
    for left in reversed(range(_TRIES)):
        try:
            # not Client.scheduler_info: that hides an error, and repeats what it was told before
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
    """The kind of an error and the first line of its text."""
    return f"{type(error).__name__}: {str(error).partition(chr(10))[0]}"
