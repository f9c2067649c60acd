"""Files on disk: patterns, existence, size, kind."""

from __future__ import annotations

import glob
import os
from collections.abc import Sequence
from pathlib import Path
from typing import Any, TypeGuard

from coremargin.data.storages import open_storage
from coremargin.errors import DataError, UsageError
from coremargin.formats.local_path import local_path
from coremargin.formats.location import is_remote, location

_FILE_ENDINGS = (
    ".csv",
    ".tsv",
    ".txt",
    ".gz",
    ".parquet",
    ".npy",
    ".npz",
    ".svm",
    ".svmlight",
    ".libsvm",
    ".arff",
    ".json",
)
AnyPath = str | bytes | os.PathLike[str]


def is_path(value: Any) -> TypeGuard[AnyPath]:
    """Whether a value names a file, a folder or a pattern."""
    return isinstance(value, str | bytes | os.PathLike)


def local_source(source: Any) -> Any:
    """The source, a path as a local one, the address of a store as it is. Raises UsageError for other addresses."""
    if is_remote(source) and not named_as_file(source):
        return location(source)
    if is_path(source):
        return local_path(source)
    for one in source if isinstance(source, list | tuple) else ():
        if is_path(one):
            local_path(one)
    return source


def named_as_file(address: str | os.PathLike[str]) -> bool:
    """Whether an address ends as files do that ``ingest`` reads, not as a store's."""
    return os.fsdecode(address).lower().endswith(_FILE_ENDINGS)


def is_there(path: str | os.PathLike[str]) -> bool:
    """Whether something has this path or address; raises UsageError when that cannot be found out."""
    if is_remote(path):
        return open_storage(path).exists()
    try:
        return Path(path).exists()
    except OSError as error:  # too long a name, a folder that may not be looked into
        raise UsageError(f"{path}: cannot be looked up: {error.strerror}; give another path") from error


def expand(source: AnyPath | Sequence[AnyPath]) -> list[Path]:
    """The files that a path, a pattern (its matches in sorted order) or a list of these names."""
    if not isinstance(source, str | bytes | os.PathLike):
        return [path for part in source for path in expand(part)]
    path = local_path(source)
    text = str(path)
    if not glob.has_magic(text) or is_there(path):
        return [path]
    found = sorted(glob.glob(text, recursive=True))
    if "**" in text:  # matches folders and the files in them
        found = [name for name in found if not Path(name).is_dir()]
    if not found:
        raise UsageError(f"{text}: no file matches this pattern")
    return [Path(name) for name in found]


def file_bytes(path: Path) -> int:
    """Size of a file; raises UsageError when it is not there, not a file or not readable."""
    if is_there(path):
        if path.is_dir():
            raise UsageError(f"{path}: is a folder, expected a file; name its files, for instance '{path}/*'")
        if not path.is_file():
            raise UsageError(f"{path}: is no regular file, but rows are read more than once; save them to a file first")
    try:
        with path.open("rb"):
            size = path.stat().st_size
    except OSError as error:
        raise UsageError(f"{path}: expected a readable file: {error.strerror}") from error
    if size == 0:
        raise DataError(f"{path}: the file is empty: expected rows")
    return size
