"""The definitions for several classes: scores, margins, Kesler's vectors, the simplex, bounds."""

from __future__ import annotations

import numpy as np
import pytest
import scipy.optimize as opt
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy.sparse import csr_array

from coremargin.maths import multiclass as mc
from kesler_vectors import kesler_vectors


def rows(seed: int, n: int = 30, p: int = 4, K: int = 4) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Rows, classes, a hypothesis."""
    rng = np.random.default_rng(seed)
    return rng.standard_normal((n, p)), rng.integers(0, K, n), rng.standard_normal((K, p))


@pytest.mark.parametrize("seed", range(4))
def test_margins_are_products_with_keslers_vectors(seed: int) -> None:
    """A row's margin is the smallest <V, z> over its rivals, and 1 less that is what it lacks."""
    X, y, V = rows(seed)
    z, pairs = kesler_vectors(X, y, len(V))
    level = np.full((len(X), len(V)), np.inf)
    level[tuple(np.array(pairs).T)] = z @ V.ravel()
    margin, rival = mc.margins(X @ V.T, y)
    np.testing.assert_allclose(margin, level.min(axis=1), atol=1e-13)
    assert (rival == level.argmin(axis=1)).all()
    t = mc.violations(X @ V.T, y)
    np.testing.assert_allclose(t[np.isfinite(level)], 1 - level[np.isfinite(level)], atol=1e-13)
    assert (t[np.arange(len(y)), y] == 0).all()


@pytest.mark.parametrize("seed", range(4))
def test_sums_of_keslers_vectors_need_not_be_written_out(seed: int) -> None:
    """``kesler_sum`` is the sum of the weighted vectors, and its length, rounded up, the upper bound."""
    X, y, V = rows(seed)
    z, pairs = kesler_vectors(X, y, len(V))
    a = np.random.default_rng(seed).random(len(z))
    a /= a.sum()
    weights = np.zeros((len(X), len(V)))
    weights[tuple(np.array(pairs).T)] = a
    np.testing.assert_allclose(mc.kesler_sum(X, y, weights, 0.0)[:, :-1].ravel(), a @ z, atol=1e-13)
    length = float(np.linalg.norm(a @ z))
    assert length <= mc.upper_bound(X, y, weights, 0.0) <= length * (1 + 1e-12) + 1e-12


def test_sparse_rows_meet_where_dense_ones_do() -> None:
    """Lengths about a point, and whether weights combine to nothing, in both forms of rows; far from the origin too."""
    rng = np.random.default_rng(8)
    X = np.round(rng.standard_normal((12, 5)) * 8) * (rng.random((12, 5)) < 0.5)
    y, point = np.arange(12) % 3, rng.standard_normal(5)
    X[3] = 0.0
    np.testing.assert_allclose(mc.lengths_about(csr_array(X), point), np.linalg.norm(X - point, axis=1), rtol=1e-14)
    X[1] = X[0]
    weights, other = np.zeros((12, 3)), np.zeros((12, 3))
    weights[0, 1] = weights[1, 0] = other[0, 1] = other[2, 0] = 0.5  # the same row in classes 0 and 1; rows 0 and 2
    for rows in (X, csr_array(X), X + 2.0**40):
        assert mc.meets(rows, y, weights, intercept=True)
        assert not mc.meets(rows, y, other, intercept=True)
    for rows in (X, csr_array(X)):
        assert mc.meets(rows, y, weights, intercept=False)
    lonely = np.zeros((12, 3))
    lonely[0, 1] = 1.0  # nothing is left of one row about itself, but its class only gives
    assert not mc.meets(X, y, lonely, intercept=True)
    np.testing.assert_array_equal(mc.class_balance(lonely, y), [1.0, -1.0, 0.0])


@pytest.mark.parametrize("sparse", [False, True])
def test_what_classes_are_given_too_much_counts_times_the_longest_row(sparse: bool) -> None:
    """Weights that leave nothing of long rows do not meet where a class is given 1e-14 more than it gives."""
    long = 1e14
    X = np.array([[-0.5, 0], [-1, long / 2], [0.5, 0], [1, long / 2], [-long, long], [long, long]])
    y, w, weights = np.array([0, 0, 1, 1, 2, 2]), 1 / (2 * long + 2), np.zeros((6, 3))
    weights[[0, 2], [1, 0]] = w * (long - 2)
    weights[[4, 5], [0, 1]] = w
    weights[[1, 3], [2, 2]] = 2 * w
    assert np.abs(mc.kesler_sum(X, y, weights, 0.0)).max() <= 1e-15
    assert 0 < np.abs(mc.class_balance(weights, y)).max() <= 2e-14
    assert not mc.meets(csr_array(X) if sparse else X, y, weights, intercept=True)


@pytest.mark.parametrize("sparse", [False, True])
@pytest.mark.parametrize("intercept", [False, True])
@pytest.mark.parametrize("apart", [1e-170, 1e-300])
def test_rows_whose_difference_has_no_square_do_not_meet(apart: float, intercept: bool, sparse: bool) -> None:
    """Lengths are known however short they are: zero is not what is left of rows that differ by 1e-170."""
    X, y = np.array([[float(intercept), apart], [float(intercept), -apart]]), np.array([0, 1])
    weights = np.array([[0.0, 0.5], [0.5, 0.0]])
    assert not mc.meets(csr_array(X) if sparse else X, y, weights, intercept=intercept)
    same = csr_array(X[[0, 0]]) if sparse else X[[0, 0]]
    assert mc.meets(same, y, weights, intercept=intercept)


def test_no_hypothesis_beats_the_upper_bound() -> None:
    """Any weights bound the margin of any hypothesis of length 1."""
    X, y, _ = rows(5)
    rng = np.random.default_rng(5)
    for _ in range(200):
        weights = rng.random((len(X), 4)) ** 8
        weights[np.arange(len(X)), y] = 0
        V = rng.standard_normal((4, 4))
        lower = mc.lower_bound(float(mc.margins(X @ V.T, y)[0].min()), V)
        assert lower <= mc.upper_bound(X, y, weights / weights.sum(), 0.0)


@settings(max_examples=60, deadline=None)
@given(st.integers(0, 10**6), st.integers(2, 6), st.floats(-8, 8))
def test_projection_on_the_simplex_is_the_nearest_point(seed: int, K: int, size: float) -> None:
    """It is on the simplex, and no point of it has an angle below 90 degrees seen from there (the obtuse criterion)."""
    v = np.random.default_rng(seed).standard_normal((5, K)) * 10.0**size
    a = mc.simplex(v)
    assert (a >= 0).all()
    np.testing.assert_allclose(a.sum(axis=1), 1, atol=1e-9)
    direction = v - a
    best = direction.max(axis=1)  # the corner furthest in that direction
    np.testing.assert_allclose(best, (direction * a).sum(axis=1), atol=1e-9 * (1 + np.abs(v).max()))


def test_projection_agrees_with_a_general_minimiser() -> None:
    """The same point as SLSQP finds."""
    v = np.array([0.4, -0.3, 0.9, 0.1])
    found = opt.minimize(
        lambda a: ((a - v) ** 2).sum(), np.full(4, 0.25), bounds=[(0, None)] * 4,
        constraints={"type": "eq", "fun": lambda a: a.sum() - 1}, options={"ftol": 1e-14},
    )  # fmt: skip
    np.testing.assert_allclose(mc.simplex(v[None])[0], found.x, atol=1e-6)


def test_the_constant_is_a_power_of_two_on_the_scale_of_the_rows() -> None:
    """Products with it are exact; without an intercept there is none."""
    assert [mc.constant(x, intercept=True) for x in (0.3, 1.0, 5.0, 64.0, 0.0)] == [0.5, 1.0, 8.0, 64.0, 1.0]
    assert mc.constant(5.0, intercept=False) == 0.0


def test_the_error_of_a_margin_is_bounded() -> None:
    """float64 margins and exact ones differ by less than ``score_error``."""
    from coremargin.maths.exact import exact_decisions

    X, y, V = rows(9, n=200, p=30)
    X *= 10.0 ** np.random.default_rng(0).integers(-3, 4, 30)
    exact = np.stack([exact_decisions(X, v, 0.0) for v in V], axis=1)
    fast = mc.margins(X @ V.T, y)[0]
    at = np.column_stack([V, np.zeros(4)])
    longest = float(np.linalg.norm(X, axis=1).max())
    assert (np.abs(fast - mc.margins(exact, y)[0]) <= mc.score_error(30, longest, at, 0.0)).all()
