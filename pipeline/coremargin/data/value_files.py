"""Values of sparse rows on their way into files of a fixed number of values each."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any

import numpy as np

from coremargin.data.sparse import INDEX_DTYPE

File = tuple[int, np.ndarray, np.ndarray]  #: number, data, indices


class ValueFiles:
    """Takes the values and indices of chunk after chunk; gives whole files."""

    def __init__(
        self, size: int, dtype: np.dtype[Any], count: int = 0, head: tuple[np.ndarray, np.ndarray] | None = None
    ) -> None:
        """size: values per file; count: values that are stored; head: data and indices of those in the last file."""
        self.count = count
        self._size = size
        self._parts = [head or (np.empty(0, dtype), np.empty(0, INDEX_DTYPE))]

    def add(self, data: np.ndarray, indices: np.ndarray) -> list[File]:
        """Take values (m,) that must not change afterwards. Returns the files that are full now."""
        whole = self.count // self._size
        self._parts.append((data, indices))
        self.count += len(data)
        full = self.count // self._size - whole
        if not full:
            return []
        *files, rest = _cut(self._joined(), whole, self._size, full)
        self._parts = [(rest[1].copy(), rest[2].copy())]  # a view would keep all of its file in memory
        return files

    def rest(self, data: np.ndarray | None = None, indices: np.ndarray | None = None) -> list[File]:
        """The file that is not full, with more values (m,) at its end, which are not taken: maybe several files."""
        joined = self._joined([] if data is None or indices is None else [(data, indices)])
        files = -(-len(joined[0]) // self._size)
        return list(_cut(joined, self.count // self._size, self._size, files))[:files]

    def _joined(self, more: Sequence[tuple[np.ndarray, np.ndarray]] = ()) -> tuple[np.ndarray, np.ndarray]:
        data, indices = zip(*self._parts, *more, strict=True)
        return np.concatenate(data), np.concatenate(indices)


def _cut(values: tuple[np.ndarray, np.ndarray], first: int, size: int, files: int) -> Iterator[File]:
    """So many files of ``size`` values, then what is left."""
    for k in range(files + 1):
        part = slice(k * size, (k + 1) * size)
        yield first + k, values[0][part], values[1][part]
