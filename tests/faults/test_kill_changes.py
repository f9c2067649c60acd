"""Whatever changes a store, or a model after it, is killed at random moments: what was there stays, or the next is."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

import coremargin

pytestmark = [pytest.mark.faults, pytest.mark.slow, pytest.mark.timeout(1200)]

HERE = Path(__file__).parent
PATHS = [Path(coremargin.__path__[0]).parent, HERE, HERE.with_name("data")]
ENVIRONMENT = {**os.environ, "PYTHONPATH": os.pathsep.join(map(str, PATHS)), "OPENBLAS_NUM_THREADS": "1"}
KILLS = 10


@pytest.mark.parametrize("kind", ["plain", "sparse", "keyed"])
def test_killed_at_random_moments(tmp_path: Path, kind: str) -> None:
    """An append, corrected labels, rows taken out, weights, retrainings, a compaction, 70 processes that die by SIGKILL
    in all: the store is the last commit or the next one, whole, with its past; made again, or resumed, each ends with
    the files that it has where nobody is killed, and models are proven.
    """
    command = [sys.executable, str(HERE / "kill_changes.py"), str(tmp_path), kind, str(KILLS), "1"]
    done = subprocess.run(command, env=ENVIRONMENT, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    found = json.loads(done.stdout)
    assert list(found) == [
        "append", "correct", "take_out", "weigh", "retrain_hard", "retrain_hinge", "compact",
    ]  # fmt: skip
    assert all(died == KILLS for died, _ in found.values()), found
