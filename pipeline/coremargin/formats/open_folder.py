"""A model's folder opened for reading, although a new model may take its place at any moment.

A reader holds the folder it opened, so a replacement in the middle of a load cannot mix the files of two models; how a
folder is replaced is described in data/folder.py. Only plain files are read: a pipe would wait for
ever, a device would not end.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Iterable
from contextlib import suppress
from functools import partial
from pathlib import Path
from typing import BinaryIO, TypeVar, cast

from coremargin.errors import DataError, raise_if_limit
from coremargin.formats.campaign import FILE as CAMPAIGN
from coremargin.formats.campaign import MODEL
from coremargin.formats.plain_file import plain
from coremargin.formats.storage import MISSING, ReadableStorage

T = TypeVar("T")

_TRIES = 20  # three readings in a hundred meet a swap where a writer does nothing but replace a model in memory


def previous_of(path: Path) -> Path:
    """Where the old model waits while the new one takes its name."""
    return path.with_name(f".{path.name}.previous")


def read_folder(path: Path, read: Callable[[ReadableStorage], T]) -> T:
    """``read(folder)`` of the folder at ``path``, again if it was replaced and removed meanwhile.

    Raises DataError when there is no folder, or a file that ``read`` needs is missing.
    """
    for _ in range(_TRIES):
        folder = _OpenFolder(_open_folder(path), path)
        try:
            return read(folder)
        except MISSING as error:
            if folder.is_current():  # incomplete, not replaced and being removed
                raise campaign_alone(path, folder) or incomplete(path, error) from None
        finally:
            os.close(folder.handle)
    raise DataError(f"{path}: the model was replaced again and again while it was read; read it again")


def incomplete(path: Path | str, error: OSError) -> DataError:
    """What to raise for a model that lacks an object."""
    name = str(error.filename)
    return DataError(
        f"{path}: expected a model, found a folder without {name if name.isprintable() else repr(name)}; "
        f"`coremargin train STORE --out {path}` makes a model"
    )


def campaign_alone(path: Path, folder: ReadableStorage) -> DataError | None:
    """What to raise where a model was expected and the folder is that of a campaign; None for other folders."""
    if not folder.exists(CAMPAIGN):
        return None
    if folder.exists(MODEL):
        return DataError(f"{path}: expected a model, found a campaign, whose model is {path / MODEL}; give that one")
    return DataError(
        f"{path}: expected a model, found a campaign without one; `coremargin active label {path}` asks its "
        f"questions, `coremargin active status {path}` says what is left"
    )


class Folder:
    """Files below a path, of whichever folder has it when one is opened."""

    def __init__(self, path: Path) -> None:
        self.path, self.name = path, str(path)

    def open(self, key: str) -> BinaryIO:
        """A plain file, for reading."""
        return cast("BinaryIO", open(self.path / key, "rb", opener=plain))

    def exists(self, key: str = "") -> bool:
        """Whether there is a file or folder."""
        return (self.path / key).exists()

    def preload(self, keys: Iterable[str]) -> None:
        """Files are read as they are opened."""


class _OpenFolder:
    """The files of a folder that stays the one that was opened, whatever gets its name."""

    def __init__(self, handle: int, path: Path) -> None:
        self.handle, self.name, self._path = handle, str(path), path

    def open(self, key: str) -> BinaryIO:
        """A plain file, for reading."""
        try:
            return cast("BinaryIO", open(key, "rb", opener=partial(plain, folder=self.handle)))
        except ValueError as error:  # a name that no file has
            raise OSError(None, str(error), key) from error

    def exists(self, key: str = "") -> bool:
        """Whether there is a file or a folder."""
        try:
            os.stat(key or ".", dir_fd=self.handle)
        except (OSError, ValueError):
            return False
        return True

    def preload(self, keys: Iterable[str]) -> None:
        """Files are read as they are opened."""

    def is_current(self) -> bool:
        """Whether a reader of the path gets this folder now."""
        for place in (self._path, previous_of(self._path)):
            with suppress(FileNotFoundError):
                return os.path.samestat(os.fstat(self.handle), os.stat(place))
        return False


def _open_folder(path: Path) -> int:
    if not path.name:  # the root folder has no parent for a model's former version
        raise DataError(f"{path}: expected a model's folder, found the root of the file system; give the folder")
    for _ in range(_TRIES):
        for place in (path, previous_of(path)):
            try:
                return os.open(place, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
            except FileNotFoundError:
                continue
            except NotADirectoryError:
                raise DataError(f"{path}: expected a model's folder, found a file; give the folder") from None
            except (OSError, ValueError) as error:
                raise_if_limit(error, path)
                reason = error.strerror if isinstance(error, OSError) else str(error)
                raise DataError(f"{path}: expected a model's folder, cannot be opened: {reason}") from error
    raise DataError(f"{path}: expected a model, found nothing there; `coremargin train STORE --out {path}` makes one")
