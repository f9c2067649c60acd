"""Buffers are filled again as soon as nobody holds them, and no sooner."""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor

import numpy as np

from coremargin.data.reused import Reused


def _address(array: np.ndarray) -> int:
    return int(array.__array_interface__["data"][0])


def test_an_array_that_somebody_holds_is_not_given_away() -> None:
    """A view of a view holds it, too."""
    reused = Reused()
    first = reused.take("rows", 100)
    place, part = _address(first), first[:10].view(np.int8).reshape(5, 2)
    del first
    second = reused.take("rows", 100)
    assert not np.shares_memory(second, part)
    del part
    assert _address(reused.take("rows", 100)) == place


def test_a_loop_that_holds_the_last_one_needs_two() -> None:
    """Two arrays serve in turn, however often one is taken: memory stays flat, and pages warm."""
    reused, places = Reused(), set()
    for _ in range(50):
        last = reused.take("rows", 1 << 20)
        places.add(_address(last))
    assert len(places) == 2


def test_sizes_uses_and_threads_are_told_apart() -> None:
    """A larger array serves a smaller need; one of another use or thread never does."""
    reused = Reused()
    place = _address(reused.take("rows", 100, np.float64))
    small = reused.take("rows", 10, np.float64)
    assert (_address(small), small.shape, small.dtype) == (place, (10,), np.float64)
    del small
    assert reused.take("rows", 200, np.float64).shape == (200,)
    assert _address(reused.take("codes", 100, np.float64)) != place
    with ThreadPoolExecutor(1) as pool:
        other = pool.submit(reused.take, "rows", 100, np.float64).result()
    assert _address(other) != _address(reused.take("rows", 100, np.float64))
