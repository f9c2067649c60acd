"""Weights of rows that are in a store already, written as a commit of their own; weight 0 takes a row out.

The commit before stays as it is, with its weights. Rows, row ids and labels stay where they are: see
formats/store_record.py. What is taken out goes away for good when the store is compacted.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np

from coremargin.data.amend import Amendment, by_chunk
from coremargin.data.commits import CommitInfo
from coremargin.data.format import UNLABELLED, facts_as_of
from coremargin.data.place import Place
from coremargin.data.row_selection import chosen
from coremargin.data.store import Store
from coremargin.data.weights import as_weights, weights_in
from coremargin.errors import LabelError, UsageError

if TYPE_CHECKING:
    from coremargin.data.row_selection import Chosen
    from coremargin.data.storages import Address


@dataclass(frozen=True)
class WeightReport:
    """What weights that were written have changed.

    Attributes
    ----------
    given : int
        Rows that were to have a weight.
    changed : int
        Rows that had another weight before.
    removed : int
        Rows that had a weight above 0, and have none now: they no longer count.
    returned : int
        Rows whose weight was 0, and is above it now.
    digest : str
        Of the last commit: a new one where anything changed.
    """

    given: int
    changed: int
    removed: int
    returned: int
    digest: str


def remove_rows(
    path: Address,
    ids: Any = None,
    *,
    keys: Any = None,
    after: str | None = None,
    note: str = "",
) -> WeightReport:
    """Take rows out of a store, all of them or none, in a commit of its own: their weights become 0.

    Parameters
    ----------
    path : path-like
        The store.
    ids : array_like of shape (m,), optional
        Row ids, each once, of rows that have not been taken out.
    keys : array_like of shape (m,), optional
        Instead of ids, the rows' keys: whole numbers or texts of the column that ``ingest`` was given.
    after : str, optional
        The digest of one of the store's commits: what the row ids are about.
    note : str, optional
        A word on it for the store's log.

    Returns
    -------
    WeightReport
        What has changed.

    Raises
    ------
    StoreError
        It is no store, or one that this writer did not write, or none of its commits is the one named.
    DamagedChunk
        Labels or weights of a chunk cannot be read.
    UsageError
        A row or a key that is not there, is named twice, or was taken out before.
    LabelError
        A class would have no rows.
    OutputError
        The store cannot be written.
    Busy
        Another writer is at work.
    """
    return reweighed(path, (ids, keys), None, after, CommitInfo("remove", note))


def set_weights(
    path: Address,
    ids: Any = None,
    weights: Any = (),
    *,
    keys: Any = None,
    after: str | None = None,
    note: str = "",
) -> WeightReport:
    """Give rows weights, all of them or none, in a commit of its own; no commit where they have them already.

    Parameters
    ----------
    path : path-like
        The store; rows that came without weights have weight 1.
    ids : array_like of shape (m,), optional
        Row ids, each once.
    weights : array_like of shape (m,)
        Their weights, finite and not negative; 0 takes a row out, another number brings it back.
    keys : array_like of shape (m,), optional
        Instead of ids, the rows' keys.
    after : str, optional
        The digest of one of the store's commits: what the row ids are about.
    note : str, optional
        A word on it for the store's log.

    Returns
    -------
    WeightReport
        What has changed.

    Raises
    ------
    BadRow
        A weight that is none.
    StoreError, DamagedChunk, UsageError, LabelError, OutputError, Busy
        As ``remove_rows``.
    """
    return reweighed(path, (ids, keys), weights, after, CommitInfo("weights", note))


def reweighed(path: Address, named: tuple[Any, Any], weights: Any, after: str | None, deed: CommitInfo) -> WeightReport:
    """What ``remove_rows`` and ``set_weights`` do, and what else takes rows out; deed: what the log says of it.

    named: ids and keys. weights: None: all 0, of rows that have more.
    """
    place = Place.existing(path)
    try:
        store = Store.open(place.target, map_bytes=0)
        if after is not None:
            facts_as_of(place.target, digest=after)
        found = chosen(store, *named)
        rows, once = found.rows, weights is None
        weights = np.zeros(len(rows)) if once else weights
        given = as_weights(weights, len(rows), f"{store.name}: weights in the order given")
        found.refuse_twice(store.name)
        order = np.argsort(rows, kind="stable")
        change = _Reweighed(store, found if once else None)
        for chunk, offsets, new in by_chunk(store, rows[order], given[order]):
            change.look(chunk, offsets, new)
        change.check_classes()
        digest = change.commit(deed)
    finally:
        place.close()
    return WeightReport(len(rows), change.changed, change.removed, change.returned, digest)


def write_weights(store: Store, weights: tuple[np.ndarray, np.ndarray], deed: CommitInfo) -> str:
    """Give rows (m,), increasing, of a store that nobody else writes, weights (m,); the digest that it has then."""
    change = _Reweighed(store, None)
    for chunk, offsets, new in by_chunk(store, *weights):
        change.look(chunk, offsets, new)
    return change.commit(deed)


class _Reweighed:
    """Weights of chunks as they are to be: nothing is written before all of it is known to be good."""

    def __init__(self, store: Store, once: Chosen | None) -> None:
        """once: the rows, where those that have no weight are refused."""
        self._store, self._once = store, once
        self._given = dict[int, tuple[np.ndarray, np.ndarray]]()  # offsets and weights, by chunk
        self._lost = set[int]()  # classes of which rows go away
        self.changed = self.removed = self.returned = 0

    def look(self, chunk: int, offsets: np.ndarray, new: np.ndarray) -> None:
        """Rows at offsets (m,) in a chunk are to get these weights."""
        store = self._store
        was = weights_in(store, chunk)[offsets]
        if self._once and not was.all():
            at = self._once.at(store.span(chunk)[0] + int(offsets[np.argmin(was > 0)]))
            place, called = self._once.place(at, store.name), self._once.called(at)
            raise UsageError(f"{place}: {called} has been taken out already; leave it out, nothing was changed")
        if np.array_equal(was, new):
            return
        self._given[chunk] = offsets, new
        gone = offsets[(was > 0) & (new == 0)]
        self.changed += int(np.count_nonzero(was != new))
        self.removed += len(gone)
        self.returned += int(np.count_nonzero((was == 0) & (new > 0)))
        self._lost |= set(store.labels(chunk)[gone].tolist()) - {UNLABELLED}

    def _after(self, chunk: int) -> np.ndarray:
        """The weights of a chunk as they are to be."""
        weights = weights_in(self._store, chunk)
        if chunk in self._given:
            weights = weights.copy()
            offsets, new = self._given[chunk]
            weights[offsets] = new
        return weights

    def check_classes(self) -> None:
        """Raises LabelError where a class that loses rows has none left."""
        left = set(self._lost)
        for chunk in range(self._store.chunks):
            if not left:
                return
            left -= set(self._store.labels(chunk)[self._after(chunk) > 0].tolist())
        if left:
            label = self._store.classes[min(left)]
            raise LabelError(
                f"{self._store.name}: these are the last rows of class {label!r}, of which none would be left; keep "
                f"one, or ingest the rows of the other classes into a new store"
            )

    def commit(self, deed: CommitInfo) -> str:
        """Write them; the digest of the store after it."""
        if not self._given:
            return self._store.digest
        work = Amendment(self._store)
        for chunk in self._given:
            work.weights(chunk, self._after(chunk))
        counts = {"reweighed": self.changed - self.removed - self.returned}
        counts |= {"removed": self.removed, "returned": self.returned}
        return work.commit(CommitInfo(deed.did, deed.note, {name: number for name, number in counts.items() if number}))
