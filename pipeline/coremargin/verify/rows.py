"""The store as ``verify`` reads it: plain zarr-python, every chunk once, in order, with its checksums.

On demand the SHA-256 of the content is computed as well. Chunks with the right CRC-32C and another SHA-256 were forged.

None of coremargin's own readers is used. Zarr reads a missing chunk as fill values without an error, so the existence
of each chunk's file is checked first, and its bytes are compared with the digest that ingest stored.
"""

from __future__ import annotations

import hashlib
import json
import os
from collections import deque
from collections.abc import Callable, Container, Generator, Iterator, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import contextmanager
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any, TypeVar

import crc32c
import numpy as np
from msgspec import UNSET

from coremargin.errors import DamagedChunk, StoreError
from coremargin.formats.columns import read_stored
from coremargin.formats.limits import LARGEST_WEIGHT
from coremargin.formats.store_log import read_record_and_log
from coremargin.verify.files import Files, bfloat16_numbers
from coremargin.verify.hashes import ContentHash, bytes_of, content_digest, hashes_of
from coremargin.verify.opener import is_fetched, open_store
from coremargin.verify.sums import quiet
from coremargin.verify.written import as_of, read_sums

if TYPE_CHECKING:
    from scipy.sparse import csr_array

    from coremargin.formats.model_record import StoreHash
    from coremargin.formats.storage import ReadableStorage

T = TypeVar("T")

_PENDING_BYTES = 256 << 20  # chunks in memory at a time
_FETCHES = 4  # of a chunk that comes damaged in another way each time
_REQUESTS = 16  # chunks that are fetched at a time, from a service
_REMEMBERED = 64 << 20  # bytes of the cache of rows with positive weight, a bit per row


@dataclass(frozen=True)
class Chunk:
    """Rows x (n, d), an array or csr_array, label codes (n,) of the rows [start, start + n), and weights (n,) float64,

    or None when the store has none: all are 1. A scan passes rows in ``Rows.dtype`` and yields them as stored.
    """

    start: int
    x: np.ndarray | csr_array
    codes: np.ndarray
    weights: np.ndarray | None = None
    given: Any = None  #: the rows before the map, if they are mapped
    groups: np.ndarray | None = None  #: rows (k,) at which groups begin, counted over the store; None: there are none
    group_ids: Sequence[bytes] = ()  #: ids of these as stored
    needs: float = 0.0  #: bound on the rounding error of a mapped row
    hashes: dict[str, bytes] | None = None  #: SHA-256 of its parts as stored, if they are wanted


class Rows:
    """The committed rows of a store. Raises StoreError if it is no store, newer, or inconsistent."""

    def __init__(
        self,
        path: str | os.PathLike[str] | ReadableStorage,
        commit: str = "",
        *,
        grown: bool = True,
        claimed: StoreHash | None = None,
        compute_sha256: bool = False,
    ) -> None:
        """commit: the digest of the commit to read, if the store has it; otherwise the last one is read.

        grown: whether rows may have been appended since, or only labels and weights changed. claimed: the SHA-256 that
        the model names. compute_sha256: compute that of the content from the bytes; without, only if what the store
        has recorded cannot be compared with the claim.
        """
        self._store = store = open_store(path)
        self._fetched = is_fetched(store)
        self.path = store.name  #: for messages
        whole, self.log = read_record_and_log(store)
        record, number = as_of(whole, self.log, commit, self.path, grown=grown)
        self.appended = whole.rows - record.rows  #: rows of later commits, which are not read
        #: number of later commits that changed labels or weights, which are not read
        self.amended = sum(entry.commit.changed > 0 for entry in self.log[number + 1 :])
        self.commits = (*(entry.commit for entry in self.log[:number]), record.commits[-1])
        self.rows, self.features, self._stored_type = record.rows, record.features, record.dtype
        #: precision of rows: float32 holds all values of narrower types
        self.dtype = "float64" if record.dtype == "float64" else "float32"
        self.columns = ""  #: the source of the features, "" if they have no names
        if whole.columns is not UNSET:
            self.columns = read_stored(store, whole.columns, self.features).claim
        self.classes, self.chunk_rows = tuple(record.classes), record.chunk_rows
        self.chunks = -(-self.rows // self.chunk_rows)
        self._sums = read_sums(store, record)
        self._files = Files(store, record)
        self.sparse, self.weighted = self._files.sparse, self._sums.weighted
        self._starts = np.concatenate([[0], np.cumsum(self._sums.nonzeros)])
        self.grouped = record.grouped  #: rows are in groups
        self._first_groups = np.concatenate([np.zeros((1, 2), np.int64), np.cumsum(self._sums.groups, axis=0)])
        self._heavy: dict[int, np.ndarray] = {}
        self._heavy_bytes = 0
        self.digest = ""  # known after a scan
        self.sha256 = self._recorded_sha256()  #: that of the content by the store's own account, "" if it has none
        self._hash: ContentHash | None = None
        if compute_sha256 or (claimed is not None and (not self.sha256 or claimed.chunk_rows != self.chunk_rows)):
            hash_rows = self.chunk_rows if claimed is None else claimed.chunk_rows
            self._hash = ContentHash(self.rows, hash_rows, grouped=self.grouped)
        self._watched: dict[int, dict[str, int]] = {}
        self._begun: dict[int, ContentHash] = {}  # of the watched beginnings

    def labels(self) -> Iterator[tuple[np.ndarray, np.ndarray]]:
        """Label codes and weights (n,) of all chunks, in order, without their rows. Raises DamagedChunk."""
        for index in range(self.chunks):
            codes, weights = self._labels(index)
            yield codes, np.ones(len(codes)) if weights is None else weights

    def weigh(self, rows: np.ndarray) -> np.ndarray:
        """Which of these rows (n,), by number, have a weight above 0; the weights of each chunk are read once.

        Raises DamagedChunk.
        """
        found = np.ones(len(rows), bool)
        if self.weighted and len(rows):
            order = np.argsort(rows, kind="stable")
            index, place = np.divmod(rows[order], self.chunk_rows)
            for mine in np.split(np.arange(len(rows)), np.flatnonzero(np.diff(index)) + 1):
                bits = self._heavy_in(int(index[mine[0]]))
                found[order[mine]] = bits[place[mine] >> 3] >> (7 - (place[mine] & 7)) & 1
        return found

    def _heavy_in(self, index: int) -> np.ndarray:
        """Which rows of a chunk have a weight above 0: a bit a row, the first one the highest of a byte."""
        if index not in self._heavy:
            bits = np.packbits(np.asarray(self._labels(index)[1]) > 0)
            self._heavy_bytes += len(bits)
            while self._heavy and self._heavy_bytes > _REMEMBERED:
                self._heavy_bytes -= len(self._heavy.pop(next(iter(self._heavy))))
            self._heavy[index] = bits
        return self._heavy[index]

    def _span(self, index: int) -> tuple[int, int, str]:
        """The rows [start, stop) of a chunk, and a text for messages."""
        start, stop = index * self.chunk_rows, min(self.rows, (index + 1) * self.chunk_rows)
        return start, stop, f"chunk {index} (rows {start:,} to {stop - 1:,})"

    def _again(self, read: Callable[[int], T], index: int) -> T:
        """``read(index)``; what is fetched is read again unless it was damaged in the same way twice, as it lies."""
        before = ""
        for _ in range(_FETCHES):
            try:
                return read(index)
            except DamagedChunk as error:
                if not self._fetched or str(error) == before:
                    raise
                before = str(error)  # with the digest that was found
                self._files.forget()
        return read(index)

    def _labels(self, index: int) -> tuple[np.ndarray, np.ndarray | None]:
        """Label codes and weights of a chunk, compared with the stored digests."""
        return self._again(self._labels_once, index)

    def _labels_once(self, index: int) -> tuple[np.ndarray, np.ndarray | None]:
        start, stop, place = self._span(index)
        folders = self._sums.folders
        codes = self._files.read(folders["y"].get(index, "y"), start, stop, place)
        weights = None
        if index in folders["weights"] or self._files.weighted:
            weights = self._files.read(folders["weights"].get(index, "weights"), start, stop, place)
        elif self.weighted:
            weights = np.ones(stop - start)
        self._compare(index, {"y": codes} | ({} if weights is None else {"weights": weights}))
        if codes.max(initial=-1) >= len(self.classes) or codes.min(initial=-1) < -1:
            raise DamagedChunk(
                f"{self.path}: {place}: expected label codes from -1 to {len(self.classes) - 1}, found "
                f"{codes.min()} to {codes.max()}; restore the chunk from a copy"
            )
        if weights is not None and not ((weights >= 0) & (weights <= LARGEST_WEIGHT)).all():
            raise DamagedChunk(
                f"{self.path}: {place}: expected weights from 0 to {LARGEST_WEIGHT:g}, found others; ingest again"
            )
        return codes, weights

    def _compare(self, index: int, parts: dict[str, np.ndarray]) -> None:
        """Raises DamagedChunk unless the bytes of these parts of a chunk have the digests that ingest stored."""
        for name, values in parts.items():
            found, expected = crc32c.crc32c(bytes_of(values)), int(self._sums.parts[name][index])
            if found != expected:
                what = {"x": "rows", "y": "labels"}.get(name, name)
                raise DamagedChunk(
                    f"{self.path}: {self._span(index)[2]}: the {what} are not what was ingested: expected digest "
                    f"{expected:08x}, got {found:08x}; restore the chunk from a copy"
                )

    def _facts(self, rows: int, classes: int) -> dict[str, Any]:
        """What belongs to the content besides rows, labels and weights."""
        return {
            "format": "coremargin-store",
            "features": self.features,
            "dtype": self._stored_type,
            "classes": list(self.classes[:classes]),
            "rows": rows,
        }

    def _recorded_sha256(self) -> str:
        """That of the commit. Raises StoreError unless it follows from those of the chunks."""
        commit = self.commits[-1]
        if commit.sha256 is UNSET:
            return ""
        parts = {name: hashlib.sha256(found.tobytes()).hexdigest() for name, found in self._sums.hashes.items()}
        found = content_digest({**self._facts(self.rows, len(self.classes)), "chunk_rows": self.chunk_rows}, parts)
        if found != commit.sha256:
            raise StoreError(
                f"{self.path}: expected the content of SHA-256 {commit.sha256}, those of the chunks say {found}; "
                f"the metadata was altered: restore zarr.json and blocks from a copy"
            )
        return found

    @property
    def hashed(self) -> bool:
        """The SHA-256 of the content is computed from the bytes."""
        return self._hash is not None

    def sha256_in_chunks(self, chunk_rows: int) -> str:
        """SHA-256 of the content in chunks of so many rows, after a scan; "" if it is not known of such chunks."""
        if self._hash is not None and self._hash.chunk_rows == chunk_rows:
            return self._hash.digest(self._facts(self.rows, len(self.classes)))
        return self.sha256 if chunk_rows == self.chunk_rows and self._hash is None else ""

    def scan(self, ask: Callable[[Chunk], T], *, threads: int | None = None) -> Generator[tuple[Chunk, T], None, None]:
        """``ask(chunk)`` for all chunks, in order, in threads; a bounded number of chunks is in memory at a time.

        At the end ``digest`` is the identity of the content, computed from the bytes. Call it once. Raises
        DamagedChunk, with the place: missing, truncated, altered. StoreError: all chunks match their digests, but not
        the last commit.
        """
        itemsize = np.dtype(self.dtype).itemsize
        chunk_bytes = max(1, self.chunk_rows * self.features * itemsize)
        if self.sparse:
            chunk_bytes = max(1, int(self._sums.nonzeros.max()) * (itemsize + 4))
        usual = _REQUESTS if self._fetched else min(os.cpu_count() or 1, 8)
        threads = max(1, min(threads or usual, _PENDING_BYTES // chunk_bytes))
        waiting: deque[Future[tuple[Chunk, T]]] = deque()
        crcs = dict.fromkeys(self._sums.parts, 0)
        with _one_blas_thread(), ThreadPoolExecutor(threads, thread_name_prefix="coremargin-verify") as pool:
            try:
                for index in range(self.chunks + threads):
                    if index < self.chunks:
                        waiting.append(pool.submit(lambda index: self._one(index, ask), index))
                    if index >= threads:
                        chunk, answer = waiting.popleft().result()
                        crcs = self._summed(chunk, crcs)
                        self._add_hash(chunk)
                        yield chunk, answer
            finally:
                for future in waiting:
                    future.cancel()
        self.digest = self._identity(crcs, self.rows, len(self.classes))
        if self.digest != self.commits[-1].digest:
            raise StoreError(
                f"{self.path}: expected the content {self.commits[-1].digest}, found {self.digest}; "
                f"the metadata was altered: restore zarr.json from a copy"
            )

    def watch(self, digests: Container[str]) -> None:
        """Set the commits for which ``beginning`` is called after the next scan."""
        self._watched = {commit.rows: {} for commit in self.commits if commit.digest in digests}

    def beginning(self, digest: str) -> str:
        """The digest that a watched commit has to have, computed from the bytes of its rows.

        Labels and weights that were changed since are read as they were. Raises DamagedChunk.
        """
        number = next(number for number, commit in enumerate(self.commits) if commit.digest == digest)
        commit = self.commits[number]
        crcs = self._watched[commit.rows]
        if any(later.changed for later in self.commits[number + 1 :]):
            then = Rows(self._store, digest)
            crcs = {name: crc for name, crc in crcs.items() if name not in ("y", "weights")} | {"y": 0}
            crcs |= {"weights": 0} if then.weighted else {}
            for codes, weights in then.labels():
                crcs["y"] = crc32c.crc32c(bytes_of(codes), crcs["y"])
                if then.weighted:
                    crcs["weights"] = crc32c.crc32c(bytes_of(weights), crcs["weights"])
        return self._identity(crcs, commit.rows, commit.classes)

    def sha256_of_beginning(self, digest: str, chunk_rows: int) -> str:
        """SHA-256 of a watched commit in chunks of so many rows, after a scan; "" if it is not known of such chunks.

        As the store has recorded it, unless that of the whole content is computed. Raises DamagedChunk.
        """
        number = next(number for number, commit in enumerate(self.commits) if commit.digest == digest)
        commit = self.commits[number]
        if self._hash is None:
            return commit.sha256 or "" if chunk_rows == self.chunk_rows else ""
        if self._hash.chunk_rows != chunk_rows:
            return ""
        found = self._begun[commit.rows]
        if any(later.changed for later in self.commits[number + 1 :]):
            then = Rows(self._store, digest)
            labels = ContentHash(commit.rows, chunk_rows, grouped=False)
            for codes, weights in then.labels():
                parts, start = {"y": codes} | ({"weights": weights} if then.weighted else {}), 0
                while start < len(codes):
                    stop = min(len(codes), start + labels.run_left())
                    labels.add_rows({name: values[start:stop] for name, values in parts.items()}, stop - start)
                    start = stop
            found = found.with_labels(labels)
        return found.digest(self._facts(commit.rows, commit.classes))

    def _summed(self, chunk: Chunk, crcs: dict[str, int]) -> dict[str, int]:
        """Checksums of all rows up to the end of a chunk, from those of the rows before it."""
        start, stop = chunk.start, chunk.start + len(chunk.codes)
        for end in sorted({stop} | {rows for rows in self._watched if start < rows < stop}):
            piece = _within(chunk, start, end) if end - start < len(chunk.codes) else chunk
            crcs = {name: crc32c.crc32c(bytes_of(values), crcs[name]) for name, values in _parts(piece).items()}
            if end in self._watched:
                self._watched[end] = crcs
            start = end
        return crcs

    def _add_hash(self, chunk: Chunk) -> None:
        """Add a chunk to the SHA-256 of the content: its own, or rows up to the end of each run that the claim has."""
        if self._hash is None:
            return
        stop = chunk.start + len(chunk.codes)
        for end in self._watched:
            if chunk.start < end <= stop:
                self._begun[end] = self._hash.beginning(end)
                _add_runs(self._begun[end], chunk, end)
        if chunk.hashes is not None:
            self._hash.add_run(chunk.hashes, len(chunk.codes))
        else:
            _add_runs(self._hash, chunk, stop)

    def _one(self, index: int, ask: Callable[[Chunk], T]) -> tuple[Chunk, T]:
        with quiet():  # numbers that overflow prove nothing: comparisons with them are false
            chunk = self._again(self._read, index)
            return chunk, ask(replace(chunk, x=self._numbers(chunk)))

    def _numbers(self, chunk: Chunk) -> np.ndarray | csr_array:
        """The rows of a chunk in ``dtype``, exactly. Raises DamagedChunk for those that are not finite."""
        x = chunk.x
        if self._stored_type == self.dtype:
            return x
        wide = bfloat16_numbers(x) if self._stored_type == "bfloat16" else x.astype(np.float32)
        finite = np.isfinite(wide).all(axis=1)
        if not finite.all():
            raise DamagedChunk(
                f"{self.path}: row {chunk.start + int(np.argmin(finite))} is not finite; ingest it again"
            )
        return wide

    def _read(self, index: int) -> Chunk:
        start, stop, place = self._span(index)
        x: np.ndarray | csr_array
        if self.sparse:
            first, last = int(self._starts[index]), int(self._starts[index + 1])
            x = self._files.read_sparse(start, stop, first, last, place)
        else:
            x = self._files.read("X", start, stop, place)
        self._compare(index, _values(x))
        chunk = self._with_groups(Chunk(start, x, *self._labels(index)), index, place)
        if self._hash is None or self._hash.chunk_rows != self.chunk_rows:
            return chunk
        hashes = hashes_of(_parts(chunk))
        recorded = {name: found[index].tobytes() for name, found in self._sums.hashes.items()}
        other = [name for name, expected in recorded.items() if hashes.get(name, bytes(32)) != expected]
        if other:
            names = " and ".join({"x": "rows", "y": "labels"}.get(name, name) for name in other)
            raise DamagedChunk(
                f"{self.path}: {place}: the SHA-256 of its {names} is not the recorded one, but the CRC-32C is: "
                f"the chunk was replaced; restore it from a copy"
            )
        return replace(chunk, hashes=hashes)

    def _with_groups(self, chunk: Chunk, index: int, place: str) -> Chunk:
        """The same with the groups that begin in it, if rows are in groups."""
        if not self.grouped:
            return chunk
        first, last = self._first_groups[index : index + 2]
        starts, ids = self._files.read_groups(first, last, place)
        chunk = replace(chunk, groups=starts, group_ids=ids)
        self._compare(index, _groups(chunk))
        edges = np.array([chunk.start - 1, *starts, chunk.start + len(chunk.codes)])
        if not (np.diff(edges) > 0).all() or (index == 0 and (not len(starts) or starts[0] != 0)):
            raise DamagedChunk(
                f"{self.path}: {place}: expected rows at which groups begin, ascending, found others; ingest again"
            )
        return chunk

    def _identity(self, crcs: dict[str, int], rows: int, classes: int) -> str:
        facts = {**self._facts(rows, classes), **crcs}
        return "sha256:" + hashlib.sha256(json.dumps(facts, sort_keys=True).encode()).hexdigest()


def _add_runs(content: ContentHash, chunk: Chunk, stop: int) -> None:
    """Add the rows of a chunk up to ``stop``, up to the end of each run at a time."""
    start = chunk.start
    while start < stop:
        end = min(stop, start + content.run_left())
        content.add_rows(_parts(_within(chunk, start, end)), end - start)
        start = end


def _within(chunk: Chunk, start: int, stop: int) -> Chunk:
    """The part [start, stop) of a chunk."""
    a, b = start - chunk.start, stop - chunk.start
    weights = None if chunk.weights is None else chunk.weights[a:b]
    part = Chunk(start, chunk.x[a:b], chunk.codes[a:b], weights)
    if chunk.groups is None:
        return part
    first, last = np.searchsorted(chunk.groups, (start, stop)).tolist()
    return replace(part, groups=chunk.groups[first:last], group_ids=chunk.group_ids[first:last])


def _parts(chunk: Chunk) -> dict[str, np.ndarray]:
    """The checked parts of a chunk, by name."""
    weights = {} if chunk.weights is None else {"weights": chunk.weights}
    return _values(chunk.x) | {"y": chunk.codes} | weights | _groups(chunk)


def _groups(chunk: Chunk) -> dict[str, np.ndarray]:
    """The checked arrays of its groups."""
    if chunk.groups is None:
        return {}
    return {"groups": chunk.groups, "group_ids": np.frombuffer(b"".join(chunk.group_ids), np.uint8)}


def _values(x: np.ndarray | csr_array) -> dict[str, np.ndarray]:
    """The checked arrays of its rows."""
    if isinstance(x, np.ndarray):
        return {"x": x}
    return {"x": x.data, "indices": x.indices.astype(np.int32), "lengths": np.diff(x.indptr).astype(np.int64)}


@contextmanager
def _one_blas_thread() -> Iterator[None]:
    from threadpoolctl import threadpool_limits

    with threadpool_limits(1, user_api="blas"):
        yield
