"""Files that are read: plain ones, whole ones of bounded size. A pipe would wait for ever, a device would not end."""

from __future__ import annotations

import errno
import os
import stat
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import BinaryIO

from coremargin.errors import DataError, raise_if_limit


def plain(path: str, flags: int, folder: int | None = None) -> int:
    """An opener for ``open``: waits for nothing; folder: an open one that the path starts from.

    Raises OSError for anything but a plain file.
    """
    handle = os.open(path, flags | os.O_NONBLOCK, 0o666, dir_fd=folder)  # as open() makes files, not executable
    if not stat.S_ISREG(os.fstat(handle).st_mode):
        os.close(handle)
        raise OSError(errno.EINVAL, "expected a plain file, found something else", path)
    return handle


@contextmanager
def opened_plain(path: Path, *, error: type[DataError] = DataError) -> Iterator[BinaryIO]:
    """A plain file, for reading. Raises ``error`` for something else or what cannot be read.

    FileNotFoundError and NotADirectoryError pass.
    """
    try:
        with open(path, "rb", opener=plain) as file:
            yield file
    except (FileNotFoundError, NotADirectoryError):
        raise
    except OSError as problem:
        raise_if_limit(problem, path)
        raise error(f"{path}: cannot be read: {problem.strerror}; restore it from a copy") from problem


def read_plain(path: Path, largest: int, *, error: type[DataError] = DataError) -> bytes:
    """The bytes of a plain file. Raises ``error``: something else, longer than ``largest``, cannot be read.

    FileNotFoundError and NotADirectoryError pass.
    """
    with opened_plain(path, error=error) as file:
        size = os.fstat(file.fileno()).st_size
        if size > largest:
            raise error(f"{path}: expected at most {largest:,} bytes, found {size:,}; restore it from a copy")
        return file.read()
