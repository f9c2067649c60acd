"""Rows that are mapped by several maps, side by side: each chunk is read once, whatever is made of it."""

from __future__ import annotations

import threading
from dataclasses import replace
from functools import cached_property
from typing import TYPE_CHECKING, Any

import numpy as np

from coremargin.data.mapped import Mapped, argument_of, check_fits
from coremargin.data.view import View

if TYPE_CHECKING:
    from collections.abc import Sequence

    from coremargin.data.source import Source
    from coremargin.data.statistics import ChunkScalars
    from coremargin.maths.mapping import FeatureMap


class LastRead(View):
    """The same rows; the chunk that a thread has read last it finds again, for several views that are asked in turn."""

    def __init__(self, base: Source) -> None:
        super().__init__(base)
        self.digest = base.digest  # nothing differs
        self._local = threading.local()

    def read(self, chunk: int) -> tuple[Any, np.ndarray]:
        """Rows and codes of a chunk, read-only."""
        last = getattr(self._local, "last", None)
        if last is None or last[0] != chunk:
            last = self._local.last = None  # the reader may fill its array again
            last = self._local.last = chunk, self.base.read(chunk)
        found: tuple[Any, np.ndarray] = last[1]
        return found

    def forget(self) -> None:
        """Let go of the chunk that this thread has read last."""
        self._local.last = None


class MappedEach(View):
    """Rows of a source as each of several maps makes them, side by side; ``each``: the views of one map each.

    What is asked of ``each`` about one chunk, one after the other and in one thread, reads it once.
    """

    kind = "mapped each"

    def __init__(self, base: Source, *maps: tuple[Any, ...]) -> None:
        """Use ``mapped_each``; maps: the arguments of a ``Mapped`` each."""
        super().__init__(base, *maps)
        self.last = LastRead(base)
        self.each = tuple(Mapped(self.last, *one) for one in maps)
        for one in self.each[1:]:  # asked in turn, they need no more room than one of them
            one.buffers = self.each[0].buffers
        self.features = sum(one.features for one in self.each)
        self.dtype, self.sparse = np.dtype(np.float64), False

    @property
    def nbytes(self) -> int:
        """Bytes of all rows as all maps make them, and of their labels."""
        return self.rows * (8 * self.features + 4)

    def read(self, chunk: int) -> tuple[Any, np.ndarray]:
        """Mapped rows (n, M) float64 and codes (n,) of a chunk."""
        rows, codes = zip(*(one.read(chunk) for one in self.each), strict=True)
        self.last.forget()
        return np.concatenate(rows, axis=1), codes[0]

    def rows_at(self, ids: np.ndarray) -> tuple[Any, np.ndarray]:
        """Mapped rows (m, M) float64 and codes (m,) of the given row ids, in the order given."""
        rows, codes = zip(*(one.rows_at(ids) for one in self.each), strict=True)
        return np.concatenate(rows, axis=1), codes[0]

    @cached_property
    def _most(self) -> np.ndarray:
        lengths = [one.scalars().max_norm for one in self.each]
        return np.asarray(np.sqrt(np.sum(np.square(lengths), axis=0)) * (1 + 1e-12))

    def scalars(self) -> ChunkScalars:
        """Counts of the base; radius and largest norm of the mapped rows."""
        base = self.base.scalars()
        return replace(base, radius=self._most, max_norm=self._most, nonzeros=base.rows * self.features)

    def centres(self, start: int = 0, stop: int | None = None) -> np.ndarray:
        """The origin, for each chunk."""
        return np.concatenate([one.centres(start, stop) for one in self.each], axis=1)


def mapped_each(source: Source, maps: Sequence[FeatureMap]) -> MappedEach:
    """The source with its rows mapped by each of these. Raises UsageError for rows that do not fit one of them."""
    for made in maps:
        check_fits(source, made)
    return MappedEach(source, *map(argument_of, maps))
