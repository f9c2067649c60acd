"""The bench, for its tests."""

from __future__ import annotations

from pathlib import Path

import pytest


@pytest.fixture(autouse=True)
def bench(repository: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The folder of the bench, importable as its scripts import each other."""
    folder = repository / "jobs" / "bench"
    monkeypatch.syspath_prepend(str(folder))
    return folder
