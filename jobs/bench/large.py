"""(j) Stores of terabytes: what a proof costs the driver, by the real loop, executor, block bounds, checkpoints.

The rows are made from a seed (made.py), and only those that settle the answers (made_answers.py): what is measured is
the driver. As a script it is one such job, in a process of its own::

    python jobs/bench/large.py 10 [--cluster embedded]      10 TB
"""

from __future__ import annotations

import argparse
import json
import os
import time
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import TYPE_CHECKING, Any

from made import Made
from made_answers import MadeMargin
from measure import run_process, script_command
from table import Group, Row

from coremargin.engine.checkpoint import Checkpoint
from coremargin.engine.clusters.connect import connect
from coremargin.engine.clusters.specs import Embedded, Threads
from coremargin.engine.task import high_water_bytes
from coremargin.learn.train import Progress, run_problem
from coremargin.problems.registry import new_job
from coremargin.spec import format_size

if TYPE_CHECKING:
    from stores import Settings

    from coremargin.engine.protocols import Block, BlockResult, Executor, Probe

FEATURES, TB = 100, 10**12
CLUSTERS = {"threads": Threads(threads=1), "embedded": Embedded(workers=1, threads=1)}
WORKER_BYTES_PER_S = 10**9  #: what a worker reads and asks, where we say how many a driver keeps busy


@dataclass
class Watched:
    """An executor that counts its tasks."""

    inner: Executor
    tasks: int = 0

    @property
    def local(self) -> bool:
        """Of the executor."""
        return self.inner.local

    @property
    def workers(self) -> int:
        """Of the executor."""
        return self.inner.workers

    @property
    def description(self) -> str:
        """Of the executor."""
        return self.inner.description

    def peak_rss_bytes(self) -> int:
        """Of the executor."""
        return self.inner.peak_rss_bytes()

    def run(self, source: Any, probe: Probe, blocks: Sequence[Block]) -> Iterator[BlockResult]:
        """Results, counted."""
        for result in self.inner.run(source, probe, blocks):
            self.tasks += 1
            yield result


class Written(Checkpoint):
    """A checkpoint that counts: times, bytes and seconds."""

    saves, written, spent = 0, 0, 0.0

    def save(self) -> None:
        """Write, and count."""
        started = time.process_time()
        super().save()
        self.spent += time.process_time() - started
        self.saves += 1

    def _write(self, name: str, arrays: Any) -> None:
        super()._write(name, arrays)
        self.written += (self.folder / name).stat().st_size


def one_job(terabytes: float, cluster: str, epsilon: float) -> dict[str, Any]:
    """Train on a made store and say what it cost this process, the driver."""
    source = Made(round(terabytes * TB / (4 * FEATURES + 4)), FEATURES).open_source()
    with TemporaryDirectory(prefix="coremargin-large-") as folder, connect(CLUSTERS[cluster], None) as inner:
        job = new_job(store=Path(source.name), out=Path(folder) / "model", epsilon=epsilon)
        problem, executor = MadeMargin(source, job.epsilon, working_set_bytes=job.memory_bytes), Watched(inner)
        before, started = time.process_time(), time.perf_counter()
        with Written(job.out, {}) as checkpoint:
            done = run_problem(job, problem, executor, checkpoint, Progress())  # type: ignore[arg-type]
            wall, cpu = time.perf_counter() - started, time.process_time() - before
            checkpoint.save()
        return {
            "status": done.model.status, "read": done.run["bytes_read"] / source.nbytes, "wall": wall,
            "cpu": cpu - source.answering_s, "tasks": executor.tasks,
            "solves": sum(line["solve_seconds"] for line in done.rounds), "saves": checkpoint.saves,
            "written": checkpoint.written, "saving": checkpoint.spent, "chunks": source.chunks,
            "centres": source.asked_bytes, "record": len(json.dumps(done.rounds)),
            "peak_bytes": high_water_bytes(os.getpid()),  # ru_maxrss begins with that of whoever started this process
        }  # fmt: skip


def large(settings: Settings) -> list[Group]:
    """Jobs of each size, in this process's stead and on a cluster of one worker process."""
    group = Group("j", f"made stores of {FEATURES} features, float32, {os.cpu_count()} cores: what the driver needs")
    for terabytes in settings.terabytes:
        for cluster in CLUSTERS:
            words = (terabytes, "--cluster", cluster, "--epsilon", settings.epsilon)
            found = run_process(script_command("large.py", *words)).answer
            group.rows.append(_row(terabytes, cluster, found))
    group.notes += [
        "seconds: CPU time of the driver's process without the answers of blocks; peak memory: of that process",
        f"workers: of {WORKER_BYTES_PER_S / 1e9:g} GB/s each, that would be busy all the time with a driver that is",
        "not measured: reading (rows and statistics are made), the network between machines",
    ]
    return [group]


def _row(terabytes: float, cluster: str, found: dict[str, Any]) -> Row:
    busy = terabytes * TB * found["read"] / WORKER_BYTES_PER_S / found["cpu"]
    what = "in process" if cluster == "threads" else "Dask, one worker"
    note = (
        f"{found['chunks']:,} chunks, {found['tasks']:,} tasks; updates {found['solves']:.1f} s; "
        f"{found['saves']} checkpoints, {format_size(found['written'])}, {found['saving']:.1f} s; "
        f"centres {format_size(found['centres'])}; {busy:,.0f} workers; {found['status']}"
    )
    return Row(
        f"{terabytes:g} TB, {what}", seconds=found["cpu"], whole=found["wall"], read=found["read"],
        memory=found["peak_bytes"], note=note,
    )  # fmt: skip


def main(argv: Sequence[str] | None = None) -> None:
    """Run one job and print one JSON object."""
    parser = argparse.ArgumentParser(description="What a proof about a store of terabytes costs the driver.")
    parser.add_argument("terabytes", type=float)
    parser.add_argument("--cluster", choices=tuple(CLUSTERS), default="threads")
    parser.add_argument("--epsilon", type=float, default=1e-3)
    args = parser.parse_args(argv)
    print(json.dumps(one_job(args.terabytes, args.cluster, args.epsilon)))


if __name__ == "__main__":
    main()
