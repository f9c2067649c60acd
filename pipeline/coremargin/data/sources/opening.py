"""From what the user gave (files, patterns, arrays, tables, batches) to one ``RowSource``."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import replace
from functools import partial
from itertools import pairwise
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from coremargin.data.sources.arrays import ArrayBatches, ArrayRows, DaskRows, compute, is_array, is_dask
from coremargin.data.sources.base import Chain, OnProgress, Progress, RowSource
from coremargin.data.sources.column_choice import choose_columns, is_label_name, name_for_option, shorten
from coremargin.data.sources.files import Files, find_files, look_at_files
from coremargin.data.sources.numpy_files import find_label_file, holds_labels, open_npy, open_npz
from coremargin.data.sources.options import SourceOptions, refuse_options
from coremargin.data.sources.svmlight import open_svmlight
from coremargin.data.tables.arrow import ArrowTable, ParquetTable
from coremargin.data.tables.arrow_arrays import string_array
from coremargin.data.tables.batches import Batches, BatchTable, is_pair
from coremargin.data.tables.chain import ChainedTable
from coremargin.data.tables.column_options import ColumnOptions, quote_columns
from coremargin.data.tables.conll import GROUP, LABEL, VOCABULARY, ConllTable
from coremargin.data.tables.delimited import DelimitedTable
from coremargin.data.tables.frames import FrameTable
from coremargin.data.tables.number_text import number_pattern, read_numbers
from coremargin.data.tables.objects import holds_numbers, is_a, reader_of, table_of
from coremargin.data.tables.partitions import add_partition_columns
from coremargin.data.tables.rows import TableRows
from coremargin.data.tables.spill import ParsedBatches
from coremargin.errors import ColumnsUnclear, DataError, LabelError, NoRows, UsageError

if TYPE_CHECKING:
    from coremargin.data.sources.paths import FilePath
    from coremargin.data.tables.table import OnRows, Table

TableObject = FrameTable | ArrowTable | BatchTable  #: a table from Python

_TABLES = {"csv", "parquet"}  # formats of files with columns
_TABLE_OPTIONS = ("label", "drop", "weights", "key", "group", "column_options")
_TEXT_OPTIONS = (*_TABLE_OPTIONS, "delimiter", "header", "text")
_INDEX = re.compile(r"|Unnamed: \d+")  # names that pandas gives, or reads where there is none
_NAMED_ROWS = 10  # different words in so many rows are their names; in fewer they may be categories
_MOST_UNCLEAR_BYTES = 1 << 30


# What was given: files, a table, batches, or one array.


def resolve_source(source: Any, folder: Path, format: str | None) -> Any:  # noqa: A002 - the word for it
    """``Files``, a table, ``Batches`` of arrays, or the source itself, which is one array then; ``close_source`` it.

    folder: where rows that can be read once, or were parsed, are kept while they are read again, if it exists. Raises
    UsageError, DataError.
    """
    spill_folder = folder if folder.is_dir() else None
    files = find_files(source, format)
    if files is not None:
        return replace(files, parsed=ParsedBatches(spill_folder))
    table = table_of(source)
    if table is not None:
        return table
    start = _find_batches(source)
    if start is None:
        return source
    batches = start()
    return batches if is_array(batches.first) else BatchTable(batches, spill_folder)


def close_source(source: Any) -> None:
    """Delete what was kept of a source that ``resolve_source`` gave."""
    if isinstance(source, BatchTable):
        source.close()
    elif isinstance(source, Files) and source.parsed is not None:
        source.parsed.close()


def are_batches(source: Any) -> bool:
    """Whether an object, which is no table in memory, is read batch by batch."""
    return _find_batches(source) is not None


def needs_ingest(source: Any) -> bool:
    """Whether an object must be ingested to become rows: batches, and tables with columns that are no numbers."""
    numbers = holds_numbers(source)
    return are_batches(source) if numbers is None else not numbers


def _find_batches(source: Any) -> Callable[[], Batches] | None:
    """What starts to read the batches of a source; None: it has none."""
    if is_a(source, "dask", "DataFrame") or is_a(source, "dask_expr", "DataFrame"):
        name, each = "Dask DataFrame", "Dask DataFrame, partition"

        def partitions() -> Iterator[Any]:
            for number in range(source.npartitions):
                yield compute(source.partitions[number], f"{each} {number}")

        return lambda: Batches(name, partitions, once=True, each=each)
    if hasattr(source, "__arrow_c_stream__"):
        stream_name = type(source).__name__

        def stream() -> Batches:
            reader = reader_of(source, stream_name)
            return Batches(stream_name, lambda: iter(reader), once=True)

        return stream
    if isinstance(source, list | tuple) and source and _is_batch(source[0]):
        return lambda: Batches(f"{len(source)} batches", lambda: iter(source), once=False)
    if isinstance(source, Iterator):
        return lambda: Batches("batches", lambda: source, once=True)
    if callable(source) and not hasattr(source, "__dask_graph__"):  # Dask's delayed values are callable, too

        def call() -> Iterator[Any]:
            given = source()
            if not isinstance(given, Iterable):
                found = type(given).__name__
                raise UsageError(f"batches: found a function that gives {found}, expected one of an iterator")
            return iter(given)

        return lambda: Batches("batches", call, once=False)
    return None


def _is_batch(item: Any) -> bool:
    """Whether an item of a list is a batch: a list of numbers, or of lists of them, is one array."""
    rows = item[0] if is_pair(item) else item
    return is_array(rows) or hasattr(rows, "__arrow_c_stream__") or table_of(rows, "batch 0") is not None


def label_files(source: Any, *, unlabelled: bool | None) -> list[FilePath] | None:
    """The label files alongside ``X.npy`` files; None for sources that carry their labels, or may have none."""
    if isinstance(source, TableObject) or (isinstance(source, Batches) and is_pair(source.first)):
        return None
    if not isinstance(source, Files):
        if unlabelled is None:
            return None
        raise LabelError("labels are missing: expected one per row; give labels=..., or say unlabelled=True")
    if not source.formats <= {"npy", "npz"}:
        return None
    found = [find_label_file(file.path) for file in source.files]
    own = [file.path for file in source.files if file.format == "npz" and holds_labels(file.path)]
    if own and any(found):
        raise UsageError(f"{own[0]}: holds labels, and y.npy lies next to it: give the ones that count, --labels FILE")
    if len(own) == len(found) or (unlabelled is None and None in found):
        return None
    lacking = next((file.path for file, path in zip(source.files, found, strict=True) if path is None), None)
    if lacking is not None:
        raise LabelError(
            f"{lacking}: labels are missing: expected them in --labels FILE, or in y.npy next to X.npy; or --unlabelled"
        )
    return [path for path in found if path is not None]


# Rows of it.


def open_rows(source: Any, options: SourceOptions, on_progress: OnProgress | None = None) -> RowSource:
    """The rows of what ``resolve_source`` gave. Raises ColumnsUnclear for columns that need a decision.

    SVMlight files are read once in advance to count features and rows, unless the options say both the number of
    features and the first index; ``on_progress`` hears of it.
    """

    def on_rows(stage: str) -> OnRows:
        def report(rows: int, done: int, total: int | None) -> None:
            if on_progress is not None:
                on_progress(Progress(stage, rows, done, total))

        return report

    if is_dask(source):
        return DaskRows(source, options)
    if isinstance(source, TableObject):
        return TableRows(source, _options_of_object(source, options), on_rows("reading columns"))
    if isinstance(source, Batches):
        return ArrayBatches(source, options)
    if not isinstance(source, Files):
        return ArrayRows(source, options)
    options = _without_folder_columns(source, options)
    if "svmlight" in source.formats:
        other = next((file for file in source.files if file.format != "svmlight"), None)
        if other is not None:
            raise UsageError(
                f"{other.path}: is {other.format}, other files are svmlight: ingest them apart, with --append"
            )
        paths = [file.path for file in source.files]
        refuse_options(options, f"{paths[0]}, an SVMlight file", knows=("features", "zero_based", "group"))
        return Chain(open_svmlight(paths, options, on_rows("first pass")))
    if source.formats == {"conll"}:
        return _open_conll([file.path for file in source.files], options, on_rows("reading columns"))
    if len(source.formats) == 1 and source.formats <= _TABLES:
        return _open_table_files(source, options, on_rows("reading columns"))
    return Chain(_open_each(source, options, on_rows("reading columns")))


def _open_conll(paths: Sequence[FilePath], options: SourceOptions, on_rows: OnRows) -> RowSource:
    """The tokens of CoNLL files, in sentences. The store's columns say which features they have, if it has some."""
    refuse_options(options, f"{paths[0]}, a CoNLL file", knows=("group",))
    if options.group not in (None, GROUP):
        raise UsageError(
            f"--group does not apply to {paths[0]}, a CoNLL file, whose groups are sentences: leave it out"
        )
    table = ConllTable(paths, labelled=not options.unlabelled, known=options.columns, first=options.groups_before)
    labelled = LABEL in table.names
    given = replace(options, group=GROUP, label=LABEL if labelled else None, unlabelled=not labelled)
    if options.columns is None:
        features = tuple(name for name in table.names if name not in (LABEL, GROUP))
        given = replace(given, column_options=ColumnOptions(categorical=features, vocabulary=VOCABULARY))
    return TableRows(table, given, on_rows)


def _open_each(files: Files, options: SourceOptions, on_rows: OnRows) -> list[RowSource]:
    """Files of several formats, each alone. Columns of tables are all numbers: the first table says which they are."""
    first = files.files[0]
    if options.column_options and len(files.formats) > 1:
        raise UsageError(
            f"{first.path}: is {first.format}, other files are not: ingest them apart, with --append, where columns "
            "are more than numbers"
        )
    parts, known = list[RowSource](), options
    for file in files.files:
        alone = Files((file,))
        if file.format in _TABLES:
            part = _open_table_files(alone, known if file.format == "csv" else _without_text_options(known), on_rows)
            if known.columns is None and part.columns is not None:
                known = replace(known, columns=part.columns, columns_of=part.name)
        else:
            part = (open_npy if file.format == "npy" else open_npz)(file.path, options)
        parts.append(part)
    return parts


def _without_text_options(options: SourceOptions) -> SourceOptions:
    return replace(options, delimiter=None, header=None, column_options=options.column_options.without_text())


def _without_folder_columns(files: Files, options: SourceOptions) -> SourceOptions:
    """The options without the columns to drop that folders name, where files have no columns for them to join.

    Raises UsageError for such folders whose columns are not dropped.
    """
    named = {name for file in files.files for name in file.partition.below}
    if not named or files.formats <= _TABLES:
        return options
    name = min(named - set(options.drop), default=None)
    if name is not None:
        path = next(file.path for file in files.files if name in file.partition.below)
        raise UsageError(
            f"{path}: its folders name the column {name!r}, but files of {', '.join(sorted(files.formats))} have no "
            f"columns that it could join: leave it out with --drop {name}, or rename the folders"
        )
    return replace(options, drop=tuple(column for column in options.drop if column not in named))


# Tables.


def open_table(files: Files, options: SourceOptions) -> Table | None:
    """Files of CSV, or of Parquet, as one table; None for files of both, and of other formats."""
    if files.formats == {"csv"}:
        return _join_files(_open_texts(files, options), files, options)
    return _open_parquet(files, options) if files.formats == {"parquet"} else None


def find_unclear_columns(source: Any, options: SourceOptions) -> ColumnsUnclear | None:
    """What the columns of a table need, when a row of it could not be read as numbers; None: nothing.

    All columns that need a decision are named then, by the first GiB of the table, not only the one that was met first.
    """
    if options.column_options or options.columns is not None or not isinstance(source, Files | TableObject):
        return None
    table: Table | None = open_table(source, options) if isinstance(source, Files) else source
    if table is None:
        return None
    try:
        TableRows(table, options, most_bytes=_MOST_UNCLEAR_BYTES)
    except ColumnsUnclear as error:
        return error
    except DataError:
        pass
    return None


def _options_of_object(table: TableObject, options: SourceOptions) -> SourceOptions:
    """The options for a table from Python, whose columns that are asked for are revealed."""
    refuse_options(options, f"a {table.name}", knows=_TABLE_OPTIONS)
    table.reveal(options.names)
    if isinstance(table, FrameTable):
        table.refuse_numbers(options)
    if isinstance(table, BatchTable) and table.paired:
        if options.unlabelled or options.label is not None:
            raise UsageError(f"{table.name}: labels come with the rows: leave --label, --labels and --unlabelled out")
        options = replace(options, label=table.width - 1)
    _refuse_label_elsewhere(table, (), options)
    return options


def _open_table_files(files: Files, options: SourceOptions, on_rows: OnRows) -> RowSource:
    """The rows of files of CSV, or of Parquet."""
    for file in files.files:
        if file.format == "csv":
            refuse_options(options, f"{file.path}, a delimited text", knows=_TEXT_OPTIONS)
        else:
            refuse_options(options, f"{file.path}, a Parquet file", knows=_TABLE_OPTIONS)
    if files.formats == {"parquet"}:
        return TableRows(_open_parquet(files, options), options, on_rows)
    texts = _open_texts(files, options)
    if options.columns is None:
        _refuse_index(texts[0], options)
    by_folders = any(
        file.partition.below or any(name in options.names or is_label_name(name) for name in file.partition.above)
        for file in files.files
    )
    # Where all features seem to be numbers, one pass is enough, which refuses what is none.
    numbers = (
        not options.column_options
        and options.columns is None
        and not by_folders
        and all(_holds_numbers(text, options) for text in texts)
    )
    return TableRows(_join_files(texts, files, options), options, on_rows, parsed=files.parsed, numbers=numbers)


def _open_parquet(files: Files, options: SourceOptions) -> Table:
    """Files of Parquet as one table; those without rows are skipped. Raises NoRows where none has any."""
    tables = list(look_at_files(ParquetTable, [file.path for file in files.files]))
    filled = [(file, table) for file, table in zip(files.files, tables, strict=True) if table.rows]
    if not filled:
        raise NoRows(f"{tables[0].name}: no rows: expected at least one")
    for table in tables:
        table.reveal(options.names)
    return _join_files([table for _, table in filled], Files(tuple(file for file, _ in filled)), options)


def _open_texts(files: Files, options: SourceOptions) -> list[DelimitedTable]:
    """Files of text; one without names, as long as the first that has some, has the names of that one.

    Raises UsageError where only a later one seems to have names: its first line may as well be a row.
    """
    known, expected = options.columns, set(options.names)
    if known is not None and known.named:
        expected |= {*known.names, *filter(None, known.other_names)}
    look = partial(
        DelimitedTable,
        delimiter=options.delimiter,
        header=options.header,
        expected=expected,
        form=options.text_format,
    )
    texts = list(look_at_files(look, [file.path for file in files.files]))
    first = texts[0]
    for text in texts[1:]:
        if text.names is None and text.width == first.width:
            text.names = first.names
        elif text.names is not None and first.names is None:
            raise UsageError(
                f"{text.name}: the first line seems to name columns, that of {first.name} does not: say --header where "
                "all files name them, --no-header where none does, or ingest them apart, with --append"
            )
    return texts


def _join_files(tables: Sequence[Table], files: Files, options: SourceOptions) -> Table:
    """Files as one table, with the columns that their folders name."""
    drop = [str(column) for column in options.drop]
    parts = add_partition_columns(tables, [file.partition for file in files.files], options.names, drop)
    found = parts[0] if len(parts) == 1 else ChainedTable(parts, drop)
    added = [name for name in found.names or () if name not in (tables[0].names or ())]
    _refuse_label_elsewhere(found, added, options)
    return found


def _holds_numbers(table: DelimitedTable, options: SourceOptions) -> bool:
    """Whether all features seem to be numbers, by the first rows."""
    chosen = choose_columns(table.names, table.width, options, table.name, table.named).features
    number = re.compile(number_pattern(table.form))
    rows = [fields for fields in table.sample if len(fields) == table.width]
    return all(number.match(fields[column].strip()) for fields in rows for column in chosen)


def _refuse_index(table: DelimitedTable, options: SourceOptions) -> None:
    """Raise DataError for a first column without a name that numbers or names the rows, as ``DataFrame.to_csv`` and R
    write one: as a feature it would tell rows apart by where they stood. Of tables one behind the other, and of rows
    that are repeated or drawn with replacement, numbers come again.
    """
    names = table.names
    if names is None or _INDEX.fullmatch(names[0]) is None:
        return
    if 0 not in choose_columns(names, table.width, options, table.name, table.named).features:
        return
    values = [fields[0].strip() for fields in table.sample if len(fields) == table.width]
    different = len(set(values))
    if all(value.lstrip("+-").isdigit() for value in values):
        steps = [int(later) - int(value) for value, later in pairwise(values)]
        repeats = different >= _NAMED_ROWS and 2 * (steps.count(0) + steps.count(1)) >= len(steps)
        counts = repeats or 2 * different > len(values) or 2 * steps.count(1) >= len(steps)
    else:
        numbers = read_numbers(string_array(values), table.form)[0]
        named = bool(np.isnan(numbers).all()) or bool((np.diff(numbers) > 0).all())  # such as times from 0.0 on
        counts = named and "" not in values and different == len(values) >= _NAMED_ROWS
    if counts:
        shown = ", ".join(values[:3])
        raise DataError(
            f"{table.name}: the first column has no name and numbers or names the rows ({shown}, ...), as an index "
            f"that was written with a table: leave it out with --drop {quote_columns([name_for_option(names, 0)])}, or "
            "name it in the first line if it is a feature"
        )


def _refuse_label_elsewhere(table: Table, added: Sequence[str], options: SourceOptions) -> None:
    """Raise UsageError where nothing says which column holds the labels, and it may be another than the last one.

    added: columns that come from the names of folders. Hidden columns may be called like a label, too.
    """
    if options.label is not None or options.unlabelled or options.columns is not None:
        return
    names = [name for name in table.names or () if name not in options.drop]
    called = [name for name in names if is_label_name(name)]
    hidden = [name for name in table.hidden if is_label_name(name) and name not in options.drop]
    if called and all(name.lower() == "y" for name in hidden):  # which may well be a coordinate
        return
    if hidden:
        name, what = hidden[0], table.hidden[hidden[0]]
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
