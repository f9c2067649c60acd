"""Parts of several warm starts: the number of rows that are cached with a model, and reading changed rows."""

from __future__ import annotations

from typing import TYPE_CHECKING, cast

import numpy as np
from numpy.typing import NDArray

from coremargin.engine.problem import CannotWarmStart
from coremargin.maths.rows import nothing, take
from coremargin.problems.common.driver_rows import DriverRows
from coremargin.problems.common.sizes import row_bytes

if TYPE_CHECKING:
    from coremargin.data.difference import Difference
    from coremargin.data.source import Source
    from coremargin.engine.allowance import Allowance
    from coremargin.maths.rows import Rows

Ids = NDArray[np.int64]

AppendedRows = tuple[Ids, NDArray[np.int32], NDArray[np.float64]]  #: ids, label codes, weights, each (m,)

#: At most this share of a store's rows is cached; up to half of them while they take no more bytes than this.
CACHED_SHARE, FEW_BYTES = 0.25, 4 << 20

TOO_MANY = "more rows lie near the margin, or have changed, than there is memory for"


def most_cached_rows(source: Source, allowance: Allowance) -> int:
    """About how many rows may be cached with a model."""
    share = max(int(CACHED_SHARE * source.rows), least_cached_rows(source))
    return min(share, allowance.bytes // max(1, row_bytes(source)))


def least_cached_rows(source: Source) -> int:
    """The number of rows that may be cached of any store: a few megabytes, but no more than half of the rows."""
    return min(source.rows // 2, FEW_BYTES // max(1, row_bytes(source)))


class RowFetcher:
    """Reads rows by their ids, each once for all models.

    source: the rows as the models see them; most: the number of rows that fit in memory. ``rows``: number of rows read.
    """

    def __init__(self, source: Source, most: int) -> None:
        self._source, self._most, self.rows = source, most, 0
        self._known: dict[int, DriverRows] = {}

    def __call__(self, ids: Ids) -> Rows:
        """Rows (m, d) of one chunk, in the store's precision; ids (m,) increasing.

        Raises CannotWarmStart for more rows than fit in memory.
        """
        source = self._source
        if not len(ids):
            return nothing(source.features, source.dtype, sparse=source.sparse)
        chunk = int(ids[0]) // source.chunk_rows
        known = self._known.get(chunk)
        missing = ids if known is None else np.setdiff1d(ids, known.ids, assume_unique=True)
        if self.rows + len(missing) > self._most:
            raise CannotWarmStart(TOO_MANY)
        if len(missing):
            coming = DriverRows(missing, cast("Rows", source.rows_at(missing)[0].astype(source.dtype)))
            known = coming if known is None else DriverRows.concatenate([known, coming]).in_order()
            self._known[chunk], self.rows = known, self.rows + len(missing)
        assert known is not None  # noqa: S101 - for the type checker: there is a row that was not missing
        return known.rows if len(known) == len(ids) else take(known.rows, np.searchsorted(known.ids, ids))


def ids_appended_to_last_chunk(source: Source, difference: Difference) -> Ids:
    """Ids (m,) of the rows that were appended to the chunk that was the last one and not full."""
    before, size = difference.before, source.chunk_rows
    return np.arange(before, min(difference.after, -(-before // size) * size))


def appended_to_last_chunk(source: Source, difference: Difference) -> AppendedRows:
    """The same with label codes (m,) and weights (m,)."""
    ids = ids_appended_to_last_chunk(source, difference)
    if not len(ids):
        return ids, np.zeros(0, np.int32), np.zeros(0)
    chunk = int(ids[0]) // source.chunk_rows
    weights, places = source.weights(chunk), ids - source.span(chunk)[0]
    return ids, source.labels(chunk)[places], np.ones(len(ids)) if weights is None else weights[places]
