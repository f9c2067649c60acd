"""Blocks that a worker fetches before they are sent to it: each is taken once, or released."""

from __future__ import annotations

import time
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any

from coremargin.engine.protocols import Block
from coremargin.engine.read_ahead import NextBlocks

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    import pytest


class Storage:
    """Notes what is being fetched."""

    remote = True

    def __init__(self) -> None:
        self.fetched, self.begun = set[int](), list[int]()

    @contextmanager
    def fetching(self, ranges: Sequence[tuple[str, int, int]]) -> Iterator[None]:
        chunks = {start for _, start, _ in ranges}
        self.fetched |= chunks
        self.begun += sorted(chunks)
        yield
        self.fetched -= chunks


class Source:
    """Chunks of an object each."""

    name, digest = "rows", "sha256:0"

    def __init__(self) -> None:
        self.storage, self.damaged = Storage(), set[int]()

    def objects(self, chunk: int) -> list[Any]:
        if chunk in self.damaged:
            raise OSError("lost")
        return [type("Part", (), {"key": f"c.{chunk}", "start": chunk, "nbytes": 5})]


BLOCKS = [Block(index, (2 * index, 2 * index + 1)) for index in range(6)]


def test_each_block_is_fetched_once() -> None:
    """Whether it was expected or not; what is closed is no longer fetched."""
    source, blocks = Source(), NextBlocks()
    with blocks.take(source, BLOCKS[0]):  # type: ignore[arg-type]
        blocks.begin(source, BLOCKS[1:3])  # type: ignore[arg-type]
        blocks.begin(source, BLOCKS[2:4])  # type: ignore[arg-type]
        assert source.storage.fetched == set(range(8))
    assert source.storage.fetched == set(range(2, 8))
    for block in BLOCKS[1:4]:
        with blocks.take(source, block):  # type: ignore[arg-type]
            assert set(block.chunks) <= source.storage.fetched
    assert source.storage.fetched == set()
    assert source.storage.begun == list(range(8))


def test_blocks_that_never_come_are_released(monkeypatch: pytest.MonkeyPatch) -> None:
    """The oldest where others follow, and all after a while."""
    source, blocks = Source(), NextBlocks(most=2, release_s=0.3)
    blocks.begin(source, BLOCKS[:3])  # type: ignore[arg-type]
    assert source.storage.fetched == {2, 3, 4, 5}
    until = time.monotonic() + 20
    while source.storage.fetched and time.monotonic() < until:
        time.sleep(0.02)
    assert source.storage.fetched == set()
    with blocks.take(source, BLOCKS[1]):  # type: ignore[arg-type]
        assert source.storage.fetched == {2, 3}


def test_what_cannot_be_found_is_reported_when_it_is_read() -> None:
    """Not while another block is probed."""
    source, blocks = Source(), NextBlocks()
    source.damaged = {3}
    blocks.begin(source, BLOCKS[:3])  # type: ignore[arg-type]
    assert source.storage.fetched == {0, 1, 4, 5}
