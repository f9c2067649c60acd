"""Reading ahead: the first chunks of the next scan while the driver solves, and those of a block while it is probed.

The first costs no memory of this process, as the system caches files. Objects of a service are fetched into the memory
of the process that needs them, so only while it probes them. Bits of a result and counts of bytes do not change.
"""

from __future__ import annotations

import threading
from collections.abc import Iterable, Iterator, Sequence
from contextlib import ExitStack, contextmanager, suppress
from typing import TYPE_CHECKING, Protocol, runtime_checkable

from coremargin.data.resident import Resident
from coremargin.data.view import View, root
from coremargin.errors import CoremarginError

if TYPE_CHECKING:
    from coremargin.data.layout import ObjectPart
    from coremargin.data.source import Source
    from coremargin.data.storage import Storage


@runtime_checkable
class InStorage(Protocol):
    """A source whose chunks are objects of a storage."""

    storage: Storage

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


def begin_fetching(source: Source, chunks: Iterable[int]) -> ExitStack:
    """Fetch these chunks for this process until the stack is closed, where that takes long; not those that it holds."""
    held, fetching = frozenset[int](), ExitStack()
    while isinstance(source, View):
        if isinstance(source, Resident):
            held = source.held()
        source = source.base
    if isinstance(source, InStorage) and source.storage.remote:
        parts = [part for chunk in chunks if chunk not in held for part in source.objects(chunk)]
        ranges = [(part.key, part.start, part.nbytes) for part in parts]
        fetching.enter_context(source.storage.fetching(ranges))
    return fetching


def _fetch(parts: Iterable[ObjectPart], most_bytes: int, over: threading.Event) -> None:
    left = most_bytes
    with suppress(OSError, CoremarginError):
        for part in parts:
            left -= part.nbytes
            if over.is_set() or left < 0:
                return
            part.storage.prefetch(part.key, part.start, part.nbytes)
