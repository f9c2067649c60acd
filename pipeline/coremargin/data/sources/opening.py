"""From what the user gave (files, patterns, arrays) to one ``RowSource``."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

from coremargin.data.sources.arrays import ArrayRows, DaskRows, is_dask
from coremargin.data.sources.base import OnProgress, Progress, RowSource, SourceOptions, refuse_options
from coremargin.data.sources.batches import ArrayBatches
from coremargin.data.sources.chain import Chain
from coremargin.data.sources.files import Files
from coremargin.data.sources.npy import NpyFile
from coremargin.data.sources.npz import open_npz
from coremargin.data.sources.python_objects import AnyTable, kinds_of
from coremargin.data.sources.svmlight import open_svmlight
from coremargin.data.sources.tabular import open_given, open_table, open_tables
from coremargin.data.tables.batches import Batches
from coremargin.data.tables.rows import TableRows
from coremargin.errors import ColumnsUnclear, DataError, UsageError

if TYPE_CHECKING:
    from coremargin.data.tables.table import Table

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
    opened: dict[str, Callable[[Path, SourceOptions], RowSource]] = {"npy": NpyFile, "npz": open_npz}
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
