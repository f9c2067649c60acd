"""The one protocol beneath stores and models: objects by key, whose bytes a disk, memory or a service keeps.

Nothing above it handles paths. A backend is a module with a class that has these methods, and a line in
storages.py. Reading alone is formats/storage.py, for ``verify`` has an opener of its own.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Hashable, Sequence
from contextlib import AbstractContextManager
from typing import TYPE_CHECKING, Any, BinaryIO, Literal, NamedTuple, Protocol, TypeAlias, TypeVar

from coremargin.errors import StoreError
from coremargin.formats.storage import ReadableStorage

if TYPE_CHECKING:
    from pathlib import Path

    import numpy as np

    from coremargin.data.checksum import Data

T = TypeVar("T")
#: What identifies the content of an object: another one whenever that may have changed. An ETag, or a file's inode,
#: size and time.
Tag: TypeAlias = Hashable
#: The tag of an object that is not there.
ABSENT: Tag = "absent"
#: Whether a key, or a folder where the second argument says so, is one that the owner of a storage writes.
Owns: TypeAlias = Callable[[str, bool], bool]


class Entry(NamedTuple):
    """What lies directly below a prefix."""

    name: str
    kind: Literal["object", "folder", "link", "other"]
    nbytes: int


class WrongSize(Exception):
    """An object has another size than every object of its array, or is larger than any can be."""


def check_length(place: str, found: int, length: int) -> None:
    """Raises StoreError for an object that is to be continued and has lost its end."""
    if found < length:
        raise StoreError(
            f"{place}: expected at least {length:,} bytes, found {found:,}: its end is missing; restore it from a copy "
            "(nothing was committed)"
        )


def check_size(found: int, expected: int | None) -> None:
    """Raises WrongSize."""
    if found != expected:
        what = "cut short" if found < (expected or 0) else "too long"
        raise WrongSize(f"the file is {what}: expected {expected:,} bytes, got {found:,}")


def check_most(found: int, most: int) -> None:
    """Raises WrongSize."""
    if found > most:
        raise WrongSize(f"expected at most {most:,} bytes, got {found:,}")


class Chunks(Protocol):
    """The objects of one array, all of one size where that is known. Safe in many threads.

    Returned buffers stay unchanged as long as they are referenced.
    """

    def read(self, key: str, start: int, stop: int, out: np.ndarray | None = None) -> tuple[np.ndarray, Tag]:
        """Bytes [start, stop) of an object, (n,) uint8, in ``out`` or not. Raises OSError, WrongSize."""

    def read_all(self, key: str, most: int) -> tuple[np.ndarray, Tag]:
        """All bytes of an object of whatever size up to ``most``. Raises OSError, WrongSize."""

    def read_pieces(self, key: str, starts: Sequence[int], out: np.ndarray, tag: Tag) -> bool:
        """Fill the rows of ``out`` (m, n) uint8 with the n bytes from each start. False: the object has another tag."""

    def in_memory(self, key: str) -> bool:
        """Whether an object that was read stays in memory, so that reading it again costs nothing."""


class Owner(Protocol):
    """A kind of model or store: the names of its objects, and whether foreign ones are among them (owned.py)."""

    @property
    def what(self) -> str:
        """In words, as in "a model"."""

    def owns(self, key: str, folder: bool) -> bool:
        """Whether an object, or a folder, is of this kind by its name."""

    def foreign_keys(self, storage: Storage, *, whole: bool = True) -> list[str]:
        """What is not; whole: also whether the records are."""

    def foreign_files(self, folder: Path, *, whole: bool = True) -> list[str]:
        """The same of a folder."""

    def remove(self, root: Path, below: str = "") -> None:
        """Remove what is of this kind in a folder."""


class Lock(Protocol):
    """A right that its holder gives back."""

    def release(self) -> None:
        """Give it back; twice does no harm."""


class Writable(Protocol):
    """What writes objects by key."""

    def write(self, key: str, parts: Sequence[Data], *, replaces: Tag | None = None) -> Tag:
        """As ``Storage.write``."""


class Storage(ReadableStorage, Protocol):
    """Objects by key, of one store or one model."""

    @property
    def remote(self) -> bool:
        """Whether each read transfers the bytes again: it takes long, and they may be damaged on their way."""

    @property
    def lists(self) -> bool:
        """Whether it knows its objects: a web server does not."""

    @property
    def snapshot(self) -> str:
        """By which another process opens these objects, where others may have taken their place by then."""

    def tag(self, key: str) -> Tag:
        """Of an object as it is now. Raises OSError."""

    def list(self, prefix: str = "") -> list[Entry]:
        """What lies directly below a prefix, by name; nothing where there is no such prefix."""

    def chunks(self, nbytes: int | None, content_bytes: int, map_bytes: int) -> Chunks:
        """What reads the objects of an array.

        nbytes: of each object, None where they differ. content_bytes: so many of these, from the first one, are read.
        map_bytes: that may stay in the memory of this process, of all arrays; 0: of this one none.
        """

    def prefetch(self, key: str, start: int, nbytes: int) -> None:
        """Begin to fetch what will be read soon by any process of this machine. Raises OSError."""

    def fetching(self, ranges: Sequence[tuple[str, int, int]]) -> AbstractContextManager[None]:
        """Within the context, fetch what this process reads soon, as far as memory allows: (key, start, bytes) each."""

    def stored_bytes(self, prefix: str = "") -> int:
        """Bytes of all objects below a prefix; 0 if there is none; lost objects are reported when they are read."""

    def write(self, key: str, parts: Sequence[Data], *, replaces: Tag | None = None) -> Tag:
        """Write an object from parts: it appears whole, and its bytes last. Returns its tag.

        replaces: the tag of the object whose place it takes, or ABSENT. Raises OutputError; Busy: another one is there.
        """

    def batch(self) -> AbstractContextManager[Writable]:
        """What writes objects in any order, several at a time where each takes long; at the end all are written.

        Their tags are not known before. Parts must not change within the context, which raises as ``write``.
        """

    def create(self, key: str) -> AbstractContextManager[BinaryIO]:
        """What to write an object to piece by piece; it appears at the end of the context. Raises OutputError."""

    def link(self, key: str, file: BinaryIO, place: Path) -> bool:
        """Let an object be an open file, whose path is given, without a copy. False: it has to be written."""

    def protect(self, key: str) -> None:
        """Make an object read-only; it may belong to another model too."""

    def append(self, key: str, length: int, data: Data) -> None:
        """Let an object be its first ``length`` bytes and these. Raises OutputError; StoreError: it has fewer."""

    def sync(self, *prefixes: str) -> None:
        """Let the names of what was written directly below prefixes last. Raises OutputError."""

    def remove(self, key: str, owns: Owns) -> None:
        """Remove an object, or everything below a prefix, "" for all, as far as it is owned. Raises OSError."""

    def sweep(self, prefix: str, owns: Owns) -> None:
        """Remove what killed writers left half-written directly below a prefix."""

    def resolved(self) -> Storage:
        """The storage that is written to: where links lead."""

    def lock_writers(self, called: str = "") -> Lock:
        """The right to write. called: for messages, None: the name. Raises Busy, OutputError."""

    def lock_removal(self) -> Lock:
        """A lock held while reading: objects are not removed before it is released."""

    def without_readers(self) -> AbstractContextManager[None]:
        """No process reads until the end of the context. Raises Busy."""

    def prepare(self) -> Storage:
        """Where to write what is to take the place of this storage as a whole. Raises OutputError."""

    def prepared(self) -> Storage | None:
        """The result of an earlier ``prepare``, if it still exists."""

    def publish(self, prepared: Storage, owns: Owns) -> None:
        """Let what was prepared take this place, at once; what was here is removed. Raises OutputError."""

    def check_replaceable(self, kind: Owner, *, overwrite: bool) -> None:
        """Raise, hours before it is done, what ``replacing`` would raise: UsageError, OutputError."""

    def replacing(self, kind: Owner, *, overwrite: bool) -> AbstractContextManager[Storage]:
        """An empty storage to fill, which takes the place of this one at the end, or is removed after an exception.

        Raises UsageError: something is there, of another kind or not to be overwritten; OutputError.
        """

    def read_whole(self, read: Callable[[ReadableStorage], T]) -> T:
        """``read`` of the objects of a model as they are at one moment, again if they were replaced meanwhile.

        Raises DataError: there are none, or one that ``read`` needs is missing.
        """

    def free_bytes(self) -> int:
        """That are left for objects."""

    def zarr_node(self, key: str) -> Any:
        """What zarr-python opens as the array or group of this key."""


def write_json(storage: Writable, key: str, value: dict[str, Any], *, replaces: Tag | None = None) -> Tag:
    """Write a JSON object; NaN and infinities are refused. Raises as ``Storage.write``."""
    return storage.write(key, [json.dumps(value, indent=1, allow_nan=False).encode()], replaces=replaces)


def listed_bytes(storage: Storage, prefix: str = "") -> int:
    """``Storage.stored_bytes`` of storages that list at no cost."""
    return sum(
        listed_bytes(storage, f"{prefix}/{entry.name}" if prefix else entry.name)
        if entry.kind == "folder"
        else entry.nbytes
        for entry in storage.list(prefix)
    )
