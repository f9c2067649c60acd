"""One writer at a time for each output: the lock file ``.NAME.lock`` next to it, which is empty.

The kernel frees the lock when its holder dies, however it dies.
"""

from __future__ import annotations

import hashlib
import os
from contextlib import suppress
from pathlib import Path
from types import TracebackType
from typing import Self

from filelock import FileLock, Timeout

from coremargin.data.files import output_errors
from coremargin.errors import Busy, OutputError
from coremargin.formats.location import is_remote, last_name, location


def local_place(out: str | os.PathLike[str]) -> Path:
    """Where the lock and the checkpoint of an output lie: next to it or, of an address, among the state of this user.

    That is ``$XDG_STATE_HOME/coremargin``, ``~/.local/state/coremargin`` by default.
    """
    if not is_remote(out):
        return Path(os.path.realpath(out))
    address = location(out)
    same = [str(address), *(address.options.get(name, "") for name in ("endpoint", "account_name"))]
    digest = hashlib.sha256("\0".join(same).encode()).hexdigest()[:16]
    folder = os.path.expanduser(os.environ.get("XDG_STATE_HOME") or "~/.local/state")  # noqa: PTH111 - no home, no error
    return Path(os.path.realpath(folder), "coremargin", f"{last_name(address)[:64]}-{digest}")


class Locked:
    """The right to write at ``out`` while the context lasts. Entering raises Busy when another job has it.

    Of an address only jobs of this machine are excluded: others notice as they write.

    what: the output in one or two words, and advice, for the message. wait_s: how long to wait for another job.
    """

    def __init__(
        self,
        out: str | os.PathLike[str],
        what: str,
        *,
        advice: str = "wait for it, or choose another output",
        wait_s: float = 0.0,
    ) -> None:
        self._out, self._what, self._advice = local_place(out), what, advice  # one lock for all its names
        self._name = out if is_remote(out) else self._out
        self._made = False  # the folder was not there before
        self._lock = FileLock(self._out.with_name(f".{self._out.name}.lock"), timeout=wait_s)

    def __enter__(self) -> Self:
        try:
            self._acquire()
        except OutputError as error:
            if self._name is not self._out:
                error.add_note(
                    f"the lock and the checkpoint of {self._name} are there; set XDG_STATE_HOME to another folder"
                )
            raise
        return self

    def _acquire(self) -> None:
        with output_errors(self._out):
            self._made = not self._out.parent.exists()
            self._out.parent.mkdir(parents=True, exist_ok=True)
            try:
                self._lock.acquire()
            except Timeout:
                raise Busy(f"{self._name}: another job is writing {self._what}; {self._advice}") from None
            file = Path(self._lock.lock_file)
            if not file.is_file() or file.stat().st_size:
                self._lock.release()
                raise OutputError(f"{file}: expected an empty lock file or nothing, found something else; move it away")

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        with suppress(OSError):  # nothing hides the error that ended the job, such as a disk that is read-only by now
            Path(self._lock.lock_file).unlink(missing_ok=True)  # while it is held: who waits sees it, makes a new one
        self._lock.release()
        if self._made:
            with suppress(OSError):  # something was written, or another process waits there
                self._out.parent.rmdir()
