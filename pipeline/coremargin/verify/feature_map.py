"""Maps of rows in the verifier's own code, and how far rounding may move a mapped row: z of a scaled row x.

    nystroem     N k, k_j = exp(-gamma ||x - l_j||^2), each distance from its differences
    fourier      sqrt(2 / M) cos(W'x + o)
    polynomial   all products of ``degree`` entries of u = (sqrt(gamma) x, sqrt(coef0)), k of them, each times the root
                 of the number of its orders; of a sketch the circular convolution of ``degree`` count sketches of u

A claim is about the exact z that the model's arrays define, whatever their origin. What is computed here is within
``moved`` of it, a bound on the error's length that is known before rows are read (u: the unit, g_n = n u / (1 - n u)):

    nystroem     a distance is a sum of squares, so it is off by a share of g_(d+4), and v exp(-v) <= 1 / e; exp loses
                 8 u; N makes that at most ||N||_2 times longer, its sums lose g_M ||N||_F, and ||k|| <= sqrt(M)
    fourier      a phase is off by g_(d+3) (||x|| ||w_j|| + |o_j|), which a cosine does not make larger. Lengths of rows
                 are not known before: PHASES is assumed, and the scan checks that no row needs more
    polynomial   products only, so each entry is off by a share; of a sketch the sums of |entries| take its place, which
                 sum to at most (sqrt(k) ||u||)^degree. In units of the claimed radius: the scan checks that no row is
                 longer and, of a sketch, that no such sum is larger

Bounds found for the z computed here hold for the exact ones after they are widened by what moving each row by ``moved``
can do: margins by SPREAD times it, losses by ||w|| times it, sums of rows by it times their weights. So no claim that
is accepted is false of the exact rows; trainers widen their claims by more than that.
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

#: By how much a margin of several classes (sqrt(2)) or of two (1) changes if each row moves by 1; with a reserve.
SPREAD = 1.5
#: Assumed bound on the error of a Fourier map.
PHASES = 1e-10
_LIBRARY = 8 * UNIT  # upper bound on the error of exp and cos
_ROUNDED = 1e-3
_BLOCK = 512  # rows that are mapped at a time
_PART_BYTES = 64 << 20  # of mapped rows in memory, per thread


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
    gamma: float | str = 1.0  #: of the parameters: "scale", or a number

    @classmethod
    def of(cls, record: ModelRecord, arrays: Mapping[str, np.ndarray]) -> RowMap | None:
        """The map in a model's files; None if rows are not mapped."""
        if not record.map:
            return None
        parameters = record.parameters
        degree, coef0 = (0 if value is UNSET else value for value in (parameters.degree, parameters.coef0))
        numbers = {name.removeprefix(PREFIX): values for name, values in arrays.items() if name.startswith(PREFIX)}
        sketch = record.map == "polynomial" and sketched(parameters, record.features)
        return cls(
            record.map, record.features, record.width, numbers, int(degree), float(coef0), sketch, parameters.gamma
        )

    @property
    def scale(self) -> bool:
        """Whether gamma is claimed to be that of "scale"."""
        return self.gamma == "scale"

    def same(self, other: RowMap | None) -> bool:
        """Whether another map has the same numbers."""
        if other is None or (self.kind, self.degree, self.coef0) != (other.kind, other.degree, other.coef0):
            return False
        return self.numbers.keys() == other.numbers.keys() and all(
            np.array_equal(values, other.numbers[name]) for name, values in self.numbers.items()
        )

    def rows(self, x: Any) -> np.ndarray:
        """Mapped rows (n, M) float64 of rows x (n, d), dense or sparse."""
        out = np.empty((x.shape[0], self.width))
        step = max(1, min(_BLOCK, SLAB_VALUES // self.features))
        for start in range(0, x.shape[0], step):
            part = x[start : start + step].astype(np.float64)
            out[start : start + step] = self._block(part)
        return out

    def longest(self, length: float) -> float:
        """An upper bound on the length of mapped rows, of rows up to ``length``; a thousandth more covers rounding."""
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
        """The number of entries of u."""
        return self.features + (self.coef0 > 0)

    def moved(self, radius: float) -> float:
        """Upper bound on the error's length of a mapped row; radius: the claimed length of the longest one."""
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
        """Relative error of a polynomial's entries."""
        terms = self.degree * (self._entries + 4) if self.sketch else 4 * self.degree
        return gamma(terms + 8) * (1.0 + gamma(self.width + 8)) * (1.0 + _ROUNDED)

    def needs(self, lengths: np.ndarray) -> float:
        """Lower bound on the ``moved`` that rows of these lengths (n,) need."""
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
        """A chunk with its rows mapped, in parts, in order: mapped rows may need much more memory than stored ones.

        ``given`` has the rows before the map, ``needs`` what ``moved`` has to be for them.
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
        """Products of entries of u (n, k) from ``first`` on; weighted if they have the map's degree."""
        left = self.degree if degree is None else degree
        if left == 0:
            return np.ones((len(u), 1))
        found = [u[:, i : i + 1] * self._products(u, left - 1, i) for i in range(first, u.shape[1])]
        made = np.concatenate(found, axis=1)
        return made * self._roots if degree is None else made

    @cached_property
    def _roots(self) -> np.ndarray:
        """The root of each product's number of orders, degree! / (powers of its entries)!."""

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
    """Whether two claims are about rows mapped by the same map."""
    return other is None if one is None else one.same(other)
