"""What reads the chunks of a store, and checks each against what the manifest says of it.

``ArrayReader`` reads dense rows, labels and weights; its checksums are computed once for each chunk and tag of its
object, which is trusted after that. ``CsrReader`` reads sparse rows as runs of values of three long arrays: compressed
objects of these are decoded whole, and the last one is kept per thread.
"""

from __future__ import annotations

import threading
from dataclasses import replace
from typing import TYPE_CHECKING, NamedTuple, NoReturn, TypeVar

import numpy as np

from coremargin.data.checksum import crc32c
from coremargin.data.digest import INDICES, LENGTHS, WEIGHTS
from coremargin.data.layout import weights_like
from coremargin.data.narrow_rows import first_not_finite
from coremargin.data.reused import Reused
from coremargin.data.sparse import csr_rows
from coremargin.data.storage import WrongSize
from coremargin.errors import DamagedChunk, raise_if_limit
from coremargin.maths.rows import take

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Mapping

    from coremargin.data.layout import ArrayLayout, ObjectPart
    from coremargin.data.manifest import Manifest
    from coremargin.data.statistics import ChunkScalars
    from coremargin.data.storage import Storage, Tag

    Tags = tuple[Tag, ...]

    from scipy.sparse import csr_array


R = TypeVar("R")
_TRANSFERS = 4  # of a chunk that comes damaged in another way each time


def undamaged(read: Callable[[int], R], chunk: int, storage: Storage, forget: Callable[[], None] | None = None) -> R:
    """``read(chunk)``; what is transferred is read again until it is right, or damaged in the same way twice.

    forget: called before it is read again. Raises DamagedChunk.
    """
    before = ""
    for _ in range(_TRANSFERS):
        try:
            return read(chunk)
        except DamagedChunk as error:
            if not storage.remote or str(error) == before:
                raise
            before = str(error)  # with the checksum that was found
            if forget is not None:
                forget()
    return read(chunk)


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
        return undamaged(self._read_once, chunk, self.layout.storage)

    def _read_once(self, chunk: int) -> np.ndarray:
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
        return undamaged(self._decoded, chunk, self.layout.storage)

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
        before = self._trusted.get(chunk)
        if before != tag or self.layout.storage.remote:
            got, expected = crc32c(raw.data), int(self._crcs[chunk])
            if got != expected:
                what = "the bytes were altered" if before in (None, tag) else "it was replaced while it was in use"
                self._damaged(chunk, f"{what}: expected checksum {expected:08x}, got {got:08x}")
            bad = first_not_finite(raw.view(self.layout.dtype))
            if bad is not None:  # which would become a number when it is read
                row, column = divmod(bad, self.layout.tail[0])
                self._damaged(chunk, f"row {chunk * self.layout.chunk_rows + row}, column {column} is not finite")
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


class ObjectProblem(Exception):
    """An object that does not hold what it should."""

    def __init__(self, key: str, what: str) -> None:
        super().__init__(f"file {key}: {what}")


class ValueReader:
    """Reads values [start, stop) of an array of one dimension. Safe in many threads."""

    def __init__(self, layout: ArrayLayout, map_bytes: int) -> None:
        """map_bytes: the process's budget of maps; 0: never map."""
        self.layout = layout
        self._chunks = layout.storage.chunks(layout.file_bytes, layout.chunk_bytes, map_bytes)
        self._local = threading.local()
        self._buffers = Reused()

    def forget(self) -> None:
        """Forget the last decoded object, so that the next read decodes it again."""
        self._local.decoded = None

    def read(self, start: int, stop: int) -> tuple[np.ndarray, Tags]:
        """The values, and the tags of the objects. Raises ObjectProblem."""
        parts = list(self._parts(start, stop))
        if len(parts) == 1:
            values, tag = self._part(*parts[0], out=None)
            return values, (tag,)
        out, done, tags = self._buffers.take("joined", stop - start, self.layout.dtype), 0, []
        for number, low, high in parts:
            values, tag = self._part(number, low, high, out=out[done : done + high - low])
            if not np.shares_memory(values, out):
                out[done : done + high - low] = values
            done += high - low
            tags.append(tag)
        return out, tuple(tags)

    def objects(self, start: int, stop: int) -> list[ObjectPart]:
        """What ``read`` reads."""
        layout, parts = self.layout, self._parts(start, stop)
        if not layout.encoding.raw:
            return [layout.whole(number) for number, _, _ in parts]
        size = layout.dtype.itemsize
        return [
            layout.whole(number)._replace(start=low * size, nbytes=(high - low) * size) for number, low, high in parts
        ]

    def check_object(self, number: int) -> np.ndarray:
        """All values of an object, padding included, held against the checksum in it. Raises ObjectProblem."""
        return self._decode(number)[0]

    def _parts(self, start: int, stop: int) -> Iterator[tuple[int, int, int]]:
        """(object, first, last) within each object."""
        step = self.layout.chunk_rows
        for number in range(start // step, -(-stop // step)):
            yield number, max(0, start - number * step), min(step, stop - number * step)

    def _part(self, number: int, low: int, high: int, out: np.ndarray | None) -> tuple[np.ndarray, Tag]:
        if not self.layout.encoding.raw:
            values, tag = self._decoded(number)
            return values[low:high], tag
        size, raw = self.layout.dtype.itemsize, None if out is None else out.view(np.uint8)
        try:
            data, tag = self._chunks.read(self.layout.key(number), low * size, high * size, raw)
        except (OSError, WrongSize) as error:
            raise self._problem(number, error) from error
        return data.view(self.layout.dtype), tag

    def _decoded(self, number: int) -> tuple[np.ndarray, Tag]:
        """All values of an object that has to be decoded; this thread's last one is kept."""
        kept: tuple[int, Tag, np.ndarray] | None = getattr(self._local, "decoded", None)
        if kept is not None and kept[0] == number:
            try:
                # What is transferred is checked by the checksum of its rows at each use, without a further request.
                if self.layout.storage.remote or kept[1] == self.layout.storage.tag(self.layout.key(number)):
                    return kept[2], kept[1]
            except OSError as error:
                raise self._problem(number, error) from error
        values, tag = self._decode(number)
        self._local.decoded = number, tag, values
        return values, tag

    def _decode(self, number: int) -> tuple[np.ndarray, Tag]:
        values = np.empty(self.layout.chunk_rows, dtype=self.layout.dtype)
        try:
            packed, tag = self._chunks.read_all(self.layout.key(number), self.layout.most_encoded_bytes)
            self.layout.encoding.decode(packed.data, values.view(np.uint8))
        except (OSError, ValueError, WrongSize) as error:
            raise self._problem(number, error) from error
        return values, tag

    def _problem(self, number: int, error: OSError | ValueError | WrongSize) -> ObjectProblem:
        key = self.layout.key(number)
        if not isinstance(error, OSError):
            return ObjectProblem(key, str(error))
        raise_if_limit(error, f"{self.layout.storage.name}/{key}")
        if isinstance(error, FileNotFoundError):
            return ObjectProblem(key, "the file is missing")
        return ObjectProblem(key, f"the file cannot be read: {error.strerror or error}")


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
        return undamaged(self._read_once, chunk, self._data.layout.storage, self._forget)

    def _forget(self) -> None:
        for reader in (self._data, self._indices, self._indptr):
            reader.forget()

    def _read_once(self, chunk: int) -> csr_array:
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
        if self._trusted.get(chunk) == tags and not self._data.layout.storage.remote:
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


class Readers(NamedTuple):
    """What reads rows, labels and weights; ``weights`` is None where there are none."""

    X: ArrayReader | CsrReader
    y: ArrayReader
    weights: ArrayReader | None


def readers_of(
    layouts: Mapping[str, ArrayLayout], manifest: Manifest, scalars: ChunkScalars, features: int, map_bytes: int
) -> Readers:
    """Of the arrays of a store, by the names of their folders; map_bytes: how many bytes of rows may be mapped."""
    values, labels = scalars.digest >> np.uint64(32), scalars.digest & np.uint64(0xFFFFFFFF)
    X: ArrayReader | CsrReader
    if "X" in layouts:
        X = ArrayReader(layouts["X"], scalars.rows, values, map_bytes)
    else:
        X = CsrReader(layouts, scalars, features, map_bytes)
    where = replace(layouts["y"], moved=manifest.folders("y"))
    y = ArrayReader(where, scalars.rows, labels, 0)  # small: copied into a buffer, not mapped
    weights = None
    if manifest.weighted:
        given = layouts.get("weights") or replace(weights_like(layouts["y"]), whole_array=False)
        where = replace(given, moved=manifest.folders("weights"))
        weights = ArrayReader(where, scalars.rows, scalars.marks[:, WEIGHTS], 0)
    return Readers(X, y, weights)


def ones(rows: int) -> np.ndarray:
    """Weights (n,) of rows that have none, read-only."""
    found = np.ones(rows)
    found.flags.writeable = False
    return found
