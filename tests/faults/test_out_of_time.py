"""A time limit that is reached anywhere, in the middle of a solve too: a true model, and a run to go on from."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

import msgspec
import pytest

import train_kit
from coremargin.engine.executors import InProcess
from coremargin.engine.loop import Engine, OutOfTime
from coremargin.learn.train import open_store, train_job
from coremargin.verify import verify

if TYPE_CHECKING:
    from coremargin.data.store import Store
    from coremargin.engine.checkpoint import Begin
    from coremargin.problems.job import TrainJob

#: Kinds whose members that are solved in time keep their solutions: what follows may have other last bits.
PARTIAL = {"fleet-segments", "folds", "fleet-stages", "fold-stages"}


class Clock:
    """Time is over at a certain call of ``check_time``, and from then on."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.calls, self.last = 0, 1 << 60
        monkeypatch.setattr(Engine, "check_time", lambda _: self.look())

    def look(self) -> None:
        """Somebody asks."""
        self.calls += 1
        if self.calls >= self.last:
            raise OutOfTime


@pytest.fixture
def clock(monkeypatch: pytest.MonkeyPatch) -> Clock:
    """The clock of the jobs of this test."""
    return Clock(monkeypatch)


def run(job: TrainJob, begin: Begin = "new") -> str:
    """The status of a run's model, which proves what it claims."""
    store = open_store(job, begin)
    outcome = train_job(job, store, InProcess(1), begin=begin)
    found = verify(job.out, job.store)
    assert found.ok, found
    return outcome.model.status


@pytest.mark.slow
@pytest.mark.parametrize("kind", train_kit.KINDS)
def test_time_is_over_anywhere(tmp_path: Path, clock: Clock, kind: str) -> None:
    """In the first solve, in the middle, near the end: what is saved verifies, and going on gives the whole answer."""
    store: Store = train_kit.made_store(kind, tmp_path / "s.zarr")
    whole = train_kit.small_job(kind, store.path, tmp_path / "whole")
    ended = run(whole)
    calls = clock.calls
    assert calls > 10
    for share in (0.0, 0.2, 0.6, 0.9):
        job = msgspec.structs.replace(whole, out=tmp_path / f"m{share}")
        clock.calls, clock.last = 0, 1 + int(share * calls)
        assert run(job) in ("stopped", ended)
        clock.last = 1 << 60
        assert run(job, "resume") == ended
        if kind not in PARTIAL:
            assert train_kit.exact(Path(job.out)) == train_kit.exact(Path(whole.out)), share
