"""Plain functions as tasks: what is worth the workers' time without reading a row.

Tasks travel as the questions of a scan do, over blocks without chunks: so they are retried, cancelled, pinned to one
BLAS thread and their large arrays sent once, by the very code that does it for scans.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, NoReturn, cast

from coremargin.errors import UsageError
from coremargin.scan.protocols import Block

if TYPE_CHECKING:
    import numpy as np

    from coremargin.data.source import Source
    from coremargin.scan.protocols import Executor, Probe


def run_calls(executor: Executor, function: Callable[..., Any], tasks: Sequence[tuple[Any, ...]]) -> list[Any]:
    """``function(*task)`` for every task, on the workers; the answers in the order of the tasks.

    Raises what ``Executor.run`` raises; an exception of the function arrives as it is, with the task's number.
    """
    blocks = [Block(index, ()) for index in range(len(tasks))]
    source, probe = cast("Source", _Nothing()), cast("Probe", _Calls(function, tuple(tasks)))
    answers = {result.block.index: result.summary for result in executor.run(source, probe, blocks)}
    return [answers[index] for index in range(len(tasks))]


class _Nothing:
    """The source of tasks that read no rows; its own handle."""

    name, rows, nbytes = "no store", 0, 0

    def span(self, chunk: int) -> NoReturn:
        raise UsageError(f"chunk {chunk}: tasks read no rows")

    def handle(self) -> _Nothing:
        return self

    def open_source(self) -> _Nothing:
        return self


@dataclass(frozen=True)
class _Call:
    function: Callable[..., Any]
    task: tuple[Any, ...]

    def __call__(self, source: Source, block: Block) -> Any:
        return self.function(*self.task)


@dataclass(frozen=True)
class _Calls:
    """All tasks; each block is sent its own."""

    function: Callable[..., Any]
    tasks: tuple[tuple[Any, ...], ...]

    def narrow(self, block: Block) -> _Call:
        return _Call(self.function, self.tasks[block.index])

    def empty(self) -> NoReturn:
        raise UsageError("tasks have answers, no summaries; take them from run_calls")

    def from_arrays(self, arrays: Mapping[str, np.ndarray]) -> NoReturn:
        self.empty()
