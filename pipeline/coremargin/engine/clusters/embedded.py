"""The embedded cluster: worker processes of this machine, on 127.0.0.1, gone when the driver is.

``LocalCluster`` needs five corrections, each measured: memory limits that count mapped files, malloc settings that cost
reads half their speed, BLAS threads that fight, a driver whose environment is changed, and workers that import the
driver's whole ``__main__`` again.
"""

from __future__ import annotations

import logging
import os
import signal
import sys
import threading
import time
from contextlib import ExitStack, contextmanager, suppress
from multiprocessing import resource_tracker, spawn
from typing import TYPE_CHECKING, Any, ClassVar

import dask
from distributed import Client, LocalCluster, Nanny
from distributed.utils import LoopRunner

from coremargin.engine.clusters.scripts import ENVIRONMENT
from coremargin.engine.dask_executor import DaskExecutor
from coremargin.engine.resources import THREAD_BYTES, need_files, need_limit, need_memory
from coremargin.engine.slots import brief
from coremargin.errors import RunError, raise_if_limit
from coremargin.spec import format_seconds

if TYPE_CHECKING:
    from collections.abc import Iterator

    from coremargin.engine.in_flight import Patience

_CLOSE_S = 30.0  # until they have to be gone
_STOP_S = 1.0  # for an event loop
_PATIENCE_S = 5.0  # for a start that nobody wants any more: one that is complete can be taken down in order

# What a start needs, measured, with some room to spare: files in the driver, and per worker; address space of the
# driver's event loop, of its three threads per worker, of a worker without the threads that scan.
_FILES, _WORKER_FILES = 40, 12
_DRIVER_BYTES, _PER_WORKER_BYTES, _WORKER_BYTES = 200 << 20, 220 << 20, 400 << 20

_WORKER_PROCESS = "Dask Worker process (from Nanny)"
_DEAF = {signal.SIGINT, signal.SIGHUP}  # what a terminal sends to all processes at once


def settings(worker_ttl_s: float) -> dict[str, Any]:
    """Dask's configuration for a cluster of scan workers."""
    return {
        "distributed.scheduler.worker-ttl": f"{worker_ttl_s} s",  # a stopped worker is started again after this
        "distributed.scheduler.allowed-failures": 2,  # then the block flies alone, see in_flight.py
        # mapped pages of the store count as memory of the process: with a limit, workers would pause for ever
        "distributed.worker.memory.target": False,
        "distributed.worker.memory.spill": False,
        "distributed.worker.memory.pause": False,
        "distributed.worker.memory.terminate": False,
        "distributed.worker.profile.enabled": False,
        "distributed.diagnostics.nvml": False,
        "distributed.nanny.pre-spawn-environ": dict(ENVIRONMENT),
    }


class TidyNanny(Nanny):  # type: ignore[misc]
    """A nanny that gives the driver its environment back after each start of a worker process, deaf to the terminal.

    A terminal sends Ctrl-C to all processes at once, and the news of its end. The driver decides what that means;
    workers would only die noisily.
    """

    environment: ClassVar[dict[str, str | None]] = {}
    _starting: ClassVar[int] = 0

    async def instantiate(self) -> Any:
        """Start the worker process."""
        # this is the thread of the event loop: what it has blocked, the processes that it starts have blocked
        signal.pthread_sigmask(signal.SIG_BLOCK, _DEAF)
        _start_tracker()
        signal.pthread_sigmask(signal.SIG_BLOCK, _DEAF)  # once more: starting the tracker unblocks Ctrl-C
        # nannies share one event loop: the last one that is starting tidies up
        TidyNanny._starting += 1
        try:
            return await super().instantiate()
        finally:
            TidyNanny._starting -= 1
            if not TidyNanny._starting:
                _restore(TidyNanny.environment)


def _start_tracker() -> None:
    """The process that removes the semaphores which a driver leaves that ends at once; it need not tell of it."""
    sys.warnoptions.append("ignore:resource_tracker")
    try:
        resource_tracker.ensure_running()
    finally:
        sys.warnoptions.remove("ignore:resource_tracker")


class _Cluster(LocalCluster):  # type: ignore[misc]
    """One that is known to whoever has it made before it is complete."""

    def __init__(self, made: list[_Cluster], **options: Any) -> None:
        made.append(self)
        super().__init__(**options)


class Start:
    """A cluster that starts in a thread of its own: whoever waits for it may stop waiting at any moment."""

    def __init__(self, **options: Any) -> None:
        """options: of ``LocalCluster``."""
        self._clusters: list[_Cluster] = []
        self._nannies: list[TidyNanny] = []
        self._over = threading.Event()
        self._found: tuple[LocalCluster, Client] | None = None
        self._error: BaseException | None = None
        self._runner = LoopRunner()
        threading.Thread(target=self._run, kwargs=options, name="cluster start", daemon=True).start()

    def _run(self, **options: Any) -> None:
        try:
            self._runner.start()
            nanny = self._nanny if options["processes"] else None
            cluster = _Cluster(self._clusters, loop=self._runner.loop, worker_class=nanny, **options)
            try:
                self._found = cluster, Client(cluster, set_as_default=False)
            except BaseException:
                cluster.close(timeout=_CLOSE_S)
                raise
        except BaseException as error:  # noqa: BLE001 - raised where it is waited for
            self._error = error
        finally:
            self._over.set()

    def _nanny(self, *words: Any, **options: Any) -> TidyNanny:
        self._nannies.append(TidyNanny(*words, **options))
        return self._nannies[-1]

    def wait(self, timeout_s: float) -> tuple[LocalCluster, Client]:
        """Cluster and client. Raises RunError: they did not start, or not in time; MachineLimit: that was why."""
        try:
            in_time = self._over.wait(timeout_s)
        except BaseException:
            self._give_up(_PATIENCE_S)
            raise
        if not in_time:
            self._give_up(0.0)
            waited = format_seconds(timeout_s)
            raise RunError(
                f"the embedded cluster is not there after {waited}; see what slows this machine down, give it more "
                f"time by start_timeout in a cluster file, or use --cluster threads"
            )
        if self._found is None:
            self._abandon()
            error = self._error or RuntimeError("no reason given")
            raise_if_limit(error, "the embedded cluster")
            raise RunError(f"the embedded cluster did not start ({brief(error)}); use --cluster threads") from error
        return self._found

    def _give_up(self, patience_s: float) -> None:
        with suppress(KeyboardInterrupt):  # once more: no more patience
            if self._over.wait(patience_s):
                self.close()
                return
        self._abandon()

    def close(self) -> None:
        """Take it down."""
        if self._found is not None:
            cluster, client = self._found
            try:
                client.close()
                cluster.close(timeout=_CLOSE_S)
            except TimeoutError:
                self._abandon()
        self._runner.stop()

    def _abandon(self) -> None:
        """Leave it as it is, but for its processes: half a cluster cannot be taken down in order."""
        for cluster in self._clusters:
            cluster.shutdown_on_close = False  # nor at the end of this process
        with suppress(RuntimeError):  # there is no loop, or no more
            loop = self._runner.loop.asyncio_loop
            loop.call_soon_threadsafe(loop.stop)
            deadline = time.monotonic() + _STOP_S
            while loop.is_running() and time.monotonic() < deadline:
                time.sleep(0.01)
        for nanny in self._nannies:
            if nanny.pid:
                with suppress(ProcessLookupError):
                    os.kill(nanny.pid, signal.SIGKILL)


def start_embedded(
    *,
    workers: int,
    threads: int,
    processes: bool = True,
    dashboard: bool = False,
    worker_ttl_s: float = 60.0,
    patience: Patience | None = None,
    start_timeout_s: float = 120.0,
) -> DaskExecutor:
    """An executor on ``workers`` processes of ``threads`` threads each; without ``processes``, threads of this one.

    Raises MachineLimit when this machine does not allow it, RunError when it is not there in time.
    """
    _need_room(workers, threads, processes=processes)
    with ExitStack() as stack:
        stack.enter_context(_tidy_environment())
        stack.enter_context(_workers_without_main())
        with dask.config.set(settings(worker_ttl_s)):
            start = Start(
                n_workers=workers,
                threads_per_worker=threads,
                processes=processes,
                memory_limit=0,
                host="127.0.0.1" if processes else None,
                dashboard_address="127.0.0.1:0",  # without an address port 8787 is taken, beyond this machine
                scheduler_kwargs={"dashboard": dashboard},
                worker_dashboard_address=None if processes else "127.0.0.1:0",  # a worker in this process: the same
                silence_logs=logging.CRITICAL,  # what matters reaches the driver as an error or as a log line of ours
            )
            cluster, client = start.wait(start_timeout_s)
        stack.callback(start.close)
        shape = f"{workers} worker{'s' if workers > 1 else ''} x {threads} thread{'s' if threads > 1 else ''}"
        link = f", dashboard http://127.0.0.1:{cluster.scheduler.http_server.port}/status" if dashboard else ""
        return DaskExecutor(
            client,
            description=f"embedded Dask, {shape}{'' if processes else ' in this process'}{link}",
            patience=patience,
            in_driver=not processes,
            on_close=stack.pop_all().close,
        )


def _need_room(workers: int, threads: int, *, processes: bool) -> None:
    what, instead = "the embedded cluster", ", or use --cluster threads"
    if processes:
        need_files(_FILES + workers * _WORKER_FILES, what, instead)
        need_limit(_WORKER_BYTES + threads * THREAD_BYTES, f"{what}'s workers")
        need_memory(_DRIVER_BYTES + workers * _PER_WORKER_BYTES, what)
    else:
        need_files(_FILES, what, instead)
        need_memory(_DRIVER_BYTES + threads * THREAD_BYTES, what)


@contextmanager
def _tidy_environment() -> Iterator[None]:
    TidyNanny.environment = {name: os.environ.get(name) for name in ENVIRONMENT}
    # a value that is set already would win over the configuration
    for name in ENVIRONMENT:
        os.environ.pop(name, None)
    before = TidyNanny.environment
    try:
        yield
    finally:
        _restore(before)


def _restore(environment: dict[str, str | None]) -> None:
    for name, value in environment.items():
        if value is None:
            os.environ.pop(name, None)
        else:
            os.environ[name] = value


@contextmanager
def _workers_without_main() -> Iterator[None]:
    """Worker processes do not import the driver's main module while this lasts.

    ``multiprocessing`` imports it in each new process, so that a script without ``if __name__ == "__main__"`` would
    start clusters without end, and each worker would load the whole command line. Workers need neither: what is
    defined in a main module travels by value. Other processes of the driver are left as they are.
    """
    original = spawn.get_preparation_data

    def without_main(name: str) -> dict[str, Any]:
        data: dict[str, Any] = original(name)
        if name == _WORKER_PROCESS:
            data.pop("init_main_from_name", None)
            data.pop("init_main_from_path", None)
        return data

    spawn.get_preparation_data = without_main
    try:
        yield
    finally:
        spawn.get_preparation_data = original
