"""Something happens before every change of the file system that Python makes: a kill, or another process's work."""

from __future__ import annotations

import builtins
import io
import os
import signal
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any
from unittest.mock import patch

from coremargin.data import files

#: Functions of ``os`` that change the file system; what they write before a sync may be lost with it.
CHANGES = (
    "rename", "replace", "unlink", "remove", "rmdir", "mkdir", "link", "symlink", "fsync", "ftruncate", "pwrite",
    "chmod",
)  # fmt: skip
_WRITES = os.O_WRONLY | os.O_RDWR | os.O_CREAT | os.O_TRUNC


@contextmanager
def before_changes(act: Callable[[int], object]) -> Iterator[None]:
    """Call ``act(number)`` before each change, from 1; what it changes itself is not counted."""
    number, acting = 0, False

    def count() -> None:
        nonlocal number, acting
        if acting:
            return
        number, acting = number + 1, True
        try:
            act(number)
        finally:
            acting = False

    def watched(real: Callable[..., Any], changes: Callable[..., bool] = lambda *_, **__: True) -> Callable[..., Any]:
        def call(*args: Any, **options: Any) -> Any:
            if changes(*args, **options):
                count()
            return real(*args, **options)

        return call

    def opens_for_writing(_: Any, mode: str = "r", *__: Any, **___: Any) -> bool:
        return bool(set(mode) & set("wax+"))

    opened = watched(builtins.open, opens_for_writing)
    patches = [patch.object(os, name, watched(getattr(os, name))) for name in CHANGES]
    patches.append(patch.object(os, "open", watched(os.open, lambda _, flags, *__, **___: bool(flags & _WRITES))))
    patches += [patch.object(module, "open", opened) for module in (builtins, io)]
    patches.append(patch.object(files, "_renameat2", watched(files._renameat2)))
    for one in patches:
        one.start()
    try:
        yield
    finally:
        for one in patches:
            one.stop()


def in_child(work: Callable[[], object], kill_before: int = 0) -> int:
    """Run in a process of its own, killed before a change if that is above 0; its exit code, negative for a signal."""

    def act(number: int) -> None:
        if number == kill_before:
            os.kill(os.getpid(), signal.SIGKILL)

    child = os.fork()
    if child == 0:
        code = 1
        try:
            with before_changes(act):
                work()
            code = 0
        except BaseException as error:  # noqa: BLE001 - whatever it is, the parent sees its code
            code = getattr(error, "exit_code", 1)
            os.write(2, f"{error!r}\n".encode(errors="backslashreplace"))
        finally:
            os._exit(code)
    return os.waitstatus_to_exitcode(os.waitpid(child, 0)[1])
