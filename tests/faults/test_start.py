"""Clusters that cannot start in this process: they end in time, with a message, and leave nothing behind."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

import coremargin

pytestmark = pytest.mark.faults

HERE = Path(__file__).parent
ENVIRONMENT = {**os.environ, "PYTHONPATH": str(Path(coremargin.__path__[0]).parent)}


#: Stand-ins: what ``ssh`` would run on another host runs here, as does what a batch system would start some time.
COMMANDS = {
    "ssh": 'for script; do :; done\nexec sh -c "$script"',
    "sbatch": "exec 3<&0\nsetsid sh <&3 >/dev/null 2>&1 &\necho $!",
    "scancel": "kill -TERM -- -$1",
}


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """Where the stand-ins are."""
    for name, text in COMMANDS.items():
        (tmp_path / name).write_text(f"#!/bin/sh\n{text}\n")
        (tmp_path / name).chmod(0o755)
    return tmp_path


def started(folder: Path, kind: str, how: str, timeout_s: float) -> tuple[str, str]:
    """What became of a start, in a process of its own: its words and its errors."""
    words = [sys.executable, str(HERE / "start_kit.py"), kind, how, str(timeout_s)]
    environment = ENVIRONMENT | {"PATH": f"{folder}{os.pathsep}{os.environ['PATH']}"}
    done = subprocess.run(words, env=environment, capture_output=True, text=True, check=False, timeout=60)
    assert done.returncode == 0, done.stderr[-2000:]
    return done.stdout, done.stderr


@pytest.mark.slow
def test_a_start_that_never_ends(folder: Path) -> None:
    """Workers that never come are waited for until ``start_timeout``; then nothing is left of them, nor of the changes
    that a start makes to the environment.
    """
    said, errors = started(folder, "embedded", "never", 1.5)
    words = r"RunError: the embedded cluster did not start within 1.50 s; .*start_timeout.* or use --cluster threads"
    assert re.search(words + r" \[\] True\n$", said), said
    assert errors == ""


@pytest.mark.slow
@pytest.mark.parametrize("killed", [1, pytest.param(3, marks=pytest.mark.slow)])
def test_workers_that_are_killed_while_they_start(folder: Path, killed: int) -> None:
    """The cluster is started again, without a word, and nothing is left of the starts before."""
    said, errors = started(folder, "embedded", f"killed-{killed}", 50)
    assert said == "it started [] True\n"
    assert errors == ""


@pytest.mark.slow
def test_workers_that_are_killed_again_and_again(folder: Path) -> None:
    """That ends with what is wrong, and nothing is left."""
    said, errors = started(folder, "embedded", "killed-1000", 50)
    assert re.match(r"RunError: the embedded cluster did not start .* \[\] True\n$", said), said
    assert errors == ""


def cases(quick: list[tuple[str, int]], slow: list[tuple[str, int]]) -> list[Any]:
    """Kinds of clusters, and files for them."""
    return [*quick, *(pytest.param(*case, marks=pytest.mark.slow) for case in slow)]


# with fewer than some 18 the event loop cannot accept a connection and spins for ever
@pytest.mark.specimens(1)
@pytest.mark.parametrize(
    ("kind", "files"),
    cases(
        [("embedded", 16), ("embedded", 24), ("ssh", 16), ("slurm", 18)],
        [
            *(("embedded", files) for files in (10, 14, 20, 28, 32)),
            *(("ssh", files) for files in (10, 13, 14, 15, 17, 20, 22)),
            *(("slurm", files) for files in (13, 17, 24)),
        ],
    ),
)
def test_a_start_without_files(folder: Path, kind: str, files: int) -> None:
    """A start that runs out of files ends in time, whatever was reached by then, and leaves no process behind."""
    said, _ = started(folder, kind, str(files), 3.0)
    what = {"embedded": "the embedded cluster", "ssh": "(the scheduler|ssh (one|two)|Dask over ssh)"}
    what["slurm"] = "(the scheduler|sbatch|Dask, Slurm job)"
    assert re.match(rf"(MachineLimit: {what[kind]}.*ulimit -n|RunError: {what[kind]})", said), said
    assert said.endswith(" [] True\n")


@pytest.mark.specimens(1)
@pytest.mark.parametrize(("kind", "files"), cases([("ssh", 17), ("slurm", 40)], [("ssh", 13), ("ssh", 55)]))
def test_files_that_are_missing_are_known_beforehand(folder: Path, kind: str, files: int) -> None:
    """A scheduler in this process asks for its files, those of its workers included, before anything is started."""
    said, errors = started(folder, kind, f"{files}+", 600)
    assert re.match(
        r"MachineLimit: the scheduler in this process: expected room for 5\d open files .*ulimit -n", said
    ), said
    assert said.endswith(" [] True\n")
    assert errors == ""


@pytest.mark.slow
@pytest.mark.parametrize("kind", ["embedded", "ssh", "slurm"])
def test_a_start_with_just_enough_files(folder: Path, kind: str) -> None:
    """What is asked for beforehand is enough."""
    said, errors = started(folder, kind, "76+", 50)
    assert said.startswith("it started"), said
    assert "Too many open files" not in errors
