"""How many rows the pool of a machine with a kernel may have: the memory holds their kernel values with each other.

Of kernels with several gammas each has its own values; all columns of one gamma share them.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np

from coremargin.engine.want import Want
from coremargin.problems.common.sizes import float64_row_bytes
from coremargin.problems.kernel.spec import HELP
from coremargin.spec import format_size

if TYPE_CHECKING:
    from coremargin.data.source import Source

#: The part of the memory that is for these values; the rest is for rows, and for what solves hold.
SHARE = 0.75


#: Values of so many rows are held in float64 whatever is asked; of more only where epsilon is smaller than this.
FEW, EXACT = 4096, 1e-5


@dataclass(frozen=True)
class Room:
    """memory_bytes: so many for the rows of a source, with so many kernels and columns of weights."""

    memory_bytes: int
    source: Source
    kernels: int = 1
    columns: int = 1

    @property
    def capacity(self) -> int:
        """Rows that have room, with values in float32."""
        row, value = self._row, 4.0 * self.kernels
        room = SHARE * self.memory_bytes
        return int((math.sqrt(row * row + 4.0 * value * room) - row) / (2.0 * value))

    @property
    def _row(self) -> int:
        """Bytes of a row of the pool and of its weights, newest and best."""
        return float64_row_bytes(self.source) + 16 * self.columns

    def dtype(self, rows: int, epsilon: float) -> np.dtype[Any]:
        """In which the values of so many rows are held: bounds are computed apart from them, in float64."""
        wide = (rows <= FEW or epsilon < EXACT) and rows <= self._wide
        return np.dtype(np.float64 if wide else np.float32)

    def held(self, dtype: np.dtype[Any]) -> int:
        """How many rows have room with values in this precision."""
        return min(self.source.rows, self.capacity if dtype.itemsize == 4 else self._wide)

    @property
    def _wide(self) -> int:
        """Rows that have room with values in float64."""
        return int(self.capacity / math.sqrt(2.0))

    def want(self, rows: int) -> Want:
        """Memory for the kernel values of so many rows."""
        rows = min(max(rows, self.capacity + 1), self.source.rows)
        size = int((4 * self.kernels * rows * rows + rows * self._row) / SHARE) + 1
        return Want(
            given=self.memory_bytes, size=size, rows=rows, what="rows that the pool needs, with their kernel values",
            less=HELP, room=self.capacity,
        )  # fmt: skip

    @property
    def told(self) -> str:
        """What there is room for, for people."""
        gammas = "" if self.kernels == 1 else f", for each of {self.kernels} values of gamma"
        return f"{format_size(self.memory_bytes)} of memory hold the kernel values of {self.capacity:,} rows{gammas}"
