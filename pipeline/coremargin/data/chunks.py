"""Whole chunks into a store, from any thread, and the commit that makes them visible."""

from __future__ import annotations

import threading
from collections.abc import Iterator, Sequence
from dataclasses import replace
from functools import partial
from typing import TYPE_CHECKING, Any

import numpy as np

from coremargin.data import chunk_hashes
from coremargin.data.changes import Places
from coremargin.data.commits import CommitInfo, commit_root
from coremargin.data.digest import WEIGHTS, Digested, checksums_of_ones, store_digest
from coremargin.data.format import VECTORS, Commit, Facts, read_facts
from coremargin.data.group_reader import StoreGroups
from coremargin.data.groups import GroupColumns, encoded_ids
from coremargin.data.layout import layouts, lengths, own_encoding, sparse_group, weights_like
from coremargin.data.manifest import Manifest, write_statistics
from coremargin.data.sizes import chunks_of
from coremargin.data.sparse import INDEX_DTYPE
from coremargin.data.sparse_statistics import write_vectors
from coremargin.data.statistics import ChunkScalars, ChunkStatistics, Entries, concatenate, measure
from coremargin.data.storage import write_json
from coremargin.formats.row_types import stored_dtype
from coremargin.formats.store_record import GROUP_FILES, group_of
from coremargin.maths.rows import Rows, is_sparse

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from coremargin.data.codecs import Encoding
    from coremargin.data.place import Place
    from coremargin.data.storage import Writable
    from coremargin.data.store import Store
    from coremargin.formats.store_record import KeyRun

# Values of sparse rows, and groups, on their way into files of a fixed number of values each.


Arrays = tuple[np.ndarray, ...]  #: data and indices of sparse rows; what belongs to groups
File = tuple[int, Arrays]  #: number and values


class ValueFiles:
    """Takes arrays of values, chunk after chunk; gives whole files."""

    def __init__(self, size: int, head: Arrays, count: int = 0) -> None:
        """size: values per file; head: those in the last file, which is not full; count: values that are stored."""
        self.count = count
        self._size = size
        self._parts = [head]

    def add(self, *values: np.ndarray) -> list[File]:
        """Take values (m,) that must not change afterwards. Returns the files that are full now."""
        whole = self.count // self._size
        self._parts.append(values)
        self.count += len(values[0])
        full = self.count // self._size - whole
        if not full:
            return []
        *files, (_, rest) = _cut(self._joined(), whole, self._size, full)
        self._parts = [tuple(part.copy() for part in rest)]  # a view would keep all of its file in memory
        return files

    def rest(self, *values: np.ndarray) -> list[File]:
        """The file that is not full, with more values (m,) at its end, which are not taken: maybe several files."""
        joined = self._joined([values] if values else [])
        files = -(-len(joined[0]) // self._size)
        return list(_cut(joined, self.count // self._size, self._size, files))[:files]

    def _joined(self, more: Sequence[Arrays] = ()) -> Arrays:
        return tuple(np.concatenate(same) for same in zip(*self._parts, *more, strict=True))


def _cut(values: Arrays, first: int, size: int, files: int) -> Iterator[File]:
    """So many files of ``size`` values, then what is left."""
    for k in range(files + 1):
        yield first + k, tuple(one[k * size : (k + 1) * size] for one in values)


_MERGE_CHUNKS = 4096  # statistics of small commits are merged into the next one up to this many chunks
_MERGE_RATIO = 3
_MERGE_NUMBERS = 1 << 16  # of so many numbers, however small the next one is: files cost more than what is in them


class ChunkSink:
    """Chunks of one store under construction. ``put`` is safe in many threads, ``commit`` comes after them."""

    def __init__(self, place: Place, facts: Facts, encoding: Encoding) -> None:
        """A new store (no commits in ``facts``), or one that is continued: see ``resume``."""
        self.place, self.facts = place, facts
        self.first = facts.rows // facts.chunk_rows  #: first chunk that the next commit describes
        self.bytes_written = 0  #: bytes of chunk files so far
        self._entries: dict[int, ChunkStatistics | ChunkScalars] = {}
        self._hashes: dict[int, np.ndarray] = {}  # SHA-256 of the same chunks, if the store has those of all
        self._nonzeros = 0  # stored values that the last commit described
        self._lock = threading.Lock()
        self._layouts = layouts(place.storage, facts, encoding)
        self._begun: np.ndarray | None = None  # weights of the last chunk, which grows, of rows that came without
        self._values = ValueFiles(
            facts.file_entries, (np.empty(0, stored_dtype(facts.dtype)), np.empty(0, INDEX_DTYPE))
        )
        self._groups: dict[int, GroupColumns] = {}  # of the same chunks, if rows are in groups
        self._starts = ValueFiles(GROUP_FILES["groups"], (np.empty(0, np.int64),))
        self._ids = ValueFiles(GROUP_FILES["group_ids"], (np.empty(0, np.uint8),))

    @property
    def values(self) -> int:
        """Values of sparse rows that were taken so far."""
        return self._values.count

    @classmethod
    def resume(cls, store: Store, place: Place) -> ChunkSink:
        """Go on after the last commit. Raises StoreError when the store's codecs are not those of this writer."""
        facts = read_facts(place.storage)
        sink = cls(place, facts, own_encoding(place.storage, facts))
        manifest, arrays = Manifest(place.storage, facts, facts.commits), sink._layouts
        arrays["y"] = replace(arrays["y"], moved=manifest.folders("y"))  # a chunk grows where it lies
        if manifest.weighted:
            weights = replace(weights_like(arrays["y"]), moved=manifest.folders("weights"))
            arrays["weights"] = weights
            if not facts.weighted and sink.first in weights.moved and facts.rows % facts.chunk_rows:
                sink._begun = store.weights(sink.first)
        if facts.sparse:
            whole = int(store.scalars().nonzeros[: sink.first].sum())
            sink._values = ValueFiles(facts.file_entries, store.sparse_head(whole), whole)
        if isinstance(store.groups, StoreGroups):
            starts, ids = store.groups.head(sink.first)
            counts = store.groups.before(sink.first)
            sink._starts = ValueFiles(GROUP_FILES["groups"], (starts,), counts[0])
            sink._ids = ValueFiles(GROUP_FILES["group_ids"], (ids,), counts[1])
        return sink

    def tasks(
        self, index: int, X: Rows, codes: np.ndarray, weights: np.ndarray | None, classes: int
    ) -> list[Callable[[], None]]:
        """What is to be done for a whole chunk, in any thread; chunks of sparse rows come in order."""
        start, files = 0, list[File]()
        if is_sparse(X):
            start = self._values.count
            files = self._values.add(X.data, X.indices)
        return [
            partial(self.put, index, X, codes, weights, classes, start),
            *(partial(self._put_values, number, *values) for number, values in files),
        ]

    def put(
        self, index: int, X: Rows, codes: np.ndarray, weights: np.ndarray | None, classes: int, start: int = 0
    ) -> None:
        """Measure a chunk and write what has its place by rows.

        X (n, d): finite rows as they are stored; codes (n,) int32 below ``classes``; weights (n,) or None; start: how
        many values sparse rows before it store.
        """
        if weights is None and index == self.first and self._begun is not None:
            weights = np.append(self._begun, np.ones(len(codes) - len(self._begun)))
        with self.place.writing():
            self._put(index, X, codes, weights, measure(X, codes, classes, weights), start)

    def _put(
        self, index: int, X: Rows, codes: np.ndarray, weights: np.ndarray | None, entry: ChunkStatistics, start: int
    ) -> None:
        with self.place.storage.batch() as batch:
            if is_sparse(X):
                size = self._write(
                    batch, "X/indptr", index, (start + X.indptr.astype(np.int64))[: self.facts.chunk_rows]
                )
            else:
                size = self._write(batch, "X", index, X)
            size += self._write(batch, "y", index, codes)
            if weights is not None:
                size += self._write(batch, "weights", index, weights)
        kept: ChunkStatistics | ChunkScalars = entry
        if is_sparse(X):  # vectors of thousands of chunks would not fit in memory
            size += write_vectors(self.place.storage, index, X.shape[0], vars(entry), X.dtype)
            kept = entry.scalars
        hashes = chunk_hashes.hash_chunk(X, codes, weights) if self.facts.hashed else None
        with self._lock:
            self._entries[index] = kept
            if hashes is not None:
                self._hashes[index] = hashes
            self.bytes_written += size

    def close_values(self, last: Rows | None, rows: int) -> None:
        """Write the values of sparse rows that fill no file yet, those of the last chunk among them, for a commit."""
        if not self.facts.sparse:
            return
        more = (last.data, last.indices) if is_sparse(last) else ()
        for number, values in self._values.rest(*more):
            self._put_values(number, *values)
        if rows % self.facts.chunk_rows == 0:  # the end of the last row is the first entry of another chunk
            ends = np.array([self._values.count])
            self._write(self.place.storage, "X/indptr", rows // self.facts.chunk_rows, ends)

    def put_groups(self, index: int, starts: np.ndarray, ids: Sequence[str], *, whole: bool = True) -> None:
        """Take the groups that begin in a chunk: row ids (k,) int64, and ids; chunks come in order.

        whole: the chunk is; else its groups are written by ``close_groups``, and come again.
        """
        self._groups[index] = GroupColumns.of_chunk(starts, ids)
        if whole:
            for name, files, values in (("groups", self._starts, starts), ("group_ids", self._ids, encoded_ids(ids))):
                self._put_files(name, files.add(values))

    def close_groups(self, starts: np.ndarray, ids: Sequence[str], rows: int) -> None:
        """Write the groups that fill no file yet, with those of the last chunk, if it is not whole, for a commit."""
        self._put_files("groups", self._starts.rest(np.append(starts, rows)))
        self._put_files("group_ids", self._ids.rest(encoded_ids(ids)))

    def _put_files(self, name: str, files: Sequence[File]) -> None:
        for number, (values,) in files:
            with self.place.writing():
                self.bytes_written += self._write(self.place.storage, name, number, values)

    def _put_values(self, number: int, data: np.ndarray, indices: np.ndarray) -> None:
        with self.place.writing(), self.place.storage.batch() as batch:
            size = self._write(batch, "X/data", number, data) + self._write(batch, "X/indices", number, indices)
        with self._lock:
            self.bytes_written += size

    def _write(self, storage: Writable, name: str, number: int, values: np.ndarray) -> int:
        layout = self._layouts[name]
        parts = layout.encoding.encode(layout.padded(values))
        storage.write(layout.key(number), parts)
        return sum(memoryview(part).nbytes for part in parts)

    def commit(
        self,
        rows: int,
        classes: Sequence[Any],
        commit_info: CommitInfo | None = None,
        keys: Sequence[KeyRun] = (),
        groups: Sequence[KeyRun] = (),
        *,
        publish: bool = True,
    ) -> None:
        """Make rows [0, rows) visible, atomically; their chunks must have been put, all keys written.

        commit_info: what the log says, but for the rows added. publish: a new store is moved to its place.
        """
        kept = replace(self.facts, classes=tuple(classes), keys=tuple(keys), groups=tuple(groups))
        facts, commit, counts = self._described(rows, kept)
        storage = self.place.storage
        lengthened = lengths(self.facts, rows, self._nonzeros, counts)
        arrays = {name: self._layouts[name].metadata(length) for name, length in lengthened.items()}
        for part in self._layouts.keys() & {"y", "weights"}:
            if self.first in self._layouts[part].moved:
                arrays[self._layouts[part].moved[self.first]] = self._layouts[part].metadata(rows)
        with storage.batch() as batch:
            for name, metadata in arrays.items():
                write_json(batch, f"{name}/zarr.json", metadata)
            if facts.sparse:
                write_json(batch, "X/zarr.json", sparse_group(facts, rows))
        storage.sync(*arrays, *(("X", VECTORS) if facts.sparse else ()))
        commit_info = commit_info or CommitInfo("append" if self.facts.commits else "ingest")
        facts = commit_root(storage, facts, commit, replace(commit_info, counts={"added": rows - self.facts.rows}))
        if publish and not self.place.published:
            self.place.publish()
        self.facts, self.first, self._begun = facts, rows // facts.chunk_rows, None
        for known in (self._entries, self._hashes, self._groups):
            for index in [index for index in known if index < self.first]:
                del known[index]

    def _described(self, rows: int, facts: Facts) -> tuple[Facts, Commit, list[int]]:
        """The facts before this commit, with its classes, the commit, and how many groups there are, with bytes of ids.

        The statistics of the commit are written.
        """
        first, last = self.first, chunks_of(rows, facts.chunk_rows)
        parts = [self._entries[index] for index in range(first, last)]
        start, known, weighted, places = first, None, facts.weighted, Places.nothing(last)
        hashes = np.stack([self._hashes[index] for index in range(first, last)]) if facts.hashed else None
        groups = [self._groups[index] for index in range(first, last)] if facts.grouped else []
        if facts.commits:
            start = _merged_from(facts.commits, first, last, _MERGE_NUMBERS // (5 * facts.features + 16))
            earlier = Manifest(self.place.storage, facts, facts.commits)
            before, weighted = earlier.scalars(), earlier.weighted
            places.put(earlier.places)
            part = before.part(start, first) if facts.sparse else earlier.part(start, first, before)
            parts.insert(0, part)
            known = Digested.of(before).upto(start)
            if hashes is not None:
                hashes = np.concatenate([earlier.hashes(before.rows)[:first], hashes])
            if earlier.groups is not None:
                groups.insert(0, earlier.groups.part(0, first))
        columns = GroupColumns.joined(groups) if groups else None
        statistics, described = concatenate(parts, len(facts.classes)), places.part(start, last)
        written = Digested.of(self._weighed(statistics, described) if weighted else statistics)
        known = Digested.joined([known, written]) if known else written
        self._nonzeros = int(known.nonzeros.sum())
        digest = store_digest(
            features=facts.features,
            dtype=facts.dtype,
            classes=facts.classes,
            chunks=known,
            sparse=facts.sparse,
            weighted=weighted,
            groups=columns,
        )
        commit = Commit(
            facts.number,
            rows,
            len(facts.classes),
            start,
            last,
            group_of(facts.number),
            digest,
            moved=facts.moved,
            weights=bool(described.weights.any()),
        )
        if hashes is not None:
            if weighted and not facts.weighted:
                unmoved = places.weights == 0
                hashes[unmoved, chunk_hashes.WEIGHTS] = chunk_hashes.hash_ones(known.rows[unmoved])
            sha256 = chunk_hashes.content_sha256(
                hashes,
                features=facts.features,
                dtype=facts.dtype,
                classes=facts.classes,
                rows=rows,
                chunk_rows=facts.chunk_rows,
                groups=None if columns is None else columns.hashes,
            )
            commit, hashes = replace(commit, sha256=sha256), hashes[start:last]
        some = None if columns is None else columns.part(start, last)
        write_statistics(self.place.storage, commit.group, statistics, facts, described, hashes, some)
        return facts, commit, [0, 0] if columns is None else columns.sizes.sum(axis=0).tolist()

    def _weighed(self, statistics: Entries, places: Places) -> Entries:
        """With the checksums of weights that are 1 where rows came without any."""
        if self.facts.weighted:
            return statistics
        marks = statistics.marks.copy()
        unmoved = places.weights == 0
        marks[unmoved, WEIGHTS] = checksums_of_ones(statistics.rows[unmoved])
        return replace(statistics, marks=marks)


def _merged_from(commits: Sequence[Commit], first: int, last: int, few: int) -> int:
    """First chunk whose statistics the next commit repeats: small groups grow together, so that few are ever read.

    few: chunks that are repeated whatever the ratio.
    """
    start = first
    for earlier in reversed(commits):
        if earlier.first < start:
            if last - earlier.first > min(_MERGE_CHUNKS, max(few, _MERGE_RATIO * (last - start))):
                break
            start = earlier.first
    return start
