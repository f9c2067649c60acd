"""Questions that do not fit into tasks, while the workers that have them die: the answers have the same bits."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import pytest
from distributed.client import FutureCancelledError
from distributed.comm import CommClosedError

from cluster_kit import Moments, trained, trained_alone, wide_store
from coremargin.engine import cluster_scan, probe_transport
from coremargin.engine.cluster_scan import RetryPolicy
from coremargin.engine.cluster_workers import WorkerWait
from coremargin.engine.clusters.embedded import start_embedded
from coremargin.engine.dask_executor import DaskExecutor
from coremargin.engine.plan import plan_blocks
from coremargin.errors import BlockFailed, RunError
from crew import Crew, DeadlyQuestion
from scan_fakes import FakeHandle, FakeSource, Halted, Slow  # tests/engine is on the path

if TYPE_CHECKING:
    from coremargin.data.store import Store
    from coremargin.engine.protocols import Block

pytestmark = pytest.mark.faults


@pytest.fixture
def source() -> FakeSource:
    """60 chunks of two rows of 20,000 features."""
    return FakeHandle(rows=120, features=20_000, chunk_rows=2).open_source()


@pytest.fixture
def blocks(source: FakeSource) -> tuple[Block, ...]:
    """One block per chunk."""
    return plan_blocks(source, 1)


@pytest.fixture
def probe() -> Slow:
    """A question of 160 kB."""
    weight = np.random.default_rng(3).standard_normal(20_000)
    assert weight.nbytes > probe_transport.LARGE_BYTES
    return Slow(weight, seconds=0.01)


@pytest.fixture
def crew() -> Iterator[Crew]:
    """Two workers that nobody starts again."""
    with Crew(2) as crew:
        yield crew


def answers(
    crew: Crew,
    source: FakeSource,
    probe: Slow,
    blocks: tuple[Block, ...],
    on_block: Callable[[int], None] | None = None,
) -> dict[int, bytes]:
    """The bits of each block's answer; ``on_block`` is called with the number of those done."""
    found: dict[int, bytes] = {}
    for result in crew.executor.run(source, probe, blocks):
        found[result.block.index] = result.summary.total.tobytes()
        if on_block is not None:
            on_block(len(found))
    return found


def fails_to_arrive(monkeypatch: pytest.MonkeyPatch, block: int, times: int, error: Exception) -> list[str]:
    """The result of a block is replaced by an error so many times; the keys of those tasks."""
    failed: list[str] = []
    next_arrival = cluster_scan.SentTasks.next_arrival

    def arrives(self: cluster_scan.SentTasks, timeout_s: float) -> tuple[cluster_scan.Task, Any] | None:
        arrival = next_arrival(self, timeout_s)
        if arrival is None or arrival[0].block.index != block or len(failed) == times:
            return arrival
        failed.append(arrival[0].key)
        return arrival[0], error

    monkeypatch.setattr(cluster_scan.SentTasks, "next_arrival", arrives)
    return failed


def alone(source: FakeSource, probe: Slow, blocks: tuple[Block, ...]) -> dict[int, bytes]:
    """The same by NumPy in this process; a block is one chunk here."""
    found = {}
    for block in blocks:
        X, _ = source.read(block.chunks[0])
        found[block.index] = (X.astype(np.float64) * probe.weight).sum(axis=0).tobytes()
    return found


@pytest.mark.slow
@pytest.mark.parametrize(
    "state", ["memory", *(pytest.param(state, marks=pytest.mark.slow) for state in ("executing", "flight"))]
)
def test_a_worker_dies_as_a_question_arrives(
    crew: Crew, source: FakeSource, probe: Slow, blocks: tuple[Block, ...], tmp_path: Path, state: str
) -> None:
    """Whoever takes a question from the scheduler, takes it from another worker, or has just got it, may die of it: the
    other worker answers for all.
    """
    crew.client.register_plugin(DeadlyQuestion(state, tmp_path))
    assert answers(crew, source, probe, blocks) == alone(source, probe, blocks)
    assert crew.deaths() == len(list(tmp_path.iterdir())) == 1


@pytest.mark.slow
def test_all_workers_die_as_a_question_arrives(
    crew: Crew, source: FakeSource, probe: Slow, blocks: tuple[Block, ...], tmp_path: Path
) -> None:
    """A question that killed everybody waits with the scheduler for those who come later."""
    crew.client.register_plugin(DeadlyQuestion("memory", tmp_path, deaths=2))
    crew.hire_when(lambda: crew.deaths() == 2, 2)
    assert answers(crew, source, probe, blocks) == alone(source, probe, blocks)
    assert crew.deaths() == 2


@pytest.mark.slow
@pytest.mark.parametrize(
    ("moment", "noticed", "killed"),
    [
        ("between", False, 2),
        *(
            pytest.param(moment, noticed, killed, marks=pytest.mark.slow)
            for moment in ("before", "between")
            for noticed in (False, True)
            for killed in (1, 2)
            if (moment, noticed, killed) != ("between", False, 2)
        ),
    ],
)
def test_workers_die_before_the_first_task(
    crew: Crew, source: FakeSource, probe: Slow, blocks: tuple[Block, ...], monkeypatch: pytest.MonkeyPatch,
    killed: int, noticed: bool, moment: str,
) -> None:  # fmt: skip
    """One worker or both die before a question is handed over or between that and the first task, whether the scheduler
    has noticed or not: those that live, or come later, answer.
    """
    pack, dead = probe_transport.Transport.pack, []

    def deadly(self: probe_transport.Transport, value: Any) -> Any:
        packed = None if moment == "before" else pack(self, value)
        if value is probe and not dead:
            dead.append(crew.kill(most=killed))
            crew.hire_when(lambda: True, killed - 1)
            if noticed:
                crew.wait_until_noticed(gone=killed)
        return pack(self, value) if packed is None else packed

    monkeypatch.setattr(probe_transport.Transport, "pack", deadly)
    assert answers(crew, source, probe, blocks) == alone(source, probe, blocks)
    assert dead == [killed]


@pytest.mark.slow
@pytest.mark.parametrize("killed", [1, 2])
def test_workers_die_between_tasks(
    crew: Crew, source: FakeSource, probe: Slow, blocks: tuple[Block, ...], killed: int
) -> None:
    """In the middle of a scan one worker dies, or both and then those who replace them: the same bits."""

    def harm(done: int) -> None:
        if done in (10, 40):
            assert crew.kill(most=killed) == killed
            crew.hire_when(lambda: True, killed)

    assert answers(crew, source, probe, blocks, harm) == alone(source, probe, blocks)


@pytest.mark.slow
def test_the_last_worker_dies_with_the_last_blocks(
    crew: Crew, source: FakeSource, probe: Slow, blocks: tuple[Block, ...]
) -> None:
    """Answers that nobody fetched in time are made again."""

    def harm(done: int) -> None:
        if done == len(blocks) - 4:
            crew.kill()
            crew.hire_when(lambda: True, 1)

    assert answers(crew, source, probe, blocks, harm) == alone(source, probe, blocks)


@pytest.mark.slow
@pytest.mark.timeout(400)
@pytest.mark.parametrize("deaths", [3, 1000])
def test_a_question_that_keeps_killing(
    source: FakeSource, probe: Slow, blocks: tuple[Block, ...], tmp_path: Path, caplog: pytest.LogCaptureFixture,
    deaths: int,
) -> None:  # fmt: skip
    """When three workers died of a question it is handed over anew; when that does not help, the error names a block,
    which is not accused of having killed them.
    """
    with start_embedded(workers=2, threads=1, policy=RetryPolicy(tries=2, pause_s=0.05)) as executor:
        executor.client.register_plugin(DeadlyQuestion("executing", tmp_path, deaths=deaths))
        results = executor.run(source, probe, blocks)
        if deaths > 3:
            with pytest.raises(BlockFailed, match=r"block \d \(chunk \d of fake.zarr\): failed 2 times.*KilledWorker"):
                list(results)
            assert len(list(tmp_path.iterdir())) <= 6 + 2  # the other worker may die of the next question already
        else:
            found = {result.block.index: result.summary.total.tobytes() for result in results}
            assert found == alone(source, probe, blocks)
            assert any("KilledWorker" in message and "tried again" in message for message in caplog.messages)
            assert not any("tried again alone" in message for message in caplog.messages)


@pytest.mark.specimens(2)
@pytest.mark.parametrize(
    "error",
    [
        CommClosedError("in <TCP (closed) ConnectionPool.scatter>: Stream is closed"),
        FutureCancelledError("ndarray-1", "lost dependencies"),
        ConnectionResetError(104, "Connection reset by peer"),
    ],
    ids=lambda error: type(error).__name__,
)
@pytest.mark.parametrize("times", [1, 4])
def test_what_breaks_while_the_scheduler_lives_is_no_loss_of_it(
    embedded: DaskExecutor, source: FakeSource, probe: Slow, blocks: tuple[Block, ...], monkeypatch: pytest.MonkeyPatch,
    error: Exception, times: int,
) -> None:  # fmt: skip
    """A broken connection or a cancelled block is sent again, and is in the end the failure of that block: never of
    the scheduler, which was asked and answers.
    """
    failed = fails_to_arrive(monkeypatch, 7, times, error)
    patient = DaskExecutor(embedded.client, policy=RetryPolicy(pause_s=0.01))
    if times == 1:
        found = {result.block.index: result.summary.total.tobytes() for result in patient.run(source, probe, blocks)}
        assert found == alone(source, probe, blocks)
    else:
        with pytest.raises(
            BlockFailed, match=rf"block 7 \(.*failed 4 times, the last time with: {type(error).__name__}"
        ):
            list(patient.run(source, probe, blocks))
    assert len(failed) == times


@pytest.mark.slow
def test_a_copy_that_fails_is_sent_again(crew: Crew, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Dask keeps what was meant for a worker until that is there again, which it never is: when the copy of such a
    block meets an error that heals, the block is sent again, and nobody waits for the first one.
    """
    source = FakeHandle().open_source()
    blocks = plan_blocks(source, 1)

    def struck() -> bool:
        if not (tmp_path / "begun").exists():
            return False
        (tmp_path / "over").touch()
        return crew.kill() == 2

    failed = fails_to_arrive(monkeypatch, 5, 2, ConnectionResetError(104, "Connection reset by peer"))
    crew.hire_when(struck, 2)
    patient = DaskExecutor(crew.client, policy=RetryPolicy(pause_s=0.05, overdue_s=3600.0))
    results = list(patient.run(source, Halted(folder=tmp_path), blocks))
    assert sorted(result.block.index for result in results) == list(range(len(blocks)))
    assert len(failed) == 2


@pytest.mark.slow
def test_nobody_comes_back(crew: Crew, source: FakeSource, probe: Slow, blocks: tuple[Block, ...]) -> None:
    """Without workers a scan waits as long as it was told, and RunError says that they, not the scheduler, are lost."""
    forsaken = DaskExecutor(crew.client, wait=WorkerWait(wait_s=1.0))
    results = forsaken.run(source, probe, blocks)
    next(results)
    crew.kill()
    for scan in (results, forsaken.run(source, probe, blocks)):
        with pytest.raises(RunError, match="no worker is left, and none came within 1.00 s"):
            list(scan)


@pytest.mark.slow
def test_workers_are_asked_for_when_none_is_left(
    crew: Crew, source: FakeSource, probe: Slow, blocks: tuple[Block, ...], caplog: pytest.LogCaptureFixture
) -> None:
    """Whoever started the workers is asked for new ones when the last one has gone, once."""

    def recruit() -> str:
        crew.hire(2)
        return "two more"

    executor = DaskExecutor(crew.client, wait=WorkerWait(restart=recruit, delay_s=0.2))
    found = {}
    for result in executor.run(source, probe, blocks):
        found[result.block.index] = result.summary.total.tobytes()
        if len(found) == 10:
            crew.kill()
    assert found == alone(source, probe, blocks)
    assert len(crew.workers) == 4
    assert caplog.messages.count("no worker is left: two more") == 1


@pytest.fixture
def store(tmp_path: Path) -> Store:
    """Rows of many features."""
    return wide_store(tmp_path / "rows.zarr")


@pytest.mark.slow
def test_a_job_whose_workers_are_killed_at_random(
    crew: Crew, store: Store, tmp_path: Path, rng: np.random.Generator
) -> None:
    """Workers are killed at sixteen moments of a job drawn by lot, one or all, and replaced: the model has the bits of
    one made in this process.
    """

    def harm() -> bool:
        dead = crew.kill(most=int(rng.integers(1, 3)))
        crew.hire(dead)
        return dead > 0

    moments = Moments(rng, 16, harm)
    assert trained(store, tmp_path / "m", crew.executor, moments) == trained_alone(store, tmp_path / "alone")
    assert moments.landed == 16
    assert crew.deaths() >= 16
