"""How many near-margin rows are sent, and when a zone grows or is given up."""

from __future__ import annotations

import numpy as np
import pytest

from coremargin.data.arrays import ArraySource
from coremargin.problems.common.zone import (
    IDLE_SCANS,
    MOST_WIDE,
    NearRows,
    Progress,
    Zone,
    has_moved,
    smallest_positions,
)


def rows_of(share: float, *, least_bytes: int = 1, most: float = 1e9, grows: bool = True) -> NearRows:
    """Of a thousand rows of 80 bytes in ten chunks."""
    source = ArraySource(np.ones((1000, 10)), np.arange(1000) % 2, chunk_rows=100)
    return NearRows(source, 80, share=share, least=least_bytes, most=most, grows=grows)


def progress(before: float, gap: float, *, same: bool = False, rose: bool = False) -> Progress:
    """A scan that left the value as it was."""
    return Progress((before, gap), (1.0, 1.0), rose=rose, same=same)


@pytest.mark.parametrize(("widen", "each"), [(1, 5), (2, 10), (8, 40), (64, 100)])
def test_a_wider_zone_has_more_rows_up_to_all(widen: int, each: int) -> None:
    """A twentieth of the rows, so many times over, from each chunk alike, and never more than a chunk has."""
    assert rows_of(0.05).of_chunk(widen) == each
    assert rows_of(0.05).capped(widen) == (each == 100)


def test_memory_and_a_least_size_bound_the_rows() -> None:
    """Bytes bound the rows of all chunks together; one of each is sent whatever they say."""
    assert rows_of(0.05, least_bytes=80 * 200).of_chunk(1) == 20
    assert rows_of(0.05, least_bytes=80 * 200, most=80 * 130).of_chunk(64) == 13
    assert rows_of(np.inf, most=80 * 130).of_chunk(1) == 13
    assert rows_of(0.05, most=1).of_chunk(1) == 1
    assert rows_of(0.05, grows=False).of_chunk(64) == 5
    assert rows_of(0.05, grows=False).capped(1)


@pytest.mark.parametrize(
    ("found", "widen", "idle"),
    [
        (progress(1.0, 0.1), 2, 0), (progress(1.0, 0.5), 4, 0), (progress(1.0, 0.95), 4, 2),
        (progress(1.0, 0.1, rose=True), 4, 0), (progress(1.0, 0.95, same=True), 16, 2),
        (progress(np.inf, 0.9), 2, 0), (progress(np.inf, np.inf), 2, 2),
        (Progress((1.0, 0.95), (1.0, 0.5), rose=False, same=False), 4, 0),
    ],
)  # fmt: skip
def test_a_zone_grows_where_little_was_gained(found: Progress, widen: int, idle: int) -> None:
    """Twice as wide where the gap fell by less than three, eight times where nothing moves; idle where it hardly fell.

    A better value is a gain, too; a gap that stays infinite is none.
    """
    assert Zone(2, 1).after(found, 1e-3) == Zone(widen, idle)
    assert Zone(MOST_WIDE, 1).after(found, 1e-3).widen == MOST_WIDE


def test_a_zone_is_stuck_after_idle_scans_or_where_it_cannot_grow() -> None:
    """Too many scans that brought nothing end a job, and so does a step to where it stands that no more rows change."""
    idle, same = progress(1.0, 0.95), progress(1.0, 0.5, same=True)
    few, all_ = rows_of(0.05), rows_of(1.0)
    assert Zone(1, IDLE_SCANS - 1).stuck(idle, 1e-3, few)
    assert not Zone(1, IDLE_SCANS - 2).stuck(idle, 1e-3, few)
    assert not Zone(1, 0).stuck(same, 1e-3, few)
    assert Zone(1, 0).stuck(same, 1e-3, all_)
    assert not Zone(1, 0).stuck(idle, 1e-3, all_)


def test_a_hypothesis_has_moved_when_it_is_another() -> None:
    """Not without a best one so far, nor where both are equal."""
    at = np.arange(3.0)
    assert not has_moved(at, None)
    assert not has_moved(at, at.copy())
    assert has_moved(at, at + 1)


@pytest.mark.parametrize("keep", [0, 1, 7, 30, 99])
def test_the_least_are_those_of_a_stable_sort(keep: int) -> None:
    """Of equal values those that come first, in order of their places."""
    values = np.random.default_rng(0).integers(0, 6, 30).astype(float)
    wanted = sorted(sorted(range(30), key=lambda k: values[k])[:keep])
    assert smallest_positions(values, keep).tolist() == wanted
