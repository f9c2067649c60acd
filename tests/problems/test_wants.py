"""Every kind of job says what memory its rows would like; a run that had less says so with the number."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING

import msgspec
import numpy as np
import pytest

import train_kit
from coremargin.data.store import Store
from coremargin.problems.registry import new_job, problem_of
from coremargin.spec import Size
from model_kit import store_of

if TYPE_CHECKING:
    from pathlib import Path

    from conftest import Cli


#: Of kernels it is known as rows are read, how many carry the machine.
KNOWN = [kind for kind in train_kit.KINDS if not kind.startswith("kernel")]


@pytest.mark.parametrize("kind", KNOWN)
def test_as_much_as_is_wanted_is_enough(tmp_path: Path, kind: str) -> None:
    """What is wanted is said for what is given; with as much nothing more is wanted, if by another method at first."""
    store: Store = train_kit.made_store(kind, tmp_path / "s.zarr")
    job = train_kit.small_job(kind, store.path, tmp_path / "m")
    wants = []
    for _ in range(3):
        want = problem_of(job, store).memory_need
        assert want is not None
        assert want.given == job.memory_bytes
        assert 0 < want.held <= want.rows <= store.rows
        wants.append(want)
        job = msgspec.structs.replace(job, memory=Size(max(want.given, want.size)))
    assert not wants[-1].short


def test_commands_say_it(tmp_path: Path, run_cli: Cli) -> None:
    """plan and train beforehand, train in the end, the lines on the way, run.json and the report."""
    store = train_kit.made_store("segments", tmp_path / "s.zarr")
    options = ["--loss", "hinge", "--C", "0.1", "--max-scans", "3", "--memory", "40 kB", "--cluster", "threads"]
    done = run_cli("train", store.path, "--out", tmp_path / "m", *options, "--epsilon", "1e-6", exit_code=4)
    told = "of the 600 rows: --memory 1MiB is enough; with less, rows are read a part at a time, pass after pass"
    first = next(line for line in done.stderr.splitlines() if line.startswith("memory: "))
    assert first.startswith("memory: 39.1 KiB of memory hold about ")
    assert told in first
    assert f"short   39.1 KiB of memory hold about {first.split()[7]} {told}" in done.stdout
    memory = json.loads((tmp_path / "m" / "run.json").read_text())["memory"]
    assert (memory["bytes"], memory["wanted_rows"]) == (40_000, 600)
    assert told in memory["short"]
    assert told in (tmp_path / "m" / "report.html").read_text()
    job = tmp_path / "job.toml"
    job.write_text('job = "train"\nstore = "s.zarr"\nout = "n"\nloss = "hinge"\nmemory = "40 kB"\n')
    assert (
        f"at most, for 600 rows; 39.1 KiB of memory hold about {first.split()[7]} {told}" in run_cli("plan", job).stdout
    )
    job.write_text('job = "train"\nstore = "s.zarr"\nout = "n"\nloss = "hinge"\n')
    assert "for 600 rows; more would hardly help" in run_cli("plan", job).stdout
    ample = run_cli(
        "train", store.path, "--out", tmp_path / "n", "--loss", "hinge", "--C", "0.1", "--cluster", "threads"
    )
    assert "memory: " not in ample.stderr
    assert "short" not in ample.stdout


def test_a_proof_that_there_is_no_margin_is_not_short(tmp_path: Path, run_cli: Cli) -> None:
    """Classes that overlap in the first read are no matter of memory: nobody is told to give more."""
    X, y = np.tile(np.arange(400.0)[:, None], (1, 2)), np.arange(400) % 2
    store = store_of(tmp_path / "s.zarr", X, y.tolist(), 50)
    words = ["train", store, "--out", tmp_path / "m", "--memory", "2 kB", "--cluster", "threads"]
    done = run_cli(*words, exit_code=4)
    assert "memory: 2.0 KiB of memory hold about" in done.stderr
    assert "not separable" in done.stdout
    assert "short" not in done.stdout
    assert json.loads((tmp_path / "m" / "run.json").read_text())["memory"]["short"] is None


def test_a_margin_that_was_tried_is_short_of_its_own_memory(tmp_path: Path, run_cli: Cli) -> None:
    """With loss auto the end tells what the problem wanted that it came to: the margin, or the value."""
    X = np.random.default_rng(0).standard_normal((400, 3))
    y = (X[:, 0] > 0).astype(int)
    X[:, 0] += np.where(y, 0.1, -0.1)
    told = {}
    for name, labels in (("margin", y), ("value", np.where(np.arange(400) % 10, y, 1 - y))):
        store = store_of(tmp_path / f"{name}.zarr", X, labels.tolist(), 50)
        words = ["train", store, "--out", tmp_path / name, "--memory", "2 kB", "--loss", "auto"]
        run_cli(*words, "--cluster", "threads", "--quiet")
        told[name] = json.loads((tmp_path / name / "run.json").read_text())["memory"]
        job = new_job(store=store, out=tmp_path / name, memory=2000, loss="auto")
        problem = problem_of(job, Store.open(store))
        want = {"margin": problem.hard.memory_need, "value": problem.soft.memory_need}[name]  # type: ignore[attr-defined]
        assert (told[name]["wanted_bytes"], told[name]["wanted_rows"]) == (want.size, want.rows)
    assert told["margin"] != told["value"]
