"""A model's folder opened for reading, although a new model may take its place at any moment.

A reader holds the folder it opened, so a replacement in the middle of a load cannot mix the files of two models; how a
folder is replaced is described in data/folder.py. Only plain files are read: a pipe would wait for
ever, a device would not end.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from functools import partial
from pathlib import Path
from typing import BinaryIO, TypeVar

from coremargin.errors import DataError, raise_if_limit
from coremargin.formats.plain_file import plain
from coremargin.formats.strict_json import cut

T = TypeVar("T")

_TRIES = 20  # three readings in a hundred meet a swap where a writer does nothing but replace a model in memory


def previous_of(path: Path) -> Path:
    """Where the old model waits while the new one takes its name."""
    return path.with_name(f".{path.name}.previous")


def read_folder(path: Path, read: Callable[[int], T]) -> T:
    """``read(handle)`` of the folder at ``path``, again if it was replaced and removed meanwhile.

    Raises DataError when there is no folder, or a file that ``read`` needs is missing.
    """
    for _ in range(_TRIES):
        handle = _open_folder(path)
        try:
            return read(handle)
        except FileNotFoundError as error:
            if _is_current(handle, path):  # incomplete, not replaced and being removed
                name = str(error.filename)
                raise DataError(
                    f"{path}: expected a model, found a folder without {name if name.isprintable() else repr(name)}; "
                    f"`coremargin train STORE --out {path}` makes a model"
                ) from None
        finally:
            os.close(handle)
    raise DataError(f"{path}: the model was replaced again and again while it was read; read it again")


@contextmanager
def opened(folder: int, path: Path, name: str) -> Iterator[BinaryIO]:
    """``open_file``, and closed again."""
    with open_file(folder, path, name) as file:
        yield file


def open_file(folder: int, path: Path, name: str) -> BinaryIO:
    """The plain file ``name`` of an open folder, for reading; path: of the folder, for messages.

    FileNotFoundError passes. Raises DataError for anything but a plain file, or one that cannot be read.
    """
    try:
        return open(name, "rb", opener=partial(plain, folder=folder))
    except FileNotFoundError:
        raise
    except (OSError, ValueError) as error:
        raise_if_limit(error, path / name)
        reason = error.strerror if isinstance(error, OSError) else str(error)
        raise DataError(f"{path}/{cut(name)}: cannot be read: {reason}; get a whole copy of the model") from error


def _is_current(handle: int, path: Path) -> bool:
    """Whether an open folder is the one that a reader of ``path`` gets now."""
    for place in (path, previous_of(path)):
        with suppress(FileNotFoundError):
            return os.path.samestat(os.fstat(handle), os.stat(place))
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
