"""How a model's folder appears on disk, is replaced, and is read without running code.

A folder is written aside (``.NAME.aside``, a hidden sibling), every file and the folder are fsynced, then it is renamed
to NAME. Python's ``os`` has no exchange of two names, so an existing model is replaced in four steps, each one rename:

1. NAME becomes ``.NAME.previous``       killed after this: readers take ``.NAME.previous``, the next save puts it back
2. ``.NAME.aside`` becomes NAME          killed after this: NAME is the new model, the next save removes the old one
3. ``.NAME.previous`` becomes ``.NAME.aside``, which nobody reads
4. ``.NAME.aside`` is removed

At every moment NAME or, failing that, ``.NAME.previous`` is one whole model. A reader holds the folder it opened, so a
replacement in the middle of a load cannot mix the files of two models. It may meet the folder in step 4, still linked
but with some files gone: a missing file means an incomplete model only in the folder that has the name now, else the
reader starts again. One writer at a time: the caller holds the lock.
"""

from __future__ import annotations

import os
import shutil
import zipfile
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any, BinaryIO, TypeVar

import numpy as np

from coremargin.data.files import ASIDE, output_errors, sync_folder
from coremargin.errors import DataError

T = TypeVar("T")

LARGEST_ARRAYS = 16 << 30  #: bytes of arrays.npz beyond which a file is not believed to be a model
_MOST_MEMBERS = 64
_TRIES = 20  # three readings in a hundred meet a swap where a writer does nothing but replace a model in memory
_KINDS = "fiub"  # floats, integers, unsigned, booleans: nothing that needs code to be read


def aside_of(path: Path) -> Path:
    """Where the new model is written before it gets its name."""
    return path.with_name(f".{path.name}{ASIDE}")


def previous_of(path: Path) -> Path:
    """Where the old model waits while the new one takes its name."""
    return path.with_name(f".{path.name}.previous")


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
                raise DataError(
                    f"{path}: expected a model, found a folder without {error.filename}; "
                    f"`coremargin train STORE --out {path}` makes a model"
                ) from None
        finally:
            os.close(handle)
    raise DataError(f"{path}: the model was replaced again and again while it was read; read it again")


def _is_current(handle: int, path: Path) -> bool:
    """Whether an open folder is the one that a reader of ``path`` gets now."""
    for place in (path, previous_of(path)):
        with suppress(FileNotFoundError):
            return os.path.samestat(os.fstat(handle), os.stat(place))
    return False


def _open_folder(path: Path) -> int:
    for _ in range(_TRIES):
        for place in (path, previous_of(path)):
            with suppress(FileNotFoundError):
                try:
                    return os.open(place, os.O_RDONLY | os.O_DIRECTORY)
                except NotADirectoryError:
                    raise DataError(f"{path}: expected a model's folder, found a file; give the folder") from None
    raise DataError(f"{path}: expected a model, found nothing there; `coremargin train STORE --out {path}` makes one")


@contextmanager
def opened(folder: int, name: str) -> Iterator[BinaryIO]:
    """A file of an open folder, for reading."""
    with os.fdopen(os.open(name, os.O_RDONLY, dir_fd=folder), "rb") as file:
        yield file


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


def read_arrays(file: BinaryIO, place: str, most_members: int = _MOST_MEMBERS) -> dict[str, np.ndarray]:
    """The arrays of an npz, read without pickle and without believing any size that the file does not back.

    Raises DataError that names ``place`` and the member: compressed members (a bomb hides there), object arrays, shapes
    that promise more than the member holds, altered or missing bytes.
    """
    size = os.fstat(file.fileno()).st_size
    if size > LARGEST_ARRAYS:
        raise DataError(f"{place}: expected at most {LARGEST_ARRAYS:,} bytes, found {size:,}; this is not a model")
    try:
        with zipfile.ZipFile(file) as archive:
            members = archive.infolist()
            if len(members) > most_members or sum(member.file_size for member in members) > size:
                raise DataError(
                    f"{place}: the members promise more than the file's {size:,} bytes hold; get a whole copy"
                )
            return {member.filename.removesuffix(".npy"): _read_member(archive, member, place) for member in members}
    except (zipfile.BadZipFile, EOFError, OSError, NotImplementedError, RuntimeError) as error:
        raise DataError(f"{place}: truncated or altered ({error}); get a whole copy of the model") from error


def _read_member(archive: zipfile.ZipFile, member: zipfile.ZipInfo, place: str) -> np.ndarray:
    if member.compress_type != zipfile.ZIP_STORED:
        raise DataError(
            f"{place}: expected uncompressed arrays, {member.filename} is compressed; get an unaltered copy"
        )
    try:
        with archive.open(member) as file:
            _check_header(file, member, place)
        with archive.open(member) as file:
            values: np.ndarray = np.lib.format.read_array(file, allow_pickle=False)
            file.read()  # to the end, where the checksum of the member is compared
    except ValueError as error:
        if isinstance(error, DataError):
            raise
        raise DataError(f"{place}: {member.filename} cannot be read ({error}); get an unaltered copy") from error
    return values


def _check_header(file: Any, member: zipfile.ZipInfo, place: str) -> None:
    version = np.lib.format.read_magic(file)
    read = np.lib.format.read_array_header_1_0 if version == (1, 0) else np.lib.format.read_array_header_2_0
    shape, _, dtype = read(file)
    if dtype.kind not in _KINDS or dtype.hasobject:
        raise DataError(
            f"{place}: expected numbers, {member.filename} holds {dtype}; loading it could run code: refused"
        )
    count = 1
    for length in shape:
        count *= length
    if count < 0 or file.tell() + count * dtype.itemsize != member.file_size:
        raise DataError(
            f"{place}: {member.filename} says shape {shape} of {dtype}, but has {member.file_size:,} bytes; "
            f"get an unaltered copy"
        )
