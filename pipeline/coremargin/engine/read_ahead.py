"""Prefetch the first chunks of the next scan, if they are known, while the driver solves.

Nothing is read into this process: its memory, the count of bytes and the bits of a result do not change.
"""

from __future__ import annotations

import threading
from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager, suppress
from typing import TYPE_CHECKING, Protocol, runtime_checkable

from coremargin.data.view import root
from coremargin.errors import CoremarginError

if TYPE_CHECKING:
    from coremargin.data.layout import ObjectPart
    from coremargin.data.source import Source


@runtime_checkable
class InStorage(Protocol):
    """A source whose chunks are objects of a storage."""

    def objects(self, chunk: int) -> Sequence[ObjectPart]:
        """The byte ranges that are read for a chunk."""


@contextmanager
def reading_ahead(source: Source, chunks: Iterable[int], most_bytes: int) -> Iterator[None]:
    """While the context lasts, prefetch these chunks, in this order, up to so many bytes.

    Does nothing for rows that are in memory. Errors are ignored here: the later read raises them.
    """
    stored, over = root(source), threading.Event()
    fetcher: threading.Thread | None = None
    if isinstance(stored, InStorage):
        parts = (part for chunk in chunks for part in stored.objects(chunk))
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


def _fetch(parts: Iterable[ObjectPart], most_bytes: int, over: threading.Event) -> None:
    left = most_bytes
    with suppress(OSError, CoremarginError):
        for part in parts:
            left -= part.nbytes
            if over.is_set() or left < 0:
                return
            part.storage.prefetch(part.key, part.start, part.nbytes)
