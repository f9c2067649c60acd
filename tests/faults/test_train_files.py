"""Training on a file that is killed at any moment, or begun twice: the same command, once more, has the answer."""

from __future__ import annotations

import shutil
import signal
import sys
from pathlib import Path

import numpy as np
import pytest

import coremargin
from coremargin.data.locked import Locked
from coremargin.data.store import Store
from coremargin.errors import Busy
from coremargin.learn.files import ingest_for_model
from signal_kit import Running

pytestmark = pytest.mark.faults


@pytest.fixture
def words(tmp_path: Path) -> tuple[str, ...]:
    """A command that trains on the 4,000 rows of a file beside."""
    rng = np.random.default_rng(5)
    rows = rng.normal(size=(4_000, 8)).round(4)
    np.savetxt(tmp_path / "rows.csv", np.c_[rows, rows[:, 0] > 0], delimiter=",", fmt="%g")
    return (
        "train", str(tmp_path / "rows.csv"), "--out", str(tmp_path / "rows.model"), "--label", "8", "--loss", "hinge",
        "--cluster", "threads",
    )  # fmt: skip


#: Where a command kills itself: in the place of what it would call next.
MOMENTS = {
    "before a row is read": "coremargin.learn.files.ingest",
    "once rows are written": "coremargin.data.writer.StoreWriter.commit",
    "once the store is there": "coremargin.learn.train.open_store",
    "once there is a model": "coremargin.learn.train.has_model",
}
KILLED = """
import os, pkgutil, signal, sys
owner, _, name = sys.argv.pop(1).rpartition(".")
setattr(pkgutil.resolve_name(owner), name, lambda *_, **__: os.kill(os.getpid(), signal.SIGKILL))
from coremargin.__main__ import main
main()
"""


@pytest.mark.slow
@pytest.mark.parametrize("moment", MOMENTS)
@pytest.mark.parametrize("changed", [False, True])
def test_a_killed_command_works_when_it_is_repeated(
    tmp_path: Path, words: tuple[str, ...], moment: str, changed: bool
) -> None:
    """SIGKILL leaves nothing in the way, not even where the file is another one by then; the proof holds."""
    first = Running((MOMENTS[moment], *words), command=(sys.executable, "-c", KILLED))
    told = first.popen.communicate(timeout=120)
    assert first.popen.returncode == -signal.SIGKILL, told
    if moment == "once there is a model":  # which is somebody's from then on, and its store
        shutil.rmtree(tmp_path / "rows.model")
    assert not (tmp_path / "rows.model").exists()
    rows = (tmp_path / "rows.csv").read_text().splitlines()[: 3_900 if changed else None]
    if changed:
        (tmp_path / "rows.csv").write_text("\n".join(rows) + "\n")
    again = Running(words)
    told = again.popen.communicate(timeout=120)
    assert again.popen.returncode == 0, told
    assert Store.open(tmp_path / "rows.zarr").rows == len(rows)
    assert coremargin.verify(tmp_path / "rows.model", tmp_path / "rows.zarr").ok
    assert sorted(path.name for path in tmp_path.iterdir()) == ["rows.csv", "rows.model", "rows.zarr"]


def test_a_store_is_not_made_anew_while_somebody_trains_on_it(tmp_path: Path, words: tuple[str, ...]) -> None:
    """Who has the model has its store, too: another command that would replace it is refused at once."""
    ingest_for_model(words[1], tmp_path / "rows.model", "new", overwrite=False, label="8")
    made = (tmp_path / "rows.zarr").stat().st_ino
    (tmp_path / "rows.csv").write_text("1,0\n2,1\n")
    with Locked(tmp_path / "rows.model", "this model"), pytest.raises(Busy, match="another job is writing this model"):
        ingest_for_model(words[1], tmp_path / "rows.model", "new", overwrite=True, label="1")
    assert (tmp_path / "rows.zarr").stat().st_ino == made
