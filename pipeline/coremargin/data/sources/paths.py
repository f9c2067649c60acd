"""Files on disk and at addresses: patterns, existence, size, kind."""

from __future__ import annotations

import glob
import os
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, TypeAlias, TypeGuard

from coremargin.data.sources.object_path import ObjectPath, expand_addresses
from coremargin.data.storages import open_storage
from coremargin.errors import DataError, UsageError
from coremargin.formats.local_path import local_path
from coremargin.formats.location import Location, is_remote, location

_FILE_ENDINGS = (
    ".csv",
    ".tsv",
    ".txt",
    ".gz",
    ".bz2",
    ".xz",
    ".parquet",
    ".pq",
    ".npy",
    ".npz",
    ".svm",
    ".svmlight",
    ".libsvm",
    ".conll",
    ".arff",
    ".json",
)
AnyPath = str | bytes | os.PathLike[str]
FilePath: TypeAlias = Path | ObjectPath  #: of a file, or of a folder of files


def is_path(value: Any) -> TypeGuard[AnyPath]:
    """Whether a value names a file, a folder or a pattern."""
    return isinstance(value, str | bytes | os.PathLike)


def resolve_paths(source: Any, options: Mapping[str, str] | None = None) -> Any:
    """The source, with each path as a local one and each address with these storage options.

    Raises UsageError for addresses that nothing opens.
    """
    if is_path(source):
        return _resolve(source, options)
    if isinstance(source, list | tuple) and any(map(is_path, source)):
        return [_resolve(one, options) if is_path(one) else one for one in source]
    return source


def _resolve(path: AnyPath, options: Mapping[str, str] | None) -> Path | Location | ObjectPath:
    if isinstance(path, ObjectPath):
        return path
    if is_remote(path):
        return location(path if isinstance(path, Location) else os.fsdecode(path), options)
    return local_path(path)


def named_as_file(address: str | os.PathLike[str]) -> bool:
    """Whether an address ends as files do that ``ingest`` reads, not as a store's."""
    return os.fsdecode(address).lower().endswith(_FILE_ENDINGS)


def is_there(path: FilePath | Location) -> bool:
    """Whether something has this path or address; raises UsageError when that cannot be found out."""
    if isinstance(path, ObjectPath):
        return path.exists()
    if is_remote(path):
        return open_storage(path).exists()
    try:
        return Path(path).exists()
    except OSError as error:  # too long a name, a folder that may not be looked into
        raise UsageError(f"{path}: cannot be looked up: {error.strerror}; give another path") from error


def expand(source: AnyPath | Sequence[AnyPath]) -> list[FilePath]:
    """The files that a path, an address, a pattern (its matches in sorted order) or a list of these names."""
    parts = [source] if isinstance(source, str | bytes | os.PathLike) else list(source)
    given = [_resolve(part, None) for part in parts]
    remote = expand_addresses(part for part in given if isinstance(part, Location))
    found = list[FilePath]()
    for part in given:
        if isinstance(part, ObjectPath):
            found.append(part)
        else:
            found += next(remote) if isinstance(part, Location) else _match(part)
    return found


def _match(path: Path) -> list[Path]:
    text = str(path)
    if not glob.has_magic(text) or is_there(path):
        return [path]
    found = sorted(glob.glob(text, recursive=True))
    if "**" in text:  # matches folders and the files in them
        found = [name for name in found if not Path(name).is_dir()]
    if not found:
        raise UsageError(f"{text}: no file matches this pattern")
    return [Path(name) for name in found]


def file_bytes(path: FilePath) -> int:
    """Size of a file; raises UsageError when it is not there, not a file or not readable."""
    if is_there(path):
        if path.is_dir():
            raise UsageError(f"{path}: is a folder, expected a file; name its files, for instance '{path}/*'")
        if not path.is_file():
            raise UsageError(f"{path}: is no regular file, but rows are read more than once; save them to a file first")
    try:
        if isinstance(path, ObjectPath):
            size = path.nbytes
        else:
            with path.open("rb"):
                size = path.stat().st_size
    except OSError as error:
        raise UsageError(f"{path}: expected a readable file: {error.strerror}") from error
    if size == 0:
        raise DataError(f"{path}: the file is empty: expected rows")
    return size
