"""One conformance suite for every executor: a loop, threads, Dask in this process, Dask worker processes."""

from __future__ import annotations

import os
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path

import numpy as np
import pytest

from coremargin.engine import calls, cluster_scan, task
from coremargin.engine.calls import run_calls
from coremargin.engine.cluster_scan import RetryPolicy
from coremargin.engine.clusters.embedded import start_embedded
from coremargin.engine.dask_executor import DaskExecutor
from coremargin.engine.executors import InProcess
from coremargin.engine.loop import OutOfTime
from coremargin.engine.plan import plan_blocks
from coremargin.engine.protocols import Block, Executor
from coremargin.engine.scan import run_scan
from coremargin.errors import BlockFailed, DamagedChunk, UsageError
from scan_fakes import (
    BlasThreads,
    Buggy,
    Counted,
    Damaged,
    FakeHandle,
    FakeSource,
    Flaky,
    Greedy,
    Named,
    Narrowed,
    Slow,
    SumProbe,
    expected,
    slow_element,
)


@pytest.fixture(scope="session")
def dask_threads() -> Iterator[Executor]:
    """Dask on two threads of this process."""
    with start_embedded(workers=1, threads=2, processes=False) as executor:
        yield executor


@pytest.fixture
def source() -> FakeSource:
    """1,000 rows in 100 chunks."""
    return FakeHandle().open_source()


@pytest.fixture
def blocks(source: FakeSource) -> tuple[Block, ...]:
    """15 blocks of 7 chunks (the last of 2)."""
    return plan_blocks(source)


class Clock:
    """Stands in for the module ``time``; it goes as fast as the true one, but may be put forward."""

    def __init__(self) -> None:
        self.ahead_s = 0.0

    def monotonic(self) -> float:
        """Seconds."""
        return time.monotonic() + self.ahead_s


class ExecutorContract:
    """What every executor promises; subclasses give the fixture ``executor``."""

    def test_the_answer_is_the_fold_in_block_order(
        self, executor: Executor, source: FakeSource, blocks: tuple[Block, ...]
    ) -> None:
        """A scan returns, to the bit, what a plain loop over the blocks returns."""
        probe = SumProbe(np.array([1.0, 1e-9, 1e9]))
        assert run_scan(executor, source, probe, blocks).bits() == expected(source, probe, blocks).bits()

    def test_completion_order_does_not_matter(
        self, executor: Executor, source: FakeSource, blocks: tuple[Block, ...]
    ) -> None:
        """Blocks that complete out of order are merged in order."""
        assert run_scan(executor, source, Slow(), blocks).chunks == tuple(range(source.chunks))

    def test_results_say_what_a_block_cost(
        self, executor: Executor, source: FakeSource, blocks: tuple[Block, ...]
    ) -> None:
        """Each block is answered once, with its bytes, its seconds, its worker and that worker's memory."""
        results = list(executor.run(source, Slow(), blocks))
        assert sorted(result.block.index for result in results) == [block.index for block in blocks]
        assert sum(result.bytes_read for result in results) == pytest.approx(source.nbytes, abs=len(blocks))
        assert all(result.seconds > 0 and ":" in result.worker and result.rss_bytes > 2**20 for result in results)

    def test_they_say_whether_workers_find_what_this_machine_has_cached(
        self, executor: Executor, source: FakeSource, blocks: tuple[Block, ...]
    ) -> None:
        """All of these are here, which is known when some have answered."""
        run_scan(executor, source, SumProbe(), blocks)
        assert executor.local

    def test_probes_are_narrowed_to_each_block(
        self, executor: Executor, source: FakeSource, blocks: tuple[Block, ...]
    ) -> None:
        """What runs on a block is ``probe.narrow(block)``."""
        probe = Narrowed()
        assert run_scan(executor, source, probe, blocks).bits() == expected(source, probe, blocks).bits()

    def test_no_blocks(self, executor: Executor, source: FakeSource) -> None:
        """Scanning nothing answers nothing."""
        assert list(executor.run(source, SumProbe(), ())) == []
        assert run_scan(executor, source, SumProbe(), ()).bits() == SumProbe().empty().bits()

    def test_large_questions_arrive_unchanged(self, executor: Executor) -> None:
        """Arrays of any size reach the workers as they are, in scan after scan."""
        source = FakeHandle(rows=40, features=50_000, chunk_rows=5).open_source()
        for seed in (1, 2):
            weight = np.random.default_rng(seed).standard_normal(50_000)
            answers = [result.summary for result in executor.run(source, SumProbe(weight), plan_blocks(source))]
            total = np.sum([answer.total for answer in answers], axis=0)
            np.testing.assert_allclose(total, source.X.sum(axis=0, dtype=np.float64) * weight, rtol=1e-9, atol=1e-9)

    def test_blas_has_one_thread_in_a_block(
        self, executor: Executor, source: FakeSource, blocks: tuple[Block, ...]
    ) -> None:
        """BLAS is pinned to one thread while a probe runs."""
        assert {result.summary.total[0] for result in executor.run(source, BlasThreads(), blocks)} == {1.0}

    def test_damage_ends_the_scan_at_once(
        self, executor: Executor, source: FakeSource, blocks: tuple[Block, ...], tmp_path: Path
    ) -> None:
        """A DamagedChunk arrives as it was raised, after one try, with a note that names block, chunks and store."""
        tries = tmp_path / "tries"
        with pytest.raises(DamagedChunk, match="checksum differs") as caught:
            run_scan(executor, source, Damaged(block=3, tries=tries), blocks)
        assert tries.read_text() == "tried\n"
        assert "block 3 (chunks 21 to 27 of fake.zarr)" in "".join(caught.value.__notes__)

    def test_bugs_are_not_hidden(self, executor: Executor, source: FakeSource, blocks: tuple[Block, ...]) -> None:
        """An exception that is no CoremarginError arrives as it is, with the place as a note."""
        with pytest.raises(ZeroDivisionError, match="a bug") as caught:
            run_scan(executor, source, Buggy(), blocks)
        assert "block 2 (" in "".join(caught.value.__notes__)

    def test_a_hiccup_of_the_file_system_heals(
        self, executor: Executor, source: FakeSource, blocks: tuple[Block, ...], tmp_path: Path
    ) -> None:
        """Two OSErrors in a row change nothing in the answer."""
        probe = Flaky(folder=tmp_path, failures=2)
        assert run_scan(executor, source, probe, blocks).bits() == expected(source, probe, blocks).bits()
        assert len(list(tmp_path.iterdir())) == 2

    def test_a_lasting_failure_names_the_block(
        self,
        executor: Executor,
        source: FakeSource,
        blocks: tuple[Block, ...],
        tmp_path: Path,
    ) -> None:
        """OSErrors without end become BlockFailed, which names block, chunks and store."""
        with pytest.raises(BlockFailed, match=r"block 1 \(chunks 7 to 13 of fake.zarr\): reading failed"):
            run_scan(executor, source, Flaky(folder=tmp_path, failures=99), blocks)
        assert len(list(tmp_path.iterdir())) == len(task.RETRY_PAUSES_S) + 1

    def test_out_of_memory_names_the_block(
        self, executor: Executor, source: FakeSource, blocks: tuple[Block, ...]
    ) -> None:
        """MemoryError becomes BlockFailed with a hint."""
        with pytest.raises(BlockFailed, match=r"block 2 .*: out of memory: .*; use fewer workers and threads"):
            run_scan(executor, source, Greedy(), blocks)

    def test_closing_cancels_the_rest(self, executor: Executor, source: FakeSource, tmp_path: Path) -> None:
        """After the iterator is closed, blocks that had not started do not run."""
        many = tuple(Block(index, (index % source.chunks,)) for index in range(400))
        with closing(executor.run(source, Counted(folder=tmp_path), many)) as results:
            next(results)
        time.sleep(0.3)
        ran = len(list(tmp_path.iterdir()))
        time.sleep(0.3)
        assert len(list(tmp_path.iterdir())) == ran < 100

    def test_an_executor_lives_on_after_an_error(
        self, executor: Executor, source: FakeSource, blocks: tuple[Block, ...]
    ) -> None:
        """A scan after a failed scan gives the right answer."""
        with pytest.raises(ZeroDivisionError):
            run_scan(executor, source, Buggy(), blocks)
        assert run_scan(executor, source, SumProbe(), blocks).bits() == expected(source, SumProbe(), blocks).bits()

    def test_memory_is_watched(self, executor: Executor, source: FakeSource, blocks: tuple[Block, ...]) -> None:
        """The peak is at least what this process has, and never falls."""
        before = executor.peak_rss_bytes()
        run_scan(executor, source, SumProbe(), blocks)
        assert task.resident_bytes() // 2 < before <= executor.peak_rss_bytes()

    def test_plain_functions_run_as_tasks(self, executor: Executor) -> None:
        """Answers come in the order of the tasks, arguments of any size arrive as they are."""
        large = np.random.default_rng(3).standard_normal(50_000)
        tasks = [(large, place) for place in range(20)]
        assert run_calls(executor, slow_element, tasks) == large[:20].tolist()
        assert run_calls(executor, slow_element, []) == []

    def test_calls_can_be_ended_after_any_answer(self, executor: Executor) -> None:
        """What is called before and after each answer may raise, as a time limit does; the executor serves on."""
        seen: list[int] = []

        def until_third() -> None:
            seen.append(1)
            if len(seen) == 1 + min(3, executor.workers):
                raise OutOfTime

        tasks = [(np.arange(20), place) for place in range(20)]
        with pytest.raises(OutOfTime):
            run_calls(executor, slow_element, tasks, check=until_third)
        assert len(seen) == 1 + min(3, executor.workers)
        assert run_calls(executor, slow_element, tasks) == list(range(20))

    def test_a_task_that_fails_is_named(self, executor: Executor) -> None:
        """An exception of the function arrives as it is, with the number of its task."""
        with pytest.raises(IndexError) as caught:
            run_calls(executor, slow_element, [(np.zeros(2), place) for place in (0, 1, 7)])
        assert "task 2" in "".join(caught.value.__notes__)

    def test_of_many_tasks_the_one_that_fails_is_named(self, executor: Executor) -> None:
        """Where several travel as one, the number is still that of the task."""
        tasks = [(np.zeros(50), place if place != 40 else 99) for place in range(45)]
        with pytest.raises(IndexError) as caught:
            run_calls(executor, slow_element, tasks)
        assert "task 40 " in " ".join(caught.value.__notes__).replace(",", " ")

    def test_answers_come_in_the_order_of_the_blocks(
        self, executor: Executor, source: FakeSource, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        """Whatever ends first, answers come in order, each once; few blocks are asked while the first one waits."""
        monkeypatch.setattr(calls, "BLOCK_BYTES", source.nbytes // source.chunks)
        monkeypatch.setattr(calls, "_ROWS_AHEAD", 1)
        with closing(calls.map_blocks(executor, source, Named(tmp_path))) as answers:
            assert next(answers) == (0,)
            assert len(list(tmp_path.iterdir())) <= 2 * executor.workers
            assert [chunk for chunks in answers for chunk in chunks] == list(range(1, source.chunks))
        assert len(list(tmp_path.iterdir())) == source.chunks
        assert list(calls.map_blocks(executor, source, Named(tmp_path), [])) == []
        with pytest.raises(ZeroDivisionError):
            list(calls.map_blocks(executor, source, Buggy()))

    def test_people_can_read_what_runs(self, executor: Executor) -> None:
        """The description is one line, and there is at least one worker."""
        assert executor.description
        assert "\n" not in executor.description
        assert executor.workers >= 1


class TestInProcess(ExecutorContract):
    @pytest.fixture
    def executor(self) -> Iterator[Executor]:
        """A plain loop."""
        with InProcess() as executor:
            yield executor


class TestThreads(ExecutorContract):
    @pytest.fixture
    def executor(self) -> Iterator[Executor]:
        """Two threads."""
        with InProcess(threads=2) as executor:
            yield executor


class TestDaskInThisProcess(ExecutorContract):
    @pytest.fixture
    def executor(self, dask_threads: Executor) -> Executor:
        """Dask without processes."""
        return dask_threads


class TestDaskProcesses(ExecutorContract):
    @pytest.fixture
    def executor(self, embedded: Executor) -> Executor:
        """Two worker processes."""
        return embedded

    def test_blocks_run_elsewhere(self, executor: Executor, source: FakeSource, blocks: tuple[Block, ...]) -> None:
        """No block runs in the driver, and both workers take part."""
        workers = {result.worker for result in executor.run(source, Slow(), blocks)}
        assert len(workers) == 2
        assert task.worker_name() not in workers

    def test_memory_of_workers_counts(self, executor: Executor, source: FakeSource, blocks: tuple[Block, ...]) -> None:
        """The peak is the driver's and the workers' memory together."""
        results = list(executor.run(source, Slow(), blocks))
        workers = {result.worker: result.rss_bytes for result in results}
        assert executor.peak_rss_bytes() >= sum(workers.values()) + task.resident_bytes() // 2

    @pytest.mark.slow
    def test_a_driver_that_takes_its_time_is_not_a_worker_that_hangs(
        self, executor: Executor, source: FakeSource, caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        """Results that wait for the driver do not count as overdue: no block is sent twice."""
        clock = Clock()
        monkeypatch.setattr(cluster_scan, "time", clock)
        patient = DaskExecutor(executor.client, policy=RetryPolicy(overdue_s=60))
        for result in patient.run(source, SumProbe(), plan_blocks(source, 1)):
            if result.block.index == 0:
                time.sleep(3)  # meanwhile what is in flight arrives
                clock.ahead_s = 100.0
        assert not [record for record in caplog.records if "sent to another worker" in record.message]

    def test_questions_of_a_script_travel_by_value(self, executor: Executor, source: FakeSource) -> None:
        """A probe whose class no worker can import is sent with its code."""
        members = {"__module__": "__main__", "__call__": lambda self, rows, block: block.index}
        Local = type("Local", (SumProbe,), members)
        assert [result.summary for result in executor.run(source, Local(), [Block(4, (0,))])] == [4]


def test_threads_must_be_positive() -> None:
    """InProcess refuses zero threads."""
    with pytest.raises(UsageError, match="threads: expected at least 1, got 0"):
        InProcess(0)


def test_libraries_that_come_later_are_on_one_thread_too() -> None:
    """A BLAS that is loaded between two contexts has one thread in the second, and its own number again after it."""
    code = """
import threadpoolctl
from coremargin.blas import one_blas_thread

def threads():
    return {each["filepath"]: each["num_threads"] for each in threadpoolctl.threadpool_info()}

with one_blas_thread():
    first = threads()
import scipy.linalg
before = threads()
with one_blas_thread():
    second = threads()
print(len(second) > len(first), set(first.values()) | set(second.values()), threads() == before)
"""
    done = subprocess.run(
        [sys.executable, "-c", code], env=os.environ | {"OPENBLAS_NUM_THREADS": "2"}, capture_output=True, text=True,
        check=True,
    )  # fmt: skip
    if done.stdout.startswith("False"):
        pytest.skip("NumPy and SciPy share one BLAS")
    assert done.stdout == "True {1} True\n"
