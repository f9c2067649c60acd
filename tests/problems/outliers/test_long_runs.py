"""Long searches on any workers: bounds at every moment, proofs of every k, resuming."""

from __future__ import annotations

from collections import Counter
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np
import pytest

import coremargin
from coremargin.data.arrays import ArraySource
from coremargin.data.local_storage import LocalStorage
from coremargin.data.store import Store
from coremargin.engine.calls import run_calls
from coremargin.engine.executors import InProcess
from coremargin.formats.run_record import read_run
from coremargin.learn.train import Progress, train_job
from coremargin.maths.outliers import search as search_module
from coremargin.maths.outliers.tasks import run_serially
from coremargin.problems.outliers import outlier_margin
from coremargin.problems.outliers.kind import KIND
from coremargin.problems.outliers.outlier_margin import OutlierMargin
from coremargin.problems.registry import new_job
from margin_judges import is_above_exact
from outlier_judges import best_by_all_sets, instance
from outlier_loop import bits, noisy, proceed

if TYPE_CHECKING:
    from coremargin.engine.protocols import Executor


@pytest.fixture
def soon(monkeypatch: pytest.MonkeyPatch) -> None:
    """Searches are long from their first nodes on, and rounds short."""
    monkeypatch.setattr(outlier_margin, "LONG", 1)
    monkeypatch.setattr(search_module, "ALONE_BUDGET", 20)


def test_bounds_of_long_searches_are_true_and_only_improve(soon: None) -> None:
    """At every state, before the climb and after it, on tiny noise: around the best over all sets, and never worse."""
    rng, climbs = np.random.default_rng(31), 0
    for intercept in (True, False) * 6:
        x, y, k = instance("noise", rng)
        problem = OutlierMargin(ArraySource(x, y, chunk_rows=4), (k,), 0.0, intercept=intercept)
        best = best_by_all_sets(x, y, k, intercept=intercept)
        bounds, state = [], problem.start()
        while not problem.done(state):
            state, _ = proceed(problem, state, stop=1)
            bounds.append((state.lower, state.upper))
        climbs += state.climbed
        lower, upper = np.array(bounds).T
        assert (lower[1:] >= lower[:-1]).all()
        assert (upper[1:] <= upper[:-1]).all()
        assert lower.max() <= best + 1e-9
        assert upper.min() >= best - 1e-9
        assert (max(lower[-1], 0.0), upper[-1]) == pytest.approx((best, best), abs=1e-8)
    assert climbs > 3


def test_a_long_search_has_the_same_bits_on_any_workers(soon: None, embedded: Executor) -> None:
    """One thread, three, two processes, or tasks in the opposite order: the same climb, the same certificates."""
    x, y = noisy(120, 4, 2, seed=33)
    problem = OutlierMargin(ArraySource(x, y), (3, 6), 1e-3)
    runs = [
        partial(run_calls, InProcess(1)), partial(run_calls, InProcess(3)), partial(run_calls, embedded),
        lambda function, tasks: run_serially(function, tasks[::-1])[::-1],
    ]  # fmt: skip
    first, *others = [proceed(problem, problem.start(), run=run)[0] for run in runs]
    assert first.climbed
    assert first.status == "certified"
    assert all(bits(other) == bits(first) for other in others)


def test_every_k_of_a_path_has_a_proof_of_its_own_or_that_of_a_larger_one() -> None:
    """By shared certificates that hold in exact numbers; a bound without a proof is that of a larger k."""
    x, y = noisy(200, 3, 4, seed=35)
    problem = OutlierMargin(ArraySource(x, y), (0, 2, 4, 6), 1e-3)
    state, _ = proceed(problem, problem.start())
    working_set, proofs = state.working_set, 0
    for search, larger in zip(state.searches, [*state.searches[1:], None], strict=True):
        if search.proof is None:
            assert larger is not None
            assert search.upper == larger.upper
            continue
        proofs += 1
        used = [search.certificates[number] for number in np.unique(search.proof.proofs.values)]
        assert max(one.value for one in used) <= search.upper
        for one in used:
            assert is_above_exact(
                one.value, working_set.x[one.rows], working_set.signs[one.rows], one.weights, intercept=True
            )
        for path, numbers in zip(search.proof.paths, search.proof.proofs, strict=True):
            out, kept = set(path[path >= 0].tolist()), set((~path[path < 0]).tolist())
            sets = [set(search.certificates[number].rows.tolist()) for number in numbers]
            assert not any(rows & out for rows in sets)
            residuals = [rows - kept for rows in sets]
            most = max(Counter(row for rows in residuals for row in rows).values(), default=0)
            assert not all(residuals) or len(residuals) > most * (search.k - len(out))
    assert proofs >= 2


def test_a_resumed_job_goes_on_from_the_bounds_of_its_checkpoint(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """run.json begins with the bounds before the interruption; time and both bounds continue from there."""
    monkeypatch.setattr(search_module, "ALONE_BUDGET", 20)
    x, y = noisy(150, 5, 0, seed=11)
    coremargin.ingest(x, tmp_path / "s.zarr", labels=y)
    store = Store.open(tmp_path / "s.zarr")
    job = new_job(store=tmp_path / "s.zarr", out=tmp_path / "m", outliers=7, epsilon=1e-3)
    steps: list[object] = []

    def impatient(figures: object) -> None:
        steps.append(figures)
        if len(steps) == 8:
            raise KeyboardInterrupt

    stopped = train_job(job, store, InProcess(1), progress=Progress(on_work=impatient))
    assert stopped.resumable
    *before, end = (tuple(one) for one in read_run(LocalStorage(job.out), KIND.run)[0]["bounds"])
    done = train_job(job, store, InProcess(1), begin="resume")
    assert not done.resumable
    after = [tuple(one) for one in read_run(LocalStorage(job.out), KIND.run)[0]["bounds"]]
    assert len(before) > 1
    assert end[1:] == before[-1][1:]
    assert after[: len(before)] == before
    assert len(after) > len(before)
    seconds, lower, upper = zip(*after, strict=True)
    assert list(seconds) == sorted(seconds)
    assert [low for low in lower if low is not None] == sorted(low for low in lower if low is not None)
    known = [high for high in upper if high is not None]
    assert known == sorted(known, reverse=True)
    assert upper[: len(upper) - len(known)] == (None,) * (len(upper) - len(known))
