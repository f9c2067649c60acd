"""Files as a source: paths, patterns and folders, each file with its format."""

from __future__ import annotations

import os
from collections import defaultdict
from collections.abc import Callable, Iterable, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from itertools import takewhile
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeVar

from coremargin.data.sources.file_formats import (
    FORMATS,
    detect_content,
    kind_from_content,
    kind_from_name,
    refuse_foreign,
)
from coremargin.data.sources.object_path import ObjectPath
from coremargin.data.sources.paths import FilePath, expand, is_path, is_there
from coremargin.data.sources.text import read_first_lines
from coremargin.data.tables.arrow import parquet_rows
from coremargin.data.tables.partitions import Partition, folders_of, read_partition
from coremargin.errors import DataError, UsageError

if TYPE_CHECKING:
    from coremargin.data.tables.spill import ParsedBatches

T = TypeVar("T")
_LOOKS = 16  # objects that are looked at at a time
_SKIPPED = (".", "_")  #: names that begin so are no data: .crc, _SUCCESS, _metadata, folders of what is being written
_STORE = ("zarr.json", ".zgroup", ".zarray")
_LAKES = {"_delta_log": "Delta Lake", ".hoodie": "Hudi"}  # tables whose folders hold files of rows that are gone, too
_BINARY = ("npy", "npz", "parquet")
_IN_FOLDERS = ("csv", "parquet", "svmlight", "conll")


@dataclass(frozen=True, slots=True)
class SourceFile:
    """A file, its format, and the columns that the names of its folders hold."""

    path: FilePath
    format: str
    partition: Partition


@dataclass(frozen=True, slots=True)
class Files:
    """Files in order. parsed: keeps what is parsed of them, for as long as it is needed."""

    files: tuple[SourceFile, ...]
    parsed: ParsedBatches | None = None

    @property
    def formats(self) -> set[str]:
        """Those of all files."""
        return {file.format for file in self.files}


def find_files(source: Any, wanted: str | None) -> Files | None:
    """The files that a path, a pattern, a folder or a list of these names; None: the source is none of them.

    wanted: the format, where an option gives it. Raises UsageError, DataError.
    """
    if not names_files(source):
        return None
    found, bases = list[tuple[FilePath, str]](), list[tuple[str, ...]]()
    for path in expand(source):
        folder = is_there(path) and path.is_dir()
        found += _in_folder(path, wanted) if folder else [(path, _kind(path, wanted))]
        bases.append(folders_of(path / "file" if folder else path))
    base = [same[0] for same in takewhile(lambda names: len(set(names)) == 1, zip(*bases, strict=False))]
    return Files(tuple(SourceFile(path, kind, read_partition(path, base)) for path, kind in found))


def names_files(source: Any) -> bool:
    """Whether a source is a path, a pattern, or a list of these."""
    return is_path(source) or (isinstance(source, list | tuple) and len(source) > 0 and all(map(is_path, source)))


def _kind(path: FilePath, wanted: str | None) -> str:
    """The format of a file: by the option, its name or its content; all must agree."""
    if wanted is not None and wanted not in FORMATS:
        raise UsageError(f"unknown format {wanted!r}: expected one of {', '.join(FORMATS)}")
    found, named = detect_content(path), wanted or kind_from_name(path)
    if found is not None and found.kind in FORMATS and named in (None, found.kind):
        return str(found.kind)
    members_said = named == "npz" and found is not None and found.what == "a zip archive"  # by the reader
    if found is not None and (found.kind != "packed" or named in _BINARY) and not members_said:
        refuse_foreign(
            path, found, f"{named}, by its name" if wanted is None and named else named or ", ".join(FORMATS)
        )
    return named or kind_from_content(path, read_first_lines(path, 20))


def _in_folder(folder: FilePath, wanted: str | None) -> list[tuple[FilePath, str]]:
    """The files in a folder and those below, in order of their paths, but for those without rows."""
    paths = list_data_files(folder)
    kinds = list(zip(paths, look_at_files(lambda path: _kind(path, wanted), paths), strict=True))
    by_kind = defaultdict[str, list[FilePath]](list)
    for path, kind in kinds:
        by_kind[kind].append(path)
    if len(by_kind) > 1:
        counts = ", ".join(
            f"{len(found)} {kind} ({found[0].name}{', ...' * (len(found) > 1)})"
            for kind, found in sorted(by_kind.items())
        )
        raise UsageError(
            f"{folder}: found {counts}, expected files of one kind; give a pattern such as '{folder}/*.csv'"
        )
    other = next((kind for kind in by_kind if kind not in _IN_FOLDERS), None)
    if other is not None:
        raise UsageError(
            f"{folder}: found {other} files, expected {' or '.join(_IN_FOLDERS)} in a folder; name the file"
        )
    rows = kinds
    if "parquet" in by_kind:
        rows = [one for one, count in zip(kinds, look_at_files(parquet_rows, paths), strict=True) if count]
    if not rows:
        raise DataError(
            f"{folder}: found no file with rows, expected at least one; names with . or _ first are skipped"
        )
    return rows


def look_at_files(look: Callable[[FilePath], T], paths: Sequence[FilePath]) -> Iterable[T]:
    """What ``look`` finds of each file; of objects many at a time, as each request takes long."""
    if not any(isinstance(path, ObjectPath) for path in paths):
        return map(look, paths)
    with ThreadPoolExecutor(_LOOKS, thread_name_prefix="coremargin-look") as pool:
        return list(pool.map(look, paths))


def list_data_files(folder: FilePath) -> list[FilePath]:
    """The files in a folder and those below that may hold rows, without empty ones, in order of their paths.

    Raises UsageError for a folder whose files are no rows, or not all of them.
    """
    _refuse_what_is_more(folder)
    if isinstance(folder, ObjectPath):
        return list(folder.files_below(_SKIPPED, _STORE))

    def unreadable(error: OSError) -> None:
        raise UsageError(
            f"{error.filename}: cannot be looked into: {error.strerror}; allow it, or name files"
        ) from error

    found = list[Path]()
    for place, folders, names in os.walk(folder, onerror=unreadable):
        folders[:] = [name for name in folders if not name.startswith(_SKIPPED) and not _is_store(Path(place, name))]
        found += [Path(place, name) for name in names if not name.startswith(_SKIPPED)]
    return [path for path in sorted(found) if _size(path)]


def _size(path: Path) -> int:
    """Bytes of a file; 0 if it is gone since the folder was listed."""
    try:
        return path.stat().st_size
    except FileNotFoundError:
        return 0


def _is_store(folder: FilePath) -> bool:
    return any((folder / name).exists() for name in _STORE)


def _refuse_what_is_more(folder: FilePath) -> None:
    """Raise UsageError for a folder whose files are no rows, or not all of them."""
    if _is_store(folder):
        raise UsageError(
            f"{folder}: is a Zarr store, expected files of rows; train on a store as it is, or give the files that it "
            "was made from"
        )
    for name, kind in _LAKES.items():
        if (folder / name).exists():
            raise UsageError(
                f"{folder}: is a table of {kind}, whose files hold rows that are gone, too, expected plain files; read "
                "it with its own library and give its table of Arrow to coremargin.ingest"
            )
