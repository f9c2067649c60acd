"""Writing a store: rows in batches of any size become whole chunks; a commit makes them visible, all at once.

A new store is built in a folder beside its place and moved there by its first commit; later commits replace the root
``zarr.json``. A writer that dies at any moment leaves what was committed, and nothing else that a reader could see.
"""

from __future__ import annotations

import os
import shutil
import threading
from collections.abc import Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import replace
from pathlib import Path
from types import TracebackType
from typing import Any, Self

import numpy as np
from filelock import FileLock, Timeout

from coremargin.data.codecs import COMPRESSIONS, Encoding, chosen
from coremargin.data.files import output_errors, sweep, sync_folder, write_json, write_whole
from coremargin.data.format import (
    CHUNK_BYTES,
    DTYPES,
    LARGEST_CHUNK_BYTES,
    MOST_FEATURES,
    SMALLEST_CHUNK_BYTES,
    UNLABELLED,
    Commit,
    Facts,
    chunks_of,
    default_chunk_rows,
    read_facts,
    store_digest,
)
from coremargin.data.labels import LabelCoder
from coremargin.data.layout import ArrayLayout, layouts, read_layouts
from coremargin.data.manifest import Manifest, write_group
from coremargin.data.rows import as_rows
from coremargin.data.statistics import ChunkStatistics, concatenate, measure
from coremargin.data.store import Store
from coremargin.errors import Busy, LabelError, OutputError, StoreError, UsageError

_LOCK = ".lock"
_THREADS = 2  # chunks encoded, measured and fsynced while the caller parses the next rows
_PENDING = 3  # whole chunks that may wait for that
_MERGE_CHUNKS = 4096  # statistics of small commits are merged into the next one up to this many chunks


class StoreWriter:
    """Context manager; leaving it commits what was written, leaving it by an exception does not."""

    def __init__(
        self, path: Path, folder: Path, facts: Facts, compression: str, lock: FileLock, chunk_bytes: int
    ) -> None:
        """Use ``create`` or ``append``."""
        self.path, self._folder, self._facts, self._lock = path, folder, facts, lock
        self._compression, self._chunk_bytes = compression, chunk_bytes
        self._coder = LabelCoder(facts.classes)
        self._layouts: tuple[ArrayLayout, ArrayLayout] | None = None
        self._dtype = np.dtype(facts.dtype)
        self._X = np.empty((facts.chunk_rows, facts.features), dtype=self._dtype)
        self._y = np.full(facts.chunk_rows, UNLABELLED, dtype=np.int32)
        self._fill = 0  # rows in the buffer, the last ones written
        self._next = 0  # index of the chunk that the buffer holds
        self._origin, self._origin_rows = "", 0
        self._entries: dict[int, ChunkStatistics] = {}
        self._entries_lock = threading.Lock()
        self._pool = ThreadPoolExecutor(_THREADS, thread_name_prefix="coremargin-write")
        self._pending: list[Future[None]] = []
        self._rewrite_at = 0  # first chunk that the next commit describes
        self.bytes_written = 0  #: bytes of chunk files so far

    @classmethod
    def create(
        cls,
        path: str | os.PathLike[str],
        *,
        features: int,
        dtype: str = "float32",
        chunk_bytes: int = CHUNK_BYTES,
        compression: str = "none",
        overwrite: bool = False,
        classes: Sequence[Any] = (),
        about: dict[str, Any] | None = None,
    ) -> StoreWriter:
        """A writer of a new store; with ``overwrite`` an old one stays in place until the first commit.

        classes: labels that get the first codes; about: facts to keep in the attributes (JSON).
        Raises UsageError (a store is there, absurd numbers), OutputError (cannot write), Busy (another writer).
        """
        place = Path(os.path.abspath(path))
        name = np.dtype(dtype).name
        _check_options(place, features, name, chunk_bytes, compression, overwrite)
        folder = place.with_name(f".{place.name}.building")
        with output_errors(place):
            folder.mkdir(parents=True, exist_ok=True)
        lock = _locked(folder, place)
        try:
            with output_errors(place):
                for entry in os.scandir(folder):  # what a killed writer left
                    if entry.is_dir(follow_symlinks=False):
                        shutil.rmtree(entry.path)
                    elif entry.name != _LOCK:
                        os.unlink(entry.path)
            rows = default_chunk_rows(features, name, chunk_bytes)
            facts = Facts(features, name, rows, tuple(classes), about=dict(about or {}))
            return cls(place, folder, facts, compression, lock, chunk_bytes)
        except BaseException:
            lock.release()
            raise

    @classmethod
    def append(cls, path: str | os.PathLike[str]) -> StoreWriter:
        """A writer that goes on after the last committed row. Raises StoreError, OutputError, Busy, DamagedChunk."""
        place = Path(os.path.abspath(path))
        read_facts(place)
        lock = _locked(place, place)
        try:
            facts = read_facts(place)  # again: another writer may have committed before the lock was ours
            found = read_layouts(place, facts)
            encodings = [layout.encoding for layout in found]
            if None in encodings or {layout.separator for layout in found} != {"."}:
                raise StoreError(f"{place}: expected codecs that this writer makes; ingest into a new store instead")
            writer = cls(place, place, facts, found[0].encoding.compression, lock, 0)  # type: ignore[union-attr]
            writer._layouts = found
            writer._resume()
            return writer
        except BaseException:
            lock.release()
            raise

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        try:
            if kind is None:
                self.commit()
        finally:
            self.close()

    def close(self) -> None:
        """Stop writing; what was not committed is dropped."""
        self._pool.shutdown(wait=True, cancel_futures=True)
        if self._folder != self.path:
            shutil.rmtree(self._folder, ignore_errors=True)
        self._lock.release()

    @property
    def classes(self) -> tuple[Any, ...]:
        """Labels seen so far; the code of each is its index."""
        return tuple(self._coder.classes)

    @property
    def rows(self) -> int:
        """Rows written so far, committed or not."""
        return self._next * self._facts.chunk_rows + self._fill

    @property
    def committed(self) -> int:
        """Rows that readers see."""
        return self._facts.rows

    @property
    def chunk_rows(self) -> int:
        """Rows per chunk; a new store smaller than one chunk takes fewer at its first commit."""
        return self._facts.chunk_rows

    def write(self, X: Any, labels: Any = None, *, origin: str = "") -> None:
        """Take rows X (m, d) and their labels (m,), or None: all unlabelled. Nothing is taken when this raises.

        origin names the place for messages, such as a file; rows are counted from where it last changed.
        Raises BadRow, LabelError, OutputError.
        """
        if origin != self._origin:
            self._origin, self._origin_rows = origin, 0
        place, first = origin or "rows", self._origin_rows
        rows = as_rows(X, dtype=self._dtype, place=place, features=self._facts.features, first=first)
        codes = self._coder.encode(labels, len(rows), place, first)
        self._origin_rows += len(rows)
        done = 0
        while done < len(rows):
            step = min(len(rows) - done, self._facts.chunk_rows - self._fill)
            self._X[self._fill : self._fill + step] = rows[done : done + step]
            self._y[self._fill : self._fill + step] = codes[done : done + step]
            self._fill, done = self._fill + step, done + step
            if self._fill == self._facts.chunk_rows:
                self._hand_over()

    def write_chunk(self, index: int, X: np.ndarray, codes: np.ndarray) -> None:
        """Write one chunk by itself, from any thread: for generators that know all chunks beforehand.

        All chunks but the last are whole; rows must be finite and of the store's dtype. ``commit`` comes after all of them.
        """
        self._put(index, X, codes)
        with self._entries_lock:
            self._next = max(self._next, index + (1 if len(X) == self._facts.chunk_rows else 0))
            if len(X) < self._facts.chunk_rows:
                self._next, self._fill = index, len(X)
                self._X[: len(X)], self._y[: len(X)] = X, codes

    def commit(self) -> int:
        """Make everything written so far visible, atomically. Returns the committed rows."""
        rows = self.rows
        if rows == 0:
            raise StoreError(f"{self.path}: expected at least one row, got none; nothing was written")
        if rows == self._facts.rows:
            return rows
        if self._layouts is None:
            self._settle(rows)
        if self._fill:
            self._put(self._next, self._X[: self._fill], self._y[: self._fill])
        self._drain()
        if self._fill == self._facts.chunk_rows:  # a new store that became exactly one chunk
            self._next, self._fill = self._next + 1, 0
        facts = self._described(rows)
        for layout in self._arrays():
            write_json(self._folder / layout.name / "zarr.json", layout.metadata(rows))
            sync_folder(self._folder / layout.name)
        write_json(self._folder / "zarr.json", facts.root())
        sync_folder(self._folder)
        if self._folder != self.path:
            self._move_into_place()
        self._facts = facts
        return rows

    def _described(self, rows: int) -> Facts:
        """The facts after this commit, its statistics written."""
        facts = replace(self._facts, classes=self.classes)
        first, last = self._rewrite_at, chunks_of(rows, facts.chunk_rows)
        missing = [index for index in range(first, last) if index not in self._entries]
        if missing:
            raise UsageError(f"{self.path}: expected chunks {first} to {last - 1}, chunk {missing[0]} was not written")
        parts = [self._entries[index] for index in range(first, last)]
        start = first
        for earlier in reversed(facts.commits):
            if earlier.first < start:
                if last - earlier.first > min(_MERGE_CHUNKS, 3 * (last - start)):
                    break
                parts.insert(0, Manifest(self._folder, self._facts, facts.commits).part(earlier.first, start))
                start = earlier.first
        statistics = concatenate(parts, len(facts.classes))
        digest = self._digest(facts, start, statistics)
        commit = Commit(rows, len(facts.classes), start, last, f"{len(facts.commits):06d}", digest)
        write_group(self._folder, commit.group, statistics)
        self._rewrite_at = last - 1 if rows % facts.chunk_rows else last
        self._entries = {index: entry for index, entry in self._entries.items() if index >= self._rewrite_at}
        return replace(facts, commits=(*facts.commits, commit))

    def _digest(self, facts: Facts, start: int, statistics: ChunkStatistics) -> str:
        rows, digests = statistics.rows, statistics.digest
        if start:
            before = Manifest(self._folder, facts, facts.commits).scalars()
            rows, digests = (np.concatenate([a[:start], b]) for a, b in ((before.rows, rows), (before.digest, digests)))
        return store_digest(
            features=facts.features,
            dtype=facts.dtype,
            classes=facts.classes,
            rows=rows.tolist(),
            digests=digests.tolist(),
        )

    def _settle(self, rows: int) -> None:
        """Decide, with the first rows at hand, how chunks are stored."""
        facts = self._facts
        if rows < facts.chunk_rows:  # smaller than one chunk: Zarr stores a chunk at full size, so make it smaller
            least = default_chunk_rows(facts.features, facts.dtype, min(self._chunk_bytes, SMALLEST_CHUNK_BYTES))
            self._facts = facts = replace(facts, chunk_rows=max(rows, least))
        sample = self._X[: min(rows, facts.chunk_rows)]
        self._layouts = layouts(self._folder, facts, Encoding(chosen(self._compression, sample)))
        self._X, self._y = self._X[: facts.chunk_rows], self._y[: facts.chunk_rows]
        for layout in self._layouts:
            with output_errors(self.path):
                (self._folder / layout.name).mkdir()

    def _hand_over(self) -> None:
        """Give the full buffer to the writing threads and start a new one."""
        if self._layouts is None:
            self._settle(self._facts.chunk_rows)
        while len(self._pending) >= _PENDING:
            self._pending.pop(0).result()
        self._pending.append(self._pool.submit(self._put, self._next, self._X, self._y))
        self._X = np.empty_like(self._X)
        self._y = np.full_like(self._y, UNLABELLED)
        self._fill, self._next = 0, self._next + 1

    def _put(self, index: int, X: np.ndarray, codes: np.ndarray) -> None:
        """Measure and write one chunk."""
        entry = measure(X, codes, len(self._coder.classes))
        size = 0
        for layout, values, fill in zip(self._arrays(), (X, codes), (np.nan, UNLABELLED), strict=True):
            assert layout.encoding is not None
            whole = np.ascontiguousarray(values)
            if len(values) < self._facts.chunk_rows:
                whole = np.full((self._facts.chunk_rows, *layout.tail), fill, dtype=layout.dtype)
                whole[: len(values)] = values
            size += write_whole(self._folder / layout.key(index), layout.encoding.encode(whole))
        with self._entries_lock:
            self._entries[index] = entry
            self.bytes_written += size

    def _arrays(self) -> tuple[ArrayLayout, ArrayLayout]:
        if self._layouts is None:
            with self._entries_lock:
                if self._layouts is None:
                    self._settle(self._facts.chunk_rows)
        assert self._layouts is not None
        return self._layouts

    def _drain(self) -> None:
        pending, self._pending = self._pending, []
        for future in pending:
            future.result()

    def _resume(self) -> None:
        """Take the rows of the last, partial chunk into the buffer, and sweep what a killed writer left."""
        facts = self._facts
        self._next, self._fill = divmod(facts.rows, facts.chunk_rows)
        self._rewrite_at = self._next
        for folder in (self._folder, *(self._folder / name for name in ("X", "y", "blocks"))):
            sweep(folder)
        if self._fill:
            X, codes = Store.open(self.path, map_bytes=0).read(self._next)
            self._X[: self._fill], self._y[: self._fill] = X, codes

    def _move_into_place(self) -> None:
        with output_errors(self.path):
            retired = self.path.with_name(f".{self.path.name}.replaced")
            if self.path.exists():
                with _locked(self.path, self.path):  # not while somebody appends to the old one
                    shutil.rmtree(retired, ignore_errors=True)
                    os.rename(self.path, retired)
            os.rename(self._folder, self.path)
            sync_folder(self.path.parent)
            shutil.rmtree(retired, ignore_errors=True)
        self._folder = self.path
        if self._layouts is not None:
            X, y = self._layouts
            self._layouts = replace(X, store=self.path), replace(y, store=self.path)


def _check_options(path: Path, features: int, dtype: str, chunk_bytes: int, compression: str, overwrite: bool) -> None:
    if dtype not in DTYPES:
        raise UsageError(f"dtype: expected {' or '.join(DTYPES)}, got {dtype!r}")
    if compression not in COMPRESSIONS:
        raise UsageError(f"compression: expected one of {', '.join(COMPRESSIONS)}, got {compression!r}")
    if features == 0:
        raise StoreError(f"{path}: expected at least one feature, got none")
    if not 1 <= features <= MOST_FEATURES:
        raise UsageError(f"features: expected 1 to {MOST_FEATURES:,}, got {features}")
    if not 1 <= chunk_bytes <= LARGEST_CHUNK_BYTES:
        raise UsageError(f"chunk_bytes: expected 1 to {LARGEST_CHUNK_BYTES:,}, got {chunk_bytes}")
    if not path.exists():
        return
    if not overwrite:
        raise UsageError(f"{path}: something is there already; append to it, or allow it to be overwritten")
    read_facts_or_refuse(path)


def read_facts_or_refuse(path: Path) -> None:
    """Overwriting replaces stores only, never a folder of something else."""
    try:
        read_facts(path)
    except StoreError as error:
        raise UsageError(
            f"{path}: only a store may be overwritten, and this is none ({error}); remove it yourself"
        ) from error


def _locked(folder: Path, store: Path) -> FileLock:
    lock = FileLock(folder / _LOCK, timeout=0, thread_local=False)
    try:
        lock.acquire()
    except Timeout:
        raise Busy(f"{store}: another writer is at work there; wait for it to end") from None
    except OSError as error:
        raise OutputError(f"{store}: cannot be locked for writing: {error.strerror or error}") from error
    return lock
