"""The lock of a job that must not run twice at once, which shows who runs it: by a heartbeat file, or by a lease."""

from __future__ import annotations

import os
import socket
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import TYPE_CHECKING

from coremargin.data.files import write_json
from coremargin.data.locked import Locked
from coremargin.data.object_storage import ObjectStorage
from coremargin.errors import Busy, OutputError, Running
from coremargin.formats.plain_file import read_plain
from coremargin.formats.strict_json import read_object
from coremargin.spec import format_seconds

if TYPE_CHECKING:
    from coremargin.formats.location import Location

HEARTBEAT_S = 15.0
HEARTBEAT_FILE = ".run.json"
_MISSED = 4  # heartbeats after which a run may hang


@contextmanager
def run_lock(registry: Path | Location) -> Iterator[None]:
    """Hold the lock of the job that belongs to a registry.

    The kernel releases the lock of a killed process; the lease of an address expires. Raises Running, which names the
    process and its start, and OutputError for what is read-only.
    """
    if isinstance(registry, Path):
        with _locked_folder(registry):
            yield
        return
    try:
        lease = ObjectStorage(registry).lock_writers()
    except Busy as error:
        raise Running(f"{error}; nothing was done") from None
    try:
        yield
    finally:
        lease.release()


@contextmanager
def _locked_folder(folder: Path) -> Iterator[None]:
    lock, heartbeat = Locked(folder / "run", "this job"), folder / HEARTBEAT_FILE
    try:
        lock.__enter__()
    except Busy:
        raise Running(f"{folder}: {_describe_run(heartbeat)}; nothing was done, try again later") from None
    ended, started = threading.Event(), time.time()

    def write_heartbeats() -> None:
        while not ended.wait(HEARTBEAT_S):
            _write_heartbeat(heartbeat, started)

    thread = threading.Thread(target=write_heartbeats, name="heartbeat", daemon=True)
    try:
        _write_heartbeat(heartbeat, started)
        thread.start()
        yield
    finally:
        ended.set()
        if thread.ident is not None:
            thread.join()
        with suppress(OSError):
            heartbeat.unlink(missing_ok=True)
        lock.__exit__(None, None, None)


def _write_heartbeat(path: Path, started: float) -> None:
    values = {"pid": os.getpid(), "host": socket.gethostname(), "started": round(started), "beat": round(time.time())}
    with suppress(OutputError, OSError):  # the lock holds without it
        write_json(path, values)


def _describe_run(heartbeat: Path) -> str:
    try:
        values = read_object(read_plain(heartbeat, 1 << 16), str(heartbeat))
        process, age = (
            f"process {int(values['pid'])} on {values['host']!s:.200}",
            time.time() - float(values["started"]),
        )
        silence = time.time() - float(values["beat"])
    except (OSError, ValueError, KeyError, TypeError):
        return "another run of this job is active"
    text = f"{process} has been running this job" + (f" for {format_seconds(age)}" if age >= 0 else "")
    if silence > _MISSED * HEARTBEAT_S:
        text += f", without a heartbeat for {format_seconds(silence)}: end it if it hangs"
    return text
