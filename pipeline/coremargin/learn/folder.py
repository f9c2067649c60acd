"""How a model's folder appears on disk and is replaced.

A folder is written aside (``.NAME.aside``, a hidden sibling), every file and the folder are fsynced, then it is renamed
to NAME. Python's ``os`` has no exchange of two names, so an existing model is replaced in four steps, each one rename:

1. NAME becomes ``.NAME.previous``       killed after this: readers take ``.NAME.previous``, the next save puts it back
2. ``.NAME.aside`` becomes NAME          killed after this: NAME is the new model, the next save removes the old one
3. ``.NAME.previous`` becomes ``.NAME.aside``, which nobody reads
4. ``.NAME.aside`` is removed

At every moment NAME or, failing that, ``.NAME.previous`` is one whole model. A reader (formats/open_folder.py) may meet
the folder in step 4, still linked but with some files gone: a missing file means an incomplete model only in the folder
that has the name now, else the reader starts again. One writer at a time: the caller holds the lock.
"""

from __future__ import annotations

import os
import shutil
import zipfile
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path

import numpy as np

from coremargin.data.files import ASIDE, output_errors, sync_folder
from coremargin.formats.open_folder import previous_of


def aside_of(path: Path) -> Path:
    """Where the new model is written before it gets its name."""
    return path.with_name(f".{path.name}{ASIDE}")


@contextmanager
def replacing(path: Path) -> Iterator[Path]:
    """A new empty folder to fill, after ``recover``; it is put at ``path`` at the end, or removed after an exception.

    Raises OutputError: no room, no permission, a read-only file system.
    """
    aside = aside_of(path)
    with output_errors(path):
        path.parent.mkdir(parents=True, exist_ok=True)
        aside.mkdir()
        try:
            yield aside
            _sync_tree(aside)
            _swap(aside, path)
        except BaseException:
            shutil.rmtree(aside, ignore_errors=True)
            raise
        shutil.rmtree(aside, ignore_errors=True)  # the old model, if there was one


def recover(path: Path) -> None:
    """Finish or undo what a killed save left behind. Raises OutputError when that is not allowed."""
    previous = previous_of(path)
    with output_errors(path):
        if previous.exists() and not path.exists():
            os.rename(previous, path)
        for leftover in (previous, aside_of(path)):
            if leftover.exists():
                shutil.rmtree(leftover)


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


def _sync_tree(folder: Path) -> None:
    for entry in os.scandir(folder):
        if entry.is_dir(follow_symlinks=False):
            _sync_tree(Path(entry.path))
            continue
        handle = os.open(entry.path, os.O_RDONLY)
        try:
            os.fsync(handle)
        finally:
            os.close(handle)
    sync_folder(folder)


def write_arrays(path: Path, arrays: Mapping[str, np.ndarray]) -> None:
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
