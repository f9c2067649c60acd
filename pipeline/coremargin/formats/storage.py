"""What reads stores and models: objects by key. Where they lie, on a disk or elsewhere, is a storage's own affair.

A key is a name with slashes, such as ``blocks/000000/digest/c.0``. What cannot be read is an OSError whatever the
storage: FileNotFoundError or NotADirectoryError where there is no such object.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager, suppress
from functools import wraps
from typing import BinaryIO, ParamSpec, Protocol, TypeVar

from coremargin.errors import DataError, raise_if_limit
from coremargin.formats.strict_json import cut

P = ParamSpec("P")
T = TypeVar("T")
MISSING = (FileNotFoundError, NotADirectoryError)
_TRANSFERS = 5  # of an object that comes damaged in another way each time


class ReadableStorage(Protocol):
    """Objects that can be read."""

    @property
    def name(self) -> str:
        """The path or address, for messages."""

    def open(self, key: str) -> BinaryIO:
        """An object, for reading, as it is now: one that replaces it later changes nothing. Raises OSError."""

    def exists(self, key: str = "") -> bool:
        """Whether there is an object, or anything below such a prefix."""

    def preload(self, keys: Iterable[str]) -> None:
        """Fetch small objects at once, each for its next ``open``, where requests take long; some may be missing."""


@contextmanager
def opened_object(
    storage: ReadableStorage, key: str, *, error: type[DataError] = DataError, advice: str = "restore it from a copy"
) -> Iterator[BinaryIO]:
    """An object, for reading. Raises ``error`` for what cannot be read; ``MISSING`` pass."""
    with reading_errors(storage, key, error=error, advice=advice), storage.open(key) as file:
        yield file


@contextmanager
def reading_errors(
    storage: ReadableStorage, key: str, *, error: type[DataError] = DataError, advice: str = "restore it from a copy"
) -> Iterator[None]:
    """Turn an OSError about an object into ``error``, or into MachineLimit; ``MISSING`` pass."""
    place = f"{storage.name}/{cut(key)}"
    try:
        yield
    except MISSING:
        raise
    except OSError as problem:
        raise_if_limit(problem, place)
        raise error(f"{place}: cannot be read: {problem.strerror}; {advice}") from problem


def read_object_bytes(storage: ReadableStorage, key: str, largest: int, *, error: type[DataError] = DataError) -> bytes:
    """All bytes of an object. Raises ``error``: more than ``largest``, or it cannot be read; ``MISSING`` pass."""
    with opened_object(storage, key, error=error) as file:
        size = object_size(file)
        if size > largest:
            raise error(
                f"{storage.name}/{key}: expected at most {largest:,} bytes, found {size:,}; restore it from a copy"
            )
        return file.read()


def read_checked_bytes(
    storage: ReadableStorage,
    key: str,
    largest: int,
    is_whole: Callable[[bytes], bool],
    *,
    error: type[DataError] = DataError,
) -> bytes:
    """As ``read_object_bytes``; read again until ``is_whole`` or the same bytes came twice, which is for the caller.

    What a network damages on its way is so repaired; what lies there damaged costs a second read.
    """
    data, before = read_object_bytes(storage, key, largest, error=error), None
    for _ in range(_TRANSFERS):
        if is_whole(data) or data == before:
            break
        data, before = read_object_bytes(storage, key, largest, error=error), data
    return data


def rereading_refused(read: Callable[P, T]) -> Callable[P, T]:
    """``read``, called once more if it refuses what it reads: a network may have damaged that on its way.

    What lies there damaged costs a second read, and is refused as before.
    """

    @wraps(read)
    def read_twice(*args: P.args, **options: P.kwargs) -> T:
        with suppress(DataError):
            return read(*args, **options)
        return read(*args, **options)

    return read_twice


def object_size(file: BinaryIO) -> int:
    """Bytes of an open object, which is read from its beginning after this."""
    size = file.seek(0, os.SEEK_END)
    file.seek(0)
    return size
