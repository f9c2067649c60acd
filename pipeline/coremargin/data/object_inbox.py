"""Inboxes in buckets: prefixes below which producers put objects of rows. The rows of each are ingested once.

Objects appear whole and nothing is moved, as who may read a bucket need not be allowed to write to it. Address, size
and ETag of each object stand in the store's log, in the line of the very commit that brings its rows: what was ingested
is known by them, and an object that was replaced by another content is another one. One that is refused stays where it
is, and is refused again until it is replaced or removed.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from coremargin.data.commits import CommitInfo
from coremargin.data.inbox import IntakeResult, is_other_rows, is_table, options_of_append
from coremargin.data.sources.object_path import ObjectChanged, ObjectPath, expand_addresses
from coremargin.data.storages import open_storage
from coremargin.errors import ColumnsUnclear, CoremarginError, DamagedChunk, DataError, NoRows, StoreError, UsageError
from coremargin.formats.store_log import FileMark, read_record_and_log

if TYPE_CHECKING:
    from collections.abc import Mapping
    from pathlib import Path

    from coremargin.formats.location import Location

_SKIPPED = (".", "_")  # names and folders that begin so are being written, or are no rows


class _AlreadyIngested(Exception):
    """Another job has committed the same object while it was read."""


def take_in_objects(
    inbox: Location, store: str | Path, options: Mapping[str, Any], *, new_labels: bool = False
) -> IntakeResult:
    """Ingest the objects below an address whose rows the store does not have, in the order of their keys.

    options: those of ``ingest`` about columns, for a store that does not exist yet. Raises DataError: no object fits
    them; StoreError, RunError, OutputError, Busy: what was ingested before stays so.
    """
    found = (path for root in next(expand_addresses([inbox])) for path in root.files_below(_SKIPPED, ()))
    result, known = IntakeResult(), _ingested(store)
    undecided = list[tuple[ObjectPath, CoremarginError]]()
    for path in found:
        if not is_table(path.name):
            if is_other_rows(path.name):
                result.left[str(path)] = "an inbox takes CSV and Parquet files only"
        elif (mark := _mark_of(path)) is not None and (mark.name, mark.tag) not in known:
            _take(path, mark, store, options, result, undecided, new_labels=new_labels)
    if undecided and not open_storage(store).exists():
        raise undecided[0][1]  # no object fits these options
    for path, _ in undecided:  # the store says by now what its columns are
        if (mark := _mark_of(path)) is not None:
            _take(path, mark, store, options, result, undecided, new_labels=new_labels)
    return result


def _take(
    path: ObjectPath,
    mark: FileMark,
    store: str | Path,
    options: Mapping[str, Any],
    result: IntakeResult,
    undecided: list[tuple[ObjectPath, CoremarginError]],
    *,
    new_labels: bool,
) -> None:
    """Ingest one object, and record what became of it. undecided: those whose columns a store would have to tell."""
    from coremargin.data.ingest import ingest  # heavy: not where nothing is to be ingested

    append, name = open_storage(store).exists(), str(path)

    def commit_info() -> CommitInfo:
        if (mark.name, mark.tag) in _ingested(store):  # no other process writes it now
            raise _AlreadyIngested
        return CommitInfo("append" if append else "ingest", note=name, files=(mark,))

    chosen = options_of_append(options, new_labels=new_labels) if append else options
    try:
        result.rows[name] = ingest(path, store, commit_info=commit_info, **chosen).rows
    except _AlreadyIngested:
        result.known[name] = _ingested(store)[mark.name, mark.tag]
    except NoRows:
        result.left[name] = "has no rows"
    except ObjectChanged:
        result.waiting.append(name)
    except (StoreError, DamagedChunk):
        raise
    except (DataError, UsageError) as error:
        if not append and isinstance(error, UsageError | ColumnsUnclear) and not open_storage(store).exists():
            undecided.append((path, error))
        else:
            result.refused[name] = str(error)


def _mark_of(path: ObjectPath) -> FileMark | None:
    """None where the object has gone."""
    try:
        return FileMark(name=str(path), nbytes=path.nbytes, tag=path.tag)
    except FileNotFoundError:
        return None


def _ingested(store: str | Path) -> dict[tuple[str, Any], int]:
    """Address and tag of each object whose rows a store has, and the number of its commit."""
    storage = open_storage(store)
    entries = read_record_and_log(storage)[1] if storage.exists() else []
    return {(mark.name, mark.tag): entry.commit.number for entry in entries for mark in entry.files or ()}
