"""Chunks of dense rows, labels and weights, each held against the checksum in the store's manifest.

The checksum is computed once for each chunk and tag of its object, which is trusted after that.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, NoReturn

import numpy as np

from coremargin.data.checksum import crc32c
from coremargin.data.reused import Reused
from coremargin.data.storage import WrongSize
from coremargin.errors import DamagedChunk, raise_if_limit

if TYPE_CHECKING:
    from coremargin.data.layout import ArrayLayout, ObjectPart
    from coremargin.data.storage import Tag


class ArrayReader:
    """Reads the chunks of one array of a store and checks them against the manifest. Safe in many threads."""

    def __init__(self, layout: ArrayLayout, rows: np.ndarray, crcs: np.ndarray, map_bytes: int) -> None:
        """rows (c,): rows of each chunk; crcs (c,): crc32c of their bytes; map_bytes: the process's budget."""
        self.layout, self._rows, self._crcs = layout, rows, crcs
        self._trusted: dict[int, Tag] = {}
        self._chunks = layout.storage.chunks(layout.file_bytes, layout.chunk_bytes, map_bytes)
        self._buffers = Reused()

    def read(self, chunk: int) -> np.ndarray:
        """Rows (n, *tail) of a chunk, read-only. Raises DamagedChunk."""
        if not self.layout.encoding.raw:
            return self._decoded(chunk)
        try:
            data, tag = self._chunks.read(self.layout.key(chunk), 0, int(self._rows[chunk]) * self.layout.row_bytes)
        except (OSError, WrongSize) as error:
            self._unreadable(chunk, error)
        return self._checked(chunk, data, tag)

    def take(self, chunk: int, offsets: np.ndarray) -> np.ndarray:
        """A copy of the rows at offsets (m,) within a chunk."""
        key, tag = self.layout.key(chunk), self._trusted.get(chunk)
        few = len(offsets) * 8 < self._rows[chunk]
        if few and self.layout.encoding.raw and tag is not None and not self._chunks.in_memory(key):
            width = self.layout.row_bytes
            picked = np.empty((len(offsets), *self.layout.tail), dtype=self.layout.dtype)
            raw = picked.reshape(-1).view(np.uint8).reshape(len(offsets), width)
            try:
                if self._chunks.read_pieces(key, (offsets * width).tolist(), raw, tag):
                    return picked
            except OSError as error:
                self._unreadable(chunk, error)
        return np.array(self.read(chunk)[offsets])

    def has(self, chunk: int) -> bool:
        """Whether the array has this chunk: weights that were never given are 1, and lie nowhere."""
        return self.layout.has(chunk)

    def in_memory(self, chunk: int) -> bool:
        """Whether a chunk that was read stays in memory."""
        return self._chunks.in_memory(self.layout.key(chunk))

    def objects(self, chunk: int) -> list[ObjectPart]:
        """What ``read`` reads."""
        return [self.layout.whole(chunk)]

    def reread(self, chunk: int) -> np.ndarray:
        """Read every byte of a chunk's object, and check object and rows whatever was trusted before."""
        self._trusted.pop(chunk, None)
        return self._decoded(chunk)

    def _decoded(self, chunk: int) -> np.ndarray:
        buffer = self._buffers.take("chunk", self.layout.chunk_bytes)
        try:
            packed, tag = self._chunks.read_all(self.layout.key(chunk), self.layout.most_encoded_bytes)
            self.layout.encoding.decode(packed.data, buffer)
        except (OSError, ValueError, WrongSize) as error:
            self._unreadable(chunk, error)
        return self._checked(chunk, buffer, tag)

    def _checked(self, chunk: int, data: np.ndarray, tag: Tag) -> np.ndarray:
        """The rows in the bytes of a chunk, once their checksum was computed for this tag."""
        rows = int(self._rows[chunk])
        raw = data[: rows * self.layout.row_bytes]
        if self._trusted.get(chunk) != tag:
            got, expected = crc32c(raw.data), int(self._crcs[chunk])
            if got != expected:
                self._damaged(chunk, f"the bytes were altered: expected checksum {expected:08x}, got {got:08x}")
            self._trusted[chunk] = tag
        values = raw.view(self.layout.dtype).reshape(rows, *self.layout.tail)
        values.flags.writeable = False
        return values

    def _unreadable(self, chunk: int, error: OSError | ValueError | WrongSize) -> NoReturn:
        if not isinstance(error, OSError):
            self._damaged(chunk, str(error), error)
        raise_if_limit(error, f"{self.layout.storage.name}/{self.layout.key(chunk)}")
        if isinstance(error, FileNotFoundError):
            self._damaged(chunk, "the file is missing", error)
        self._damaged(chunk, f"the file cannot be read: {error.strerror or error}", error)

    def _damaged(self, chunk: int, what: str, cause: Exception | None = None) -> NoReturn:
        store, start = self.layout.storage.name, chunk * self.layout.chunk_rows
        stop = start + int(self._rows[chunk]) - 1
        raise DamagedChunk(
            f"{store}: chunk {chunk} (rows {start} to {stop}), file {self.layout.key(chunk)}: {what}; "
            f"`coremargin check {store}` lists all damage, then restore the file from a copy or ingest again"
        ) from cause
