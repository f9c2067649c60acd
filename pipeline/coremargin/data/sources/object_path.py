"""Files of rows at addresses: what sources use of a ``pathlib.Path``, for an object of a bucket or a web server.

The content of an object is that of its first look: each answer of the service carries a tag (ETag), and one with
another tag is refused by name. Bytes are fetched in ranges, ahead of whoever reads in order.
"""

from __future__ import annotations

import io
import re
from collections import deque
from collections.abc import Collection, Iterable, Iterator, Sequence
from contextlib import suppress
from fnmatch import fnmatchcase
from functools import partial
from pathlib import PurePosixPath
from typing import TYPE_CHECKING, Any, BinaryIO, cast

from coremargin.data import object_storage
from coremargin.data.object_storage import ObjectStorage, Part
from coremargin.errors import ObjectChanged, RunError, UsageError
from coremargin.formats.location import Location

if TYPE_CHECKING:
    from coremargin.formats.object_storage import Fetched

#: Bytes of the first ranges of an object that is read in order; then ``_RANGE_BYTES``, of which so many are ahead.
_FIRST_BYTES = (64 << 10, 1 << 20)
_RANGE_BYTES = 4 << 20
_AHEAD = 6
_STREAMS = 4  # places of one object that are read in turns, such as members of an archive
_TRANSFERS = 3  # of a range that comes without its end
_MAGIC = re.compile(r"[*?\[]")
_CHANGED = "{}: the object changed while it was read; run again when it is written no more"


class ObjectPath:
    """An object, or a prefix of objects, by its key in a bucket or on a host.

    It has the methods of ``Path`` that sources need, and is a path-like object, whose text is its address.
    """

    def __init__(self, storage: ObjectStorage, key: str) -> None:
        """storage: of the whole bucket."""
        self.storage, self.key = storage, key
        self._seen: tuple[str, int] | None = None

    def __str__(self) -> str:
        return f"{self.storage.name}/{self.key}" if self.key else str(self.storage.name)

    def __repr__(self) -> str:
        return f"{type(self).__name__}({str(self)!r})"

    def __fspath__(self) -> str:
        return str(self)

    def __truediv__(self, name: str) -> ObjectPath:
        return ObjectPath(self.storage, f"{self.key}/{name}" if self.key else name)

    @property
    def name(self) -> str:
        """The last part of the key."""
        return self.key.rpartition("/")[2]

    @property
    def suffix(self) -> str:
        """The ending of the name, with its dot."""
        return PurePosixPath(self.name).suffix

    @property
    def stem(self) -> str:
        """The name without its ending."""
        return PurePosixPath(self.name).stem

    @property
    def folders(self) -> tuple[str, ...]:
        """The parts of the address above the name."""
        return tuple(str(self).split("/")[:-1])

    def with_name(self, name: str) -> ObjectPath:
        """The object of another name next to it."""
        return ObjectPath(self.storage, self.key[: len(self.key) - len(self.name)] + name)

    def with_suffix(self, suffix: str) -> ObjectPath:
        """The object of the same name with another ending."""
        return self.with_name(self.stem + suffix)

    def exists(self) -> bool:
        """Whether there is such an object, or anything below such a prefix. Raises RunError, StoreError."""
        return self._is_object() or self.is_dir()

    def is_dir(self) -> bool:
        """Whether it is a prefix of objects, and none itself. Raises RunError, StoreError."""
        return not self._is_object() and self.storage.lists and any(self.storage.list_all(self.key))

    def is_file(self) -> bool:
        """Whether it is an object."""
        return self._is_object()

    def _is_object(self) -> bool:
        if not self.key:
            return False
        try:
            self._look()
        except FileNotFoundError:
            return False
        return True

    def _look(self) -> tuple[str, int]:
        self._seen = self._seen or self.storage.head(self.key)
        return self._seen

    @property
    def tag(self) -> str:
        """What identifies the content. Raises OSError."""
        return self._look()[0]

    @property
    def nbytes(self) -> int:
        """Size of the content. Raises OSError."""
        return self._look()[1]

    def open(self, mode: str = "rb") -> BinaryIO:
        """The content, for reading. Raises OSError."""
        del mode
        return cast("BinaryIO", io.BufferedReader(ObjectBytes(self), _FIRST_BYTES[0]))

    def fetch(self, start: int, stop: int) -> memoryview:
        """Bytes [start, stop) of the content. Raises ObjectChanged, RunError."""
        most = 0
        for _ in range(_TRANSFERS):
            try:
                found = self.checked(self.storage.fetch(self.key, start, stop))
            except FileNotFoundError as error:
                raise ObjectChanged(f"{self}: the object was removed while it was read; run again") from error
            except OSError as error:  # it ends before these bytes
                raise ObjectChanged(_CHANGED.format(self)) from error
            if len(found) == stop - start:
                return found
            most = max(most, len(found))
        raise RunError(f"{self}: the service sent {most:,} bytes of {stop - start:,}; run again")

    def checked(self, found: Fetched) -> memoryview:
        """The bytes of an answer. Raises ObjectChanged for those of another content."""
        if (found.tag, found.nbytes) != self._look():
            raise ObjectChanged(_CHANGED.format(self))
        return found.data

    def files_below(self, skipped: tuple[str, ...], stores: Collection[str]) -> list[ObjectPath]:
        """All objects below, but empty ones, in the order of their keys.

        skipped: how names of objects and folders begin that are left out; stores: names whose folders are left out.
        """
        prefix = f"{self.key}/" if self.key else ""
        keys = {key.removeprefix(prefix): nbytes for key, nbytes in self.storage.list_all(self.key)}
        closed = {key.rpartition("/")[0] for key in keys if key.rpartition("/")[2] in stores}
        found = [
            ObjectPath(self.storage, prefix + key)
            for key, nbytes in keys.items()
            if nbytes
            and not any(name.startswith(skipped) for name in key.split("/"))
            and not any(key.startswith(f"{folder}/") for folder in closed)
        ]
        return sorted(found, key=lambda path: path.key.split("/"))


def expand_addresses(addresses: Iterable[Location]) -> Iterator[list[ObjectPath]]:
    """What each address names: an object or a prefix, or those that match a pattern, as ``glob.glob`` matches files.

    Raises UsageError: nothing matches; RunError, StoreError.
    """
    storages = dict[tuple[str, tuple[tuple[str, str], ...]], ObjectStorage]()
    for address in addresses:
        scheme, _, rest = address.partition("://")
        bucket, _, key = rest.partition("/")
        known = (f"{scheme}://{bucket}", tuple(address.options.items()))
        if known not in storages:
            storages[known] = ObjectStorage.of_generation(Location(known[0], address.options), None)
        path = ObjectPath(storages[known], key)
        if not _MAGIC.search(key) or not path.storage.lists or path.is_file():
            yield [path]
            continue
        found = sorted(set(_matches(path.storage, "", key.split("/"))), key=lambda name: name.split("/"))
        if not found:
            raise UsageError(f"{address}: no object matches this pattern")
        yield [ObjectPath(path.storage, name) for name in found]


def _matches(storage: ObjectStorage, prefix: str, names: Sequence[str]) -> Iterator[str]:
    """Keys below a prefix that match; those of prefixes, too, but behind ``**``."""
    name, rest = names[0], names[1:]
    start = f"{prefix}/" if prefix else ""
    if "**" in names[:1]:
        for key, _ in storage.list_all(prefix):
            if _matches_parts(key.removeprefix(start).split("/"), names):
                yield key
    elif not _MAGIC.search(name) and rest:
        yield from _matches(storage, start + name, rest)
    else:
        level = storage.list_level(prefix)
        objects = [] if rest else [one for one, _ in level.objects]
        for one in (*objects, *level.folders):
            if _matches_name(one, name):
                if rest:
                    yield from _matches(storage, start + one, rest)
                else:
                    yield start + one


def _matches_parts(parts: Sequence[str], names: Sequence[str]) -> bool:
    if not names:
        return not parts
    if names[0] == "**":
        hidden = next((at for at, part in enumerate(parts) if part.startswith(".")), len(parts))
        return any(_matches_parts(parts[at:], names[1:]) for at in range(hidden + 1))
    return bool(parts) and _matches_name(parts[0], names[0]) and _matches_parts(parts[1:], names[1:])


def _matches_name(name: str, pattern: str) -> bool:
    return fnmatchcase(name, pattern) and (not name.startswith(".") or pattern.startswith("."))


class ObjectBytes(io.RawIOBase):
    """The content of an object as a seekable file, whose reads are never short. One thread reads at a time."""

    def __init__(self, path: ObjectPath) -> None:
        """Raises OSError."""
        self._path, self._nbytes, self._at = path, path.nbytes, 0
        self._expected = list[_Stream]()
        self._streams = list[_Stream]()

    def readable(self) -> bool:
        """It is."""
        return True

    def seekable(self) -> bool:
        """It is."""
        return True

    def size(self) -> int:
        """Bytes of the content."""
        return self._nbytes

    def tell(self) -> int:
        """Where the next read begins."""
        return self._at

    def seek(self, offset: int, whence: int = io.SEEK_SET) -> int:
        """Move to where the next read begins."""
        start = {io.SEEK_SET: 0, io.SEEK_CUR: self._at, io.SEEK_END: self._nbytes}[whence]
        self._at = max(0, start + offset)
        return self._at

    def readinto(self, buffer: Any) -> int:
        """Fill the buffer, unless the content ends before."""
        view, done = memoryview(buffer).cast("B"), 0
        while done < len(view) and self._at < self._nbytes:
            stream = self._stream()
            data = stream.read(self._at)[: len(view) - done]
            view[done : done + len(data)] = data
            done, self._at = done + len(data), self._at + len(data)
            stream.drop_before(self._at)
        return done

    def expect(self, spans: Iterable[tuple[int, int]], range_bytes: int, ahead: int | None) -> None:
        """Fetch parts of the content, which take the place of those that were expected before.

        ahead: ranges of each part, which is read in order; None: all, which are held and read in any order.
        """
        for stream in self._expected:
            stream.close()
        clipped = [(max(0, start), min(stop, self._nbytes)) for start, stop in spans]
        self._expected = [
            _Stream(self._path, start, stop, (range_bytes,), ahead) for start, stop in clipped if start < stop
        ]

    def close(self) -> None:
        """Stop fetching."""
        for stream in (*self._expected, *self._streams):
            stream.close()
        super().close()

    def _stream(self) -> _Stream:
        """What has the next bytes."""
        for stream in self._expected:
            if stream.has(self._at):
                return stream
        found = next((stream for stream in self._streams if stream.has(self._at)), None)
        if found is None:
            found = _Stream(self._path, self._at, self._nbytes, (*_FIRST_BYTES, _RANGE_BYTES), _AHEAD)
        else:
            self._streams.remove(found)
        self._streams.append(found)
        if len(self._streams) > _STREAMS:
            self._streams.pop(0).close()
        return found


class _Range:
    """Bytes [start, stop) that are being fetched."""

    def __init__(self, path: ObjectPath, start: int, stop: int) -> None:
        self.path, self.start, self.stop = path, start, stop
        self.part = Part(partial(path.storage.fetch, path.key, start, stop), stop - start)
        self._data: memoryview | None = None

    def data(self) -> memoryview:
        if self._data is None:
            found = None
            with suppress(OSError):  # which the second request reports
                found = object_storage.prefetcher.take(self.part)
            data = None if found is None else self.path.checked(found)
            whole = data is not None and len(data) == self.stop - self.start
            self._data = data if whole else self.path.fetch(self.start, self.stop)
        return cast("memoryview", self._data)


class _Stream:
    """Bytes [start, stop) of an object, which are read in order: ranges, the last of which are ahead of the reader."""

    def __init__(self, path: ObjectPath, start: int, stop: int, sizes: Sequence[int], ahead: int | None) -> None:
        """sizes: of the first ranges; all others have the last size, and only these are fetched ahead.

        ahead: as of ``ObjectBytes.expect``.
        """
        self._path, self._stop, self._sizes, self._ahead = path, stop, list(sizes), ahead
        self._ranges = deque[_Range]()
        self._next = start
        self._extend()

    def has(self, at: int) -> bool:
        """Whether the byte is among those that are held, or is the next one."""
        first = self._ranges[0].start if self._ranges else self._next
        return first <= at < self._next or (at == self._next and at < self._stop)

    def read(self, at: int) -> memoryview:
        """Bytes from there on, as many as lie in one range."""
        self.drop_before(at)
        self._extend()
        found = next(one for one in self._ranges if at < one.stop)
        return found.data()[at - found.start :]

    def drop_before(self, at: int) -> None:
        """Release what lies before this byte, unless all is held."""
        while self._ahead is not None and self._ranges and self._ranges[0].stop <= at:
            object_storage.prefetcher.drop(self._ranges.popleft().part)

    def _extend(self) -> None:
        """Request ranges as far as they may be ahead."""
        while self._next < self._stop:
            if self._ranges and self._ahead is not None:
                first = self._ranges[0]
                if len(self._ranges) > (self._ahead if first.stop - first.start == self._sizes[-1] else 0):
                    return
            size = self._sizes.pop(0) if len(self._sizes) > 1 else self._sizes[0]
            found = _Range(self._path, self._next, min(self._next + size, self._stop))
            self._next = found.stop
            self._ranges.append(found)
            object_storage.prefetcher.request(found.part)

    def close(self) -> None:
        """Stop fetching."""
        for found in self._ranges:
            object_storage.prefetcher.drop(found.part)
        self._ranges.clear()
        self._next = self._stop
