"""Jobs that are killed or interrupted at any moment, and what ``--resume`` makes of what they left."""

from __future__ import annotations

import json
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
from coremargin.engine.executors import InProcess
from coremargin.learn.train import train_job
from coremargin.problems.registry import new_job
from train_kit import KINDS, exact, made_store, small_store

if TYPE_CHECKING:
    import numpy as np

    from coremargin.data.store import Store

pytestmark = pytest.mark.faults

HERE = Path(__file__).parent
ENVIRONMENT = {**os.environ, "PYTHONPATH": str(Path(coremargin.__path__[0]).parent), "OPENBLAS_NUM_THREADS": "1"}
EVERY_S = "0.2"


def killed_at_steps(folder: Path, every_s: str, first: int, stride: int, kind: str) -> tuple[int, int]:
    """What ``kill_train.py`` found: how many things happen in a run, and how many blocks were done twice at worst.

    It kills at the given steps all of them, counted, and fails where a run outlives its step.
    """
    command = [sys.executable, str(HERE / "kill_train.py"), str(folder), every_s, str(first), str(stride), kind]
    done = subprocess.run(command, env=ENVIRONMENT, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    things, runs, repeated = map(int, done.stdout.split())
    assert runs == len(range(first, things + 1, stride)) > 0
    return things, repeated


@pytest.mark.parametrize(
    ("first", "stride"), [(9, 90), pytest.param(1, 7, marks=[pytest.mark.slow, pytest.mark.timeout(1200)])]
)
def test_killed_at_every_step_without_checkpoints(tmp_path: Path, first: int, stride: int) -> None:
    """Killed twice before any read, block, round or step on disk and begun anew, a job too short for a checkpoint ends
    with the same bits.
    """
    things, _ = killed_at_steps(tmp_path, "1000", first, stride, "hard")
    assert things > 50  # one read of 40 chunks, and what is done on disk


@pytest.mark.slow
@pytest.mark.parametrize(
    ("kind", "first", "stride"),
    [
        ("hard", 1, 83),
        ("hinge", 150, 397),
        *(
            pytest.param(kind, 1, 7 if kind == "hard" else 29, marks=[pytest.mark.slow, pytest.mark.timeout(2400)])
            for kind in KINDS
        ),
    ],
)
def test_killed_at_every_step(tmp_path: Path, kind: str, first: int, stride: int) -> None:
    """Killed twice before any read, block, round or step on disk and resumed from the checkpoint at its last block, a
    job of any kind ends with the same bits, and does no block twice.
    """
    things, repeated = killed_at_steps(tmp_path, "0", first, stride, kind)
    assert things > 300
    assert repeated == 0


@pytest.fixture(scope="module")
def store(tmp_path_factory: pytest.TempPathFactory) -> Store:
    """A store that the paper's strategy scans some twenty times."""
    return small_store(tmp_path_factory.mktemp("killed") / "rows.zarr", rows=4_000, features=4, chunks=8)


@pytest.fixture(scope="module")
def unbroken(store: Store) -> dict[str, bytes]:
    """The model of a run that nothing happened to, in this process."""
    out = store.path.with_name("unbroken")
    train_job(new_job(store=store.path, out=out, strategy="paper"), store, InProcess(1))
    return exact(out)


class Run:
    """The command line in a session of its own, held when so many blocks are done, and its processes."""

    def __init__(
        self, store: Store, out: Path, *options: str, cluster: Path | str, hold: int | None = None, sample: int = 0
    ) -> None:
        self.held = out.with_name("held")
        self.held.unlink(missing_ok=True)
        command = [sys.executable, str(HERE / "train_kit.py"), EVERY_S, str(sample)]
        command += ["-" if hold is None else f"{hold}:{self.held}", "train", str(store.path), "--out", str(out)]
        command += ["--cluster", str(cluster), *options]
        self.popen = subprocess.Popen(
            command, env=ENVIRONMENT, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, start_new_session=True
        )

    def processes(self) -> list[psutil.Process]:
        """What the driver started, and what those started."""
        return psutil.Process(self.popen.pid).children(recursive=True)

    def wait_until_held(self) -> None:
        """Until so many blocks are done, and there is a checkpoint."""
        deadline = time.monotonic() + 60
        while not self.held.exists():
            assert self.popen.poll() is None, self.end()
            assert time.monotonic() < deadline
            time.sleep(0.01)

    def release(self) -> None:
        """Let it go on."""
        self.held.unlink()

    def end(self) -> tuple[int, str]:
        """Exit code and stderr."""
        _, errors = self.popen.communicate(timeout=120)
        return self.popen.returncode, errors

    def kill(self) -> None:
        """SIGKILL to the driver, while it is held; all that it started goes with it."""
        self.wait_until_held()
        children = self.processes()
        self.popen.kill()
        assert self.end()[0] == -signal.SIGKILL
        assert gone(children)
        self.release()


def gone(processes: list[psutil.Process], within_s: float = 60.0) -> bool:
    """Whether all of them end in time."""
    return not psutil.wait_procs(processes, timeout=within_s)[1]


@pytest.fixture
def cluster(tmp_path: Path) -> Path:
    """Two worker processes."""
    path = tmp_path / "two.toml"
    path.write_text('kind = "embedded"\nworkers = 2\nthreads = 1\n')
    return path


PAPER = ("--strategy", "paper")


def options_of(kind: str) -> list[str]:
    """The command's words for a kind of job."""
    given = {"block": 1 << 16, **KINDS[kind]}
    listed = {name: value if isinstance(value, list) else [value] for name, value in given.items()}
    return [
        word for name, values in listed.items() for word in (f"--{name.replace('_', '-')}", ",".join(map(str, values)))
    ]


@pytest.mark.slow
@pytest.mark.timeout(600)
@pytest.mark.parametrize("kind", [kind for kind in KINDS if kind != "published"])  # that one has a single block
def test_killed_again_and_again_on_a_cluster(
    tmp_path: Path, cluster: Path, rng: np.random.Generator, kind: str
) -> None:
    """The driver of a job of any kind of many blocks is killed four times, each time a few blocks further, on worker
    processes and on threads, and each time goes on from the checkpoint; resumed to the end, the bits are those of an
    unbroken run.
    """
    store, little = made_store(kind, tmp_path / "s.zarr"), 10_000
    run = Run(store, tmp_path / "alone", *options_of(kind), cluster="threads", sample=little)
    assert run.end()[0] == 0
    out = tmp_path / "m"
    for attempt in range(4):
        begin = ["--resume"] if attempt else []
        place, blocks = ("threads" if attempt % 2 else cluster), int(rng.integers(1, 7))
        Run(store, out, *options_of(kind), *begin, cluster=place, hold=blocks, sample=little).kill()
        assert (tmp_path / ".m.checkpoint" / "job.json").exists()
    code, errors = Run(store, out, *options_of(kind), "--resume", cluster=cluster, sample=little).end()
    assert code == 0, errors
    assert json.loads((out / "run.json").read_text())["resumed"] == 4
    assert exact(out) == exact(tmp_path / "alone")


@pytest.mark.slow
def test_driver_killed_on_a_cluster(
    tmp_path: Path, store: Store, unbroken: dict[str, bytes], cluster: Path, rng: np.random.Generator
) -> None:
    """A driver that is killed takes its worker processes with it; resumed, the bits are equal."""
    out = tmp_path / "m"
    for begin in ([], ["--resume"]):
        Run(store, out, *PAPER, *begin, cluster=cluster, hold=int(rng.integers(1, 70))).kill()
    assert Run(store, out, *PAPER, "--resume", cluster="threads").end()[0] == 0
    assert exact(out) == unbroken
    assert {entry.name for entry in tmp_path.iterdir()} <= {"m", ".m.lock", "two.toml"}


@pytest.mark.slow
def test_worker_killed(tmp_path: Path, store: Store, unbroken: dict[str, bytes], cluster: Path) -> None:
    """A worker process that is killed in the middle costs its blocks in flight; the model is the same to the bit."""
    out = tmp_path / "m"
    run = Run(store, out, *PAPER, cluster=cluster, hold=30)
    run.wait_until_held()
    workers = [process for process in run.processes() if "spawn_main" in " ".join(process.cmdline())]
    assert len(workers) == 2
    workers[0].kill()
    run.release()
    code, errors = run.end()
    assert code == 0, errors
    assert "Traceback" not in errors
    assert exact(out) == unbroken


@pytest.mark.slow
@pytest.mark.parametrize("how", ["Ctrl-C", "SIGTERM"])
def test_interrupted(tmp_path: Path, store: Store, unbroken: dict[str, bytes], cluster: Path, how: str) -> None:
    """Ctrl-C and SIGTERM, sent to all processes as terminals and batch systems do, end a run with exit code 130 and a
    word on how to go on, leave no process, and the resumed run gives the same bits.
    """
    out = tmp_path / "m"
    run = Run(store, out, *PAPER, cluster=cluster, hold=30)
    run.wait_until_held()
    children = run.processes()
    os.killpg(run.popen.pid, signal.SIGINT if how == "Ctrl-C" else signal.SIGTERM)
    code, errors = run.end()
    assert code == 130
    assert errors.endswith(f"error: {out}: interrupted; continue with the same command and --resume\n")
    assert "Traceback" not in errors
    assert gone(children)
    assert {entry.name for entry in tmp_path.iterdir()} == {".m.checkpoint", "two.toml", "held"}
    code, errors = Run(store, out, *PAPER, cluster=cluster).end()
    assert code == 2
    assert "an interrupted run left a checkpoint; continue with --resume, or start again with --restart" in errors
    assert Run(store, out, *PAPER, "--resume", cluster="threads").end()[0] == 0
    assert exact(out) == unbroken


@pytest.mark.slow
@pytest.mark.parametrize("number", [signal.SIGINT, pytest.param(signal.SIGTERM, marks=pytest.mark.slow)])
def test_interrupted_before_anything_was_proven(
    tmp_path: Path, store: Store, cluster: Path, number: signal.Signals
) -> None:
    """Interrupted while the cluster starts, a run says so with exit code 130 and leaves nothing behind."""
    run = Run(store, tmp_path / "m", *PAPER, cluster=cluster)
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
