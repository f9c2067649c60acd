"""A command in a session of its own, and signals to it.

As a script, in place of ``python -m coremargin``: a command that does not end by itself.
``signal_kit.py HOW GRACE_S``, with HOW one of the functions of ``STUBBORN``; it prints "begun" when it is there.
"""

from __future__ import annotations

import ctypes
import os
import signal
import subprocess
import sys
import threading
import time
import weakref
from pathlib import Path
from typing import TYPE_CHECKING, Any

import coremargin
from coremargin import __main__ as process
from coremargin import cli, interruption
from coremargin.cli.common import _exit_code
from coremargin.interruption import terminable

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

_PATHS = [str(Path(coremargin.__path__[0]).parent), str(Path(__file__).parent)]
ENVIRONMENT = {**os.environ, "PYTHONPATH": os.pathsep.join(_PATHS), "OPENBLAS_NUM_THREADS": "1"}
COMMAND = (sys.executable, "-m", "coremargin")


class Running:
    """A command; what it started is in its process group."""

    def __init__(self, words: Sequence[Any], *, command: Sequence[str] = COMMAND, **options: Any) -> None:
        self.popen = subprocess.Popen(
            [*command, *map(str, words)], env=ENVIRONMENT, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True,
            start_new_session=True, **options,
        )  # fmt: skip

    def until(self, there: Callable[[], Any]) -> bool:
        """Wait for something to be there; False when the command ends before."""
        while self.popen.poll() is None:
            if there():
                return True
            time.sleep(0.0005)
        return False

    def hears(self) -> bool:
        """Whether the command handles signals: before, they end it as they end any process."""
        try:
            status = Path(f"/proc/{self.popen.pid}/status").read_text(encoding="ascii")
        except OSError:
            return False
        known = [int(line.split()[1], 16) for line in status.splitlines() if line.startswith(("SigCgt", "SigIgn"))]
        return all(any(mask >> (number - 1) & 1 for mask in known) for number in interruption.NUMBERS)

    def send(self, number: int, *, group: bool = False) -> None:
        """A signal to the command, or to all processes as terminals and batch systems do."""
        if self.popen.poll() is None:
            (os.killpg if group else os.kill)(self.popen.pid, number)

    def end(self) -> tuple[int, str, str]:
        """Exit code, stdout and stderr, once nothing is left of it. A command that hangs is killed and fails."""
        try:
            out, errors = self.popen.communicate(timeout=90)
            deadline = time.monotonic() + 60
            while self._lives():
                assert time.monotonic() < deadline, f"left behind: {self.popen.args}"
                time.sleep(0.01)
        finally:
            if self._lives():
                os.killpg(self.popen.pid, signal.SIGKILL)
                self.popen.communicate()
        return self.popen.returncode, out, errors

    def _lives(self) -> bool:
        try:
            os.killpg(self.popen.pid, 0)
        except ProcessLookupError:
            return False
        return True


def deaf() -> None:
    """The main thread waits in C, where no signal wakes it."""
    mutex = ctypes.create_string_buffer(64)  # all zero: PTHREAD_MUTEX_INITIALIZER
    library = ctypes.CDLL(None)
    library.pthread_mutex_lock(mutex)
    print("begun", flush=True)  # noqa: T201 - a script
    library.pthread_mutex_lock(mutex)


def swallowing() -> None:
    """The exception is lost, again and again, in the last moments of an object."""

    class Object:
        """Something that is watched."""

    def last() -> None:
        if not said:
            said.append("begun")
            print("begun", flush=True)  # noqa: T201 - a script
        time.sleep(0.2)

    said: list[str] = []
    with terminable():
        for _ in range(100_000):
            something = Object()
            weakref.finalize(something, last)
            del something


def asleep() -> None:
    """Sleep for ever, in small pieces: a signal in the instant before the system puts a process to sleep is not heard
    before it wakes.
    """
    while True:
        time.sleep(0.05)


def clearing_up() -> None:
    """Something is put in order, which takes long."""
    with terminable():
        try:
            print("begun", flush=True)  # noqa: T201
            asleep()
        finally:
            time.sleep(float(sys.argv[3]))
            print("in order", flush=True)  # noqa: T201


def transformed() -> None:
    """The exception becomes another one, as in a library written in C."""
    with terminable():
        print("begun", flush=True)  # noqa: T201
        try:
            exec("asleep()")  # noqa: S102 - Python itself makes something else of these
        except KeyboardInterrupt:
            raise SystemError("returned NULL without setting an exception") from None


def through_exec() -> None:
    """The exception comes through ``exec``, after which Python ends by SIGINT whatever exit code it was given."""
    with terminable():
        print("begun", flush=True)  # noqa: T201
        exec("asleep()")  # noqa: S102


def half_made() -> None:
    """The exception leaves an object half-made, as zarr's event loop may be, which cannot be taken down."""

    class Object:
        """Something that has no parts yet."""

        def __del__(self) -> None:
            raise AttributeError

    with terminable():
        something = Object()
        print("begun", flush=True)  # noqa: T201
        asleep()
        del something


def left_over() -> None:
    """A thread that is not done keeps the interpreter from its end."""
    threading.Thread(target=time.sleep, args=(3600,)).start()
    print("begun", flush=True)  # noqa: T201


STUBBORN: dict[str, Callable[[], None]] = {
    function.__name__: function
    for function in (deaf, swallowing, clearing_up, transformed, through_exec, half_made, left_over)
}


def main() -> None:
    """Be the process of a command that is one of the stubborn."""
    process.GRACE_S = float(sys.argv[2])
    cli.main = lambda: sys.exit(_exit_code(STUBBORN[sys.argv[1]]))  # type: ignore[assignment]
    process.main()


if __name__ == "__main__":
    main()
