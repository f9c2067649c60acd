"""Arrow tables, in memory or as a stream, and Parquet files, a record batch at a time."""

from __future__ import annotations

import os
import re
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from typing import Any, TypeAlias

from coremargin.data.sources.memory import refuse_beyond_memory
from coremargin.data.sources.object_path import ObjectBytes, ObjectPath
from coremargin.data.sources.paths import FilePath, file_bytes
from coremargin.data.tables.arrow_arrays import first_length, first_not_utf8, is_list, is_text
from coremargin.data.tables.table import NO_HINTS, Hint, TableBatch, TypedTable, numbered
from coremargin.errors import BadRow, DataError
from coremargin.formats.limits import MOST_FEATURES

Records: TypeAlias = "tuple[int, Any]"  #: the number of the first row, and a record batch
UNNAMED_INDEX = re.compile(r"__index_level_\d+__|__null_dask_index__")  #: what pyarrow and Dask call such columns
#: Gives record batches of some columns, by name, of about so many rows.
Read = Callable[[Sequence[str], int], Iterator[Any]]


class ArrowTable(TypedTable):
    """Record batches that can be read again. rows: None when only reading tells."""

    def __init__(self, name: str, schema: Any, rows: int | None, read: Read, total_bytes: int | None = None) -> None:
        types = [simplify_type(kind) for kind in schema.types]
        super().__init__(name, [str(one) for one in schema.names], types, index_columns(schema, name))
        self.rows, self.total_bytes, self._read = rows, total_bytes, read

    @classmethod
    def of(cls, name: str, table: Any) -> ArrowTable:
        """Of a Table in memory, whose columns are read where they lie."""

        def read(names: Sequence[str], size: int) -> Iterator[Any]:
            return iter(table.select(list(names)).to_batches(max_chunksize=size))

        return cls(name, table.schema, int(table.num_rows), read, int(table.nbytes))

    def pieces(self, columns: Sequence[int]) -> Iterator[Records]:
        """Record batches, cut to the size of batches."""
        size, start = self._batch_rows(columns), 0
        for records in self._read([self._names[column] for column in columns], size):
            for at in range(0, len(records), size):
                part = records.slice(at, size)
                yield start, part
                start += len(part)

    def batch(self, piece: Records, columns: Sequence[int], hints: Mapping[int, Hint] = NO_HINTS) -> TableBatch:
        """The columns of a record batch."""
        del hints  # types are what they are
        start, records = piece
        done = (self.total_bytes or 0) * (start + len(records)) // (self.rows or 1)
        found = {column: records.column(self._names[column]) for column in columns}
        return typed_batch(self, found, start, len(records), done)

    def lengths(self, columns: Sequence[int]) -> dict[int, int]:
        """How long the first list of each of some columns is, 1 where that is missing. UsageError: it is empty."""
        names = [self._names[column] for column in columns]
        found = dict.fromkeys(columns, 1)
        records = next((records for records in self._read(names, 1) if len(records)), None) if names else None
        if records is not None:
            for column, name in zip(columns, names, strict=True):
                found[column] = first_length(records.column(name), name, self.name)
        return found


def index_columns(schema: Any, place: str) -> list[str]:
    """The columns of a schema that were the index of a data frame, by pandas' metadata and by the names that pyarrow
    and Dask give to an index without one, as other writers keep the names but not the metadata.

    Raises DataError for metadata that cannot be read.
    """
    try:
        index = (schema.pandas_metadata or {}).get("index_columns", [])
        named = {one for one in index if isinstance(one, str)}  # a range is described, and is no column
    except (ValueError, TypeError, AttributeError, RecursionError) as error:
        raise DataError(f"{place}: pandas' metadata cannot be read ({error}); write it again") from error
    return [name for name in schema.names if name in named or UNNAMED_INDEX.fullmatch(name)]


def typed_batch(table: TypedTable, columns: Mapping[int, Any], start: int, rows: int, done: int) -> TableBatch:
    """The batch of such columns of rows, of which the first is number ``start``. Raises BadRow for bytes that are no
    text: Arrow believes a file that says they are.
    """
    place = numbered(table.name, start)
    found = {position: simplify_array(column) for position, column in columns.items()}
    for position, column in found.items():
        bad = first_not_utf8(column) if is_text(column.type) else None
        if bad is not None:
            raise BadRow(f"{place(bad)}, {table.named(position)}: found a text that is not UTF-8; correct the file")
    return TableBatch(found, rows, table.name, place, done)


def simplify_type(kind: Any) -> Any:
    """A type of Arrow's as the one that ``simplify_array`` makes of it."""
    import pyarrow as pa

    if pa.types.is_dictionary(kind):
        return pa.dictionary(kind.index_type, simplify_type(kind.value_type), kind.ordered)
    return pa.large_string() if pa.types.is_string_view(kind) else kind


def simplify_array(column: Any) -> Any:
    """A column as one array; views of texts, which not all of Arrow's functions take, as texts, and nothing as well."""
    import pyarrow as pa

    if isinstance(column, pa.ChunkedArray):
        column = column.combine_chunks()
    kind = pa.string() if pa.types.is_null(column.type) else simplify_type(column.type)
    if kind == column.type:
        return column
    if pa.types.is_dictionary(kind):
        return pa.DictionaryArray.from_arrays(column.indices, simplify_array(column.dictionary))
    return column.cast(kind)


_BUFFER_BYTES = 2**18  #: per column
_FETCH_BYTES = 2**22  #: of an object, at a time
_GROUP_BYTES = 2**26  #: of all columns of a row group of an object, whatever its size, twice
_LIST_BYTES = 16  # of a number in a list while it is read: its own bytes, and float64
_TIGHTLY = 100  # times that a row group is smaller than its values; of data that vary it is 10 or less


@dataclass(frozen=True, slots=True)
class _Run:
    """Row groups that are read at once: the number of their first row, how many there are, and the file's end.

    content: of an object, whose bytes of these groups are being fetched.
    """

    start: int
    rows: int
    groups: list[int]
    metadata: Any
    content: ObjectBytes | None


class ParquetTable(TypedTable):
    """One file, perhaps without rows."""

    def __init__(self, path: FilePath) -> None:
        self.path = path
        self.total_bytes = file_bytes(path)
        with _open_parquet(path) as file:
            schema = file.schema_arrow
            types = [simplify_type(field.type) for field in schema]
            super().__init__(str(path), [str(name) for name in schema.names], types, index_columns(schema, str(path)))
            self.rows = int(file.metadata.num_rows)

    def lengths(self, columns: Sequence[int]) -> dict[int, int]:
        """How long the first list of each of some columns is, 1 where that is missing. UsageError: it is empty."""
        if not columns:
            return {}
        found = dict.fromkeys(columns, 1)
        names = [self._names[column] for column in columns]
        with _open_parquet(self.path) as file:
            group = next(self._groups(file, names), None)
            batches = [] if group is None else file.iter_batches(batch_size=1, row_groups=[group[0]], columns=names)
            first = next(iter(batches), None)
        if first is not None:
            for column, name in zip(columns, names, strict=True):
                found[column] = first_length(first.column(name), name, self.name)
        return found

    def pieces(self, columns: Sequence[int]) -> Iterator[Records | _Run]:
        """Row groups that make a batch, to be read in any thread, and of larger ones the record batches.

        The sizes of each group are checked before it is read.
        """
        names = [self._names[column] for column in columns]
        size, start = self._batch_rows(columns), 0
        content = ObjectBytes(self.path) if isinstance(self.path, ObjectPath) else None
        with _open_parquet(self.path, content=content) as file:
            for groups, rows in _group_row_groups(self._groups(file, names), size):
                spans = [] if content is None else _column_spans(file, groups, names)
                if rows <= size:
                    yield _Run(start, rows, groups, file.metadata, self._fetch(spans))
                    start += rows
                else:  # Arrow reads its columns in threads
                    if content is not None:
                        content.expect(spans, _range_bytes(spans), 1)
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

    def _groups(self, file: Any, names: Collection[str]) -> Iterator[tuple[int, int]]:
        """The number and the rows of each row group that has some. Raises DataError for one that memory does not hold.

        Of lists all values may be read at once. Pages are unpacked one at a time, but nothing says how large they are:
        a group larger than memory is read, unless it was packed as tightly as only gigabytes of one value can be.
        """
        paths = [file.schema.column(leaf).path.split(".")[0] for leaf in range(len(file.schema))]
        tops = {name.split(".")[0] for name in names}
        lists = {name.split(".")[0]: name for name, kind in self._every if is_list(kind) and name in names}
        leaves = [leaf for leaf, path in enumerate(paths) if path in tops]
        for number in range(file.metadata.num_row_groups):
            group = file.metadata.row_group(number)
            rows, place, listed, unpacked, packed = group.num_rows, f"{self.path}, row group {number}", 0, 0, 0
            if not rows:
                continue
            for leaf in leaves:
                column = group.column(leaf)
                unpacked, packed = unpacked + column.total_uncompressed_size, packed + column.total_compressed_size
                if paths[leaf] in lists:
                    listed += column.num_values
                    if column.num_values > MOST_FEATURES * rows:
                        raise DataError(
                            f"{place}, column {lists[paths[leaf]]!r}: found {column.num_values:,} values in {rows:,} "
                            f"rows, expected at most {MOST_FEATURES:,} a row; make the lists shorter"
                        )
            if min(rows, unpacked, packed, listed) < 0:
                raise DataError(f"{place}: not a whole Parquet file: found a negative size; fetch or write it again")
            needed = _LIST_BYTES * listed + (unpacked if unpacked > _TIGHTLY * packed else 0)
            what = "its pages" + (f" and lists of {listed:,} numbers" if listed else "")
            refuse_beyond_memory(needed, f"{place}: {what}", "write the file in smaller row groups and pages")
            yield number, rows

    def _read(self, run: _Run, columns: Sequence[int]) -> Records:
        with _open_parquet(self.path, run.metadata, run.content) as file:
            names = [self._names[column] for column in columns]
            table = file.read_row_groups(run.groups, columns=names, use_threads=False)
        self._check_rows(len(table), run.rows)
        return run.start, table

    def _fetch(self, spans: Sequence[tuple[int, int]]) -> ObjectBytes | None:
        """The content of an object, parts of which are being fetched from now on; None of a file."""
        if not isinstance(self.path, ObjectPath):
            return None
        found = ObjectBytes(self.path)
        found.expect(_merged(spans), _FETCH_BYTES, None)
        return found

    def _check_rows(self, found: int, expected: int) -> None:
        if found != expected:
            raise DataError(f"{self.name}: found {found:,} rows, expected {expected:,} by its end; write it again")


def _column_spans(file: Any, groups: Sequence[int], names: Collection[str]) -> list[tuple[int, int]]:
    """Where some columns of row groups lie in a file: [start, stop) of each, in order."""
    tops, found = {name.split(".")[0] for name in names}, list[tuple[int, int]]()
    for number in groups:
        group = file.metadata.row_group(number)
        for leaf in range(group.num_columns):
            column = group.column(leaf)
            if column.path_in_schema.split(".")[0] in tops:
                starts = [at for at in (column.dictionary_page_offset, column.data_page_offset) if at]
                start = min(starts, default=0)
                found.append((start, start + column.total_compressed_size))
    return sorted(found)


def _merged(spans: Sequence[tuple[int, int]]) -> list[tuple[int, int]]:
    """Spans, as one where little lies between them."""
    found = list[tuple[int, int]]()
    for start, stop in spans:
        if found and start - found[-1][1] <= _BUFFER_BYTES:
            found[-1] = (found[-1][0], max(stop, found[-1][1]))
        else:
            found.append((start, stop))
    return found


def _range_bytes(spans: Sequence[tuple[int, int]]) -> int:
    """Bytes to fetch at a time of each of some columns that are read in turns."""
    return min(_FETCH_BYTES, max(_BUFFER_BYTES, _GROUP_BYTES // len(spans)))


def _group_row_groups(groups: Iterator[tuple[int, int]], size: int) -> Iterator[tuple[list[int], int]]:
    """Row groups by their numbers, small ones together up to so many rows; and their rows."""
    numbers, rows = list[int](), 0
    for number, found in groups:
        if numbers and rows + found > size:
            yield numbers, rows
            numbers, rows = [], 0
        numbers.append(number)
        rows += found
    if numbers:
        yield numbers, rows


@contextmanager
def _open_parquet(path: FilePath, metadata: Any = None, content: ObjectBytes | None = None) -> Iterator[Any]:
    """The file for reading in small pieces; pyarrow's complaints become DataError with the name of the file.

    metadata: what the end of the file says, where it has been read. content: of an object, which is closed at the end.
    """
    import pyarrow as pa
    import pyarrow.parquet as pq

    try:
        # By default whole row groups are read ahead: 600 MB for 600 MB of rows where this takes 130.
        # pyarrow takes a text for UTF-8, which the name of a file need not be.
        with ExitStack() as opened:
            if isinstance(path, ObjectPath):
                stream = opened.enter_context(pa.PythonFile(content or ObjectBytes(path), mode="r"))
            else:
                stream = opened.enter_context(pa.OSFile(os.fsencode(path)))
            options = {"metadata": metadata, "pre_buffer": False, "buffer_size": _BUFFER_BYTES}
            yield opened.enter_context(pq.ParquetFile(stream, **options))
    except pa.ArrowMemoryError as error:  # the size that the header of a page gives
        raise DataError(
            f"{path}: pages too large for memory, or a damaged file ({error}): write it again in smaller pages"
        ) from error
    except (pa.ArrowException, OSError, UnicodeDecodeError) as error:
        raise DataError(f"{path}: not a whole Parquet file ({error}): fetch or write it again") from error


def parquet_rows(path: FilePath) -> int:
    """The rows of a file, by its end. Raises DataError."""
    with _open_parquet(path) as file:
        return int(file.metadata.num_rows)
