"""Objects in the memory of this process, by addresses such as ``memory://rows``: for tests, and for small stores.

Another process has others under the same address. Nothing here is a file, so whatever works with such a storage works
with any that has the protocol.
"""

from __future__ import annotations

import gc
import threading
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import AbstractContextManager, contextmanager, nullcontext, suppress
from io import BytesIO
from itertools import count
from typing import TYPE_CHECKING, Any, BinaryIO, ClassVar, TypeVar, cast

import numpy as np

from coremargin.data.folder import refuse
from coremargin.data.storage import ABSENT, Entry, check_length, check_most, check_size, listed_bytes
from coremargin.errors import Busy, DataError
from coremargin.formats.open_folder import incomplete

if TYPE_CHECKING:
    from pathlib import Path

    from coremargin.data.checksum import Data
    from coremargin.data.storage import Owner, Owns, Storage, Tag
    from coremargin.formats.storage import ReadableStorage

T = TypeVar("T")
_MOST_BYTES = 1 << 62  # as far as this process knows


class InMemoryStorage:
    """Objects in a dictionary."""

    remote, lists = False, True

    _known: ClassVar[dict[str, InMemoryStorage]] = {}
    _tags = count(1)

    def __init__(self, name: str) -> None:
        """Use ``at`` for one that an address finds again."""
        self.name = name
        self.objects: dict[str, tuple[bytes, int]] = {}
        self._changing = threading.RLock()
        self.writers, self._readers = threading.Lock(), set[object]()
        self._prepared: InMemoryStorage | None = None

    @classmethod
    def at(cls, address: str) -> InMemoryStorage:
        """The one with this address, made where there is none yet."""
        return cls._known.setdefault(address, cls(address))

    def __repr__(self) -> str:
        return f"InMemoryStorage({self.name!r})"

    def __reduce__(self) -> tuple[Any, ...]:
        """Travels as its address, which another process does not know."""
        return InMemoryStorage.at, (self.name,)

    @property
    def snapshot(self) -> str:
        """The name."""
        return self.name

    def get(self, key: str) -> tuple[bytes, int]:
        """Bytes and tag of an object."""
        try:
            return self.objects[key]
        except KeyError:
            raise FileNotFoundError(2, "No such object", f"{self.name}/{key}") from None

    def open(self, key: str) -> BinaryIO:
        """Its bytes."""
        return BytesIO(self.get(key)[0])

    def exists(self, key: str = "") -> bool:
        """Whether there is an object, or any below a prefix."""
        return key in self.objects or bool(self.list(key))

    def preload(self, keys: Iterable[str]) -> None:
        """They are there."""

    def tag(self, key: str) -> Tag:
        """A number of its own for each content."""
        return self.get(key)[1]

    def list(self, prefix: str = "") -> list[Entry]:
        """By name."""
        start, found = prefix and f"{prefix}/", dict[str, Entry]()
        for key, (data, _) in sorted(self.objects.items()):
            if key.startswith(start):
                name, slash, _ = key[len(start) :].partition("/")
                found[name] = Entry(name, "folder", 0) if slash else Entry(name, "object", len(data))
        return [found[name] for name in sorted(found)]

    def chunks(self, nbytes: int | None, content_bytes: int, map_bytes: int) -> _Chunks:
        """Views of the objects."""
        return _Chunks(self, nbytes)

    def prefetch(self, key: str, start: int, nbytes: int) -> None:
        """It is there."""

    def fetching(self, ranges: Sequence[tuple[str, int, int]]) -> AbstractContextManager[None]:
        """They are there."""
        return nullcontext()

    def stored_bytes(self, prefix: str = "") -> int:
        """Of what is listed."""
        return listed_bytes(self, prefix)

    def write(self, key: str, parts: Sequence[Data], *, replaces: Tag | None = None) -> Tag:
        """Put the joined parts under the key."""
        with self._changing:
            found = self.objects.get(key)
            if replaces is not None and replaces != (ABSENT if found is None else found[1]):
                raise Busy(f"{self.name}: another writer has changed {key} meanwhile; nothing was written, do it again")
            tag = next(self._tags)
            self.objects[key] = b"".join(memoryview(part).cast("B") for part in parts), tag
            return tag

    def batch(self) -> AbstractContextManager[InMemoryStorage]:
        """One after the other."""
        return nullcontext(self)

    @contextmanager
    def create(self, key: str) -> Iterator[BinaryIO]:
        """A buffer, which is copied."""
        with BytesIO() as file:
            yield file
            self.write(key, [file.getvalue()])

    def link(self, key: str, file: BinaryIO, place: Path) -> bool:
        """It is written."""
        return False

    def protect(self, key: str) -> None:
        """No other process can."""

    def append(self, key: str, length: int, data: Data) -> None:
        """Put the longer bytes under the key."""
        with self._changing:
            found = self.objects.get(key, (b"", 0))[0]
            check_length(f"{self.name}/{key}", len(found), length)
            self.write(key, [found[:length], data])

    def sync(self, *prefixes: str) -> None:
        """Nothing lasts."""

    def remove(self, key: str, owns: Owns) -> None:
        """Delete what is owned."""
        with self._changing:
            for name in [name for name in self.objects if name == key or name.startswith(key and f"{key}/")]:
                if owns(name, False):
                    del self.objects[name]

    def sweep(self, prefix: str, owns: Owns) -> None:
        """Nothing is half-written."""

    def resolved(self) -> InMemoryStorage:
        """There are no links."""
        return self

    def lock_writers(self, called: str = "") -> _Right:
        """One at a time."""
        if not self.writers.acquire(blocking=False):
            raise Busy(f"{called or self.name}: another writer is at work there; wait for it to end")
        return _Right(self.writers.release)

    def lock_removal(self) -> _Right:
        """As many as there are."""
        me = object()
        self._readers.add(me)
        return _Right(lambda: self._readers.discard(me))

    @contextmanager
    def without_readers(self) -> Iterator[None]:
        """Whether there are readers now."""
        gc.collect()  # stores without references
        if self._readers:
            raise Busy(f"{self.name}: an open Store is reading it; wait for the end, or write elsewhere")
        yield

    def prepare(self) -> InMemoryStorage:
        """One that no address finds."""
        if self._prepared is None:
            self._prepared = InMemoryStorage(f"{self.name} (unpublished)")
        return self._prepared

    def prepared(self) -> InMemoryStorage | None:
        """The same."""
        return self._prepared

    def publish(self, prepared: Storage, owns: Owns) -> None:
        """Take its objects, and the lock of who writes there."""
        new = cast("InMemoryStorage", prepared)
        with self._changing:
            self.objects, self.writers, self._prepared = new.objects, new.writers, None

    def check_replaceable(self, kind: Owner, *, overwrite: bool) -> None:
        """By the names and records of what is there."""
        if self.exists():
            refuse(self.name, kind.what, kind.foreign_keys(self), overwrite=overwrite)

    @contextmanager
    def replacing(self, kind: Owner, *, overwrite: bool) -> Iterator[InMemoryStorage]:
        """As ``prepare`` and ``publish``."""
        self.check_replaceable(kind, overwrite=overwrite)
        new = InMemoryStorage(self.name)
        yield new
        self.publish(new, kind.owns)

    def read_whole(self, read: Callable[[ReadableStorage], T]) -> T:
        """Of a copy."""
        if not self.exists():
            raise DataError(f"{self.name}: expected a model, found nothing there")
        copy = InMemoryStorage(self.name)
        copy.objects = dict(self.objects)
        try:
            return read(copy)
        except FileNotFoundError as error:
            raise incomplete(self.name, error) from None

    def free_bytes(self) -> int:
        """Not known."""
        return _MOST_BYTES

    def zarr_node(self, key: str) -> Any:
        """A copy of all objects, which zarr-python holds as buffers of its own."""
        from zarr.core.buffer.cpu import Buffer
        from zarr.storage import MemoryStore, StorePath

        return StorePath(MemoryStore({name: Buffer.from_bytes(data) for name, (data, _) in self.objects.items()}), key)


class _Right:
    """What is given back once."""

    def __init__(self, release: Any) -> None:
        self._release = release

    def release(self) -> None:
        """Give it back."""
        release, self._release = self._release, None
        if release is not None:
            release()

    def __del__(self) -> None:
        with suppress(Exception):
            self.release()


class _Chunks:
    """The objects of one array."""

    def __init__(self, storage: InMemoryStorage, nbytes: int | None) -> None:
        self._storage, self._nbytes = storage, nbytes

    def read(self, key: str, start: int, stop: int, out: np.ndarray | None = None) -> tuple[np.ndarray, Tag]:
        """A view."""
        data, tag = self._storage.get(key)
        check_size(len(data), self._nbytes)
        return np.frombuffer(data, np.uint8)[start:stop], tag

    def read_all(self, key: str, most: int) -> tuple[np.ndarray, Tag]:
        """A view."""
        data, tag = self._storage.get(key)
        check_most(len(data), most)
        return np.frombuffer(data, np.uint8), tag

    def read_pieces(self, key: str, starts: Sequence[int], out: np.ndarray, tag: Tag) -> bool:
        """Copies."""
        data, found = self._storage.get(key)
        for k, start in enumerate(starts):
            out[k] = np.frombuffer(data, np.uint8, out.shape[1], start)
        return found == tag

    def in_memory(self, key: str) -> bool:
        """All are."""
        return True
