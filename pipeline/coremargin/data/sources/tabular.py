"""Tables in files, CSV and Parquet, as rows; and what is to be said of their columns, when they cannot be read so."""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import replace
from itertools import pairwise
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np

from coremargin.data.sources.base import (
    OnProgress,
    Progress,
    RowSource,
    SourceOptions,
    is_label_name,
    option_word,
    refuse_options,
    shorten,
)
from coremargin.data.sources.chain import Chain
from coremargin.data.sources.column_choice import choose
from coremargin.data.tables.batches import BatchTable
from coremargin.data.tables.chain import ChainedTable
from coremargin.data.tables.column_options import as_option
from coremargin.data.tables.delimited import DelimitedTable
from coremargin.data.tables.frames import FrameTable
from coremargin.data.tables.number_text import number_pattern, read_numbers
from coremargin.data.tables.parquet import ParquetTable
from coremargin.data.tables.partitions import partitioned
from coremargin.data.tables.plain_arrays import strings
from coremargin.data.tables.rows import TableRows
from coremargin.data.tables.table import hidden_of
from coremargin.errors import DataError, NoRows, UsageError

if TYPE_CHECKING:
    from coremargin.data.sources.files import Files
    from coremargin.data.sources.python_objects import AnyTable
    from coremargin.data.tables.table import OnRows, Table

_INDEX = re.compile(r"|Unnamed: \d+")  # names that pandas gives, or reads where there is none
_NAMED_ROWS = 10  # different words in so many rows are their names; in fewer they may be categories
_OF_TEXT = ("label", "drop", "delimiter", "header", "weights", "key", "words", "text")
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
        texts = _texts(kinds, options)
        if options.columns is None:
            refuse_index(texts[0], options)
        numbers = (
            not options.words
            and options.columns is None
            and not _names_in_folders(files, options)
            and all(_holds_numbers(one, options) for one in texts)
        )
        table = _chained(texts, files, options)
        return TableRows(table, options, _shown(on_progress), kept=files.kept, numbers=numbers)
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
        return _chained(_texts(files.kinds, options), files, options)
    return _parquet(files, options) if found == {"parquet"} else None


def _texts(kinds: Kinds, options: SourceOptions) -> list[DelimitedTable]:
    """Files of text; one without names, as long as the first that has some, has the names of that one.

    Raises UsageError where only a later one seems to have names: its first line may as well be a row.
    """
    form, known, meant = options.text_format, options.columns, set(options.names)
    if known is not None and known.named:
        meant |= {*known.names, *filter(None, known.beside)}
    texts = [DelimitedTable(path, options.delimiter, options.header, meant, form) for path, _ in kinds]
    first = texts[0]
    for one in texts[1:]:
        if one.names is None and one.width == first.width:
            one.names = first.names
        elif one.names is not None and first.names is None:
            raise UsageError(
                f"{one.name}: the first line seems to name columns, that of {first.name} does not: say --header where "
                "all files name them, --no-header where none does, or ingest them apart, with --append"
            )
    return texts


def refuse_index(table: DelimitedTable, options: SourceOptions) -> None:
    """Raise DataError for a first column without a name that numbers or names the rows, as ``DataFrame.to_csv`` and R
    write one: as a feature it would tell rows apart by where they stood. Of tables one behind the other, and of rows
    that are repeated or drawn with replacement, numbers come again.
    """
    names = table.names
    if names is None or _INDEX.fullmatch(names[0]) is None:
        return
    if 0 not in choose(names, table.width, options, table.name, table.named).features:
        return
    values = [fields[0].strip() for fields in table.sample if len(fields) == table.width]
    different = len(set(values))
    if all(value.lstrip("+-").isdigit() for value in values):
        steps = [int(later) - int(value) for value, later in pairwise(values)]
        repeats = different >= _NAMED_ROWS and 2 * (steps.count(0) + steps.count(1)) >= len(steps)
        counts = repeats or 2 * different > len(values) or 2 * steps.count(1) >= len(steps)
    else:
        numbers = read_numbers(strings(values), table.form)[0]
        named = bool(np.isnan(numbers).all()) or bool((np.diff(numbers) > 0).all())  # such as times from 0.0 on
        counts = named and "" not in values and different == len(values) >= _NAMED_ROWS
    if not counts:
        return
    shown = ", ".join(values[:3])
    raise DataError(
        f"{table.name}: the first column has no name and numbers or names the rows ({shown}, ...), as an index that "
        f"was written with a table: leave it out with --drop {as_option([option_word(names, 0)])}, or name it in the "
        "first line if it is a feature"
    )


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
    if options.label is not None or options.unlabelled or options.columns is not None:
        return
    called = [name for name in names if is_label_name(name)]
    hidden = [name for name in hidden_of(table) if is_label_name(name) and name not in options.drop]
    if called and all(name.lower() == "y" for name in hidden):  # which may well be a coordinate
        return
    if hidden:
        name, what = hidden[0], hidden_of(table)[hidden[0]]
        if called:
            raise UsageError(
                f"{table.name}: column {called[0]!r} and {name!r} ({what}) are called like labels, expected one; name "
                "it with --label"
            )
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
        plain = replace(one.words, decimal=None, thousands=None, na_values=None, keep_default_na=None)
        parquet = alone.kinds[0][1] == "parquet"
        kept = replace(one, delimiter=None, header=None, words=plain) if parquet else one
        parts.append(open_tables(alone, kept, on_progress))
    return Chain(parts)


def _holds_numbers(table: DelimitedTable, options: SourceOptions) -> bool:
    """Whether all features seem to be numbers: then one pass is enough, which refuses what is none."""
    chosen = choose(table.names, table.width, options, table.name, table.named).features
    number = re.compile(number_pattern(table.form))
    rows = [fields for fields in table.sample if len(fields) == table.width]
    return all(number.match(fields[column].strip()) for fields in rows for column in chosen)


def _shown(on_progress: OnProgress | None) -> OnRows | None:
    if on_progress is None:
        return None

    def show(rows: int, done: int, total: int | None) -> None:
        on_progress(Progress("reading columns", rows, done, total))

    return show
