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
@pytest.mark.parametrize("moments", [20, 200])
def test_campaigns_that_are_killed(tmp_path: Path, moments: int) -> None:
    """Killed at moments drawn by lot, in the middle of a line too, or while their stores grow, campaigns end with the
    model of one that was not.
    """
    command = [sys.executable, str(SCRIPT), str(tmp_path), str(moments), str(moments)]
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
