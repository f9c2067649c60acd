"""Campaigns that are killed: no answer is lost, no row is asked about twice, the model has the same bits."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

SCRIPT = Path(__file__).with_name("kill_campaign.py")


@pytest.mark.faults
@pytest.mark.slow
@pytest.mark.timeout(1800)
@pytest.mark.parametrize(("moments", "kind"), [(20, "two"), (200, "two"), (30, "three"), (30, "noisy"), (30, "mapped")])
def test_campaigns_that_are_killed(tmp_path: Path, moments: int, kind: str) -> None:
    """Killed at moments drawn by lot, in the middle of a line too, or while their stores grow, campaigns end with the
    model of one that was not: of two classes, of three, with answers that contradict each other, and on mapped rows.
    """
    command = [sys.executable, str(SCRIPT), str(tmp_path), str(moments), str(moments), kind]
    paths = os.pathsep.join([str(SCRIPT.parent), os.environ.get("PYTHONPATH", "")])
    done = subprocess.run(
        command, capture_output=True, text=True, check=False, timeout=1800, env={**os.environ, "PYTHONPATH": paths}
    )
    assert done.returncode == 0, done.stderr[-4000:]
    killed, answers, halves, grown = map(int, done.stdout.split())
    assert killed == moments
    assert answers > 0
    assert halves >= moments // 10
    assert grown > 0
