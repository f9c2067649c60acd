"""Who reads a store says so, and who would take its files away asks first: by advisory locks on its folder.

A lock needs no file, and no right to write; the kernel frees it when its holder dies. Where a file system has no such
locks, nobody is asked.
"""

from __future__ import annotations

import fcntl
import gc
import os
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

from coremargin.errors import Busy


class Reading:
    """As long as this is held, nobody takes the store away."""

    def __init__(self, store: Path) -> None:
        self._handle = -1
        with suppress(OSError):
            self._handle = os.open(store, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
            fcntl.flock(self._handle, fcntl.LOCK_SH | fcntl.LOCK_NB)

    def close(self) -> None:
        """Read no more."""
        if self._handle >= 0:
            os.close(self._handle)
            self._handle = -1

    def __del__(self) -> None:
        with suppress(OSError):
            self.close()


@contextmanager
def nobody_reads(store: Path) -> Iterator[None]:
    """Nobody does, and until the end nobody begins to. Raises Busy."""
    gc.collect()  # what this process has read, and nobody holds any more
    handle = os.open(store, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
    try:
        try:
            fcntl.flock(handle, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            raise Busy(
                f"{store}: somebody is reading it, another job or an open Store; wait for the end, or write elsewhere"
            ) from None
        except OSError:  # no such locks here
            pass
        yield
    finally:
        os.close(handle)
