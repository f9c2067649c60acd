"""One scan: run a probe over blocks and merge the summaries in block order."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from contextlib import closing
from itertools import pairwise
from typing import TYPE_CHECKING, cast

from coremargin.errors import UsageError

if TYPE_CHECKING:
    from collections.abc import Generator

    from coremargin.data.source import Source
    from coremargin.engine.protocols import Block, BlockResult, Executor, OnBlock, Probe, Summary


def run_scan(
    executor: Executor,
    source: Source,
    probe: Probe,
    blocks: Sequence[Block],
    *,
    done: Mapping[int, Summary] | None = None,
    on_block: OnBlock | None = None,
) -> Summary:
    """The merged summary of all blocks, in block order and by a fixed tree: the same bits for any executor.

    blocks: increasing indices. done: summaries of blocks that need not run, by index (from a checkpoint). on_block is
    called with each result as it completes, in any order, before it is merged; what it raises ends the scan. Only
    summaries that wait for an earlier block are held, and one for each power of two of merged ones. Raises what
    ``Executor.run`` raises, UsageError for blocks out of order.
    """
    if any(earlier.index >= later.index for earlier, later in pairwise(blocks)):
        raise UsageError("blocks: expected increasing indices; take them from plan_blocks")
    known = {} if done is None else done
    merged = _Merger(probe.empty(), blocks, known)
    missing = [block for block in blocks if block.index not in known]
    merged.advance()
    if missing:
        with closing(cast("Generator[BlockResult, None, None]", executor.run(source, probe, missing))) as results:
            for result in results:
                if on_block is not None:
                    on_block(result)
                merged.take(result)
    return merged.total()


class _Merger:
    """Merges summaries in block order while they arrive in any order.

    Neighbours of equal numbers of blocks are merged, as a binary counter carries: the rows of a summary are copied as
    often as the logarithm of the number of blocks, not for every block that follows.
    """

    def __init__(self, empty: Summary, blocks: Sequence[Block], done: Mapping[int, Summary]) -> None:
        self._empty = empty
        self._merged: list[tuple[int, Summary]] = []  # of runs of blocks, each with how many there are, decreasing
        self._order = [block.index for block in blocks]
        self._next = 0
        self._done = done
        self._waiting: dict[int, Summary] = {}

    def take(self, result: BlockResult) -> None:
        self._waiting[result.block.index] = result.summary
        self.advance()

    def advance(self) -> None:
        """Merge everything that has no gap before it."""
        while self._next < len(self._order):
            index = self._order[self._next]
            summary = self._done[index] if index in self._done else self._waiting.pop(index, None)
            if summary is None:
                return
            self._push(summary)
            self._next += 1

    def _push(self, summary: Summary) -> None:
        count = 1
        while self._merged and self._merged[-1][0] == count:
            summary = self._merged.pop()[1].merge(summary)
            count *= 2
        self._merged.append((count, summary))

    def total(self) -> Summary:
        """All together."""
        found = self._empty
        if self._merged:
            found = self._merged[-1][1]
            for _, earlier in reversed(self._merged[:-1]):
                found = earlier.merge(found)
        return found
