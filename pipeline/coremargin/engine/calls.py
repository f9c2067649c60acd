"""Plain functions as tasks: work for the workers that reads no rows, or reads rows and is not merged.

Both are sent like the probes of a scan, as tasks over blocks; blocks of calls have no chunks. So the code of scans
retries and cancels them, pins them to one BLAS thread, and sends their large arrays once.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from contextlib import closing
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, NoReturn, TypeVar, cast

from coremargin.engine.plan import plan_blocks
from coremargin.engine.protocols import Block, BlockResult
from coremargin.engine.task import task_name
from coremargin.errors import UsageError

if TYPE_CHECKING:
    from collections.abc import Generator

    import numpy as np

    from coremargin.data.source import Source
    from coremargin.engine.protocols import Executor, Probe

T = TypeVar("T")

#: Bytes of rows in a block of ``map_blocks``; whole chunks, at least one.
BLOCK_BYTES = 16 * 2**20
#: Rows whose results may wait for an earlier one; at least two blocks per worker.
_ROWS_AHEAD = 1 << 24
#: Blocks per worker in a group, at whose end the driver waits for the last one.
_PER_WORKER = 16


def run_calls(
    executor: Executor,
    function: Callable[..., Any],
    tasks: Sequence[tuple[Any, ...]],
    check: Callable[[], None] | None = None,
) -> list[Any]:
    """``function(*task)`` for every task, on the workers; the results in the order of the tasks.

    If sending a task is expensive, several are sent as one. check: called before, and after each. Raises what it and
    ``Executor.run`` raise; an exception of the function is raised unchanged, with the task's number as a note.
    """
    if check is not None:
        check()
    if not tasks:
        return []
    most = executor.most_calls
    groups = len(tasks) if most is None else min(len(tasks), most)
    source, probe = cast("Source", _NoRows()), cast("Probe", _Calls(function, tuple(tasks), groups))
    answers: list[Any] = [None] * len(tasks)
    run = executor.run(source, probe, [Block(index, ()) for index in range(groups)])
    with closing(cast("Generator[BlockResult, None, None]", run)) as results:
        for result in results:
            answers[result.block.index :: groups] = result.summary
            if check is not None:
                check()
    return answers


def map_blocks(
    executor: Executor, source: Source, function: Callable[[Source, Block], T], blocks: Sequence[Block] | None = None
) -> Generator[T, None, None]:
    """``function(source, block)`` of every block, on the workers; the results in the order of the blocks.

    For results that are used one after the other instead of merged. blocks: None takes all chunks. Blocks are sent in
    groups, so that few results wait for an earlier one in stores of any size. Raises what ``Executor.run`` raises.
    """
    blocks = plan_blocks(source, BLOCK_BYTES) if blocks is None else blocks
    largest = max((_rows(source, block) for block in blocks), default=1)
    group = executor.workers * min(_PER_WORKER, max(2, _ROWS_AHEAD // (largest * executor.workers)))
    probe = cast("Probe", _UnmergedProbe(function))
    for first in range(0, len(blocks), group):
        group_blocks = blocks[first : first + group]
        waiting: dict[int, T] = {}
        due = iter(group_blocks)
        expected = next(due, None)
        with closing(cast("Generator[BlockResult, None, None]", executor.run(source, probe, group_blocks))) as results:
            for result in results:
                waiting[result.block.index] = result.summary
                while expected is not None and expected.index in waiting:
                    yield waiting.pop(expected.index)
                    expected = next(due, None)


def _rows(source: Source, block: Block) -> int:
    return sum(stop - start for start, stop in map(source.span, block.chunks))


class _NoRows:
    """The source of tasks that read no rows; it is its own handle."""

    name, rows, nbytes = "no store", 0, 0

    def span(self, chunk: int) -> NoReturn:
        raise UsageError(f"chunk {chunk}: tasks read no rows")

    def handle(self) -> _NoRows:
        return self

    def open_source(self) -> _NoRows:
        return self


@dataclass(frozen=True)
class _Group:
    """Every ``step``-th of the tasks."""

    function: Callable[..., Any]
    tasks: tuple[tuple[Any, ...], ...]
    step: int

    def __call__(self, source: Source, block: Block) -> list[Any]:
        answers = []
        for place, task in enumerate(self.tasks):
            try:
                answers.append(self.function(*task))
            except Exception as error:
                if len(self.tasks) > 1:
                    error.add_note(f"in task {block.index + place * self.step} of those that were sent together")
                raise
        return answers


@dataclass(frozen=True)
class _Calls:
    """All tasks, in ``groups`` groups, one for each block."""

    function: Callable[..., Any]
    tasks: tuple[tuple[Any, ...], ...]
    groups: int

    @property
    def task_name(self) -> str:
        return task_name(self.function, "call")

    def narrow(self, block: Block) -> _Group:
        return _Group(self.function, self.tasks[block.index :: self.groups], self.groups)

    def empty(self) -> NoReturn:
        raise UsageError("tasks have no summaries; take their results from run_calls")

    def from_arrays(self, arrays: Mapping[str, np.ndarray]) -> NoReturn:
        self.empty()


@dataclass(frozen=True)
class _UnmergedProbe:
    """A function of all blocks, whose results are not merged."""

    function: Callable[[Source, Block], Any]

    @property
    def task_name(self) -> str:
        return task_name(self.function)

    def narrow(self, block: Block) -> _UnmergedProbe:
        return self

    def __call__(self, source: Source, block: Block) -> Any:
        return self.function(source, block)

    def empty(self) -> NoReturn:
        raise UsageError("these results have no summaries; take them from map_blocks")

    def from_arrays(self, arrays: Mapping[str, np.ndarray]) -> NoReturn:
        self.empty()
