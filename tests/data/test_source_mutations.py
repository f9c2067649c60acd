"""Changed files of every kind: refused by name in bounded time and memory, or read as others read them."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

from source_mutations import KINDS


def wrong(folder: Path, kinds: list[str], start: int, stop: int) -> list[str]:
    """What went wrong in these cases of each kind, tried in a process of limited memory."""
    script = Path(__file__).with_name("source_mutations.py")
    env = os.environ | {"TMPDIR": str(folder)}  # where fsync is quick
    command = [sys.executable, str(script), ",".join(kinds), str(start), str(stop)]
    done = subprocess.run(command, capture_output=True, text=True, timeout=170, check=False, env=env)
    lines = done.stdout.splitlines()
    ends = {
        line.split(":")[0]: [int(word) for word in line.split(":")[1].split()] for line in lines if "wrong" not in line
    }
    assert done.returncode == 0, done.stdout + done.stderr
    assert list(ends) == kinds
    for taken, refused, _ in ends.values():
        assert taken > 0
        assert refused > taken  # or the changes do too little
    return [line for line in lines if "wrong" in line]


@pytest.mark.slow
def test_changed_files_are_refused_or_read_right(tmp_path: Path) -> None:
    """Of 60 files of each kind with changed bytes, headers, members, types, none is misread, crashes or hangs."""
    assert wrong(tmp_path, list(KINDS), 0, 60) == []


@pytest.mark.slow
@pytest.mark.parametrize("kind", KINDS)
def test_thousands_of_changed_files(tmp_path: Path, kind: str) -> None:
    """Of 4,000 more none is, either."""
    assert wrong(tmp_path, [kind], 1000, 5000) == []
