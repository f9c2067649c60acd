"""The rows that an attempt draws, in their order, as far as anybody has looked."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from itertools import islice
from typing import TYPE_CHECKING

import numpy as np
from numpy.typing import NDArray

from coremargin.formats.draws import drawn

if TYPE_CHECKING:
    Ids = NDArray[np.int64]


class Order:
    """Rows of one attempt that count, in the order drawn; what was found stays, and no number is drawn twice.

    Where few rows count, most numbers are in vain: rows are looked up many at a time.
    """

    def __init__(self, counts: Callable[[Ids], NDArray[np.bool_]]) -> None:
        self._counts = counts
        self._attempt: tuple[str, int, int, int] | None = None
        self._numbers: Iterator[int] = iter(())
        self._found: Ids = np.zeros(0, np.int64)
        self._looked = 0

    def first(self, attempt: tuple[str, int, int, int], count: int, known: Ids) -> Ids:
        """The first ``count`` rows of an attempt that are not known, fewer where no more are left.

        attempt: digest, seed, number and rows, as ``drawn`` has them.
        """
        if attempt != self._attempt:
            self._numbers, self._looked, self._found = drawn(*attempt), 0, np.zeros(0, np.int64)
        self._attempt = None  # whatever is interrupted, numbers that were drawn and not kept are drawn again
        rows = self._first(count, known)
        self._attempt = attempt
        return rows

    def _first(self, count: int, known: Ids) -> Ids:
        while True:
            fresh = self._found[np.isin(self._found, known, invert=True)]
            most = max(count - len(fresh), self._looked // 8)
            if len(fresh) >= count or not len(some := np.fromiter(islice(self._numbers, most), np.int64)):
                return fresh[:count]
            self._looked += len(some)
            self._found = np.concatenate([self._found, some[self._counts(some)]])
