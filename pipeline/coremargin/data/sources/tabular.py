"""Tables in files, CSV and Parquet, as rows; and what is to be said of their columns, when they cannot be read so."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from itertools import islice
from pathlib import Path
from typing import TYPE_CHECKING

from coremargin.data.sources.base import OnProgress, Progress, RowSource, SourceOptions, refuse_options
from coremargin.data.sources.chain import Chain
from coremargin.data.sources.delimited import DelimitedFile
from coremargin.data.sources.delimited_lines import DelimitedLines
from coremargin.data.sources.text import is_number
from coremargin.data.tables.batches import BatchTable
from coremargin.data.tables.chain import ChainedTable
from coremargin.data.tables.delimited import DelimitedTable
from coremargin.data.tables.frames import FrameTable
from coremargin.data.tables.parquet import ParquetTable
from coremargin.data.tables.rows import TableRows
from coremargin.errors import UsageError

if TYPE_CHECKING:
    from coremargin.data.sources.handed import AnyTable
    from coremargin.data.tables.kept import KeptBatches
    from coremargin.data.tables.table import OnRows, Table

_LOOKED_AT = 1000  # lines that show whether a text holds numbers only
_OF_TEXT = ("label", "drop", "delimiter", "header", "weights", "key", "words")
_OF_PARQUET = ("label", "drop", "weights", "key", "words")

Kinds = Sequence[tuple[Path, str]]


def open_tables(
    kinds: Kinds, options: SourceOptions, on_progress: OnProgress | None, kept: KeptBatches | None = None
) -> RowSource:
    """The rows of files of CSV or Parquet. kept: takes texts that are parsed twice else.

    Raises ColumnsUnclear for columns that need a word.
    """
    for path, kind in kinds:
        if kind == "csv":
            refuse_options(options, f"{path}, a delimited text", knows=_OF_TEXT)
        else:
            refuse_options(options, f"{path}, a Parquet file", knows=_OF_PARQUET)
    found = {kind for _, kind in kinds}
    if len(found) > 1:
        return _one_by_one(kinds, options, on_progress)
    if found == {"csv"}:
        lines = _lines(kinds, options)
        if _numbers_only(lines, options):
            return _of_numbers(lines, options)
        texts = _chained([DelimitedTable(one) for one in lines], options)
        return TableRows(texts, options, _shown(on_progress), kept=kept)
    return TableRows(_chained([ParquetTable(path) for path, _ in kinds], options), options, _shown(on_progress))


def open_given(table: AnyTable, options: SourceOptions, on_progress: OnProgress | None) -> RowSource:
    """The rows of a table from Python. Raises ColumnsUnclear for columns that need a word."""
    refuse_options(options, f"a {table.name}", knows=_OF_PARQUET)
    if isinstance(table, FrameTable):
        table.refuse_numbers(options)
    if isinstance(table, BatchTable) and table.paired:
        if options.unlabelled or options.label is not None:
            raise UsageError(f"{table.name}: labels come with the rows: leave --label, --labels and --unlabelled out")
        options = replace(options, label=table.width - 1)
    return TableRows(table, options, _shown(on_progress))


def open_table(kinds: Kinds, options: SourceOptions) -> Table | None:
    """Files of CSV, or of Parquet, as one table; None for files of both, and of other kinds."""
    found = {kind for _, kind in kinds}
    if found == {"csv"}:
        lines = _lines(kinds, options)
        return _chained([DelimitedTable(one) for one in lines], options)
    return _chained([ParquetTable(path) for path, _ in kinds], options) if found == {"parquet"} else None


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


def _chained(tables: Sequence[Table], options: SourceOptions) -> Table:
    unused = [str(column) for column in options.drop]
    return tables[0] if len(tables) == 1 else ChainedTable(tables, unused)


def _one_by_one(kinds: Kinds, options: SourceOptions, on_progress: OnProgress | None) -> RowSource:
    """Files of both kinds, whose columns are all numbers: the first one says which they are."""
    if options.words:
        raise UsageError(
            f"{kinds[0][0]}: is {kinds[0][1]}, other files are not: ingest them apart, with --append, where columns "
            "are more than numbers"
        )
    parts: list[RowSource] = []
    for path, kind in kinds:
        known = parts[0].columns if parts else options.columns
        one = replace(options, columns=known, columns_of=parts[0].name if parts else options.columns_of)
        kept = replace(one, delimiter=None, header=None) if kind == "parquet" else one
        parts.append(open_tables([(path, kind)], kept, on_progress))
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
