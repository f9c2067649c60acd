from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from coremargin.problems.common.sent import ChunkRows, LowestRows

#: (values of one class per chunk) of a block.
blocks = st.lists(st.lists(st.integers(-6, 6), min_size=0, max_size=12), min_size=1, max_size=5)


def offer(
    chunks: list[list[int]], keep: int, *, first_chunk: int = 3, error: float = 0.25
) -> tuple[np.ndarray, np.ndarray, np.ndarray, np.ndarray]:
    """Bounds (c, 2), ids, rows and signs that are left after one class of each chunk was offered; ids count on."""
    lowest, start, floors = LowestRows(keep, 1, np.dtype(np.float64)), 100, []
    for k, values in enumerate(chunks):
        rows = np.array(values, float).reshape(-1, 1)
        data = ChunkRows(first_chunk + k, start, rows, np.zeros(len(rows), np.int32), 1.0)
        floors.append([lowest.offer(data, 0, np.arange(len(rows)), rows[:, 0], error), np.inf])
        start += len(rows)
    at = np.arange(first_chunk, first_chunk + len(chunks))
    floor, sent, _ = lowest.finish(at, np.array(floors))
    ids, rows, signs = sent.ids, sent.rows, sent.signs
    return floor, ids, rows, signs


@given(blocks, st.integers(0, 8))
def test_the_lowest_different_values_are_kept(chunks: list[list[int]], keep: int) -> None:
    """The rows kept are the lowest of each value, the first row of a value, in row order."""
    flat = np.array([value for chunk in chunks for value in chunk])
    _, ids, rows, signs = offer(chunks, keep)
    values = np.unique(flat)[:keep]
    expected = sorted(100 + int(np.flatnonzero(flat == value)[0]) for value in values)
    assert ids.tolist() == expected
    assert (rows[:, 0] == flat[ids - 100]).all()
    assert (signs == 1).all()


@given(blocks, st.integers(0, 8))
def test_floors_are_below_every_row_that_stays(chunks: list[list[int]], keep: int) -> None:
    """The bound of a chunk is the least value of its rows not sent, less the error; infinite when all were sent."""
    floor, ids, _, _ = offer(chunks, keep, error=0.25)
    start = 100
    for k, values in enumerate(chunks):
        left = [value for j, value in enumerate(values) if start + j not in ids]
        assert floor[k, 0] == (min(left) - 0.25 if left else np.inf)
        assert floor[k, 1] == np.inf
        start += len(values)


def test_each_error_stays_with_its_rows() -> None:
    """A row kept for a while and given up later lowers its own chunk's bound by its own chunk's error."""
    lowest = LowestRows(1, 1, np.dtype(np.float64))
    for chunk, (value, error) in enumerate([(5.0, 0.5), (4.0, 0.125), (3.0, 0.0)]):
        data = ChunkRows(chunk, chunk, np.array([[value]]), np.zeros(1, np.int32), 1.0)
        assert lowest.offer(data, 1, np.array([0]), np.array([value]), error) == np.inf
    floor, sent, _ = lowest.finish(np.arange(3), np.full((3, 2), np.inf))
    ids, signs = sent.ids, sent.signs
    assert floor[:, 1].tolist() == [4.5, 3.875, np.inf]
    assert (ids.tolist(), signs.tolist()) == ([2], [-1])


@pytest.mark.parametrize("copies", [1, 5000])
def test_copies_take_one_place(rng: np.random.Generator, copies: int) -> None:
    """Thousands of copies of the lowest row, in every chunk, leave room for all other rows worth having."""
    lowest = LowestRows(10, 2, np.dtype(np.float32))
    others = rng.random(60) + 1
    for chunk in range(6):
        values = np.concatenate([np.zeros(copies), others[10 * chunk : 10 * chunk + 10]]).astype(np.float32)
        data = ChunkRows(chunk, chunk * len(values), np.zeros((len(values), 2), np.float32), values, 1.0)
        lowest.offer(data, 0, np.arange(len(values)), values, 0.0)
    ids = lowest.finish(np.arange(6), np.full((6, 2), np.inf))[1].ids
    assert len(ids) == 10
    place = ids % (copies + 10)
    assert (place < copies).sum() == 1
    assert set(others[(ids // (copies + 10) * 10 + place - copies)[place >= copies]]) == set(np.sort(others)[:9])


def test_large_chunks_use_the_same_rule(rng: np.random.Generator) -> None:
    """The shortcut for chunks with many more rows than are kept gives the rows that sorting gives."""
    for spread in (5, 50, 10**6):
        values = rng.integers(0, spread, 20_000)
        _, ids, _, _ = offer([values.tolist()], 40)
        first = {int(v): 100 + int(np.flatnonzero(values == v)[0]) for v in np.unique(values)[:40]}
        assert ids.tolist() == sorted(first.values())
