"""Chunks from disk: kept-open memory maps or a reused buffer, both giving the rows that zarr-python gives.

Uncompressed chunks are mapped and stay mapped as far as the process's budget goes (maps.py). Chunks beyond it, and
compressed ones, go through buffers of each thread. Whatever the way, the checksum of the rows is held against the
store's manifest once per file and state (inode, size, time), and trusted after that.

Not zarr-python's reader: chunks of 8 MiB in the page cache were scanned at 16 GB/s a core through maps that stay open,
at 2.5 by zarr-python 3.1.6, 3.1 by zarrs and 3.3 by tensorstore, and all three read a missing chunk as fill values
without a word. ``verify`` reads the same stores by zarr-python.
"""

from __future__ import annotations

import os
from typing import TYPE_CHECKING, Any, NoReturn

import numpy as np

from coremargin.data.checksum import crc32c
from coremargin.data.maps import FileState, Maps
from coremargin.data.reused import Reused
from coremargin.errors import DamagedChunk, raise_if_limit
from coremargin.formats.plain_file import plain

if TYPE_CHECKING:
    from coremargin.data.layout import ArrayLayout, FilePart


class ArrayReader:
    """Reads the chunks of one array of a local store and checks them against the manifest. Safe in many threads."""

    def __init__(self, layout: ArrayLayout, rows: np.ndarray, crcs: np.ndarray, map_bytes: int) -> None:
        """rows (c,): rows of each chunk; crcs (c,): crc32c of their bytes; map_bytes: the process's budget."""
        self.layout, self._rows, self._crcs = layout, rows, crcs
        self._trusted: dict[int, FileState] = {}
        self._maps = Maps(layout.chunk_bytes, map_bytes)
        self._buffers = Reused()

    def read(self, chunk: int) -> np.ndarray:
        """Rows (n, *tail) of a chunk, read-only. Raises DamagedChunk."""
        values = self._read_raw(chunk) if self.layout.encoding.raw else self._read_encoded(chunk)
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

    def has(self, chunk: int) -> bool:
        """Whether the array has this chunk: weights that were never given are 1, and lie nowhere."""
        return self.layout.has(chunk)

    def in_memory(self, chunk: int) -> bool:
        """Whether a chunk that was read is still mapped."""
        return chunk in self._maps

    def files(self, chunk: int) -> list[FilePart]:
        """What ``read`` reads."""
        return [self.layout.whole(chunk)]

    def reread(self, chunk: int) -> np.ndarray:
        """Read every byte of a chunk's file, and check file and rows whatever was trusted before."""
        self._trusted.pop(chunk, None)
        return self._read_encoded(chunk)

    def _read_raw(self, chunk: int) -> np.ndarray:
        path = self.layout.file(chunk)
        try:
            state = FileState.of(os.stat(path))
            self._check_size(chunk, state.size)
            data = self._maps.get(chunk, state)
            if data is not None:
                return self._shaped(data, chunk)
            with open(path, "rb", buffering=0, opener=plain) as file:
                state = FileState.of(os.fstat(file.fileno()))
                self._check_size(chunk, state.size)
                data = self._maps.new(file.fileno())
                if data is None:
                    return self._filled(chunk, file, state)
            values = self._shaped(data, chunk)
            self._check(chunk, values, state)
        except OSError as error:
            self._unreadable(chunk, error)
        return self._shaped(self._maps.keep(chunk, state, data), chunk)

    def _filled(self, chunk: int, file: Any, state: FileState) -> np.ndarray:
        buffer = self._buffers.take("chunk", self.layout.chunk_bytes)
        read_into(file, buffer[: int(self._rows[chunk]) * self.layout.row_bytes])
        values = self._shaped(buffer, chunk)
        self._check(chunk, values, state)
        return values

    def _read_encoded(self, chunk: int) -> np.ndarray:
        path = self.layout.file(chunk)
        try:
            with open(path, "rb", buffering=0, opener=plain) as file:
                status = os.fstat(file.fileno())
                limit = self.layout.chunk_bytes + self.layout.chunk_bytes // 8 + 65536
                if status.st_size > limit:
                    self._damaged(chunk, f"expected at most {limit:,} bytes, got {status.st_size:,}")
                packed = self._buffers.take("file", limit)[: status.st_size]
                read_into(file, packed)
        except OSError as error:
            self._unreadable(chunk, error)
        buffer = self._buffers.take("chunk", self.layout.chunk_bytes)
        try:
            self.layout.encoding.decode(packed.data, buffer)
        except ValueError as error:
            self._damaged(chunk, str(error))
        values = self._shaped(buffer, chunk)
        self._check(chunk, values, FileState.of(status))
        return values

    def _pick(self, chunk: int, offsets: np.ndarray) -> np.ndarray | None:
        """Rows at offsets by reading only them, or None when the file is not the one that was checked."""
        width = self.layout.row_bytes
        picked = np.empty((len(offsets), *self.layout.tail), dtype=self.layout.dtype)
        raw = picked.reshape(-1).view(np.uint8).reshape(len(offsets), width)
        try:
            with open(self.layout.file(chunk), "rb", buffering=0, opener=plain) as file:
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
            self._damaged(chunk, f"the file is {what}: expected {expected:,} bytes, got {size:,}")

    def _unreadable(self, chunk: int, error: OSError) -> NoReturn:
        raise_if_limit(error, self.layout.file(chunk))
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


def read_into(file: Any, buffer: np.ndarray) -> None:
    """Fill the buffer (uint8) from a raw file; OSError when the file ends before."""
    view, done = buffer.data, 0
    while done < len(view):
        got = file.readinto(view[done:])
        if not got:
            raise OSError(f"ended after {done:,} of {len(view):,} bytes")
        done += got
