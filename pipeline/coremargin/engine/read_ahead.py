"""While the driver solves, the system fetches what the next scan begins with, where it is known what that is.

Nothing is read into this process: its memory, the count of bytes and the bits of a result stay as they are.
"""

from __future__ import annotations

import os
import threading
from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager, suppress
from typing import TYPE_CHECKING, Protocol, runtime_checkable

from coremargin.data.view import root
from coremargin.errors import CoremarginError
from coremargin.formats.plain_file import plain

if TYPE_CHECKING:
    from coremargin.data.layout import FilePart
    from coremargin.data.source import Source


@runtime_checkable
class InFiles(Protocol):
    """A source whose chunks lie in files of this machine, or of one that it sees as its own."""

    def files(self, chunk: int) -> Sequence[FilePart]:
        """What is read of them for a chunk."""


@contextmanager
def reading_ahead(source: Source, chunks: Iterable[int], most_bytes: int) -> Iterator[None]:
    """While the context lasts, fetch these chunks into the page cache, in this order, up to so many bytes.

    Does nothing for rows that are not in files, and where the system cannot be asked. What cannot be fetched is for
    whoever reads it to complain about.
    """
    stored, over = root(source), threading.Event()
    fetcher: threading.Thread | None = None
    if hasattr(os, "posix_fadvise") and isinstance(stored, InFiles):
        parts = (part for chunk in chunks for part in stored.files(chunk))
        fetcher = threading.Thread(target=_fetch, args=(parts, most_bytes, over), name="coremargin-ahead", daemon=True)
        try:
            fetcher.start()
        except RuntimeError:  # this machine allows no more threads
            fetcher = None
    try:
        yield
    finally:
        over.set()
        if fetcher is not None:
            fetcher.join()


def _fetch(parts: Iterable[FilePart], most_bytes: int, over: threading.Event) -> None:
    left = most_bytes
    with suppress(OSError, CoremarginError):
        for part in parts:
            left -= part.nbytes
            if over.is_set() or left < 0:
                return
            with open(part.file, "rb", buffering=0, opener=plain) as file:
                os.posix_fadvise(file.fileno(), part.start, part.nbytes, os.POSIX_FADV_WILLNEED)
