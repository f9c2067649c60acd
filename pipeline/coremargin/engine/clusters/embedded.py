"""The embedded cluster: worker processes of this machine, on 127.0.0.1, which end with the driver.

``LocalCluster`` needs five corrections, each measured: memory limits that count mapped files, malloc settings that
halve the speed of reads, too many BLAS threads, changes of the driver's environment, and workers that import the
driver's whole ``__main__`` again.
"""

from __future__ import annotations

import logging
import os
import signal
import sys
import time
from contextlib import ExitStack, contextmanager
from multiprocessing import resource_tracker, spawn
from typing import TYPE_CHECKING, Any, ClassVar

import dask
from distributed import Client, Nanny

from coremargin.engine.clusters.local_cluster import DRIVER_BYTES, FILES, Start, settings
from coremargin.engine.clusters.worker_command import ENVIRONMENT
from coremargin.engine.dask_executor import DaskExecutor
from coremargin.engine.resources import THREAD_BYTES, need_files, need_limit, need_memory
from coremargin.errors import MachineLimit, RunError

if TYPE_CHECKING:
    from collections.abc import Iterator

    from coremargin.engine.cluster_scan import RetryPolicy

log = logging.getLogger(__name__)

_WHAT, _INSTEAD = "the embedded cluster", "use --cluster threads"

# Requirements of a worker, measured, with a reserve: files of the driver; address space of the driver's three threads
# for it, and of its own process without the threads that scan.
_WORKER_FILES = 12
_PER_WORKER_BYTES, _WORKER_BYTES = 220 << 20, 400 << 20

_STARTS = 5  # attempts
_WORKER_PROCESS = "Dask Worker process (from Nanny)"
_BLOCKED = {signal.SIGINT, signal.SIGHUP}  # signals that a terminal sends to all processes at once


class TidyNanny(Nanny):  # type: ignore[misc]
    """A nanny that restores the driver's environment after each start of a worker process, and blocks Ctrl-C in it.

    A terminal sends Ctrl-C and SIGHUP to all processes at once. The driver decides what they mean; workers would only
    die with tracebacks.
    """

    environment: ClassVar[dict[str, str | None]] = {}
    starting: ClassVar[int] = 0

    async def instantiate(self) -> Any:
        """Start the worker process."""
        # this is the thread of the event loop: processes that it starts inherit its blocked signals
        signal.pthread_sigmask(signal.SIG_BLOCK, _BLOCKED)
        _start_tracker()
        signal.pthread_sigmask(signal.SIG_BLOCK, _BLOCKED)  # once more: starting the tracker unblocks Ctrl-C
        # nannies share one event loop: the last one that is starting restores the environment
        TidyNanny.starting += 1
        try:
            return await super().instantiate()
        finally:
            TidyNanny.starting -= 1
            if not TidyNanny.starting:
                _restore(TidyNanny.environment)


def _start_tracker() -> None:
    """Start the process that removes semaphores after a driver was killed, without its warnings."""
    sys.warnoptions.append("ignore:resource_tracker")
    try:
        resource_tracker.ensure_running()
    finally:
        sys.warnoptions.remove("ignore:resource_tracker")


def start_embedded(
    *,
    workers: int,
    threads: int,
    processes: bool = True,
    dashboard: bool = False,
    worker_ttl_s: float = 60.0,
    policy: RetryPolicy | None = None,
    start_timeout_s: float = 120.0,
) -> DaskExecutor:
    """An executor on ``workers`` processes of ``threads`` threads each; without ``processes``, threads of this one.

    A start that fails, for instance because a worker is killed early, is tried again. Raises MachineLimit if limits of
    this machine forbid it, RunError if it fails repeatedly, or takes too long.
    """
    _need_room(workers, threads, processes=processes)
    with ExitStack() as stack:
        stack.enter_context(_tidy_environment())
        stack.enter_context(_workers_without_main())
        # read when a worker is lost: on a busy machine, one that was killed needs longer than Dask's 15 s to come back
        stack.enter_context(dask.config.set({"distributed.deploy.lost-worker-timeout": "10 minutes"}))
        with dask.config.set(settings(worker_ttl_s)):
            start, cluster, client = _started(
                start_timeout_s,
                worker_class=TidyNanny if processes else None,
                n_workers=workers,
                threads_per_worker=threads,
                processes=processes,
                memory_limit=0,
                host="127.0.0.1" if processes else None,
                dashboard_address="127.0.0.1:0",  # the default is port 8787, open to other machines
                scheduler_kwargs={"dashboard": dashboard},
                worker_dashboard_address=None if processes else "127.0.0.1:0",  # a worker in this process: the same
                silence_logs=logging.CRITICAL,  # errors that matter are raised, or logged by us
            )
        stack.callback(start.close)
        shape = f"{workers} worker{'s' if workers > 1 else ''} x {threads} thread{'s' if threads > 1 else ''}"
        link = f", dashboard http://127.0.0.1:{cluster.scheduler.http_server.port}/status" if dashboard else ""
        return DaskExecutor(
            client,
            description=f"embedded Dask, {shape}{'' if processes else ' in this process'}{link}",
            policy=policy,
            pin="process" if processes else "driver",
            on_close=stack.pop_all().close,
        )


def _started(timeout_s: float, **options: Any) -> tuple[Start, Any, Client]:
    """A started cluster and its client. Raises MachineLimit, RunError."""
    deadline, attempt = time.monotonic() + timeout_s, 1
    while True:
        TidyNanny.starting = 0  # those of an abandoned start never end
        start = Start(_WHAT, _INSTEAD, **options)
        try:
            return start, *start.wait(timeout_s)
        except MachineLimit:
            raise
        except RunError as error:
            if attempt == _STARTS or time.monotonic() >= deadline:
                raise
            log.info("%s; starting it again", error)
            attempt, timeout_s = attempt + 1, max(0.0, deadline - time.monotonic())


def _need_room(workers: int, threads: int, *, processes: bool) -> None:
    instead = f", or {_INSTEAD}"
    if processes:
        need_files(FILES + workers * _WORKER_FILES, _WHAT, instead)
        need_limit(_WORKER_BYTES + threads * THREAD_BYTES, f"{_WHAT}'s workers")
        need_memory(DRIVER_BYTES + workers * _PER_WORKER_BYTES, _WHAT)
    else:
        need_files(FILES, _WHAT, instead)
        need_memory(DRIVER_BYTES + threads * THREAD_BYTES, _WHAT)


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
