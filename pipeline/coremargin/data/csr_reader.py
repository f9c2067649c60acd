"""Chunks of sparse rows as runs of stored values, held against the manifest's checksums."""

from __future__ import annotations

from typing import TYPE_CHECKING, NoReturn

import numpy as np

from coremargin.data.checksum import crc32c
from coremargin.data.digest import INDICES, LENGTHS
from coremargin.data.sparse import csr_rows
from coremargin.data.values import ObjectProblem, ValueReader
from coremargin.errors import DamagedChunk
from coremargin.maths.rows import take

if TYPE_CHECKING:
    from collections.abc import Mapping

    from scipy.sparse import csr_array

    from coremargin.data.layout import ArrayLayout, ObjectPart
    from coremargin.data.statistics import ChunkScalars
    from coremargin.data.values import Tags


class CsrReader:
    """Reads chunks of rows of a sparse store and checks them against the manifest. Safe in many threads."""

    def __init__(
        self, layouts: Mapping[str, ArrayLayout], scalars: ChunkScalars, features: int, map_bytes: int
    ) -> None:
        """layouts: of the store; scalars: of all chunks of the commit; map_bytes: the process's budget of maps."""
        self._data, self._indices = (ValueReader(layouts[f"X/{name}"], map_bytes) for name in ("data", "indices"))
        self._indptr = ValueReader(layouts["X/indptr"], 0)  # small: copied into a buffer, not mapped
        self._features, self._scalars = features, scalars
        self._starts = np.concatenate([[0], np.cumsum(scalars.nonzeros)])  # of each chunk's stored values
        self._trusted: dict[int, tuple[Tags, ...]] = {}

    def read(self, chunk: int) -> csr_array:
        """Rows (n, d) of a chunk, read-only. Raises DamagedChunk."""
        low, high = int(self._starts[chunk]), int(self._starts[chunk + 1])
        first = chunk * self._indptr.layout.chunk_rows
        try:
            rows = int(self._scalars.rows[chunk])
            starts, tag = self._indptr.read(first, first + rows)
            data, data_tags = self._data.read(low, high)
            indices, index_tags = self._indices.read(low, high)
        except ObjectProblem as problem:
            self._damaged(chunk, str(problem), problem)
        indptr = np.empty(rows + 1, dtype=np.int32 if high - low <= np.iinfo(np.int32).max else np.int64)
        indptr[-1] = high - low
        tags = tag, data_tags, index_tags
        if self._trusted.get(chunk) == tags:
            np.subtract(starts, low, out=indptr[:-1], casting="unsafe")
        else:
            self._check(chunk, starts - low, data, indices)
            indptr[:-1] = starts - low
            self._trusted[chunk] = tags
        for part in (data, indices, indptr):
            part.flags.writeable = False
        return csr_rows(data, indices, indptr, self._features)

    def has(self, chunk: int) -> bool:
        """All chunks have rows."""
        return True

    def objects(self, chunk: int) -> list[ObjectPart]:
        """What ``read`` reads."""
        values, first = slice(*self._starts[chunk : chunk + 2].tolist()), chunk * self._indptr.layout.chunk_rows
        parts = self._indptr.objects(first, first + int(self._scalars.rows[chunk]))
        return [
            part for reader in (self._data, self._indices) for part in reader.objects(values.start, values.stop)
        ] + parts

    def take(self, chunk: int, offsets: np.ndarray) -> csr_array:
        """A copy of the rows at offsets (m,) within a chunk."""
        return take(self.read(chunk), offsets)

    def reread(self, chunk: int) -> csr_array:
        """Read a chunk and the whole files that begin in it, and check all whatever was trusted before."""
        self._trusted.pop(chunk, None)
        low, high = int(self._starts[chunk]), int(self._starts[chunk + 1])
        try:
            self._indptr.check_object(chunk)
            for reader in (self._data, self._indices):
                step = reader.layout.chunk_rows
                for file in range(-(-low // step), -(-high // step)):
                    reader.check_object(file)
        except ObjectProblem as problem:
            self._damaged(chunk, str(problem), problem)
        return self.read(chunk)

    def head(self, entries: int) -> tuple[np.ndarray, np.ndarray]:
        """Copies of data and indices from the start of the file that holds value ``entries`` up to there, checked."""
        found = []
        for reader in (self._data, self._indices):
            step = reader.layout.chunk_rows
            try:
                found.append(reader.check_object(entries // step)[: entries % step].copy() if entries % step else None)
            except ObjectProblem as problem:
                self._damaged(int(np.searchsorted(self._starts, entries, side="right")) - 1, str(problem), problem)
        data, indices = found
        if data is None or indices is None:
            return np.empty(0, self._data.layout.dtype), np.empty(0, self._indices.layout.dtype)
        return data, indices

    def _check(self, chunk: int, starts: np.ndarray, data: np.ndarray, indices: np.ndarray) -> None:
        lengths = np.diff(starts, append=len(data))
        marks = self._scalars.marks[chunk]
        expected = (int(self._scalars.digest[chunk]) >> 32, int(marks[INDICES]), int(marks[LENGTHS]))
        for name, values, crc in zip(("data", "indices", "indptr"), (data, indices, lengths), expected, strict=True):
            got = crc32c(np.ascontiguousarray(values).data.cast("B")) if len(values) else crc32c(b"")
            wrong_start = name == "indptr" and len(starts) and starts[0] != 0
            if got != crc or wrong_start:
                self._damaged(
                    chunk,
                    f"{self._object_names(name, chunk)}: the bytes were altered: {name} of these rows have "
                    f"checksum {got:08x}, expected {crc:08x}",
                )

    def _object_names(self, name: str, chunk: int) -> str:
        reader = {"data": self._data, "indices": self._indices, "indptr": self._indptr}[name]
        if name == "indptr":
            return f"file {reader.layout.key(chunk)}"
        step = reader.layout.chunk_rows
        first, last = int(self._starts[chunk]) // step, max(0, int(self._starts[chunk + 1]) - 1) // step
        return f"file {reader.layout.key(first)}" + (f" to {reader.layout.key(last)}" if last > first else "")

    def _damaged(self, chunk: int, what: str, cause: BaseException | None = None) -> NoReturn:
        store, start = self._data.layout.storage.name, chunk * self._indptr.layout.chunk_rows
        stop = start + int(self._scalars.rows[chunk]) - 1
        raise DamagedChunk(
            f"{store}: chunk {chunk} (rows {start} to {stop}), {what}; "
            f"`coremargin check {store}` lists all damage, then restore the file from a copy or ingest again"
        ) from cause
