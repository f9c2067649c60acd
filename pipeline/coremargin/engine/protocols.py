"""The protocols between a problem and the engine: what a worker does with a block, and what it returns.

A *probe* is applied to every block, a *summary* is its small result. Summaries merge in block order, so the result of a
scan is the same to the bit for any executor, any number of workers and any order of completion.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Protocol, Self

if TYPE_CHECKING:
    import numpy as np

    from coremargin.data.source import Source


@dataclass(frozen=True)
class Block:
    """The whole chunks that one task reads; ``chunks`` does not include those that the block bounds allow to skip."""

    index: int
    chunks: tuple[int, ...]


class Summary(Protocol):
    """A small, mergeable result."""

    def merge(self, later: Self) -> Self:
        """The summary of these blocks and later ones; associative, ``probe.empty()`` is the identity."""

    def to_arrays(self) -> dict[str, np.ndarray]:
        """For checkpoints: plain arrays, no objects."""


class Probe(Protocol):
    """A function of every block. Plain data: it is sent to workers."""

    def narrow(self, block: Block) -> Probe:
        """The same probe with only what this block needs (runs on the driver)."""

    def __call__(self, source: Source, block: Block) -> Summary:
        """The summary of one block (runs on a worker): a plain function of arrays."""

    def empty(self) -> Summary:
        """The summary of no rows."""

    def from_arrays(self, arrays: Mapping[str, np.ndarray]) -> Summary:
        """Inverse of ``Summary.to_arrays``."""


@dataclass(frozen=True)
class BlockResult:
    """The summary of one block and what it cost."""

    block: Block
    summary: Any
    bytes_read: int
    seconds: float
    worker: str  #: name of the worker
    rss_bytes: int  #: resident memory of that worker's process after the block


class Executor(Protocol):
    """Runs a probe over blocks. ``InProcess`` and ``DaskExecutor`` pass the same conformance suite."""

    def run(self, source: Source, probe: Probe, blocks: Sequence[Block]) -> Iterator[BlockResult]:
        """Results as they complete, in any order; closing the iterator cancels what has not run.

        Retries a block whose worker died; raises the block's own CoremarginError at once (damaged data does not heal),
        BlockFailed with the chunks named when a block fails repeatedly.
        """

    def peak_rss_bytes(self) -> int:
        """Largest sum of resident memory seen so far, driver and workers together."""

    @property
    def description(self) -> str:
        """One line: workers, threads, dashboard link if any."""

    @property
    def most_calls(self) -> int | None:
        """The number of tasks into which plain calls are best grouped; None if a task costs nothing."""

    @property
    def local(self) -> bool:
        """Whether all workers that have answered run on this machine, and so share its page cache."""

    @property
    def workers(self) -> int:
        """Tasks that run at the same time."""

    def close(self) -> None:
        """Stop what this executor started."""

    def __enter__(self) -> Self:
        """The executor itself; leaving the context closes it."""

    def __exit__(self, *_: object) -> None:
        """Close."""


OnBlock = Callable[[BlockResult], None]
