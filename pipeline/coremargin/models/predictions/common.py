"""What all files of predictions have in common: what goes in, what they say of themselves, how a file appears."""

from __future__ import annotations

import os
import stat
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from io import BufferedReader, RawIOBase
from pathlib import Path
from typing import TYPE_CHECKING, Any, BinaryIO, Protocol

from coremargin.data.files import output_errors, put_in_place, sync_folder
from coremargin.data.folder import refuse
from coremargin.data.object_storage import ObjectStorage
from coremargin.formats.location import Location, is_remote, location
from coremargin.formats.object_storage import ObjectReader

if TYPE_CHECKING:
    import numpy as np

    from coremargin.data.source import Source
    from coremargin.models.fleet import AnyModel

FORMAT = "coremargin-predictions"
VERSION = 1
_RANGE_BYTES = 64 << 10
COLUMNS = ("row", "label", "code", "decision")  #: of a table


class Sink(Protocol):
    """Where predictions go."""

    def write(self, codes: np.ndarray, decisions: np.ndarray) -> None:
        """The next rows: codes (n,) int32 and decision values (n,) float64."""


@dataclass(frozen=True)
class Subject:
    """What predictions are about: who made them, of which rows."""

    model: AnyModel
    source: Source

    def attributes(self) -> dict[str, Any]:
        """What predictions say of themselves, where their format has a place for it."""
        return {
            "format": FORMAT,
            "version": VERSION,
            "rows": self.source.rows,
            "classes": list(self.model.labels),
            "model": {"status": self.model.status, **self.model.proof},
            "source": {"name": Path(self.source.name).name, "digest": self.source.digest},
        }


@contextmanager
def whole_file(path: Path | Location, is_ours: Callable[[BinaryIO], bool], *, overwrite: bool) -> Iterator[BinaryIO]:
    """A file to fill, which appears at ``path`` when all of it is on disk; at an address, as one object at the end.

    is_ours: whether a file holds predictions in this format and nothing else; any other may be the user's data.
    Raises UsageError (something is there), OutputError.
    """
    if isinstance(path, Location):
        folder, _, name = path.rpartition("/")
        storage = ObjectStorage(Location(folder, path.options)).resolved()
        _check_old_object(storage, name, is_ours, overwrite=overwrite)
        with storage.create(name) as file:
            yield file
            _check_old_object(storage, name, is_ours, overwrite=overwrite)
        return
    _check_old(path, is_ours, overwrite=overwrite)
    with output_errors(path):
        path.parent.mkdir(parents=True, exist_ok=True)
        with put_in_place(path) as aside, open(aside, "xb") as file:
            yield file
            file.flush()
            os.fsync(file.fileno())
            _check_old(path, is_ours, overwrite=overwrite)  # hours may have passed
        sync_folder(path.parent)


def is_written(path: str | Path) -> bool:
    """Whether something is where predictions are to go."""
    if not is_remote(path):
        return os.path.lexists(path)
    folder, _, name = (address := location(path)).rpartition("/")
    return ObjectReader(Location(folder, address.options)).exists(name)


def _check_old(path: Path, is_ours: Callable[[BinaryIO], bool], *, overwrite: bool) -> None:
    if os.path.lexists(path):
        ours = _opens(path, is_ours)
        refuse(path, "a file of predictions", [] if ours else ["other data"], overwrite=overwrite)


def _check_old_object(
    storage: ObjectStorage, name: str, is_ours: Callable[[BinaryIO], bool], *, overwrite: bool
) -> None:
    if not storage.exists(name):
        return
    ours = False
    with suppress(OSError), BufferedReader(_Ranges(storage, name), _RANGE_BYTES) as file:
        ours = is_ours(file)
    refuse(f"{storage.name}/{name}", "a file of predictions", [] if ours else ["other data"], overwrite=overwrite)


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
