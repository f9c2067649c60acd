"""Chunks from disk: kept-open memory maps, a reused buffer, or a Zarr library, all giving the same rows.

Uncompressed chunks are mapped and stay mapped up to a budget per process: a mapped chunk scans at the speed of
memory, but mapped pages count as resident. What was mapped first stays, since a cyclic scan evicts everything from an
LRU. Chunks beyond the budget, and compressed ones, go through one buffer per thread. Whatever the way, the checksum of
the rows is held against the store's manifest once per file and state (inode, size, time), and trusted after that.
"""

from __future__ import annotations

import mmap
import os
import threading
import weakref
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, NoReturn

import numpy as np

from coremargin.data.checksum import crc32c
from coremargin.errors import DamagedChunk, StoreError

if TYPE_CHECKING:
    from pathlib import Path

    from coremargin.data.codecs import Encoding
    from coremargin.data.layout import ArrayLayout

MAP_BYTES = 512 << 20  #: default budget of kept-open maps per process
_MOST_MAPS = 256  # each map keeps a file descriptor open


class _Budget:
    """Bytes and number of maps kept open by all readers of this process."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self.used_bytes = 0
        self.maps = 0

    def take(self, size: int, limit: int) -> bool:
        with self._lock:
            if self.used_bytes + size > limit or self.maps >= _MOST_MAPS:
                return False
            self.used_bytes += size
            self.maps += 1
            return True

    def give_back(self, size: int) -> None:
        with self._lock:
            self.used_bytes -= size
            self.maps -= 1


budget = _Budget()


@dataclass(frozen=True)
class FileState:
    """A file as it was when its bytes were checked."""

    inode: int
    size: int
    mtime_ns: int

    @classmethod
    def of(cls, status: os.stat_result) -> FileState:
        """From what the system says of it."""
        return cls(status.st_ino, status.st_size, status.st_mtime_ns)


class ArrayReader:
    """Reads the chunks of one array of a local store and checks them against the manifest. Safe in many threads."""

    def __init__(self, layout: ArrayLayout, rows: np.ndarray, crcs: np.ndarray, map_bytes: int) -> None:
        """rows (c,): rows of each chunk; crcs (c,): crc32c of their bytes; map_bytes: the process's budget."""
        self.layout, self._rows, self._crcs, self._map_bytes = layout, rows, crcs, map_bytes
        self._trusted: dict[int, FileState] = {}
        self._maps: dict[int, tuple[FileState, np.ndarray]] = {}
        self._lock = threading.Lock()
        self._buffers = threading.local()
        self._general: Any = None
        weakref.finalize(self, release, self._maps)

    def read(self, chunk: int) -> np.ndarray:
        """Rows (n, *tail) of a chunk, read-only; valid until this thread reads again. Raises DamagedChunk."""
        encoding = self.layout.encoding
        if encoding is None:
            values = self._read_general(chunk)
        elif encoding.raw:
            values = self._read_raw(chunk)
        else:
            values = self._read_encoded(chunk, encoding)
        values.flags.writeable = False
        return values

    def take(self, chunk: int, offsets: np.ndarray) -> np.ndarray:
        """A copy of the rows at offsets (m,) within a chunk."""
        few = len(offsets) * 8 < self._rows[chunk]
        if few and self.layout.file_bytes is not None and chunk not in self._maps and chunk in self._trusted:
            picked = self._pick(chunk, offsets)
            if picked is not None:
                return picked
        return np.array(self.read(chunk)[offsets])

    def reread(self, chunk: int) -> np.ndarray:
        """Read every byte of a chunk's file, and check file and rows whatever was trusted before."""
        self._trusted.pop(chunk, None)
        encoding = self.layout.encoding
        return self._read_general(chunk) if encoding is None else self._read_encoded(chunk, encoding)

    def _read_raw(self, chunk: int) -> np.ndarray:
        path = self.layout.file(chunk)
        try:
            status = os.stat(path)
        except OSError as error:
            self._unreadable(chunk, error)
        self._check_size(chunk, status.st_size)
        state = FileState.of(status)
        kept = self._maps.get(chunk)
        if kept is not None:
            if kept[0] == state:
                return self._shaped(kept[1], chunk)
            self._forget(chunk)  # replaced or changed under us: look again
        if budget.take(self.layout.chunk_bytes, self._map_bytes):
            return self._map(chunk, path)
        return self._fill(chunk, path)

    def _map(self, chunk: int, path: Path) -> np.ndarray:
        size = self.layout.chunk_bytes
        try:
            with open(path, "rb") as file:
                status = os.fstat(file.fileno())
                self._check_size(chunk, status.st_size)
                mapped = mmap.mmap(file.fileno(), size, access=mmap.ACCESS_READ)
            data = np.frombuffer(mapped, dtype=np.uint8)
            values = self._shaped(data, chunk)
            self._check(chunk, values, FileState.of(status))
        except OSError as error:
            budget.give_back(size)
            self._unreadable(chunk, error)
        except BaseException:
            budget.give_back(size)
            raise
        with self._lock:
            if chunk in self._maps:  # another thread was faster; this map lives as long as its array
                budget.give_back(size)
            else:
                self._maps[chunk] = (FileState.of(status), data)
        return values

    def _fill(self, chunk: int, path: Path) -> np.ndarray:
        used = int(self._rows[chunk]) * self.layout.row_bytes
        buffer = self._buffer("chunk", self.layout.chunk_bytes)
        try:
            with open(path, "rb", buffering=0) as file:
                status = os.fstat(file.fileno())
                self._check_size(chunk, status.st_size)
                read_into(file, buffer[:used])
        except OSError as error:
            self._unreadable(chunk, error)
        values = self._shaped(buffer, chunk)
        self._check(chunk, values, FileState.of(status))
        return values

    def _read_encoded(self, chunk: int, encoding: Encoding) -> np.ndarray:
        path = self.layout.file(chunk)
        try:
            with open(path, "rb", buffering=0) as file:
                status = os.fstat(file.fileno())
                limit = self.layout.chunk_bytes + self.layout.chunk_bytes // 8 + 65536
                if status.st_size > limit:
                    self._damaged(chunk, f"expected at most {limit:,} bytes, got {status.st_size:,}")
                packed = self._buffer("file", limit)[: status.st_size]
                read_into(file, packed)
        except OSError as error:
            self._unreadable(chunk, error)
        buffer = self._buffer("chunk", self.layout.chunk_bytes)
        try:
            encoding.decode(packed.data, buffer)
        except ValueError as error:
            self._damaged(chunk, str(error))
        values = self._shaped(buffer, chunk)
        self._check(chunk, values, FileState.of(status))
        return values

    def _read_general(self, chunk: int) -> np.ndarray:
        try:
            status = os.stat(self.layout.file(chunk))  # to Zarr, a missing chunk is a chunk of fill values
        except OSError as error:
            self._unreadable(chunk, error)
        start = chunk * self.layout.chunk_rows
        try:
            if self._general is None:
                self._general = open_with_zarr(self.layout)
            values = np.ascontiguousarray(
                self._general[start : start + int(self._rows[chunk])], dtype=self.layout.dtype
            )
        except (OSError, RuntimeError, ValueError, TypeError, LookupError) as error:  # what codecs raise on bad bytes
            self._damaged(chunk, f"cannot be decoded: {error}")
        if len(values) != self._rows[chunk]:
            raise StoreError(f"{self.layout.store}: {self.layout.name} has fewer rows than the store commits to")
        self._check(chunk, values, FileState.of(status))
        return values

    def _pick(self, chunk: int, offsets: np.ndarray) -> np.ndarray | None:
        """Rows at offsets by reading only them, or None when the file is not the one that was checked."""
        width = self.layout.row_bytes
        picked = np.empty((len(offsets), *self.layout.tail), dtype=self.layout.dtype)
        raw = picked.reshape(-1).view(np.uint8).reshape(len(offsets), width)
        try:
            with open(self.layout.file(chunk), "rb", buffering=0) as file:
                if FileState.of(os.fstat(file.fileno())) != self._trusted.get(chunk):
                    return None
                for k, offset in enumerate(offsets.tolist()):
                    if os.preadv(file.fileno(), [raw[k].data], offset * width) != width:
                        return None
        except OSError as error:
            self._unreadable(chunk, error)
        return picked

    def _shaped(self, data: np.ndarray, chunk: int) -> np.ndarray:
        rows = int(self._rows[chunk])
        return data[: rows * self.layout.row_bytes].view(self.layout.dtype).reshape(rows, *self.layout.tail)

    def _buffer(self, use: str, size: int) -> np.ndarray:
        """This thread's buffer; the pages of the last read are warm, so that refilling it costs no page faults."""
        buffer: np.ndarray | None = getattr(self._buffers, use, None)
        if buffer is None or buffer.nbytes < size:
            buffer = np.empty(size, dtype=np.uint8)
            setattr(self._buffers, use, buffer)
        return buffer[:size]

    def _check(self, chunk: int, values: np.ndarray, state: FileState) -> None:
        if self._trusted.get(chunk) == state:
            return
        got = crc32c(values.data.cast("B"))
        if got != int(self._crcs[chunk]):
            self._damaged(
                chunk, f"the bytes were altered: expected checksum {int(self._crcs[chunk]):08x}, got {got:08x}"
            )
        self._trusted[chunk] = state

    def _check_size(self, chunk: int, size: int) -> None:
        expected = self.layout.file_bytes
        if size != expected:
            what = "cut short" if size < (expected or 0) else "too long"
            self._forget(chunk)
            self._damaged(chunk, f"the file is {what}: expected {expected:,} bytes, got {size:,}")

    def _forget(self, chunk: int) -> None:
        self._trusted.pop(chunk, None)
        with self._lock:
            if self._maps.pop(chunk, None) is not None:
                budget.give_back(self.layout.chunk_bytes)

    def _unreadable(self, chunk: int, error: OSError) -> NoReturn:
        if isinstance(error, FileNotFoundError):
            self._damaged(chunk, "the file is missing", error)
        self._damaged(chunk, f"the file cannot be read: {error.strerror or error}", error)

    def _damaged(self, chunk: int, what: str, cause: BaseException | None = None) -> NoReturn:
        store, start = self.layout.store, chunk * self.layout.chunk_rows
        stop = start + int(self._rows[chunk]) - 1
        raise DamagedChunk(
            f"{store}: chunk {chunk} (rows {start} to {stop}), file {self.layout.key(chunk)}: {what}; "
            f"`coremargin check {store}` lists all damage, then restore the file from a copy or ingest again"
        ) from cause


def release(maps: dict[int, tuple[FileState, np.ndarray]]) -> None:
    """Give back the budget of maps whose reader is gone."""
    for _, data in maps.values():
        budget.give_back(data.nbytes)
    maps.clear()


def read_into(file: Any, buffer: np.ndarray) -> None:
    """Fill the buffer (uint8) from a raw file; OSError when the file ends before."""
    view, done = buffer.data, 0
    while done < len(view):
        got = file.readinto(view[done:])
        if not got:
            raise OSError(f"ended after {done:,} of {len(view):,} bytes")
        done += got


def open_with_zarr(layout: ArrayLayout) -> Any:
    """The array through zarr-python: the general reader, and the reference for the fast ones."""
    import zarr
    from zarr.storage import LocalStore

    return zarr.open_array(store=LocalStore(layout.store, read_only=True), path=layout.name, mode="r", zarr_format=3)
