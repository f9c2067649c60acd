"""How a model's folder appears on disk and is replaced.

A folder is written aside (``.NAME.aside``, a hidden sibling), every file and the folder are fsynced, then it is renamed
to NAME. Python's ``os`` has no exchange of two names, so an existing model is replaced in four steps, each one rename:

1. NAME becomes ``.NAME.previous``       killed after this: readers take ``.NAME.previous``, the next save puts it back
2. ``.NAME.aside`` becomes NAME          killed after this: NAME is the new model, the next save removes the old one
3. ``.NAME.previous`` becomes ``.NAME.aside``, which is not read
4. ``.NAME.aside`` is removed

Only what is of the same kind (data/owned.py), in all its parts, is replaced or removed: asked before hours of work, and
again before step 1; what comes into the old folder after that is left in ``.NAME.aside``.

At every moment NAME or, failing that, ``.NAME.previous`` is one whole model. A reader (formats/open_folder.py) may meet
the folder in step 4, still linked but with some files gone: a missing file means an incomplete model only in the folder
that has the name now, else the reader starts again. One writer at a time: the caller holds the lock.
"""

from __future__ import annotations

import os
import stat
import zipfile
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import TYPE_CHECKING, BinaryIO

import numpy as np

from coremargin.data.files import aside_of, output_errors, sync_folder
from coremargin.errors import OutputError, UsageError
from coremargin.formats.open_folder import previous_of
from coremargin.interruption import deferred_interrupts

if TYPE_CHECKING:
    from coremargin.data.storage import Owner

_NAMED = 3  # foreign files that a message names


def check_target(path: Path, kind: Owner, *, overwrite: bool) -> None:
    """Finish or undo what a killed save left behind, and see whether a folder may be written at ``path``.

    Raises UsageError: something else is there, or one of this kind without leave to replace it; OutputError: what lies
    beside it is in the way.
    """
    recover(path, kind)
    with output_errors(path):
        _check_old(path, kind, overwrite=overwrite)


def _check_old(path: Path, kind: Owner, *, overwrite: bool) -> None:
    if os.path.lexists(path):
        foreign = _foreign_files(path, kind)
        if foreign or any(path.iterdir()):  # an empty folder may be filled
            refuse(path, kind.what, foreign, overwrite=overwrite)


def refuse(path: Path | str, what: str, foreign: Sequence[str], *, overwrite: bool) -> None:
    """Raises UsageError: ``foreign`` files are where an output is to go, or it is there and must not be replaced."""
    if foreign:
        raise UsageError(
            f"{path}: expected {what} or nothing, found something else: {named(foreign)}; "
            f"move that away, or choose another place"
        )
    if not overwrite:
        raise UsageError(f"{path}: {what} is there already; choose another place, or give --overwrite")


@contextmanager
def replacing(path: Path, kind: Owner, *, overwrite: bool) -> Iterator[Path]:
    """A new empty folder to fill; it is put at ``path`` at the end, or removed after an exception.

    Raises UsageError as ``check_target``; OutputError: so does that, no room, no permission, a read-only file system.
    """
    check_target(path, kind, overwrite=overwrite)
    aside, made = aside_of(path), False
    with output_errors(path):
        path.parent.mkdir(parents=True, exist_ok=True)
        try:
            with deferred_interrupts():  # a signal during mkdir must find the folder known
                aside.mkdir()
                made = True
            yield aside
            sync_tree(aside)
            _check_old(path, kind, overwrite=overwrite)  # hours may have passed
            _swap(aside, path)
        finally:
            if made:
                with suppress(OSError):
                    kind.remove(aside)  # what was not finished, or the old model


def named(foreign: Iterable[str]) -> str:
    """The first foreign files, for a message."""
    found = list(foreign)
    more = f" and {len(found) - _NAMED:,} more" if len(found) > _NAMED else ""
    return ", ".join(found[:_NAMED]) + more


def recover(path: Path, kind: Owner) -> None:
    """Finish or undo what a killed save left behind. Raises OutputError when that is not allowed, or not ours."""
    previous, aside = previous_of(path), aside_of(path)
    with output_errors(path):
        for place, whole in ((previous, True), (aside, False)):
            if os.path.lexists(place) and (foreign := _foreign_files(place, kind, whole=whole)):
                raise OutputError(
                    f"{place}: expected what an unfinished save of {kind.what} left, found something else: "
                    f"{named(foreign)}; move that away, or choose another output than {path}"
                )
        kind.remove(aside)
        if previous.exists():
            os.rename(previous, aside if path.exists() else path)
            kind.remove(aside)


def _foreign_files(path: Path, kind: Owner, *, whole: bool = True) -> list[str]:
    """What is in the way at a place where something is."""
    if not stat.S_ISDIR(path.lstat().st_mode):
        return ["a file or link"]
    return kind.foreign_files(path, whole=whole)


def _swap(aside: Path, path: Path) -> None:
    previous = previous_of(path)
    if path.exists():
        os.rename(path, previous)
        try:
            os.rename(aside, path)
        except BaseException:
            os.rename(previous, path)
            raise
        sync_folder(path.parent)
        os.rename(previous, aside)
    else:
        os.rename(aside, path)
        sync_folder(path.parent)


def sync_tree(folder: Path) -> None:
    """Make all that lies in a folder durable."""
    for entry in os.scandir(folder):
        if entry.is_dir(follow_symlinks=False):
            sync_tree(Path(entry.path))
            continue
        handle = os.open(entry.path, os.O_RDONLY)
        try:
            os.fsync(handle)
        finally:
            os.close(handle)
    sync_folder(folder)


def write_arrays(path: Path | BinaryIO, arrays: Mapping[str, np.ndarray]) -> None:
    """An uncompressed npz whose bytes depend on nothing but the arrays: fixed dates, sorted names, little-endian."""
    with zipfile.ZipFile(path, "x", zipfile.ZIP_STORED) as archive:
        for name in sorted(arrays):
            values = np.asarray(arrays[name], order="C")  # keeps the shape (), which ascontiguousarray does not
            member = zipfile.ZipInfo(f"{name}.npy", date_time=(1980, 1, 1, 0, 0, 0))
            member.create_system = 3  # else it names the operating system
            member.external_attr = 0o644 << 16
            with archive.open(member, "w", force_zip64=True) as file:
                little = values.astype(values.dtype.newbyteorder("<"), copy=False)
                np.lib.format.write_array(file, little, allow_pickle=False)
