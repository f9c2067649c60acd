"""The compiler takes half a minute the first time; a job that is to end does not wait for it."""

from __future__ import annotations

import threading
import time

import pytest

from coremargin.maths.stopping import stoppable
from coremargin.problems.outliers import kernels


class Enough(Exception):
    """What ends the wait."""


def test_the_compiler_is_not_waited_for(monkeypatch: pytest.MonkeyPatch) -> None:
    """Whoever is asked to end meanwhile ends at once; else it is waited for, and what it raises is passed on."""
    monkeypatch.setattr(kernels, "_ready", [])
    slow = threading.Event()
    monkeypatch.setattr(kernels, "compile_kernels", lambda: slow.wait(20))

    def check() -> None:
        raise Enough

    began = time.monotonic()
    with stoppable(check), pytest.raises(Enough):
        kernels.prepare()
    assert time.monotonic() - began < 5
    assert not kernels.ready()
    slow.set()
    kernels.prepare()
    assert kernels.ready()

    def broken() -> None:
        raise OSError("no disk")

    monkeypatch.setattr(kernels, "_ready", [])
    monkeypatch.setattr(kernels, "compile_kernels", broken)
    with pytest.raises(OSError, match="no disk"):
        kernels.prepare()
