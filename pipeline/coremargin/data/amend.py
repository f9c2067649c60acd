"""A commit on its way that changes labels or weights of rows that are there: see formats/store_record.py.

The commit before stays as it is. Who dies meanwhile leaves it, or the new one, and nothing between.
"""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

import numpy as np

from coremargin.data.changed_rows import ChangedRows, write_changed_rows
from coremargin.data.changes import Changed, Places, merged
from coremargin.data.checksum import crc32c
from coremargin.data.commits import commit_root
from coremargin.data.digest import WEIGHTS, Digested, checksums_of_ones, store_digest
from coremargin.data.format import CHANGES, UNLABELLED, Commit, read_facts
from coremargin.data.layout import layouts, own_encoding, weights_like
from coremargin.data.manifest import Manifest, write_group
from coremargin.data.owned import STORE
from coremargin.data.plain import group_metadata
from coremargin.data.statistics import widened
from coremargin.data.storage import write_json
from coremargin.data.weights import weights_in
from coremargin.formats.commit_order import group_of

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence
    from typing import Any

    from coremargin.data.commits import CommitInfo
    from coremargin.data.format import Facts
    from coremargin.data.store import Store

#: Rows that a commit notes as changed at most: comparing chunks costs less, or no more, where there are more of them.
MOST_NOTED = 1 << 20


class Amendment:
    """Labels and weights of changed chunks are written, chunk by chunk, and made visible at the end."""

    def __init__(self, store: Store, classes: Sequence[Any] | None = None) -> None:
        """store: its last commit. classes: those that it has after this one, new ones last; None: as before."""
        self._store, self._storage = store, store.storage
        self._facts = read_facts(store.storage)
        self._classes = tuple(self._facts.classes if classes is None else classes)
        self._manifest = Manifest(store.storage, self._facts, self._facts.commits)
        self._known = self._manifest.scalars()
        self._columns = {
            "digest": self._known.digest.copy(),
            "unlabelled": self._known.unlabelled.copy(),
            "counts": widened(self._known.counts, len(self._classes)),
            "marks": self._known.marks.copy(),
        }
        self._number = self._facts.number
        self._group = group_of(self._number)
        encoding = own_encoding(store.storage, self._facts)
        labels = layouts(store.storage, self._facts, encoding)["y"]
        self._layouts = {
            part: replace(layout, name=f"{CHANGES}/{self._group}/{part}")
            for part, layout in (("y", labels), ("weights", weights_like(labels)))
        }
        self._written = dict[str, list[int]](y=[], weights=[])
        self._rows: list[ChangedRows] = []
        self._noted = 0  # rows in these

    @property
    def changed(self) -> bool:
        """Something was."""
        return any(self._written.values())

    def labels(self, chunk: int, codes: np.ndarray) -> None:
        """The labels (n,) int32 that a chunk has from now on."""
        weights = weights_in(self._store, chunk)
        self._note(chunk, (self._store.labels(chunk), codes), (weights, weights))
        self._write("y", chunk, codes)
        digest = self._columns["digest"]
        digest[chunk] = digest[chunk] >> np.uint64(32) << np.uint64(32) | np.uint64(_checksum(codes))
        self._columns["unlabelled"][chunk] = np.count_nonzero(codes == UNLABELLED)
        self._columns["counts"][chunk] = np.bincount(codes[codes >= 0], minlength=len(self._classes))

    def weights(self, chunk: int, weights: np.ndarray) -> None:
        """The weights (n,) float64 that a chunk has from now on."""
        codes = self._store.labels(chunk)
        self._note(chunk, (codes, codes), (weights_in(self._store, chunk), weights))
        self._write("weights", chunk, weights)
        self._columns["marks"][chunk, WEIGHTS] = _checksum(weights)

    def _note(self, chunk: int, codes: tuple[np.ndarray, ...], weights: tuple[np.ndarray, ...]) -> None:
        """The rows of a chunk whose codes, or weights, are others from now on, as they were and as they become."""
        start, stop = self._store.span(chunk)
        if self._noted <= MOST_NOTED:
            self._rows.append(ChangedRows(np.arange(start, stop), *codes, *weights).other)
            self._noted += len(self._rows[-1].ids)

    def _write(self, part: str, chunk: int, values: np.ndarray) -> None:
        layout = self._layouts[part]
        if not self.changed:  # what an unfinished commit left there is removed
            self._storage.remove(f"{CHANGES}/{self._group}", STORE.owns)
        self._written[part].append(chunk)
        self._storage.write(layout.key(chunk), layout.encoding.encode(layout.padded(values)))

    def commit(self, deed: CommitInfo) -> str:
        """Make it visible, atomically; the digest of what the store has now."""
        storage, group = self._storage, f"{CHANGES}/{self._group}"
        written = [self._layouts[part] for part, of in self._written.items() if of]
        if len(written) == 1 and self._noted <= MOST_NOTED:  # what is noted of one part knows nothing of another
            write_changed_rows(storage, self._group, self._rows)
        for layout in written:
            write_json(storage, f"{layout.name}/zarr.json", layout.metadata(self._facts.rows))
        for key in (group, CHANGES):
            write_json(storage, f"{key}/zarr.json", group_metadata({}))
        storage.sync(*(layout.name for layout in written), group, CHANGES, "")
        return commit_root(storage, *self._described(), deed).commits[-1].digest

    def _described(self) -> tuple[Facts, Commit]:
        """The facts before this commit, with its classes, and the commit; its entries are written."""
        facts, manifest, columns = self._facts, self._manifest, self._columns
        places = Places(manifest.places.labels.copy(), manifest.places.weights.copy())
        for part, of in (("y", places.labels), ("weights", places.weights)):
            of[self._written[part]] = self._number
        if not manifest.weighted and places.weights.any():
            unmoved = places.weights == 0
            columns["marks"][unmoved, WEIGHTS] = checksums_of_ones(self._known.rows)[unmoved]
        both = np.unique(np.array([*self._written["y"], *self._written["weights"]], np.int64))
        chunks, since = merged(manifest.changes, facts.commits, both)
        entries = Changed.of(chunks, places, columns)
        digest = store_digest(
            features=facts.features,
            dtype=facts.dtype,
            classes=self._classes,
            chunks=replace(Digested.of(self._known), digest=columns["digest"], marks=columns["marks"]),
            sparse=facts.sparse,
            weighted=facts.weighted or bool(places.weights.any()),
        )
        last = facts.commits[-1].last
        commit = Commit(
            self._number,
            facts.rows,
            len(self._classes),
            last,
            last,
            self._group,
            digest,
            len(chunks),
            since,
            moved=True,
            weights=entries.weights is not None,
        )
        write_group(self._storage, self._group, entries.columns())
        return replace(facts, classes=self._classes), commit


def by_chunk(store: Store, rows: np.ndarray, values: np.ndarray) -> Iterator[tuple[int, np.ndarray, np.ndarray]]:
    """Chunks with places in them, and the values of these; rows (m,) ascend."""
    numbers = rows // store.chunk_rows
    for mine in np.split(np.arange(len(rows)), np.flatnonzero(np.diff(numbers)) + 1):
        if len(mine):
            chunk = int(numbers[mine[0]])
            yield chunk, rows[mine] - chunk * store.chunk_rows, values[mine]


def _checksum(values: np.ndarray) -> int:
    return crc32c(np.ascontiguousarray(values).data.cast("B"))
