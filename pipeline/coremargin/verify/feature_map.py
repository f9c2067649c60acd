"""Mapped rows as ``verify`` makes them, with code of its own; the definition is that of the format, repeated here.

In float64, of a row x as it is scaled: ``nystroem`` N k with k_j = exp(-gamma ||x - l_j||^2), each distance from its
differences; ``fourier`` sqrt(2 / M) cos(W'x + o); ``polynomial`` all products of ``degree`` entries of
u = (sqrt(gamma) x, sqrt(coef0)), each times the root of the number of its orders; of a sketch the circular convolution
of ``degree`` count sketches of u.

A claim about mapped rows holds of the map that the model has, wherever that came from. Two who evaluate a map differ by
rounding, which no definition of so many products, exponentials and sums can rule out. So bounds are compared to a
billionth of their size, and of the size of a row (``within``): numbers that are fixed here, whatever a model says.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, replace
from functools import cache, cached_property
from typing import TYPE_CHECKING, Any

import numpy as np
from msgspec import UNSET
from scipy.sparse import csr_array, issparse
from scipy.spatial.distance import cdist

from coremargin.formats.feature_map import PREFIX, sketched
from coremargin.verify.sums import SLAB_VALUES, true_lengths

if TYPE_CHECKING:
    from collections.abc import Mapping

    from coremargin.formats.model_record import ModelRecord
    from coremargin.verify.rows import Chunk

#: What rounding of a map may change of a bound: a share of the bound, and of the longest row's size.
SHARE, OF_SIZE = 1e-9, 1e-10
_ROUNDED = 1e-3
_BLOCK = 512  # rows that are mapped at a time


@dataclass(frozen=True, eq=False)
class RowMap:
    """The map of a model; numbers: its arrays by name."""

    kind: str
    features: int
    width: int
    numbers: Mapping[str, np.ndarray]
    degree: int = 0
    coef0: float = 0.0
    sketch: bool = False

    @classmethod
    def of(cls, record: ModelRecord, arrays: Mapping[str, np.ndarray]) -> RowMap | None:
        """That of a model's files; None where rows are not mapped."""
        if not record.map:
            return None
        asked = record.parameters
        degree, coef0 = (0 if value is UNSET else value for value in (asked.degree, asked.coef0))
        numbers = {name.removeprefix(PREFIX): values for name, values in arrays.items() if name.startswith(PREFIX)}
        sketch = record.map == "polynomial" and sketched(asked, record.features)
        return cls(record.map, record.features, record.width, numbers, int(degree), float(coef0), sketch)

    def same(self, other: RowMap | None) -> bool:
        """Whether another map is the same, number by number."""
        if other is None or (self.kind, self.degree, self.coef0) != (other.kind, other.degree, other.coef0):
            return False
        return self.numbers.keys() == other.numbers.keys() and all(
            np.array_equal(values, other.numbers[name]) for name, values in self.numbers.items()
        )

    def rows(self, x: Any) -> np.ndarray:
        """Rows x (n, d), dense or sparse, mapped: (n, M) float64."""
        out = np.empty((x.shape[0], self.width))
        step = max(1, min(_BLOCK, SLAB_VALUES // self.features))
        for start in range(0, x.shape[0], step):
            part = x[start : start + step].astype(np.float64)
            out[start : start + step] = self._block(part)
        return out

    def longest(self, length: float) -> float:
        """A length that no mapped row exceeds, of rows up to a length: (1 + a thousandth) where rounding may show."""
        if self.kind != "polynomial":
            return (math.sqrt(2.0) if self.kind == "fourier" else 1.0) * (1 + _ROUNDED)
        entries = self.features + (self.coef0 > 0) if self.sketch else 1
        square = entries * (float(self.numbers["gamma"][0]) * length * length + self.coef0)
        try:
            return float(square ** (self.degree / 2))
        except OverflowError:
            return math.inf

    def mapped(self, chunk: Chunk) -> Chunk:
        """A chunk with its rows mapped; ``given`` has them as they were."""
        return replace(chunk, x=self.rows(chunk.x), given=chunk.x)

    def _block(self, x: Any) -> np.ndarray:
        if self.kind == "fourier":
            return np.asarray(np.cos(x @ self.numbers["weights"] + self.numbers["offsets"]) * math.sqrt(2 / self.width))
        dense = x.toarray() if issparse(x) else x
        gamma = float(self.numbers["gamma"][0])
        if self.kind == "nystroem":
            distances = cdist(dense, self.numbers["landmarks"], "sqeuclidean")
            return np.asarray(np.exp(-gamma * distances) @ self.numbers["normalization"].T)
        u = math.sqrt(gamma) * dense
        if self.coef0 > 0:
            u = np.column_stack([u, np.full(len(u), math.sqrt(self.coef0))])
        return self._convolved(u) if self.sketch else self._products(u)

    def _products(self, u: np.ndarray, degree: int | None = None, first: int = 0) -> np.ndarray:
        """Products of entries of u (n, k) from ``first`` on, with their weights where they have the map's degree."""
        left = self.degree if degree is None else degree
        if left == 0:
            return np.ones((len(u), 1))
        found = [u[:, i : i + 1] * self._products(u, left - 1, i) for i in range(first, u.shape[1])]
        made = np.concatenate(found, axis=1)
        return made * self._roots if degree is None else made

    @cached_property
    def _roots(self) -> np.ndarray:
        """Of each product the root of the number of its orders, degree! / (powers of its entries)!."""

        @cache
        def shares(left: int, entries: int) -> np.ndarray:
            if entries == 1:
                return np.array([1.0 / math.factorial(left)])
            parts = [shares(left - own, entries - 1) / math.factorial(own) for own in range(left, -1, -1)]
            return np.concatenate(parts)

        return np.asarray(np.sqrt(math.factorial(self.degree) * shares(self.degree, self.features + (self.coef0 > 0))))

    def _convolved(self, u: np.ndarray) -> np.ndarray:
        """The circular convolution of the count sketches of u (n, k)."""
        spectrum = np.ones((len(u), self.width // 2 + 1), np.complex128)
        for places, signs in zip(self.numbers["index"], self.numbers["sign"], strict=True):
            sketch = csr_array((signs.astype(np.float64), (np.arange(len(places)), places)), (len(places), self.width))
            spectrum *= np.fft.rfft(u @ sketch, axis=1)
        return np.asarray(np.fft.irfft(spectrum, n=self.width, axis=1))


def within(claim: Any) -> Any:
    """A claim of mapped rows as it is compared with what is found: its bounds moved apart by what rounding may do."""
    if claim.map is None:
        return claim
    size = float(true_lengths(claim.x).max(initial=0.0)) if claim.x.shape[1] else 0.0
    return claim.widened(SHARE, OF_SIZE * size)


def alike(one: RowMap | None, other: RowMap | None) -> bool:
    """Whether two claims are about rows mapped alike."""
    return other is None if one is None else one.same(other)


def told(made: RowMap) -> str:
    """What is said of a map: that the proof is about mapped rows."""
    text = f"{made.kind}: the proof is about rows mapped by the model's numbers to {made.width:,} features; bounds are "
    return f"{text}compared to {SHARE:g} of their size, where rounding decides"
