"""One run of a job at a time: the kernel frees the lock of a run that was killed; a sign of life tells who has it."""

from __future__ import annotations

import os
import socket
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

from coremargin.data.files import write_json
from coremargin.data.locked import Locked
from coremargin.errors import Busy, OutputError, Running
from coremargin.formats.plain_file import read_plain
from coremargin.formats.strict_json import read_object
from coremargin.spec import format_seconds

BEAT_S = 15.0  #: from one sign of life to the next
_SIGN = ".night.json"
_SILENT = 4  # beats after which a run is said to give no sign


@contextmanager
def running(place: Path) -> Iterator[None]:
    """The right to run the job that belongs to a folder.

    Whoever is refused is told who runs it, since when, and when there was a last sign of life. Raises Running, and
    OutputError for a folder that cannot be written to.
    """
    lock = Locked(place / "night", "this job")
    try:
        lock.__enter__()
    except Busy:
        raise Running(f"{place}: {_who(place / _SIGN)}; nothing was done, try again later") from None
    over = threading.Event()
    beats = threading.Thread(target=_beat, args=(place / _SIGN, over), name="heartbeat", daemon=True)
    try:
        with suppress(OutputError, OSError):  # the lock holds without it
            _sign(place / _SIGN, time.time())
        beats.start()
        yield
    finally:
        over.set()
        if beats.ident is not None:
            beats.join()
        with suppress(OSError):
            (place / _SIGN).unlink(missing_ok=True)
        lock.__exit__(None, None, None)


def _beat(sign: Path, over: threading.Event) -> None:
    started = time.time()
    while not over.wait(BEAT_S):
        with suppress(OutputError, OSError):  # the lock holds without it
            _sign(sign, started)


def _sign(sign: Path, started: float) -> None:
    found = {"pid": os.getpid(), "host": socket.gethostname(), "started": round(started), "beat": round(time.time())}
    write_json(sign, found)


def _who(sign: Path) -> str:
    """Who runs the job, as the last sign of life has it."""
    try:
        found = read_object(read_plain(sign, 1 << 16), str(sign))
        who, started = f"process {int(found['pid'])} on {found['host']!s:.200}", time.time() - float(found["started"])
        silent = time.time() - float(found["beat"])
    except (OSError, ValueError, KeyError, TypeError):
        return "another run of this job is active"
    since = f", for {format_seconds(started)} now" if started >= 0 else ""
    told = f"{who} runs this job{since}"
    if silent > _SILENT * BEAT_S:
        told += f", and has given no sign of life for {format_seconds(silent)}: end it if it hangs"
    return told
