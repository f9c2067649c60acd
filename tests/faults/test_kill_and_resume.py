"""Jobs that are killed or interrupted at any moment, and what ``--resume`` makes of what they left."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from pathlib import Path
from typing import TYPE_CHECKING

import psutil
import pytest

import coremargin
from coremargin.learn.job import TrainJob
from coremargin.learn.train import train_job
from coremargin.scan.executors import InProcess
from train_kit import exact, small_job, small_store, store_of_classes

if TYPE_CHECKING:
    import numpy as np

    from coremargin.data.store import Store

pytestmark = pytest.mark.faults

HERE = Path(__file__).parent
ENVIRONMENT = {**os.environ, "PYTHONPATH": str(Path(coremargin.__path__[0]).parent), "OPENBLAS_NUM_THREADS": "1"}
EVERY_S = "0.2"


@pytest.mark.parametrize(
    ("every_s", "first", "stride", "least"),
    [
        ("0", 1, 83, 400),
        ("1000", 9, 90, 150),
        pytest.param("0", 1, 3, 400, marks=[pytest.mark.slow, pytest.mark.timeout(1200)]),
        pytest.param("1000", 1, 7, 150, marks=[pytest.mark.slow, pytest.mark.timeout(1200)]),
    ],
)
def test_killed_at_every_step(tmp_path: Path, every_s: str, first: int, stride: int, least: int) -> None:
    """Killed twice before any read, block, round or step on disk and resumed, a job ends with the same bits, and with
    a checkpoint at every block it does no block twice.
    """
    command = [sys.executable, str(HERE / "kill_train.py"), str(tmp_path), every_s, str(first), str(stride), "hard"]
    done = subprocess.run(command, env=ENVIRONMENT, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    steps, repeated = map(int, done.stdout.split())
    assert steps >= least
    if every_s == "0":
        assert repeated == 0


@pytest.mark.parametrize(
    ("first", "stride"),
    [(40, 211), pytest.param(1, 13, marks=[pytest.mark.slow, pytest.mark.timeout(2400)])],
)
def test_passes_in_segments_killed_at_every_step(tmp_path: Path, first: int, stride: int) -> None:
    """Killed twice before any read, block, round or step on disk, a job in segments ends with the same bits."""
    command = [sys.executable, str(HERE / "kill_train.py"), str(tmp_path), "0", str(first), str(stride), "swept"]
    done = subprocess.run(command, env=ENVIRONMENT, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    steps, repeated = map(int, done.stdout.split())
    assert steps >= 400
    assert repeated == 0


@pytest.fixture(scope="module")
def store(tmp_path_factory: pytest.TempPathFactory) -> Store:
    """A store that the paper's strategy scans some twenty times."""
    return small_store(tmp_path_factory.mktemp("killed") / "rows.zarr", rows=4_000, features=4, chunks=8)


@pytest.fixture(scope="module")
def unbroken(store: Store) -> dict[str, bytes]:
    """The model of a run that nothing happened to, in this process."""
    out = store.path.with_name("unbroken")
    train_job(TrainJob(store=store.path, out=out, strategy="paper"), store, InProcess(1))
    return exact(out)


class Run:
    """The command line in a session of its own, and its processes; without classes with the paper's strategy."""

    def __init__(self, store: Store, out: Path, *options: str, cluster: Path | str) -> None:
        command = [
            sys.executable,
            str(HERE / "train_kit.py"),
            EVERY_S,
            "-",
            "train",
            str(store.path),
            "--out",
            str(out),
        ]
        command += ["--cluster", str(cluster), *options]
        command += [] if "--classes" in options else ["--strategy", "paper"]
        self.popen = subprocess.Popen(
            command, env=ENVIRONMENT, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, start_new_session=True
        )

    def processes(self) -> list[psutil.Process]:
        """What the driver started, and what those started."""
        return psutil.Process(self.popen.pid).children(recursive=True)

    def end(self) -> tuple[int, str]:
        """Exit code and stderr."""
        _, errors = self.popen.communicate(timeout=120)
        return self.popen.returncode, errors


def gone(processes: list[psutil.Process], within_s: float = 15.0) -> bool:
    """Whether all of them end in time."""
    return not psutil.wait_procs(processes, timeout=within_s)[1]


def wait_for(path: Path, run: Run) -> None:
    """Until there is a checkpoint."""
    deadline = time.monotonic() + 60
    while not path.exists():
        assert run.popen.poll() is None, run.end()
        assert time.monotonic() < deadline
        time.sleep(0.01)


@pytest.fixture
def cluster(tmp_path: Path) -> Path:
    """Two worker processes."""
    path = tmp_path / "two.toml"
    path.write_text('kind = "embedded"\nworkers = 2\nthreads = 1\n')
    return path


@pytest.mark.parametrize(
    ("kind", "least", "first", "stride"),
    [
        ("2", 400, 150, 397),
        ("kesler", 400, 50, 397),
        ("hinge", 1000, 50, 997),
        pytest.param("2", 400, 1, 13, marks=[pytest.mark.slow, pytest.mark.timeout(2400)]),
        pytest.param("kesler", 400, 1, 11, marks=[pytest.mark.slow, pytest.mark.timeout(2400)]),
        pytest.param("hinge", 1000, 1, 29, marks=[pytest.mark.slow, pytest.mark.timeout(2400)]),
    ],
)
def test_other_jobs_killed_at_every_step(tmp_path: Path, kind: str, least: int, first: int, stride: int) -> None:
    """Killed twice before any read, block, round or step on disk, a fleet of three and models of several classes, hard
    and soft, end with the same bits.
    """
    command = [sys.executable, str(HERE / "kill_train.py"), str(tmp_path), "0", str(first), str(stride), kind]
    done = subprocess.run(command, env=ENVIRONMENT, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    steps, repeated = map(int, done.stdout.split())
    assert steps >= least
    assert repeated == 0


@pytest.mark.slow
@pytest.mark.timeout(600)
@pytest.mark.parametrize("kind", ["kesler", "hinge"])
def test_several_classes_killed_on_a_cluster(
    tmp_path: Path, cluster: Path, rng: np.random.Generator, kind: str
) -> None:
    """The driver of a job of several scans is killed at random moments, each time later, on worker processes and on
    threads; resumed to the end on worker processes, the bits are those of one thread in this process.
    """
    store = store_of_classes(tmp_path / "s.zarr", rows=60_000, features=20, wrong=0.1 * (kind == "hinge"))
    job = small_job(kind, store.path, tmp_path / "alone")
    train_job(job, store, InProcess(1))
    out, options = tmp_path / "m", ["--classes", "crammer-singer", "--block", "64 KiB"]
    options += ["--epsilon", str(job.epsilon), "--memory", str(int(job.memory))]
    options += ["--loss", "hinge", "--C", "0.1"] if kind == "hinge" else []
    kills = 0
    for attempt in range(6):
        place = cluster if attempt % 2 == 0 else "threads"
        begin = ["--resume"] if (tmp_path / ".m.checkpoint").exists() else []
        run = Run(store, out, *options, *begin, cluster=place)
        time.sleep(1.5 + attempt + rng.uniform(0.0, 2.0))
        children = run.processes() if run.popen.poll() is None else []
        run.popen.send_signal(signal.SIGKILL)
        code, errors = run.end()
        assert code in (0, -signal.SIGKILL), errors
        assert gone(children)
        kills += code != 0
        if (out / "model.json").exists():  # it may have been killed on its way out
            break
    assert kills >= 1
    if not (out / "model.json").exists():
        begin = ["--resume"] if (tmp_path / ".m.checkpoint").exists() else []
        assert Run(store, out, *options, *begin, cluster=cluster).end()[0] == 0
    assert exact(out) == exact(tmp_path / "alone")


def test_driver_killed_on_a_cluster(
    tmp_path: Path, store: Store, unbroken: dict[str, bytes], cluster: Path, rng: np.random.Generator
) -> None:
    """A driver killed at random moments takes its worker processes with it; resumed, the bits are equal."""
    out = tmp_path / "m"
    for attempt in range(2):
        run = Run(store, out, *(["--resume"] if attempt else []), cluster=cluster)
        wait_for(tmp_path / ".m.checkpoint" / "job.json", run)
        time.sleep(rng.uniform(0.0, 0.5))
        children = run.processes()
        run.popen.send_signal(signal.SIGKILL)
        assert run.end()[0] == -signal.SIGKILL
        assert gone(children)
    assert Run(store, out, "--resume", cluster="threads").end()[0] == 0
    assert exact(out) == unbroken
    assert {entry.name for entry in tmp_path.iterdir()} <= {"m", ".m.lock", "two.toml"}


def test_worker_killed(tmp_path: Path, store: Store, unbroken: dict[str, bytes], cluster: Path) -> None:
    """A worker process that is killed in the middle costs its blocks in flight; the model is the same to the bit."""
    out = tmp_path / "m"
    run = Run(store, out, cluster=cluster)
    wait_for(tmp_path / ".m.checkpoint" / "job.json", run)
    workers = [process for process in run.processes() if "spawn_main" in " ".join(process.cmdline())]
    assert len(workers) == 2
    workers[0].kill()
    code, errors = run.end()
    assert code == 0, errors
    assert "Traceback" not in errors
    assert exact(out) == unbroken


# slow: on a machine at load 7 the job once ended, certified, before the signal was seen
@pytest.mark.slow
@pytest.mark.parametrize("how", ["Ctrl-C", "SIGTERM"])
def test_interrupted(tmp_path: Path, store: Store, unbroken: dict[str, bytes], cluster: Path, how: str) -> None:
    """Ctrl-C and SIGTERM, sent to all processes as terminals and batch systems do, end a run with exit code 130 and a
    word on how to go on, leave no process, and the resumed run gives the same bits.
    """
    out = tmp_path / "m"
    run = Run(store, out, cluster=cluster)
    wait_for(tmp_path / ".m.checkpoint" / "job.json", run)
    children = run.processes()
    os.killpg(run.popen.pid, signal.SIGINT if how == "Ctrl-C" else signal.SIGTERM)
    code, errors = run.end()
    assert code == 130
    assert errors.endswith(f"error: {out}: interrupted; go on with the same command and --resume\n")
    assert "Traceback" not in errors
    assert gone(children)
    assert {entry.name for entry in tmp_path.iterdir()} == {".m.checkpoint", "two.toml"}
    code, errors = Run(store, out, cluster=cluster).end()
    assert code == 2
    assert "an interrupted run left a checkpoint; go on with --resume, or start again with --restart" in errors
    assert Run(store, out, "--resume", cluster="threads").end()[0] == 0
    assert exact(out) == unbroken


@pytest.mark.parametrize("number", [signal.SIGINT, pytest.param(signal.SIGTERM, marks=pytest.mark.slow)])
def test_interrupted_before_anything_was_proven(
    tmp_path: Path, store: Store, cluster: Path, number: signal.Signals
) -> None:
    """Interrupted while the cluster starts, a run says so with exit code 130 and leaves nothing behind."""
    run = Run(store, tmp_path / "m", cluster=cluster)
    deadline = time.monotonic() + 60
    while not (children := run.processes()):
        assert time.monotonic() < deadline
        time.sleep(0.01)
    time.sleep(0.2)
    children = run.processes() or children
    run.popen.send_signal(number)
    code, errors = run.end()
    assert code == 130, errors
    assert "interrupted" in errors
    assert "Traceback" not in errors
    assert gone(children)
    assert {entry.name for entry in tmp_path.iterdir()} == {"two.toml"}
