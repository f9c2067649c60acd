"""Tables in files, CSV and Parquet, as rows; and what is to be said of their columns, when they cannot be read so."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from itertools import islice
from pathlib import Path
from typing import TYPE_CHECKING

from coremargin.data.sources.base import (
    OnProgress,
    Progress,
    RowSource,
    SourceOptions,
    is_label_name,
    refuse_options,
    shorten,
)
from coremargin.data.sources.chain import Chain
from coremargin.data.sources.delimited import DelimitedFile
from coremargin.data.sources.delimited_lines import DelimitedLines
from coremargin.data.sources.text import is_number
from coremargin.data.tables.batches import BatchTable
from coremargin.data.tables.chain import ChainedTable
from coremargin.data.tables.delimited import DelimitedTable
from coremargin.data.tables.frames import FrameTable
from coremargin.data.tables.parquet import ParquetTable
from coremargin.data.tables.partitions import partitioned
from coremargin.data.tables.rows import TableRows
from coremargin.data.tables.table import hidden_of
from coremargin.errors import NoRows, UsageError

if TYPE_CHECKING:
    from coremargin.data.sources.files import Files
    from coremargin.data.sources.handed import AnyTable
    from coremargin.data.tables.table import OnRows, Table

_LOOKED_AT = 1000  # lines that show whether a text holds numbers only
_OF_TEXT = ("label", "drop", "delimiter", "header", "weights", "key", "words")
_OF_PARQUET = ("label", "drop", "weights", "key", "words")

Kinds = Sequence[tuple[Path, str]]


def open_tables(files: Files, options: SourceOptions, on_progress: OnProgress | None) -> RowSource:
    """The rows of files of CSV or Parquet. Raises ColumnsUnclear for columns that need a word."""
    kinds = files.kinds
    for path, kind in kinds:
        if kind == "csv":
            refuse_options(options, f"{path}, a delimited text", knows=_OF_TEXT)
        else:
            refuse_options(options, f"{path}, a Parquet file", knows=_OF_PARQUET)
    found = {kind for _, kind in kinds}
    if len(found) > 1:
        return _one_by_one(files, options, on_progress)
    if found == {"csv"}:
        lines = _lines(kinds, options)
        if not _names_in_folders(files, options) and _numbers_only(lines, options):
            return _of_numbers(lines, options)
        texts = _chained([DelimitedTable(one) for one in lines], files, options)
        return TableRows(texts, options, _shown(on_progress), kept=files.kept)
    return TableRows(_parquet(files, options), options, _shown(on_progress))


def _parquet(files: Files, options: SourceOptions) -> Table:
    """Files of Parquet as one table; those without rows are left out. Raises NoRows where none has any."""
    found = [ParquetTable(path) for path, _ in files.kinds]
    kept = [at for at, table in enumerate(found) if table.rows]
    if not kept:
        raise NoRows(f"{found[0].name}: no rows: expected at least one")
    for table in found:
        table.reveal(options.names)
    there = replace(
        files, kinds=tuple(files.kinds[at] for at in kept), partitions=tuple(files.partitions[at] for at in kept)
    )
    return _chained([found[at] for at in kept], there, options)


def _names_in_folders(files: Files, options: SourceOptions) -> bool:
    """Whether columns come from the names of folders, or could hold the labels."""
    return any(
        one.below or any(name in options.names or is_label_name(name) for name in one.above) for one in files.partitions
    )


def open_given(table: AnyTable, options: SourceOptions, on_progress: OnProgress | None) -> RowSource:
    """The rows of a table from Python. Raises ColumnsUnclear for columns that need a word."""
    refuse_options(options, f"a {table.name}", knows=_OF_PARQUET)
    table.reveal(options.names)
    if isinstance(table, FrameTable):
        table.refuse_numbers(options)
    if isinstance(table, BatchTable) and table.paired:
        if options.unlabelled or options.label is not None:
            raise UsageError(f"{table.name}: labels come with the rows: leave --label, --labels and --unlabelled out")
        options = replace(options, label=table.width - 1)
    _refuse_label_elsewhere(table, (), options)
    return TableRows(table, options, _shown(on_progress))


def open_table(files: Files, options: SourceOptions) -> Table | None:
    """Files of CSV, or of Parquet, as one table; None for files of both, and of other kinds."""
    found = {kind for _, kind in files.kinds}
    if found == {"csv"}:
        return _chained([DelimitedTable(one) for one in _lines(files.kinds, options)], files, options)
    return _parquet(files, options) if found == {"parquet"} else None


def _lines(kinds: Kinds, options: SourceOptions) -> list[DelimitedLines]:
    """Files of text; one without names, as long as the first that has some, has the names of that one.

    Raises UsageError where only a later one seems to have names: its first line may as well be a row.
    """
    lines = [DelimitedLines(path, options.delimiter, options.header, options.names) for path, _ in kinds]
    first = lines[0]
    for one in lines[1:]:
        if one.names is None and one.width == first.width:
            one.names = first.names
        elif one.names is not None and first.names is None:
            raise UsageError(
                f"{one.name}: the first line seems to name columns, that of {first.name} does not: say --header where "
                "all files name them, --no-header where none does, or ingest them apart, with --append"
            )
    return lines


def _chained(tables: Sequence[Table], files: Files, options: SourceOptions) -> Table:
    """Files as one table, with the columns that their folders name."""
    drop = [str(column) for column in options.drop]
    parts = partitioned(tables, files.partitions, options.names, drop)
    found = parts[0] if len(parts) == 1 else ChainedTable(parts, drop)
    added = [name for name in found.names or () if name not in (tables[0].names or ())]
    _refuse_label_elsewhere(found, added, options)
    return found


def _refuse_label_elsewhere(table: Table, added: Sequence[str], options: SourceOptions) -> None:
    """Raise UsageError where nothing says which column holds the labels, and it may be another than the last one.

    added: columns that come from the names of folders. Hidden columns may be called like a label, too.
    """
    names = [name for name in table.names or () if name not in options.drop]
    if options.label is not None or options.unlabelled or options.columns is not None or any(map(is_label_name, names)):
        return
    hidden = [name for name in hidden_of(table) if is_label_name(name)]
    if hidden:
        name, what = hidden[0], hidden_of(table)[hidden[0]]
        raise UsageError(
            f"{table.name}: no column is called like a label, but {name!r} ({what}) is: say --label {name} if it "
            "holds the labels, or name the column that does"
        )
    own = [name for name in names if name not in added]
    if len(own) < len(names):
        last = f"{own[-1]!r}, the last one of the file, or " if own else ""
        raise UsageError(
            f"{table.name}: no column is called like a label: it may be {last}one that folders name "
            f"({shorten(tuple(added))}); name it with --label"
        )


def _one_by_one(files: Files, options: SourceOptions, on_progress: OnProgress | None) -> RowSource:
    """Files of both kinds, whose columns are all numbers: the first one says which they are."""
    kinds = files.kinds
    if options.words:
        raise UsageError(
            f"{kinds[0][0]}: is {kinds[0][1]}, other files are not: ingest them apart, with --append, where columns "
            "are more than numbers"
        )
    parts: list[RowSource] = []
    for alone in files.one_by_one():
        known = parts[0].columns if parts else options.columns
        one = replace(options, columns=known, columns_of=parts[0].name if parts else options.columns_of)
        kept = replace(one, delimiter=None, header=None) if alone.kinds[0][1] == "parquet" else one
        parts.append(open_tables(alone, kept, on_progress))
    return Chain(parts)


def _numbers_only(lines: Sequence[DelimitedLines], options: SourceOptions) -> bool:
    """Whether all features seem to be numbers: then NumPy reads them, which is faster, and refuses what is none."""
    if options.words or (options.columns is not None and not options.columns.plain):
        return False
    if options.columns is not None:
        return True
    return all(_looks_like_numbers(one, options) for one in lines)


def _looks_like_numbers(lines: DelimitedLines, options: SourceOptions) -> bool:
    from coremargin.data.sources.choice import choose

    chosen = choose(lines.names, lines.width, options, lines.name, lines.named).features
    first = next(lines.rows()).lines
    for line in islice(first, _LOOKED_AT):
        fields = lines.fields(line)
        if len(fields) == lines.width and not all(is_number(fields[column]) for column in chosen):
            return False
    return True


def _of_numbers(lines: Sequence[DelimitedLines], options: SourceOptions) -> RowSource:
    parts = [DelimitedFile(lines[0], options)]
    for other in lines[1:]:
        known = options.columns or parts[0].columns
        parts.append(
            DelimitedFile(other, replace(options, columns=known, columns_of=options.columns_of or parts[0].name))
        )
    return Chain(parts)


def _shown(on_progress: OnProgress | None) -> OnRows | None:
    if on_progress is None:
        return None

    def show(rows: int, done: int, total: int | None) -> None:
        on_progress(Progress("reading columns", rows, done, total))

    return show
