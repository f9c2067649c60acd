"""Lists of different length in one array: certificates, paths, proofs."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray


@dataclass(frozen=True)
class Ragged:
    """Lists of numbers: list i lies in values[ends[i - 1] : ends[i]]. values (v,), ends (m,) int64."""

    values: NDArray[Any]
    ends: NDArray[np.int64]

    @classmethod
    def from_lists(cls, lists: Iterable[Sequence[Any] | NDArray[Any]], dtype: Any = np.int64) -> Ragged:
        """Store these lists."""
        parts = [np.asarray(part, dtype) for part in lists]
        values = np.concatenate(parts) if parts else np.zeros(0, dtype)
        return cls(values, np.cumsum([len(part) for part in parts], dtype=np.int64))

    @classmethod
    def empty(cls, dtype: Any = np.int64) -> Ragged:
        """No lists."""
        return cls(np.zeros(0, dtype), np.zeros(0, np.int64))

    @classmethod
    def concatenate(cls, parts: Sequence[Ragged]) -> Ragged:
        """All lists of at least one part, in order."""
        lengths = np.concatenate([part.lengths for part in parts])
        return cls(np.concatenate([part.values for part in parts]), np.cumsum(lengths, dtype=np.int64))

    def __len__(self) -> int:
        return len(self.ends)

    def __getitem__(self, place: int) -> NDArray[Any]:
        return self.values[int(self.starts[place]) : int(self.ends[place])]

    def __iter__(self) -> Iterator[NDArray[Any]]:
        return iter(np.split(self.values, self.ends)[:-1] if len(self) else [])

    @property
    def starts(self) -> NDArray[np.int64]:
        """Where each list begins (m,)."""
        return np.concatenate([np.zeros(min(1, len(self.ends)), np.int64), self.ends[:-1]])

    @property
    def lengths(self) -> NDArray[np.int64]:
        """The length of each list (m,)."""
        return self.ends - self.starts

    def take(self, places: NDArray[np.integer]) -> Ragged:
        """The lists at these places (p,)."""
        lengths = self.lengths[places]
        ends = np.cumsum(lengths, dtype=np.int64)
        shift = np.repeat(self.starts[places] - (ends - lengths), lengths)
        return Ragged(self.values[np.arange(len(shift)) + shift], ends)

    def to_arrays(self, name: str) -> dict[str, NDArray[Any]]:
        """The arrays ``NAME`` and ``NAME_ends``."""
        return {name: self.values, f"{name}_ends": self.ends}

    @classmethod
    def from_arrays(cls, name: str, arrays: Mapping[str, NDArray[Any]]) -> Ragged:
        """Inverse of ``to_arrays``."""
        return cls(arrays[name], arrays[f"{name}_ends"])
