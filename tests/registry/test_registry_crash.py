"""A registry whose writers are killed at any step on disk, one or eight of them: no torn name, no half version."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

import coremargin

pytestmark = pytest.mark.faults

HERE = Path(__file__).parent


def run(script: str, *words: object) -> int:
    """What a script prints, a number."""
    rooms = (Path(coremargin.__path__[0]).parent, HERE, HERE.parent / "data")
    done = subprocess.run(
        [sys.executable, str(HERE / script), *map(str, words)],
        env={**os.environ, "PYTHONPATH": os.pathsep.join(map(str, rooms))},
        capture_output=True, text=True, check=False, timeout=3500,
    )  # fmt: skip
    assert done.returncode == 0, done.stderr
    return int(done.stdout)


@pytest.mark.parametrize("stride", [43, pytest.param(1, marks=pytest.mark.slow)])
@pytest.mark.timeout(900)
def test_killed_at_every_step(tmp_path: Path, stride: int) -> None:
    """Whatever step a SIGKILL comes before, what is there is whole, and the same work goes on to the same end."""
    assert run("crash_registry_at.py", tmp_path, stride) >= 120


@pytest.mark.slow
@pytest.mark.parametrize("kills", [20, pytest.param(1000, marks=pytest.mark.slow)])
@pytest.mark.timeout(1800)
def test_eight_writers_and_kills(tmp_path: Path, kills: int) -> None:
    """Eight writers at once, each killed sooner or later: a name is always that of a whole version, no line is lost."""
    assert run("writers_at_once.py", tmp_path, kills, 11) > 8


@pytest.mark.slow
@pytest.mark.parametrize("kills", [2, pytest.param(200, marks=pytest.mark.slow)])
@pytest.mark.timeout(3600)
def test_nights_that_are_killed(tmp_path: Path, kills: int) -> None:
    """At any moment: each row of each file is there once in the end, names and versions are whole, bad files aside."""
    assert run("kill_nights.py", tmp_path, kills, 5) >= 1


@pytest.mark.parametrize(
    ("what", "first", "stride"),
    [
        pytest.param("second", 70, 250, marks=pytest.mark.slow),
        *(pytest.param(what, 1, 17, marks=pytest.mark.slow) for what in ("first", "second", "new-job")),
    ],
)
@pytest.mark.timeout(3600)
def test_runs_that_are_killed_at_every_change(tmp_path: Path, what: str, first: int, stride: int) -> None:
    """Before whatever change on disk a run is killed, the next one comes to the end of a run that nobody disturbed.

    ``kill_runs.py FOLDER first 1 1`` tries every change, which takes most of an hour.
    """
    assert run("kill_runs.py", tmp_path, what, first, stride) >= 300
