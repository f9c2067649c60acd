"""Ctrl-C, SIGTERM and a closed terminal: an exception where the code stands, and a mark for where that gets lost.

An exception that a signal raises inside a callback or a finaliser, as Dask has many, is swallowed there, and the job
would go on as if nobody had asked it to end. So the handler leaves a mark as well, and the loop looks at it after each
block and before a model is written.

The process of a command (``__main__.py``) is wholly ours: a signal that comes while nothing has to be put in order
ends it at once, and one that comes while something is put in order disturbs nobody.
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

#: What asks a job to end: Ctrl-C, a batch system, a terminal that is closed.
NUMBERS = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)

_AGAIN_S = 0.05
_signals: list[int] = []  # signals that came while a ``terminable`` was open
_open: list[dict[int, Any]] = []  # what each open ``terminable`` found installed


class _Command:
    """What is known of the command whose process this is."""

    running = False
    came = 0  #: signals so far
    handled = 0  #: how many of them were handled


@contextmanager
def terminable() -> Iterator[None]:
    """Signals end what runs in here by KeyboardInterrupt; in threads beside the main one nothing changes.

    A signal that the caller ignores, or handles in another way, stays as it is, but for SIGTERM.
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
    """A signal comes behind what runs in here: C++ that lets no exception through would end the process."""
    if threading.current_thread() is not threading.main_thread():
        yield
        return
    came: list[int] = []
    numbers = [number for number in NUMBERS if callable(signal.getsignal(number))]
    found = {number: signal.getsignal(number) for number in numbers}
    try:
        for number in numbers:
            signal.signal(number, lambda number, _: came.append(number))
        yield
    finally:
        for number, handler in found.items():
            signal.signal(number, handler)
        for late in came[:1]:
            signal.raise_signal(late)


def raise_if_interrupted() -> None:
    """Raise KeyboardInterrupt in the main thread when a signal came since the outermost ``terminable`` began."""
    if _signals and threading.current_thread() is threading.main_thread():
        raise KeyboardInterrupt


def interrupt_handled() -> str:
    """The wish was granted: what ran has ended with what there is. A signal that comes now is another wish.

    Returns the name of the signal, such as "SIGTERM".
    """
    name = signal.Signals(_signals[0] if _signals else signal.SIGINT).name
    _signals.clear()
    _Command.handled += 1
    return name


def _interrupt(number: int, _: object) -> None:
    _signals.append(number)
    _Command.came += 1
    if not _Command.running or len(_signals) == 1:
        raise KeyboardInterrupt


# the process of a command


def begin_command() -> None:
    """From now on a signal ends this process, at once but where ``terminable`` is open.

    What was ignored by who started it (``nohup``, a shell's background) stays ignored.
    """
    _Command.running = True
    sys.unraisablehook = _swallowed
    for number in NUMBERS:
        if signal.getsignal(number) in (signal.SIG_DFL, signal.default_int_handler):
            signal.signal(number, _leave)


def _swallowed(lost: sys.UnraisableHookArgs) -> None:
    """An exception that nobody can be told of. If it is ours, the signal comes once more, a little later.

    What goes wrong in the last moments of an object that a signal left half-made, as an event loop may be, is no news.
    """
    if not (_signals and issubclass(lost.exc_type, KeyboardInterrupt)):
        if not command_was_interrupted():
            sys.__unraisablehook__(lost)
        return
    again = threading.Timer(_AGAIN_S, signal.pthread_kill, (threading.main_thread().ident, _signals.pop()))
    again.daemon = True
    again.start()


def end_command() -> None:
    """Everything is done and said: signals come too late. (Python would give them back to the system as it ends.)"""
    for number in NUMBERS:
        if signal.getsignal(number) in (_leave, _interrupt):
            signal.signal(number, signal.SIG_IGN)


def command_was_interrupted() -> bool:
    """Whether a signal came since the command began."""
    return _Command.running and _Command.came > 0


def interrupts_handled() -> int:
    """How often ``interrupt_handled`` was called."""
    return _Command.handled


def leave(message: str = "error: interrupted\n") -> NoReturn:
    """End this process without another step of Python."""
    with suppress(OSError):
        os.write(2, message.encode())
    os._exit(Interrupted.exit_code)


def _leave(*_: object) -> None:
    _Command.came += 1
    if _Command.came == 1:  # else the command is about to end and says so itself
        leave()
