"""Rows that are read once more, by their numbers: those of an earlier commit that have changed."""

from __future__ import annotations

from typing import TYPE_CHECKING, cast

import numpy as np
from numpy.typing import NDArray

from coremargin.engine.problem import NothingToGoOnFrom
from coremargin.maths.rows import nothing, take
from coremargin.problems.common.driver_rows import DriverRows

if TYPE_CHECKING:
    from coremargin.data.difference import Difference
    from coremargin.data.source import Source
    from coremargin.maths.rows import Rows

Ids = NDArray[np.int64]

Appended = tuple[Ids, NDArray[np.int32], NDArray[np.float64]]  #: rows, label codes, weights, each (m,)

TOO_MANY = "more rows lie near the margin, or have changed, than there is memory for"


class Fetched:
    """Rows by their numbers, each of which is read once, whoever asks."""

    def __init__(self, source: Source, most: int) -> None:
        """source: whose rows, as members see them; most: rows that there is memory for."""
        self._source, self._most, self.rows = source, most, 0
        self._known: dict[int, DriverRows] = {}

    def __call__(self, ids: Ids) -> Rows:
        """Rows (m, d) of one chunk, in the store's precision; ids (m,) increasing.

        Raises NothingToGoOnFrom: more than there is memory for.
        """
        source = self._source
        if not len(ids):
            return nothing(source.features, source.dtype, sparse=source.sparse)
        chunk = int(ids[0]) // source.chunk_rows
        known = self._known.get(chunk)
        missing = ids if known is None else np.setdiff1d(ids, known.ids, assume_unique=True)
        if self.rows + len(missing) > self._most:
            raise NothingToGoOnFrom(TOO_MANY)
        if len(missing):
            coming = DriverRows(missing, cast("Rows", source.rows_at(missing)[0].astype(source.dtype)))
            known = coming if known is None else DriverRows.joined([known, coming]).in_order()
            self._known[chunk], self.rows = known, self.rows + len(missing)
        assert known is not None  # noqa: S101 - for the type checker: there is a row that was not missing
        return known.rows if len(known) == len(ids) else take(known.rows, np.searchsorted(known.ids, ids))


def grown(source: Source, difference: Difference) -> Ids:
    """Rows (m,) that were appended to the chunk that was the last one and not full."""
    before, size = difference.before, source.chunk_rows
    return np.arange(before, min(difference.after, -(-before // size) * size))


def appended_to_last(source: Source, difference: Difference) -> Appended:
    """The same with label codes (m,) and weights (m,)."""
    ids = grown(source, difference)
    if not len(ids):
        return ids, np.zeros(0, np.int32), np.zeros(0)
    chunk = int(ids[0]) // source.chunk_rows
    weights, places = source.weights(chunk), ids - source.span(chunk)[0]
    return ids, source.labels(chunk)[places], np.ones(len(ids)) if weights is None else weights[places]
