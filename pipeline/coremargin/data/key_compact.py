"""Keys of the rows of a store that count, by the numbers that these rows have once the others are gone."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from coremargin.data.key_runs import Entries
from coremargin.data.row_selection import index_of

if TYPE_CHECKING:
    from collections.abc import Iterator

    from coremargin.data.store import Store


_ONES = np.unpackbits(np.arange(256, dtype=np.uint8)[:, None], axis=1).sum(axis=1, dtype=np.uint8)  # bits of a byte


def kept_keys(store: Store) -> Iterator[Entries]:
    """Keys of rows whose weight is above 0, renumbered; a file at a time. Raises StoreError, DamagedChunk."""
    index = index_of(store)
    if index is None:
        return
    new_rows = _NewRows(store)
    for run in index.runs:
        for entries in run.pieces():
            rows = new_rows.of(entries.row)
            kept = rows >= 0
            yield Entries(entries.high[kept], entries.low[kept], rows[kept])


class _NewRows:
    """What numbers rows get: a bit for each row is kept, and a number for each 64 of them."""

    def __init__(self, store: Store) -> None:
        parts = [np.zeros(0, bool)]
        words = []
        for chunk in range(store.chunks):
            start, stop = store.span(chunk)
            weights = store.weights(chunk)
            parts.append(np.ones(stop - start, bool) if weights is None else weights > 0)
            there = np.concatenate(parts)
            whole = len(there) if chunk == store.chunks - 1 else len(there) // 64 * 64
            words.append(np.packbits(_padded(there[:whole]), bitorder="little").view("<u8"))
            parts = [there[whole:]]
        self._words = np.concatenate(words)
        counts = _ones(self._words)
        self._before = np.cumsum(counts) - counts

    def of(self, rows: np.ndarray) -> np.ndarray:
        """New numbers (m,) of rows (m,), -1 of those that are gone."""
        words, bits = self._words[rows // 64], (rows % 64).astype(np.uint64)
        there = words >> bits & np.uint64(1) > 0
        below = _ones(words & ((np.uint64(1) << bits) - np.uint64(1)))
        return np.where(there, self._before[rows // 64] + below, -1)


def _ones(words: np.ndarray) -> np.ndarray:
    """How many bits (m,) int64 of each word are set."""
    return np.asarray(_ONES[words.view(np.uint8).reshape(-1, 8)].sum(axis=1, dtype=np.int64))


def _padded(there: np.ndarray) -> np.ndarray:
    return np.append(there, np.zeros(-len(there) % 64, bool))
