"""A cluster that starts in a thread of its own: the embedded one, and the scheduler of workers on other hosts.

Started directly, it would block forever if files run out or workers never come.
"""

from __future__ import annotations

import os
import signal
import threading
import time
from contextlib import suppress
from functools import partial
from typing import TYPE_CHECKING, Any

from distributed import Client, LocalCluster
from distributed.utils import LoopRunner

from coremargin.engine.cluster_workers import brief
from coremargin.engine.clusters.worker_command import ENVIRONMENT
from coremargin.engine.event_loop_logs import hide_cluster_messages
from coremargin.errors import RunError, raise_if_limit
from coremargin.spec import format_seconds

if TYPE_CHECKING:
    from distributed import Nanny, SpecCluster

#: Requirements in this process, measured, with a reserve: files, and address space of its event loop.
FILES, DRIVER_BYTES = 40, 200 << 20

_CLOSE_S = 30.0  # for all workers to end
_STOP_S = 1.0  # for an event loop to stop
_GRACE_S = 5.0  # for a start that was interrupted: a complete one can be closed in order


def settings(worker_ttl_s: float) -> dict[str, Any]:
    """Dask's configuration for a cluster of scan workers."""
    return {
        "distributed.scheduler.worker-ttl": f"{worker_ttl_s} s",  # a stopped worker is started again after this
        "distributed.scheduler.allowed-failures": 2,  # then the block is sent alone, see cluster_scan.py
        # mapped pages of the store count as memory of the process: with a limit, workers would pause forever
        "distributed.worker.memory.target": False,
        "distributed.worker.memory.spill": False,
        "distributed.worker.memory.pause": False,
        "distributed.worker.memory.terminate": False,
        "distributed.worker.profile.enabled": False,
        "distributed.diagnostics.nvml": False,
        "distributed.nanny.pre-spawn-environ": dict(ENVIRONMENT),
    }


class Start:
    """A cluster that starts in a thread of its own, so that the wait for it can end at any moment."""

    def __init__(self, what: str, instead: str, kind: Any = LocalCluster, **options: Any) -> None:
        """what, instead: the name of the cluster and an alternative, for messages; options: of the class ``kind``."""
        self._what, self._instead, self._kind = what, instead, kind
        self._clusters: list[SpecCluster] = []
        self._nannies: list[Nanny] = []
        self._over = threading.Event()
        self._found: tuple[SpecCluster, Client] | None = None
        self._error: BaseException | None = None
        self._runner = LoopRunner()
        hide_cluster_messages()
        threading.Thread(target=self._run, kwargs=options, name="cluster start", daemon=True).start()

    def _run(self, **options: Any) -> None:
        try:
            self._runner.start()
            if (nanny := options.get("worker_class")) is not None:
                options["worker_class"] = partial(self._nanny, nanny)
            cluster = self._kind.__new__(self._kind)
            self._clusters.append(cluster)  # before it is complete
            cluster.__init__(loop=self._runner.loop, **options)
            try:
                self._found = cluster, Client(cluster, set_as_default=False)
            except BaseException:
                cluster.close(timeout=_CLOSE_S)
                raise
        except BaseException as error:  # noqa: BLE001 - raised where it is waited for
            self._error = error
        finally:
            self._over.set()

    def _nanny(self, kind: type[Nanny], *arguments: Any, **options: Any) -> Nanny:
        self._nannies.append(kind(*arguments, **options))
        return self._nannies[-1]

    def wait(self, timeout_s: float) -> tuple[SpecCluster, Client]:
        """Cluster and client. Raises RunError if they did not start, or not in time; MachineLimit if that was why."""
        try:
            in_time = self._over.wait(timeout_s)
        except BaseException:
            self._give_up(_GRACE_S)
            raise
        if not in_time:
            self._give_up(0.0)
            waited = format_seconds(timeout_s)
            raise RunError(
                f"{self._what} did not start within {waited}; see what slows this machine down, give it more time by "
                f"start_timeout in a cluster file, or {self._instead}"
            )
        if self._found is None:
            self._abandon()
            error = self._error or RuntimeError("no reason given")
            raise_if_limit(error, self._what)
            raise RunError(f"{self._what} did not start ({brief(error)}); {self._instead}") from error
        return self._found

    def _give_up(self, grace_s: float) -> None:
        with suppress(KeyboardInterrupt):  # a second one: do not wait
            if self._over.wait(grace_s):
                self.close()
                return
        self._abandon()

    def close(self) -> None:
        """Close it."""
        if self._found is not None:
            cluster, client = self._found
            try:
                client.close()
                cluster.close(timeout=_CLOSE_S)
            except TimeoutError:
                self._abandon()
        self._runner.stop()

    def _abandon(self) -> None:
        """Kill its processes and leave the rest: an incomplete cluster cannot be closed in order."""
        for cluster in self._clusters:
            cluster.shutdown_on_close = False  # not at the end of this process either
        with suppress(RuntimeError):  # there is no loop, or no longer
            loop = self._runner.loop.asyncio_loop
            loop.call_soon_threadsafe(loop.stop)
            deadline = time.monotonic() + _STOP_S
            while loop.is_running() and time.monotonic() < deadline:
                time.sleep(0.01)
        for nanny in self._nannies:
            if nanny.pid:
                with suppress(ProcessLookupError):
                    os.kill(nanny.pid, signal.SIGKILL)
