"""How long nobody is waited for, and who is asked for workers meanwhile."""

from __future__ import annotations

import pytest

from coremargin.engine import cluster_workers
from coremargin.engine.cluster_workers import WorkerWait
from coremargin.errors import RunError


class Clock:
    """A clock that goes when it is told to."""

    def __init__(self) -> None:
        self.now = 100.0

    def monotonic(self) -> float:
        return self.now


@pytest.fixture
def clock(monkeypatch: pytest.MonkeyPatch) -> Clock:
    """The clock of ``cluster_workers``."""
    clock = Clock()
    monkeypatch.setattr(cluster_workers, "time", clock)
    return clock


def looks(absent: WorkerWait, clock: Clock, seconds: float) -> None:
    """Nobody is there for so long, as seen every half second."""
    end = clock.now + seconds
    while clock.now < end:
        absent.check()
        clock.now += 0.5


def test_where_nobody_can_be_asked_the_wait_ends(clock: Clock) -> None:
    """Workers that others start are waited for, each time anew, and RunError says for how long."""
    absent = WorkerWait(wait_s=10.0)
    for _ in range(3):
        looks(absent, clock, 9.5)
        absent.worker_seen()
    with pytest.raises(RunError, match="no worker is left, and none came within 10 s; see whether the cluster runs"):
        looks(absent, clock, 11.0)


def test_workers_are_asked_for_once_and_then_waited_for(clock: Clock) -> None:
    """New workers are asked for after a while, once; from then on they have the whole wait to come."""
    asked: list[float] = []
    absent = WorkerWait(10.0, lambda: f"asked {asked.append(clock.now)}", delay_s=3.0)
    looks(absent, clock, 12.5)
    assert asked == [103.0]
    with pytest.raises(RunError, match="none came within 10 s"):
        looks(absent, clock, 2.0)
    assert asked == [103.0]


@pytest.mark.parametrize("wait_s", [0.5, 10.0, 14.5, 15.0, 600.0])
def test_workers_are_asked_for_however_short_the_wait(clock: Clock, wait_s: float) -> None:
    """Whoever waits for less than the 15 seconds after which workers are asked for, waits for those first."""
    asked: list[float] = []
    absent = WorkerWait(wait_s, lambda: f"asked {asked.append(clock.now)}")
    looks(absent, clock, 15.0 + wait_s + 0.5)
    assert asked == [115.0]
    with pytest.raises(RunError, match="none came within"):
        looks(absent, clock, 1.0)
    absent.worker_seen()
    absent.block_done()
    looks(absent, clock, 15.5)
    assert len(asked) == 2


def test_a_refusal_ends_a_short_wait(clock: Clock) -> None:
    """Whoever waits for less than lies between two attempts sees one refused, with its words."""

    def recruit() -> str:
        raise RunError("sbatch failed with status 1: Unable to contact slurm controller")

    with pytest.raises(RunError, match="Unable to contact slurm controller"):
        looks(WorkerWait(10.0, recruit), clock, 60.0)
    assert clock.now == 125.5


def test_a_short_absence_is_nobodys_business(clock: Clock) -> None:
    """Who is replaced by a nanny in time is not asked for."""
    absent = WorkerWait(10.0, lambda: pytest.fail("asked"), delay_s=3.0)
    for _ in range(9):
        looks(absent, clock, 2.5)
        absent.worker_seen()


def test_a_refusal_is_tried_again_and_is_the_error_in_the_end(clock: Clock) -> None:
    """A batch system that does not answer for a while is asked again; when it never does, its words end the run."""
    refusals = 2

    def recruit() -> str:
        nonlocal refusals
        refusals -= 1
        if refusals >= 0:
            raise RunError("sbatch failed with status 1: Unable to contact slurm controller")
        return "submitted"

    absent = WorkerWait(10.0, recruit, delay_s=3.0)
    looks(absent, clock, 18.5)
    assert refusals == -1
    absent.worker_seen()
    refusals = 100
    with pytest.raises(RunError, match="Unable to contact slurm controller"):
        looks(absent, clock, 20.0)
    assert refusals == 96


def test_workers_that_always_leave_are_asked_for_three_times(clock: Clock) -> None:
    """Workers that come and leave without a block done are asked for no more than three times; a block starts anew."""
    asked: list[float] = []
    absent = WorkerWait(10.0, lambda: f"asked {asked.append(clock.now)}", delay_s=3.0)

    def come_and_go() -> None:
        looks(absent, clock, 4.0)
        absent.worker_seen()

    for _ in range(5):
        come_and_go()
        absent.block_done()
    for _ in range(3):
        come_and_go()
    assert len(asked) == 8
    with pytest.raises(RunError, match="started again 3 times, and each time left before they had done one block"):
        come_and_go()
