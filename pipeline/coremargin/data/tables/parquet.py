"""Parquet files, through pyarrow, a record batch at a time."""

from __future__ import annotations

import os
from collections.abc import Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from coremargin.data.sources.parquet_columns import first_length, is_list, leaves
from coremargin.data.sources.parquet_pages import check_group, row_groups
from coremargin.data.sources.paths import file_bytes
from coremargin.data.tables.arrow import plain_type, typed_batch
from coremargin.data.tables.table import NO_HINTS, Hint, TableBatch, TypedTable
from coremargin.errors import DataError, NoRows

if TYPE_CHECKING:
    from coremargin.data.tables.types import Records

_BUFFER_BYTES = 2**18  #: per column


@dataclass(frozen=True, slots=True)
class _Run:
    """Row groups that are read at once: the number of their first row, how many there are, and the file's end."""

    start: int
    rows: int
    groups: list[int]
    metadata: Any


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
                raise NoRows(f"{path}: no rows: expected at least one")
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

    def pieces(self, columns: Sequence[int]) -> Iterator[Records | _Run]:
        """Row groups that make a batch, to be read in any thread, and of larger ones the record batches.

        Each group is looked at before it is read.
        """
        names = [self._names[column] for column in columns]
        size, used = self._batch_rows(columns), frozenset(names)
        start = 0
        with _opened(self.path) as file:
            for groups, rows in self._runs(size, used):
                if rows <= size:
                    yield _Run(start, rows, groups, file.metadata)
                    start += rows
                else:  # Arrow reads its columns in threads
                    for records in file.iter_batches(batch_size=size, row_groups=groups, columns=names):
                        yield start, records
                        start += len(records)
        self._check_rows(start, self.rows or 0)

    def batch(self, piece: Records | _Run, columns: Sequence[int], hints: Mapping[int, Hint] = NO_HINTS) -> TableBatch:
        """The columns of a record batch, or of row groups that are read now."""
        del hints  # types are what they are
        start, records = self._read(piece, columns) if isinstance(piece, _Run) else piece
        done = (self.total_bytes or 0) * (start + len(records)) // (self.rows or 1)
        found = {column: records.column(self._names[column]) for column in columns}
        return typed_batch(self, found, start, len(records), done)

    def _runs(self, size: int, used: frozenset[str]) -> Iterator[tuple[list[int], int]]:
        """The row groups, small ones together up to so many rows; and their rows. used: columns that will be read."""
        groups, rows = list[int](), 0
        for group in row_groups(self.path):
            check_group(self.path, group, self._leaves, self._lists, used)
            if groups and rows + group.rows > size:
                yield groups, rows
                groups, rows = [], 0
            groups.append(group.number)
            rows += group.rows
        if groups:
            yield groups, rows

    def _read(self, run: _Run, columns: Sequence[int]) -> Records:
        with _opened(self.path, run.metadata) as file:
            names = [self._names[column] for column in columns]
            table = file.read_row_groups(run.groups, columns=names, use_threads=False)
        self._check_rows(len(table), run.rows)
        return run.start, table

    def _check_rows(self, found: int, expected: int) -> None:
        if found != expected:
            raise DataError(f"{self.name}: found {found:,} rows, expected {expected:,} by its end; write it again")


@contextmanager
def _opened(path: Path, metadata: Any = None) -> Iterator[Any]:
    """The file for reading in small pieces; pyarrow's complaints become DataError with the name of the file.

    metadata: what the end of the file says, where it has been read.
    """
    import pyarrow as pa
    import pyarrow.parquet as pq

    try:
        # By default whole row groups are read ahead: 600 MB for 600 MB of rows where this takes 130.
        # pyarrow takes a text for UTF-8, which the name of a file need not be.
        with ExitStack() as opened:
            stream = opened.enter_context(pa.OSFile(os.fsencode(path)))
            options = {"metadata": metadata, "pre_buffer": False, "buffer_size": _BUFFER_BYTES}
            yield opened.enter_context(pq.ParquetFile(stream, **options))
    except (pa.ArrowException, OSError, UnicodeDecodeError) as error:
        raise DataError(f"{path}: not a whole Parquet file ({error}): fetch or write it again") from error


def row_count(path: Path) -> int:
    """The rows of a file, by its end. Raises DataError."""
    with _opened(path) as file:
        return int(file.metadata.num_rows)
