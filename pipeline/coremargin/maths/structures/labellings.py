"""Dual points of structured output: labellings of examples, each with a weight."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Self

import numpy as np
from numpy.typing import NDArray

Array = NDArray[np.float64]
Ids = NDArray[np.int64]


@dataclass(frozen=True)
class Labellings:
    """Labellings other than the true ones, in the order of their examples.

    example (m,): numbers of examples, increasing, one for each labelling. weight (m,): above 0. labels: a class for
    each row of each labelling, one labelling after the other; ends (m,): where each ends.
    """

    example: Ids
    weight: Array
    labels: NDArray[np.unsignedinteger[Any]]
    ends: Ids

    @classmethod
    def nothing(cls, classes: int) -> Self:
        """No labelling, of so many classes."""
        return cls(np.zeros(0, np.int64), np.zeros(0), np.zeros(0, label_dtype(classes)), np.zeros(0, np.int64))

    def __len__(self) -> int:
        return len(self.example)

    @property
    def starts(self) -> Ids:
        """Where each labelling starts (m,)."""
        return np.concatenate([np.zeros(1, np.int64), self.ends[:-1]]) if len(self) else self.ends

    def take(self, places: NDArray[np.intp]) -> Self:
        """The labellings at these places, which increase."""
        lengths, starts = (self.ends - self.starts)[places], self.starts[places]
        return type(self)(
            self.example[places], self.weight[places], self.labels[ragged(starts, lengths)], np.cumsum(lengths)
        )

    def between(self, first: int, stop: int) -> Self:
        """The labellings of the examples from ``first`` to ``stop`` - 1."""
        a, b = np.searchsorted(self.example, [first, stop])
        start = int(self.ends[a - 1]) if a else 0
        end = int(self.ends[b - 1]) if b else 0
        return type(self)(self.example[a:b], self.weight[a:b], self.labels[start:end], self.ends[a:b] - start)

    def of(self, examples: Ids) -> Self:
        """The labellings of these examples (n,), which increase."""
        return self.take(np.flatnonzero(np.isin(self.example, examples)))

    def replaced(self, examples: Ids, new: Self) -> Self:
        """The same with ``new`` as the labellings of these examples (n,)."""
        every = self.concatenate([self.take(np.flatnonzero(~np.isin(self.example, examples))), new])
        return every.take(np.argsort(every.example, kind="stable"))

    @classmethod
    def concatenate(cls, several: Sequence[Self]) -> Self:
        """All of them, one after the other."""
        shifts = np.cumsum([0, *(len(each.labels) for each in several)])
        return cls(
            np.concatenate([each.example for each in several]),
            np.concatenate([each.weight for each in several]),
            np.concatenate([each.labels for each in several]),
            np.concatenate([each.ends + shift for each, shift in zip(several, shifts, strict=False)]),
        )

    def to_arrays(self, name: str) -> dict[str, NDArray[Any]]:
        """Plain arrays, exact."""
        fields = {"example": self.example, "weight": self.weight, "labels": self.labels, "ends": self.ends}
        return {f"{name}_{field}": values for field, values in fields.items()}

    @classmethod
    def from_arrays(cls, name: str, arrays: Mapping[str, NDArray[Any]]) -> Self:
        """Inverse of ``to_arrays``."""
        return cls(*(arrays[f"{name}_{field}"] for field in ("example", "weight", "labels", "ends")))


def label_dtype(classes: int) -> np.dtype[np.unsignedinteger[Any]]:
    """The smallest type that holds every class."""
    return np.dtype(np.uint8 if classes <= 256 else np.uint16 if classes <= 65536 else np.uint32)


def ragged(starts: NDArray[Any], lengths: NDArray[Any]) -> Ids:
    """The places from each start on, as many as its length, one run after the other."""
    ends = np.cumsum(lengths)
    return np.asarray(np.arange(int(ends[-1]) if len(ends) else 0) + np.repeat(starts - (ends - lengths), lengths))
