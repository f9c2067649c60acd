"""Embedded clusters that cannot start: they end in time, with a message, and leave nothing behind."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from pathlib import Path

import pytest

import coremargin

pytestmark = pytest.mark.faults

HERE = Path(__file__).parent
ENVIRONMENT = {**os.environ, "PYTHONPATH": str(Path(coremargin.__path__[0]).parent)}


def started(how: str, timeout_s: float) -> tuple[str, str]:
    """What became of a start, in a process of its own: its words and its errors."""
    words = [sys.executable, str(HERE / "start_kit.py"), how, str(timeout_s)]
    done = subprocess.run(words, env=ENVIRONMENT, capture_output=True, text=True, check=False, timeout=120)
    assert done.returncode == 0, done.stderr[-2000:]
    return done.stdout, done.stderr


def test_a_start_that_never_ends() -> None:
    """Workers that never come are waited for until ``start_timeout``; then nothing is left of them, nor of the changes
    that a start makes to the environment.
    """
    said, errors = started("never", 1.5)
    words = r"RunError: the embedded cluster is not there after 1.50 s; .*start_timeout.* or use --cluster threads"
    assert re.search(words + r" \[\] True\n$", said), said
    assert errors == ""


# with fewer than some 18 the event loop cannot accept a connection and spins for ever
@pytest.mark.parametrize(
    "files", [16, 24, *(pytest.param(few, marks=pytest.mark.slow) for few in (10, 14, 20, 28, 32))]
)
def test_a_start_without_files(files: int) -> None:
    """A start that runs out of files ends in time, whatever was reached by then, and leaves no process behind."""
    said, _ = started(str(files), 3.0)
    assert re.match(r"(MachineLimit: the embedded cluster: .*ulimit -n|RunError: the embedded cluster )", said), said
    assert said.endswith(" [] True\n")
