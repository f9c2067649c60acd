"""Copies of tables on disk for rows that are read more than once: Arrow's IPC, a stream for each batch.

The file has no name: whatever ends the process, nothing of it stays on the disk.
"""

from __future__ import annotations

import os
import tempfile
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from coremargin.data.ordered_threads import read_in_order
from coremargin.data.tables.table import NO_HINTS, Hint, Table, TableBatch
from coremargin.errors import OutputError, raise_if_limit

if TYPE_CHECKING:
    from coremargin.data.tables.table import OnRows


@dataclass(frozen=True, slots=True)
class _SpilledBatch:
    """A batch in the file: its bytes [start, stop) there, its rows, and how a person would find them."""

    start: int
    stop: int
    rows: int
    origin: str
    place: Callable[[int], str]
    done_bytes: int


class SpilledTable(Table):
    """A copy of some columns of a table on the disk, which grows by batches; close it. folder: where; None: with
    temporary files. total_bytes: of which the batches say how much is done. Raises OSError.
    """

    def __init__(self, table: Table, columns: Sequence[int], folder: Path | None) -> None:
        self.name, self.names, self.width, self.types = table.name, table.names, table.width, table.types
        self._table, self.rows, self.total_bytes = table, 0, table.total_bytes
        self.kept_bytes = 0  #: bytes of the file
        self._places = {column: at for at, column in enumerate(columns)}
        self._index: list[_SpilledBatch] = []
        self._file = tempfile.TemporaryFile(dir=folder, buffering=0)  # noqa: SIM115 - closed by close()

    def close(self) -> None:
        """Delete the copy."""
        self._file.close()

    def add(self, batch: TableBatch, data: memoryview, done_bytes: int) -> None:
        """Take the next batch, which ``serialize_batch`` has made data of. Raises OSError."""
        start, written = self.kept_bytes, 0
        while written < len(data):
            written += self._file.write(data[written:])
        self.kept_bytes += written
        self.rows = (self.rows or 0) + batch.rows
        self._index.append(_SpilledBatch(start, self.kept_bytes, batch.rows, batch.origin, batch.place, done_bytes))

    def lengths(self, columns: Sequence[int]) -> Mapping[int, int]:
        """By the table that this is a copy of."""
        return self._table.lengths(columns)

    def room(self) -> int:
        """Bytes that are free where the file is."""
        found = os.fstatvfs(self._file.fileno())
        return found.f_bavail * found.f_frsize

    def pieces(self, columns: Sequence[int]) -> Iterator[_SpilledBatch]:
        """Where the batches lie."""
        return iter(self._index)

    def batch(self, piece: _SpilledBatch, columns: Sequence[int], hints: Mapping[int, Hint] = NO_HINTS) -> TableBatch:
        """The columns of a batch."""
        import pyarrow as pa

        del hints  # types are what they are
        data = os.pread(self._file.fileno(), piece.stop - piece.start, piece.start)
        options = pa.ipc.IpcReadOptions(included_fields=[self._places[column] for column in columns], use_threads=False)
        with pa.ipc.open_stream(data, options=options) as stream:
            records = stream.read_next_batch()
        found = {column: records.column(f"{column}") for column in columns}
        return TableBatch(found, piece.rows, piece.origin, piece.place, piece.done_bytes)


def serialize_batch(batch: TableBatch) -> memoryview:
    """A batch as bytes; in any thread."""
    import pyarrow as pa

    records = pa.RecordBatch.from_arrays(list(batch.columns.values()), [f"{column}" for column in batch.columns])
    sink, options = pa.BufferOutputStream(), pa.ipc.IpcWriteOptions(compression="lz4", use_threads=False)
    with pa.ipc.new_stream(sink, records.schema, options=options) as stream:
        stream.write_batch(records)
    return memoryview(sink.getvalue())


def spill_table(
    table: Table, columns: Sequence[int], folder: Path | None, on_rows: OnRows | None = None
) -> SpilledTable:
    """A copy of rows that can be read once. on_rows(rows, bytes, None) hears of the copying.

    Raises OutputError, and what reading the table raises.
    """

    def work(piece: object) -> tuple[TableBatch, memoryview]:
        batch = table.batch(piece, columns)
        return batch, serialize_batch(batch)

    copy = SpilledTable(table, columns, folder)
    try:
        for batch, data in read_in_order(work, table.pieces(columns)):
            try:
                copy.add(batch, data, copy.kept_bytes + len(data))
            except OSError as error:
                raise_if_limit(error, table.name)
                raise OutputError(
                    f"{table.name}: its rows can be read once, and cannot be stored for a second reading: "
                    f"{error.strerror}; make room next to the store, or give a function that returns a new iterator"
                ) from error
            if on_rows is not None:
                on_rows(copy.rows or 0, copy.kept_bytes, None)
    except BaseException:
        copy.close()
        raise
    copy.total_bytes = copy.kept_bytes
    return copy


class ParsedBatches:
    """Texts as they were parsed while columns were fitted, so that they are parsed once; close it.

    It holds the batches of one table in the order of its rows, all of them or none: where the disk lacks room for them,
    they are parsed again. folder: where the file is; None: with temporary files.
    """

    ROOM = 4  #: times the size of the copy must stay free, for the store and for others

    def __init__(self, folder: Path | None) -> None:
        self._folder = folder
        self._copy: SpilledTable | None = None

    def begin(self, table: Table, columns: Sequence[int]) -> None:
        """Store these columns of the batches that are added from now on."""
        self.close()
        try:
            self._copy = SpilledTable(table, columns, self._folder)
        except OSError:  # no file can be made there
            self._copy = None

    def serialize(self, batch: TableBatch) -> memoryview | None:
        """What ``add`` takes in addition to a batch; in any thread. None: it is not stored."""
        return serialize_batch(batch) if self._copy is not None and batch.counted else None

    def add(self, batch: TableBatch, data: memoryview | None) -> None:
        """Store the next batch; if it cannot be stored, none is."""
        if self._copy is None:
            return
        try:
            if data is None or self._copy.room() < self.ROOM * (self._copy.kept_bytes + len(data)):
                self.close()
            else:
                self._copy.add(batch, data, batch.done_bytes)
        except OSError:  # the disk is full, or the file may not become so large
            self.close()

    def table(self) -> Table | None:
        """All batches that were added, as a table; None: not all could be stored."""
        return self._copy

    def close(self) -> None:
        """Delete the copy."""
        if self._copy is not None:
            self._copy.close()
            self._copy = None
