"""Clocks that are wrong for a run: no rows expire that would not have, and the champion stays."""

from __future__ import annotations

import shutil
import time
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np
import pytest

from coremargin.data.expire import expire
from coremargin.data.store import Store
from coremargin.data.writer import StoreWriter
from coremargin.errors import ExpiryRefused, GateRefused
from coremargin.registry.nightly_job import run_nightly_job
from coremargin.registry.registry import Registry
from night_kit import JOB, job_in, put

if TYPE_CHECKING:
    from click.testing import Result

DAY = 86_400.0
NOW = 1.8e9
KEEP = JOB.replace('settle = "5 s"', 'settle = "5 s"\nkeep = "30 days"')


def set_clock(monkeypatch: pytest.MonkeyPatch, now: float) -> None:
    """Let stores think that it is this time."""
    for module in ("commits", "expire"):
        monkeypatch.setattr(f"coremargin.data.{module}.time.time", lambda: now)


def grown(folder: Path, days: Sequence[float], monkeypatch: pytest.MonkeyPatch, daily: Path | None = None) -> Path:
    """A store to which ten rows came on each of these days; daily: one that many of these begin with."""
    path = folder / "rows.zarr"
    rng = np.random.default_rng(1)
    if daily is not None and list(days[: len(DAILY)]) == DAILY:
        shutil.copytree(daily, path)
        days = days[len(DAILY) :]
    for day in days:
        set_clock(monkeypatch, NOW + day * DAY)
        made = StoreWriter.append(path) if path.exists() else StoreWriter.create(path, features=2, chunk_bytes=4096)
        with made as writer:
            writer.write(rng.standard_normal((10, 2)).astype(np.float32), ["a", "b"] * 5)
    return path


DAILY = list(range(60))


@pytest.fixture(scope="module")
def daily(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A store to which rows came every day."""
    with pytest.MonkeyPatch.context() as patched:
        return grown(tmp_path_factory.mktemp("daily"), DAILY, patched)


WORK_DAYS = [day for day in range(60) if day % 7 < 5]


@pytest.mark.specimens(3)
@pytest.mark.parametrize(
    ("days", "today", "gone"),
    [
        (DAILY, 60, 31),
        (WORK_DAYS, 60, 23),
        (list(range(0, 90, 7)), 91, 9),
        ([*range(40), *range(52, 80)], 80, 40),  # a holiday
        pytest.param([k / 4 for k in range(160) if k % 4 < 3], 40, 31, marks=pytest.mark.slow),  # not at night
        pytest.param([k + j / 1e5 for k in range(40) for j in range(3)], 40, 31, marks=pytest.mark.slow),  # three a day
        ([0, 40], 40, 1),  # too few to tell what is usual
        ([*range(20), 400, *range(20, 50)], 50, 21),  # a day in the future, long ago
        ([*range(20), -20_000, *range(20, 50)], 50, 22),  # one of 1970: no older than what came before
        ([*range(10)], 10, 0),
    ],
)
def test_rows_expire_by_a_clock_that_is_right(
    tmp_path: Path, daily: Path, monkeypatch: pytest.MonkeyPatch, days: Sequence[float], today: float, gone: int
) -> None:
    """Whatever the rhythm in which they come, and whatever a clock said for one run in the past."""
    path = grown(tmp_path, days, monkeypatch, daily)
    set_clock(monkeypatch, NOW + today * DAY)
    assert expire(path, 30 * DAY).removed == 10 * gone


@pytest.mark.parametrize(
    ("days", "today"),
    [
        ([*DAILY, 424], 424),  # a year ahead, for the run that brought the last rows
        ([*DAILY, 424, 425], 425),  # or for two
        (DAILY, 424),  # or for a run without rows
        ([*DAILY, 75], 75),  # not a year, but out of all proportion
        ([*DAILY, 424], 61),  # the run after it
        (DAILY, 55),  # behind: the newest rows are in the future
        ([0, 0.0001, 0.0002, 0.0003, 365], 365),  # all in one run
        ([0, 365], 365),
    ],
)
def test_no_row_expires_by_a_clock_that_jumped(
    tmp_path: Path, daily: Path, monkeypatch: pytest.MonkeyPatch, days: Sequence[float], today: float
) -> None:
    """It is refused, and what to do is said; with ``force`` they go."""
    path = grown(tmp_path, days, monkeypatch, daily)
    before = Store.open(path).digest
    set_clock(monkeypatch, NOW + today * DAY)
    with pytest.raises(ExpiryRefused, match=r"the clock of this machine is right; if it is, `coremargin expire "):
        expire(path, 30 * DAY)
    assert Store.open(path).digest == before
    if days[-1] == today > 100:
        assert expire(path, 30 * DAY, force=True).removed == 10 * len([day for day in days if day <= today - 30])
        assert expire(path, 30 * DAY).removed == 0


def test_a_scheduled_run_a_year_ahead(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, run_cli: Callable[..., Result]
) -> None:
    """Its files are ingested, no row expires, the exit code is 12, and runs by the right clock go on from there."""
    start = time.time()
    for day in range(4):
        set_clock(monkeypatch, start + day * DAY)
        put(tmp_path, f"day{day}.csv", 30, day + 1) if day else job_in(tmp_path, KEEP)
        run_nightly_job(job_in(tmp_path, KEEP))
    set_clock(monkeypatch, start + 369 * DAY)
    put(tmp_path, "day4.csv", 10, 5)
    done = run_cli("run", tmp_path / "nightly.toml", exit_code=12)
    assert "no rows expired" in done.output
    assert "no rows came for" in done.stderr
    registry = Registry(tmp_path / "models")
    assert registry.record(registry.state().aliases["champion"].version).rows == 100
    set_clock(monkeypatch, start + 5 * DAY)
    put(tmp_path, "day5.csv", 30, 6)
    run_cli("run", tmp_path / "nightly.toml")
    assert registry.record(registry.state().aliases["champion"].version).rows == 130


def test_a_model_of_few_of_the_rows_is_no_champion(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A fifth of the champion's rows may go without a word; the job, or a person, may allow more."""
    text = KEEP.replace("30 days", "300 days")
    start = time.time()
    put(tmp_path, "day0.csv", 90, 1) if job_in(tmp_path, text) else None
    run_nightly_job(job_in(tmp_path, text))
    set_clock(monkeypatch, start + 365 * DAY)
    put(tmp_path, "day1.csv", 10, 2)
    with pytest.raises(GateRefused, match="10 rows, required at least 72; if rows were removed on purpose"):
        run_nightly_job(job_in(tmp_path, text))
    assert Registry(tmp_path / "models").state().aliases["champion"].version == 1
    put(tmp_path, "day2.csv", 10, 3)
    run_nightly_job(job_in(tmp_path, text.replace("[gates]", "[gates]\nshrink = 1.0")))
    assert Registry(tmp_path / "models").state().aliases["champion"].version == 3
