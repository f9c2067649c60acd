"""Ctrl-C and SIGTERM: an exception where the code stands, and a mark for where that gets lost.

An exception that a signal raises inside a callback or a finaliser, as Dask has many, is swallowed there, and the job
would go on as if nobody had asked it to end. So the handler leaves a mark as well, and the loop looks at it after each
block and before a model is written.
"""

from __future__ import annotations

import signal
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

_asked: list[int] = []  # signals that came while a ``terminable`` was open
_open: list[dict[int, Any]] = []  # what each open ``terminable`` found installed


@contextmanager
def terminable() -> Iterator[None]:
    """Ctrl-C and SIGTERM end what runs in here by KeyboardInterrupt; in threads beside the main one nothing changes.

    A Ctrl-C that the caller ignores, or handles in another way, stays as it is.
    """
    if threading.current_thread() is not threading.main_thread():
        yield
        return
    ours = signal.getsignal(signal.SIGINT) in (signal.default_int_handler, _interrupt)
    numbers = [signal.SIGTERM, *([signal.SIGINT] if ours else [])]
    _open.append({number: signal.signal(number, _interrupt) for number in numbers})
    try:
        yield
    finally:
        for number, handler in _open.pop().items():
            signal.signal(number, signal.SIG_DFL if handler is None else handler)
        if not _open:
            _asked.clear()


def raise_if_interrupted() -> None:
    """Raise KeyboardInterrupt in the main thread when a signal came since the outermost ``terminable`` began."""
    if _asked and threading.current_thread() is threading.main_thread():
        raise KeyboardInterrupt


def heard() -> None:
    """The wish was granted: what ran has ended with what there is. A signal that comes now is another wish."""
    _asked.clear()


def _interrupt(number: int, _: object) -> None:
    _asked.append(number)
    raise KeyboardInterrupt
