"""The memory of a scan: driver and workers together."""

from __future__ import annotations

import os
import time
from typing import TYPE_CHECKING

from coremargin.engine.task import high_water_bytes, worker_name

if TYPE_CHECKING:
    from coremargin.engine.protocols import BlockResult

#: Reading a process's memory takes some 0.1 ms; high-water marks need not be read more often than this.
_EVERY_S = 0.05


class MemoryMeter:
    """The sum of the largest resident memory of the driver and of each live worker.

    For local processes the system's high-water marks are read, so no peak is missed; workers on other hosts report
    their resident memory after each block. The sum of the peaks is never less than the peak of the sum.
    """

    def __init__(self) -> None:
        self._workers: dict[str, int] = {}
        self._peak = 0
        self._measured = 0.0

    def note(self, result: BlockResult) -> None:
        """Record the memory that a block reported."""
        self._workers[result.worker] = max(result.rss_bytes, self._workers.get(result.worker, 0))
        if time.monotonic() - self._measured > _EVERY_S:
            self.peak_bytes()

    @property
    def local(self) -> bool:
        """Whether some workers have reported, and all of them run on this machine."""
        host = worker_name().rpartition(":")[0]
        return bool(self._workers) and all(name.rpartition(":")[0] == host for name in self._workers)

    def peak_bytes(self) -> int:
        """The largest sum so far, in bytes."""
        self._measured = time.monotonic()
        driver = worker_name()
        host = driver.rpartition(":")[0]
        total = high_water_bytes(os.getpid())
        for worker in [name for name in self._workers if name != driver]:
            where, _, pid = worker.rpartition(":")
            if where == host:
                self._workers[worker] = high_water_bytes(int(pid))
            if not self._workers[worker]:
                del self._workers[worker]  # it ended; a restarted worker has another name
                continue
            total += self._workers[worker]
        self._peak = max(self._peak, total)
        return self._peak
