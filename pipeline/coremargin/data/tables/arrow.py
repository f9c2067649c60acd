"""Arrow's tables, and what gives itself as one, as tables: what lies in memory, or can be read again where it lies."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, Any

from coremargin.data.sources.parquet_columns import first_length, first_undecoded
from coremargin.data.tables.table import NO_HINTS, Hint, TableBatch, TypedTable, numbered
from coremargin.data.tables.values import is_text
from coremargin.errors import BadRow, DataError

if TYPE_CHECKING:
    from coremargin.data.tables.types import Records

UNNAMED_INDEX = re.compile(r"__index_level_\d+__|__null_dask_index__")  #: what pyarrow and Dask call such columns
#: Record batches of some columns, by name, in order; of so many rows where it can be said.
Read = Callable[[Sequence[str], int], Iterator[Any]]


class ArrowTable(TypedTable):
    """Rows that are given as record batches as often as they are asked for. rows: None when only reading tells."""

    def __init__(self, name: str, schema: Any, rows: int | None, read: Read, total_bytes: int | None = None) -> None:
        types = [plain_type(kind) for kind in schema.types]
        super().__init__(name, [str(one) for one in schema.names], types, index_of(schema, name))
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


def index_of(schema: Any, place: str) -> list[str]:
    """The columns of a schema that were the index of a data frame, by pandas' metadata and by the names that pyarrow
    and Dask give to an index without one, as other writers keep the names but not the metadata.

    Raises DataError for metadata that cannot be read.
    """
    try:
        said = (schema.pandas_metadata or {}).get("index_columns", [])
        named = {one for one in said if isinstance(one, str)}  # a range is described, and is no column
    except (ValueError, TypeError, AttributeError, RecursionError) as error:
        raise DataError(f"{place}: pandas' metadata cannot be read ({error}); write it again") from error
    return [name for name in schema.names if name in named or UNNAMED_INDEX.fullmatch(name)]


def typed_batch(table: TypedTable, columns: Mapping[int, Any], start: int, rows: int, done: int) -> TableBatch:
    """The batch of such columns of rows, of which the first is number ``start``. Raises BadRow for bytes that are no
    text: Arrow believes a file that says they are.
    """
    place = numbered(table.name, start)
    found = {position: plain(column) for position, column in columns.items()}
    for position, column in found.items():
        bad = first_undecoded(column) if is_text(column.type) else None
        if bad is not None:
            raise BadRow(f"{place(bad)}, {table.named(position)}: found a text that is not UTF-8; correct the file")
    return TableBatch(found, rows, table.name, place, done)


def plain_type(kind: Any) -> Any:
    """A type of Arrow's as the one that ``plain`` makes of it."""
    import pyarrow as pa

    if pa.types.is_dictionary(kind):
        return pa.dictionary(kind.index_type, plain_type(kind.value_type), kind.ordered)
    return pa.large_string() if pa.types.is_string_view(kind) else kind


def plain(column: Any) -> Any:
    """A column as one array; views of texts, which not all of Arrow's functions take, as texts, and nothing as well."""
    import pyarrow as pa

    if isinstance(column, pa.ChunkedArray):
        column = column.combine_chunks()
    kind = pa.string() if pa.types.is_null(column.type) else plain_type(column.type)
    if kind == column.type:
        return column
    if pa.types.is_dictionary(kind):
        return pa.DictionaryArray.from_arrays(column.indices, plain(column.dictionary))
    return column.cast(kind)
