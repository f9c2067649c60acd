"""The base class of feature maps, which map rows (n, d) to rows (n, M), tile by tile.

Tiles have a fixed size, so that the bits of a mapped row depend on that row alone, not on its neighbours.
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

#: Numbers in a tile: it stays in the second-level cache.
_TILE = 1 << 17
#: Most and least rows of a tile; other sizes are multiples of the least. With other numbers of rows the last ones take
#: another path through OpenBLAS, with other roundings (found: 256 rows, of which the last 16; on one thread).
_ROWS = (240, 48)
#: Share by which a mapped row may be too long, by rounding if landmarks almost coincide.
ROUNDED = 1e-3


class FeatureMap(ABC):
    """A map of rows (n, d) to rows (n, M)."""

    KIND: ClassVar[str]

    features: int  #: d
    width: int  #: M

    @abstractmethod
    def numbers(self) -> dict[str, NDArray[Any]]:
        """The arrays of the map, by name."""

    @abstractmethod
    def longest(self, lengths: Array) -> Array:
        """Upper bounds (c,) on the lengths of mapped rows, for rows of at most these lengths (c,)."""

    @abstractmethod
    def moves(self, longest: float) -> float:
        """Upper bound on the distance of a mapped row from the exact one, if computed here or by the verifier.

        longest: upper bound on the lengths of the rows.
        """

    def surest(self) -> float:
        """The largest length at which rounding errors of mapped rows are small enough; infinite if they always are."""
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

        Numbers that overflow are not finite.
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
