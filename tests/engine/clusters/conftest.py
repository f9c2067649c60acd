"""Fixtures of the tests of clusters: stand-ins on PATH, and no patience with workers that have left."""

from __future__ import annotations

import os
import stat
import sys
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from stand_ins import BATCH, CANCEL, GONE, SUBMIT

if TYPE_CHECKING:
    from coremargin.engine.clusters.specs import Batch
    from stand_ins import BatchSystem, Command


@pytest.fixture
def command(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Command:
    """Puts a stand-in for a command on PATH."""
    folder = tmp_path / "bin"
    folder.mkdir()
    monkeypatch.setenv("PATH", f"{folder}{os.pathsep}{os.environ['PATH']}")

    def make(name: str, text: str) -> Path:
        path = folder / name
        path.write_text(text.replace("{python}", sys.executable))
        path.chmod(path.stat().st_mode | stat.S_IXUSR)
        return path

    return make


@pytest.fixture
def batch_system(command: Command) -> BatchSystem:
    """Puts submit and cancel commands of a batch system on PATH."""

    def make(kind: type[Batch]) -> tuple[Path, Path]:
        submit, answer, cancel = BATCH[kind]
        return command(submit, SUBMIT.replace("{answer}", answer)), command(
            cancel, CANCEL.replace("{gone_words}", GONE[kind])
        )

    return make


@pytest.fixture
def impatient(monkeypatch: pytest.MonkeyPatch) -> None:
    """New workers are asked for at once when none is left."""
    # not above: read before pytest looks at logs, distributed would keep all messages to itself
    from coremargin.engine.cluster_workers import WorkerWait
    from coremargin.engine.clusters import launch

    monkeypatch.setattr(launch, "WorkerWait", partial(WorkerWait, delay_s=0.1))
