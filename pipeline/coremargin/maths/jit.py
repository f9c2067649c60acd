"""Compile hot loops with numba, when they are first called; compiled code is cached on disk."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import cache
from types import FunctionType, SimpleNamespace
from typing import Any

#: Options of numba: release the GIL, and divide like NumPy.
OPTIONS: dict[str, Any] = {"nogil": True, "error_model": "numpy"}

Compiled = Callable[..., Any]

_waiting: list[Callable[[], None]] = []  # called when the compiler starts


def jit(source: Compiled, *, inline: bool = False) -> Compiled:
    """The compiled function; imports numba. inline: compile it as part of each compiled function that calls it."""
    import numba

    _listen()
    options = {**OPTIONS, "inline": "always" if inline else "never"}
    try:
        made: Compiled = numba.njit(source, cache=True, **options)
    except RuntimeError:  # no folder is writable
        made = numba.njit(source, **options)
    return made


def jit_together(*sources: Any) -> SimpleNamespace:
    """Compiled functions of one module that call each other, by name."""
    found: dict[str, Any] = {}
    for source in sources:
        copy = FunctionType(source.__code__, dict(source.__globals__), source.__name__, source.__defaults__)
        copy.__qualname__ = source.__qualname__
        found[source.__name__] = jit(copy)
    for each in found.values():
        each.py_func.__globals__.update(found)
    return SimpleNamespace(**found)


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
    """Register a listener for numba's compiler, which is not called for code that is cached on disk."""
    from numba.core import event

    class Compiling(event.Listener):
        def on_start(self, _: Any) -> None:
            while _waiting:
                _waiting.pop()()

        on_end = on_start  # required by numba's listener interface

    event.register("numba:compile", Compiling())  # type: ignore[no-untyped-call]
