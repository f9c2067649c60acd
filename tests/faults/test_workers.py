"""Workers that die, hang or are killed while a scan runs; the driver that is killed while workers run."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import textwrap
import threading
import time
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np
import psutil
import pytest

from coremargin.engine.cluster_scan import RetryPolicy
from coremargin.engine.clusters.embedded import start_embedded
from coremargin.engine.dask_executor import DaskExecutor
from coremargin.engine.plan import plan_blocks
from coremargin.engine.scan import run_scan
from coremargin.errors import BlockFailed, RunError
from scan_fakes import Deadly, FakeHandle, FakeSource, Slow, Stopped, SumProbe, expected  # tests/engine is on the path

if TYPE_CHECKING:
    from coremargin.engine.protocols import Block

pytestmark = pytest.mark.faults


@pytest.fixture
def source() -> FakeSource:
    """1,000 rows in 100 chunks."""
    return FakeHandle().open_source()


@pytest.fixture
def blocks(source: FakeSource) -> tuple[Block, ...]:
    """One block per chunk."""
    return plan_blocks(source, 1)


@pytest.fixture
def executor() -> Iterator[DaskExecutor]:
    """Two worker processes of its own: this test does harm to them."""
    with start_embedded(workers=2, threads=1) as executor:
        yield executor


def worker_pids(executor: DaskExecutor) -> list[int]:
    """The processes of the workers."""
    return [int(pid) for pid in executor.client.run(os.getpid).values()]


def leave_nothing(pids: list[int], within_s: float = 60.0) -> None:
    """Wait until none of the processes lives."""
    deadline = time.monotonic() + within_s
    while any(psutil.pid_exists(pid) and psutil.Process(pid).status() != psutil.STATUS_ZOMBIE for pid in pids):
        assert time.monotonic() < deadline, f"still alive: {[pid for pid in pids if psutil.pid_exists(pid)]}"
        time.sleep(0.05)


def test_killed_workers_change_nothing(executor: DaskExecutor, source: FakeSource, blocks: tuple[Block, ...]) -> None:
    """Both workers are killed in the middle of a scan, one after the other: the answer has the same bits."""
    probe, seen = Slow(), []

    def kill(_: object) -> None:
        seen.append(1)
        if len(seen) in (10, 40):
            os.kill(worker_pids(executor)[0], signal.SIGKILL)

    assert run_scan(executor, source, probe, blocks, on_block=kill).bits() == expected(source, probe, blocks).bits()
    assert len(seen) == len(blocks)


@pytest.mark.slow
def test_arrays_are_sent_again_when_their_holders_died(executor: DaskExecutor) -> None:
    """Arrays outlive all workers that hold them: the scheduler sends them to those who come, and the scan goes on."""
    source = FakeHandle(rows=120, features=20_000, chunk_rows=2).open_source()
    blocks = plan_blocks(source, 1)
    weight = np.random.default_rng(3).standard_normal(20_000)
    total = np.zeros(20_000)
    for result in executor.run(source, Slow(weight, seconds=0.02), blocks):
        total += result.summary.total
        if result.block.index == 5:
            for pid in worker_pids(executor):
                os.kill(pid, signal.SIGKILL)
    np.testing.assert_allclose(total, source.X.sum(axis=0, dtype=np.float64) * weight, rtol=1e-9, atol=1e-9)


@pytest.mark.slow
def test_one_deadly_try_heals(
    executor: DaskExecutor, source: FakeSource, blocks: tuple[Block, ...], tmp_path: Path
) -> None:
    """A block that kills its worker once is done again."""
    probe = Deadly(folder=tmp_path, deaths=1)
    assert run_scan(executor, source, probe, blocks).bits() == expected(source, probe, blocks).bits()
    assert len(list(tmp_path.iterdir())) == 1


@pytest.mark.slow
def test_a_deadly_block_is_named_and_innocents_survive(
    executor: DaskExecutor, source: FakeSource, blocks: tuple[Block, ...]
) -> None:
    """A block that kills every worker ends as BlockFailed with its chunks; what ran beside it is not blamed."""
    answered = []
    with pytest.raises(
        BlockFailed, match=r"block 5 \(chunk 5 of fake.zarr\).*run `coremargin check fake.zarr`"
    ) as caught:
        run_scan(executor, source, Deadly(block=5), blocks, on_block=lambda result: answered.append(result.block.index))
    assert "KilledWorker" in repr(caught.value.__cause__)
    assert set(answered) >= {0, 1, 2, 3, 4}
    assert 5 not in answered
    assert run_scan(executor, source, SumProbe(), blocks).bits() == expected(source, SumProbe(), blocks).bits()


@pytest.mark.slow
def test_a_hanging_worker_is_replaced(source: FakeSource, blocks: tuple[Block, ...], tmp_path: Path) -> None:
    """A worker that is stopped (SIGSTOP) loses its blocks after its time to live, and the scan ends in time."""
    probe = Stopped(mark=tmp_path / "stopped")
    policy = RetryPolicy(overdue_s=3600.0)
    with start_embedded(workers=2, threads=1, policy=policy, worker_ttl_s=5.0) as executor:
        assert run_scan(executor, source, probe, blocks).bits() == expected(source, probe, blocks).bits()
        stopped = int(probe.mark.read_text())
    leave_nothing([stopped])


@pytest.mark.slow
@pytest.mark.parametrize("late_s", [0.02, pytest.param(2.5, marks=pytest.mark.slow)])
def test_an_overdue_block_is_sent_elsewhere(
    source: FakeSource, blocks: tuple[Block, ...], tmp_path: Path, late_s: float
) -> None:
    """Long before a hanging worker is given up, its blocks run on another one; even where each worker was late once."""
    probe = Stopped(mark=tmp_path / "stopped", late_s=late_s)
    with start_embedded(workers=2, threads=1, policy=RetryPolicy(overdue_s=1.0), worker_ttl_s=300.0) as executor:
        assert run_scan(executor, source, probe, blocks).bits() == expected(source, probe, blocks).bits()
        stopped = psutil.Process(int(probe.mark.read_text()))
        assert stopped.status() == psutil.STATUS_STOPPED  # nobody waited until it was replaced
        stopped.kill()


@pytest.mark.slow
def test_a_lost_scheduler_is_a_run_error(source: FakeSource, blocks: tuple[Block, ...]) -> None:
    """When the scheduler goes away during a scan, the run ends with RunError and says that it can be resumed."""
    from distributed import Client

    words = [sys.executable, "-m", "distributed.cli.dask_scheduler", "--host", "127.0.0.1", "--port", "0"]
    file = Path(os.environ.get("TMPDIR", "/tmp")) / f"coremargin-scheduler-{os.getpid()}.json"
    words += ["--no-dashboard", "--dashboard-address", "127.0.0.1:0", "--scheduler-file", str(file)]
    environment = os.environ | {"PYTHONPATH": os.pathsep.join(path for path in sys.path if path)}
    started = []
    try:
        started.append(subprocess.Popen(words, stderr=subprocess.DEVNULL))
        while not file.exists():
            time.sleep(0.05)
        words = [sys.executable, "-m", "distributed.cli.dask_worker", "--scheduler-file", str(file), "--no-nanny"]
        words += ["--no-dashboard", "--dashboard-address", "127.0.0.1:0", "--death-timeout", "5"]
        started.append(subprocess.Popen(words, stderr=subprocess.DEVNULL, env=environment))
        with Client(scheduler_file=str(file), set_as_default=False) as client:
            client.wait_for_workers(1, timeout=60)
            with closing(DaskExecutor(client).run(source, Slow(seconds=0.05), blocks)) as results:
                next(results)
                started[0].kill()
                with pytest.raises(RunError, match="scheduler was lost.*then run again"):
                    list(results)
    finally:
        file.unlink(missing_ok=True)
        for process in started:
            process.kill()
            process.wait()


@pytest.mark.slow
def test_an_interrupt_before_the_first_step_is_quiet(executor: DaskExecutor, caplog: pytest.LogCaptureFixture) -> None:
    """Ctrl-C while the event loop is late with a request interrupts the driver, and nothing complains beside it."""
    executor.client.loop.add_callback(time.sleep, 1.0)
    interrupt = threading.Timer(0.2, os.kill, (os.getpid(), signal.SIGINT))
    interrupt.start()
    with pytest.raises(KeyboardInterrupt):
        executor.client.nthreads()
    interrupt.join()
    assert executor.workers == 2  # after the late request
    assert "Traceback" not in caplog.text


DRIVER = """
import os, sys, time
from scan_fakes import FakeHandle, Slow
from coremargin.engine.clusters.embedded import start_embedded
from coremargin.engine.plan import plan_blocks

executor = start_embedded(workers=2, threads=1)  # no main guard: workers must not run this script again
source = FakeHandle().open_source()
for result in executor.run(source, Slow(seconds=0.1), plan_blocks(source, 1)):
    if result.block.index == 1:
        print(*executor.client.run(os.getpid).values(), flush=True)
"""


@pytest.mark.slow
@pytest.mark.parametrize("signal_number", [signal.SIGKILL, signal.SIGTERM, signal.SIGINT])
def test_workers_die_with_the_driver(signal_number: int, tmp_path: Path) -> None:
    """Whatever ends the driver in the middle of a scan, no worker process stays behind."""
    script = tmp_path / "driver.py"
    script.write_text(textwrap.dedent(DRIVER))
    paths = os.pathsep.join(path for path in sys.path if path)
    driver = subprocess.Popen(
        [sys.executable, str(script)],
        env=os.environ | {"PYTHONPATH": paths},
        stdout=subprocess.PIPE,
        stderr=subprocess.DEVNULL,
        text=True,
    )
    with driver:
        assert driver.stdout is not None
        pids = [int(pid) for pid in driver.stdout.readline().split()]
        assert len(pids) == 2
        driver.send_signal(signal_number)
        driver.wait(20)
    leave_nothing(pids)


@pytest.mark.slow
def test_close_leaves_nothing_behind(source: FakeSource, blocks: tuple[Block, ...]) -> None:
    """After ``close``, in the middle of a scan or not, no worker process lives and the environment is as before."""
    before = dict(os.environ)
    with start_embedded(workers=2, threads=1) as executor:
        pids = worker_pids(executor)
        assert dict(os.environ) == before
        with closing(executor.run(source, Slow(), blocks)) as results:
            next(results)
            os.kill(pids[0], signal.SIGKILL)
            list(results)
        pids += worker_pids(executor)
        assert dict(os.environ) == before
    executor.close()
    leave_nothing(pids)
    assert dict(os.environ) == before


def test_only_loopback_listens() -> None:
    """All ports of the embedded cluster, the dashboard's included, are on 127.0.0.1."""
    for processes in (True, False):
        with start_embedded(workers=1, threads=1, processes=processes, dashboard=processes) as executor:
            pids = {os.getpid(), *worker_pids(executor)}
            found = [port for pid in pids for port in psutil.Process(pid).net_connections() if port.status == "LISTEN"]
            assert found
            assert {port.laddr.ip for port in found} == {"127.0.0.1"}
