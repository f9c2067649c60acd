"""What memory is wanted, in words and numbers that a command takes."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from coremargin.engine.memory_need import MemoryNeed, size_up
from coremargin.units import parse_size

MIB = 1 << 20


@given(st.integers(1, 1 << 50))
def test_sizes_are_rounded_up(size: int) -> None:
    """What is said is enough, not much more than that, and a size as options take it."""
    assert size <= parse_size(size_up(size)) < size + max(MIB, size / 5)


def test_what_is_short() -> None:
    """A run with less than it wants says so with the numbers when it has no proof, or was long about it."""
    want = MemoryNeed(100 * MIB, 400 * MIB, 80_000, "rows", "it takes long")
    told = "100.0 MiB of memory hold about 20,000 of the 80,000 rows: --memory 400MiB is enough; it takes long"
    assert (want.short, want.held) == (True, 20_000)
    assert [want.shortage(scans=scans, status="running") for scans in (0, 1, 9)] == [told] * 3
    for status in ("certified", "not_separable"):
        assert [want.shortage(scans=scans, status=status) for scans in (1, 2, 3)] == [None, None, told]
    ample = MemoryNeed(400 * MIB, 400 * MIB, 80_000, "rows", "")
    assert (ample.short, ample.held, ample.shortage(scans=9, status="running")) == (False, 80_000, None)
