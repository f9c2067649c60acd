"""Whole chunks into a store, from any thread, and the commit that makes them visible."""

from __future__ import annotations

import threading
from dataclasses import replace
from typing import TYPE_CHECKING, Any

import numpy as np

from coremargin.data.files import output_errors, sync_folder, write_json, write_whole
from coremargin.data.format import UNLABELLED, Commit, Digested, Facts, chunks_of, read_facts, store_digest
from coremargin.data.layout import layouts, read_layouts
from coremargin.data.manifest import Manifest, write_group
from coremargin.data.statistics import ChunkStatistics, concatenate, measure
from coremargin.errors import StoreError

if TYPE_CHECKING:
    from collections.abc import Sequence

    from coremargin.data.codecs import Encoding
    from coremargin.data.place import Place

_MERGE_CHUNKS = 4096  # statistics of small commits are merged into the next one up to this many chunks
_MERGE_RATIO = 3


class ChunkSink:
    """Chunks of one store under construction. ``put`` is safe in many threads, ``commit`` comes after them."""

    def __init__(self, place: Place, facts: Facts, encoding: Encoding) -> None:
        """A new store (no commits in ``facts``), or one that goes on: see ``resume``."""
        self.place, self.facts, self.encoding = place, facts, encoding
        self.first = facts.rows // facts.chunk_rows  #: first chunk that the next commit describes
        self.bytes_written = 0  #: bytes of chunk files so far
        self._entries: dict[int, ChunkStatistics] = {}
        self._lock = threading.Lock()
        if not facts.commits:
            with output_errors(place.path):
                for name in ("X", "y"):
                    (place.folder / name).mkdir()

    @classmethod
    def resume(cls, place: Place) -> ChunkSink:
        """Go on after the last commit. Raises StoreError when the store's codecs are not those of this writer."""
        facts = read_facts(place.path)
        X, y = read_layouts(place.path, facts)
        encoding = X.encoding
        if encoding is None or layouts(place.path, facts, encoding) != (X, y):
            text = "expected codecs and chunk names as this writer makes them, found others; ingest into a new store"
            raise StoreError(f"{place.path}: {text}")
        return cls(place, facts, encoding)

    def put(self, index: int, X: np.ndarray, codes: np.ndarray, classes: int) -> None:
        """Measure and write a chunk: finite rows X (n, d) of the store's dtype, codes (n,) int32 below ``classes``."""
        entry = measure(X, codes, classes)
        size = 0
        for layout, values, fill in zip(self._layouts(), (X, codes), (np.nan, UNLABELLED), strict=True):
            whole = np.ascontiguousarray(values, dtype=layout.dtype)
            if len(values) < layout.chunk_rows:  # Zarr stores the last chunk at full size
                whole = np.full((layout.chunk_rows, *layout.tail), fill, dtype=layout.dtype)
                whole[: len(values)] = values
            encoding = layout.encoding or self.encoding
            size += write_whole(self.place.folder / layout.key(index), encoding.encode(whole))
        with self._lock:
            self._entries[index] = entry
            self.bytes_written += size

    def commit(self, rows: int, classes: Sequence[Any]) -> None:
        """Make rows [0, rows) visible, atomically; their chunks must have been put."""
        facts = self._described(rows, replace(self.facts, classes=tuple(classes)))
        for layout in self._layouts():
            write_json(self.place.folder / layout.name / "zarr.json", layout.metadata(rows))
            sync_folder(self.place.folder / layout.name)
        write_json(self.place.folder / "zarr.json", facts.root())
        sync_folder(self.place.folder)
        if not self.place.published:
            self.place.publish()
        self.facts, self.first = facts, rows // facts.chunk_rows
        self._entries = {index: entry for index, entry in self._entries.items() if index >= self.first}

    def _described(self, rows: int, facts: Facts) -> Facts:
        """The facts after this commit; its statistics are written."""
        first, last = self.first, chunks_of(rows, facts.chunk_rows)
        parts = [self._entries[index] for index in range(first, last)]
        if facts.commits:
            start = _merged_from(facts.commits, first, last)
            earlier = Manifest(self.place.folder, facts, facts.commits)
            before = earlier.scalars()
            parts.insert(0, earlier.part(start, first, before))
            known = Digested.of(before).upto(start)
        else:
            start, known = first, None
        statistics = concatenate(parts, len(facts.classes))
        written = Digested.of(statistics)
        digest = store_digest(
            features=facts.features,
            dtype=facts.dtype,
            classes=facts.classes,
            chunks=known.then(written) if known else written,
        )
        commit = Commit(rows, len(facts.classes), start, last, f"{len(facts.commits):06d}", digest)
        write_group(self.place.folder, commit.group, statistics)
        return replace(facts, commits=(*facts.commits, commit))

    def _layouts(self) -> tuple[Any, Any]:
        return layouts(self.place.folder, self.facts, self.encoding)


def _merged_from(commits: Sequence[Commit], first: int, last: int) -> int:
    """First chunk whose statistics the next commit repeats: small groups grow together, so that few are ever read."""
    start = first
    for earlier in reversed(commits):
        if earlier.first < start:
            if last - earlier.first > min(_MERGE_CHUNKS, _MERGE_RATIO * (last - start)):
                break
            start = earlier.first
    return start
