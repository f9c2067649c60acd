"""What people hand over from Python, made ready to be read: tables, batches, or what it was."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any

from coremargin.data.sources.arrays import computed
from coremargin.data.sources.batches import is_array
from coremargin.data.sources.files import Files, files_of
from coremargin.data.tables.arrow import ArrowTable
from coremargin.data.tables.batches import Batches, BatchTable, is_pair
from coremargin.data.tables.frames import FrameTable
from coremargin.data.tables.objects import holds_numbers, is_a, reader_of, table_of
from coremargin.data.tables.parsed_texts import KeptBatches
from coremargin.errors import UsageError

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
