"""The wheel of this project."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest


def build_wheel(project: Path, folder: Path) -> Path:
    """Build the wheel of a project folder into ``folder``; the test is skipped where hatchling is missing."""
    pytest.importorskip("hatchling")
    command = [sys.executable, "-m", "hatchling", "build", "-t", "wheel", "-d", str(folder)]
    subprocess.run(command, cwd=project, check=True, capture_output=True, timeout=300)
    (wheel,) = folder.glob("*.whl")
    return wheel


def site_packages() -> list[str]:
    """The folders with the packages that this interpreter has, without those of the project, which are links."""
    return [path for path in sys.path if path.endswith("site-packages")]
