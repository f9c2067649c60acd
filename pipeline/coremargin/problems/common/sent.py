"""Rows of two classes that workers send to the driver, and the question of a read's first stage, for all of its rows.

The driver solves on these rows. What it then asks of the chunks that they came from it asks in memory.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from functools import cached_property
from typing import TYPE_CHECKING, Any, Self

import numpy as np
from numpy.typing import NDArray

from coremargin.data.parts import parts_of
from coremargin.maths import rows as row_ops
from coremargin.maths.compact import compact, light
from coremargin.maths.rows import Rows
from coremargin.problems.common.start import Sample, left_out, weights_of

if TYPE_CHECKING:
    from coremargin.data.source import Source
    from coremargin.engine.protocols import Block

Part = tuple[NDArray[np.int64], Rows, NDArray[np.int8]]


@dataclass(frozen=True)
class SentRows:
    """Rows in parts, at least one: of each its ids (m,), rows (m, d) and signs (m,) int8.

    Parts are joined once, by whoever needs them as a whole: sums of blocks that copied what they have would copy it for
    each of them.
    """

    parts: tuple[Part, ...]

    @classmethod
    def of(cls, ids: NDArray[np.int64], rows: Rows, signs: NDArray[np.int8]) -> Self:
        """One part."""
        return cls(((ids, rows, signs),))

    @classmethod
    def nothing(cls, features: int, dtype: np.dtype[Any], *, sparse: bool) -> Self:
        """No rows, of the kind of those that will come."""
        return cls.of(np.zeros(0, np.int64), row_ops.nothing(features, dtype, sparse=sparse), np.zeros(0, np.int8))

    def __len__(self) -> int:
        return len(self.ids)

    @cached_property
    def ids(self) -> NDArray[np.int64]:
        """Of all rows (m,)."""
        return np.concatenate([ids for ids, _, _ in self.parts])

    @cached_property
    def signs(self) -> NDArray[np.int8]:
        """Of all rows (m,)."""
        return np.concatenate([signs for _, _, signs in self.parts])

    @cached_property
    def rows(self) -> Rows:
        """All rows (m, d)."""
        return self.parts[0][1] if len(self.parts) == 1 else row_ops.concatenate([rows for _, rows, _ in self.parts])

    def merge(self, later: Self) -> Self:
        """The rows of both."""
        parts = [part for part in (*self.parts, *later.parts) if len(part[0])]
        return type(self)(tuple(parts) or self.parts[:1])

    def where(self, mask: NDArray[np.bool_]) -> Self:
        """The rows (m, d) where a mask (m,) is true."""
        if mask.all():
            return self
        starts = np.cumsum([0, *(len(ids) for ids, _, _ in self.parts)])
        some = [mask[start : start + len(part[0])] for start, part in zip(starts.tolist(), self.parts, strict=False)]
        return type(self)(
            tuple(
                (ids[here], row_ops.take(rows, here), signs[here])
                for here, (ids, rows, signs) in zip(some, self.parts, strict=True)
            )
        )

    def to_arrays(self, name: str) -> dict[str, NDArray[Any]]:
        """Plain arrays, exact."""
        return {f"{name}_ids": self.ids, f"{name}_signs": self.signs, **row_ops.to_arrays(f"{name}_rows", self.rows)}

    @classmethod
    def from_arrays(cls, name: str, arrays: Mapping[str, NDArray[Any]]) -> Self:
        """Inverse of ``to_arrays``, as one part."""
        return cls.of(arrays[f"{name}_ids"], row_ops.from_arrays(f"{name}_rows", arrays), arrays[f"{name}_signs"])


@dataclass(frozen=True)
class Brought:
    """All rows of some blocks that count."""

    sent: SentRows

    def merge(self, later: Brought) -> Brought:
        """The rows of both."""
        return Brought(self.sent.merge(later.sent))

    def sample(self, source: Source, chunks: list[int], *, stay: bool = False) -> Sample:
        """The rows of some of the chunks that were asked for, as ``read_sample`` has them."""
        sent = self.sent.where(np.isin(self.sent.ids // source.chunk_rows, chunks))
        rows = compact([light(rows) for _, rows, _ in sent.parts]) if stay else sent.rows
        return Sample(chunks, sent.ids, rows, sent.signs, weights_of(source, sent.ids, chunks))

    def to_arrays(self) -> dict[str, NDArray[Any]]:
        """For checkpoints."""
        return self.sent.to_arrays("sent")

    @classmethod
    def from_arrays(cls, arrays: Mapping[str, NDArray[Any]]) -> Brought:
        """Inverse of ``to_arrays``."""
        return cls(SentRows.from_arrays("sent", arrays))


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
        return Brought(SentRows.nothing(self.features, np.dtype(self.dtype), sparse=self.sparse))

    def from_arrays(self, arrays: Mapping[str, NDArray[Any]]) -> Brought:
        """A summary from a checkpoint."""
        return Brought.from_arrays(arrays)

    def __call__(self, source: Source, block: Block) -> Brought:
        """The rows of one block, chunk by chunk; copies."""
        parts = []
        for chunk in block.chunks:
            for part in parts_of(source, chunk):
                codes = left_out(part.codes, part.weights)
                mine = np.flatnonzero((codes == self.codes[0]) | (codes == self.codes[1]))
                signs = np.where(codes[mine] == self.codes[0], 1, -1).astype(np.int8)
                parts.append((mine + part.start, row_ops.take(part.rows, mine), signs))
        return self.empty().merge(Brought(SentRows(tuple(parts))))
