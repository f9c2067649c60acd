"""Labels of rows that are in a store already, written as a commit of their own: see formats/store_record.py.

The commit before stays as it is, with its labels. Who dies meanwhile leaves it, or the new one, and nothing between.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, replace
from types import MappingProxyType
from typing import TYPE_CHECKING, Any

import numpy as np

from coremargin.data.arrays import checked_ids
from coremargin.data.changes import CHANGES, Changed, merged
from coremargin.data.checksum import crc32c
from coremargin.data.digest import Digested, store_digest
from coremargin.data.files import output_errors, sync_folder, write_json, write_whole
from coremargin.data.format import UNLABELLED, Commit, Facts, commits_upto, read_facts
from coremargin.data.labels import LabelCoder
from coremargin.data.layout import layouts, own_encoding
from coremargin.data.manifest import Manifest, write_group
from coremargin.data.owned import STORE
from coremargin.data.place import Place
from coremargin.data.plain import group_metadata
from coremargin.data.statistics import widened
from coremargin.data.store import Store
from coremargin.errors import UsageError
from coremargin.formats.held import same

if TYPE_CHECKING:
    import os
    from collections.abc import Mapping, Sequence
    from pathlib import Path

_TOLD = 8  # rows that had a label and have another one or none, which are named


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
    digest : str
        Of the last commit: a new one where anything changed.
    """

    given: int
    added: int
    replaced: int
    removed: int
    examples: tuple[tuple[int, Any, Any], ...]
    digest: str

    @property
    def changed(self) -> int:
        """Rows that have another label now, or none."""
        return self.added + self.replaced + self.removed


def write_labels(
    path: str | os.PathLike[str],
    ids: Any,
    labels: Sequence[Any],
    *,
    withdrawn: Mapping[int, Sequence[Any]] = MappingProxyType({}),
    after: str | None = None,
) -> LabelReport:
    """Give rows labels, all of them or none, in a commit of its own; no commit where they have them already.

    Parameters
    ----------
    path : path-like
        The store.
    ids : array_like of shape (m,)
        Row ids, each once.
    labels : sequence of length m
        Their labels, new classes among them or not; None takes a label away.
    withdrawn : mapping of int to sequence of labels
        Row ids, none of them in ``ids``, whose label is taken away where it is one of these.
    after : str, optional
        The digest of one of the store's commits: what the row ids are about.

    Returns
    -------
    LabelReport
        What has changed.

    Raises
    ------
    StoreError
        It is no store, or one that this writer did not write, or none of its commits is the one named.
    DamagedChunk
        Labels of a chunk that changes cannot be read.
    LabelError
        Labels of another kind than those of the store, or too many classes.
    UsageError
        A row that is not there, or is named twice.
    OutputError
        The store cannot be written.
    Busy
        Another writer is at work.
    """
    place = Place.existing(path)
    try:
        store = Store.open(place.path, map_bytes=0)
        if after is not None:
            commits_upto(store.history, place.path, digest=after)
        rows = checked_ids(np.asarray(ids), store.rows, store.name)
        coder = LabelCoder(store.classes)
        codes = coder.encode(labels, len(rows), f"{store.name}: labels in the order given")
        given, less = int(np.count_nonzero(codes != UNLABELLED)), _having(store, withdrawn)
        rows, codes = np.append(rows, less), np.append(codes, np.full(len(less), UNLABELLED, codes.dtype))
        order = np.argsort(rows, kind="stable")
        if (twice := np.flatnonzero(np.diff(rows[order]) == 0)).size:
            raise UsageError(f"{store.name}: expected each row once, found row {rows[order][twice[0]]:,} twice")
        work = _Change(place.path, store, coder.classes)
        for chunk, offsets, new in _by_chunk(store, rows[order], codes[order]):
            work.change(chunk, offsets, new)
        digest = work.commit() if work.chunks else store.digest
    finally:
        place.close()
    return LabelReport(given, work.added, work.replaced, work.removed, tuple(work.examples), digest)


def _having(store: Store, withdrawn: Mapping[int, Sequence[Any]]) -> np.ndarray:
    """Rows (m,) whose label is one of those that are to be taken away."""
    rows = checked_ids(np.array(sorted(withdrawn), np.int64), store.rows, store.name)
    found = list[int]()
    for chunk, offsets, ids in _by_chunk(store, rows, rows):
        for row, code in zip(ids.tolist(), store.labels(chunk)[offsets].tolist(), strict=True):
            if code != UNLABELLED and any(same(store.classes[code], label) for label in withdrawn[row]):
                found.append(row)
    return np.array(found, np.int64)


def _by_chunk(store: Store, rows: np.ndarray, codes: np.ndarray) -> Iterator[tuple[int, np.ndarray, np.ndarray]]:
    """Chunks with places in them and codes; rows (m,) ascend."""
    numbers = rows // store.chunk_rows
    for mine in np.split(np.arange(len(rows)), np.flatnonzero(np.diff(numbers)) + 1):
        if len(mine):
            chunk = int(numbers[mine[0]])
            yield chunk, rows[mine] - chunk * store.chunk_rows, codes[mine]


class _Change:
    """A commit on its way: labels of changed chunks are written, chunk by chunk, and made visible at the end."""

    def __init__(self, path: Path, store: Store, classes: Sequence[Any]) -> None:
        self.added = self.replaced = self.removed = 0
        self.examples: list[tuple[int, Any, Any]] = []
        self.chunks: list[int] = []
        self._path, self._store, self._classes = path, store, classes
        self._facts = read_facts(path)
        self._manifest = Manifest(path, self._facts, self._facts.commits)
        scalars = self._manifest.scalars()
        self._columns = {
            "digest": scalars.digest, "unlabelled": scalars.unlabelled,
            "counts": widened(scalars.counts, len(classes)),
        }  # fmt: skip
        self._known = scalars
        self._number = len(self._facts.commits)
        self._group = f"{self._number:06d}"
        name = f"{CHANGES}/{self._group}/y"
        self._layout = replace(layouts(path, self._facts, own_encoding(path, self._facts))["y"], name=name)

    def change(self, chunk: int, offsets: np.ndarray, codes: np.ndarray) -> None:
        """Write the labels of a chunk where some of them are others than those that it has."""
        before = self._store.labels(chunk)
        other = before[offsets] != codes
        if not other.any():
            return
        offsets, codes = offsets[other], codes[other]
        self._count(chunk * self._store.chunk_rows + offsets, before[offsets], codes)
        after = before.copy()
        after[offsets] = codes
        if not self.chunks:
            self._begin()
        self.chunks.append(chunk)
        write_whole(self._layout.file(chunk), self._layout.encoding.encode(self._layout.padded(after)))
        digest = self._columns["digest"]
        digest[chunk] = digest[chunk] >> np.uint64(32) << np.uint64(32) | np.uint64(crc32c(after.data.cast("B")))
        self._columns["unlabelled"][chunk] = np.count_nonzero(after == UNLABELLED)
        self._columns["counts"][chunk] = np.bincount(after[after >= 0], minlength=len(self._classes))

    def _count(self, rows: np.ndarray, before: np.ndarray, after: np.ndarray) -> None:
        had = before != UNLABELLED
        self.added += int(np.count_nonzero(~had))
        self.removed += int(np.count_nonzero(after == UNLABELLED))  # each of them had another code
        self.replaced += int(np.count_nonzero(had & (after != UNLABELLED)))
        for row, was, now in zip(rows[had].tolist(), before[had].tolist(), after[had].tolist(), strict=True):
            if len(self.examples) == _TOLD:
                break
            self.examples.append((row, self._classes[was], None if now == UNLABELLED else self._classes[now]))

    def _begin(self) -> None:
        """Folders for labels; what an unfinished commit left there is removed."""
        with output_errors(self._path):
            STORE.remove(self._path, f"{CHANGES}/{self._group}")
            (self._path / self._layout.name).mkdir(parents=True)

    def commit(self) -> str:
        """Make it visible, atomically; the digest of what the store has now."""
        store, folder = self._store, self._path / CHANGES
        write_json(self._path / self._layout.name / "zarr.json", self._layout.metadata(store.rows))
        write_json(folder / self._group / "zarr.json", group_metadata({}))
        write_json(folder / "zarr.json", group_metadata({}))
        for place in (self._path / self._layout.name, folder / self._group, folder, self._path):
            sync_folder(place)
        facts = self._described()
        write_json(self._path / "zarr.json", facts.root())
        sync_folder(self._path)
        return facts.commits[-1].digest

    def _described(self) -> Facts:
        """The facts after this commit; its entries are written."""
        facts, manifest = self._facts, self._manifest
        array = manifest.array.copy()
        array[self.chunks] = self._number
        chunks, since = merged(manifest.changes, facts.commits, np.array(self.chunks))
        columns = self._columns
        digest = store_digest(
            features=facts.features, dtype=facts.dtype, classes=self._classes,
            chunks=replace(Digested.of(self._known), digest=columns["digest"]),
            sparse=facts.sparse, weighted=facts.weighted,
        )  # fmt: skip
        last = facts.commits[-1].last
        commit = Commit(facts.rows, len(self._classes), last, last, self._group, digest, len(chunks), since)
        write_group(self._path, self._group, vars(Changed.of(chunks, array, columns)))
        return replace(facts, classes=tuple(self._classes), commits=(*facts.commits, commit))
