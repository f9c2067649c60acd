"""Other labels or weights for rows of a store, in a commit of its own: see formats/store_record.py.

Rows are named by ids or by keys. The store tells which labels and weights they have, the caller which they are to have,
and ``commit_changes`` writes labels and weights of the chunks that change; weight 0 removes a row. Rows and row ids
stay, and so does the commit before: a killed process leaves that one or the new one.
"""

from __future__ import annotations

from contextlib import contextmanager
from dataclasses import dataclass, replace
from itertools import pairwise
from types import MappingProxyType
from typing import TYPE_CHECKING, Any

import numpy as np

from coremargin.data import chunk_hashes
from coremargin.data.arrays import checked_ids
from coremargin.data.changes import Changed, Places, merged
from coremargin.data.checksum import crc32c
from coremargin.data.commits import CommitInfo, commit_root
from coremargin.data.difference import FILE as ROWS
from coremargin.data.difference import ChangedRows, write_changed_rows
from coremargin.data.digest import WEIGHTS, Digested, checksums_of_ones, store_digest
from coremargin.data.format import CHANGES, ROOT, UNLABELLED, Commit, facts_as_of, read_facts
from coremargin.data.group_parts import group_bounds, row_groups
from coremargin.data.labels import LabelCoder, refuse_unclear
from coremargin.data.layout import layouts, own_encoding, weights_like
from coremargin.data.manifest import Manifest, write_group
from coremargin.data.owned import STORE
from coremargin.data.place import Place
from coremargin.data.plain import group_metadata
from coremargin.data.row_selection import select_rows
from coremargin.data.statistics import widened
from coremargin.data.storage import write_json
from coremargin.data.store import Store
from coremargin.data.weights import as_weights, weights_in
from coremargin.errors import Busy, DamagedChunk, LabelError, UsageError
from coremargin.formats.current_answers import same
from coremargin.formats.store_record import group_of

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping, Sequence

    from coremargin.data.format import Facts
    from coremargin.data.storages import Address

#: Rows that a commit notes as changed at most: comparing chunks costs less, or no more, where there are more of them.
MOST_NOTED = 1 << 20
_EXAMPLES = 8  # rows that had a label and have another one or none, which a report names


@dataclass(frozen=True)
class LabelReport:
    """What labels that were written have changed.

    Attributes
    ----------
    given : int
        Rows that were to have a label.
    added : int
        Rows that had no label before.
    replaced : int
        Rows that had another label before.
    removed : int
        Rows that had a label and have none now.
    examples : tuple of (int, label, label)
        The first of the last two: row, the label before, the label now, None for none.
    called : tuple of str
        The rows of these as they were named: "row 5", or "key '4711' (row 5)".
    digest : str
        Of the last commit: a new one where anything changed.
    """

    given: int
    added: int
    replaced: int
    removed: int
    examples: tuple[tuple[int, Any, Any], ...]
    called: tuple[str, ...]
    digest: str

    @property
    def changed(self) -> int:
        """Rows that have another label now, or none."""
        return self.added + self.replaced + self.removed


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


def write_labels(  # noqa: PLR0913 - one word for each decision, all with a default
    path: Address,
    ids: Any = None,
    labels: Sequence[Any] = (),
    *,
    keys: Any = None,
    withdrawn: Mapping[int, Sequence[Any]] = MappingProxyType({}),
    after: str | None = None,
    note: str = "",
    counting: bool = False,
) -> LabelReport:
    """Give rows labels, all of them or none, in a commit of its own; no commit where they have them already.

    Parameters
    ----------
    path : path-like
        The store.
    ids : array_like of shape (m,), optional
        Row ids, each once.
    labels : sequence of length m
        Their labels, new classes among them or not. None takes a label away; other missing entries (NaN, nulls) are
        refused.
    keys : array_like of shape (m,), optional
        Instead of ids, the rows' keys: whole numbers or texts of the column that ``ingest`` was given.
    withdrawn : mapping of int to sequence of labels
        Row ids, none of them among the rows named, whose label is taken away where it is one of these.
    after : str, optional
        The digest of one of the store's commits: what the row ids are about.
    note : str, optional
        A word on it for the store's log.
    counting : bool, default False
        Rows that were taken out of the store, whose weight is 0, are refused.

    Returns
    -------
    LabelReport
        What has changed.

    Raises
    ------
    StoreError
        It is no store, or one that this writer did not write, or none of its commits is the one named.
    DamagedChunk
        Labels or weights of a chunk cannot be read.
    LabelError
        Labels of another kind than those of the store, or too many classes.
    UsageError
        A row or a key that is not there, is named twice, or no longer counts.
    OutputError
        The store cannot be written.
    Busy
        Another writer is at work.
    """
    with _open_to_amend(path, after) as (store, facts):
        selected, coder = select_rows(store, ids, keys), LabelCoder(store.classes)
        place = f"{store.name}: labels in the order given"
        refuse_unclear(labels, place)
        codes = coder.encode(labels, len(selected.rows), place)
        given, less = int(np.count_nonzero(codes != UNLABELLED)), _rows_labelled(store, withdrawn)
        selected = selected.and_rows(less)
        codes = np.append(codes, np.full(len(less), UNLABELLED, codes.dtype))
        selected.refuse_twice(store.name)
        order = np.argsort(selected.rows, kind="stable")
        rows = read_rows(store, selected.rows[order])
        if counting and not rows.weights_before.all():
            at = selected.at(int(rows.ids[np.argmin(rows.weights_before)]))
            raise UsageError(
                f"{selected.place(at, store.name)}: {selected.called(at)} was taken out; leave it out, or give it a "
                "weight first"
            )
        rows = replace(rows, codes_after=codes[order]).other
        digest = commit_changes(store, replace(facts, classes=tuple(coder.classes)), rows, CommitInfo("labels", note))
    names = [*coder.classes, None]  # None for -1
    lost = rows.take(np.flatnonzero(rows.codes_before != UNLABELLED)[:_EXAMPLES])
    columns = (lost.ids.tolist(), lost.codes_before.tolist(), lost.codes_after.tolist())
    examples = tuple((row, names[before], names[after]) for row, before, after in zip(*columns, strict=True))
    called = tuple(selected.called(selected.at(row)) for row, _, _ in examples)
    counts = _count_changes(rows)
    added, replaced, removed = (counts[f"labels_{name}"] for name in ("added", "replaced", "removed"))
    return LabelReport(given, added, replaced, removed, examples, called, digest)


def remove_rows(
    path: Address,
    ids: Any = None,
    *,
    keys: Any = None,
    groups: Any = None,
    after: str | None = None,
    note: str = "",
) -> WeightReport:
    """Take rows out of a store, all of them or none, in a commit of its own: their weights become 0.

    Parameters
    ----------
    path : path-like
        The store.
    ids : array_like of shape (m,), optional
        Row ids, each once, of rows that have not been taken out; of rows in groups all of each group.
    keys : array_like of shape (m,), optional
        Instead of ids, the rows' keys.
    groups : array_like of shape (k,), optional
        Instead of ids, the ids of whole groups.
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
    UsageError
        A row or a key that is not there, is named twice, or was taken out before.
    StoreError, DamagedChunk, LabelError, OutputError, Busy
        As ``set_weights``.
    """
    return amend_weights(path, (ids, keys, groups), None, after, CommitInfo("remove", note))


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
    BadRow
        A weight that is none.
    StoreError
        It is no store, or one that this writer did not write, or none of its commits is the one named.
    DamagedChunk
        Labels or weights of a chunk cannot be read.
    UsageError
        A row or a key that is not there, or is named twice.
    LabelError
        A class would have no rows.
    OutputError
        The store cannot be written.
    Busy
        Another writer is at work.
    """
    if weights is None:
        raise UsageError("weights: expected one for each row, found None; `remove_rows` takes rows out")
    return amend_weights(path, (ids, keys, None), weights, after, CommitInfo("weights", note))


def amend_weights(
    path: Address, named: tuple[Any, Any, Any], weights: Any, after: str | None, info: CommitInfo
) -> WeightReport:
    """Set weights of rows; named: their ids, keys and groups. weights: None: all 0, of rows that have more."""
    with _open_to_amend(path, after) as (store, facts):
        selected = select_rows(store, *named)
        given = np.zeros(len(selected.rows)) if weights is None else weights
        given = as_weights(given, len(selected.rows), f"{store.name}: weights in the order given")
        selected.refuse_twice(store.name)
        order = np.argsort(selected.rows, kind="stable")
        rows = read_rows(store, selected.rows[order])
        if weights is None and not rows.weights_before.all():
            at = selected.at(int(rows.ids[np.argmin(rows.weights_before > 0)]))
            raise UsageError(
                f"{selected.place(at, store.name)}: {selected.called(at)} has been taken out already; leave it out, "
                "nothing was changed"
            )
        rows = replace(rows, weights_after=given[order]).other
        _refuse_parts_of_groups(store, rows)
        _refuse_empty_classes(store, rows)
        digest = commit_changes(store, facts, rows, info)
    counts = _count_changes(rows)
    return WeightReport(len(selected.rows), len(rows.ids), counts["removed"], counts["returned"], digest)


@contextmanager
def _open_to_amend(path: Address, after: str | None) -> Iterator[tuple[Store, Facts]]:
    """The last commit of a store without other writers; after: the digest of a commit that it must have."""
    place = Place.existing(path)
    try:
        facts = read_facts(place.target)
        if after is not None:
            facts_as_of(place.target, digest=after)
        yield Store(place.target, facts, map_bytes=0), facts
    finally:
        place.close()


def _by_chunk(store: Store, ids: np.ndarray) -> Iterator[tuple[int, slice, np.ndarray]]:
    """Chunks that have some of these rows (m,), which ascend: which of them, and their places in the chunk."""
    numbers = ids // store.chunk_rows
    bounds = [0, *(np.flatnonzero(np.diff(numbers)) + 1).tolist(), len(ids)]
    for start, stop in pairwise(bounds):
        if start < stop:
            chunk = int(numbers[start])
            yield chunk, slice(start, stop), ids[start:stop] - chunk * store.chunk_rows


def read_rows(store: Store, ids: np.ndarray) -> ChangedRows:
    """Rows (m,), ascending, with the labels and weights that they have, none of them changed yet."""
    codes, weights = np.empty(len(ids), np.int32), np.empty(len(ids))
    for chunk, part, places in _by_chunk(store, ids):
        codes[part] = store.labels(chunk)[places]
        weights[part] = weights_in(store, chunk)[places]
    return ChangedRows(ids, codes, codes, weights, weights)


def _rows_labelled(store: Store, wanted: Mapping[int, Sequence[Any]]) -> np.ndarray:
    """Rows (m,) whose label is one of those that the mapping has for them."""
    ids = checked_ids(np.array(sorted(wanted), np.int64), store.rows, store.name)
    codes = read_rows(store, ids).codes_before.tolist()
    found = [
        row
        for row, code in zip(ids.tolist(), codes, strict=True)
        if code != UNLABELLED and any(same(store.classes[code], label) for label in wanted[row])
    ]
    return np.array(found, np.int64)


def _refuse_parts_of_groups(store: Store, rows: ChangedRows) -> None:
    """Raises UsageError where rows of one group would have several weights."""
    if store.groups is None or not len(rows.ids):
        return
    starts, ends = group_bounds(store, rows.ids)
    first = np.cumsum(ends - starts) - (ends - starts)
    every = np.repeat(starts - first, ends - starts) + np.arange(first[-1] + ends[-1] - starts[-1])
    weights = read_rows(store, every).weights_before
    weights[np.searchsorted(every, rows.ids)] = rows.weights_after
    other = np.flatnonzero(np.minimum.reduceat(weights, first) != np.maximum.reduceat(weights, first))
    if len(other):
        start, stop = int(starts[other[0]]), int(ends[other[0]])
        name = row_groups(store, start // store.chunk_rows)[start % store.chunk_rows]
        raise UsageError(
            f"{store.name}: group {name!r} has the rows {start:,} to {stop - 1:,}, expected one weight for all of "
            "them; a group is removed or weighed as a whole: name all of its rows, nothing was changed"
        )


def _refuse_empty_classes(store: Store, rows: ChangedRows) -> None:
    """Raises LabelError where a class that loses rows has none left."""
    lost = set(rows.codes_before[(rows.weights_before > 0) & (rows.weights_after == 0)].tolist()) - {UNLABELLED}
    changed = {chunk: (part, places) for chunk, part, places in _by_chunk(store, rows.ids)} if lost else {}
    for chunk in range(store.chunks):
        if not lost:
            return
        weights = weights_in(store, chunk)
        if chunk in changed:
            part, places = changed[chunk]
            weights = weights.copy()
            weights[places] = rows.weights_after[part]
        lost -= set(store.labels(chunk)[weights > 0].tolist())
    if lost:
        label = store.classes[min(lost)]
        raise LabelError(
            f"{store.name}: these are the last rows of class {label!r}, of which none would be left; keep one, or "
            "ingest the rows of the other classes into a new store"
        )


def _count_changes(rows: ChangedRows) -> dict[str, int]:
    """How many rows have changed in what way, by the names that the log has for these."""
    had, has = rows.codes_before != UNLABELLED, rows.codes_after != UNLABELLED
    counted, counts = rows.weights_before > 0, rows.weights_after > 0
    found = {
        "labels_added": ~had & has,
        "labels_replaced": had & has & (rows.codes_before != rows.codes_after),
        "labels_removed": had & ~has,
        "reweighed": counted & counts & (rows.weights_before != rows.weights_after),
        "removed": counted & ~counts,
        "returned": ~counted & counts,
    }
    return {name: int(np.count_nonzero(where)) for name, where in found.items()}


def commit_changes(store: Store, facts: Facts, rows: ChangedRows, info: CommitInfo) -> str:
    """Write labels and weights of rows that change, and make them visible, atomically; no commit where none does.

    store: its last commit, without other writers. facts: those of this commit, with the classes that it has from
    now on, new ones last. info: without counts, which are those of the rows. Returns the digest of what it has then.
    Raises OutputError, Busy.
    """
    rows = rows.other
    if not len(rows.ids):
        return store.digest
    storage, classes = store.storage, facts.classes
    if storage.tag(ROOT) != facts.root_tag:  # the other commit has the same number, and its objects the same names
        raise Busy(f"{storage.name}: another writer has changed {ROOT} meanwhile; nothing was written, do it again")
    manifest = Manifest(storage, facts, facts.commits)
    known, places = manifest.scalars(), manifest.places
    places = Places(places.labels.copy(), places.weights.copy())
    digests, unlabelled, marks = known.digest.copy(), known.unlabelled.copy(), known.marks.copy()
    counts = widened(known.counts, len(classes))
    hashes = manifest.hashes(known.rows) if facts.hashed else None

    group = group_of(facts.number)
    folder = f"{CHANGES}/{group}"
    labels = layouts(storage, facts, own_encoding(storage, facts))["y"]
    storage.remove(folder, STORE.owns)  # what an unfinished commit left there
    written = []
    other = rows.take(np.flatnonzero(rows.codes_before != rows.codes_after))
    if len(other.ids):
        layout = replace(labels, name=f"{folder}/y")
        written.append(layout)
        for chunk, part, at in _by_chunk(store, other.ids):
            codes = store.labels(chunk).copy()
            if hashes is not None:
                _refuse_replaced(store, chunk, hashes, chunk_hashes.LABELS, codes)
            codes[at] = other.codes_after[part]
            storage.write(layout.key(chunk), layout.encoding.encode(layout.padded(codes)))
            digests[chunk] = digests[chunk] >> np.uint64(32) << np.uint64(32) | np.uint64(_checksum(codes))
            if hashes is not None:
                hashes[chunk, chunk_hashes.LABELS] = chunk_hashes.hash_values(codes)
            unlabelled[chunk] = np.count_nonzero(codes == UNLABELLED)
            counts[chunk] = np.bincount(codes[codes >= 0], minlength=len(classes))
            places.labels[chunk] = facts.number
    other = rows.take(np.flatnonzero(rows.weights_before != rows.weights_after))
    if len(other.ids):
        layout = replace(weights_like(labels), name=f"{folder}/weights")
        written.append(layout)
        for chunk, part, at in _by_chunk(store, other.ids):
            weights = weights_in(store, chunk).copy()
            if hashes is not None and manifest.weighted:
                _refuse_replaced(store, chunk, hashes, chunk_hashes.WEIGHTS, weights)
            weights[at] = other.weights_after[part]
            storage.write(layout.key(chunk), layout.encoding.encode(layout.padded(weights)))
            marks[chunk, WEIGHTS] = _checksum(weights)
            if hashes is not None:
                hashes[chunk, chunk_hashes.WEIGHTS] = chunk_hashes.hash_values(weights)
            places.weights[chunk] = facts.number
    if not manifest.weighted and places.weights.any():
        unmoved = places.weights == 0
        marks[unmoved, WEIGHTS] = checksums_of_ones(known.rows)[unmoved]
        if hashes is not None:
            hashes[unmoved, chunk_hashes.WEIGHTS] = chunk_hashes.hash_ones(known.rows[unmoved])
    if len(rows.ids) <= MOST_NOTED:
        write_changed_rows(storage, group, rows)
    elif storage.exists(noted := f"{folder}/{ROWS}"):  # of an unfinished commit: buckets keep it
        storage.write(noted, [b""])
    for layout in written:
        write_json(storage, f"{layout.name}/zarr.json", layout.metadata(facts.rows))
    for key in (folder, CHANGES):
        write_json(storage, f"{key}/zarr.json", group_metadata({}))
    storage.sync(*(layout.name for layout in written), folder, CHANGES, "")

    chunks, since = merged(manifest.changes, facts.commits, np.unique(rows.ids // store.chunk_rows))
    columns = {"digest": digests, "unlabelled": unlabelled, "counts": counts, "marks": marks}
    entries = Changed.of(chunks, places, columns)
    changed = entries.columns()
    if hashes is not None:
        changed[chunk_hashes.COLUMN] = hashes[chunks][:, [chunk_hashes.LABELS, chunk_hashes.WEIGHTS]]
    write_group(storage, group, changed)
    last = facts.commits[-1].last
    commit = Commit(
        number=facts.number,
        rows=facts.rows,
        classes=len(classes),
        first=last,
        last=last,
        group=group,
        digest=store_digest(
            features=facts.features,
            dtype=facts.dtype,
            classes=classes,
            chunks=replace(Digested.of(known), digest=digests, marks=marks),
            sparse=facts.sparse,
            weighted=facts.weighted or bool(places.weights.any()),
            groups=manifest.groups,
        ),
        changed=len(chunks),
        since=since,
        moved=True,
        weights=entries.weights is not None,
    )
    if hashes is not None:
        sha256 = chunk_hashes.content_sha256(
            hashes,
            features=facts.features,
            dtype=facts.dtype,
            classes=classes,
            rows=facts.rows,
            chunk_rows=facts.chunk_rows,
            groups=None if manifest.groups is None else manifest.groups.hashes,
        )
        commit = replace(commit, sha256=sha256)
    info = replace(info, counts={name: number for name, number in _count_changes(rows).items() if number})
    return commit_root(storage, facts, commit, info).commits[-1].digest


def _refuse_replaced(store: Store, chunk: int, hashes: np.ndarray, part: int, values: np.ndarray) -> None:
    """Raises DamagedChunk for values that are not the recorded ones: a commit must not give them a SHA-256."""
    found = hashes[chunk].copy()
    found[part] = chunk_hashes.hash_values(values)
    if wrong := chunk_hashes.describe_mismatch(f"{store.name}: chunk {chunk}", hashes[chunk], found):
        raise DamagedChunk(wrong)


def _checksum(values: np.ndarray) -> int:
    return crc32c(np.ascontiguousarray(values).data.cast("B"))
