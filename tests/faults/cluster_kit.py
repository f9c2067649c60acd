"""What tests of real clusters share: processes that end with the test, a job whose questions do not fit into its tasks,
and harm that is done to it at moments drawn by lot.
"""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING

from coremargin import spec as specs
from coremargin.engine.executors import InProcess
from coremargin.engine.probe_transport import LARGE_BYTES
from coremargin.learn.train import Progress, train_job
from coremargin.problems.registry import new_job
from train_kit import exact, small_store

if TYPE_CHECKING:
    import numpy as np

    from coremargin.data.store import Store
    from coremargin.engine.clusters.specs import ClusterSpec
    from coremargin.engine.protocols import BlockResult, Executor
    from coremargin.problems.job import TrainJob

FEATURES = 9000  #: so many that a hypothesis does not travel inside each task
CHUNKS, SCANS = 8, 25
BLOCKS = CHUNKS * SCANS  #: of the whole job


def worker_environment() -> dict[str, str]:
    """In which a worker finds coremargin and what lies beside the tests."""
    return {"PYTHONPATH": os.pathsep.join(path for path in sys.path if path)}


def wide_store(path: Path) -> Store:
    """Rows of many features."""
    store = small_store(path, rows=600, features=FEATURES, chunks=CHUNKS)
    assert store.features * 8 > LARGE_BYTES
    return store


def wide_job(store: Store, out: Path) -> TrainJob:
    """Many scans of few blocks, each with a hypothesis of its own."""
    return new_job(store=store.path, out=out, strategy="paper", max_scans=SCANS)


def trained(
    store: Store, out: Path, executor: Executor, on_block: Callable[[BlockResult], None] | None = None
) -> dict[str, bytes]:
    """What has to be equal of the model."""
    progress = Progress() if on_block is None else Progress(on_block=on_block)
    outcome = train_job(wide_job(store, out), store, executor, progress=progress)
    assert outcome.run["scans"] == SCANS
    return exact(out)


def trained_alone(store: Store, out: Path) -> dict[str, bytes]:
    """The same of a run to which nothing happens, in this process."""
    return trained(store, out, InProcess(1))


@contextmanager
def command(folder: Path, store: Store, spec: ClusterSpec, hold: str = "-") -> Iterator[subprocess.Popen[str]]:
    """The command line on this cluster, in a session of its own, with a checkpoint at every block; it does not outlive
    the test.
    """
    (folder / "cluster.toml").write_text(specs.dump(spec))
    words = [sys.executable, str(Path(__file__).with_name("train_kit.py")), "0", "0", hold, "train", str(store.path)]
    words += ["--strategy", "paper", "--max-scans", str(SCANS), "--out", str(folder / "m")]
    words += ["--cluster", str(folder / "cluster.toml")]
    environment, pipe = os.environ | worker_environment(), subprocess.PIPE
    with subprocess.Popen(
        words, env=environment, stdout=pipe, stderr=pipe, text=True, start_new_session=True
    ) as run:  # fmt: skip
        try:
            yield run
        finally:
            if run.poll() is None:
                os.killpg(run.pid, signal.SIGKILL)


def ends_and_is_resumed(
    folder: Path,
    store: Store,
    spec: ClusterSpec,
    number: signal.Signals,
    before: Callable[[], object],
    after: Callable[[], object],
) -> dict[str, bytes]:
    """The model of a command that a signal ended in the middle of a scan, resumed in this process.

    The command ends with exit code 130 and says how to go on. before: called while it runs, right before the signal;
    after: once it has ended.
    """
    held = folder / "held"
    with command(folder, store, spec, f"{BLOCKS // 2}:{held}") as run:
        wait_until(held.exists, run)
        before()
        os.killpg(run.pid, number)
        _, errors = run.communicate(timeout=60)
    assert run.returncode == 130, errors
    assert "continue with the same command and --resume" in errors
    assert "Traceback" not in errors
    after()
    outcome = train_job(wide_job(store, folder / "m"), store, InProcess(1), begin="resume")
    assert outcome.run["resumed"] == 1
    return exact(folder / "m")


def wait_until(true: Callable[[], object], run: subprocess.Popen[str], within_s: float = 60.0) -> None:
    """Until something is true; the command must run as long."""
    deadline = time.monotonic() + within_s
    while not true():
        assert run.poll() is None, run.communicate()
        assert time.monotonic() < deadline
        time.sleep(0.05)


class Moments:
    """Strikes ``number`` times while a job runs: at blocks drawn by lot, and a while drawn by lot after each.

    Blocks are counted and no clock is asked, so that every strike lands on any machine. A strike that finds nobody to
    hit says so by False, and is done again after one of the next blocks: somebody must have done that.
    """

    def __init__(self, rng: np.random.Generator, number: int, strike: Callable[[], bool]) -> None:
        drawn = rng.choice(BLOCKS * 3 // 4, number, replace=False) + 1
        self._delays = dict(zip(drawn.tolist(), rng.uniform(0.0, 0.3, number).tolist(), strict=True))
        self._strike = strike
        self._due: list[float] = []
        self._done = 0
        self._timer: threading.Timer | None = None
        self._failed: list[BaseException] = []
        self.landed = 0

    def __call__(self, _: BlockResult) -> None:
        """A block is done."""
        self._done += 1
        if self._done in self._delays:
            self._due.append(self._delays[self._done])
        if self._timer is not None and (self._due or self._done == BLOCKS or not self._timer.is_alive()):
            self._timer.join()  # strikes wait for nobody
            self._timer = None
        if self._failed:
            raise self._failed[0]
        if self._due:
            self._timer = threading.Timer(self._due.pop(0), self._land)
            self._timer.start()

    def _land(self) -> None:
        try:
            if self._strike():
                self.landed += 1
            else:
                self._due.append(0.0)
        except BaseException as error:  # noqa: BLE001 -- raised where the job is
            self._failed.append(error)
