"""Mapped rows as ``verify`` makes them, with code of its own, and what rounding may do to them: z of a scaled row x.

    nystroem     N k, k_j = exp(-gamma ||x - l_j||^2), each distance from its differences
    fourier      sqrt(2 / M) cos(W'x + o)
    polynomial   all products of ``degree`` entries of u = (sqrt(gamma) x, sqrt(coef0)), k of them, each times the root
                 of the number of its orders; of a sketch the circular convolution of ``degree`` count sketches of u

A claim is about the exact z of the model's arrays, wherever those came from. What is computed here is within ``moved``
of it, a bound on the length of the error that is known before rows are read (u is the unit, g_n = n u / (1 - n u)):

    nystroem     a distance is a sum of squares, so it is off by a share of g_(d+4), and v exp(-v) <= 1 / e; exp loses
                 8 u; N makes that at most ||N||_2 times longer, its sums lose g_M ||N||_F, and ||k|| <= sqrt(M)
    fourier      a phase is off by g_(d+3) (||x|| ||w_j|| + |o_j|), which a cosine does not make larger. Lengths of rows
                 are not known before: PHASES is what is granted, and that no row needs more is looked at
    polynomial   products only, so each entry is off by a share; of a sketch the sums of |entries| take its place, which
                 sum to at most (sqrt(k) ||u||)^degree. In units of the radius of the claim, of which ``norms`` says
                 that no row is longer, ``mapped`` that of a sketch it is such a sum: a larger one only asks for more

Whatever is found about the z made here is true of the exact ones if it is made worse by what a move of each row by
``moved`` can do: margins by SPREAD times it, losses by ||w|| times it, sums of rows by it times their weights. So no
claim that holds here is false of the exact rows, whoever makes it; trainers widen their claims by more than that.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from functools import cache, cached_property
from typing import TYPE_CHECKING, Any

import numpy as np
from msgspec import UNSET
from scipy.sparse import issparse
from scipy.spatial.distance import cdist

from coremargin.formats.feature_map import PREFIX, sketched
from coremargin.verify.rows import Chunk
from coremargin.verify.sums import SLAB_VALUES, TINY, UNIT, gamma, length, row_lengths, slabs, true_lengths

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

    from coremargin.formats.model_record import ModelRecord

#: How far apart two rows move that each move by 1, in a margin of several classes (sqrt(2)) or of two (1); with room.
SPREAD = 1.5
#: What the phases of a Fourier map may be off by.
PHASES = 1e-10
_LIBRARY = 8 * UNIT  # of exp and cos, at most
_ROUNDED = 1e-3
_BLOCK = 512  # rows that are mapped at a time
_PART_BYTES = 64 << 20  # of mapped rows that are there at a time, in each thread


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
    asked: float | str = 1.0  #: gamma as it is said to be: "scale", or a number

    @classmethod
    def of(cls, record: ModelRecord, arrays: Mapping[str, np.ndarray]) -> RowMap | None:
        """That of a model's files; None where rows are not mapped."""
        if not record.map:
            return None
        asked = record.parameters
        degree, coef0 = (0 if value is UNSET else value for value in (asked.degree, asked.coef0))
        numbers = {name.removeprefix(PREFIX): values for name, values in arrays.items() if name.startswith(PREFIX)}
        sketch = record.map == "polynomial" and sketched(asked, record.features)
        return cls(
            record.map,
            record.features,
            record.width,
            numbers,
            int(degree),
            float(coef0),
            sketch,
            asked.gamma,
        )

    @property
    def scale(self) -> bool:
        """Whether gamma is said to be the one of "scale"."""
        return self.asked == "scale"

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

    @property
    def _entries(self) -> int:
        """Of u."""
        return self.features + (self.coef0 > 0)

    def moved(self, radius: float) -> float:
        """How far a mapped row may be off, radius being the length that none is said to exceed."""
        if self.kind == "nystroem":
            return self._nystroem_moved
        if self.kind == "fourier":
            return PHASES
        return self._share * radius + math.sqrt(self.width) * TINY

    @cached_property
    def _nystroem_moved(self) -> float:
        matrix, m = np.abs(self.numbers["normalization"]), self.width
        whole = length(matrix.ravel())
        most = min(whole, math.sqrt(float(matrix.sum(axis=0).max()) * float(matrix.sum(axis=1).max())))  # ||N||_2
        kernel = 0.4 * gamma(self.features + 5) + _LIBRARY + TINY
        return (most * kernel + gamma(m + 1) * whole * (1.0 + kernel)) * math.sqrt(m) * (1.0 + gamma(m + 8))

    @cached_property
    def _share(self) -> float:
        """Of the sizes of what a polynomial's rows are sums of."""
        terms = self.degree * (self._entries + 4) if self.sketch else 4 * self.degree
        return gamma(terms + 8) * (1.0 + gamma(self.width + 8)) * (1.0 + _ROUNDED)

    def needs(self, lengths: np.ndarray) -> float:
        """What ``moved`` has to be for rows of these lengths (n,)."""
        most = float(lengths.max(initial=0.0))
        if self.kind == "fourier":
            turns = most * self._frequency + float(np.abs(self.numbers["offsets"]).max())
            return math.sqrt(2.0) * (gamma(self.features + 3) * turns + _LIBRARY + 8 * UNIT) * (1.0 + _ROUNDED)
        if self.sketch:
            return self._share * self.longest(most)
        return 0.0

    @cached_property
    def _frequency(self) -> float:
        """The length of the longest column of W."""
        return float(true_lengths(self.numbers["weights"].T).max()) * (1.0 + gamma(self.features + 8))

    def parts(self, chunk: Chunk) -> Iterator[Chunk]:
        """A chunk with its rows mapped, in parts, in order: mapped rows may take many times the room of stored ones.

        ``given`` has the rows as they were, ``needs`` what they ask for of ``moved``.
        """
        step = max(_BLOCK, _PART_BYTES // (8 * self.width))
        for start in range(0, len(chunk.codes), step):
            x, codes = chunk.x[start : start + step], chunk.codes[start : start + step]
            weights = None if chunk.weights is None else chunk.weights[start : start + step]
            lengths = np.concatenate([row_lengths(some) for _, some in slabs(x)])
            yield Chunk(chunk.start + start, self.rows(x), codes, weights, given=x, needs=self.needs(lengths))

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
        """The circular convolution of the count sketches of u (n, k), one entry after the other."""
        made = np.zeros((len(u), self.width))
        made[:, 0] = 1.0
        for places, signs in zip(self.numbers["index"], self.numbers["sign"], strict=True):
            turned = np.zeros_like(made)
            for j, (place, sign) in enumerate(zip(places.tolist(), signs.tolist(), strict=True)):
                share = sign * u[:, j : j + 1]
                turned[:, place:] += share * made[:, : self.width - place]
                turned[:, :place] += share * made[:, self.width - place :]
            made = turned
        return made


def alike(one: RowMap | None, other: RowMap | None) -> bool:
    """Whether two claims are about rows mapped alike."""
    return other is None if one is None else one.same(other)
