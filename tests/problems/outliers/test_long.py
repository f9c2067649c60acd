"""A long search: compiled kernels, a climb on the way, certificates of all k, and messages."""

from __future__ import annotations

import signal
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import coremargin
from coremargin.data.arrays import ArraySource
from coremargin.data.local_storage import LocalStorage
from coremargin.data.store import Store
from coremargin.formats.run_record import read_run
from coremargin.learn.train import Progress, train_job
from coremargin.maths.outliers.search import solve_in_memory
from coremargin.maths.outliers.tasks import run_serially
from coremargin.models.executor import executor_of
from coremargin.models.model import Model
from coremargin.problems.outliers import outlier_margin
from coremargin.problems.outliers.kind import KIND
from coremargin.problems.outliers.messages import describe_outlook, describe_outlook_briefly
from coremargin.problems.outliers.outlier_margin import OutlierMargin
from coremargin.problems.outliers.state import OutlierState
from coremargin.problems.registry import job_of
from coremargin.verify import verify
from outlier_loop import bits, noisy, proceed


@pytest.fixture
def soon(monkeypatch: pytest.MonkeyPatch) -> None:
    """Searches are long from their first nodes on."""
    monkeypatch.setattr(outlier_margin, "LONG", 30)


def test_a_long_search_climbs_once_and_ends_at_the_answer(soon: None) -> None:
    """Its bounds meet at those of a search that did not, in the same bits whatever the order of the tasks."""
    x, y = noisy(150, 5, 0, seed=11)
    problem = OutlierMargin(ArraySource(x, y), (7,), 0.0)
    state, _ = proceed(problem, problem.start())
    other, _ = proceed(problem, problem.start(), run=lambda f, tasks: run_serially(f, tasks[::-1])[::-1])
    assert state.climbed
    assert bits(other) == bits(state)
    direct = solve_in_memory(x, y, 7)
    assert (state.lower, state.upper) == pytest.approx((direct.lower, direct.upper), rel=1e-7)


def test_all_k_have_the_same_certificates_which_are_kept_once() -> None:
    """All searches share their certificates; a checkpoint stores them once and restores the same bits."""
    x, y = noisy(300, 4, 5, seed=3)
    problem = OutlierMargin(ArraySource(x, y), (0, 2, 5, 6), 1e-3)
    state, _ = proceed(problem, problem.start())
    assert state.status == "certified"
    assert all(search.certificates is state.main.certificates for search in state.searches)
    arrays = state.to_arrays()
    assert [name for name in arrays if name.endswith("certificates.values")] == ["search3.certificates.values"]
    assert bits(OutlierState.from_arrays(arrays, 4)) == bits(state)


def test_a_path_with_shared_certificates_is_verified(tmp_path: Path) -> None:
    """Code of its own confirms the bounds of every k; what came between scans is in run.json, and only gets better."""
    x, y = noisy(300, 4, 5, seed=3)
    store, out = tmp_path / "s.zarr", tmp_path / "m"
    coremargin.ingest(x.astype(np.float32), store, labels=y)
    coremargin.train(store, out=out, outliers="0..7", cluster="threads")
    assert verify(out, store).ok
    run, _ = read_run(LocalStorage(out), KIND.run)
    seconds, lower, upper = (np.array(part, float) for part in zip(*run["bounds"], strict=True))
    assert (np.diff(seconds) >= 0).all()
    assert (np.diff(lower[np.isfinite(lower)]) >= 0).all()
    assert (np.diff(upper[np.isfinite(upper)]) <= 0).all()
    assert (run["outliers"], run["wrong"]) == (7, 5)
    claimed = Model.load(out).certificate
    assert run["bounds"][-1][1:] == [claimed.lower, claimed.upper]
    assert run["bounds"][-1][0] <= run["seconds"]  # which count what is saved after the last bounds, too


def proceed_one(problem: OutlierMargin, state: OutlierState) -> OutlierState:
    """After one scan of all blocks that it is about."""
    from coremargin.engine.plan import plan_blocks

    probe = problem.probe(state)
    summary: Any = probe.empty()
    for block in plan_blocks(problem.source, skip=problem.skip(state)):
        summary = summary.merge(probe.narrow(block)(problem.source, block))
    return problem.update(state, summary)


@pytest.mark.parametrize(
    ("figures", "words"),
    [
        (
            {"outliers": 26, "wrong": 12},
            ["12 wrong labels and 26 rows may be excluded: the other 14 are labelled correctly"],
        ),
        ({"outliers": 5, "wrong": 12}, ["12 wrong labels and only 5 rows may be excluded: the others may not"]),
        ({"outliers": 12, "wrong": 12}, []),
        ({"gap_later": 0.0316}, ["a gap of about 0.032 after 10 times as long"]),
        ({}, []),
    ],
)
def test_what_is_to_be_expected(figures: dict[str, Any], words: list[str]) -> None:
    """More rows than wrong labels, fewer, as many; a gap that falls."""
    sentences = describe_outlook(figures)
    assert len(sentences) == len(words)
    assert all(part in sentence for part, sentence in zip(words, sentences, strict=True))
    brief = describe_outlook_briefly(figures)
    assert len(brief) == len(words)
    assert all(len(one) < 50 for one in brief)


def test_the_live_line_of_a_long_search_is_one_line() -> None:
    """Bounds, nodes, what to expect, and how to end it, within the width of a wide terminal."""
    figures = {"nodes": 1_234_567, "outliers": 1000, "wrong": 999, "gap_later": 0.0316}
    line = KIND.describe_work("bounds 0.113530 to 0.117440 (ratio 0.966797)", figures)
    assert "999 labels look wrong, 1,000 may be excluded; gap after 10 times as long about 0.032" in line
    assert len(line) < 180


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT, signal.SIGHUP])
def test_a_run_that_is_interrupted_says_so(tmp_path: Path, number: signal.Signals) -> None:
    """What ended it is a signal, by its name, and no limit; what was proven by then is kept."""
    store, out = tmp_path / "s.zarr", tmp_path / "m"
    x, y = noisy(150, 5, 0, seed=11)
    coremargin.ingest(x, store, labels=y)
    options = {"job": "train", "store": str(store), "out": str(out), "outliers": 7}
    rows = Store.open(store)
    with executor_of(rows, "threads") as executor:
        progress = Progress(on_work=lambda _: signal.raise_signal(number))
        done = train_job(job_of(options), rows, executor, progress=progress)
    assert done.run["reason"] == f"it was interrupted ({number.name})"
    assert done.model.status == "stopped"
