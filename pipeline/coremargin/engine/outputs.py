"""Standard output and error of a command's process: work goes on, and is saved, whether anybody reads them or not.

A stream that is closed when the process starts leads nowhere, instead of to the first file that is opened and gets its
number. One that cannot be written to (its reader has gone, its disk is full) loses what is written from then on.
"""

from __future__ import annotations

import io
import os
import select
import sys
from typing import Any


class Output(io.BufferedWriter):
    """The bytes of a standard stream, which raises nothing; ``error`` is what it would have raised first.

    The file below is Python's own: an interrupt that arrives while it writes finds nothing written and not yet counted,
    which would be written twice.
    """

    error: OSError | None = None

    def write(self, data: Any, /) -> int:
        """Take all of the data; what comes after an error is lost."""
        rest = memoryview(data).cast("B")
        size = rest.nbytes
        while self.error is None:
            try:
                super().write(rest)
                break
            except BlockingIOError as full:  # another process has set the terminal to wait for nobody
                rest = rest[full.characters_written :]
                select.select([], [self], [])
            except OSError as error:
                self.error = error
        return size

    def flush(self) -> None:
        """Write what is left."""
        while self.error is None:
            try:
                super().flush()
                break
            except BlockingIOError:
                select.select([], [self], [])
            except OSError as error:
                self.error = error


def protect_outputs() -> None:
    """Let no write to ``sys.stdout`` or ``sys.stderr`` fail, and no file have the number of a stream that is closed."""
    for number in (0, 1, 2):
        try:
            os.fstat(number)
        except OSError:
            os.set_inheritable(os.open(os.devnull, os.O_RDWR), True)  # the least number that is free: this one
    if sys.stdin is None:
        sys.stdin = open(0, closefd=False)  # noqa: SIM115 - as long as the process lives
    sys.stdout, sys.stderr = _protected(sys.stdout, 1), _protected(sys.stderr, 2)


def _protected(stream: Any, number: int) -> io.TextIOWrapper:
    """The stream, or where it is closed one that leads nowhere; characters that its encoding lacks are spelled out."""
    file = Output(io.FileIO(number, "w", closefd=False))
    encoding = "utf-8" if stream is None else stream.encoding
    lines = number == 2 or file.isatty()
    return io.TextIOWrapper(file, encoding, "backslashreplace", line_buffering=lines)


def lost_output() -> OSError | None:
    """Why something that was printed on stdout is lost; None where nothing is, or ``protect_outputs`` has no part."""
    sys.stdout.flush()
    file = getattr(sys.stdout, "buffer", None)
    return file.error if isinstance(file, Output) else None
