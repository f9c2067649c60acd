from __future__ import annotations

import itertools

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.extra import numpy as hnp

from coremargin.maths.nearest import Nearest, nearest_point
from margin_judges import hulls_meet, shortest_by_supports


def is_optimal(rows: np.ndarray, groups: np.ndarray, found: Nearest, tolerance: float = 1e-9) -> bool:
    """The optimality conditions: weights of a hull, their point, and no row below the level of its group's support."""
    a, point = found.weights, found.weights @ rows
    size = 1e-300 + float(np.abs(rows).max())
    sums = all(abs(a[groups == g].sum() - 1) < 1e-12 for g in np.unique(groups))
    level = {g: float(a[groups == g] @ (rows[groups == g] @ point)) for g in np.unique(groups)}
    low = max(level[g] - float((rows[groups == g] @ point).min()) for g in np.unique(groups))
    return bool(
        a.min() >= 0
        and sums
        and np.abs(point - found.point).max() <= 1e-12 * size
        and (np.linalg.norm(point) <= 1e-13 * size or low <= tolerance * float(point @ point) + 1e-13 * size**2)
    )


@st.composite
def hulls(draw: st.DrawFn) -> tuple[np.ndarray, np.ndarray]:
    """A few rows on a coarse grid (ties, duplicates, collinear rows, hulls that meet) in one or two groups."""
    n, d, k = draw(st.integers(2, 6)), draw(st.integers(1, 4)), draw(st.integers(1, 2))
    rows = draw(hnp.arrays(np.float64, (n, d), elements=st.integers(-3, 3).map(float)))
    groups = np.array(draw(st.lists(st.integers(0, k - 1), min_size=n, max_size=n)))
    groups[:k] = range(k)
    return rows + draw(st.integers(0, 5)), groups


@given(hulls())
def test_point_is_as_short_as_the_best_support(case: tuple[np.ndarray, np.ndarray]) -> None:
    """The length equals the least over all supports, and the optimality conditions hold."""
    rows, groups = case
    found = nearest_point(rows, groups)
    expected = shortest_by_supports(rows, groups)
    assert np.linalg.norm(found.point) == pytest.approx(expected, rel=1e-9, abs=1e-9)
    assert found.status in ("optimal", "zero")
    assert is_optimal(rows, groups, found)


@given(hulls())
def test_support_is_affinely_independent(case: tuple[np.ndarray, np.ndarray]) -> None:
    """The rows with weight are affinely independent, so there are at most d + 1 of one group and d + 2 of two."""
    rows, groups = case
    found = nearest_point(rows, groups)
    support = np.flatnonzero(found.weights > 0)
    references = [support[groups[support] == g][0] for g in np.unique(groups)]
    steps = np.array(
        [rows[s] - rows[r] for r in references for s in support if groups[s] == groups[r] and s != r]
    ).reshape(-1, rows.shape[1])
    assert len(support) == len(references) + len(steps) <= rows.shape[1] + len(references)
    assert len(steps) == 0 or np.linalg.matrix_rank(steps) == len(steps)


@given(hulls(), st.integers(0, 2**32 - 1))
def test_any_start_gives_the_same_point(case: tuple[np.ndarray, np.ndarray], seed: int) -> None:
    """Random weights, dependent supports and all, lead to the point of a cold start."""
    rows, groups = case
    start = np.random.default_rng(seed).random(len(rows))
    for group in np.unique(groups):
        start[groups == group] /= start[groups == group].sum()
    cold, warm = nearest_point(rows, groups), nearest_point(rows, groups, start)
    assert warm.point == pytest.approx(cold.point, rel=1e-7, abs=1e-7)
    assert is_optimal(rows, groups, warm)


@given(hulls())
def test_a_solution_is_where_a_warm_start_stays(case: tuple[np.ndarray, np.ndarray]) -> None:
    """Started from its own answer the kernel stops after one step."""
    rows, groups = case
    cold = nearest_point(rows, groups)
    warm = nearest_point(rows, groups, cold.weights)
    assert warm.steps == 1
    assert warm.point == pytest.approx(cold.point, rel=1e-12, abs=1e-12)


@pytest.mark.parametrize("groups", [1, 2])
@pytest.mark.parametrize(("n", "d"), [(50, 3), (200, 20), (30, 100), (400, 60)])
def test_random_rows_are_solved_to_the_conditions(rng: np.random.Generator, n: int, d: int, groups: int) -> None:
    """Up to hundreds of rows and features, more rows than features or fewer, the optimality conditions hold."""
    rows, of = rng.standard_normal((n, d)), np.arange(n) % groups
    rows[:, 0] += 6.0
    found = nearest_point(rows, of)
    assert found.status == "optimal"
    assert is_optimal(rows, of, found)


@pytest.mark.parametrize("spread", [3, 6])
def test_badly_scaled_features_are_solved(rng: np.random.Generator, spread: int) -> None:
    """Features from 1e-6 to 1e6 do not stop the kernel before the conditions hold as far as float64 tells."""
    for _ in range(20):
        rows = rng.standard_normal((60, 7)) * 10.0 ** rng.integers(-spread, spread + 1, 7)
        rows[:, 0] = np.abs(rows[:, 0]) + 10.0**spread
        found = nearest_point(rows, np.zeros(60, int))
        assert is_optimal(rows, np.zeros(60, int), found)


def test_tolerance_out_of_reach_ends(rng: np.random.Generator) -> None:
    """A gap that rounding keeps away ends the search as stalled, after a few steps and not after the limit."""
    for _ in range(40):
        n, d = int(rng.integers(5, 40)), int(rng.integers(2, 12))
        rows = rng.standard_normal((n, d)) * 10.0 ** rng.integers(-6, 7, d)
        found = nearest_point(rows, np.arange(n) % 2, tolerance=0.0, zero=0.0)
        assert found.steps < 10 * (n + d)
        assert found.weights[::2].sum() == pytest.approx(1)


def test_rows_of_one_value_are_one_row() -> None:
    """A thousand copies of a row get no more weight together than one copy."""
    rows = np.vstack([np.repeat([[1.0, 2.0]], 1000, axis=0), [[2.0, 1.0]]])
    found = nearest_point(rows, np.zeros(1001, int))
    assert found.point == pytest.approx([1.5, 1.5])
    assert (found.weights > 0).sum() == 2


def test_the_point_may_be_a_row_an_edge_or_inside() -> None:
    """A vertex, an edge and the inside of a hull are all found, each with the right support."""
    square = np.array(list(itertools.product([-1.0, 1.0], repeat=2)))
    for shift, point, support in (((3, 3), (2, 2), 1), ((3, 0), (2, 0), 2), ((0, 0), (0, 0), 2)):
        found = nearest_point(square + shift, np.zeros(4, int))
        assert found.point == pytest.approx(point, abs=1e-15)
        assert (found.weights > 0).sum() in (support, support + 1)


def test_hulls_that_touch_are_zero() -> None:
    """Hulls with one point in common, a corner on an edge, have distance zero."""
    rows = np.array([[0.0, 0], [2, 0], [-1, 0], [-1, -1.0]])
    found = nearest_point(rows, np.array([1, 1, 0, 0]))
    assert found.status == "zero"
    assert np.abs(found.weights @ rows).max() < 1e-13


def test_random_hulls_that_meet_are_zero(rng: np.random.Generator) -> None:
    """Overlapping classes end with at most d + 2 rows whose hulls meet, as a linear program confirms."""
    for d in (1, 2, 5, 20):
        X, y = rng.standard_normal((10 * d + 10, d)), np.where(np.arange(10 * d + 10) % 2, 1, -1)
        found = nearest_point(X * y[:, None], (y > 0).astype(int), zero=1e-12)
        support = np.flatnonzero(found.weights)
        assert found.status == "zero"
        assert len(support) <= d + 2
        assert hulls_meet(X[support], y[support], intercept=True) < 1e-9


def test_the_gap_bounds_the_distance_to_the_optimum(rng: np.random.Generator) -> None:
    """||point||^2 minus the gap is no more than the square of the optimum, wherever the kernel is stopped."""
    rows = rng.standard_normal((200, 10)) + 1
    best = float(np.square(nearest_point(rows, np.zeros(200, int)).point).sum())
    for steps in range(1, 30):
        found = nearest_point(rows, np.zeros(200, int), max_steps=steps)
        square = float(found.point @ found.point)
        assert square >= best * (1 - 1e-12)
        assert square - found.gap <= best * (1 + 1e-12)


@given(hulls(), st.floats(0.0, 4.0))
def test_a_solve_may_end_once_the_side_is_known(case: tuple[np.ndarray, np.ndarray], side: float) -> None:
    """Ended early as short, the point is that short; as clear, no point of the hulls is."""
    rows, groups = case
    best = float(np.linalg.norm(nearest_point(rows, groups).point))
    found = nearest_point(rows, groups, side=side)
    if found.status == "short":
        assert np.linalg.norm(found.weights @ rows) <= side * (1 + 1e-12) + 1e-12
    elif found.status == "clear":
        assert best > side
    else:
        assert found.status == "zero" or best >= side * (1 - 1e-6)
