"""Objects that are files of a folder: mapped where that is possible, written aside, fsynced and renamed, under locks.

Not zarr-python's reader: chunks of 8 MiB in the page cache were scanned at 16 GB/s a core through maps that stay open,
at 2.5 by zarr-python 3.1.6, 3.1 by zarrs and 3.3 by tensorstore, and all three read a missing chunk as fill values
without a word. ``verify`` reads the same stores by zarr-python.
"""

from __future__ import annotations

import fcntl
import gc
import os
import stat
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import AbstractContextManager, contextmanager, nullcontext, suppress
from pathlib import Path
from typing import TYPE_CHECKING, Any, BinaryIO, TypeVar, cast

import numpy as np
from filelock import FileLock, Timeout

from coremargin.data.files import (
    ASIDE,
    free_bytes,
    linked,
    move_over,
    output_errors,
    put_in_place,
    sync_folder,
    write_whole,
)
from coremargin.data.folder import check_target, replacing
from coremargin.data.maps import Maps
from coremargin.data.reused import Reused
from coremargin.data.storage import ABSENT, Entry, check_length, check_most, check_size, listed_bytes
from coremargin.errors import Busy, OutputError, UsageError, raise_if_limit
from coremargin.formats.open_folder import read_folder
from coremargin.formats.plain_file import plain

if TYPE_CHECKING:
    from coremargin.data.checksum import Data
    from coremargin.data.storage import Owner, Owns, Storage, Tag
    from coremargin.formats.storage import ReadableStorage

T = TypeVar("T")
_LOCK = ".lock"
_FOLDER = os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW


class LocalStorage:
    """The files below a folder."""

    remote, lists = False, True

    def __init__(self, folder: str | os.PathLike[str]) -> None:
        self.name = os.fspath(folder)

    def __repr__(self) -> str:
        return f"LocalStorage({self.name!r})"

    def __eq__(self, other: object) -> bool:
        return isinstance(other, LocalStorage) and other.name == self.name

    def __hash__(self) -> int:
        return hash(self.name)

    @property
    def snapshot(self) -> str:
        """The path: what is read is not replaced."""
        return self.name

    def _path(self, key: str) -> str:
        return f"{self.name}/{key}" if key else self.name

    def open(self, key: str) -> BinaryIO:
        """A plain file, for reading."""
        return cast("BinaryIO", open(self._path(key), "rb", opener=plain))

    def exists(self, key: str = "") -> bool:
        """Whether there is a file or a folder of this name."""
        return Path(self._path(key)).exists()

    def preload(self, keys: Iterable[str]) -> None:
        """Files are read as they are opened."""

    def tag(self, key: str) -> Tag:
        """Inode, size and time of a file."""
        return _tag(os.stat(self._path(key)))

    def chunks(self, nbytes: int | None, content_bytes: int, map_bytes: int) -> LocalChunks:
        """What reads the files of an array."""
        return LocalChunks(self.name, nbytes, content_bytes, map_bytes)

    def prefetch(self, key: str, start: int, nbytes: int) -> None:
        """Ask the system for it, where it can be asked."""
        if hasattr(os, "posix_fadvise"):
            with open(self._path(key), "rb", buffering=0, opener=plain) as file:
                os.posix_fadvise(file.fileno(), start, nbytes, os.POSIX_FADV_WILLNEED)

    def fetching(self, ranges: Sequence[tuple[str, int, int]]) -> AbstractContextManager[None]:
        """The system reads ahead."""
        return nullcontext()

    def list(self, prefix: str = "") -> list[Entry]:
        """By name."""
        try:
            found = sorted(os.scandir(self._path(prefix)), key=lambda entry: entry.name)
        except (FileNotFoundError, NotADirectoryError):
            return []
        entries = []
        for entry in found:
            with suppress(FileNotFoundError):  # removed meanwhile
                entries.append(_entry(entry))
        return entries

    def stored_bytes(self, prefix: str = "") -> int:
        """Folder by folder."""
        return listed_bytes(self, prefix)

    def write(self, key: str, parts: Sequence[Data], *, replaces: Tag | None = None) -> Tag:
        """Aside, fsynced, and renamed; folders are made as they are needed."""
        path = self._with_folder(key)
        if replaces is not None and self._tag_or_absent(key) != replaces:
            raise Busy(f"{self.name}: another writer has changed {key} meanwhile; nothing was written, do it again")
        write_whole(path, parts)
        return _tag(path.stat())

    def _with_folder(self, key: str) -> Path:
        """The path of a file to be, whose folder is there."""
        path = Path(self._path(key))
        with output_errors(path):
            if not path.parent.is_dir():
                os.stat(self.name)  # what is gone is not made again
                path.parent.mkdir(parents=True, exist_ok=True)
        return path

    def _tag_or_absent(self, key: str) -> Tag:
        try:
            return self.tag(key)
        except FileNotFoundError:
            return ABSENT

    def batch(self) -> AbstractContextManager[LocalStorage]:
        """One after the other."""
        return nullcontext(self)

    @contextmanager
    def create(self, key: str) -> Iterator[BinaryIO]:
        """As ``write``."""
        path = self._with_folder(key)
        with output_errors(path), put_in_place(path) as aside, open(aside, "xb") as file:
            yield file
            file.flush()
            os.fsync(file.fileno())

    def link(self, key: str, file: BinaryIO, place: Path) -> bool:
        """Give the file this name as well; not on another file system, nor where another file has its own by now."""
        path = Path(self._path(key))
        if not linked(place, path):
            return False
        if os.path.samestat(path.lstat(), os.fstat(file.fileno())):
            return True
        path.unlink()
        return False

    def protect(self, key: str) -> None:
        """Let it be read-only, for those who may read it."""
        path = Path(self._path(key))
        path.chmod(path.stat().st_mode & 0o444)

    def append(self, key: str, length: int, data: Data) -> None:
        """In place, and fsynced: what lies behind ``length`` a killed writer left there."""
        path = self._path(key)
        with output_errors(Path(path), len(data)):
            if length:
                there = Path(path)
                check_length(path, there.stat().st_size if there.exists() else 0, length)
            handle = plain(path, os.O_WRONLY | os.O_CREAT | os.O_NOFOLLOW)
            try:
                os.ftruncate(handle, length)
                written = 0
                while written < len(data):
                    written += os.pwrite(handle, data[written:], length + written)
                os.fsync(handle)
            finally:
                os.close(handle)

    def sync(self, *prefixes: str) -> None:
        """Fsync folders."""
        for prefix in prefixes:
            sync_folder(Path(self._path(prefix)))

    def remove(self, key: str, owns: Owns) -> None:
        """One name at a time, following no link, and never what was created there meanwhile.

        The file of the lock goes with its folder alone.
        """
        if key == _LOCK:
            return
        path = Path(self._path(key))
        with suppress(FileNotFoundError):
            if stat.S_ISREG(path.lstat().st_mode) and owns(key, False):
                path.unlink()
            else:
                _empty(os.open(path, _FOLDER), key and f"{key}/", owns)
                with suppress(OSError):  # something else lies in it
                    path.rmdir()

    def sweep(self, prefix: str, owns: Owns) -> None:
        """Files and folders that have not got their names."""
        with suppress(OSError):  # nothing to sweep, or a link
            _empty(os.open(self._path(prefix), _FOLDER), prefix and f"{prefix}/", owns, asides=True)

    def resolved(self) -> LocalStorage:
        """A link keeps pointing where it does. Raises UsageError for links in a circle."""
        target = os.path.realpath(self.name)
        with suppress(OSError):  # reported by who writes there
            if Path(target).is_symlink():
                raise UsageError(f"{self.name}: expected a folder or nothing, found links in a circle; choose another")
        return LocalStorage(target)

    def lock_writers(self, called: str = "") -> FileLock:
        """By a file in the folder; the kernel frees the lock of a writer that dies."""
        called = called or self.name
        lock = FileLock(self._path(_LOCK), timeout=0, thread_local=False)
        try:
            lock.acquire()
        except Timeout:
            raise Busy(f"{called}: another writer is at work there; wait for it to end") from None
        except OSError as error:
            raise_if_limit(error, called)
            text = (
                f"{called}: cannot be written: {error.strerror or error}; choose a folder that this user may write to"
            )
            raise OutputError(text) from error
        return lock

    def lock_removal(self) -> _FolderLock:
        """By an advisory lock on the folder."""
        return _FolderLock(self.name)

    @contextmanager
    def without_readers(self) -> Iterator[None]:
        """By the same lock; without effect on file systems that have no such locks."""
        gc.collect()  # what this process has read and no longer references
        handle = os.open(self.name, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
        try:
            try:
                fcntl.flock(handle, fcntl.LOCK_EX | fcntl.LOCK_NB)
            except BlockingIOError:
                raise Busy(
                    f"{self.name}: another job or an open Store is reading it; wait for the end, or write elsewhere"
                ) from None
            except OSError:  # no such locks here
                pass
            yield
        finally:
            os.close(handle)

    def _building(self) -> Path:
        """Where the files are of what is to take this place; and of what it replaces, until that is gone."""
        place = Path(self.name)
        return place.with_name(f".{place.name}.building")

    def prepare(self) -> LocalStorage:
        """A hidden folder next to this one, with whatever a killed writer left in it."""
        folder = self._building()
        with output_errors(Path(self.name)):
            folder.mkdir(parents=True, exist_ok=True)
            if folder.is_symlink():
                raise OutputError(f"{folder}: expected a folder of ours or nothing, found a link; move it away")
        return LocalStorage(folder)

    def prepared(self) -> LocalStorage | None:
        """The hidden folder."""
        folder = self._building()
        return LocalStorage(folder) if folder.is_dir() and not folder.is_symlink() else None

    def publish(self, prepared: Storage, owns: Owns) -> None:
        """By a rename, or an exchange of two names."""
        new, old = Path(prepared.name), Path(self.name)
        with output_errors(old):
            if old.exists():
                move_over(new, old, lambda folder: LocalStorage(folder).remove("", owns))
            else:
                os.rename(new, old)
                sync_folder(old.parent)

    def check_replaceable(self, kind: Owner, *, overwrite: bool) -> None:
        """As folder.py says."""
        check_target(Path(self.name), kind, overwrite=overwrite)

    @contextmanager
    def replacing(self, kind: Owner, *, overwrite: bool) -> Iterator[LocalStorage]:
        """See folder.py."""
        with replacing(Path(self.name), kind, overwrite=overwrite) as folder:
            yield LocalStorage(folder)

    def read_whole(self, read: Callable[[ReadableStorage], T]) -> T:
        """Of the folder that has the name, which stays open meanwhile."""
        return read_folder(Path(self.name), read)

    def free_bytes(self) -> int:
        """Of the file system."""
        return free_bytes(Path(self.name))

    def zarr_node(self, key: str) -> str:
        """Its path."""
        return self._path(key)


class _FolderLock:
    """An advisory lock on a folder needs no file, and no right to write; the kernel frees it when its holder dies."""

    def __init__(self, folder: str) -> None:
        self._handle = -1
        with suppress(OSError):
            self._handle = os.open(folder, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
            fcntl.flock(self._handle, fcntl.LOCK_SH | fcntl.LOCK_NB)

    def release(self) -> None:
        """Read no more."""
        if self._handle >= 0:
            os.close(self._handle)
            self._handle = -1

    def __del__(self) -> None:
        with suppress(OSError):
            self.release()


def _entry(entry: os.DirEntry[str]) -> Entry:
    if entry.is_symlink():
        return Entry(entry.name, "link", entry.stat().st_size if entry.is_file() else 0)
    if entry.is_dir():
        return Entry(entry.name, "folder", 0)
    return Entry(entry.name, "object" if entry.is_file() else "other", entry.stat().st_size)


def name_meant(name: str) -> tuple[str, bool]:
    """The name that a file or folder is to get, and whether it is still being written."""
    aside = name.startswith(".") and name.endswith(ASIDE)
    return name[1 : -len(ASIDE)] if aside else name, aside


def _empty(handle: int, below: str, owns: Owns, *, asides: bool = False) -> None:
    """Remove what is owned in an open folder, which is closed; asides: only what is still being written."""
    try:
        for name in os.listdir(handle):
            meant, aside = name_meant(name)
            if asides and not aside:
                continue
            mode = os.stat(name, dir_fd=handle, follow_symlinks=False).st_mode
            if stat.S_ISREG(mode) and owns(below + meant, False):
                os.unlink(name, dir_fd=handle)
            elif stat.S_ISDIR(mode) and owns(below + meant, True):
                _empty(os.open(name, _FOLDER, dir_fd=handle), f"{below}{meant}/", owns)
                with suppress(OSError):  # something else lies in it
                    os.rmdir(name, dir_fd=handle)
    finally:
        os.close(handle)


class LocalChunks:
    """The files of one array: mapped as far as the budget of the process goes, else read into buffers."""

    def __init__(self, folder: str, nbytes: int | None, content_bytes: int, map_bytes: int) -> None:
        self._folder, self._nbytes, self._content_bytes = folder, nbytes, content_bytes
        self._maps = Maps(content_bytes, map_bytes)
        self._buffers = Reused()

    def read(self, key: str, start: int, stop: int, out: np.ndarray | None = None) -> tuple[np.ndarray, Tag]:
        """From the map of the file, a new one where there is room, else read."""
        path = f"{self._folder}/{key}"
        if key in self._maps:
            tag = self._checked_tag(os.stat(path))
            data = self._maps.get(key, tag)
            if data is not None:
                return data[start:stop], tag
        with open(path, "rb", buffering=0, opener=plain) as file:
            tag = self._checked_tag(os.fstat(file.fileno()))
            data = self._maps.new(file.fileno())
            if data is not None:
                return self._maps.keep(key, tag, data)[start:stop], tag
            if out is None:
                out = self._buffers.take("content", self._content_bytes)[: stop - start]
            if start:
                file.seek(start)
            _read_into(file, out)
            return out, tag

    def read_all(self, key: str, most: int) -> tuple[np.ndarray, Tag]:
        """Read into a buffer."""
        with open(f"{self._folder}/{key}", "rb", buffering=0, opener=plain) as file:
            status = os.fstat(file.fileno())
            check_most(status.st_size, most)
            data = self._buffers.take("file", most)[: status.st_size]
            _read_into(file, data)
            return data, _tag(status)

    def read_pieces(self, key: str, starts: Sequence[int], out: np.ndarray, tag: Tag) -> bool:
        """By a read for each piece."""
        with open(f"{self._folder}/{key}", "rb", buffering=0, opener=plain) as file:
            if _tag(os.fstat(file.fileno())) != tag:
                return False
            return all(os.preadv(file.fileno(), [out[k].data], at) == out.shape[1] for k, at in enumerate(starts))

    def in_memory(self, key: str) -> bool:
        """Whether a file is mapped."""
        return key in self._maps

    def _checked_tag(self, status: os.stat_result) -> Tag:
        check_size(status.st_size, self._nbytes)
        return _tag(status)


def _tag(status: os.stat_result) -> Tag:
    return status.st_ino, status.st_size, status.st_mtime_ns


def _read_into(file: Any, buffer: np.ndarray) -> None:
    """Fill the buffer (uint8) from a raw file; OSError when the file ends before."""
    view, done = buffer.data, 0
    while done < len(view):
        got = file.readinto(view[done:])
        if not got:
            raise OSError(f"ended after {done:,} of {len(view):,} bytes")
        done += got
