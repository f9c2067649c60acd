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
from coremargin.data.check import check_store
from coremargin.data.store import Store
from coremargin.data.writer import StoreWriter
from store_kit import quick_folder

pytestmark = pytest.mark.faults

HERE = Path(__file__).parent
SOURCE_ROOT = Path(coremargin.__path__[0]).parent


def _environment() -> dict[str, str]:
    return {**os.environ, "PYTHONPATH": str(SOURCE_ROOT)}


@pytest.mark.parametrize(
    ("how", "least", "stride", "kind"),
    [
        ("create", 60, 7, "dense"),
        ("append", 90, 11, "dense"),
        ("overwrite", 60, 7, "dense"),
        ("create", 100, 29, "sparse"),
        ("append", 150, 31, "sparse"),
        pytest.param("create", 60, 1, "dense", marks=pytest.mark.slow),
        pytest.param("append", 90, 1, "dense", marks=pytest.mark.slow),
        pytest.param("overwrite", 60, 1, "dense", marks=pytest.mark.slow),
        pytest.param("create", 100, 1, "sparse", marks=pytest.mark.slow),
        pytest.param("append", 150, 1, "sparse", marks=pytest.mark.slow),
        pytest.param("overwrite", 100, 1, "sparse", marks=pytest.mark.slow),
    ],
)
def test_killed_at_every_step(how: str, least: int, stride: int, kind: str) -> None:
    """Whatever step on disk a SIGKILL comes before, the old rows or the new ones are there, whole and checked."""
    with quick_folder() as folder:
        command = [sys.executable, str(HERE / "crash_at.py"), str(folder), how, str(stride), kind]
        done = subprocess.run(command, env=_environment(), capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    assert int(done.stdout) >= least


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
