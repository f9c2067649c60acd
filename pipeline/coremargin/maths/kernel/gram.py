"""The kernel values of the pool's rows with each other: half of them computed, and those of before kept.

There is a matrix for each kernel; they differ in gamma only, and what they share is computed once for all.

A matrix is made of strips of STRIP rows, each with all columns up to its own end, and mirrored. A strip is a row of
matrix products whose shapes depend on its place only; so its bits do not depend on how often the pool grew before, nor
on what was kept, and a run that was killed goes on with the same ones.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any

import numpy as np
from numpy.typing import NDArray

from coremargin.maths.kernel.functions import TILE_COLUMNS, Kernel, Points, located

#: Rows of a strip.
STRIP = 512


@dataclass(frozen=True)
class Gram:
    """ids (p,) of the rows; memory (g, r, r) of g kernels with room for r rows, their values in [:, :p, :p].

    Memory that nobody wrote to is none: a pool grows into it, and is never held twice.
    """

    ids: NDArray[np.int64]
    memory: NDArray[Any]

    @classmethod
    def nothing(cls) -> Gram:
        """Of no rows."""
        return cls(np.zeros(0, np.int64), np.zeros((1, 0, 0)))

    @property
    def values(self) -> NDArray[Any]:
        """Those of its rows (g, p, p)."""
        return self.memory[:, : len(self.ids), : len(self.ids)]

    def grown(
        self, ids: NDArray[np.int64], dtype: np.dtype[Any], room: int, kernels: int = 1
    ) -> tuple[Gram, list[int]]:
        """These rows (p,), p <= room, with what is known of their values, and where the strips begin that are not."""
        known = len(self.ids) // STRIP * STRIP
        fits = self.memory.dtype == dtype and self.memory.shape[0] == kernels and self.memory.shape[1] >= len(ids)
        if not fits or known > len(ids) or not np.array_equal(ids[:known], self.ids[:known]):
            known = 0
        memory = self.memory if fits else np.empty((kernels, room, room), dtype)
        return Gram(ids, memory), list(range(known, len(ids), STRIP))

    def fill(self, kernels: Sequence[Kernel], points: Points, first: int) -> None:
        """The strip that begins at a row, and its mirror; no two strips touch the same values."""
        stop, several = min(first + STRIP, len(self.ids)), len(kernels) > 1
        mine, scratch = points.take(slice(first, stop)), np.empty((1 + several, STRIP * TILE_COLUMNS))
        for across in range(0, stop, TILE_COLUMNS):
            end = min(across + TILE_COLUMNS, stop)
            shape = stop - first, end - across
            memory = [values[: shape[0] * shape[1]].reshape(shape) for values in scratch]
            work = partial(kernels[0].shared, mine, points.take(slice(across, end)), memory[0])
            shared = located(work, first, across)
            for kernel, values in zip(kernels, self.memory, strict=True):
                tile = kernel.of_shared(shared, self.memory.dtype, memory[1] if several else None)
                values[first:stop, across:end] = tile
        for values in self.memory:
            own = values[first:stop, first:stop]
            own[:] = np.tril(own) + np.tril(own, -1).T
            values[:first, first:stop] = values[first:stop, :first].T
