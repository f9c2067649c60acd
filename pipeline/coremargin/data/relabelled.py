"""One class against the rest: a store of many classes as one of two."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

import numpy as np
from numpy.typing import NDArray

from coremargin.data.view import View

if TYPE_CHECKING:
    from coremargin.data.source import Source
    from coremargin.data.statistics import ChunkScalars, ChunkStatistics

#: Labels of a relabelled store: is a row of the class or not.
SIDES = (False, True)


def against_rest(codes: NDArray[np.int32], positive: int) -> NDArray[np.int32]:
    """Read-only: 1 for rows of class ``positive``, 0 for other labelled rows, -1 for those without label."""
    shown = np.where(codes < 0, np.int32(-1), (codes == positive).astype(np.int32))
    shown.flags.writeable = False
    return shown


class Relabelled(View):
    """The same rows with two classes: True for those of code ``positive``, False for all others that have a label."""

    kind = "against-rest"

    def __init__(self, base: Source, positive: int) -> None:
        super().__init__(base, positive)
        self.positive = positive
        self.classes = SIDES

    def read(self, chunk: int) -> tuple[np.ndarray, np.ndarray]:
        """Rows and codes of a chunk."""
        rows, codes = self.base.read(chunk)
        return rows, against_rest(codes, self.positive)

    def labels(self, chunk: int) -> np.ndarray:
        """Codes of a chunk."""
        return against_rest(self.base.labels(chunk), self.positive)

    def rows_at(self, ids: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        """Rows and codes of the given row ids."""
        rows, codes = self.base.rows_at(ids)
        return rows, against_rest(codes, self.positive)

    def scalars(self) -> ChunkScalars:
        """As the base has it, with the counts of the two classes."""
        known = self.base.scalars()
        return replace(known, counts=self._counts(known.counts))

    def statistics(self, start: int = 0, stop: int | None = None) -> ChunkStatistics:
        """As the base has it, with the counts of the two classes."""
        known = self.base.statistics(start, stop)
        return replace(known, counts=self._counts(known.counts))

    def _counts(self, counts: NDArray[np.int64]) -> NDArray[np.int64]:
        mine = counts[:, self.positive]
        return np.stack([counts.sum(axis=1) - mine, mine], axis=1)
