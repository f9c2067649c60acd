"""The hard margin of several classes on a pool: against a QP solver, against two classes, where nothing separates."""

from __future__ import annotations

from ctypes import c_int

import daqp
import numpy as np
import pytest

from coremargin.blas import one_blas_thread
from coremargin.maths.hard_margin import solve_hard_margin
from coremargin.maths.kesler import KeslerSolution, solve_kesler
from coremargin.maths.multiclass import margins, upper_bound
from kesler_vectors import kesler_vectors


def separable(seed: int, n: int, d: int, K: int, gap: float = 0.05) -> tuple[np.ndarray, np.ndarray]:
    """Rows with the class of the largest score of a random hypothesis, those nearly undecided left out."""
    rng = np.random.default_rng(seed)
    V, X = rng.standard_normal((K, d)), rng.standard_normal((40 * n, d))
    scores = np.sort(X @ V.T, axis=1)
    X = X[scores[:, -1] - scores[:, -2] > gap][:n]
    return X, (X @ V.T).argmax(axis=1)


def check(X: np.ndarray, y: np.ndarray, found: KeslerSolution, tolerance: float = 1e-8) -> float:
    """Hypothesis and weights prove what is said; the margin."""
    assert found.status == "optimal"
    assert np.linalg.norm(found.at) == pytest.approx(1.0, abs=1e-12)
    assert (found.weights >= 0).all()
    assert found.weights.sum() == pytest.approx(1.0, abs=1e-12)
    assert (found.weights[np.arange(len(y)), y] == 0).all()
    margin = float(margins(X @ found.at.T, y)[0].min())
    assert upper_bound(X, y, found.weights, 0.0) == pytest.approx(found.upper, rel=1e-9)
    assert margin <= found.upper <= margin * (1 + tolerance)
    return margin


@pytest.mark.parametrize("seed", range(8))
def test_it_finds_what_a_qp_solver_finds(seed: int) -> None:
    """min ||V||^2 / 2 with every margin at least 1, by daqp on Kesler's vectors written out."""
    K = 3 + seed % 3
    X, y = separable(seed, 30, 4, K)
    z, _ = kesler_vectors(X, y, K)
    m, p = z.shape
    solved = daqp.solve(np.eye(p), np.zeros(p), z, np.full(m, 1e30), np.ones(m), np.zeros(m, dtype=c_int))
    margin = check(X, y, solve_kesler(X, y, K))
    assert margin == pytest.approx(1 / np.linalg.norm(solved[0]), rel=1e-7)


@pytest.mark.parametrize("seed", range(4))
def test_two_classes_are_a_hyperplane_times_root_two(seed: int) -> None:
    """V = (-w, w) / root 2 of the hyperplane through the origin."""
    X, y = separable(seed, 60, 5, 2)
    margin = check(X, y, solve_kesler(X, y, 2))
    plane = solve_hard_margin(X, 2 * y - 1, intercept=False)
    assert margin == pytest.approx(np.sqrt(2) * plane.upper, rel=1e-8)


def test_a_class_that_is_only_a_rival_counts() -> None:
    """A class without rows is a rival of all others: the margin is that of three classes."""
    X, y = separable(1, 40, 3, 2)
    found = solve_kesler(X, y, 3)
    assert check(X, y, found) < check(X, y, solve_kesler(X, y, 2))


def test_fewer_rows_than_features() -> None:
    """More features than rows: nearly every row carries the margin."""
    rng = np.random.default_rng(0)
    X, y = rng.standard_normal((60, 400)), rng.integers(0, 5, 60)
    with one_blas_thread():  # as in a job
        check(X, y, solve_kesler(X, y, 5))


@pytest.mark.specimens(1)
@pytest.mark.parametrize(("n", "K"), [(10, 10), (20, 3), (20, 5), (30, 10), (120, 5)])
def test_the_end_of_float64_is_noticed(n: int, K: int, monkeypatch: pytest.MonkeyPatch) -> None:
    """Few rows with a large C: steps that move nothing but the last bits of shares are not taken again and again."""
    import coremargin.maths.simplex_newton as module

    steps, real = [], module.newton_step
    monkeypatch.setattr(module, "newton_step", lambda *given: steps.append(1) or real(*given))
    for seed in range(3):
        rng = np.random.default_rng(seed)
        X, y = rng.standard_normal((n, 400)), rng.integers(0, K, n)
        with one_blas_thread():
            check(X, y, solve_kesler(X, y, K))
    assert 3 < len(steps) < 3 * 100  # up to 80 a problem, by the processor's order of sums


def test_large_pools_are_solved_on_a_part_that_grows(monkeypatch: pytest.MonkeyPatch) -> None:
    """A working set of rows ends at the margin of all of them."""
    import coremargin.maths.kesler as module

    X, y = separable(4, 900, 5, 4, gap=0.2)
    whole = solve_kesler(X, y, 4)
    monkeypatch.setattr(module, "WORK", 40)
    assert check(X, y, solve_kesler(X, y, 4)) == pytest.approx(check(X, y, whole), rel=1e-8)


def test_rows_at_the_origin_separate_nothing() -> None:
    """Only zeros: the hull is the origin."""
    assert solve_kesler(np.zeros((3, 2)), np.array([0, 1, 2]), 3).status == "zero"


@pytest.mark.parametrize("scale", [1e-8, 1.0, 1e8])
def test_units_do_not_matter(scale: float) -> None:
    """Rows in other units have a margin in those units."""
    X, y = separable(2, 50, 4, 4)
    assert check(X * scale, y, solve_kesler(X * scale, y, 4)) == pytest.approx(
        scale * check(X, y, solve_kesler(X, y, 4)), rel=1e-8
    )


def test_a_tiny_margin_is_found() -> None:
    """Two rows that nearly coincide decide; their margin is a millionth of the rows' length."""
    rng = np.random.default_rng(3)
    X, y = rng.standard_normal((6, 10)), np.array([0, 1, 2, 0, 1, 2])
    X, y = np.vstack([X, X[0] + 1e-6 * rng.standard_normal(10)]), np.append(y, 1)
    margin = check(X, y, solve_kesler(X, y, 3), 1e-6)
    assert margin < 5e-6


@pytest.mark.parametrize("seed", range(4))
def test_rows_that_nothing_separates_are_proven_to_be_so(seed: int) -> None:
    """A row with two classes: the bound is zero for float64, from few rows."""
    X, y = separable(seed, 60, 4, 4)
    X, y = np.vstack([X, X[:1]]), np.append(y, (y[0] + 1) % 4)
    found = solve_kesler(X, y, 4)
    assert found.status == "zero"
    assert not found.at.any()
    assert upper_bound(X, y, found.weights, 0.0) <= 1e-11
    assert (found.weights > 0).sum() <= 4 * 4 + 1


def test_hulls_that_meet_without_equal_rows() -> None:
    """Classes in layers along a line with an intercept can be told apart, the middle one twice cannot."""
    X = np.column_stack([np.arange(5.0), np.ones(5)])
    assert solve_kesler(X, np.array([0, 0, 1, 2, 2]), 3).status == "optimal"
    assert solve_kesler(X, np.array([0, 1, 2, 1, 0]), 3).status == "zero"
