"""The executor for everything larger: blocks run as tasks of a Dask cluster.

Tasks are stateless, and their probes stay with the scheduler, so a worker that dies costs only its blocks in flight.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import closing, nullcontext
from typing import TYPE_CHECKING, Self

from coremargin.blas import one_blas_thread
from coremargin.engine.cluster_scan import ClusterScan, RetryPolicy
from coremargin.engine.cluster_workers import WorkerThreads, WorkerWait
from coremargin.engine.meter import MemoryMeter

if TYPE_CHECKING:
    from distributed import Client

    from coremargin.data.source import Source
    from coremargin.engine.probe_transport import BlasPin
    from coremargin.engine.protocols import Block, BlockResult, Probe


class DaskExecutor:
    """Runs blocks on the workers of ``client``. ``close`` calls ``on_close`` and does not close the client itself.

    pin: where BLAS is kept on one thread, "driver" for workers that are threads of this process
    (``LocalCluster(processes=False)``); wait: what happens while no worker is there.
    """

    def __init__(
        self,
        client: Client,
        *,
        description: str = "",
        policy: RetryPolicy | None = None,
        pin: BlasPin = "process",
        wait: WorkerWait | None = None,
        on_close: Callable[[], None] | None = None,
    ) -> None:
        self.client = client
        self._description = description
        self._policy = policy or RetryPolicy()
        self._wait = wait or WorkerWait()
        self._pin = pin
        self._on_close = on_close
        self._meter = MemoryMeter()

    @property
    def local(self) -> bool:
        """Whether all workers, as far as they have answered, run on this machine."""
        return self._meter.local

    @property
    def workers(self) -> int:
        """Tasks that run at the same time: the threads of all workers."""
        return max(1, len(self._threads()))

    @property
    def most_calls(self) -> int:
        """One per worker thread: each task costs milliseconds, and none waits for another."""
        return self.workers

    @property
    def description(self) -> str:
        """One line for people: workers, threads, dashboard link if any."""
        if self._description:
            return self._description
        threads = self._threads()
        return f"Dask, {len(set(threads))} workers, {len(threads)} threads"

    def _threads(self) -> list[str]:
        return WorkerThreads(self.client, self._wait).addresses()

    def run(self, source: Source, probe: Probe, blocks: Sequence[Block]) -> Iterator[BlockResult]:
        """Results as they complete; see ``Executor.run``."""
        pinned = one_blas_thread() if self._pin == "driver" else nullcontext()
        workers = WorkerThreads(self.client, self._wait)
        scan = ClusterScan(workers, source, probe, blocks, self._policy, pin=self._pin)
        with pinned, closing(scan.results()) as results:
            for result in results:
                self._meter.note(result)
                yield result

    def peak_rss_bytes(self) -> int:
        """Largest sum of resident memory so far, driver and workers together."""
        return self._meter.peak_bytes()

    def close(self) -> None:
        """Stop what was started for this executor; may be called twice."""
        on_close, self._on_close = self._on_close, None
        if on_close is not None:
            on_close()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()
