"""Rows of two classes brought to the driver: the question of a read's first stage, and its answer.

The driver solves on these rows. What it then asks of the chunks that they came from it asks in memory.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from coremargin.maths.rows import Rows, concatenate, from_arrays, nothing, take, to_arrays
from coremargin.problems.common.start import left_out

if TYPE_CHECKING:
    from coremargin.data.source import Source
    from coremargin.engine.protocols import Block


@dataclass(frozen=True)
class Brought:
    """Rows that count, in parts: of each chunk its ids (m,), rows (m, d) and signs (m,) int8.

    Parts are joined once, when all are there: a sum of blocks that copied what it has would copy it for each of them.
    """

    parts: tuple[tuple[NDArray[np.int64], Rows, NDArray[np.int8]], ...]

    def merge(self, later: Brought) -> Brought:
        """The parts of both."""
        return Brought(self.parts + later.parts)

    def joined(self) -> tuple[NDArray[np.int64], Rows, NDArray[np.int8]]:
        """All ids (m,), rows (m, d) and signs (m,); at least one part."""
        ids, rows, signs = zip(*self.parts, strict=True)
        return np.concatenate(ids), concatenate(rows), np.concatenate(signs)

    def to_arrays(self) -> dict[str, NDArray[Any]]:
        """For checkpoints."""
        if not self.parts:
            return {}
        ids, rows, signs = self.joined()
        return {"ids": ids, "signs": signs, **to_arrays("rows", rows)}

    @classmethod
    def from_arrays(cls, arrays: Mapping[str, NDArray[Any]]) -> Brought:
        """Inverse of ``to_arrays``, as one part."""
        return cls(((arrays["ids"], from_arrays("rows", arrays), arrays["signs"]),) if arrays else ())


@dataclass(frozen=True)
class BringRows:
    """All rows of some chunks that count: codes of the positive and the negative class."""

    codes: tuple[int, int]
    features: int
    dtype: str
    sparse: bool

    def narrow(self, _: Block) -> BringRows:
        """The same question."""
        return self

    def empty(self) -> Brought:
        """The answer for no rows."""
        nowhere = nothing(self.features, np.dtype(self.dtype), sparse=self.sparse)
        return Brought(((np.zeros(0, np.int64), nowhere, np.zeros(0, np.int8)),))

    def from_arrays(self, arrays: Mapping[str, NDArray[Any]]) -> Brought:
        """A summary from a checkpoint."""
        return Brought.from_arrays(arrays)

    def __call__(self, source: Source, block: Block) -> Brought:
        """The rows of one block, chunk by chunk; copies."""
        parts = []
        for chunk in block.chunks:
            rows, codes = source.read(chunk)
            codes = left_out(codes, source.weights(chunk))
            mine = np.flatnonzero((codes == self.codes[0]) | (codes == self.codes[1]))
            signs = np.where(codes[mine] == self.codes[0], 1, -1).astype(np.int8)
            parts.append((mine + source.span(chunk)[0], take(rows, mine), signs))
        return Brought(tuple(parts))
