"""Numbers of lines or rows that ascend, kept in a bit each: what names rows may be kept for as long as all are read."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import overload

import numpy as np

_BLOCK = 1 << 12  # bits that are looked at to find a number


class Ascending(Sequence[int]):
    """The numbers ``first + i`` of those i where ``there`` (m,) is true."""

    def __init__(self, first: int, there: np.ndarray) -> None:
        self._first, self._bits = first, np.packbits(there)
        starts = np.arange(0, len(there), _BLOCK)
        counts = np.add.reduceat(there.astype(np.int64), starts) if len(starts) else starts
        self._upto = np.cumsum(counts)  # how many there are up to the end of each block

    def __len__(self) -> int:
        return int(self._upto[-1]) if len(self._upto) else 0

    def __iter__(self) -> Iterator[int]:
        return iter(self[:])

    @overload
    def __getitem__(self, at: int) -> int: ...
    @overload
    def __getitem__(self, at: slice) -> list[int]: ...
    def __getitem__(self, at: int | slice) -> int | list[int]:
        if isinstance(at, slice):
            found: list[int] = (self._first + np.flatnonzero(np.unpackbits(self._bits))[at]).tolist()
            return found
        number = range(len(self))[at]
        block = int(np.searchsorted(self._upto, number, side="right"))
        bits = np.unpackbits(self._bits[block * _BLOCK // 8 : (block + 1) * _BLOCK // 8])
        before = int(self._upto[block - 1]) if block else 0
        return self._first + block * _BLOCK + int(np.flatnonzero(bits)[number - before])
