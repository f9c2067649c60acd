"""The bench's cluster of many workers, with few of them; its numbers mean nothing here."""

from __future__ import annotations

from typing import Any

import pytest

from coremargin.engine.plan import TAPERED_BLOCKS, plan_blocks


@pytest.mark.parametrize("way", ["scan", pytest.param("map", marks=pytest.mark.slow)])
def test_every_block_is_done(way: str) -> None:
    """Workers in two processes of their own do all blocks of a scan, and of what it is compared with."""
    from slots import one_scan

    found = one_scan(way, workers=3, threads=2, blocks=40, seconds=0.02)
    assert found["tasks"] == (40 if way == "map" else 80)  # of so small a store, a scan's blocks have one chunk
    assert 0 < found["busy"] < 1
    assert found["whole"] == pytest.approx(40 / 42)


def test_blocks_are_those_of_a_large_store() -> None:
    """Two chunks in each, one in the last ones."""
    from slots import NoRows

    source: Any = NoRows(chunks=4 * TAPERED_BLOCKS)
    sizes = [len(block.chunks) for block in plan_blocks(source)]
    assert set(sizes) == {1, 2}
    assert sizes.count(2) == 3 * TAPERED_BLOCKS // 2
