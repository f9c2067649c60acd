"""Reading ahead: the first chunks of the next scan while the driver solves, and those of a block while it is probed.

The first costs no memory of this process, as the system caches files. Objects of a service are fetched into the memory
of the process that needs them: of the block that it probes, and of those that it is to probe next. Bits of a result and
counts of bytes do not change.
"""

from __future__ import annotations

import threading
import time
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
    from coremargin.engine.protocols import Block

_MOST_NEXT = 32  # blocks that a worker may fetch before they are sent to it
_RELEASE_S = 30.0  # after so many seconds they are sent elsewhere


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


class NextBlocks:
    """Blocks whose chunks a worker fetches before it is sent there to probe them.

    Dask may give a block to another worker: what was fetched of it is released when more blocks follow, or after a
    while.
    """

    def __init__(self, most: int = _MOST_NEXT, release_s: float = _RELEASE_S) -> None:
        """most: blocks at a time; the bytes of all of them are limited by the storage."""
        self._most, self._release_s = most, release_s
        self._begun = dict[tuple[str, str, tuple[int, ...]], tuple[ExitStack, float]]()
        self._lock = threading.Lock()
        self._timer: threading.Timer | None = None

    def begin(self, source: Source, blocks: Iterable[Block]) -> None:
        """Fetch the chunks of blocks, in this order, but for those that have begun."""
        for block in blocks:
            key = _key(source, block)
            with self._lock:
                if key in self._begun:
                    continue
                with suppress(OSError, CoremarginError):  # which the later read raises
                    self._begun[key] = begin_fetching(source, block.chunks), time.monotonic()
                over = [self._begun.pop(old)[0] for old in list(self._begun)[: -self._most]]
            for fetching in over:
                fetching.close()
        self._release_later()

    def take(self, source: Source, block: Block) -> ExitStack:
        """What fetches the chunks of a block, from now on or since ``begin``."""
        with self._lock:
            found = self._begun.pop(_key(source, block), None)
        return begin_fetching(source, block.chunks) if found is None else found[0]

    def _release_later(self) -> None:
        with self._lock:
            if self._timer is None and self._begun:
                self._timer = threading.Timer(self._release_s, self._release)
                self._timer.daemon = True
                self._timer.start()

    def _release(self) -> None:
        before = time.monotonic() - self._release_s
        with self._lock:
            self._timer = None
            over = [self._begun.pop(key)[0] for key, (_, begun) in list(self._begun.items()) if begun <= before]
        for fetching in over:
            fetching.close()
        self._release_later()


def _key(source: Source, block: Block) -> tuple[str, str, tuple[int, ...]]:
    return str(source.name), source.digest, tuple(block.chunks)


def is_fetched(source: Source) -> bool:
    """Whether the chunks of a source are objects of a service, which take long to come."""
    stored = root(source)
    return isinstance(stored, InStorage) and stored.storage.remote


#: Of this process.
next_blocks = NextBlocks()


def _fetch(parts: Iterable[ObjectPart], most_bytes: int, over: threading.Event) -> None:
    left = most_bytes
    with suppress(OSError, CoremarginError):
        for part in parts:
            left -= part.nbytes
            if over.is_set() or left < 0:
                return
            part.storage.prefetch(part.key, part.start, part.nbytes)
