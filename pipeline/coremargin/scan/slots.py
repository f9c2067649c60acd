"""The threads of a cluster's workers as a scan sees them: who is there, and who is meant to have which block."""

from __future__ import annotations

import time
from typing import TYPE_CHECKING

from distributed.comm import CommClosedError

from coremargin.errors import RunError

if TYPE_CHECKING:
    from distributed import Client

#: Seconds between looks at the list of workers; late joiners get work after at most this time.
EVERY_S = 5.0


class Slots:
    """Addresses of workers, each once per thread."""

    def __init__(self, client: Client) -> None:
        self._client = client
        self._slots: list[str] = []
        self._seen = float("-inf")
        self._silent: set[str] = set()  # addresses of workers that left a block unanswered

    def known(self, max_age_s: float = EVERY_S) -> list[str]:
        """By name of the worker; looked up every few seconds. Raises RunError when the scheduler is lost."""
        now = time.monotonic()
        if now - self._seen > max_age_s or not self._slots:
            try:
                workers = self._client.scheduler_info(n_workers=-1)["workers"]
            except (OSError, CommClosedError) as error:
                raise scheduler_lost(error) from error
            # by name and not by address: a worker that the nanny starts again has a new address but its old name
            ordered = sorted(workers.items(), key=lambda item: str(item[1]["name"]))
            self._slots = [address for address, worker in ordered for _ in range(worker["nthreads"])]
            self._seen = now
        return self._slots

    def for_block(self, index: int) -> str | None:
        """Who is meant to have a block, the same worker in every scan: its pages are mapped there already.

        None where there is no choice.
        """
        slots = [slot for slot in self.known() if slot not in self._silent]
        return slots[index % len(slots)] if len(set(slots)) > 1 else None

    def distrust(self, address: str) -> None:
        """No block is meant any more for a worker that left one unanswered."""
        self._silent.add(address)


def scheduler_lost(error: BaseException) -> RunError:
    """The error for a scan whose scheduler does not answer."""
    return RunError(f"the Dask scheduler was lost ({brief(error)}); see whether the cluster runs, then run again")


def brief(error: BaseException) -> str:
    """The kind of an error and the first line of its text."""
    return f"{type(error).__name__}: {str(error).partition(chr(10))[0]}"
