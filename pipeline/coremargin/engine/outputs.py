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


class Output(io.FileIO):
    """The file of a standard stream, which raises nothing; ``error`` is what it would have raised first."""

    def __init__(self, number: int) -> None:
        super().__init__(number, "w", closefd=False)
        self.error: OSError | None = None

    def write(self, data: Any, /) -> int:
        """Write as much as the system takes; all that comes after an error is lost."""
        size = memoryview(data).nbytes
        while self.error is None:
            try:
                written = super().write(data)
            except OSError as error:
                self.error = error
            else:
                if written is not None:
                    return written
                select.select([], [self], [])  # another process has set the terminal to wait for nobody
        return size


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
    file = Output(number)
    encoding = "utf-8" if stream is None else stream.encoding
    lines = number == 2 or file.isatty()
    return io.TextIOWrapper(io.BufferedWriter(file), encoding, "backslashreplace", line_buffering=lines)


def lost_output() -> OSError | None:
    """Why something that was printed on stdout is lost; None where nothing is, or ``protect_outputs`` has no part."""
    sys.stdout.flush()
    file = getattr(getattr(sys.stdout, "buffer", None), "raw", None)
    return file.error if isinstance(file, Output) else None
