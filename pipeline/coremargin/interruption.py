"""Ctrl-C, SIGTERM and SIGHUP: KeyboardInterrupt in the main thread, and a mark in case the exception is lost.

An exception that a signal raises inside a callback or a finaliser, of which Dask has many, is swallowed there. So the
handler also sets a mark, which the main loop checks after each block and before a model is written.

In the process of a command (``__main__.py``), a signal ends the process at once unless ``terminable`` is open, and
further signals do not interrupt the clean-up.
"""

from __future__ import annotations

import os
import signal
import sys
import threading
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from typing import Any, NoReturn

from coremargin.errors import Interrupted

#: Ctrl-C, batch systems, and a terminal that is closed.
NUMBERS = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)

_AGAIN_S = 0.05
_signals: list[int] = []  # signals that came while a ``terminable`` was open
_open: list[dict[int, Any]] = []  # what each open ``terminable`` found installed


class _Command:
    """State of the command of this process."""

    running = False
    received = 0  #: signals so far
    handled = 0  #: how many of them were handled


@contextmanager
def terminable() -> Iterator[None]:
    """Signals raise KeyboardInterrupt within this context, in the main thread.

    Signals that the caller ignores or handles differently are left alone, except SIGTERM.
    """
    if threading.current_thread() is not threading.main_thread():
        yield
        return
    plain = (signal.SIG_DFL, signal.default_int_handler, _interrupt, _leave)
    numbers = [number for number in NUMBERS if number == signal.SIGTERM or signal.getsignal(number) in plain]
    _open.append({number: signal.getsignal(number) for number in numbers})
    try:
        for ours in numbers:
            signal.signal(ours, _interrupt)
        yield
    finally:
        for number, handler in _open.pop().items():
            signal.signal(number, signal.SIG_DFL if handler is None else handler)
        if not _open:
            _signals.clear()


@contextmanager
def deferred_interrupts() -> Iterator[None]:
    """Defer signals until the end of this context: C++ code would abort on an exception."""
    if threading.current_thread() is not threading.main_thread():
        yield
        return
    received: list[int] = []
    numbers = [number for number in NUMBERS if callable(signal.getsignal(number))]
    found = {number: signal.getsignal(number) for number in numbers}
    try:
        for number in numbers:
            signal.signal(number, lambda number, _: received.append(number))
        yield
    finally:
        for number, handler in found.items():
            signal.signal(number, handler)
        for first in received[:1]:
            signal.raise_signal(first)


def raise_if_interrupted() -> None:
    """Raise KeyboardInterrupt in the main thread if a signal came since the outermost ``terminable``."""
    if _signals and threading.current_thread() is threading.main_thread():
        raise KeyboardInterrupt


def interrupt_handled() -> str:
    """Declare a signal handled: the job has ended with its result so far. A later signal counts again.

    Returns the name of the signal, such as "SIGTERM".
    """
    name = signal.Signals(_signals[0] if _signals else signal.SIGINT).name
    _signals.clear()
    _Command.handled += 1
    return name


def _interrupt(number: int, _: object) -> None:
    _signals.append(number)
    _Command.received += 1
    if not _Command.running or len(_signals) == 1:
        raise KeyboardInterrupt


# In the process of a command


def begin_command() -> None:
    """From now on, signals end this process at once, except within ``terminable``.

    Signals that the parent process ignores (``nohup``, background jobs of a shell) stay ignored.
    """
    _Command.running = True
    sys.unraisablehook = _handle_unraisable
    for number in NUMBERS:
        if signal.getsignal(number) in (signal.SIG_DFL, signal.default_int_handler):
            signal.signal(number, _leave)


def _handle_unraisable(lost: sys.UnraisableHookArgs) -> None:
    """Send the signal again, a little later, if its KeyboardInterrupt was swallowed.

    After an interruption, errors in finalisers of half-constructed objects, such as event loops, are not reported.
    """
    if not (_signals and issubclass(lost.exc_type, KeyboardInterrupt)):
        if not command_was_interrupted():
            sys.__unraisablehook__(lost)
        return
    again = threading.Timer(_AGAIN_S, signal.pthread_kill, (threading.main_thread().ident, _signals.pop()))
    again.daemon = True
    again.start()


def end_command() -> None:
    """Ignore signals from now on: the command has finished. (Python would restore the default handlers at exit.)"""
    for number in NUMBERS:
        if signal.getsignal(number) in (_leave, _interrupt):
            signal.signal(number, signal.SIG_IGN)


def command_was_interrupted() -> bool:
    """Whether a signal came since ``begin_command``."""
    return _Command.running and _Command.received > 0


def interrupts_handled() -> int:
    """Number of calls of ``interrupt_handled``."""
    return _Command.handled


def leave(message: str = "error: interrupted\n") -> NoReturn:
    """End this process at once."""
    with suppress(OSError):
        os.write(2, message.encode())
    os._exit(Interrupted.exit_code)


def _leave(*_: object) -> None:
    _Command.received += 1
    if _Command.received == 1:  # else the command is ending and prints the message itself
        leave()
