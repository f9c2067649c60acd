"""Objects of Python that are tables: of pandas, Arrow, Hugging Face, and what gives itself to Arrow (polars, DuckDB).

None of their packages is imported: an object says by its class where it comes from.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any

import numpy as np
from msgspec.structs import replace

from coremargin.data.sources.base import find_not_finite
from coremargin.data.tables.arrow import ArrowTable
from coremargin.data.tables.arrow_arrays import decode_dictionary, is_boolean, is_numeric, null_mask, numpy_values
from coremargin.data.tables.frames import FrameTable
from coremargin.data.tables.values import first_rounded_integer
from coremargin.errors import BadRow, NoRows, UsageError
from coremargin.formats.column_kinds import LONGEST_NAME, Numbers
from coremargin.formats.columns import ColumnsRecord

_AHEAD = {"batch_readahead": 2, "fragment_readahead": 1}  # a Dataset reads 64 batches ahead by default


def table_of(value: Any, name: str | None = None) -> FrameTable | ArrowTable | None:
    """A table that can be read more than once; None: this is none. name: for messages. Raises UsageError, DataError."""
    table = _table_of(value, name or type(value).__name__)
    if table is not None and table.rows == 0 and name is None:
        raise NoRows(f"{table.name}: no rows: expected at least one")
    return table


def table_now(value: Any, name: str) -> FrameTable | ArrowTable:
    """The same, perhaps without rows, of all that gives itself to Arrow: what can be read once is read. UsageError."""
    import pyarrow as pa

    table = table_of(value, name)
    if table is not None:
        return table
    try:
        return ArrowTable.of(name, pa.table(value))
    except (pa.ArrowException, TypeError, ValueError) as error:
        raise _no_table(name, error) from error


def _no_table(name: str, error: Exception) -> UsageError:
    return UsageError(f"{name}: found no table of columns, expected one ({error}); give a table of Arrow")


def _table_of(value: Any, name: str) -> FrameTable | ArrowTable | None:
    if is_a(value, "pandas", "DataFrame"):
        return FrameTable(value, name)
    if is_a(value, "polars", "LazyFrame"):
        raise UsageError(f"{name}: found a query that has not run, expected its rows; call .collect() first")
    if is_a(value, "datasets", "DatasetDict"):
        raise UsageError(f"{name}: found the splits {', '.join(map(repr, value))}, expected one of them; give it alone")
    if is_a(value, "datasets", "Dataset"):
        return _table_of_hugging_face(value, name)
    if is_a(value, "pyarrow", "Dataset"):
        return ArrowTable(
            name,
            value.schema,
            int(value.count_rows()),
            lambda names, size: iter(value.to_batches(columns=list(names), batch_size=size, **_AHEAD)),
        )
    if hasattr(value, "__arrow_c_stream__") and hasattr(value, "__len__"):  # a stream without length may be read once
        return _table_of_stream(value, name)
    return None


def holds_numbers(value: Any) -> bool | None:
    """Whether a table is in memory and all its columns are numbers or booleans, so that others read it as an array.

    None: it is no table. Raises as ``table_of`` does.
    """
    if is_a(value, "pandas", "DataFrame") and all(getattr(kind, "kind", "O") in "biufc" for kind in value.dtypes):
        return True  # whatever the names are
    table = _table_of(value, type(value).__name__)
    if table is None:
        return None
    elsewhere = is_a(value, "datasets", "Dataset") or is_a(value, "pyarrow", "Dataset")
    return not elsewhere and all(is_numeric(kind) or is_boolean(kind) for kind in table.types or ())


def matrix_of(value: Any, name: str) -> tuple[np.ndarray, ColumnsRecord] | None:
    """A table of numbers in memory as a matrix (n, d), and its columns; None: it is none, or has other columns.

    Nullable dtypes of pandas and those of Arrow are NumPy's here, and integers beyond 2^53 are refused among floats.
    Raises BadRow for a value that is missing or not finite, by its row and column; as ``table_of`` does, too.
    """
    if not holds_numbers(value):
        return None
    table = table_now(value, name)
    found = table.plain_matrix() if isinstance(table, FrameTable) else None
    if found is None:
        found = _stack_columns(table)
    bad = find_not_finite(found, found.dtype) if found.dtype.kind == "f" else None
    if bad is not None:
        row, column, what = bad
        raise BadRow(f"{name}, row {row}, {table.named(column)}: found {what}")
    return found, _number_record(table)


def number_columns(value: Any, name: str, y: Any = None) -> ColumnsRecord | None:
    """The columns of a table of numbers in memory; None: it is none. y: its labels, which say their name or none."""
    return with_label_name(_number_record(table_now(value, name)), y) if holds_numbers(value) else None


def _number_record(table: FrameTable | ArrowTable) -> ColumnsRecord:
    named = zip(table.names or (), table.types or (), strict=True)
    return ColumnsRecord(columns=[Numbers(name=name, boolean=is_boolean(kind)) for name, kind in named])


def _stack_columns(table: FrameTable | ArrowTable) -> np.ndarray:
    """The columns of a table side by side, in the type that holds all of them."""
    every, parts = range(table.width), list[np.ndarray]()
    for piece in table.pieces(every):
        batch = table.batch(piece, every)
        columns = list[np.ndarray]()
        for at in every:
            column = decode_dictionary(batch.columns[at])
            missing = null_mask(column)
            if missing.any():
                place = f"{batch.place(int(np.argmax(missing)))}, {table.named(at)}"
                raise BadRow(f"{place}: found no value, expected a number; fill it in, or remove the row")
            columns.append(numpy_values(column))
        parts.append(np.column_stack(columns))
        for at in every if parts[-1].dtype.kind == "f" else ():
            row = first_rounded_integer(batch.columns[at])
            if row is not None:
                raise BadRow(
                    f"{batch.place(row)}, {table.named(at)}: found {batch.columns[at][row]}, expected whole numbers up "
                    "to 2^53, which float64 holds; convert the column"
                )
    return np.concatenate(parts) if parts else np.empty((0, table.width))


def without_index(value: Any, name: str) -> Any:
    """A table of numbers in memory without the columns that were an index, with its names as scikit-learn finds them.

    What is no such table stays as it is. Raises BadRow for a value that is missing in a column of Arrow's or of a
    nullable dtype, by its row and column.
    """
    if not holds_numbers(value):
        return value
    table = table_now(value, name)
    if isinstance(table, FrameTable):
        if table.plain_matrix() is None:
            _stack_columns(table)
        return table.frame
    import pyarrow as pa

    _stack_columns(table)
    return pa.table(value).select(list(table.names or ()))


def is_whole_table(value: Any) -> bool:
    """Whether a value is a table that can be read more than once, no stream and no batches. Raises as ``table_of``."""
    return is_a(value, "pandas", "DataFrame") or _table_of(value, type(value).__name__) is not None


def is_a(value: Any, package: str, kind: str) -> bool:
    """Whether a value is of a class of this name of a package, or of one made of it."""
    return any(one.__name__ == kind and one.__module__.split(".")[0] == package for one in type(value).__mro__)


def reader_of(value: Any, name: str) -> Any:
    """Arrow's reader of record batches of what gives itself as a stream. UsageError: it is no table."""
    import pyarrow as pa

    try:
        return pa.RecordBatchReader.from_stream(value)
    except (pa.ArrowException, TypeError, ValueError) as error:
        raise _no_table(name, error) from error


def _table_of_stream(value: Any, name: str) -> ArrowTable:
    """An object that gives its stream more than once."""
    import pyarrow as pa

    if isinstance(value, pa.RecordBatch):
        value = pa.Table.from_batches([value])
    if isinstance(value, pa.Table):
        return ArrowTable.of(name, value)

    def read(names: Sequence[str], _: int) -> Iterator[Any]:
        for records in reader_of(value, name):
            yield records.select(list(names))

    return ArrowTable(name, reader_of(value, name).schema, len(value), read)


def _table_of_hugging_face(dataset: Any, name: str) -> ArrowTable:
    """A Dataset in its own order: what was selected, sorted and shuffled is so by its indices."""
    plain = dataset.with_format("arrow")

    def read(names: Sequence[str], size: int) -> Iterator[Any]:
        chosen = plain.select_columns(list(names))
        for start in range(0, len(chosen), size):
            yield from chosen[start : start + size].to_batches()

    return ArrowTable(name, dataset.features.arrow_schema, len(dataset), read)


def with_label_name(columns: ColumnsRecord, labels: Any) -> ColumnsRecord:
    """Columns with the name of labels that do not come with them, if they have one: a Series that was a column.

    Rows that come later may still have that column.
    """
    name = getattr(labels, "name", None)
    fits = isinstance(name, str) and 0 < len(name) <= LONGEST_NAME and hasattr(labels, "to_numpy")
    if not fits or columns.label is not None or not columns.named or name in columns.names:
        return columns
    return replace(columns, label=name)
