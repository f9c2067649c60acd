"""Files that are read whole: plain ones of bounded size. A pipe would wait for ever, a device would not end."""

from __future__ import annotations

import os
import stat
from pathlib import Path

from coremargin.errors import DataError, raise_if_limit


def read_plain(path: Path, largest: int, *, error: type[DataError] = DataError) -> bytes:
    """The bytes of a plain file. Raises ``error``: something else, longer than ``largest``, cannot be read.

    FileNotFoundError and NotADirectoryError pass.
    """
    try:
        handle = os.open(path, os.O_RDONLY | os.O_NONBLOCK | os.O_CLOEXEC)
        if not stat.S_ISREG(os.fstat(handle).st_mode):
            os.close(handle)
            raise error(f"{path}: expected a plain file, found something else; restore it from a copy")
        with os.fdopen(handle, "rb") as file:
            size = os.fstat(handle).st_size
            if size > largest:
                raise error(f"{path}: expected at most {largest:,} bytes, found {size:,}; restore it from a copy")
            data = file.read()
    except (FileNotFoundError, NotADirectoryError):
        raise
    except OSError as problem:
        raise_if_limit(problem, path)
        raise error(f"{path}: cannot be read: {problem.strerror}; restore it from a copy") from problem
    return data
