"""Files that appear whole or not at all: written aside, fsynced, renamed."""

from __future__ import annotations

import ctypes
import errno
import json
import os
import shutil
import stat
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import TYPE_CHECKING, Any

from coremargin.errors import OutputError, raise_if_limit

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Sequence

    from coremargin.data.checksum import Data

_AT_FDCWD, _RENAME_NOREPLACE, _RENAME_EXCHANGE = -100, 1, 2  # from fcntl.h and linux/fs.h
ASIDE = ".aside"  #: ending of files and folders that are still being written; swept when a writer starts

_REASONS = {
    errno.ENOSPC: "the disk is full",
    errno.EDQUOT: "the disk quota is used up",
    errno.EROFS: "the file system is read-only",
    errno.EACCES: "permission denied",
    errno.EPERM: "the operation is not permitted",
}


@contextmanager
def output_errors(path: Path, needed_bytes: int = 0) -> Iterator[None]:
    """Turn an OSError into an OutputError that says what was needed and what is there, or into MachineLimit."""
    try:
        yield
    except OSError as error:
        raise_if_limit(error, path)
        reason = _REASONS.get(error.errno or 0, str(error))
        text = f"{path}: cannot be written: {reason}"
        if error.errno in (errno.ENOSPC, errno.EDQUOT):
            text += f"; needed {needed_bytes:,} bytes, {free_bytes(path):,} are free; make room and run again"
        else:
            text += "; choose a folder that this user may write to"
        raise OutputError(text) from error


def free_bytes(path: Path) -> int:
    """Free bytes of the file system that holds a path, which need not exist yet."""
    for folder in (path, *path.absolute().parents):
        with suppress(OSError):
            return shutil.disk_usage(folder).free
    return 0


def aside_of(path: Path) -> Path:
    """Where a file or folder is written before it gets its name."""
    return path.with_name(f".{path.name}{ASIDE}")


@contextmanager
def put_in_place(path: Path) -> Iterator[Path]:
    """Where to make a file, which gets its name at the end, or is removed after an exception; who writes it fsyncs.

    Nothing is there, whatever a killed writer left: open it with "x", which follows no link.
    """
    aside = aside_of(path)
    with suppress(FileNotFoundError):
        if stat.S_ISREG(aside.lstat().st_mode):
            aside.unlink()
    try:
        yield aside
        os.replace(aside, path)
    except FileExistsError:  # no file of ours: a folder, a link
        raise
    except BaseException:
        with suppress(OSError):
            aside.unlink()
        raise


def write_whole(path: Path, parts: Sequence[Data]) -> int:
    """Write a file from parts; it appears under its name only when all of it is on disk. Returns its bytes."""
    views = [memoryview(part).cast("B") for part in parts]
    needed = sum(view.nbytes for view in views)
    with output_errors(path, needed), put_in_place(path) as aside, open(aside, "xb", buffering=0) as file:
        for view in views:
            written = 0
            while written < view.nbytes:  # a raw write may stop early on a signal or a nearly full disk
                written += file.write(view[written:]) or 0
        os.fsync(file.fileno())
    return needed


def write_json(path: Path, value: dict[str, Any]) -> None:
    """Write a JSON file whole; NaN and infinities are refused."""
    write_whole(path, [json.dumps(value, indent=1, allow_nan=False).encode()])


def sync_folder(folder: Path) -> None:
    """Make renames and new names in a folder durable."""
    with output_errors(folder):
        handle = os.open(folder, os.O_RDONLY | os.O_DIRECTORY)
        try:
            os.fsync(handle)
        finally:
            os.close(handle)


def move_over(new: Path, old: Path, remove: Callable[[Path], object]) -> None:
    """Put a folder in the place of another, which ``remove`` removes; at every moment one of them is there, whole.

    Two folders are exchanged in one step where the system can (Linux); elsewhere there is a moment between two renames,
    after which the old folder would be found under the name of the new one with ``.replaced`` at its end.
    """
    retired = new
    if _renameat2(new, old, _RENAME_EXCHANGE) != 0:
        retired = new.with_name(new.name + ".replaced")
        remove(retired)
        os.rename(old, retired)
        os.rename(new, old)
    sync_folder(old.parent)
    with suppress(OSError):
        remove(retired)


def rename_new(old: Path, new: Path) -> None:
    """Rename what is no folder to a name that nothing has yet.

    Raises FileExistsError: something has the name; OSError as ``os.rename``. On systems without such a call, files get
    the name as a link before they lose the old one; where there are no links either, a moment is left in which
    something else may get the name, and is replaced.
    """
    failed = _renameat2(old, new, _RENAME_NOREPLACE)
    if failed in (errno.ENOSYS, errno.EINVAL):
        try:
            os.link(old, new, follow_symlinks=False)
        except (FileExistsError, FileNotFoundError):
            raise
        except OSError:
            if os.path.lexists(new):
                raise FileExistsError(errno.EEXIST, os.strerror(errno.EEXIST), os.fspath(new)) from None
            os.rename(old, new)
        else:
            os.unlink(old)
    elif failed:
        raise OSError(failed, os.strerror(failed), os.fspath(old), None, os.fspath(new))


def _renameat2(old: Path, new: Path, flags: int) -> int:
    """Rename by Linux's call, which has flags; 0, or the number of the error (ENOSYS elsewhere)."""
    try:
        call = ctypes.CDLL(None, use_errno=True).renameat2
    except (AttributeError, OSError):
        return errno.ENOSYS
    here = ctypes.c_int(_AT_FDCWD)
    done = call(here, os.fsencode(old), here, os.fsencode(new), ctypes.c_uint(flags))
    return ctypes.get_errno() or errno.ENOSYS if done else 0


def linked(file: Path, name: Path) -> bool:
    """Whether a plain file has another name now; not on another file system, or on one that has no such links."""
    try:
        if not stat.S_ISREG(file.lstat().st_mode):
            return False
        os.link(file, name, follow_symlinks=False)
    except OSError:
        return False
    return True
