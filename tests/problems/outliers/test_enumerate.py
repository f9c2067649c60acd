"""The published algorithms as jobs: answers, bits, ends on the way, and what is refused before anything is read."""

from __future__ import annotations

from dataclasses import replace
from functools import partial
from itertools import pairwise
from typing import TYPE_CHECKING, Any

import numpy as np
import pytest

import coremargin
from coremargin.data.arrays import ArraySource
from coremargin.engine.calls import run_calls
from coremargin.engine.executors import InProcess
from coremargin.errors import SpecError, UsageError
from coremargin.maths.outliers import published
from coremargin.maths.outliers.heuristic import Hyperplane
from coremargin.maths.outliers.published import max_subsets
from coremargin.maths.outliers.search import solve_in_memory
from coremargin.maths.outliers.tasks import run_serially
from coremargin.problems.outliers.enumeration import enumeration_figures, enumeration_record
from coremargin.problems.outliers.outlier_margin import OutlierMargin
from coremargin.problems.outliers.state import ExcludedRows, OutlierState
from outlier_judges import KINDS, best_by_all_sets, instance
from outlier_loop import bits, noisy, proceed

if TYPE_CHECKING:
    from coremargin.maths.outliers.published import Published

ALGORITHMS = ["outlier-svm", "simple-outlier-svm"]


@pytest.fixture
def small_waves(monkeypatch: pytest.MonkeyPatch) -> None:
    """Tasks of two or three subsets, two of them in a wave."""
    monkeypatch.setattr(published, "RANGE", 6)
    monkeypatch.setattr(published, "WAVE", 2)


def job(x: np.ndarray, y: np.ndarray, ks: tuple[int, ...], algorithm: Published, **options: Any) -> OutlierMargin:
    """A problem on rows in memory, in chunks of four."""
    options = {"epsilon": 0.1, **options}
    return OutlierMargin(ArraySource(x, y, chunk_rows=4), ks, exact=False, published=algorithm, **options)


def begun(problem: OutlierMargin) -> OutlierState:
    """The state before the first subset."""
    state = proceed(problem, problem.start(), stop=1)[0]
    assert state.phase == "enumerate"
    assert sum(one.subsets for one in state.enumerations) == 0
    return state


@pytest.mark.specimens(4)
@pytest.mark.parametrize("algorithm", ALGORITHMS)
@pytest.mark.parametrize("intercept", [True, False])
@pytest.mark.parametrize("kind", KINDS)
def test_the_end_is_that_of_all_sets_of_outliers(kind: str, intercept: bool, algorithm: Published) -> None:
    """For every k the enumeration alone reaches (1 - epsilon) of the best over all sets, which lies within the bounds
    that the job proves.
    """
    rng = np.random.default_rng(21)
    for _ in range(3):
        x, y, most = instance(kind, rng)
        problem = job(x, y, tuple(range(most + 1)), algorithm, intercept=intercept)
        state, scans = proceed(problem, problem.start())
        assert scans == 1
        assert state.status in ("published", "certified")
        for search, own in zip(state.searches, state.enumerations, strict=True):
            best = best_by_all_sets(x, y, search.k, intercept=intercept)
            assert own.ended
            assert 0.9 * best - 1e-8 <= max(own.best.margin, 0.0) <= best + 1e-8
            assert 0.9 * best - 1e-8 <= search.lower <= best + 1e-8
            assert search.upper >= best - 1e-9


@pytest.mark.parametrize("algorithm", ALGORITHMS)
def test_without_an_incumbent_it_finds_the_best_itself(algorithm: Published, small_waves: None) -> None:
    """Where nothing is known when it begins, its hyperplane is measured on all rows and becomes the model's, with the
    rows that it leaves out.
    """
    x, y = noisy(14, 2, 2, seed=3)
    problem = job(x, y, (2,), algorithm, epsilon=1e-3)
    state = begun(problem)
    blank = replace(state.main, best=Hyperplane.none(2))
    state, scans = proceed(problem, replace(state, searches=(blank,), excluded=(ExcludedRows.none(),)))
    best = solve_in_memory(x, y, 2)
    assert scans == 0
    assert state.lower == pytest.approx(best.lower, rel=1e-9)
    margins = y * (x.astype(np.float64) @ state.main.best.w + state.main.best.b)
    assert sorted(state.excluded[0].ids.tolist()) == sorted(np.argsort(margins)[:2].tolist())


@pytest.mark.specimens(1)
@pytest.mark.parametrize("stop", [1, 3, 20, 41])
def test_stopped_and_restored_it_ends_with_the_same_bits(stop: int, small_waves: None) -> None:
    """From the arrays of any state on the way, between any two waves of any k, the job ends as it would have."""
    x, y = noisy(12, 2, 2, seed=13)
    problem = job(x, y, (1, 2), "simple-outlier-svm")
    whole, _ = proceed(problem, problem.start())
    half, _ = proceed(problem, problem.start(), stop=stop)
    assert half.phase == "enumerate"
    assert sum(one.subsets for one in half.enumerations) < sum(one.subsets for one in whole.enumerations)
    restored = problem.restore(half.to_arrays())
    assert bits(restored) == bits(half)
    assert enumeration_record(restored) == enumeration_record(half)
    ended, _ = proceed(problem, restored)
    assert bits(ended) == bits(whole)


@pytest.mark.slow
def test_the_same_bits_for_any_workers_and_any_waves(monkeypatch: pytest.MonkeyPatch) -> None:
    """One thread, three, tasks in another order, and other sizes of tasks and waves: one answer."""
    x, y = noisy(13, 3, 2, seed=17)
    problem = job(x, y, (1, 2), "outlier-svm", epsilon=1e-2)
    whole, _ = proceed(problem, problem.start())
    for each, with_next_wave in ((40, 16), (7, 3), (1, 1)):
        monkeypatch.setattr(published, "RANGE", each)
        monkeypatch.setattr(published, "WAVE", with_next_wave)
        for workers in (1, 3):
            with InProcess(workers) as executor:
                found, _ = proceed(problem, problem.start(), run=partial(run_calls, executor))
            assert bits(found) == bits(whole)
        back, _ = proceed(problem, problem.start(), run=lambda f, tasks: run_serially(f, tasks[::-1])[::-1])
        assert bits(back) == bits(whole)


def test_its_figures_grow_to_what_was_announced(small_waves: None) -> None:
    """Subsets that were tried rise with every wave, of a number that never rises and is met at the end."""
    x, y = noisy(12, 2, 1, seed=5)
    problem = job(x, y, (0, 1), "simple-outlier-svm")
    state = begun(problem)
    seen = [enumeration_figures(state)]
    seen += [enumeration_figures(step) for step in problem.work(state, run_serially)]
    tried, most = ([one[key] for one in seen] for key in ("subsets", "subsets_at_most"))
    assert most[0] == sum(max_subsets(12, 2, k, 0.1, "simple-outlier-svm") for k in (0, 1))
    assert (np.diff(tried) >= 0).all()
    assert (np.diff(most) <= 0).all()
    assert tried[0] == 0
    assert tried[-1] == most[-1] > 0
    assert max(b - a for a, b in pairwise(tried)) <= 12  # a wave: two tasks of six rows


def test_more_subsets_than_anyone_tries_are_refused_before_a_row_is_read(monkeypatch: pytest.MonkeyPatch) -> None:
    """All k count together, and the message says how many subsets there may be and what to choose instead."""
    x, y = noisy(80, 3, 0, seed=29)
    one = max_subsets(80, 3, 2, 1e-3, "outlier-svm")
    assert one == 1_581_580
    source = ArraySource(x, y, chunk_rows=4)
    source.scalars()  # counted on first use for rows in memory; stores have them
    monkeypatch.setattr(ArraySource, "read", lambda *_: pytest.fail("a row was read"))
    OutlierMargin(source, (2,), 1e-3, exact=False, published="outlier-svm").check()
    said = r"may have to try 6,326,320 subsets of 80 rows of 3 features, expected at most 5,000,000; .*exact"
    with pytest.raises(UsageError, match=said):
        OutlierMargin(source, (1, 2, 3, 4), 1e-3, exact=False, published="outlier-svm").check()
    with pytest.raises(UsageError, match=said):
        coremargin.train(source, outliers="1..4", outlier_search="published")
    monkeypatch.undo()
    wide = np.random.default_rng(1).normal(size=(400, 60))
    with pytest.raises(UsageError, match=r"try about 10\^\d\d subsets of 400 rows"):
        coremargin.train(wide, np.repeat([0, 1], 200), outliers=2, outlier_search="published-simple")


def test_rows_that_do_not_fit_are_refused() -> None:
    """All rows have to be in the driver: with less memory than for them it is refused, with what they need."""
    x, y = noisy(900, 1, 0, seed=29)
    room = 8 * (4 * 6 + 1_000)  # enough for another search
    options: dict[str, Any] = {"exact": False, "memory_bytes": 8 * 1_700}
    assert options["memory_bytes"] > room
    OutlierMargin(ArraySource(x, y), (0,), 1e-3, **options).check()
    with pytest.raises(UsageError, match="about 1,800 rows of 1 features in memory, dense"):
        OutlierMargin(ArraySource(x, y), (0,), 1e-3, published="outlier-svm", **options).check()


@pytest.mark.parametrize("search", ["published", "published-simple"])
def test_epsilon_zero_is_refused(search: Any) -> None:
    """No size of subsets is enough for epsilon 0: the job says that the exact search takes it."""
    x, y = noisy(12, 2, 1, seed=5)
    with pytest.raises(
        SpecError, match=r"epsilon: expected a number above 0 for outlier_search .* 'exact' it may be 0"
    ):
        coremargin.train(x, y, outliers=1, outlier_search=search, epsilon=0)


@pytest.mark.specimens(1)
@pytest.mark.parametrize(("search", "algorithm"), [("published", ALGORITHMS[0]), ("published-simple", ALGORITHMS[1])])
def test_the_names_stand_for_figure_4a_and_4b(search: Any, algorithm: str) -> None:
    """The first guesses the margin, the simple one doubles the size of subsets: they announce other numbers of them."""
    x, y = noisy(12, 4, 1, seed=5)
    rounds: list[dict[str, Any]] = []
    model = coremargin.train(x, y, outliers=1, outlier_search=search, on_round=rounds.append)
    assert model.parameters["outlier_search"] == search
    best = coremargin.train(x, y, outliers=1, epsilon=0).certificate
    assert model.certificate.lower >= 0.999 * best.lower
    assert rounds[-1]["subsets"] == 0  # after the only scan nothing is tried yet
    assert rounds[-1]["subsets_at_most"] == max_subsets(12, 4, 1, 1e-3, algorithm)  # type: ignore[arg-type]
