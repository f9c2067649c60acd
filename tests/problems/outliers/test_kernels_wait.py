"""The compiler takes half a minute the first time; a job that is to end does not wait for it."""

from __future__ import annotations

import threading
import time

import pytest

from coremargin.maths.stopping import stoppable
from coremargin.problems.outliers import outlier_margin


class Enough(Exception):
    """What ends the wait."""


def test_the_compiler_is_not_waited_for(monkeypatch: pytest.MonkeyPatch) -> None:
    """A job that is to stop ends at once; another one waits, and errors of the compiler are raised."""
    monkeypatch.setattr(outlier_margin, "_kernels_loaded", [])
    slow = threading.Event()
    monkeypatch.setattr(outlier_margin, "compile_kernels", lambda: slow.wait(20))

    def check() -> None:
        raise Enough

    began = time.monotonic()
    with stoppable(check), pytest.raises(Enough):
        outlier_margin.load_kernels()
    assert time.monotonic() - began < 5
    assert not outlier_margin._kernels_loaded
    slow.set()
    outlier_margin.load_kernels()
    assert outlier_margin._kernels_loaded

    def broken() -> None:
        raise OSError("no disk")

    monkeypatch.setattr(outlier_margin, "_kernels_loaded", [])
    monkeypatch.setattr(outlier_margin, "compile_kernels", broken)
    with pytest.raises(OSError, match="no disk"):
        outlier_margin.load_kernels()
