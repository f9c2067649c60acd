"""Training on a real SLURM and a real Grid Engine, whose tasks are cancelled or run into their walltime; skipped where
there is none.
"""

from __future__ import annotations

import os
import re
import signal
import sys
import time
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING

import msgspec
import pytest

from cluster_kit import (
    BLOCKS,
    Moments,
    command,
    ends_and_is_resumed,
    trained,
    wait_until,
    worker_environment,
)
from coremargin import spec as specs
from coremargin.engine.clusters.connect import connect
from coremargin.engine.clusters.specs import Batch, Tls, load_cluster
from sge_kit import LocalSge
from slurm_kit import LocalSlurm
from tls_kit import own_certificate

if TYPE_CHECKING:
    import numpy as np

    from coremargin.data.store import Store
    from coremargin.engine.protocols import BlockResult

BatchSystem = LocalSlurm | LocalSge
pytestmark = [pytest.mark.faults, pytest.mark.slow, pytest.mark.timeout(400)]


@pytest.fixture(scope="module", params=[LocalSlurm, LocalSge], ids=["slurm", "sge"])
def system(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Iterator[BatchSystem]:
    """A batch system of two cores."""
    kind: type[BatchSystem] = request.param
    if (reason := kind.missing()) is not None:
        pytest.skip(reason)
    with kind(tmp_path_factory.mktemp("system")) as it:
        yield it


@pytest.fixture(autouse=True)
def _commands(system: BatchSystem, monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """Its commands, and nothing in its queue when a test is over."""
    for name, value in system.environment.items():
        monkeypatch.setenv(name, value)
    yield
    system.wait_until_idle()


def spec_of(system: BatchSystem, repository: Path, logs: Path, tls: Tls | None = None, **other: object) -> Batch:
    """The system's cluster file for this machine: two tasks run at a time, the others wait for their turn."""
    spec = load_cluster(repository / "cluster" / system.file)
    assert isinstance(spec, Batch)
    here = {
        "host": "127.0.0.1", "python": sys.executable, "jobs": 2, "threads": 1, "workers": 1, "memory": 500 << 20,
        "setup": ("cd /",), "directives": (), "queue": system.queue, "environment": worker_environment(), "logs": logs,
        "start_timeout": specs.Seconds(60), "tls": tls, "insecure": tls is None,
    }  # fmt: skip
    return msgspec.structs.replace(spec, **(here | other))


@pytest.fixture
def tls(tmp_path: Path) -> Tls:
    """A certificate of our own."""
    return own_certificate(tmp_path)


@pytest.mark.parametrize("encrypted", [False, True], ids=["tcp", "tls"])
def test_tasks_cancelled_at_twenty_moments(
    tmp_path: Path, repository: Path, system: BatchSystem, store: Store, unbroken: dict[str, bytes],
    rng: np.random.Generator, request: pytest.FixtureRequest, encrypted: bool,
) -> None:  # fmt: skip
    """Tasks of the array are cancelled at twenty moments drawn by lot, one or all that run: the model has the same
    bits, and nothing is left in the queue.
    """

    def cancel() -> bool:
        running = system.tasks()
        for task in rng.permutation(running)[: rng.integers(1, 3)]:
            system.cancel(task)
        return bool(running)

    certificate = request.getfixturevalue("tls") if encrypted else None
    moments = Moments(rng, 20, cancel)
    with connect(spec_of(system, repository, tmp_path, certificate, jobs=42)) as executor:
        assert executor.client.scheduler.address.startswith("tls://" if encrypted else "tcp://")
        assert trained(store, tmp_path / "m", executor, moments) == unbroken
    assert moments.landed == 20


def test_a_walltime_that_ends_is_not_the_end(
    tmp_path: Path, repository: Path, system: BatchSystem, store: Store, unbroken: dict[str, bytes],
    caplog: pytest.LogCaptureFixture,
) -> None:  # fmt: skip
    """When the walltime of all workers is over in the middle of a job, the array is submitted again, and the job goes
    on to the same bits.
    """
    done = 0

    def outlive(_: BlockResult) -> None:
        nonlocal done
        done += 1
        if done == BLOCKS // 2:
            before = system.tasks()
            deadline = time.monotonic() + 200
            while set(before) & set(system.tasks("leaving")):
                assert time.monotonic() < deadline
                time.sleep(0.5)

    with connect(spec_of(system, repository, tmp_path, walltime=specs.Seconds(60))) as executor:
        first = executor.description
        assert trained(store, tmp_path / "m", executor, outlive) == unbroken
        again = [message for message in caplog.messages if f"no worker is left: submitted {system.name} job" in message]
    assert len(again) == 1
    assert re.search(r"job (\d+)", again[0])[1] != re.search(r"job (\d+)", first)[1]


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_interrupted(
    tmp_path: Path,
    repository: Path,
    system: BatchSystem,
    store: Store,
    unbroken: dict[str, bytes],
    number: signal.Signals,
) -> None:
    """Ctrl-C and SIGTERM in the middle of a scan take the array out of the queue and end with exit code 130; resumed in
    this process, the bits are the same.
    """
    spec = spec_of(system, repository, tmp_path)
    assert (
        ends_and_is_resumed(tmp_path, store, spec, number, system.tasks, lambda: system.wait_until_idle(20)) == unbroken
    )


@pytest.fixture
def full(system: BatchSystem) -> Iterator[str]:
    """Somebody else's job, which has all cores of the node."""
    other = system.fill()
    deadline = time.monotonic() + 60
    while system.tasks() != [other]:
        assert time.monotonic() < deadline
        time.sleep(0.05)
    yield other
    system.cancel(other)


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_interrupted_while_the_queue_does_not_move(
    tmp_path: Path, repository: Path, system: BatchSystem, store: Store, full: str, number: signal.Signals
) -> None:
    """Ctrl-C and SIGTERM while the array waits behind other jobs take it out of the queue, and nothing else."""
    with command(tmp_path, store, spec_of(system, repository, tmp_path)) as run:
        wait_until(lambda: system.tasks("waiting"), run)
        os.killpg(run.pid, number)
        _, errors = run.communicate(timeout=60)
    assert run.returncode == 130, errors
    assert "Traceback" not in errors
    assert system.tasks("all") == [full]


def test_a_queue_that_does_not_move_ends_in_time(
    tmp_path: Path, repository: Path, system: BatchSystem, store: Store, full: str
) -> None:
    """Without room in the partition the job ends with exit code 5 after ``start_timeout``, and takes its array away."""
    with command(tmp_path, store, spec_of(system, repository, tmp_path, start_timeout=specs.Seconds(2))) as run:
        _, errors = run.communicate(timeout=60)
    assert run.returncode == 5
    assert re.search(rf"{system.name} job \d+.*no worker within 2.00 s; look at the queue", errors), errors
    assert system.tasks("all") == [full]


def test_workers_leave_a_driver_that_was_killed(
    tmp_path: Path, repository: Path, system: BatchSystem, store: Store
) -> None:
    """After SIGKILL of the driver its workers leave by themselves, and their tasks end."""
    held = tmp_path / "held"
    with command(tmp_path, store, spec_of(system, repository, tmp_path), f"9:{held}") as run:
        wait_until(held.exists, run)
        assert len(system.tasks()) == 2
        run.kill()
        run.wait()
    system.wait_until_idle(120)
