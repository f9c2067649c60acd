"""``python -m coremargin`` and the command ``coremargin``: a process that ends within seconds of a signal.

::

    a signal while data are loaded, read or shown      ends the process at once
    a signal while something is written or trained     KeyboardInterrupt: files are removed, a checkpoint is saved
    GRACE_S later, or a second signal                  ends the process at once

The exit code is always 130. Ending at once is safe, since even SIGKILL leaves nothing half-written. A thread, which the
kernel notifies of each signal, does it: Python handles signals only between two bytecodes of the main thread, which may
be waiting for a file server or a long solve.
"""

from __future__ import annotations

import os
import select
import signal
import sys
import threading
import time
from collections.abc import Callable
from contextlib import suppress
from typing import NoReturn

from coremargin import interruption
from coremargin.engine.outputs import protect_outputs
from coremargin.errors import machine_limit

GRACE_S = 15.0  #: from a signal to the end of the process; batch systems send SIGKILL after about 30 s
_LAST_S = 5.0  # for the interpreter to exit after a command
_SAME_S = 1.0  # later signals within this time are ignored: terminals and batch systems send several


class Guard:
    """A thread that ends this process if a signal does not."""

    def __init__(self) -> None:
        self._ended = threading.Event()
        self._pipe: tuple[int, int] | None = None
        with suppress(OSError, RuntimeError):  # no more files or threads: Python's own handling remains
            self._pipe = os.pipe()
            os.set_blocking(self._pipe[1], False)
            signal.set_wakeup_fd(self._pipe[1], warn_on_full_buffer=False)
            threading.Thread(target=self._watch, args=(self._pipe[0],), name="signals", daemon=True).start()

    def ended(self) -> None:
        """The command has finished; the process must exit soon."""
        self._ended.set()
        if self._pipe is not None:
            with suppress(OSError):
                os.write(self._pipe[1], b"\0")

    def _watch(self, pipe: int) -> None:
        since: float | None = None  # time of the signal that is being handled
        handled = 0
        while not self._ended.is_set():
            left = None if since is None else max(0.0, since + GRACE_S - time.monotonic())
            ready, now = select.select([pipe], [], [], left)[0], time.monotonic()
            if ready and not {0, *interruption.NUMBERS} & set(os.read(pipe, 4096)):
                continue
            if since is None or handled != interruption.interrupts_handled():
                since, handled = now if ready else None, interruption.interrupts_handled()
            elif not self._ended.is_set() and now - since >= _SAME_S:
                self._end()
        time.sleep(_LAST_S)
        os._exit(0)

    def _end(self) -> NoReturn:
        with suppress(Exception):  # psutil is loaded if a cluster was started; an import might block
            for child in sys.modules["psutil"].Process().children(recursive=True):
                child.kill()
        interruption.leave(("\x1b[?25h\n" if os.isatty(2) else "") + "error: interrupted\n")  # shows the cursor again


def _load_command() -> Callable[[], NoReturn]:
    """The command line; a lack of memory or files while it is imported is reported as for commands."""
    try:
        from coremargin.cli import main as command
    except (ImportError, MemoryError, OSError) as error:
        limit = machine_limit(error)
        if limit is None:
            raise
        sys.stderr.write(f"error: {limit}\n")
        sys.exit(limit.exit_code)
    return command


def main() -> NoReturn:
    """Run the command line."""
    protect_outputs()
    interruption.begin_command()
    guard = Guard()
    try:
        _load_command()()
    except SystemExit as end:
        code = end.code if isinstance(end.code, int) else int(end.code is not None)
        if code:  # the interpreter would change the exit code of some KeyboardInterrupts
            with suppress(OSError, ValueError):
                sys.stdout.flush()
            os._exit(code)
        interruption.end_command()
        guard.ended()
        raise


if __name__ == "__main__":
    main()
