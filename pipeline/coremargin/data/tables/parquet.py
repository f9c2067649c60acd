"""Parquet files, through pyarrow, a record batch at a time."""

from __future__ import annotations

import os
from collections.abc import Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any

from coremargin.data.sources.parquet_columns import first_length, is_list, leaves
from coremargin.data.sources.parquet_pages import check_group, row_groups
from coremargin.data.sources.paths import file_bytes
from coremargin.data.tables.arrow import plain, plain_type
from coremargin.data.tables.table import NO_HINTS, Hint, TableBatch, TypedTable, numbered
from coremargin.errors import DataError

if TYPE_CHECKING:
    from coremargin.data.tables.types import Records

_BUFFER_BYTES = 2**18  #: per column


class ParquetTable(TypedTable):
    """One file."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self.total_bytes: int | None = file_bytes(path)
        with _opened(path) as file:
            schema = file.schema_arrow
            super().__init__(
                str(path), [str(name) for name in schema.names], [plain_type(field.type) for field in schema]
            )
            self.rows: int | None = int(file.metadata.num_rows)
            if self.rows < 1:
                raise DataError(f"{path}: no rows: expected at least one")
            self._leaves = [field.name for field in schema for _ in range(leaves(field.type))]
            self._lists = frozenset(field.name for field in schema if is_list(field.type))

    def lengths(self, columns: Sequence[int]) -> dict[int, int]:
        """How long the first list of each of some columns is, 1 where that is missing. UsageError: it is empty."""
        if not columns:
            return {}
        found = dict.fromkeys(columns, 1)
        group = next((group for group in row_groups(self.path) if group.rows), None)
        if group is None:
            return found
        names = [self._names[column] for column in columns]
        with _opened(self.path) as file:
            check_group(self.path, group, self._leaves, self._lists, self._lists)
            first = next(file.iter_batches(batch_size=1, row_groups=[group.number], columns=names), None)
        if first is not None:
            for column, name in zip(columns, names, strict=True):
                found[column] = first_length(first.column(name), name, self.name)
        return found

    def pieces(self, columns: Sequence[int]) -> Iterator[Records]:
        """The record batches of all row groups, each of which is looked at before it is read."""
        names = [self._names[column] for column in columns]
        size, used = self._batch_rows(columns), frozenset(names)
        groups, rows, start = [], 0, 0
        with _opened(self.path) as file:
            for group in row_groups(self.path):
                check_group(self.path, group, self._leaves, self._lists, used)
                groups.append(group.number)
                rows += group.rows
                if rows >= size or group.number == file.num_row_groups - 1:  # small ones together
                    for records in file.iter_batches(batch_size=size, row_groups=groups, columns=names):
                        yield start, records
                        start += len(records)
                    groups, rows = [], 0
        if start != self.rows:
            raise DataError(f"{self.name}: found {start:,} rows, expected {self.rows:,} by its end; write it again")

    def batch(self, piece: Records, columns: Sequence[int], hints: Mapping[int, Hint] = NO_HINTS) -> TableBatch:
        """The columns of a record batch, whose types are what they are."""
        del hints
        start, records = piece
        done = (self.total_bytes or 0) * (start + len(records)) // (self.rows or 1)
        found = {column: plain(records.column(self._names[column])) for column in columns}
        return TableBatch(found, len(records), self.name, numbered(self.name, start), done)


@contextmanager
def _opened(path: Path) -> Iterator[Any]:
    """The file for reading in small pieces; pyarrow's complaints become DataError with the name of the file."""
    import pyarrow as pa
    import pyarrow.parquet as pq

    try:
        # By default whole row groups are read ahead: 600 MB for 600 MB of rows where this takes 130.
        # pyarrow takes a text for UTF-8, which the name of a file need not be.
        with ExitStack() as opened:
            stream = opened.enter_context(pa.OSFile(os.fsencode(path)))
            yield opened.enter_context(pq.ParquetFile(stream, pre_buffer=False, buffer_size=_BUFFER_BYTES))
    except (pa.ArrowException, OSError, UnicodeDecodeError) as error:
        raise DataError(f"{path}: not a whole Parquet file ({error}): fetch or write it again") from error
