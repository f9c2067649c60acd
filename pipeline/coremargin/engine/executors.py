"""The executor for small data: blocks run in this process, in a plain loop or on a few threads."""

from __future__ import annotations

from collections.abc import Generator, Iterator, Sequence
from concurrent.futures import FIRST_COMPLETED, Future, ThreadPoolExecutor, wait
from contextlib import ExitStack, closing
from itertools import islice
from typing import TYPE_CHECKING, Self

from coremargin.blas import one_blas_thread
from coremargin.engine.meter import MemoryMeter
from coremargin.engine.read_ahead import begin_fetching
from coremargin.engine.resources import THREAD_BYTES, need_memory
from coremargin.engine.task import answer
from coremargin.errors import UsageError
from coremargin.maths.stopping import Together

if TYPE_CHECKING:
    from coremargin.data.source import Source
    from coremargin.engine.protocols import Block, BlockResult, Probe


class InProcess:
    """Runs blocks in this process: no start-up, no copies, but a crash of a block is a crash of the driver."""

    def __init__(self, threads: int = 1) -> None:
        if threads < 1:
            raise UsageError(f"threads: expected at least 1, got {threads}")
        self._threads, self._ran = threads, False
        self._meter = MemoryMeter()

    @property
    def local(self) -> bool:
        """Always."""
        return True

    @property
    def workers(self) -> int:
        """Tasks that run at the same time."""
        return self._threads

    @property
    def most_calls(self) -> None:
        """Calls need no grouping."""
        return

    @property
    def description(self) -> str:
        """One line."""
        return f"in this process, {self._threads} thread{'s' if self._threads > 1 else ''}"

    def run(self, source: Source, probe: Probe, blocks: Sequence[Block]) -> Iterator[BlockResult]:
        """Results as they complete; see ``Executor.run``. BLAS has one thread while the iterator is open."""
        loop = self._loop if self._threads == 1 else self._threaded
        if not self._ran:  # later the threads have it already
            need_memory(self._threads * THREAD_BYTES, self.description)
            self._ran = True
        with one_blas_thread(), closing(loop(source, probe, blocks)) as results:
            for result in results:
                self._meter.note(result)
                yield result

    def _loop(self, source: Source, probe: Probe, blocks: Sequence[Block]) -> Generator[BlockResult, None, None]:
        fetching = begin_fetching(source, blocks[0].chunks if blocks else ())
        try:
            for number, block in enumerate(blocks):
                now, following = fetching, blocks[number + 1 : number + 2]
                fetching = begin_fetching(source, following[0].chunks if following else ())
                yield answer(source, probe.narrow(block), block, now)
        finally:
            fetching.close()

    def _threaded(self, source: Source, probe: Probe, blocks: Sequence[Block]) -> Generator[BlockResult, None, None]:
        waiting = iter(blocks)
        running: set[Future[BlockResult]] = set()
        fetching: dict[Future[BlockResult], ExitStack] = {}
        pool, together = ThreadPoolExecutor(self._threads, thread_name_prefix="coremargin-scan"), Together()
        try:
            while True:
                for block in islice(waiting, 2 * self._threads - len(running)):  # one ahead per thread keeps all busy
                    ahead = begin_fetching(source, block.chunks)
                    future = pool.submit(together.run, answer, source, probe.narrow(block), block, ahead)
                    running.add(future)
                    fetching[future] = ahead
                if not running:
                    return
                finished, running = wait(running, return_when=FIRST_COMPLETED)
                for future in finished:
                    del fetching[future]
                    yield future.result()
        finally:
            together.end()
            for ahead in fetching.values():
                ahead.close()
            pool.shutdown(wait=True, cancel_futures=True)

    def peak_rss_bytes(self) -> int:
        """Largest resident memory of this process so far."""
        return self._meter.peak_bytes()

    def close(self) -> None:
        """Do nothing: nothing outlives ``run``."""

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()
