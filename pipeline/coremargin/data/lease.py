"""The right to write to an address: an object that names its owner, who renews it.

It spares two writers the same work, and an error can name the other one. No commit depends on it: all puts are
conditional. Whoever takes over a lease that its owner did not renew, as it was killed or stopped, first replaces the
objects that the owner's next commit is conditional on by the same with a blank line more (``fence`` in
object_storage.py), so that the owner, if it goes on, fails instead of committing what the new writer has overwritten.
"""

from __future__ import annotations

import os
import secrets
import threading
import time
import weakref
from contextlib import suppress
from typing import TYPE_CHECKING, Annotated

import msgspec
from msgspec import Meta

from coremargin.data.commits import current_user
from coremargin.data.storage import ABSENT
from coremargin.errors import Busy, CoremarginError, OutputError
from coremargin.formats.generation import FOLDER

if TYPE_CHECKING:
    from coremargin.data.conditional_puts import ConditionalPuts, Stored

FILE = f"{FOLDER}/writer.json"
SECONDS = 60.0  #: without a renewal, after which another writer takes over
_RENEWALS = 4  # in this time
_LARGEST = 1 << 16


class _Record(msgspec.Struct, frozen=True, kw_only=True):
    """token: random, new each time the lease is taken. renewed: number of renewals; owner "": there is no writer."""

    token: str
    owner: str = ""
    process: int = 0
    since: Annotated[float, Meta(ge=0, le=1e11)] = 0.0  #: by the owner's clock
    seconds: Annotated[float, Meta(ge=0, le=86400)] = SECONDS
    renewed: int = 0

    def encoded(self) -> bytes:
        return msgspec.json.encode(self)


class Lease:
    """The lease of one address for one writer, who may hold it more than once at a time."""

    def __init__(self, puts: ConditionalPuts) -> None:
        self._puts = puts
        self._record, self._tag = _Record(token=""), ""
        self._holders = 0
        self._lost = False
        self._changing = threading.RLock()
        self._stop = threading.Event()

    @property
    def held(self) -> bool:
        """Whether this writer took it and did not give it back; another one may have taken it over since."""
        return self._holders > 0

    def hold(self) -> bool:
        """Take the lease, or hold it once more. Returns whether it was taken over from a writer that had ended.

        Raises Busy: another writer has it; OutputError.
        """
        with self._changing:
            taken_over = False
            if not self._holders:
                taken_over = self._take()
            self._holders += 1
            return taken_over

    def release(self) -> None:
        """Give it back once; the last time, other writers may take it."""
        with self._changing:
            self._holders -= 1
            if self._holders:
                return
            self._stop.set()
            if not self._lost:
                with suppress(CoremarginError, OSError):
                    self._puts.put(FILE, [_Record(token=secrets.token_hex(8)).encoded()], self._tag)

    def abandon(self) -> None:
        """Let it expire, so that the next writer takes it over."""
        with self._changing:
            self._holders, self._lost = 0, True
            self._stop.set()

    def check(self) -> None:
        """Raises Busy where another writer has taken it over, OutputError where that cannot be found out."""
        if not self._lost:
            found = _read(self._puts)
            if found is not None and found[0].token == self._record.token:
                return
        raise Busy(
            f"{self._puts.address}: another writer has taken over, as this one did not renew its lease for "
            f"{self._record.seconds:.0f} seconds; nothing more is written, do it again"
        )

    def _take(self) -> bool:
        found = _read(self._puts)
        taken_over = found is not None and bool(found[0].owner)
        if found is not None and taken_over:
            record, stored = found
            left = record.seconds - (now_there(self._puts) - stored.modified)
            if left > 0:
                raise _busy(self._puts, record, left)
        user, seconds = current_user(), SECONDS
        record = _Record(
            token=secrets.token_hex(8), owner=user, process=os.getpid(), since=time.time(), seconds=seconds
        )
        try:
            tag = self._puts.put(FILE, [record.encoded()], ABSENT if found is None else found[1].tag)
        except Busy:
            other = _read(self._puts)
            if other is None or not other[0].owner:
                raise
            raise _busy(self._puts, other[0], other[0].seconds) from None
        self._record, self._tag, self._lost = record, tag, False
        self._stop = threading.Event()
        mine = weakref.ref(self)
        threading.Thread(target=_renew, args=(mine, self._stop, seconds), name="coremargin-lease", daemon=True).start()
        return taken_over

    def renew(self) -> None:
        """Raises Busy: another writer has taken it over; OutputError."""
        with self._changing:
            if not self._holders or self._lost:
                return
            record = msgspec.structs.replace(self._record, renewed=self._record.renewed + 1)
            try:
                self._tag = self._puts.put(FILE, [record.encoded()], self._tag)
            except Busy:
                self._lost = True
                raise
            self._record = record


def _renew(lease: weakref.ref[Lease], stop: threading.Event, seconds: float) -> None:
    """Renew a lease until it is given back, lost or no longer referenced."""
    while not stop.wait(seconds / _RENEWALS):
        found = lease()
        if found is None:
            return
        try:
            found.renew()
        except Busy:
            return
        except (CoremarginError, OSError):  # the next time
            pass
        del found


def _read(puts: ConditionalPuts) -> tuple[_Record, Stored] | None:
    """The lease and its object as they are now; an unreadable one counts as held by another writer until it expires."""
    stored = puts.read(FILE, _LARGEST)
    if stored is None:
        return None
    try:
        return msgspec.json.decode(stored.data or b"", type=_Record), stored
    except msgspec.MsgspecError:
        return _Record(token="", owner="unknown"), stored


def now_there(puts: ConditionalPuts) -> float:
    """Seconds since 1970 by the clock of the service, which dates all objects; this machine may have another one."""
    path = f"{FOLDER}/clock-{secrets.token_hex(8)}"
    puts.put(path, [b""], ABSENT)
    stored = puts.read(path, 0)
    puts.delete([path])
    if stored is None:
        raise OutputError(f"{puts.address}/{path}: expected the object that was just put there, found none")
    return stored.modified


def _busy(puts: ConditionalPuts, record: _Record, left: float) -> Busy:
    since = time.strftime("%Y-%m-%d %H:%M:%S UTC", time.gmtime(record.since))
    return Busy(
        f"{puts.address}: another writer is at work there: process {record.process} of {record.owner}, since {since}; "
        f"wait for it to end (if it was killed, for {max(1, round(left))} seconds)"
    )
