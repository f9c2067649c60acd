"""Workers of a Dask scheduler as processes of their own, without a nanny: they can be killed at any moment, and nobody
starts them again but the test.
"""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import threading
import time
from pathlib import Path
from typing import TYPE_CHECKING, Self

import dask
from distributed import Client, LocalCluster
from distributed.diagnostics.plugin import WorkerPlugin

from cluster_kit import worker_environment
from coremargin.engine.cluster_scan import RetryPolicy
from coremargin.engine.clusters.local_cluster import settings
from coremargin.engine.dask_executor import DaskExecutor
from coremargin.engine.probe_transport import ARRAY_KEY

if TYPE_CHECKING:
    from collections.abc import Callable
    from typing import Any

    from distributed import Worker


class Crew:
    """A scheduler in this process, its executor, and workers of one thread; all gone when the context is left."""

    def __init__(self, workers: int = 2, *, policy: RetryPolicy | None = None) -> None:
        with dask.config.set(settings(60.0)):
            self._cluster = LocalCluster(
                n_workers=0, host="127.0.0.1", dashboard_address="127.0.0.1:0", silence_logs=50,
                scheduler_kwargs={"dashboard": False},
            )  # fmt: skip
        self.client = Client(self._cluster, set_as_default=False)
        self.executor = DaskExecutor(self.client, policy=policy or RetryPolicy(pause_s=0.05))
        self.workers: list[subprocess.Popen[bytes]] = []
        self._later: list[threading.Thread] = []
        self._over = threading.Event()
        self.hire(workers)
        self.client.wait_for_workers(workers, timeout=60)

    def hire(self, workers: int = 1) -> None:
        """More workers; they are there a second or two later."""
        words = [sys.executable, "-m", "distributed.cli.dask_worker", self._cluster.scheduler_address, "--no-nanny"]
        words += ["--nthreads", "1", "--memory-limit", "0", "--no-dashboard", "--death-timeout", "20"]
        for _ in range(workers):
            quiet = {"stdout": subprocess.DEVNULL, "stderr": subprocess.DEVNULL}
            self.workers.append(subprocess.Popen(words, env=os.environ | worker_environment(), **quiet))

    def hire_when(self, true: Callable[[], bool], workers: int, pause_s: float = 2.0) -> None:
        """More workers, a while after something is true: long enough for everybody to see that nobody is there."""

        def watch() -> None:
            while not true() and not self._over.wait(0.05):
                pass
            if not self._over.wait(pause_s):
                self.hire(workers)

        self._later.append(threading.Thread(target=watch))
        self._later[-1].start()

    def kill(self, *, most: int = 1_000) -> int:
        """SIGKILL to so many that live, the oldest first; how many there were."""
        alive = [worker for worker in self.workers if worker.poll() is None][:most]
        for worker in alive:
            worker.send_signal(signal.SIGKILL)
            worker.wait()
        return len(alive)

    def deaths(self) -> int:
        """How many have ended."""
        return sum(worker.poll() is not None for worker in self.workers)

    def known(self) -> int:
        """Workers that the scheduler knows."""
        return len(self.client.scheduler_info(n_workers=-1)["workers"])

    def wait_until_noticed(self, gone: int, within_s: float = 60.0) -> None:
        """Until the scheduler knows that so many of those that were hired are gone."""
        left, deadline = len(self.workers) - gone, time.monotonic() + within_s
        while self.known() > left:
            assert time.monotonic() < deadline
            time.sleep(0.01)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self._over.set()
        for thread in self._later:
            thread.join()
        self.client.close()
        self._cluster.close()
        self.kill()


class DeadlyQuestion(WorkerPlugin):  # type: ignore[misc]
    """The worker dies by SIGKILL as a question beside the tasks reaches a state, ``deaths`` workers in all.

    state: "executing" where it is taken from the scheduler, "flight" where from another worker, "memory" for both.
    """

    name = "deadly-question"

    def __init__(self, state: str, folder: Path, deaths: int = 1) -> None:
        self.state, self.folder, self.deaths = state, folder, deaths

    def setup(self, worker: Worker) -> None:
        """Nothing to prepare."""

    def transition(self, key: Any, start: str, finish: str, **_: Any) -> None:
        """Called by the worker's state machine for each task."""
        asked = str(key).startswith(ARRAY_KEY) and finish == self.state
        if asked and len(list(self.folder.iterdir())) < self.deaths:
            (self.folder / f"{os.getpid()}").touch()
            os.kill(os.getpid(), signal.SIGKILL)
