"""How chunks are grouped into blocks."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from coremargin.engine.plan import (
    BLOCK_BYTES,
    LARGEST_BLOCK_BYTES,
    MOST_BLOCKS,
    SMALL_BLOCKS,
    TAPERED_BLOCKS,
    chunks_per_block,
    plan_blocks,
)
from coremargin.errors import UsageError
from scan_fakes import FakeHandle


@given(rows=st.integers(0, 400), chunk_rows=st.integers(1, 50), block_bytes=st.integers(1, 5000), data=st.data())
def test_every_chunk_that_is_not_skipped_is_read_once(
    rows: int, chunk_rows: int, block_bytes: int, data: st.DataObject
) -> None:
    """Blocks hold the wanted chunks in order, once each, and group what is left: none but the last is smaller."""
    source = FakeHandle(rows=rows, chunk_rows=chunk_rows).open_source()
    skip = np.array(data.draw(st.lists(st.booleans(), min_size=source.chunks, max_size=source.chunks)), dtype=bool)
    everything = plan_blocks(source, block_bytes)
    some = plan_blocks(source, block_bytes, skip)
    assert [chunk for block in everything for chunk in block.chunks] == list(range(source.chunks))
    assert [chunk for block in some for chunk in block.chunks] == [c for c in range(source.chunks) if not skip[c]]
    assert [block.index for block in some] == list(range(len(some)))
    assert len({len(block.chunks) for block in some[:-1]}) <= 1
    assert [block.index for block in everything] == list(range(len(everything)))


def test_a_small_store_gives_every_core_work() -> None:
    """A store far below one block's bytes is still cut into some 16 blocks."""
    source = FakeHandle(rows=10_000, chunk_rows=10).open_source()
    assert source.nbytes < BLOCK_BYTES
    assert len(plan_blocks(source)) == pytest.approx(SMALL_BLOCKS, abs=1)


def test_blocks_stay_below_block_bytes() -> None:
    """A block holds no more than ``block_bytes``, but at least one chunk."""
    source = FakeHandle(rows=10_000, chunk_rows=10).open_source()  # 160 bytes per chunk
    assert {len(block.chunks) for block in plan_blocks(source, 500)} == {3, 1}
    assert {len(block.chunks) for block in plan_blocks(source, 1)} == {1}


@pytest.mark.parametrize(
    ("chunks", "together", "whole", "smaller"),
    [
        (3 * TAPERED_BLOCKS, 3, TAPERED_BLOCKS, 0),
        (3 * TAPERED_BLOCKS + 4, 3, TAPERED_BLOCKS + 2 - 256, 383),  # 766 chunks by twos
        (2000, 1, 2000, 0),  # a chunk is the least
    ],
)
def test_the_last_blocks_of_a_large_store_are_smaller(chunks: int, together: int, whole: int, smaller: int) -> None:
    """The last quarter of the blocks of a large store is in halves, whoever scans it; every chunk is read once."""
    source: Any = SimpleNamespace(chunks=chunks, nbytes=chunks * 100)
    blocks = plan_blocks(source, 100 * together)
    assert [chunk for block in blocks for chunk in block.chunks] == list(range(chunks))
    sizes = [len(block.chunks) for block in blocks]
    assert sizes[:whole] == [together] * whole
    assert sizes[whole:] == [-(-together // 2)] * smaller


@pytest.mark.parametrize(
    ("chunks", "chunk_bytes", "together"),
    [
        (MOST_BLOCKS, BLOCK_BYTES, 1),  # 256 GiB in blocks as they are
        (MOST_BLOCKS + 1, BLOCK_BYTES, 2),
        (300 * MOST_BLOCKS, 8 << 20, 300),  # 5 TB
        (MOST_BLOCKS * 5000, 8 << 20, LARGEST_BLOCK_BYTES >> 23),
        (9 * MOST_BLOCKS, 2 * LARGEST_BLOCK_BYTES, 1),
    ],
)
def test_blocks_of_a_large_store_grow(chunks: int, chunk_bytes: int, together: int) -> None:
    """A scan of a large store has no more than so many tasks, as long as none of them reads too much."""
    source: Any = SimpleNamespace(chunks=chunks, nbytes=chunks * chunk_bytes)
    assert chunks_per_block(source, BLOCK_BYTES, chunks) == together


@pytest.mark.parametrize(
    ("wanted", "together"),
    [(300 * MOST_BLOCKS // 9, 100), (1000, BLOCK_BYTES >> 23), (SMALL_BLOCKS, 1), (1, 1)],
)
def test_a_stage_of_a_large_store_has_fewer_and_smaller_blocks(wanted: int, together: int) -> None:
    """A ninth of a large store is read in a third of its tasks; of a few chunks every core still has some."""
    source: Any = SimpleNamespace(chunks=300 * MOST_BLOCKS, nbytes=300 * MOST_BLOCKS * (8 << 20))
    assert chunks_per_block(source, BLOCK_BYTES, wanted) == together


def test_nothing_to_read_gives_no_blocks() -> None:
    """An empty store, or one whose chunks are all skipped, has no blocks."""
    assert plan_blocks(FakeHandle(rows=0).open_source()) == ()
    source = FakeHandle(rows=100).open_source()
    assert plan_blocks(source, skip=np.ones(source.chunks, dtype=bool)) == ()


def test_wrong_arguments_are_refused() -> None:
    """A size below one byte and a skip of another length are UsageErrors that say both."""
    source = FakeHandle(rows=100).open_source()
    with pytest.raises(UsageError, match="block_bytes: expected at least 1, got 0"):
        plan_blocks(source, 0)
    with pytest.raises(UsageError, match=r"shape \(10,\), got \(3,\)"):
        plan_blocks(source, skip=np.zeros(3, dtype=bool))
