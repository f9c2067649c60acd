"""Stop long solves between two steps.

The caller of a solve passes a function that raises an error to end it; this does not change the bits of a solve that
runs to its end. Threads that solve in parallel use the function of the thread that started them.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from contextvars import ContextVar
from typing import Any, TypeVar

from coremargin.maths.breakdown import quiet

Check = Callable[[], None]
R = TypeVar("R")


class Ended(Exception):
    """Raised in threads whose result is no longer needed."""


def _nothing() -> None:
    """The default: never stop."""


_check: ContextVar[Check] = ContextVar("check", default=_nothing)


@contextmanager
def stoppable(check: Check) -> Iterator[None]:
    """Within the context, solves call ``check`` between their steps; its errors end them."""
    before = _check.set(check)
    try:
        yield
    finally:
        _check.reset(before)


class Together:
    """Runs work in other threads with the check of this thread; ``end`` stops all of them."""

    def __init__(self) -> None:
        self._outer, self._over = _check.get(), False

    def run(self, work: Callable[..., R], *given: Any) -> R:
        """Call ``work(*given)`` in a thread. Raises Ended after ``end``."""
        with stoppable(self._look), quiet():
            return work(*given)

    def end(self) -> None:
        """Stop all threads."""
        self._over = True

    def _look(self) -> None:
        if self._over:
            raise Ended
        self._outer()


def may_stop() -> None:
    """Call between two steps: raises an error if the solve should end."""
    _check.get()()
