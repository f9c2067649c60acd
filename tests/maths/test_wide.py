"""Newton's method in the span of wide rows, against brute force, another solver and the exact kernel."""

from __future__ import annotations

import numpy as np
import pytest
from scipy.sparse import csr_array

from coremargin.maths import hard_margin as hard_margin_module
from coremargin.maths import wide
from coremargin.maths.hard_margin import solve_hard_margin
from coremargin.maths.nearest import nearest_point
from coremargin.maths.wide import nearest_wide
from margin_judges import hulls_meet, margin_by_daqp, shortest_by_supports


def sparse_rows(rng: np.random.Generator, n: int, d: int, words: int = 10) -> tuple[csr_array, np.ndarray]:
    """Rows with a few of d features, pushed to the two sides of a plane."""
    X = np.zeros((n, d))
    for row in X:
        row[rng.choice(d, words, replace=False)] = rng.random(words) + 0.1
    w = rng.standard_normal(d)
    y = np.where(X @ w > np.median(X @ w), 1, -1)
    return csr_array(X), y


@pytest.mark.parametrize("intercept", [True, False])
@pytest.mark.parametrize(("n", "d"), [(2, 40), (25, 30), (60, 200), (150, 90), (300, 2000)])
def test_points_are_those_of_the_exact_kernel(rng: np.random.Generator, n: int, d: int, *, intercept: bool) -> None:
    """Point and distance equal those of the active-set kernel, weights sum to 1, and the gap is what it claims."""
    X, y = sparse_rows(rng, n, d)
    y[:2] = (1, -1)
    z, groups = X.toarray() * y[:, None], (y > 0).astype(np.int64) * intercept
    found = nearest_wide(csr_array(z), groups, tolerance=1e-10, zero=1e-12)
    exact = nearest_point(z, groups, tolerance=1e-12, zero=1e-12)
    length = float(np.linalg.norm(exact.point))
    if length > 1e-6:
        assert found.status == "optimal"
    assert np.linalg.norm(found.point) == pytest.approx(length, rel=1e-9, abs=1e-7)
    assert found.point == pytest.approx(exact.point, abs=1e-5)
    assert found.weights.min() >= 0
    gap = 0.0
    for group in np.unique(groups):
        assert found.weights[groups == group].sum() == pytest.approx(1, abs=1e-14)
        levels = z[groups == group] @ found.point
        gap += found.weights[groups == group] @ levels - levels.min()
    assert gap == pytest.approx(found.gap, abs=1e-12)


def test_tiny_hulls_equal_brute_force(rng: np.random.Generator) -> None:
    """The distance is the least over all supports, for one group and for two."""
    for _ in range(25):
        z = np.round(rng.standard_normal((5, 8)) * 2) + 1.0
        for groups in (np.array([1, 0, 1, 0, 1]), np.zeros(5, np.int64)):
            found = nearest_wide(csr_array(z), groups, tolerance=1e-12, zero=1e-9)
            best = shortest_by_supports(z, groups)
            assert np.linalg.norm(found.point) == pytest.approx(best, rel=1e-8, abs=1e-6)


@pytest.mark.parametrize("rows", [0, 5, 1000])
def test_equations_of_any_size_are_solved(rng: np.random.Generator, monkeypatch: pytest.MonkeyPatch, rows: int) -> None:
    """By conjugate gradients, by a Gram matrix of the active rows or of all, the answer is the same."""
    X, y = sparse_rows(rng, 120, 1500)
    z, groups = csr_array(X.toarray() * y[:, None]), (y > 0).astype(np.int64)
    whole = nearest_wide(z, groups, tolerance=1e-9, zero=1e-12)
    monkeypatch.setattr(wide, "GRAM_ROWS", rows)
    found = nearest_wide(z, groups, tolerance=1e-9, zero=1e-12)
    assert found.status == whole.status == "optimal"
    assert found.point == pytest.approx(whole.point, abs=1e-8)


def test_weights_to_start_from_change_nothing_but_the_way(rng: np.random.Generator) -> None:
    """From its own answer the method is done at once; from weights of half the rows it ends at the same point."""
    X, y = sparse_rows(rng, 200, 1500)
    z, groups = csr_array(X.toarray() * y[:, None]), (y > 0).astype(np.int64)
    cold = nearest_wide(z, groups, tolerance=1e-9, zero=1e-12)
    assert nearest_wide(z, groups, cold.weights, tolerance=1e-8, zero=1e-12).steps == 0
    half = nearest_wide(z[:100], groups[:100], tolerance=1e-9, zero=1e-12)
    warm = nearest_wide(z, groups, np.append(half.weights, np.zeros(100)), tolerance=1e-9, zero=1e-12)
    assert warm.status == "optimal"
    assert warm.point == pytest.approx(cold.point, abs=1e-8)


def test_copies_share_their_weight(rng: np.random.Generator) -> None:
    """Every row three times over is no obstacle: the same point."""
    X, y = sparse_rows(rng, 80, 1200)
    z, groups = X.toarray() * y[:, None], (y > 0).astype(np.int64)
    once = nearest_wide(csr_array(z), groups, tolerance=1e-10, zero=1e-12)
    often = nearest_wide(csr_array(np.tile(z, (3, 1))), np.tile(groups, 3), tolerance=1e-10, zero=1e-12)
    assert often.status == "optimal"
    assert often.point == pytest.approx(once.point, abs=1e-8)


def test_rows_of_zeros_have_no_length() -> None:
    """Nothing but zeros is at the origin, and a zero row among others is where the hull touches it."""
    assert nearest_wide(csr_array((4, 50)), np.zeros(4, np.int64)).status == "zero"
    z = csr_array(np.array([[1.0, 0.0], [0.0, 0.0]]))
    assert np.linalg.norm(nearest_wide(z, np.zeros(2, np.int64)).point) < 1e-6


# pools


@pytest.mark.parametrize("intercept", [True, False])
@pytest.mark.parametrize(("n", "d"), [(30, 1200), (300, 1100), (500, 40)])
def test_sparse_pools_equal_daqp_and_dense_pools(rng: np.random.Generator, n: int, d: int, *, intercept: bool) -> None:
    """The margin of a sparse pool is that of the same rows dense, and on few rows that of daqp."""
    X, y = sparse_rows(rng, n, d, words=min(10, d))
    if d == 40:
        X = csr_array(X.toarray() + 2.0 * y[:, None] * (np.arange(d) < 3))
    found, dense = solve_hard_margin(X, y, intercept=intercept), solve_hard_margin(X.toarray(), y, intercept=intercept)
    assert found.status == dense.status == "optimal"
    assert found.upper == pytest.approx(dense.upper, rel=1e-9)
    assert found.w == pytest.approx(dense.w, abs=1e-6)
    assert abs(np.linalg.norm(found.w) - 1) < 1e-12
    if n < 100:
        assert found.upper == pytest.approx(margin_by_daqp(X.toarray(), y, intercept=intercept), rel=1e-6)


@pytest.mark.slow
def test_large_sparse_pools_grow_their_working_set(rng: np.random.Generator, monkeypatch: pytest.MonkeyPatch) -> None:
    """With few rows entering at a time the answer is that of all rows at once."""
    X, y = sparse_rows(rng, 600, 1500)
    whole = solve_hard_margin(X, y, intercept=True)
    monkeypatch.setattr(hard_margin_module, "BATCH", 40)
    found = solve_hard_margin(X, y, intercept=True)
    assert found.upper == pytest.approx(whole.upper, rel=1e-8)


@pytest.mark.parametrize("intercept", [True, False])
def test_the_proof_of_overlap_is_small(rng: np.random.Generator, *, intercept: bool) -> None:
    """Where hulls meet, the rows that prove it are told from the others, by a linear program as well."""
    X, y = sparse_rows(rng, 200, 1300)
    dense = X.toarray()
    mixed = np.flatnonzero(y > 0)[:6]
    dense[np.flatnonzero(y < 0)[0]] = rng.dirichlet(np.ones(6)) @ dense[mixed]
    found = solve_hard_margin(csr_array(dense), y, intercept=intercept)
    used = np.flatnonzero(found.weights)
    assert found.status == "zero"
    assert not found.w.any()
    assert len(used) <= 20
    assert found.upper < 1e-12
    columns = dense[used].any(axis=0)
    assert hulls_meet(dense[used][:, columns], y[used], intercept=intercept) < 1e-9


def test_what_newton_leaves_open_the_exact_kernel_settles(
    rng: np.random.Generator, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Stopped far from the tolerance, the pool is solved by the other kernel to the same margin."""
    X, y = sparse_rows(rng, 60, 1300)
    expected = solve_hard_margin(X, y, intercept=True)
    monkeypatch.setattr(wide, "PROXIMAL_STEPS", 0)
    found = solve_hard_margin(X, y, intercept=True)
    assert found.status == "optimal"
    assert found.upper == pytest.approx(expected.upper, rel=1e-9)
    monkeypatch.setattr(hard_margin_module, "KERNEL_ROWS", 10)
    assert solve_hard_margin(X, y, intercept=True).status == "stalled"
