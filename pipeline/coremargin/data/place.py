"""Where a store is written: under a lock, apart from its final place until the first commit.

Only what is a store and nothing else is overwritten, and only what a killed writer left is cleared away (see owned.py).
"""

from __future__ import annotations

import threading
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import TYPE_CHECKING

from coremargin.data.codecs import Encoding
from coremargin.data.files import output_errors
from coremargin.data.folder import named
from coremargin.data.format import BLOCKS, CHANGES, GROUP_KEYS, KEYS, VECTORS, read_facts
from coremargin.data.layout import layouts
from coremargin.data.owned import STORE
from coremargin.data.storages import open_storage
from coremargin.errors import Busy, OutputError, RunError, StoreError, UsageError
from coremargin.interruption import deferred_interrupts

if TYPE_CHECKING:
    from coremargin.data.storage import Lock, Storage
    from coremargin.data.storages import Address


class Place:
    """The right to write a store. ``target``: where it belongs; ``storage``: where its objects go now."""

    def __init__(self, target: Storage, storage: Storage, lock: Lock) -> None:
        """Use ``new`` or ``existing``."""
        self.target, self.storage, self._lock = target, storage, lock
        self.name = target.name  #: for messages
        self._instead_of: Place | None = None  # whose lock is held already
        self._writers: set[int] = set()  # threads that write
        self._turn, self._closed = threading.Condition(), False

    @classmethod
    def new(cls, address: Address, *, overwrite: bool = False, instead_of: Place | None = None) -> Place:
        """For a new store. Raises UsageError (something is there), OutputError, Busy (another writer).

        instead_of: the place of the store to replace, if other writers are kept out until then.
        """
        target = open_storage(address).resolved()
        with output_errors(Path(target.name)):
            there = target.exists()
        if there:
            if not (overwrite or instead_of):
                raise UsageError(
                    f"{target.name}: something is there already; append to it, or allow it to be overwritten"
                )
            _check_old(target)
        made = None
        try:
            with deferred_interrupts():  # the caller, who would remove what is prepared, has no place yet
                storage = target.prepare()
                lock = storage.lock_writers(target.name)
                try:
                    _clear(storage)
                except BaseException:
                    lock.release()
                    raise
                made = cls(target, storage, lock)
                made._instead_of = instead_of
        except KeyboardInterrupt:
            if made is not None:
                made.close()
            raise
        return made

    @classmethod
    def existing(cls, address: Address) -> Place:
        """For going on with a store. Raises StoreError, OutputError, Busy."""
        target = open_storage(address).resolved()
        read_facts(target)  # what is no store gets no lock
        lock = target.lock_writers()
        try:
            facts = read_facts(target)  # as they are now: another writer may have ended meanwhile
            runs = {KEYS: facts.keys, GROUP_KEYS: facts.groups}
            for prefix in ("", *layouts(target, facts, Encoding()), "X", BLOCKS, VECTORS, CHANGES, *runs):
                target.sweep(prefix, STORE.owns)
            _sweep_changes(target, facts.number)
            for folder, named in runs.items():
                for entry in target.list(folder):  # of no commit, or merged by later ones
                    if entry.kind == "folder" and entry.name not in {run.group for run in named}:
                        target.remove(f"{folder}/{entry.name}", STORE.owns)
            _sweep_prepared(target)
        except BaseException:
            lock.release()
            raise
        return cls(target, target, lock)

    @property
    def published(self) -> bool:
        """The store is where it belongs."""
        return self.storage is self.target

    def publish(self) -> None:
        """Move a store that is whole to where it belongs; an older store there goes away."""
        if self.target.exists():
            # not while another process appends to the old one
            lock = None if self._instead_of else self.target.lock_writers()
            try:
                _check_old(self.target)  # hours may have passed
                self.target.publish(self.storage, STORE.owns)
            finally:
                if lock is not None:
                    lock.release()
        else:
            self.target.publish(self.storage, STORE.owns)
        self.storage = self.target

    @contextmanager
    def writing(self) -> Iterator[None]:
        """Objects of a thread: they are written before the place is closed, or not begun.

        A pool does not know a thread that a signal interrupted it in starting, and does not wait for it.
        Raises OutputError once the place is closed.
        """
        me = threading.get_ident()
        with self._turn:
            if self._closed:
                raise OutputError(f"{self.name}: nothing more is written there, its writer was closed")
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
        try:
            if not self.published:
                with suppress(OSError, RunError):
                    self.storage.remove("", STORE.owns)
        finally:
            self._lock.release()


def _clear(storage: Storage) -> None:
    """Remove what a killed writer of a new store left. Raises OutputError where there is anything else."""
    if foreign := STORE.foreign_keys(storage, whole=False):
        raise OutputError(
            f"{storage.name}: expected what an unfinished store left, found {named(foreign)}; move that away"
        )
    storage.sweep("", STORE.owns)
    for entry in storage.list():
        storage.remove(entry.name, STORE.owns)


def _sweep_changes(target: Storage, commits: int) -> None:
    """Remove labels and weights that none of so many commits has, and what was left half-written of those that grew."""
    for entry in target.list(CHANGES):
        if entry.name.isdecimal() and int(entry.name) < commits:
            for part in ("y", "weights"):
                target.sweep(f"{CHANGES}/{entry.name}/{part}", STORE.owns)
        elif entry.kind == "folder":
            target.remove(f"{CHANGES}/{entry.name}", STORE.owns)


def _sweep_prepared(target: Storage) -> None:
    """Remove a whole store that a killed writer left, replaced or not published, unless another process writes it."""
    with suppress(StoreError, OutputError, Busy, OSError):
        prepared = target.prepared()
        if prepared is None:
            return
        read_facts(prepared)
        lock = prepared.lock_writers()
        try:
            if not STORE.foreign_keys(prepared, whole=False):
                prepared.remove("", STORE.owns)
        finally:
            lock.release()


def _check_old(target: Storage) -> None:
    """Raises UsageError unless a store, and nothing else, is there to be overwritten."""
    try:
        read_facts(target)
    except StoreError as error:
        text = f"{target.name}: only a store may be overwritten, and this is none ({error}); remove it yourself"
        raise UsageError(text) from error
    if foreign := STORE.foreign_keys(target):
        raise UsageError(
            f"{target.name}: only a store may be overwritten, and this folder holds more: {named(foreign)}; "
            f"move that away, or choose another place"
        )
