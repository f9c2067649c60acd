"""The rows of a chunk in parts: rows that are mapped as they are read take many times the room of the stored ones."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from coremargin.data.mapped import Mapped

if TYPE_CHECKING:
    import numpy as np

    from coremargin.data.source import Source


@dataclass(frozen=True)
class Part:
    """Rows [start, start + n) of a chunk: rows (n, d), label codes (n,), sample weights (n,) or None: all are 1.

    share: of the rows of the chunk.
    """

    start: int
    rows: Any
    codes: np.ndarray
    weights: np.ndarray | None
    share: float

    @property
    def stop(self) -> int:
        """The id of the row after its last one."""
        return self.start + len(self.codes)


def parts_of(source: Source, chunk: int) -> Iterator[Part]:
    """The rows of a chunk in order, one part after the other; rows that are not mapped are one part.

    The rows of a part are as those of ``read``: copy them to keep them for longer than two parts.
    """
    weights, (start, stop) = source.weights(chunk), source.span(chunk)
    if not isinstance(source, Mapped):
        yield Part(start, *source.read(chunk), weights, 1.0)
        return
    first = 0
    for rows, codes in source.slices(chunk):
        last = first + len(codes)
        some = None if weights is None else weights[first:last]
        yield Part(start + first, rows, codes, some, len(codes) / (stop - start))
        first = last


def kept_of(keep: int, share: float) -> int:
    """How many rows a part may send of those that its chunk may, which is so large a share of the chunk's rows."""
    return -int(-keep * share // 1)
