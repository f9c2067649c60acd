"""The loop that serves every problem: solve small, verify big.

::

    state = problem.start()                                     solve on a sample
    until problem.done(state):
        state = problem.work(state)                             where a problem has long solves: step by step
        summary = scan(problem.probe(state))                    verify on all rows
        state = problem.update(state, summary)                  bounds, pool, exact pool solve
        yield the round
"""

from __future__ import annotations

import math
import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from functools import partial
from typing import TYPE_CHECKING, Any

from coremargin.engine.calls import run_calls
from coremargin.engine.interruption import raise_if_interrupted
from coremargin.engine.plan import plan_blocks
from coremargin.engine.problem import Works
from coremargin.engine.scan import run_scan
from coremargin.engine.task import block_bytes

if TYPE_CHECKING:
    from coremargin.data.source import Source
    from coremargin.engine.checkpoint import Checkpoint
    from coremargin.engine.problem import Problem
    from coremargin.engine.protocols import Block, BlockResult, Executor, Probe, Summary


@dataclass(frozen=True)
class ScanCost:
    """What one scan read and how long it and the solve after it took."""

    chunks: int
    chunks_read: int
    bytes_read: int
    seconds: float
    solve_seconds: float


def nothing(*_: object) -> None:
    """Nobody wants to know."""


@dataclass
class Watch:
    """Who wants to know: called when a scan starts (round, bytes it will read) and when a block is done."""

    on_scan: Callable[[int, int], None] = nothing
    on_block: Callable[[BlockResult], None] = nothing


class OutOfTime(Exception):
    """The job's time limit is reached."""


@dataclass(frozen=True)
class Engine:
    """Where scans run and what they remember."""

    source: Source
    executor: Executor
    checkpoint: Checkpoint
    watch: Watch
    block_bytes: int
    deadline: float = math.inf  #: on the clock of ``time.perf_counter``

    def scan(self, problem: Problem, probe: Probe, blocks: Sequence[Block]) -> tuple[Summary, list[Block]]:
        """The merged answer, and the blocks it is about: all of them, or as many as were enough."""
        step = self.executor.workers if problem.eager else max(1, len(blocks))
        answer = probe.empty()
        read: list[Block] = []
        for first in range(0, len(blocks), step):
            part = blocks[first : first + step]
            known = self.checkpoint.known(probe)
            answer = answer.merge(
                run_scan(self.executor, self.source, probe, part, done=known, on_block=self._block_done)
            )
            read += part
            if problem.enough(answer):
                break
        return answer, read

    def _block_done(self, result: BlockResult) -> None:
        self.checkpoint.block_done(result)
        self.watch.on_block(result)
        self.check_time()

    def check_time(self) -> None:
        """Raise OutOfTime when the job's time is over, KeyboardInterrupt when it was asked to end."""
        raise_if_interrupted()
        if time.perf_counter() >= self.deadline:
            raise OutOfTime


def number_of(problem: Problem, state: Any) -> int:
    """The number of the next scan; of one that is made in parts, that of the whole."""
    told = problem.figures(state)
    return int(told["scan"]) + (told["part"] == 0) if "scan" in told else int(state.round) + 1


def rounds(
    engine: Engine, problem: Problem, state: Any, most_scans: int | None = None
) -> Iterator[tuple[Any, ScanCost | None]]:
    """Scan and update until the problem is done; the state and the cost after each scan.

    Where a problem works long between scans, also the states on the way, without a cost. most_scans: so many are
    finished at most; one that is made in parts is finished with its last.
    """
    scans = 0
    while not problem.done(state):
        if isinstance(problem, Works):
            for step in problem.work(state, partial(run_calls, engine.executor)):
                raise_if_interrupted()
                state = step
                yield state, None
        if problem.done(state) or scans == most_scans:
            return
        started = time.perf_counter()
        engine.checkpoint.scan_begins(state)
        probe, skip = problem.probe(state), problem.skip(state)
        blocks = plan_blocks(engine.source, engine.block_bytes, skip=skip)
        unread = engine.checkpoint.missing(blocks)
        engine.watch.on_scan(number_of(problem, state), sum(block_bytes(engine.source, block) for block in unread))
        summary, read = engine.scan(problem, probe, blocks)
        scanned = time.perf_counter()
        before = state.sample_bytes
        state = problem.update(state, summary)
        scans += not problem.figures(state).get("part")
        yield (
            state,
            ScanCost(
                chunks=engine.source.chunks,
                chunks_read=sum(len(block.chunks) for block in read),
                bytes_read=sum(block_bytes(engine.source, block) for block in read) + state.sample_bytes - before,
                seconds=scanned - started,
                solve_seconds=time.perf_counter() - scanned,
            ),
        )
