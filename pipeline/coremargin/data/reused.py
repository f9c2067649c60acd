"""Arrays that a reader fills again once its views of them are released: warm pages cost no page faults.

What is handed out are views, and a view keeps its array referred to. So rows that are kept stay as they were.
"""

from __future__ import annotations

import sys
import threading
from typing import Any

import numpy as np

#: So many are kept for each use: a loop still holds the last chunk while it reads the next.
_MOST = 2


def _holders(arrays: list[np.ndarray], number: int) -> int:
    return sys.getrefcount(arrays[number])


_NOBODY = _holders([np.empty(0)], 0)


class Reused:
    """The arrays of one reader, for each thread its own."""

    def __init__(self) -> None:
        self._local = threading.local()

    def take(self, use: str, size: int, dtype: np.dtype[Any] | type = np.uint8) -> np.ndarray:
        """An array (size,) to fill without other references; use: its purpose, with one dtype each."""
        kept: list[np.ndarray] = self._local.__dict__.setdefault(use, [])
        for number in range(len(kept)):
            if len(kept[number]) >= size and _holders(kept, number) == _NOBODY:
                return kept[number][:size]
        new = np.empty(size, dtype)
        kept.insert(0, new)
        del kept[_MOST:]
        return new[:size]
