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

from coremargin.data.sources.arrays import ArrayBatches, ArrayRows, DaskRows, computed, is_array, is_dask
from coremargin.data.sources.base import Chain, OnProgress, Progress, RowSource
from coremargin.data.sources.column_choice import choose, is_label_name, option_word, shorten
from coremargin.data.sources.files import Files, files_of
from coremargin.data.sources.numpy_files import companion, holds_labels, open_npy, open_npz
from coremargin.data.sources.options import SourceOptions, refuse_options
from coremargin.data.sources.svmlight import open_svmlight
from coremargin.data.tables.arrow import ArrowTable, ParquetTable
from coremargin.data.tables.arrow_arrays import strings
from coremargin.data.tables.batches import Batches, BatchTable, is_pair
from coremargin.data.tables.chain import ChainedTable
from coremargin.data.tables.column_options import as_option
from coremargin.data.tables.delimited import DelimitedTable
from coremargin.data.tables.frames import FrameTable
from coremargin.data.tables.number_text import number_pattern, read_numbers
from coremargin.data.tables.objects import holds_numbers, is_a, reader_of, table_of
from coremargin.data.tables.partitions import partitioned
from coremargin.data.tables.rows import TableRows
from coremargin.data.tables.spill import KeptBatches
from coremargin.errors import ColumnsUnclear, DataError, LabelError, NoRows, UsageError

if TYPE_CHECKING:
    from coremargin.data.tables.table import OnRows, Table

AnyTable = FrameTable | ArrowTable | BatchTable


def handed(source: Any, folder: Path, wanted: str | None) -> Any:
    """``Files``, a table, ``Batches`` of arrays, or the source itself, which is one array then; ``let_go`` of it.

    wanted: the format of files, where it was said. folder: where rows are kept that can be read once, or were parsed,
    while they are read again, if it is there. Raises UsageError, DataError.
    """
    beside = folder if folder.is_dir() else None
    files = files_of(source, wanted)
    if files is not None:
        return replace(files, kept=KeptBatches(beside))
    found = table_of(source)
    if found is not None:
        return found
    begin = _batches(source)
    if begin is None:
        return source
    batches = begin()
    return batches if is_array(batches.first) else BatchTable(batches, beside)


def needs_ingest(source: Any) -> bool:
    """Whether an object becomes rows by ``handed`` alone: batches, and tables with columns that are no numbers."""
    numbers = holds_numbers(source)
    return are_batches(source) if numbers is None else not numbers


def are_batches(source: Any) -> bool:
    """Whether an object, which is no table in memory, is read batch by batch."""
    return _batches(source) is not None


def kinds_of(source: Any) -> tuple[tuple[Path, str], ...] | None:
    """The files of what ``handed`` gave, each with its format; None: it is no files."""
    return source.kinds if isinstance(source, Files) else None


def let_go(source: Any) -> None:
    """Throw away what was kept of what ``handed`` gave."""
    if isinstance(source, BatchTable):
        source.close()
    elif isinstance(source, Files) and source.kept is not None:
        source.kept.close()


def carries_labels(source: Any) -> bool:
    """Whether labels come with what ``handed`` gave, in a column or in pairs."""
    return isinstance(source, AnyTable) or (isinstance(source, Batches) and is_pair(source.first))


def _batches(source: Any) -> Callable[[], Batches] | None:
    """What begins to read the batches of a source; None: it has none."""
    if is_a(source, "dask", "DataFrame") or is_a(source, "dask_expr", "DataFrame"):
        each = "Dask DataFrame, partition"
        return partial(Batches, "Dask DataFrame", partial(_partitions, source), once=True, each=each)
    if hasattr(source, "__arrow_c_stream__"):
        return partial(_of_stream, source)
    if isinstance(source, list | tuple) and source and _is_part(source[0]):
        return partial(Batches, f"{len(source)} batches", lambda: iter(source), once=False)
    if isinstance(source, Iterator):
        return partial(Batches, "batches", lambda: source, once=True)
    if callable(source) and not hasattr(source, "__dask_graph__"):  # Dask's delayed values are callable, too
        return partial(Batches, "batches", partial(_begun, source), once=False)
    return None


def _of_stream(source: Any) -> Batches:
    name = type(source).__name__
    reader = reader_of(source, name)
    return Batches(name, lambda: iter(reader), once=True)


def _begun(start: Callable[[], Any]) -> Iterator[Any]:
    """The batches of a function. Raises UsageError where it gives none."""
    given = start()
    if not isinstance(given, Iterable):
        raise UsageError(f"batches: found a function that gives {type(given).__name__}, expected one of an iterator")
    return iter(given)


def _is_part(item: Any) -> bool:
    """Whether an item of a list is a batch: a list of numbers, or of lists of them, is one array."""
    rows = item[0] if is_pair(item) else item
    return is_array(rows) or hasattr(rows, "__arrow_c_stream__") or table_of(rows, "batch 0") is not None


def _partitions(frame: Any) -> Iterator[Any]:
    """The partitions of a DataFrame of Dask, each computed when it is asked for."""
    for number in range(frame.npartitions):
        yield computed(frame.partitions[number], f"Dask DataFrame, partition {number}")


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


_UNCLEAR_BYTES = 1 << 30


def open_rows(source: Any, options: SourceOptions, on_progress: OnProgress | None = None) -> RowSource:
    """The rows of a source: an array, or what ``handed`` made of files and of other objects.

    SVMlight files are read once in advance to count features and rows, unless the options say both the number of
    features and the first index; ``on_progress`` hears of it.
    """
    if is_dask(source):
        return DaskRows(source, options)
    if isinstance(source, AnyTable):
        return open_given(source, options, on_progress)
    if isinstance(source, Batches):
        return ArrayBatches(source, options)
    kinds = kinds_of(source)
    if kinds is None:
        return ArrayRows(source, options)
    options = _without_folders(source, options)
    paths = [path for path, _ in kinds]
    if "svmlight" in {kind for _, kind in kinds}:
        other = next(((path, kind) for path, kind in kinds if kind != "svmlight"), None)
        if other is not None:
            raise UsageError(f"{other[0]}: is {other[1]}, other files are svmlight: ingest them apart, with --append")
        _refuse_for_svmlight(options, paths[0])

        def on_survey(rows: int, done: int, total: int) -> None:
            if on_progress is not None:
                on_progress(Progress("first pass", rows, done, total))

        return Chain(open_svmlight(paths, options, on_survey))
    if {kind for _, kind in kinds} <= {"csv", "parquet"}:
        return open_tables(source, options, on_progress)
    opened: dict[str, Callable[[Path, SourceOptions], RowSource]] = {"npy": open_npy, "npz": open_npz}
    return Chain(
        [
            opened[kind](path, options) if kind in opened else open_tables(one, options, on_progress)
            for one in source.one_by_one()
            for path, kind in one.kinds
        ]
    )


def columns_unclear(source: Any, options: SourceOptions) -> ColumnsUnclear | None:
    """What is to be said of a table's columns, when a row of it could not be read as numbers; None: nothing.

    All columns that need a word are named then, by the first GiB of the table, not only the one that was met first.
    """
    if options.words or options.columns is not None:
        return None
    table: Table | None = open_table(source, options) if isinstance(source, Files) else source
    if not isinstance(source, Files | AnyTable) or table is None:
        return None
    try:
        TableRows(table, options, most_bytes=_UNCLEAR_BYTES)
    except ColumnsUnclear as error:
        return error
    except DataError:
        pass
    return None


def _without_folders(files: Files, options: SourceOptions) -> SourceOptions:
    """The options without the columns to drop that folders name, where files have no columns for them to join.

    Raises UsageError for such folders whose columns are not dropped.
    """
    kinds = {kind for _, kind in files.kinds}
    named = {name for one in files.partitions for name in one.below}
    if not named or kinds <= {"csv", "parquet"}:
        return options
    name = min(named - set(options.drop), default=None)
    if name is not None:
        path = next(path for (path, _), one in zip(files.kinds, files.partitions, strict=True) if name in one.below)
        raise UsageError(
            f"{path}: its folders name the column {name!r}, but files of {', '.join(sorted(kinds))} have no columns "
            f"that it could join: leave it out with --drop {name}, or rename the folders"
        )
    return replace(options, drop=tuple(column for column in options.drop if column not in named))


def _refuse_for_svmlight(options: SourceOptions, path: Path) -> None:
    refuse_options(options, f"{path}, an SVMlight file", knows=("features", "zero_based"))


def label_files(source: Any, *, unlabelled: bool | None) -> list[Path] | None:
    """The label files beside ``X.npy`` files; None for sources that carry their labels themselves, or may have none."""
    kinds = kinds_of(source)
    if carries_labels(source):
        return None
    if kinds is not None and not {kind for _, kind in kinds} <= {"npy", "npz"}:
        return None
    if kinds is None and unlabelled is None:
        return None
    if kinds is None:
        raise LabelError("labels are missing: expected one per row; give labels=..., or say unlabelled=True")
    found = [companion(path) for path, _ in kinds]
    own = [path for path, kind in kinds if kind == "npz" and holds_labels(path)]
    if own and any(found):
        raise UsageError(f"{own[0]}: holds labels, and y.npy lies beside: give the ones that count, --labels FILE")
    if len(own) == len(kinds):
        return None
    for (path, _), separate in zip(kinds, found, strict=True):
        if separate is None and unlabelled is None:
            return None
        if separate is None:
            raise LabelError(
                f"{path}: labels are missing: expected them in --labels FILE, or in y.npy beside X.npy; or --unlabelled"
            )
    return [separate for separate in found if separate is not None]
