"""Outliers out of core: the answer is that of memory, to the bit whatever the blocks, and survives interruption."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from contextlib import suppress
from typing import Any

import numpy as np
import pytest

from coremargin.data.arrays import ArraySource
from coremargin.engine.loop import OutOfTime
from coremargin.errors import LabelError, UsageError
from coremargin.maths.outliers.search import solve_in_memory
from coremargin.maths.outliers.tasks import run_serially
from coremargin.problems.outliers import first_read, outlier_margin
from coremargin.problems.outliers.outlier_margin import OutlierMargin
from outlier_judges import best_by_all_sets
from outlier_loop import bits, noisy, proceed


@pytest.fixture
def starved(monkeypatch: pytest.MonkeyPatch) -> None:
    """Almost nothing of the store is known when the search begins."""
    monkeypatch.setattr(outlier_margin, "WORKING_SET_ROWS", 2)
    monkeypatch.setattr(outlier_margin, "SETTLING", 0)
    monkeypatch.setattr(first_read, "ORDINARY", 3)
    monkeypatch.setattr(first_read, "SAMPLE_ROWS", 30)


@pytest.mark.parametrize("seed", range(6))
def test_a_starved_pool_comes_to_the_answer_of_memory(seed: int, starved: None) -> None:
    """Scans add what a small working set lacks: both bounds are those of a search on all rows."""
    x, y = noisy(300, 3, 3, seed, margin=0.2)
    intercept, k = seed % 2 == 0, seed % 4
    problem = OutlierMargin(ArraySource(x, y, chunk_rows=37), (k,), 0.0, intercept=intercept, sample_bytes=500)
    state, scans = proceed(problem, problem.start())
    direct = solve_in_memory(x, y, k, intercept=intercept)
    assert scans >= 1
    assert state.main.lower == pytest.approx(direct.lower, abs=1e-7)
    assert state.upper == pytest.approx(direct.upper, abs=1e-7)
    assert state.lower <= state.upper


def test_equal_to_all_sets_of_outliers(starved: None) -> None:
    """Tiny stores of one row a chunk: the bounds meet at the best over all sets."""
    rng = np.random.default_rng(5)
    for intercept in (True, False) * 8:
        x = rng.integers(-3, 4, size=(11, 2)).astype(np.float64)
        y = np.array([1, -1] * 5 + [1])
        x[:, 0] += y
        problem = OutlierMargin(ArraySource(x, y, chunk_rows=1), (2,), 0.0, intercept=intercept)
        state, _ = proceed(problem, problem.start())
        best = best_by_all_sets(x, y, 2, intercept=intercept)
        assert state.main.lower == pytest.approx(best, abs=1e-8)
        assert state.upper == pytest.approx(best, abs=1e-8)


def test_the_same_bits_for_any_blocks_and_workers(starved: None) -> None:
    """How rows are grouped into blocks, and in what order tasks are done, changes nothing."""
    x, y = noisy(400, 4, 6, seed=9)
    problem = OutlierMargin(ArraySource(x, y, chunk_rows=20), (2, 6), 1e-3, sample_bytes=2000)
    whole, _ = proceed(problem, problem.start())
    cut, _ = proceed(problem, problem.start(), block=3, run=lambda f, tasks: run_serially(f, tasks[::-1])[::-1])
    assert bits(cut) == bits(whole)


def test_many_tasks_a_round_give_a_true_answer(monkeypatch: pytest.MonkeyPatch) -> None:
    """Dealt out to 16 tasks of a few nodes from the first node on, the bounds still meet at the answer of memory."""
    from coremargin.maths.outliers import search as search_module

    monkeypatch.setattr(search_module, "ALONE", 0)
    monkeypatch.setattr(search_module, "BUDGET", 10)
    x, y = noisy(150, 5, 0, seed=11)
    dealt = []

    def counted(function: Callable[..., Any], tasks: Sequence[tuple[Any, ...]]) -> list[Any]:
        dealt.append(len(tasks))
        return run_serially(function, tasks)

    problem = OutlierMargin(ArraySource(x, y), (7,), 0.0)
    state, _ = proceed(problem, problem.start(), run=counted)
    monkeypatch.undo()
    assert max(dealt) > 4
    assert state.main.lower == pytest.approx(solve_in_memory(x, y, 7).lower, rel=1e-8)
    assert state.status == "certified"


@pytest.mark.specimens(1)
@pytest.mark.parametrize("stop", [1, 3, 8])
def test_stopped_and_restored_it_ends_with_the_same_bits(stop: int, starved: None) -> None:
    """From the arrays of any state on the way, the job ends as it would have."""
    x, y = noisy(200, 4, 3, seed=13)
    problem = OutlierMargin(ArraySource(x, y, chunk_rows=20), (2, 4), 0.0, sample_bytes=2000)
    whole, _ = proceed(problem, problem.start())
    half, _ = proceed(problem, problem.start(), stop=stop)
    restored = problem.restore(half.to_arrays())
    assert bits(restored) == bits(half)
    ended, _ = proceed(problem, restored)
    assert bits(ended) == bits(whole)


@pytest.mark.specimens(1)
@pytest.mark.parametrize("calls", [1, 2, 4, 9])
def test_ended_in_the_middle_of_a_step_it_goes_on_from_the_state_before(
    calls: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A time limit may end any wave of tasks, of the heuristic too: what was known before it leads to the same bits."""
    monkeypatch.setattr(outlier_margin, "WORTH_SENDING", 0)
    x, y = noisy(150, 5, 0, seed=11)
    problem = OutlierMargin(ArraySource(x, y, chunk_rows=20), (2, 7), 1e-3, sample_bytes=2000)
    whole, _ = proceed(problem, problem.start())
    state, left = problem.start(), calls

    def limited(function: Callable[..., Any], tasks: Sequence[tuple[Any, ...]]) -> list[Any]:
        nonlocal left
        left -= 1
        if not left:
            raise OutOfTime
        return run_serially(function, tasks)

    while left and not problem.done(state):  # state by state, as the engine keeps them
        with suppress(OutOfTime):
            state, _ = proceed(problem, state, run=limited, stop=1)
    assert not left
    assert state.phase == "settle" or calls > 3
    ended, _ = proceed(problem, problem.restore(state.to_arrays()))
    assert bits(ended) == bits(whole)


def test_a_path_is_monotone_and_finds_the_knee() -> None:
    """Nothing separates with far fewer outliers than wrong labels, and the margin jumps where all of them are out."""
    x, y = noisy(500, 3, 4, seed=17)
    problem = OutlierMargin(ArraySource(x, y), tuple(range(7)), 1e-6)
    state, _ = proceed(problem, problem.start())
    lower = [search.lower for search in state.searches]
    assert state.status == "certified"
    assert lower[:2] == [0, 0]
    assert all(search.upper < 1e-12 for search in state.searches[:2])
    assert (np.diff(lower) >= 0).all()
    assert np.argmax(np.diff(lower)) == 3
    assert lower[4] >= 0.5 * (1 - 1e-6)
    one = OutlierMargin(ArraySource(x, y), (4,), 1e-6)
    assert proceed(one, one.start())[0].lower == pytest.approx(lower[4], rel=1e-6)


def test_many_outliers_of_many_features_find_rows_for_their_certificates() -> None:
    """51 disjoint certificates of 21 rows: without that many rows in the working set, nodes multiply."""
    x, y = noisy(2000, 20, 50, seed=1, margin=0.3)
    problem = OutlierMargin(ArraySource(x, y), (50,), 1e-3)
    state, _ = proceed(problem, problem.start())
    assert state.status == "certified"
    assert state.lower >= 0.3 * (1 - 1e-3)
    assert state.main.nodes < 200


def test_the_result_names_the_rows_and_what_they_buy() -> None:
    """The excluded rows are the wrong labels; with any of them back nothing separates: each gains the whole margin."""
    x, y = noisy(400, 3, 5, seed=19)
    problem = OutlierMargin(ArraySource(x, y), (5,), 1e-3)
    state, _ = proceed(problem, problem.start())
    found = problem.result(state)
    margins = y * (x.astype(np.float64) @ found.w + found.b)
    wrong = np.sort(np.argsort(margins)[:5])
    assert np.sort(found.extra["outliers_ids"]).tolist() == wrong.tolist()
    np.testing.assert_allclose(np.sort(found.extra["outliers_margins"]), np.sort(margins)[:5], atol=1e-6)
    np.testing.assert_allclose(found.extra["outliers_gains"], found.upper, rtol=2e-3)
    assert (np.sort(margins)[5:] >= found.lower - 1e-12).all()


def test_the_heuristic_has_true_bounds() -> None:
    """Without the exact search there is a margin that is reached and a bound that no outliers pass."""
    x, y = noisy(300, 4, 10, seed=23)
    exact = solve_in_memory(x, y, 14)
    problem = OutlierMargin(ArraySource(x, y), (14,), 1e-6, exact=False)
    state, _ = proceed(problem, problem.start())
    assert state.status in ("heuristic", "certified")
    assert 0.9 * exact.lower <= state.lower <= exact.upper
    assert exact.lower <= state.upper <= 1.3 * exact.lower


def test_rows_that_do_not_fit_are_refused() -> None:
    """Too many features for the memory, as of sparse documents: refused with what it takes."""
    x, y = noisy(40, 2, 0, seed=29)
    with pytest.raises(UsageError, match=r"rows of 2 features in memory, dense, and these need [\d,]+ bytes; found"):
        OutlierMargin(ArraySource(x, y), (1,), 1e-3, memory_bytes=1000).check()


def test_a_class_that_may_vanish_is_refused() -> None:
    """As many outliers as a class has rows are refused before anything is read, with the class."""
    x, y = noisy(40, 2, 0, seed=29)
    y[:] = 1
    y[:6] = -1
    with pytest.raises(UsageError, match=r"6 rows may be excluded, and class -1 of arrays has 6"):
        OutlierMargin(ArraySource(x, y), (1, 6), 1e-3).check()
    with pytest.raises(UsageError, match="the others are of one class; give a number below 6"):
        OutlierMargin(ArraySource(x, y), (1, 6), 1e-3, intercept=False).check()


def test_a_class_that_may_vanish_by_its_weights_is_refused() -> None:
    """Rows of weight 0 are none: what the first scan counts decides."""
    x, y = noisy(40, 2, 0, seed=29)
    weights = np.where(y > 0, 1.0, 0.0)
    weights[np.flatnonzero(y < 0)[:3]] = 1.0
    problem = OutlierMargin(ArraySource(x, y, weights=weights), (3,), 1e-3)
    with pytest.raises(UsageError, match="3 rows may be excluded, and class -1 of arrays has 3"):
        proceed(problem, problem.start())


@pytest.mark.parametrize("intercept", [True, False])
@pytest.mark.parametrize("point", [0.0, 0.1, 1e6])
def test_rows_that_are_one_point_are_not_separable(point: float, intercept: bool) -> None:
    """Both classes at one place, wherever that is: a proof for every k, no division by a radius of zero."""
    source = ArraySource(np.full((30, 3), point), np.repeat([1, -1], 15))
    problem = OutlierMargin(source, (0, 4), 1e-3, intercept=intercept)
    state, _ = proceed(problem, problem.start())
    assert state.status == "certified"
    assert problem.result(state).status == "not_separable"


@pytest.mark.parametrize("shift", [1e2, 1e4, 1e7])
def test_rows_far_from_the_origin_are_proven_inseparable(shift: float) -> None:
    """What is zero is a matter of the rows as they are: their sums are rounded at their own size."""
    x, y = noisy(120, 3, 4, seed=31)
    problem = OutlierMargin(ArraySource(x.astype(np.float64) + shift, y), (2,), 1e-3)
    state, _ = proceed(problem, problem.start())
    result = problem.result(state)
    assert result.status == "not_separable"
    assert result.extra["outliers_gains"].min(initial=0.0) >= 0.0


def test_three_classes_are_refused_without_a_suggestion_that_would_be_refused() -> None:
    """Outliers of several classes cannot be trained one against the rest: the message names a pair only."""
    rows = np.eye(6, 3, dtype=np.float32)
    with pytest.raises(LabelError, match="ingest the pair you mean with") as caught:
        OutlierMargin(ArraySource(rows, list("abcabc")), (1,), 1e-3).check()
    assert "ovr" not in str(caught.value)
