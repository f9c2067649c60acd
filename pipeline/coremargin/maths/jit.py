"""How code is compiled that runs a million times: by numba, when it is first called, and kept on disk."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import cache
from typing import Any

#: Without the interpreter's lock, with divisions as NumPy has them.
OPTIONS: dict[str, Any] = {"nogil": True, "error_model": "numpy"}

Compiled = Callable[..., Any]

_waiting: list[Callable[[], None]] = []  # who wants to know when the compiler starts


def jit(source: Compiled) -> Compiled:
    """The function, compiled; numba is loaded here, by who needs it."""
    import numba

    _listen()
    try:
        made: Compiled = numba.njit(source, cache=True, **OPTIONS)
    except RuntimeError:  # no folder may be written to
        made = numba.njit(source, **OPTIONS)
    return made


@contextmanager
def watched_compiler(on_compile: Callable[[], None]) -> Iterator[None]:
    """Call ``on_compile`` once, when the first function of this package is compiled that is not cached on disk."""
    _waiting.append(on_compile)
    try:
        yield
    finally:
        if on_compile in _waiting:
            _waiting.remove(on_compile)


@cache
def _listen() -> None:
    """Let numba say when it compiles, which it does not where it finds what it needs on disk."""
    from numba.core import event

    class Compiling(event.Listener):
        def on_start(self, _: Any) -> None:
            while _waiting:
                _waiting.pop()()

        on_end = on_start  # a class without it would not be a listener

    event.register("numba:compile", Compiling())  # type: ignore[no-untyped-call]
