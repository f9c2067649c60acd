"""(r) A thousand worker threads: how many of them a driver keeps busy, and what a task costs it.

The workers are real ``distributed.Worker``s, many in a process, whose tasks sleep instead of reading rows; driver and
scheduler share a process, whose CPU time is what a task costs. As a script it is one such scan::

    python jobs/bench/slots.py [--way scan|map] [--workers 200] [--threads 5] [--blocks 4253] [--seconds 2.35]
"""

from __future__ import annotations

import argparse
import asyncio
import json
import subprocess
import sys
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import dask
from distributed import Client, LocalCluster, Worker, as_completed
from measure import run_process, script_command
from table import Group, Row

from coremargin.engine.clusters.local_cluster import settings as cluster_settings
from coremargin.engine.dask_executor import DaskExecutor
from coremargin.engine.plan import LARGEST_BLOCK_BYTES, plan_blocks
from coremargin.engine.protocols import Block

if TYPE_CHECKING:
    from stores import Settings

PROCESSES = 2  #: of this machine, with all workers
WAYS = {"scan": "a scan", "map": "Client.map of the same"}


@dataclass(frozen=True)
class NoRows:
    """A source of chunks without rows, two in a block; it is its own handle."""

    chunks: int
    name = "made.zarr"
    rows = chunk_rows = 1

    @property
    def nbytes(self) -> int:
        """Bytes of which a block may have no more than two chunks."""
        return self.chunks * LARGEST_BLOCK_BYTES // 2

    def span(self, chunk: int) -> tuple[int, int]:
        """No rows."""
        return chunk, chunk

    def handle(self) -> NoRows:
        """Itself."""
        return self

    def open_source(self) -> NoRows:
        """Itself."""
        return self


@dataclass(frozen=True)
class Sleep:
    """Takes a while for a chunk."""

    seconds: float

    def narrow(self, block: Block) -> Sleep:
        """The same."""
        return self

    def __call__(self, source: NoRows, block: Block) -> int:
        """Its first chunk."""
        time.sleep(self.seconds * len(block.chunks))
        return block.chunks[0]


def sleep_block(probe: Sleep, source: NoRows, block: Block) -> int:
    """What ``Client.map`` calls."""
    return probe(source, block)


async def serve(address: str, workers: int, threads: int) -> None:
    """Run workers in this process until their scheduler ends."""
    async with asyncio.TaskGroup() as group:
        for _ in range(workers):
            group.create_task(_serve_one(address, threads))


async def _serve_one(address: str, threads: int) -> None:
    async with Worker(address, nthreads=threads, memory_limit=0, dashboard=False, death_timeout=30) as worker:
        await worker.finished()


@contextmanager
def many_workers(workers: int, threads: int) -> Iterator[Client]:
    """A client whose scheduler is in this process, with workers in two others."""
    with dask.config.set(cluster_settings(300.0)), LocalCluster(
        n_workers=0, host="127.0.0.1", dashboard_address="127.0.0.1:0", scheduler_kwargs={"dashboard": False},
        silence_logs=50,
    ) as cluster, Client(cluster, set_as_default=False) as client:  # fmt: skip
        shares = [workers // PROCESSES + (k < workers % PROCESSES) for k in range(PROCESSES)]
        words = [sys.executable, __file__, "--serve", cluster.scheduler_address, "--threads", str(threads)]
        hosts = [
            subprocess.Popen([*words, "--workers", str(share)], stderr=subprocess.DEVNULL) for share in shares if share
        ]
        try:
            client.wait_for_workers(workers, timeout=300)
            yield client
        finally:
            client.shutdown()
            for host in hosts:
                host.terminate()
                host.wait()


def one_scan(way: str, workers: int, threads: int, blocks: int, seconds: float) -> dict[str, Any]:
    """Scan and say what it cost this process, driver and scheduler together."""
    source, probe = NoRows(2 * blocks), Sleep(seconds / 2)
    planned = plan_blocks(source)  # type: ignore[arg-type]
    with many_workers(workers, threads) as client:
        wall, cpu, own = time.perf_counter(), time.process_time(), time.thread_time()
        if way == "map":
            planned = tuple(Block(index, (2 * index, 2 * index + 1)) for index in range(blocks))
            futures = client.map(sleep_block, [probe] * blocks, [source] * blocks, planned, pure=False)
            found = [answer for _, answer in as_completed(futures, loop=client.loop, with_results=True)]
        else:
            results = DaskExecutor(client).run(source, probe, planned)  # type: ignore[arg-type]
            found = [result.summary for result in results]
        wall, cpu, own = time.perf_counter() - wall, time.process_time() - cpu, time.thread_time() - own
    if sorted(found) != [block.chunks[0] for block in planned]:
        raise RuntimeError("some blocks were not done, or twice")
    threads *= workers
    return {
        "wall": wall, "cpu": cpu, "tasks": len(planned), "busy": blocks * seconds / (wall * threads),
        "cpu_ms": 1e3 * cpu / len(planned), "driver_ms": 1e3 * own / len(planned),
        "whole": blocks / threads / -(-blocks // threads),
    }  # fmt: skip


def slots(settings: Settings) -> list[Group]:
    """A scan and, for comparison, the same tasks by ``Client.map``."""
    workers, threads, blocks, seconds = settings.slots
    title = f"{workers * threads:,} worker threads, whose tasks sleep {seconds:g} s for each of {blocks:,} blocks"
    group = Group("r", f"{title}; driver and scheduler in one process")
    for way, what in WAYS.items():
        words = ("--way", way, "--workers", workers, "--threads", threads, "--blocks", blocks, "--seconds", seconds)
        found = run_process(script_command("slots.py", *words)).answer
        rate = found["tasks"] / found["wall"]
        cost = f"{found['cpu_ms']:.2f} ms CPU, {found['driver_ms']:.2f} in the driver's thread"
        note = f"{found['busy']:.0%} busy; {found['tasks']:,} tasks of {cost}; {rate:.0f} tasks/s"
        group.rows.append(Row(what, seconds=found["wall"], note=note))
    group.notes.append(
        f"busy: share of the threads' time that tasks took; at best {found['whole']:.0%} without smaller blocks at the "
        f"end. The workers share this machine's cores with driver and scheduler"
    )
    return [group]


def main(argv: Sequence[str] | None = None) -> None:
    """Run one scan and print one JSON object."""
    parser = argparse.ArgumentParser(description="How many worker threads a driver keeps busy.")
    parser.add_argument("--way", choices=tuple(WAYS), default="scan")
    parser.add_argument("--workers", type=int, default=200)
    parser.add_argument("--threads", type=int, default=5)
    parser.add_argument("--blocks", type=int, default=4253)
    parser.add_argument("--seconds", type=float, default=2.35)
    parser.add_argument("--serve", metavar="ADDRESS", help="run workers of this scheduler")
    args = parser.parse_args(argv)
    if args.serve:
        asyncio.run(serve(args.serve, args.workers, args.threads))
    else:
        print(json.dumps(one_scan(args.way, args.workers, args.threads, args.blocks, args.seconds)))


if __name__ == "__main__":
    main()
