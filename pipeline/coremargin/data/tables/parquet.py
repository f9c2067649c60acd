"""Parquet files, through pyarrow, a record batch at a time."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any

from coremargin.data.sources.base import batch_rows
from coremargin.data.sources.parquet_columns import is_list, leaves, list_lengths, refuse_same_names
from coremargin.data.sources.parquet_pages import check_group, row_groups
from coremargin.data.sources.paths import file_bytes
from coremargin.data.tables.table import NO_HINTS, Hint, TableBatch
from coremargin.errors import DataError, UsageError

if TYPE_CHECKING:
    from coremargin.data.tables.types import Records

_BUFFER_BYTES = 2**18  #: per column


class ParquetTable:
    """One file."""

    def __init__(self, path: Path) -> None:
        self.name, self.path = str(path), path
        self.total_bytes: int | None = file_bytes(path)
        with _opened(path) as file:
            schema = file.schema_arrow
            self._names = tuple(str(name) for name in schema.names)
            self.names: tuple[str, ...] | None = self._names
            self.width = len(self._names)
            refuse_same_names(self._names, self.name)
            self.rows: int | None = int(file.metadata.num_rows)
            if self.rows < 1:
                raise DataError(f"{path}: no rows: expected at least one")
            self.types: Sequence[Any] | None = [field.type for field in schema]
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
        names = [self._name(column) for column in columns]
        with _opened(self.path) as file:
            check_group(self.path, group, self._leaves, self._lists, self._lists)
            first = next(file.iter_batches(batch_size=1, row_groups=[group.number], columns=names), None)
        for column, name in zip(columns, names, strict=True):
            if first is not None and not first.column(name).null_count:  # a null is refused where it is read
                found[column] = int(list_lengths(first.column(name))[0])
            if found[column] == 0:
                raise UsageError(
                    f"{self.name}, row 0, column {name!r}: found an empty list, expected numbers; leave the column out "
                    f"with --drop {name}"
                )
        return found

    def pieces(self, columns: Sequence[int]) -> Iterator[Records]:
        """The record batches of all row groups, each of which is looked at before it is read."""
        names = [self._name(column) for column in columns]
        wide = [column for column in columns if self._name(column) in self._lists]
        size, used = batch_rows(len(names) + sum(self.lengths(wide).values())), frozenset(names)
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
        found = {column: records.column(self._name(column)) for column in columns}
        return TableBatch(found, len(records), self.name, _place(self.name, start), done)

    def named(self, column: int) -> str:
        """By name."""
        return f"column {self._name(column)!r}"

    def _name(self, column: int) -> str:
        return self._names[column]


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


def _place(name: str, start: int) -> Callable[[int], str]:
    return lambda row: f"{name}, row {start + row}"
