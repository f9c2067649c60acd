"""Standard output and error of a command that continues, and saves its work, after their reader has gone.

A stream that is closed when the process starts is replaced by the null device, instead of the first opened file, which
would get its number. If writing fails (the reader is gone, the disk is full), later output is discarded.
"""

from __future__ import annotations

import io
import os
import select
import sys
from typing import Any


class Output(io.BufferedWriter):
    """A standard stream that raises nothing; ``error`` is the first exception that it would have raised.

    It is based on Python's own buffer: after an interrupt during a write, nothing is written twice.
    """

    error: OSError | None = None

    def write(self, data: Any, /) -> int:
        """Write all of the data; discard it after an error."""
        rest = memoryview(data).cast("B")
        size = rest.nbytes
        while self.error is None:
            try:
                super().write(rest)
                break
            except BlockingIOError as full:  # another process has made the terminal non-blocking
                rest = rest[full.characters_written :]
                select.select([], [self], [])
            except OSError as error:
                self.error = error
        return size

    def flush(self) -> None:
        """Write the buffer; discard it after an error."""
        while self.error is None:
            try:
                super().flush()
                break
            except BlockingIOError:
                select.select([], [self], [])
            except OSError as error:
                self.error = error


def protect_outputs() -> None:
    """Make writes to ``sys.stdout`` and ``sys.stderr`` never fail, and reserve the numbers of closed streams."""
    for number in (0, 1, 2):
        try:
            os.fstat(number)
        except OSError:
            os.set_inheritable(os.open(os.devnull, os.O_RDWR), True)  # gets the smallest free number: this one
    if sys.stdin is None:
        sys.stdin = open(0, closefd=False)  # noqa: SIM115 - as long as the process lives
    sys.stdout, sys.stderr = _protected(sys.stdout, 1), _protected(sys.stderr, 2)


def _protected(stream: Any, number: int) -> io.TextIOWrapper:
    """The stream with ``Output`` below; characters that its encoding lacks are escaped."""
    file = Output(io.FileIO(number, "w", closefd=False))
    encoding = "utf-8" if stream is None else stream.encoding
    lines = number == 2 or file.isatty()
    return io.TextIOWrapper(file, encoding, "backslashreplace", line_buffering=lines)


def lost_output() -> OSError | None:
    """The error that made output to stdout be discarded; None if there was none, or without ``protect_outputs``."""
    sys.stdout.flush()
    file = getattr(sys.stdout, "buffer", None)
    return file.error if isinstance(file, Output) else None
