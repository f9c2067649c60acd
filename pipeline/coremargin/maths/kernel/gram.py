"""Kernel matrices of the working set: half of the values are computed, and known ones are reused as the set grows.

There is one matrix for each kernel. The kernels differ only in gamma, and what they share is computed once.

A matrix consists of strips of STRIP rows, each with all columns up to its own end, and is mirrored. A strip is a row of
matrix products whose shapes depend only on its position. So its bits depend neither on how often the set grew nor on
what was cached, and a resumed run computes the same ones.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any

import numpy as np
from numpy.typing import NDArray

from coremargin.maths.kernel.functions import TILE_COLUMNS, Kernel, Points, relocate_faults

STRIP = 512  #: rows of a strip


@dataclass(frozen=True)
class Gram:
    """ids (p,) of the rows; buffer (g, r, r): room for r rows with g kernels, of which [:, :p, :p] is filled.

    The operating system provides memory when it is written to, so a set grows into its buffer and is never copied.
    """

    ids: NDArray[np.int64]
    buffer: NDArray[Any]

    @classmethod
    def empty(cls) -> Gram:
        """A matrix of no rows."""
        return cls(np.zeros(0, np.int64), np.zeros((1, 0, 0)))

    @property
    def values(self) -> NDArray[Any]:
        """Kernel values (g, p, p) of the rows."""
        return self.buffer[:, : len(self.ids), : len(self.ids)]

    def extended(
        self, ids: NDArray[np.int64], dtype: np.dtype[Any], capacity: int, kernels: int = 1
    ) -> tuple[Gram, list[int]]:
        """A matrix for these rows (p,), p <= capacity, and the first rows of the strips that are still to be filled."""
        known = len(self.ids) // STRIP * STRIP
        fits = self.buffer.dtype == dtype and self.buffer.shape[0] == kernels and self.buffer.shape[1] >= len(ids)
        if not fits or known > len(ids) or not np.array_equal(ids[:known], self.ids[:known]):
            known = 0
        buffer = self.buffer if fits else np.empty((kernels, capacity, capacity), dtype)
        return Gram(ids, buffer), list(range(known, len(ids), STRIP))

    def fill(self, kernels: Sequence[Kernel], points: Points, first: int) -> None:
        """Fill the strip that begins at a row, and its mirror. Strips may be filled in parallel."""
        stop, several = min(first + STRIP, len(self.ids)), len(kernels) > 1
        mine, scratch = points.take(slice(first, stop)), np.empty((1 + several, STRIP * TILE_COLUMNS))
        for across in range(0, stop, TILE_COLUMNS):
            end = min(across + TILE_COLUMNS, stop)
            shape = stop - first, end - across
            memory = [values[: shape[0] * shape[1]].reshape(shape) for values in scratch]
            work = partial(kernels[0].products, mine, points.take(slice(across, end)), memory[0])
            shared = relocate_faults(work, first, across)
            for kernel, values in zip(kernels, self.buffer, strict=True):
                tile = kernel.from_products(shared, self.buffer.dtype, memory[1] if several else None)
                values[first:stop, across:end] = tile
        for values in self.buffer:
            own = values[first:stop, first:stop]
            own[:] = np.tril(own) + np.tril(own, -1).T
            values[:first, first:stop] = values[first:stop, :first].T
