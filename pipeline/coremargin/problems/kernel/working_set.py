"""The working set: how many rows fit, with their kernel matrix, and which rows join.

Each gamma has a kernel matrix of its own, which all its columns share.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from functools import partial
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from coremargin.blas import one_blas_thread
from coremargin.engine.memory_need import MemoryNeed
from coremargin.maths.kernel.gram import Gram
from coremargin.problems.common.driver_rows import thin_by_class
from coremargin.problems.common.sizes import float64_row_bytes
from coremargin.problems.common.threads import map_in_threads
from coremargin.problems.kernel.spec import HELP
from coremargin.spec import format_size

if TYPE_CHECKING:
    from coremargin.data.source import Source
    from coremargin.maths.kernel.functions import Kernel, Points

Array = NDArray[np.float64]

#: Part of the memory that is for kernel matrices; the rest is for rows and solvers.
SHARE = 0.75
#: Matrices of up to FEW rows are in float64; larger ones only for an epsilon below EXACT.
FEW, EXACT = 4096, 1e-5
#: The fractional part of the golden ratio in 64 bits: its multiples are evenly spread (Knuth, section 6.4).
_GOLDEN = np.uint64(0x9E3779B97F4A7C15)


@dataclass(frozen=True)
class Capacity:
    """Room for a working set in memory_bytes, with one matrix for each kernel and dual weights for each column."""

    memory_bytes: int
    source: Source
    kernels: int = 1
    columns: int = 1

    @property
    def rows(self) -> int:
        """Rows that fit, with kernel values in float32."""
        row, value = self._row_bytes, 4.0 * self.kernels
        room = SHARE * self.memory_bytes
        return int((math.sqrt(row * row + 4.0 * value * room) - row) / (2.0 * value))

    @property
    def _row_bytes(self) -> int:
        """Bytes of a row and of its dual weights, newest and best."""
        return float64_row_bytes(self.source) + 16 * self.columns

    @property
    def _rows_in_float64(self) -> int:
        return int(self.rows / math.sqrt(2.0))

    def dtype(self, rows: int, epsilon: float) -> np.dtype[Any]:
        """The precision of a kernel matrix of so many rows. Bounds are always computed in float64, apart from it."""
        wide = (rows <= FEW or epsilon < EXACT) and rows <= self._rows_in_float64
        return np.dtype(np.float64 if wide else np.float32)

    def matrix_rows(self, dtype: np.dtype[Any]) -> int:
        """Rows that fit with kernel values in this precision."""
        return min(self.source.rows, self.rows if dtype.itemsize == 4 else self._rows_in_float64)

    def extend_matrix(
        self, cache: list[Gram], kernels: Sequence[Kernel], points: Points, ids: NDArray[np.int64], epsilon: float
    ) -> Gram:
        """The kernel matrices of rows with these ids; cache: the last ones, in a list of one, which is updated.

        Raises KernelFault.
        """
        dtype = self.dtype(len(ids), epsilon)
        if cache[0].buffer.dtype != dtype:  # free one buffer before the other is allocated
            cache[0] = Gram.empty()
        gram, strips = cache[0].extended(ids, dtype, self.matrix_rows(dtype), len(kernels))
        with one_blas_thread():
            map_in_threads(partial(gram.fill, kernels, points), strips)
        cache[0] = gram
        return gram

    def memory_need(self, rows: int) -> MemoryNeed:
        """The memory that a working set of so many rows needs."""
        rows = min(max(rows, self.rows + 1), self.source.rows)
        size = int((4 * self.kernels * rows * rows + rows * self._row_bytes) / SHARE) + 1
        return MemoryNeed(
            given=self.memory_bytes,
            size=size,
            rows=rows,
            what="rows of the working set, with their kernel matrix",
            less=HELP,
            room=self.rows,
        )

    def describe(self) -> str:
        """How many rows fit, for messages."""
        gammas = "" if self.kernels == 1 else f", for each of {self.kernels} values of gamma"
        return f"{format_size(self.memory_bytes)} of memory hold the kernel matrix of {self.rows:,} rows{gammas}"


def select_candidates(scores: Array, ids: NDArray[np.int64], classes: NDArray[np.int32], most: int) -> NDArray[np.intp]:
    """Increasing positions (m,) of at most about ``most`` candidates with these scores (n,), ids and classes.

    Half of them have the highest scores. The other half are spread over the rest by their ids, reproducibly: the worst
    rows alone may all have wrong labels. If all scores are equal, as before the first solve, each class gets a share.
    """
    if len(scores) <= most:
        return np.arange(len(scores))
    if scores.min() == scores.max():
        return thin_by_class(classes, most)
    order = np.lexsort((ids, -scores))
    worst, others = order[: most - most // 2], order[most - most // 2 :]
    spread = np.argsort(ids[others].astype(np.uint64) * _GOLDEN, kind="stable")
    return np.sort(np.concatenate([worst, others[spread[: most // 2]]]))
