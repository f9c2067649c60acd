"""A store without the rows that were taken out, and without what its earlier commits had."""

from __future__ import annotations

import time
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any

import numpy as np

from coremargin.data.amend import commit_changes, read_rows
from coremargin.data.chunk_hashes import describe_mismatch, hash_chunk
from coremargin.data.commits import CommitInfo
from coremargin.data.format import UNLABELLED, read_facts
from coremargin.data.group_parts import row_groups
from coremargin.data.key_runs import Entries
from coremargin.data.narrow_rows import widen
from coremargin.data.opened import forget
from coremargin.data.place import Place
from coremargin.data.row_selection import index_of
from coremargin.data.store import Store
from coremargin.data.weights import weights_in
from coremargin.data.writer import StoreWriter
from coremargin.errors import DamagedChunk, UsageError
from coremargin.formats.store_log import FileMark
from coremargin.maths.rows import take

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from coremargin.data.storages import Address


# Keys of the rows of a store that count, by the numbers that these rows have once the others are gone.


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


@dataclass(frozen=True)
class CompactReport:
    """What a store has become.

    Attributes
    ----------
    rows : int
        Rows that it has now, renumbered.
    removed : int
        Rows that are gone.
    commits : int
        Commits of rows that it has now: one for each that brought some which are left.
    stored_bytes_before, stored_bytes : int
        Bytes of all its files.
    digest : str
        Of what it has now.
    """

    rows: int
    removed: int
    commits: int
    stored_bytes_before: int
    stored_bytes: int
    digest: str


def compact(
    path: Address,
    out: Address | None = None,
    *,
    on_rows: Callable[[int, int], object] | None = None,
) -> CompactReport:
    """Rewrite the last commit of a store without rows of weight 0; row ids, and earlier commits, are gone then.

    Nothing changes until all of it is written: who dies meanwhile leaves the store as it was. When rows came stays
    known. Models of the old rows verify no more: their row ids are of rows that have other numbers now.

    Parameters
    ----------
    path : path-like
        The store.
    out : path-like, optional
        A new store; the old one then stays. By default, the new one takes the place of the old one.
    on_rows : callable, optional
        Called with rows read and rows in all.

    Returns
    -------
    CompactReport
        What it has become.

    Raises
    ------
    Busy
        Another process writes to it, or reads it.
    StoreError, DamagedChunk, UsageError, OutputError
        It is no store, a chunk cannot be read, something is at ``out``, it cannot be written.
    """
    place = Place.existing(path)
    try:
        store = Store.open(place.target)
        before, lost = store.stored_bytes, store.rows
        if out is None:
            forget(place.name)
            with place.target.without_readers():  # before hours are spent
                pass
        commits = _written(store, place, out, on_rows)
        made = Store.open(place.target if out is None else out, map_bytes=0)
    finally:
        place.close()
    return CompactReport(made.rows, lost - made.rows, commits, before, made.stored_bytes, made.digest)


def _written(store: Store, place: Place, out: Address | None, on_rows: Callable[[int, int], object] | None) -> int:
    """Write the new store; how many commits it has."""
    arrivals = list(_arrivals(store))
    classes, weighs = _alive(store)
    weighted = weighs and read_facts(store.storage).weighted  # else rows came without, and more will
    writer = StoreWriter.create(
        place.target if out is None else out,
        features=store.features,
        dtype=store.stored_dtype,
        compression=store.compression,
        sparse=store.sparse,
        weighted=weighted,
        grouped=store.groups is not None,
        chunk_rows=store.chunk_rows,
        columns=store.columns,
        classes=classes,
        instead_of=place if out is None else None,
    )
    try:
        if writer.keys is not None:
            writer.keys.take_all(kept_keys(store))
        commits, hashes = 0, dict(enumerate(store.chunk_hashes())) if store.sha256 else {}
        for start, stop, info in arrivals:
            for done, part in _parts(store, hashes, start, stop, weighted=weighted):
                writer.write(*part)
                if on_rows is not None:
                    on_rows(done, store.rows)
            if writer.rows > writer.committed:
                writer.commit_info, commits = info, commits + 1
                writer.commit(publish=False)
        if not commits:
            raise UsageError(f"{store.name}: all rows have been taken out: nothing would be left")
        if weighs and not weighted:
            made = Store.open(writer.storage, map_bytes=0)
            ids, weights = _weights(store)
            rows = replace(read_rows(made, ids), weights_after=weights)
            note = "those that rows had when they were compacted"
            commit_changes(made, read_facts(writer.storage), rows, CommitInfo("weights", note))
            made.release()
        _publish(writer, store, in_place=out is None)
    finally:
        writer.close()
    return commits


def _publish(writer: StoreWriter, store: Store, *, in_place: bool) -> None:
    store.release()
    if not in_place:
        writer.publish()
        return
    with store.storage.without_readers():
        writer.publish()


def _arrivals(store: Store) -> Iterator[tuple[int, int, CommitInfo]]:
    """Rows [start, stop) that came together and of which some count, and what the log is to say of them.

    Files whose rows are all gone are not to come again either: the next commit takes their marks, or the last one.
    """
    start, found, without = 0, list[tuple[int, int, CommitInfo]](), list[FileMark]()
    for entry in store.log:
        if "added" not in entry.counts:
            continue
        part, start = (start, entry.commit.rows), entry.commit.rows
        without += entry.files or ()
        if _any_counts(store, *part):
            found.append((*part, CommitInfo(entry.did, entry.note, time=entry.time, by=entry.by, files=tuple(without))))
            without = []
    if found:
        first, stop, info = found.pop()
        when = time.strftime("%Y-%m-%d %H:%M:%S UTC", time.gmtime())
        note = f"{info.note}; compacted {when} from commit {store.commits - 1}, {store.digest}".removeprefix("; ")
        found.append((first, stop, replace(info, note=note, files=(*info.files, *without))))
    yield from found


def _any_counts(store: Store, start: int, stop: int) -> bool:
    """Whether one of the rows [start, stop) has a weight above 0."""
    for chunk in range(start // store.chunk_rows, -(-stop // store.chunk_rows)):
        first, weights = store.span(chunk)[0], store.weights(chunk)
        if weights is None or (weights[max(0, start - first) : stop - first] > 0).any():
            return True
    return False


def _alive(store: Store) -> tuple[list[Any], bool]:
    """Labels of rows that count, in the order of the store's classes; and whether weights are more than 0 and 1."""
    seen, weighted = np.zeros(len(store.classes) + 1, bool), False
    for chunk in range(store.chunks):
        codes, weights = store.labels(chunk), store.weights(chunk)
        if weights is not None:
            codes, weighted = codes[weights > 0], weighted or bool(((weights != 0) & (weights != 1)).any())
        seen[codes] = True
    return [label for label, there in zip(store.classes, seen[:-1], strict=True) if there], weighted


def _weights(store: Store) -> tuple[np.ndarray, np.ndarray]:
    """Rows (m,) by their new numbers, increasing, that count by another weight than 1, and their weights (m,)."""
    ids, found, rows = [np.zeros(0, np.int64)], [np.zeros(0)], 0
    for chunk in range(store.chunks):
        weights = weights_in(store, chunk)
        weights = weights[weights > 0]
        other = np.flatnonzero(weights != 1)
        ids.append(rows + other)
        found.append(weights[other])
        rows += len(weights)
    return np.concatenate(ids), np.concatenate(found)


def _parts(
    store: Store, hashes: dict[int, np.ndarray], start: int, stop: int, *, weighted: bool
) -> Iterator[tuple[int, tuple[Any, ...]]]:
    """What ``StoreWriter.write`` takes of the rows [start, stop) that count, chunk by chunk; and up to which row.

    hashes: SHA-256 of the chunks that were not read yet. Raises DamagedChunk for one that has others: it would get new
    ones.
    """
    labels = np.empty(len(store.classes) + 1, dtype=object)
    labels[: len(store.classes)] = store.classes
    labels[UNLABELLED] = None
    for chunk in range(start // store.chunk_rows, -(-stop // store.chunk_rows)):
        first, last = store.span(chunk)
        rows, codes = store.read_stored(chunk)
        weights = store.weights(chunk)
        if chunk in hashes:
            found = hash_chunk(rows, codes, weights)
            if wrong := describe_mismatch(f"{store.name}: chunk {chunk}", hashes.pop(chunk), found):
                raise DamagedChunk(wrong)
        part = np.arange(max(start, first), min(stop, last)) - first
        if weights is not None:
            part = part[weights[part] > 0]
        if len(part):
            given = labels[codes[part]]
            kept = None if not weighted or weights is None else weights[part]
            groups = None if store.groups is None else row_groups(store, chunk)[part]
            yield min(stop, last), (widen(take(rows, part)), given, kept, None, groups)
