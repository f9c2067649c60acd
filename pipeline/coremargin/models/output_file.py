"""One file as an output, on this machine or at an address: it appears whole, and replaces only what is of its kind."""

from __future__ import annotations

import os
import stat
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from io import BufferedReader, RawIOBase
from pathlib import Path
from tempfile import SpooledTemporaryFile
from typing import TYPE_CHECKING, Any, BinaryIO, cast

from coremargin.data.files import output_errors, put_in_place, sync_folder
from coremargin.data.folder import refuse
from coremargin.data.object_storage import SPOOLED_BYTES, ObjectStorage
from coremargin.data.storage import ABSENT
from coremargin.formats.local_path import local_path
from coremargin.formats.location import Location, is_remote, location
from coremargin.formats.object_storage import ObjectReader

if TYPE_CHECKING:
    from coremargin.data.storage import Tag

_RANGE_BYTES = 64 << 10


@contextmanager
def whole_file(
    out: str | os.PathLike[str], what: str, is_ours: Callable[[BinaryIO], bool], *, overwrite: bool
) -> Iterator[BinaryIO]:
    """A file to fill, which appears at ``out`` when all of it is on disk; at an address, as one object at the end.

    out: a path, whose links are followed, or an address. what: its kind, as in "a file of predictions". is_ours: says
    whether a file is of this kind and holds nothing else; any other may be the user's data. Raises UsageError
    (something is there), OutputError; Busy: another process has written the object meanwhile.
    """
    if is_remote(out):
        address = location(out)
        folder, _, name = address.rpartition("/")
        storage = ObjectStorage(Location(folder, address.options)).resolved()
        _check_old_object(storage, name, what, is_ours, overwrite=overwrite)
        with SpooledTemporaryFile(max_size=SPOOLED_BYTES) as spooled:
            file = cast("BinaryIO", spooled)
            yield file
            old = _check_old_object(storage, name, what, is_ours, overwrite=overwrite)  # hours may have passed
            storage.write_file(name, file, replaces=old)
        return
    path = Path(os.path.realpath(local_path(out)))
    _check_old(path, what, is_ours, overwrite=overwrite)
    with output_errors(path):
        path.parent.mkdir(parents=True, exist_ok=True)
        with put_in_place(path) as aside, open(aside, "xb") as file:
            yield file
            file.flush()
            os.fsync(file.fileno())
            _check_old(path, what, is_ours, overwrite=overwrite)  # hours may have passed
        sync_folder(path.parent)


def is_written(path: str | Path) -> bool:
    """Whether something is where an output is to go."""
    if not is_remote(path):
        return os.path.lexists(path)
    address = location(path)
    folder, _, name = address.rpartition("/")
    return ObjectReader(Location(folder, address.options)).exists(name)


def _check_old(path: Path, what: str, is_ours: Callable[[BinaryIO], bool], *, overwrite: bool) -> None:
    if os.path.lexists(path):
        refuse(path, what, [] if _opens(path, is_ours) else ["other data"], overwrite=overwrite)


def _check_old_object(
    storage: ObjectStorage, name: str, what: str, is_ours: Callable[[BinaryIO], bool], *, overwrite: bool
) -> Tag:
    """The tag of what is there, which may be replaced, or ABSENT. Raises UsageError: it may not."""
    if not storage.exists(name):
        return ABSENT
    tag, ours = ABSENT, False
    with suppress(OSError):
        tag = storage.tag(name)
        with BufferedReader(_Ranges(storage, name), _RANGE_BYTES) as file:
            ours = is_ours(file)
    refuse(f"{storage.name}/{name}", what, [] if ours else ["other data"], overwrite=overwrite)
    return tag


class _Ranges(RawIOBase):
    """An object of which a few ranges are looked at, whatever its size."""

    def __init__(self, storage: ObjectStorage, name: str) -> None:
        self._storage, self._name, self._at = storage, name, 0
        self._nbytes = storage.fetch(name, most=0).nbytes

    def readable(self) -> bool:
        return True

    def seekable(self) -> bool:
        return True

    def seek(self, offset: int, whence: int = os.SEEK_SET) -> int:
        start = {os.SEEK_SET: 0, os.SEEK_CUR: self._at, os.SEEK_END: self._nbytes}[whence]
        self._at = max(0, start + offset)
        return self._at

    def readinto(self, buffer: Any) -> int:
        stop = min(self._nbytes, self._at + len(buffer))
        if stop <= self._at:
            return 0
        part = self._storage.fetch(self._name, self._at, stop).data
        buffer[: len(part)] = part
        self._at += len(part)
        return len(part)


def _opens(path: Path, is_ours: Callable[[BinaryIO], bool]) -> bool:
    """Whether a file, which is no pipe and no link, is one of ours."""
    if not stat.S_ISREG(path.lstat().st_mode):
        return False
    try:
        with path.open("rb") as file:
            return is_ours(file)
    except OSError:
        return False
