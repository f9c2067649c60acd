"""The embedded cluster: worker processes of this machine, on 127.0.0.1, gone when the driver is.

``LocalCluster`` needs five corrections, each measured: memory limits that count mapped files, malloc settings that cost
reads half their speed, BLAS threads that fight, a driver whose environment is changed, and workers that import the
driver's whole ``__main__`` again.
"""

from __future__ import annotations

import logging
import os
import signal
import threading
from contextlib import ExitStack, contextmanager
from multiprocessing import resource_tracker, spawn
from typing import TYPE_CHECKING, Any, ClassVar

import dask
from distributed import Client, LocalCluster, Nanny

from coremargin.scan.dask_executor import DaskExecutor
from coremargin.scan.scripts import ENVIRONMENT

if TYPE_CHECKING:
    from collections.abc import Iterator

    from coremargin.scan.flights import Patience

_WORKER_PROCESS = "Dask Worker process (from Nanny)"


def settings(worker_ttl_s: float) -> dict[str, Any]:
    """Dask's configuration for a cluster of scan workers."""
    return {
        "distributed.scheduler.worker-ttl": f"{worker_ttl_s} s",  # a stopped worker is started again after this
        "distributed.scheduler.allowed-failures": 2,  # then the block flies alone, see flights.py
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
    """A nanny that gives the driver its environment back after each start of a worker process, deaf to Ctrl-C.

    A terminal sends Ctrl-C to all processes at once. The driver decides what it means; workers would only die noisily.
    """

    environment: ClassVar[dict[str, str | None]] = {}
    _starting: ClassVar[int] = 0

    async def instantiate(self) -> Any:
        """Start the worker process."""
        # this is the thread of the event loop: what it has blocked, the process that it starts has blocked
        resource_tracker.ensure_running()  # first: starting it would unblock the signal
        signal.pthread_sigmask(signal.SIG_BLOCK, {signal.SIGINT})
        # nannies share one event loop: the last one that is starting tidies up
        TidyNanny._starting += 1
        try:
            return await super().instantiate()
        finally:
            TidyNanny._starting -= 1
            if not TidyNanny._starting:
                _restore(TidyNanny.environment)


def start_embedded(
    *,
    workers: int,
    threads: int,
    processes: bool = True,
    dashboard: bool = False,
    worker_ttl_s: float = 60.0,
    patience: Patience | None = None,
) -> DaskExecutor:
    """An executor on ``workers`` processes of ``threads`` threads each; without ``processes``, threads of this one."""
    with ExitStack() as stack:
        stack.enter_context(_tidy_environment())
        stack.enter_context(_workers_without_main())
        with dask.config.set(settings(worker_ttl_s)), _uninterrupted():
            cluster = LocalCluster(
                n_workers=workers,
                threads_per_worker=threads,
                processes=processes,
                worker_class=TidyNanny if processes else None,
                memory_limit=0,
                host="127.0.0.1" if processes else None,
                dashboard_address="127.0.0.1:0",  # without an address port 8787 is taken, beyond this machine
                scheduler_kwargs={"dashboard": dashboard},
                worker_dashboard_address=None if processes else "127.0.0.1:0",  # a worker in this process: the same
                silence_logs=logging.CRITICAL,  # what matters reaches the driver as an error or as a log line of ours
            )
            stack.callback(cluster.close)
            client = Client(cluster, set_as_default=False)
            stack.callback(client.close)
        shape = f"{workers} worker{'s' if workers > 1 else ''} x {threads} thread{'s' if threads > 1 else ''}"
        link = f", dashboard http://127.0.0.1:{cluster.scheduler.http_server.port}/status" if dashboard else ""
        return DaskExecutor(
            client,
            description=f"embedded Dask, {shape}{'' if processes else ' in this process'}{link}",
            patience=patience,
            in_driver=not processes,
            on_close=stack.pop_all().close,
        )


@contextmanager
def _uninterrupted() -> Iterator[None]:
    """The first Ctrl-C or SIGTERM waits until this is over: a half-built cluster cannot be taken down quietly."""
    if threading.current_thread() is not threading.main_thread():
        yield
        return
    waiting: list[int] = []

    def note(number: int, _: object) -> None:
        if waiting:
            raise KeyboardInterrupt
        waiting.append(number)

    before = {number: signal.signal(number, note) for number in (signal.SIGINT, signal.SIGTERM)}
    try:
        yield
    finally:
        for number, handler in before.items():
            signal.signal(number, signal.SIG_DFL if handler is None else handler)
    if waiting:
        signal.raise_signal(waiting[0])


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
