"""What a feature map is: rows (n, d) go in, rows (n, M) come out, tile by tile.

Tiles have one size, so that the bits of a mapped row depend on that row alone, not on its neighbours.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from functools import cached_property
from typing import TYPE_CHECKING, Any, ClassVar

import numpy as np
from numpy.typing import NDArray

from coremargin.maths.rows import is_sparse

if TYPE_CHECKING:
    from scipy.sparse import csr_array

Array = NDArray[np.float64]

#: Numbers of a tile: it stays in the second-level cache.
_TILE = 1 << 17
#: Rows of a tile, at most and at least, which is what they are a multiple of. Of other numbers of rows the last ones
#: take another path through OpenBLAS, with other roundings (found: 256 rows, of which the last 16; on one thread).
_ROWS = (240, 48)
#: By how much a row may be longer than its map allows: what rounding does where landmarks almost coincide.
ROUNDED = 1e-3


class FeatureMap(ABC):
    """A map of rows (n, d) to rows (n, M)."""

    KIND: ClassVar[str]

    features: int  #: d
    width: int  #: M

    @abstractmethod
    def numbers(self) -> dict[str, NDArray[Any]]:
        """The arrays that it is made of, by name."""

    @abstractmethod
    def longest(self, lengths: Array) -> Array:
        """Lengths (c,) that no mapped row exceeds, of rows of at most these lengths (c,)."""

    @abstractmethod
    def moves(self, longest: float) -> float:
        """How far mapped rows may be from the exact ones, at most: computed here, and by the verifier.

        longest: of the rows that are mapped.
        """

    def surest(self) -> float:
        """A length up to which rounding does not decide about mapped rows; infinite where it never does."""
        return np.inf

    @abstractmethod
    def _tile(self, x: Array, out: Array) -> None:
        """Rows x (t, d) float64, which may be overwritten, mapped to ``out`` (t, M)."""

    def _sparse_tile(self, x: csr_array, out: Array) -> None:
        """The same of sparse rows."""
        self._tile(x.toarray(), out)

    @cached_property
    def tile_rows(self) -> int:
        """Rows that are mapped at a time."""
        most, least = _ROWS
        return max(least, min(most, _TILE // max(self.features, self.width) // least * least))

    def into(self, rows: NDArray[Any] | csr_array, out: Array) -> Array:
        """Map rows (n, d), of any precision, to ``out`` (n, M); returns the squares (n,) of the mapped rows' lengths.

        What overflows is not finite.
        """
        n, step = rows.shape[0], self.tile_rows
        found = np.empty(n)
        sparse = is_sparse(rows)
        x, last = np.zeros((0 if sparse else step, self.features)), np.empty((step, self.width))
        with np.errstate(over="ignore", invalid="ignore", under="ignore"):
            for start in range(0, n, step):
                part = slice(start, min(n, start + step))
                size = part.stop - start
                target = out[part] if size == step else last
                if sparse:
                    some = rows[part].astype(np.float64)
                    some.resize((step, self.features))
                    self._sparse_tile(some, target)
                else:
                    x[:size], x[size:] = rows[part], 0.0
                    self._tile(x, target)
                if size < step:
                    out[part] = last[:size]
                found[part] = np.einsum("ij,ij->i", out[part], out[part])
        return found

    def of_rows(self, rows: NDArray[Any] | csr_array) -> Array:
        """Rows (n, d) mapped: (n, M)."""
        out = np.empty((rows.shape[0], self.width))
        self.into(rows, out)
        return out
