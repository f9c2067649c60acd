"""A store of which all rows fit into memory: a chunk that was read stays there, and is not read again."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Protocol, runtime_checkable

from coremargin.data.maps import MAP_BYTES
from coremargin.data.view import View
from coremargin.maths.rows import is_sparse

if TYPE_CHECKING:
    import numpy as np

    from coremargin.data.source import Source

#: The part of a job's memory that rows may take which are only kept so as not to be read again.
PART = 2
#: By default they take no more than a process maps of any store: memory must not grow with the store.
MOST_BYTES = MAP_BYTES


def fits(source: Source, memory_bytes: int, *, requested: bool) -> bool:
    """Whether all rows may be kept. requested: the user set the memory, it is not the default."""
    most = memory_bytes // PART
    return source.nbytes <= (most if requested else min(most, MOST_BYTES))


@runtime_checkable
class StaysInMemory(Protocol):
    """A source that keeps chunks in memory itself: arrays, or a store with open maps."""

    def in_memory(self, chunk: int) -> bool:
        """Whether the rows of a chunk that was read are still there, so that reading it again costs nothing."""


class Resident(View):
    """The same rows, each chunk from memory once it was read, where ``keeps``. In another process it is the base.

    Only chunks that the base does not keep in memory itself are copied.
    """

    def __init__(self, base: Source) -> None:
        super().__init__(base)
        self.digest = base.digest  # nothing differs
        self.keeps = True
        self._kept: dict[int, tuple[Any, np.ndarray] | None] = {}  # None: the base has it

    def held(self) -> frozenset[int]:
        """The chunks that are in memory."""
        return frozenset(self._kept)

    def read(self, chunk: int) -> tuple[Any, np.ndarray]:
        """Rows and codes of a chunk, read-only; copied when they come, for a reader fills its buffers again."""
        found = self._kept.get(chunk)
        if found is not None:
            return found
        rows, codes = self.base.read(chunk)
        if not self.keeps:
            return rows, codes
        if isinstance(self.base, StaysInMemory) and self.base.in_memory(chunk):
            self._kept[chunk] = None
            return rows, codes
        found = self._kept[chunk] = rows.copy(), codes.copy()
        for array in (*_arrays(found[0]), found[1]):
            array.flags.writeable = False
        return found

    def handle(self) -> Any:
        """That of the base: memory does not travel."""
        return self.base.handle()

    def __reduce__(self) -> tuple[Any, ...]:
        """Travels to another process without its memory."""
        return Resident, (self.base,)


def at_hand(source: Source) -> bool:
    """Whether all rows of a source, or of what it is a view of, are in memory, so that no read of them costs any."""
    while isinstance(source, View):
        if isinstance(source, Resident):
            return len(source.held()) == source.chunks
        source = source.base
    return False


def _arrays(rows: Any) -> tuple[np.ndarray, ...]:
    return (rows.data, rows.indices, rows.indptr) if is_sparse(rows) else (rows,)
