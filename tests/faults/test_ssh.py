"""Training over a real ssh, whose workers are killed and whose hosts fail; skipped where there is no sshd."""

from __future__ import annotations

import signal
import sys
import time
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING
from uuid import uuid4

import msgspec
import psutil
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
from coremargin.engine.clusters.specs import Ssh, load_cluster
from ssh_kit import LocalSshd, missing

if TYPE_CHECKING:
    import numpy as np

    from coremargin.data.store import Store
    from coremargin.engine.protocols import BlockResult

MARK, OURS = "COREMARGIN_TEST", uuid4().hex  #: in the environment of what this run starts: others may run beside it
REASON = missing()
pytestmark = [
    pytest.mark.faults,
    pytest.mark.slow,
    pytest.mark.timeout(400),
    pytest.mark.skipif(REASON is not None, reason=REASON or ""),
]


@pytest.fixture(scope="module")
def sshd(tmp_path_factory: pytest.TempPathFactory) -> Iterator[LocalSshd]:
    """An sshd on two addresses of this machine."""
    with LocalSshd(tmp_path_factory.mktemp("sshd")) as daemon:
        yield daemon


@pytest.fixture
def spec(repository: Path, sshd: LocalSshd) -> Ssh:
    """cluster/ssh.toml for two addresses of this machine."""
    spec = load_cluster(repository / "cluster" / "ssh.toml")
    assert isinstance(spec, Ssh)
    return msgspec.structs.replace(
        spec, hosts=("127.0.0.1", "127.0.0.2"), options=sshd.options, host="127.0.0.1", python=sys.executable,
        threads=1, workers=1, environment=worker_environment() | {MARK: OURS}, start_timeout=specs.Seconds(60),
    )  # fmt: skip


def remote(words: str = "dask_worker") -> list[psutil.Process]:
    """What runs on the hosts: the nannies that ssh started, or with "spawn_main" their workers."""
    nannies = [one for one in psutil.process_iter() if "distributed.cli.dask_worker" in arguments(one).split()]
    if words == "dask_worker":
        return nannies
    return [child for nanny in nannies for child in children(nanny) if words in arguments(child)]


def arguments(process: psutil.Process) -> str:
    """The command line of a process that this run started on the hosts; nothing where it is gone, or another's."""
    try:
        words = process.cmdline()
        ours = bool(words) and "ssh" not in words[0] and process.environ().get(MARK) == OURS
    except psutil.Error:
        return ""
    return " ".join(words) if ours else ""


def children(process: psutil.Process) -> list[psutil.Process]:
    """Its children; none where it is gone."""
    try:
        return process.children()
    except psutil.Error:
        return []


def leave(within_s: float = 60.0) -> bool:
    """Whether nothing runs on the hosts any more, in time."""
    deadline = time.monotonic() + within_s
    while remote():
        if time.monotonic() > deadline:
            return False
        time.sleep(0.1)
    return True


def test_workers_killed_at_twenty_moments(
    tmp_path: Path, spec: Ssh, store: Store, unbroken: dict[str, bytes], rng: np.random.Generator
) -> None:
    """At twenty moments drawn by lot a worker is killed, or with it the nanny that would start it again, until no host
    is left and all are started anew: the model has the same bits, and nothing stays behind.
    """
    nannies = 0

    def kill() -> bool:
        nonlocal nannies
        kind = "dask_worker" if rng.random() < 0.2 else "spawn_main"
        if found := remote(kind):
            found[int(rng.integers(len(found)))].kill()
            nannies += kind == "dask_worker"
        return bool(found)

    moments = Moments(rng, 20, kill)
    with connect(spec) as executor:
        assert trained(store, tmp_path / "m", executor, moments) == unbroken
    assert moments.landed == 20
    assert nannies >= 3
    assert leave()


def test_all_hosts_fail_at_once(
    tmp_path: Path, spec: Ssh, store: Store, unbroken: dict[str, bytes], caplog: pytest.LogCaptureFixture
) -> None:
    """When every host has failed, each is started again through ssh, and the job goes on to the same bits."""
    done = 0

    def fail(_: BlockResult) -> None:
        nonlocal done
        done += 1
        if done == BLOCKS // 2:
            for nanny in remote():
                nanny.kill()

    with connect(spec) as executor:
        assert trained(store, tmp_path / "m", executor, fail) == unbroken
    assert "no worker is left: started ssh 127.0.0.1, ssh 127.0.0.2 again" in caplog.messages
    assert leave()


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_interrupted(
    tmp_path: Path, spec: Ssh, store: Store, unbroken: dict[str, bytes], number: signal.Signals
) -> None:
    """Ctrl-C and SIGTERM, which reach the ssh commands as well, end with exit code 130 and leave nothing on the hosts;
    resumed in this process, the bits are the same.
    """

    def before() -> None:
        assert len(remote()) == 2

    def after() -> None:
        assert leave(5.0)

    assert ends_and_is_resumed(tmp_path, store, spec, number, before, after) == unbroken


def test_workers_leave_a_driver_that_was_killed(tmp_path: Path, spec: Ssh, store: Store) -> None:
    """After SIGKILL of the driver nothing of it stays on the hosts for longer than a minute."""
    held = tmp_path / "held"
    with command(tmp_path, store, spec, f"9:{held}") as run:
        wait_until(held.exists, run)
        assert len(remote()) == 2
        run.kill()
        run.wait()
    assert leave(90.0)
