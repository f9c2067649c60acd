"""What comes from beside the rows, one value a row, read as far as it is asked for."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Iterator
from typing import Any

import numpy as np


class Stream(ABC):
    """Values (n,) in order."""

    kind: str  #: what they are, in messages
    name: str  #: where they come from, in messages
    length: int | None  #: n, None when only reading tells

    def __init__(self, dtype: Any) -> None:
        self._left = np.empty(0, dtype)
        self._batches = self._read()

    @abstractmethod
    def _read(self) -> Iterator[np.ndarray]:
        """All values, part by part; nothing runs before the first ``take``."""

    def take(self, count: int) -> np.ndarray:
        """The next ``count`` values (fewer at the end)."""
        parts, have = [self._left], len(self._left)
        while have < count:
            part = next(self._batches, None)
            if part is None:
                break
            parts.append(part)
            have += len(part)
        values = np.concatenate(parts)
        self._left = values[count:]
        return values[:count]

    def count_rest(self) -> int:
        """How many values have not been taken yet; reads to the end."""
        return len(self._left) + sum(len(part) for part in self._batches)
