"""Folders that are called column=value, as Hive, Spark and pyarrow write them: columns in the paths of files."""

from __future__ import annotations

import os
from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any
from urllib.parse import unquote

from coremargin.data.sources.object_path import ObjectPath
from coremargin.data.tables.table import NO_HINTS, Hint, Table
from coremargin.errors import DataError

if TYPE_CHECKING:
    from coremargin.data.sources.paths import FilePath
    from coremargin.data.tables.table import TableBatch


@dataclass(frozen=True, slots=True)
class Partition:
    """What the folders of a file say, by column; None is a missing value.

    below: of the folders below the one that was named, or that all named files share; these are columns. above: of the
    folders above it, which are columns only where an option names them, as in pandas and pyarrow.
    """

    below: Mapping[str, str | None]
    above: Mapping[str, str | None]


def read_partition(path: FilePath, base: Sequence[str]) -> Partition:
    """What the folders of a file say, those below the folder with these parts, and those above it.

    pyarrow decodes the names. Raises DataError: a column twice, without a name, or not UTF-8.
    """
    folders, depth = folders_of(path), len(base)
    below, above = _folder_values(path, folders[depth:]), _folder_values(path, folders[:depth])
    return Partition(below, {name: value for name, value in above.items() if name not in below})


def folders_of(path: FilePath) -> tuple[str, ...]:
    """The parts of a path above its name, from the root, without . and .., whatever links there are."""
    return path.folders if isinstance(path, ObjectPath) else Path(os.path.abspath(path)).parent.parts


def _folder_values(path: FilePath, folders: Sequence[str]) -> dict[str, str | None]:
    found = [folder for folder in folders if "=" in folder]
    if not found:
        return {}
    import pyarrow as pa
    import pyarrow.dataset as ds

    names = [unquote(folder.split("=", 1)[0]) for folder in found]
    twice = next((name for name in names if names.count(name) > 1 or not name), None)
    if twice is not None:
        raise DataError(
            f"{path}: its folders name the column {twice!r}, expected a name, and each once; rename the folders"
        )
    try:
        hive = ds.HivePartitioning(pa.schema([(name, pa.string()) for name in names]))
        keys = ds.get_partition_keys(hive.parse("/".join([*found, "file"])))
    except (pa.ArrowException, UnicodeError) as error:
        raise DataError(f"{path}: its folders cannot be read as columns: {error}; rename them") from error
    return {name: keys.get(name) for name in names}


class PartitionedTable(Table):
    """A table, with the columns in the path of its file behind its own.

    types: of the columns to add, Arrow's, by name; their values are those of ``partition``. Raises DataError for a
    column that the file has, too.
    """

    def __init__(self, table: Table, partition: Partition, types: Mapping[str, Any], drop: Collection[str]) -> None:
        if table.names is None:
            raise DataError(
                f"{table.name}: its folders name columns ({', '.join(map(repr, types))}), but no line of the file "
                "does; add the names"
            )
        both = next((name for name in types if name in table.names), None)
        if both is not None and both not in drop:
            raise DataError(
                f"{table.name}: the column {both!r} is in the file and in the names of its folders, expected one of "
                "them; rename the folders or the column"
            )
        self._table, self._width = table, table.width
        self._added = [name for name in types if name not in table.names]
        self.name, self.rows, self.total_bytes = table.name, table.rows, table.total_bytes
        self.names = (*table.names, *self._added)
        self.width = len(self.names)
        own = [types[name] for name in self._added]
        self.types = None if table.types is None else [*table.types, *own]
        values = {**partition.above, **partition.below}
        self._values = [_scalar(values.get(name), types[name], text=table.types is None) for name in self._added]
        above = {name: "from a folder above" for name in partition.above if name not in self.names}
        self.hidden = {**above, **table.hidden}

    def pieces(self, columns: Sequence[int]) -> Iterator[Any]:
        """Those of the table."""
        return self._table.pieces(self._own(columns))

    def batch(self, piece: Any, columns: Sequence[int], hints: Mapping[int, Hint] = NO_HINTS) -> TableBatch:
        """A batch of the table, with the values of its folders."""
        import pyarrow as pa

        batch = self._table.batch(
            piece, self._own(columns), {at: hint for at, hint in hints.items() if at < self._width}
        )
        found = {
            at: batch.columns[at] if at < self._width else pa.repeat(self._values[at - self._width], batch.rows)
            for at in columns
        }
        return replace(batch, columns=found)

    def lengths(self, columns: Sequence[int]) -> Mapping[int, int]:
        """By the table: folders name no lists."""
        return self._table.lengths(columns)

    def _own(self, columns: Sequence[int]) -> list[int]:
        """Columns of the table, at least one, which tells how many rows there are."""
        return [at for at in columns if at < self._width] or [0]


def add_partition_columns(
    tables: Sequence[Table], partitions: Sequence[Partition], requested: Collection[str], drop: Collection[str]
) -> list[Table]:
    """The tables with the columns of their folders: those below, and those above that are requested by name.

    Columns are whole numbers of 32 bits where all their values are, as pyarrow infers them, else texts.
    """
    names = list(dict.fromkeys(name for one in partitions for name in one.below))
    names += [name for name in dict.fromkeys(name for one in partitions for name in one.above) if name in requested]
    if not any(one.below or one.above for one in partitions):
        return list(tables)
    own = {name for table in tables for name in table.names or ()}
    names = [name for name in names if name not in own or any(name in one.below for one in partitions)]
    types = {name: _type([{**one.above, **one.below}.get(name) for one in partitions]) for name in names}
    return [PartitionedTable(table, one, types, drop) for table, one in zip(tables, partitions, strict=True)]


def _type(values: Sequence[str | None]) -> Any:
    import pyarrow as pa

    try:
        pa.array(values, pa.string()).cast(pa.int32())
    except pa.ArrowInvalid:
        return pa.string()
    return pa.string() if all(value is None for value in values) else pa.int32()


def _scalar(value: str | None, kind: Any, *, text: bool) -> Any:
    import pyarrow as pa

    found = pa.scalar(value, pa.string()).cast(kind)
    return found.cast(pa.string()) if text else found
