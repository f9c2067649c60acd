"""A writer killed at any step on disk leaves a committed state, and the next writer goes on from there."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import numpy as np
import pytest

import coremargin
from coremargin.data.amend import write_labels
from coremargin.data.check import check_store
from coremargin.data.store import Store
from coremargin.data.writer import StoreWriter
from store_kit import quick_folder

pytestmark = pytest.mark.faults

HERE = Path(__file__).parent
SOURCE_ROOT = Path(coremargin.__path__[0]).parent


def _environment() -> dict[str, str]:
    return {**os.environ, "PYTHONPATH": str(SOURCE_ROOT)}


@pytest.mark.specimens(1)
@pytest.mark.parametrize(
    ("how", "least", "stride", "kind"),
    [
        ("create", 60, 7, "dense"),
        ("append", 90, 11, "dense"),
        ("overwrite", 60, 7, "dense"),
        ("create", 100, 29, "sparse"),
        ("append", 150, 31, "sparse"),
        ("create", 200, 61, "keyed"),
        ("append", 250, 67, "keyed"),
        ("append", 150, 37, "grouped"),
        pytest.param("create", 60, 1, "dense", marks=pytest.mark.slow),
        pytest.param("append", 90, 1, "dense", marks=pytest.mark.slow),
        pytest.param("overwrite", 60, 1, "dense", marks=pytest.mark.slow),
        pytest.param("create", 100, 1, "sparse", marks=pytest.mark.slow),
        pytest.param("append", 150, 1, "sparse", marks=pytest.mark.slow),
        pytest.param("create", 200, 1, "keyed", marks=pytest.mark.slow),
        pytest.param("append", 250, 1, "keyed", marks=pytest.mark.slow),
        pytest.param("create", 100, 1, "grouped", marks=pytest.mark.slow),
        pytest.param("append", 150, 1, "grouped", marks=pytest.mark.slow),
        pytest.param("overwrite", 100, 1, "sparse", marks=pytest.mark.slow),
    ],
)
def test_killed_at_every_step(how: str, least: int, stride: int, kind: str) -> None:
    """Whatever step on disk a SIGKILL comes before, the old rows or the new ones are there, whole and checked."""
    assert _steps("crash_at.py", how, stride, kind) >= least


@pytest.mark.slow
@pytest.mark.parametrize(
    ("stride", "kind"),
    [
        pytest.param(41, "dense", marks=pytest.mark.slow),
        pytest.param(67, "sparse", marks=pytest.mark.slow),
        (97, "keyed"),
        pytest.param(1, "dense", marks=[pytest.mark.slow, pytest.mark.timeout(1200)]),
        pytest.param(1, "sparse", marks=[pytest.mark.slow, pytest.mark.timeout(1200)]),
        pytest.param(1, "keyed", marks=[pytest.mark.slow, pytest.mark.timeout(1200)]),
    ],
)
def test_killed_at_every_step_of_changes(stride: int, kind: str) -> None:
    """Labels and weights change, rows come, all change again, the store is compacted: a SIGKILL at whatever step leaves
    the last commit or the next one, whole, with all commits before it, and who goes on comes to the same end.
    """  # fmt: skip
    assert _steps("crash_changes_at.py", "changes", stride, kind) >= 400


def _steps(script: str, how: str, stride: int, kind: str) -> int:
    """How many steps on disk a script has killed a writer at."""
    with quick_folder() as folder:
        command = [sys.executable, str(HERE / script), str(folder), how, str(stride), kind]
        done = subprocess.run(command, env=_environment(), capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    return int(done.stdout)


ENDLESS = """
import sys
import numpy as np
from coremargin.data.writer import StoreWriter
rng = np.random.default_rng(3)
with StoreWriter.append(sys.argv[1]) as writer:
    print("ready", flush=True)
    while True:
        writer.write(rng.normal(size=(700, 8)).astype(np.float32), np.ones(700, dtype=int))
        writer.commit()
"""


@pytest.mark.specimens(1)
@pytest.mark.parametrize("delay_s", [0.0, 0.07, 0.31])
def test_killed_while_appending(tmp_path: Path, delay_s: float) -> None:
    """A process killed from outside while it appends loses nothing that was committed, and frees its lock."""
    path = tmp_path / "s.zarr"
    with StoreWriter.create(path, features=8, chunk_bytes=32 * 500) as writer:
        writer.write(np.zeros((10, 8)), np.ones(10, dtype=int))
    command = [sys.executable, "-c", ENDLESS, str(path)]
    with subprocess.Popen(command, env=_environment(), stdout=subprocess.PIPE, text=True) as child:
        assert child.stdout is not None
        assert child.stdout.readline() == "ready\n"
        time.sleep(delay_s)
        child.send_signal(signal.SIGKILL)
    rows = Store.open(path).rows
    assert (rows - 10) % 700 == 0
    expected = np.random.default_rng(3).normal(size=(rows - 10, 8)).astype(np.float32)
    found = Store.open(path).rows_at(np.arange(10, rows))[0]
    np.testing.assert_array_equal(found, expected)
    assert check_store(path).whole
    with StoreWriter.append(path) as writer:
        writer.write(np.ones((1, 8)))
    assert Store.open(path).rows == rows + 1
    assert check_store(path).whole


RELABELLING = """
import sys
import numpy as np
from coremargin.data.amend import write_labels
rng = np.random.default_rng(3)
print("ready", flush=True)
for number in range(100_000):
    write_labels(sys.argv[1], rng.choice(3000, 200, replace=False), [number] * 200)
"""


@pytest.mark.specimens(1)
@pytest.mark.parametrize("delay_s", [0.03, 0.11, 0.37])
def test_killed_while_changing_labels(tmp_path: Path, delay_s: float) -> None:
    """A process killed from outside while it changes labels leaves whole commits, each with its labels."""
    path = tmp_path / "s.zarr"
    with StoreWriter.create(path, features=8, chunk_bytes=32 * 500) as writer:
        writer.write(np.random.default_rng(1).normal(size=(3000, 8)).astype(np.float32))
    command = [sys.executable, "-c", RELABELLING, str(path)]
    with subprocess.Popen(command, env=_environment(), stdout=subprocess.PIPE, text=True) as child:
        assert child.stdout is not None
        assert child.stdout.readline() == "ready\n"
        time.sleep(delay_s)
        child.send_signal(signal.SIGKILL)
    rng, labels = np.random.default_rng(3), np.full(3000, -1)
    for number, commit in enumerate(entry.commit for entry in Store.open(path).log):
        if number:
            labels[rng.choice(3000, 200, replace=False)] = number - 1
        store = Store.open(path, digest=commit.digest)
        codes = np.concatenate([store.labels(chunk) for chunk in range(store.chunks)])
        np.testing.assert_array_equal(np.array([*store.classes, -1])[codes], labels)
    assert check_store(path).whole
    write_labels(path, [0], [7])
    assert check_store(path).whole
