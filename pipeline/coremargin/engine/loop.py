"""The loop of every problem: solve on a working set, verify on all rows.

::

    state = problem.start()                                     solve on a sample
    until problem.done(state):
        state = problem.answered(state, labels)                 if a problem queries labels
        state = problem.work(state)                             if a problem has long solves: step by step
        summary = scan(problem.probe(state))                    verify on all rows
        state = problem.update(state, summary)                  bounds, working set, exact solve
        yield the step
"""

from __future__ import annotations

import math
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass, replace
from functools import partial
from typing import TYPE_CHECKING, Any, Generic, TypeAlias

from coremargin.engine.calls import run_calls
from coremargin.engine.plan import plan_blocks, read_of_parts
from coremargin.engine.problem import QueriesLabels, S, WorksBetweenScans
from coremargin.engine.read_ahead import reading_ahead
from coremargin.engine.scan import run_scan
from coremargin.engine.task import block_bytes
from coremargin.errors import BadRow, LabelError, OutputError, UsageError
from coremargin.interruption import raise_if_interrupted
from coremargin.maths.breakdown import BREAKDOWNS

if TYPE_CHECKING:
    from coremargin.data.source import Source
    from coremargin.engine.checkpoint import Checkpoint
    from coremargin.engine.problem import AnyProblem, NextScan, Problem, Round
    from coremargin.engine.protocols import Block, BlockResult, Executor, Probe, Summary


@dataclass(frozen=True)
class ScanCost:
    """The reads of one scan, and the time of the scan and of the solve after it."""

    chunks: int
    chunks_read: int
    bytes_read: int
    seconds: float
    solve_seconds: float
    where: tuple[int, ...] = ()  #: chunks read by part of the store (``read_of_parts``); empty if all or unknown


def nothing(*_: object) -> None:
    """Do nothing."""


@dataclass(frozen=True)
class Step(Generic[S]):
    """A state to continue from, and its report. cost: None for steps between scans."""

    state: S
    round: Round
    cost: ScanCost | None = None


@dataclass
class Callbacks:
    """Functions to call when a scan or stage starts (its number, the bytes to read) and when a block is done."""

    on_scan: Callable[[NextScan, int], None] = nothing
    on_block: Callable[[BlockResult], None] = nothing


class OutOfTime(Exception):
    """The job's time limit is reached."""


#: Returns labels by row id of some of the queried rows; nothing if none is known.
Answer: TypeAlias = Callable[[Sequence[int]], Mapping[int, Any]]


def no_labels(_: Sequence[int]) -> Mapping[int, Any]:
    """No label is known."""
    return {}


@dataclass(frozen=True)
class Engine:
    """The source, executor, checkpoint and limits of a job's scans."""

    source: Source
    executor: Executor
    checkpoint: Checkpoint
    callbacks: Callbacks
    block_bytes: int
    deadline: float = math.inf  #: on the clock of ``time.perf_counter``
    answer: Answer = no_labels  #: returns the labels that a problem queries
    held: Callable[[], frozenset[int]] = frozenset  #: returns the chunks in memory, which need not be read
    most_ahead: int = 0  #: bytes that are fetched while the driver solves

    def scan(self, problem: AnyProblem, probe: Probe, blocks: Sequence[Block]) -> tuple[Summary, list[Block]]:
        """The merged summary, and its blocks: all of them, or as many as were enough."""
        step = self.executor.workers if problem.eager else max(1, len(blocks))
        summary = probe.empty()
        read: list[Block] = []
        known = self.checkpoint.known(probe)
        for first in range(0, len(blocks), step):
            part = blocks[first : first + step]
            summary = summary.merge(
                run_scan(self.executor, self.source, probe, part, done=known, on_block=self._block_done)
            )
            read += part
            if problem.enough(summary):
                break
        return summary, read

    def ahead(self, problem: AnyProblem, state: Any, held: frozenset[int]) -> list[int]:
        """Chunks to fetch into the page cache during the update after a scan, if workers run on this machine."""
        return [chunk for chunk in problem.ahead(state).tolist() if chunk not in held] if self.executor.local else []

    def _block_done(self, result: BlockResult) -> None:
        self.checkpoint.block_done(result)
        self.callbacks.on_block(result)
        self.check_time()

    def check_time(self) -> None:
        """Raise OutOfTime when the job's time is over, KeyboardInterrupt when it was interrupted."""
        raise_if_interrupted()
        if time.perf_counter() >= self.deadline:
            raise OutOfTime


def rounds(engine: Engine, problem: Problem[S, Any], state: S, most_scans: int | None = None) -> Iterator[Step[S]]:
    """Scan and update until the problem is done; yields a step after each scan or stage.

    Problems that work between scans or query labels yield steps there, too; without new labels the iteration ends.
    most_scans: the largest number of finished scans.
    """
    scans, made = 0, problem.round_of(state)
    while not problem.done(state):
        for after in _steps_before_scan(engine, problem, state):
            state, made = after, problem.round_of(after)
            yield Step(state, made)
        if problem.done(state) or scans == most_scans or _unanswered(problem, state):
            return
        started = time.perf_counter()
        engine.checkpoint.scan_begins(state)
        probe, skip = problem.probe(state), problem.skip(state)
        blocks = plan_blocks(engine.source, engine.block_bytes, skip=skip)
        unread = engine.checkpoint.missing(blocks)
        held = engine.held()
        engine.callbacks.on_scan(made.next_scan, sum(block_bytes(engine.source, block) for block in unread))
        with _discard_if_raised(engine.checkpoint, BadRow, LabelError):
            summary, read = engine.scan(problem, probe, blocks)
        scanned = time.perf_counter()
        before = state.sample_bytes
        with reading_ahead(engine.source, engine.ahead(problem, state, held), engine.most_ahead):
            try:
                with _discard_if_raised(engine.checkpoint, BadRow, LabelError, UsageError):
                    state = problem.update(state, summary)
            except BREAKDOWNS:
                state = problem.broken(state)
        solved = time.perf_counter()
        made = problem.round_of(state)
        scans += made.finished
        cost = ScanCost(
            chunks=engine.source.chunks,
            chunks_read=sum(len(block.chunks) for block in read),
            bytes_read=_bytes_of(engine.source, read, held) + state.sample_bytes - before,
            seconds=scanned - started,
            solve_seconds=solved - scanned,
            where=read_of_parts(read, engine.source.chunks),
        )
        yield Step(state, made, cost)


@contextmanager
def _discard_if_raised(checkpoint: Checkpoint, *refusals: type[Exception]) -> Iterator[None]:
    """A problem that refuses the rows or options of a job would refuse them again: there is nothing to resume."""
    try:
        yield
    except refusals:
        with suppress(OutputError):  # the refusal is the error to report
            checkpoint.discard()
        raise


def _bytes_of(source: Source, blocks: Sequence[Block], held: frozenset[int]) -> int:
    """Bytes read for these blocks, without chunks that were in memory before."""
    unread = (replace(block, chunks=tuple(set(block.chunks) - held)) for block in blocks)
    return sum(block_bytes(source, block) for block in unread)


def _steps_before_scan(engine: Engine, problem: Problem[S, Any], state: S) -> Iterator[S]:
    """The states between two scans, or before the first."""
    if isinstance(problem, QueriesLabels):
        while questions := problem.questions(state):
            labels = engine.answer(questions)
            if not labels:
                return
            state = problem.answered(state, labels)
            yield state
    if isinstance(problem, WorksBetweenScans):
        try:
            with _discard_if_raised(engine.checkpoint, BadRow, LabelError):
                for step in problem.work(state, partial(run_calls, engine.executor, check=engine.check_time)):
                    raise_if_interrupted()
                    state = step
                    yield step
        except BREAKDOWNS:
            yield problem.broken(state)


def _unanswered(problem: AnyProblem, state: Any) -> bool:
    return isinstance(problem, QueriesLabels) and len(problem.questions(state)) > 0
