"""Merging summaries: in block order whatever the order of completion, with what a checkpoint knows already."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from coremargin.engine.executors import InProcess
from coremargin.engine.plan import plan_blocks
from coremargin.engine.protocols import Block, BlockResult
from coremargin.engine.scan import run_scan
from coremargin.engine.task import answer
from coremargin.errors import UsageError
from scan_fakes import FakeHandle, FakeSource, SumProbe, expected

PROBE = SumProbe(np.array([1.0, 1e-9, 1e9]))


class Shuffled:
    """An executor that completes blocks in a given order."""

    def __init__(self, order: Sequence[int]) -> None:
        self.order = order
        self.ran: list[int] = []
        self.closed = False

    def run(self, source: FakeSource, probe: SumProbe, blocks: Sequence[Block]) -> Iterator[BlockResult]:
        by_index = {block.index: block for block in blocks}
        try:
            for index in self.order:
                if index in by_index:
                    self.ran.append(index)
                    yield answer(source, probe, by_index[index])
        finally:
            self.closed = True


@given(order=st.permutations(range(12)), known=st.sets(st.integers(0, 11)))
def test_any_completion_order_and_any_checkpoint_give_the_same_bits(order: list[int], known: set[int]) -> None:
    """The answer depends neither on the order of completion nor on what a checkpoint holds; that does not run."""
    source = FakeHandle(rows=120).open_source()
    blocks = plan_blocks(source, 1)
    done = {index: PROBE(source, blocks[index]) for index in known}
    executor = Shuffled(order)
    assert run_scan(executor, source, PROBE, blocks, done=done).bits() == expected(source, PROBE, blocks).bits()
    assert set(executor.ran) == set(range(12)) - known


def test_every_result_is_reported_as_it_completes() -> None:
    """``on_block`` sees every block that ran, in order of completion, and none that was known."""
    source = FakeHandle(rows=50).open_source()
    blocks = plan_blocks(source, 1)
    seen: list[int] = []
    done = {2: PROBE(source, blocks[2])}
    run_scan(
        Shuffled([4, 1, 0, 3]),
        source,
        PROBE,
        blocks,
        done=done,
        on_block=lambda result: seen.append(result.block.index),
    )
    assert seen == [4, 1, 0, 3]


def test_an_error_in_on_block_ends_the_scan() -> None:
    """What ``on_block`` raises passes through, and the executor is closed."""
    source = FakeHandle(rows=50).open_source()
    executor = Shuffled(range(5))

    def refuse(result: BlockResult) -> None:
        raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        run_scan(executor, source, PROBE, plan_blocks(source, 1), on_block=refuse)
    assert executor.ran == [0]
    assert executor.closed


def test_blocks_out_of_order_are_refused() -> None:
    """Indices that do not increase are a UsageError: block order would mean nothing."""
    source = FakeHandle(rows=50).open_source()
    with pytest.raises(UsageError, match="increasing indices"):
        run_scan(InProcess(), source, PROBE, [Block(1, (1,)), Block(0, (0,))])
