"""A file of lines to which several processes add in turn: a line is there whole, and on disk, or not at all."""

from __future__ import annotations

import fcntl
import os
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from coremargin.data.files import output_errors, sync_folder
from coremargin.formats.plain_file import plain


@contextmanager
def locked_file(path: Path, room: int = 0) -> Iterator[int]:
    """The file, open, made where it is not there; processes and threads wait for each other, for moments.

    room: bytes that are to be written. Raises OutputError.
    """
    with output_errors(path, room):
        file = plain(str(path), os.O_RDWR | os.O_CREAT)
        try:
            fcntl.flock(file, fcntl.LOCK_EX)
            yield file
        finally:
            os.close(file)


def append(file: int, end: int, data: bytes, path: Path) -> None:
    """Add lines behind the last whole one, which ends at ``end``; they are on disk when this returns.

    Half a line behind it was left by a killed process that has not acknowledged it. Raises OSError; nothing is added
    then.
    """
    os.ftruncate(file, end)
    try:
        view, place = memoryview(data), end
        while view:
            done = os.pwrite(file, view, place)
            view, place = view[done:], place + done
        os.fsync(file)
    except OSError:
        os.ftruncate(file, end)
        raise
    if not end:
        sync_folder(path.parent)
