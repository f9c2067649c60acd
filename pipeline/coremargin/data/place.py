"""Where a store is written: under a lock, beside its final place until the first commit.

A symlink keeps pointing where it does: the store that it leads to is written. Only what is a store and nothing else is
overwritten, and only what a killed writer left is cleared away (see owned.py).
"""

from __future__ import annotations

import os
import threading
from collections.abc import Iterator
from contextlib import contextmanager, nullcontext, suppress
from pathlib import Path

from filelock import FileLock, Timeout

from coremargin.data.changes import CHANGES
from coremargin.data.codecs import Encoding
from coremargin.data.files import move_over, output_errors, sync_folder
from coremargin.data.format import read_facts
from coremargin.data.key_runs import KEYS
from coremargin.data.layout import layouts
from coremargin.data.owned import STORE, named
from coremargin.data.support import FOLDER as VECTORS
from coremargin.errors import Busy, OutputError, StoreError, UsageError, raise_if_limit
from coremargin.formats.local_path import local_path
from coremargin.interruption import deferred_interrupts

_LOCK = ".lock"


class Place:
    """A store's place and the right to write there; the kernel frees the lock of a writer that dies."""

    def __init__(self, path: Path, folder: Path, lock: FileLock) -> None:
        """Use ``new`` or ``existing``. ``folder`` is where files go now, ``path`` where the store belongs."""
        self.path, self.folder, self._lock = path, folder, lock
        self._instead_of: Place | None = None  # whose lock is held already
        self._writers: set[int] = set()  # threads that write files
        self._turn, self._closed = threading.Condition(), False

    @classmethod
    def new(cls, path: str | os.PathLike[str], *, overwrite: bool = False, instead_of: Place | None = None) -> Place:
        """For a new store. Raises UsageError (something is there), OutputError, Busy (another writer).

        instead_of: the place of the store that it is to replace, if nobody else may write there until then.
        """
        place = Path(os.path.realpath(local_path(path)))
        if os.path.lexists(place):
            if not (overwrite or instead_of):
                raise UsageError(f"{place}: something is there already; append to it, or allow it to be overwritten")
            _check_old(place)
        folder, made = building(place), None
        try:
            with deferred_interrupts():  # the caller, who would remove the folder, has no place yet
                with output_errors(place):
                    folder.mkdir(parents=True, exist_ok=True)
                    if folder.is_symlink():
                        raise OutputError(f"{folder}: expected a folder of ours or nothing, found a link; move it away")
                lock = _locked(folder, place)
                try:
                    _clear_folder(folder, place)
                except BaseException:
                    lock.release()
                    raise
                made = cls(place, folder, lock)
                made._instead_of = instead_of
        except KeyboardInterrupt:
            if made is not None:
                made.close()
            raise
        return made

    @classmethod
    def existing(cls, path: str | os.PathLike[str]) -> Place:
        """For going on with a store. Raises StoreError, OutputError, Busy."""
        place = Path(os.path.realpath(local_path(path)))
        read_facts(place)  # what is no store gets no lock
        lock = _locked(place, place)
        try:
            facts = read_facts(place)  # as they are now: another writer may have ended meanwhile
            for name in ("", *layouts(place, facts, Encoding()), "X", "blocks", f"blocks/{VECTORS}", CHANGES):
                STORE.sweep(place, name)
            _sweep_changes(place, facts.number)
            _sweep_keys(place, {run.group for run in facts.keys})
            _sweep_beside(building(place))
        except BaseException:
            lock.release()
            raise
        return cls(place, place, lock)

    @property
    def published(self) -> bool:
        """The store is where it belongs."""
        return self.folder == self.path

    def publish(self) -> None:
        """Move a store that is whole to where it belongs; an older store there goes away."""
        with output_errors(self.path):
            if self.path.exists():
                # not while somebody appends to the old one
                with nullcontext() if self._instead_of else _locked(self.path, self.path):
                    _check_old(self.path)  # hours may have passed
                    move_over(self.folder, self.path, STORE.remove)
            else:
                os.rename(self.folder, self.path)
                sync_folder(self.path.parent)
        self.folder = self.path

    @contextmanager
    def writing(self) -> Iterator[None]:
        """Files of a thread: they are written before the place is closed, or not begun.

        A pool does not know a thread that a signal interrupted it in starting, and does not wait for it.
        Raises OutputError once the place is closed.
        """
        me = threading.get_ident()
        with self._turn:
            if self._closed:
                raise OutputError(f"{self.path}: nothing more is written there, its writer was closed")
            self._writers.add(me)
        try:
            yield
        finally:
            with self._turn:
                self._writers.discard(me)
                self._turn.notify_all()

    def close(self) -> None:
        """Give up the right to write; a store that was never published disappears."""
        with self._turn:
            self._closed = True
            self._turn.wait_for(lambda: self._writers <= {threading.get_ident()})  # a signal may have left our own
        if not self.published:
            with suppress(OSError):
                STORE.remove(self.folder)
        self._lock.release()


def _clear_folder(folder: Path, place: Path) -> None:
    """Remove what a killed writer of a new store left. Raises OutputError where there is anything else."""
    with output_errors(place):
        if foreign := STORE.foreign_files(folder, whole=False):
            raise OutputError(
                f"{folder}: expected what an unfinished store left, found {named(foreign)}; move that away"
            )
        for entry in os.scandir(folder):
            if entry.is_dir(follow_symlinks=False):
                STORE.remove(folder, entry.name)
            elif entry.name != _LOCK:
                os.unlink(entry.path)


def building(place: Path) -> Path:
    """Where a store is made that is to be at this place; and where the one is that it replaces, until that is gone."""
    return place.with_name(f".{place.name}.building")


def _sweep_beside(folder: Path) -> None:
    """Remove a whole store that a killed writer left there, replaced or not published; not while somebody writes it."""
    with suppress(StoreError, OutputError, Busy, OSError):
        if folder.is_symlink():
            return
        read_facts(folder)
        lock = _locked(folder, folder)
        try:
            if not STORE.foreign_files(folder, whole=False):
                STORE.remove(folder)
        finally:
            lock.release()


def _sweep_changes(place: Path, commits: int) -> None:
    """Remove labels and weights that none of so many commits has, and what was left aside of those that grew."""
    if not (place / CHANGES).is_dir():
        return
    for entry in os.scandir(place / CHANGES):
        if entry.name.isdecimal() and int(entry.name) < commits:
            for part in ("y", "weights"):
                STORE.sweep(place, f"{CHANGES}/{entry.name}/{part}")
        elif entry.is_dir(follow_symlinks=False):
            STORE.remove(place, f"{CHANGES}/{entry.name}")


def _sweep_keys(place: Path, named: set[str]) -> None:
    """Remove keys that no commit was made with, or that later ones have merged."""
    if not (place / KEYS).is_dir():
        return
    STORE.sweep(place, KEYS)
    for entry in os.scandir(place / KEYS):
        if entry.is_dir(follow_symlinks=False) and entry.name not in named:
            STORE.remove(place, f"{KEYS}/{entry.name}")


def _check_old(place: Path) -> None:
    """Raises UsageError unless a store, and nothing else, is there to be overwritten."""
    try:
        read_facts(place)
    except StoreError as error:
        text = f"{place}: only a store may be overwritten, and this is none ({error}); remove it yourself"
        raise UsageError(text) from error
    if foreign := STORE.foreign_files(place):
        raise UsageError(
            f"{place}: only a store may be overwritten, and this folder holds more: {named(foreign)}; "
            f"move that away, or choose another place"
        )


def _locked(folder: Path, store: Path) -> FileLock:
    lock = FileLock(folder / _LOCK, timeout=0, thread_local=False)
    try:
        lock.acquire()
    except Timeout:
        raise Busy(f"{store}: another writer is at work there; wait for it to end") from None
    except OSError as error:
        raise_if_limit(error, store)
        text = f"{store}: cannot be written: {error.strerror or error}; choose a folder that this user may write to"
        raise OutputError(text) from error
    return lock
