"""Rows that can be read once, kept in a file for as long as they are read again: Arrow's IPC, a stream for each batch.

The file has no name: whatever ends the process, nothing of it stays on the disk.
"""

from __future__ import annotations

import os
import tempfile
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from coremargin.data.ahead import read_in_order
from coremargin.data.tables.table import NO_HINTS, Hint, TableBatch
from coremargin.errors import OutputError, raise_if_limit

if TYPE_CHECKING:
    from coremargin.data.tables.table import OnRows, Table


@dataclass(frozen=True, slots=True)
class _Kept:
    """A batch in the file: its bytes [start, stop) there, its rows, and how a person would find them."""

    start: int
    stop: int
    rows: int
    origin: str
    place: Callable[[int], str]


class SpilledTable:
    """A copy of some columns of a table on the disk; close it. folder: where; None: with temporary files.

    on_rows(rows, bytes, None) hears of the copying. Raises OutputError, and what reading the table raises.
    """

    def __init__(
        self, table: Table, columns: Sequence[int], folder: Path | None, on_rows: OnRows | None = None
    ) -> None:
        self.name, self.names, self.width, self.types = table.name, table.names, table.width, table.types
        self.named, self.lengths = table.named, table.lengths
        self._places = {column: at for at, column in enumerate(columns)}
        self._index: list[_Kept] = []
        self._file = tempfile.TemporaryFile(dir=folder, buffering=0)  # noqa: SIM115 - closed by close()
        rows = done = 0
        try:
            for batch in read_in_order(lambda piece: table.batch(piece, columns), table.pieces(columns)):
                rows, start, done = rows + batch.rows, done, done + self._written(batch)
                self._index.append(_Kept(start, done, batch.rows, batch.origin, batch.place))
                if on_rows is not None:
                    on_rows(rows, done, None)
        except BaseException:
            self.close()
            raise
        self.rows: int | None = rows
        self.total_bytes: int | None = done

    def close(self) -> None:
        """Give the space back."""
        self._file.close()

    def pieces(self, columns: Sequence[int]) -> Iterator[_Kept]:
        """Where the batches lie."""
        return iter(self._index)

    def batch(self, piece: _Kept, columns: Sequence[int], hints: Mapping[int, Hint] = NO_HINTS) -> TableBatch:
        """The columns of a batch."""
        import pyarrow as pa

        del hints  # types are what they are
        data = os.pread(self._file.fileno(), piece.stop - piece.start, piece.start)
        options = pa.ipc.IpcReadOptions(included_fields=[self._places[column] for column in columns], use_threads=False)
        with pa.ipc.open_stream(data, options=options) as stream:
            records = stream.read_next_batch()
        found = {column: records.column(f"{column}") for column in columns}
        return TableBatch(found, piece.rows, piece.origin, piece.place, piece.stop)

    def again(self, columns: Sequence[int], on_rows: OnRows | None) -> Table:
        """It can be read again."""
        return self

    def _written(self, batch: TableBatch) -> int:
        """Write a batch behind those before; how many bytes it takes."""
        import pyarrow as pa

        records = pa.RecordBatch.from_arrays(list(batch.columns.values()), [f"{column}" for column in batch.columns])
        sink = pa.BufferOutputStream()
        with pa.ipc.new_stream(sink, records.schema, options=pa.ipc.IpcWriteOptions(compression="lz4")) as stream:
            stream.write_batch(records)
        data, written = memoryview(sink.getvalue()), 0
        try:
            while written < len(data):
                written += self._file.write(data[written:])
        except OSError as error:
            raise_if_limit(error, self.name)
            raise OutputError(
                f"{self.name}: its rows can be read once, and cannot be kept for a second reading: {error.strerror}; "
                "make room beside the store, or give a function that returns a fresh iterator"
            ) from error
        return written
