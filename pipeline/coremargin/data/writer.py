"""Writing a store: rows in batches of any size become whole chunks; a commit makes them visible, all at once.

A new store is built in a folder beside its place and moved there by its first commit; later commits replace the root
``zarr.json``. A writer that dies at any moment leaves what was committed, and nothing else that a reader could see.
"""

from __future__ import annotations

from concurrent.futures import Future, ThreadPoolExecutor, wait
from dataclasses import replace
from typing import TYPE_CHECKING, Any, Self

import numpy as np

from coremargin.data.chunks import ChunkSink
from coremargin.data.codecs import COMPRESSIONS, Encoding, chosen
from coremargin.data.format import (
    CHUNK_BYTES,
    DTYPES,
    LARGEST_CHUNK_BYTES,
    MOST_FEATURES,
    UNLABELLED,
    Facts,
    default_chunk_rows,
    fitting_chunk_rows,
)
from coremargin.data.labels import LabelCoder
from coremargin.data.place import Place
from coremargin.data.rows import as_rows
from coremargin.data.store import Store
from coremargin.errors import StoreError, UsageError

if TYPE_CHECKING:
    import os
    from types import TracebackType

_THREADS = 2  # chunks are measured, encoded and fsynced while the caller parses the next rows
_PENDING = 3  # whole chunks that may wait for that


class StoreWriter:
    """Context manager; leaving it commits what was written, leaving it by an exception does not."""

    def __init__(self, place: Place, facts: Facts, sink: ChunkSink | None = None) -> None:
        """Use ``create`` or ``append``."""
        self._place, self._facts, self._sink = place, facts, sink
        self._compression, self._chunk_bytes = "none", CHUNK_BYTES
        self._coder = LabelCoder(facts.classes)
        self._dtype = np.dtype(facts.dtype)
        self._X = np.empty((facts.chunk_rows, facts.features), dtype=self._dtype)
        self._y = np.full(facts.chunk_rows, UNLABELLED, dtype=np.int32)
        self._next, self._fill = divmod(facts.rows, facts.chunk_rows)  # the buffer's chunk, and its rows so far
        self._origin, self._origin_rows = "", 0
        self._pool = ThreadPoolExecutor(_THREADS, thread_name_prefix="coremargin-write")
        self._pending: list[Future[None]] = []

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
    ) -> StoreWriter:
        """A writer of a new store; with ``overwrite`` an old one stays in place until the first commit.

        compression: "none" (can be mapped), "lz4", "zstd", or "auto" (lz4 where the first chunk shrinks by a third).
        Raises UsageError (a store is there, absurd numbers), OutputError (cannot write), Busy (another writer).
        """
        name = np.dtype(dtype).name
        _check_options(features, name, chunk_bytes, compression)
        facts = Facts(features, name, default_chunk_rows(features, name, chunk_bytes), ())
        writer = cls(Place.new(path, overwrite=overwrite), facts)
        writer._compression, writer._chunk_bytes = compression, chunk_bytes
        return writer

    @classmethod
    def append(cls, path: str | os.PathLike[str]) -> StoreWriter:
        """A writer that goes on after the last committed row. Raises StoreError, OutputError, Busy, DamagedChunk."""
        place = Place.existing(path)
        try:
            sink = ChunkSink.resume(place)
            writer = cls(place, sink.facts, sink)
            if writer._fill:
                X, codes = Store.open(place.path, map_bytes=0).read(writer._next)
                writer._X[: writer._fill], writer._y[: writer._fill] = X, codes
            return writer
        except BaseException:
            place.close()
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
        self._place.close()

    @property
    def classes(self) -> tuple[Any, ...]:
        """Labels seen so far; the code of each is its index."""
        return tuple(self._coder.classes)

    @property
    def features(self) -> int:
        """Numbers per row."""
        return self._facts.features

    @property
    def rows(self) -> int:
        """Rows written so far, committed or not."""
        return self._next * self._facts.chunk_rows + self._fill

    @property
    def committed(self) -> int:
        """Rows that readers see."""
        return self._sink.facts.rows if self._sink else 0

    @property
    def chunk_rows(self) -> int:
        """Rows per chunk; a new store smaller than one chunk takes fewer at its first commit."""
        return self._facts.chunk_rows

    @property
    def bytes_written(self) -> int:
        """Bytes of chunk files so far."""
        return self._sink.bytes_written if self._sink else 0

    def write(self, X: Any, labels: Any = None, *, origin: str = "") -> None:
        """Take rows X (m, d) and their labels (m,), or None: all unlabelled. Nothing is taken when they are refused.

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

    def commit(self) -> int:
        """Make everything written so far visible, atomically. Returns the committed rows. StoreError without rows."""
        rows = self.rows
        if rows == 0:
            raise StoreError(f"{self._place.path}: expected at least one row, got none; nothing was written")
        if rows == self.committed:
            return rows
        sink = self._settled(rows)
        wait(self._pending)
        while self._pending:
            self._pending[0].result()  # stays first in line when it failed: a later commit fails, too
            self._pending.pop(0)
        if self._fill:
            sink.put(self._next, self._X[: self._fill], self._y[: self._fill], len(self._coder.classes))
        sink.commit(rows, self.classes)
        if self._fill == self._facts.chunk_rows:  # a new store that became exactly one chunk
            self._next, self._fill = self._next + 1, 0
        return rows

    def _settled(self, rows: int) -> ChunkSink:
        """The sink; the first call decides, with the first rows at hand, how chunks are stored."""
        if self._sink is None:
            facts = self._facts
            chunk_rows = fitting_chunk_rows(rows, facts.features, facts.dtype, self._chunk_bytes)
            self._facts = facts = replace(facts, chunk_rows=chunk_rows)
            self._X, self._y = self._X[:chunk_rows], self._y[:chunk_rows]
            encoding = Encoding(chosen(self._compression, self._X[: min(rows, facts.chunk_rows)]))
            self._sink = ChunkSink(self._place, facts, encoding)
        return self._sink

    def _hand_over(self) -> None:
        """Give the full buffer to the writing threads and start a new one."""
        sink = self._settled(self._facts.chunk_rows)
        while len(self._pending) >= _PENDING:
            self._pending[0].result()
            self._pending.pop(0)
        classes = len(self._coder.classes)
        self._pending.append(self._pool.submit(sink.put, self._next, self._X, self._y, classes))
        self._X, self._y = np.empty_like(self._X), np.full_like(self._y, UNLABELLED)
        self._fill, self._next = 0, self._next + 1


def _check_options(features: int, dtype: str, chunk_bytes: int, compression: str) -> None:
    if dtype not in DTYPES:
        raise UsageError(f"dtype: expected {' or '.join(DTYPES)}, got {dtype!r}")
    if compression not in COMPRESSIONS:
        raise UsageError(f"compression: expected one of {', '.join(COMPRESSIONS)}, got {compression!r}")
    if features == 0:
        raise StoreError("rows: expected at least one feature, got none")
    if not 1 <= features <= MOST_FEATURES:
        raise UsageError(f"features: expected 1 to {MOST_FEATURES:,}, got {features}")
    if not 1 <= chunk_bytes <= LARGEST_CHUNK_BYTES:
        raise UsageError(f"chunk_bytes: expected 1 to {LARGEST_CHUNK_BYTES:,}, got {chunk_bytes}")
