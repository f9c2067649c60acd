"""The published outlier algorithms: every subset once, and as good as all sets of outliers."""

from __future__ import annotations

import itertools
from math import comb

import numpy as np
import pytest

from coremargin.maths.outliers import published
from coremargin.maths.outliers.certificates import SearchRows
from coremargin.maths.outliers.published import (
    Enumeration,
    Published,
    coreset_size,
    enumerate_subsets,
    max_subsets,
    next_wave,
    start_enumeration,
    subset_sizes,
    subsets,
    unrank,
)
from coremargin.maths.outliers.search import solve_in_memory
from coremargin.maths.outliers.tasks import run_serially
from outlier_judges import KINDS, best_by_all_sets, instance


def test_ranges_of_subsets_are_those_of_itertools() -> None:
    """Unranked anywhere, subsets come in lexicographic order, each once."""
    expected = list(itertools.combinations(range(8), 3))
    assert [tuple(unrank(8, 3, i)) for i in range(len(expected))] == expected
    cut = [tuple(s.tolist()) for a, b in ((0, 5), (5, 6), (6, 56)) for s in subsets(8, 3, a, b)]
    assert cut == expected
    assert [tuple(s.tolist()) for s in subsets(4, 4, 0, 1)] == [(0, 1, 2, 3)]


@pytest.mark.parametrize("algorithm", ["outlier-svm", "simple-outlier-svm"])
@pytest.mark.parametrize("intercept", [True, False])
@pytest.mark.parametrize("kind", KINDS)
def test_within_epsilon_of_all_sets_of_outliers(kind: str, intercept: bool, algorithm: Published) -> None:
    """On tiny instances both reach (1 - epsilon) of the best over all sets, and never more than the best."""
    rng = np.random.default_rng(11)
    for _ in range(4):
        x, y, k = instance(kind, rng)
        x, y = x[:8], y[:8]
        if min((y > 0).sum(), (y < 0).sum()) <= k:
            continue
        search_rows = SearchRows(x, y.astype(np.int8), x.mean(axis=0), intercept=intercept)
        best = best_by_all_sets(x, y, k, intercept=intercept)
        found = enumerate_subsets(search_rows, k, 0.1, run_serially, algorithm)
        assert 0.9 * best - 1e-8 <= max(found.best.margin, 0.0) <= best + 1e-8


def test_the_stopping_rules() -> None:
    """A wide margin is within the first guess, whose subsets then suffice; sizes double until they do."""
    rng = np.random.default_rng(12)
    x = rng.normal(scale=0.1, size=(12, 9))
    y = np.repeat([1, -1], 6)
    x[:, 0] += 3.0 * y
    y[0] = -1
    search_rows = SearchRows(x, y.astype(np.int8), np.zeros(9), intercept=False)
    best = solve_in_memory(x, y, 1, intercept=False).lower
    guessed = enumerate_subsets(search_rows, 1, 0.9, run_serially, "outlier-svm")
    doubled = enumerate_subsets(search_rows, 1, 0.9, run_serially, "simple-outlier-svm")
    assert (guessed.size, guessed.subsets) == (9, comb(12, 9))  # 8 (R / rho)^2 / epsilon at rho = R
    assert doubled.subsets == sum(comb(12, c) for c in (1, 2, 4, 8, 10))  # 10 = d + 1
    assert doubled.best.margin == pytest.approx(best)
    assert 0.1 * best <= guessed.best.margin <= best * (1 + 1e-9)
    assert coreset_size(1.0, 0.0, 0.5) is None


def test_ranges_may_run_anywhere(monkeypatch: pytest.MonkeyPatch) -> None:
    """Cut into many tasks that run in any order of completion, the answer is the same."""
    rng = np.random.default_rng(13)
    x, y, _ = instance("flipped", rng)
    search_rows = SearchRows(x, y.astype(np.int8), x.mean(axis=0), intercept=True)
    whole = enumerate_subsets(search_rows, 1, 0.5, run_serially)
    monkeypatch.setattr(published, "RANGE", 3)
    monkeypatch.setattr(published, "WAVE", 2)
    cut = enumerate_subsets(search_rows, 1, 0.5, lambda f, tasks: run_serially(f, tasks[::-1])[::-1])
    assert cut.best.margin == whole.best.margin
    assert cut.subsets == whole.subsets
    assert (cut.best.w == whole.best.w).all()


def test_a_margin_below_the_first_guess_takes_a_second() -> None:
    """Rows that lie far out beside their margin do not end Figure 4a with the small subsets of its first guess."""
    rng = np.random.default_rng(15)
    x, y = 0.02 * rng.normal(size=(12, 10)), np.repeat([1, -1], 6)
    x[:, 0] += np.linspace(-3.0, 3.0, 12)[rng.permutation(12)]  # along no class
    search_rows = SearchRows(x, y.astype(np.int8), np.zeros(10), intercept=False)
    found = enumerate_subsets(search_rows, 1, 0.9, run_serially, "outlier-svm")
    assert found.sizes == (9, 11)
    assert 0 < found.best.margin < 0.1 * found.radius
    assert (found.size, found.subsets) == (11, comb(12, 9) + comb(12, 11))
    assert found.best.margin == pytest.approx(solve_in_memory(x, y, 1, intercept=False).lower)


def test_sizes_are_known_before_a_row_is_looked_at() -> None:
    """(a) grows by the square of 2 from 8 / epsilon, (b) doubles from 1, both up to what always suffices."""
    assert subset_sizes(500, 300, 2, 0.5, "outlier-svm") == (16, 64, 256, 301)
    assert subset_sizes(500, 300, 2, 0.5, "simple-outlier-svm") == (1, 2, 4, 8, 16, 32, 64, 128, 256, 301)
    assert subset_sizes(20, 300, 2, 0.5, "simple-outlier-svm") == (1, 2, 4, 8, 16, 18)
    assert subset_sizes(20, 3, 2, 1e-12, "outlier-svm") == (4,)
    assert max_subsets(20, 3, 2, 0.1, "simple-outlier-svm") == 20 + comb(20, 2) + comb(20, 4)


@pytest.mark.parametrize("algorithm", ["outlier-svm", "simple-outlier-svm"])
def test_where_nothing_separates_all_subsets_are_tried(algorithm: Published) -> None:
    """No stopping rule ends an enumeration without a margin: it tries as many subsets as it was said to."""
    x, y = np.zeros((8, 2)), np.repeat([1, -1], 4)
    x[:, 0] = [0, 1, 2, 3, 0, 1, 2, 3]  # every row has both labels
    search_rows = SearchRows(x, y.astype(np.int8), x.mean(axis=0), intercept=True)
    found = enumerate_subsets(search_rows, 1, 0.5, run_serially, algorithm)
    assert found.best.margin <= 0
    assert found.subsets == max_subsets(8, 2, 1, 0.5, algorithm)


def test_kept_between_any_two_waves_it_ends_with_the_same_bits(monkeypatch: pytest.MonkeyPatch) -> None:
    """Written to arrays and read back after each wave, an enumeration is what it was."""
    monkeypatch.setattr(published, "RANGE", 20)
    monkeypatch.setattr(published, "WAVE", 2)
    x, y, _ = instance("flipped", np.random.default_rng(13))
    search_rows = SearchRows(x, y.astype(np.int8), x.mean(axis=0), intercept=True)
    whole = enumerate_subsets(search_rows, 1, 0.5, run_serially, "simple-outlier-svm")
    state, waves = start_enumeration(search_rows, 1, 0.5, "simple-outlier-svm"), 0
    while not state.ended:
        state, waves = (
            next_wave(Enumeration.from_arrays(state.to_arrays()), search_rows, run_serially),
            waves + 1,
        )
    assert waves > 3
    before, after = whole.to_arrays(), state.to_arrays()
    assert {name: values.tobytes() for name, values in before.items()} == {
        name: values.tobytes() for name, values in after.items()
    }
