"""Long solves ask between their steps whether their answer is still wanted.

The caller of a solve passes a plain function that raises what ends it; a solve that is not stopped has the
same bits as ever. Threads that solve side by side have the function of the one that started them.
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
    """Work whose result is no longer needed was ended."""


def _nothing() -> None:
    """Nobody wants a solve to end early."""


_check: ContextVar[Check] = ContextVar("check", default=_nothing)


@contextmanager
def stoppable(check: Check) -> Iterator[None]:
    """What is solved in here calls ``check`` between its steps, and passes on what that raises."""
    before = _check.set(check)
    try:
        yield
    finally:
        _check.reset(before)


class Together:
    """For threads that work for this one: ``run`` in them has the function of this one; ``end`` ends them all."""

    def __init__(self) -> None:
        self._outer, self._over = _check.get(), False

    def run(self, work: Callable[..., R], *given: Any) -> R:
        """``work(*given)``, in a thread. Raises Ended where ``end`` was called, to nobody."""
        with stoppable(self._look), quiet():
            return work(*given)

    def end(self) -> None:
        """No answer is wanted any more."""
        self._over = True

    def _look(self) -> None:
        if self._over:
            raise Ended
        self._outer()


def may_stop() -> None:
    """Between two steps: raises where the answer is no longer wanted."""
    _check.get()()
