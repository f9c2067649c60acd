"""The picture of the store: what its lines and shades stand for."""

from __future__ import annotations

from typing import Any

import pytest

from coremargin.engine.plan import Block, read_of_parts
from coremargin.formats.run_record import PARTS, parts_of
from coremargin.report.map import MOST, rounds_to_draw, store_map


def stage(number: int, where: list[int], chunks: int = 8) -> dict[str, Any]:
    """A stage that read so many chunks of each part."""
    read = {"chunks": chunks, "chunks_read": sum(where), "where": where}
    return {"kind": "stage", "round": 1, "stage": number, "stages": 2, **read}


@pytest.mark.parametrize("chunks", [1, 7, PARTS, PARTS + 1, 12_345])
def test_parts_are_equal_but_for_a_chunk_and_are_the_whole_store(chunks: int) -> None:
    """At most 100 of them."""
    sizes = parts_of(chunks)
    assert (sum(sizes), len(sizes)) == (chunks, min(chunks, PARTS))
    assert max(sizes) - min(sizes) <= 1


def test_chunks_are_counted_in_the_part_they_lie_in() -> None:
    """250 chunks are 100 parts of two and three; who reads all need not say where."""
    chunks = 250
    sizes = parts_of(chunks)
    place = [part for part, size in enumerate(sizes) for _ in range(size)]
    read = [0, 1, 2, 4, 5, 124, 125, 249]
    found = read_of_parts([Block(0, tuple(read[:4])), Block(1, tuple(read[4:]))], chunks)
    assert list(found) == [sum(place[chunk] == part for chunk in read) for part in range(PARTS)]
    assert read_of_parts([Block(0, tuple(range(chunks)))], chunks) == ()
    assert sum(read_of_parts([], chunks)) == 0


def test_lines_are_the_rounds_that_tell_where_they_read() -> None:
    """A scan of all chunks is whole; a sample has no line, nor has a round whose counts fit no store."""
    whole = {"kind": "scan", "round": 2, "chunks": 8, "chunks_read": 8}
    some, sample = stage(1, [1, 0] * 4), {"kind": "sample", "chunks": 8, "chunks_read": 0}
    assert rounds_to_draw([sample, some, whole, {**some, "where": [1]}]) == [some, whole]
    assert rounds_to_draw([sample, whole]) == [], "whole scans need no picture"
    assert len(rounds_to_draw([some] * (MOST + 1))) == MOST


def test_shades_are_shares_and_words_tell_the_same() -> None:
    """Of parts of two chunks, one read is a half and two are all; what was read again says so where there is room."""
    first, again = stage(1, [1] * 50 + [2] * 50, chunks=200), stage(2, [0] * 100, chunks=200)
    again |= {"kind": "scan", "round": 2, "where": [0] * 99 + [2], "chunks_read": 2}
    page = str(store_map([first, again], 800))
    assert "part-2" in page
    assert "part-4" in page
    assert "part-1" not in page
    assert "part-3" not in page
    assert "Stage 1 of 2 read 150 of 200 chunks; Scan 2 read 2 of 200 chunks." in page
    assert "scan 2, re-read" in page
    assert "again" not in str(store_map([first, again], 400))
