"""Relative margins with a kernel matrix: the value is that of daqp, the bound is that of a dual point."""

from __future__ import annotations

import numpy as np
import pytest

from coremargin.maths.kernel.machine import Side, Solution, solve
from coremargin.maths.kernel.relative_machine import solve_within
from coremargin.maths.relative_margin import phi
from relative_margin_judge import noisy, value_by_daqp


def matrix_of(X: np.ndarray, kernel: str) -> np.ndarray:
    """Kernel values (n, n)."""
    if kernel == "rbf":
        return np.asarray(np.exp(-0.2 * ((X[:, None] - X) ** 2).sum(axis=2)))
    return np.asarray(X @ X.T if kernel == "linear" else (0.5 * X @ X.T + 1.0) ** 3)


def check_by_definition(found: Solution, K: np.ndarray, side: Side) -> None:
    """The scaled function keeps the bound and has the stated value; its g have the stated one."""
    g = found.scale * found.duals
    decisions = K @ (side.signs * g) + found.scale * found.offset
    square = (side.signs * g) @ K @ (side.signs * g)
    losses = side.costs @ np.where(side.signs != 0, np.maximum(1.0 - side.signs * decisions, 0.0), 0.0)
    assert np.abs(decisions[side.signs != 0]).max() <= side.bound * (1 + 1e-12)
    assert found.value == pytest.approx(0.5 * square + losses, rel=1e-9)
    assert found.bound == pytest.approx(phi(g, side.costs, side.bound).sum() - 0.5 * square, rel=1e-9)
    assert not g[side.signs == 0].any()
    if side.intercept:
        assert abs(side.signs @ g) <= 1e-11 * np.abs(g).sum()


@pytest.mark.parametrize("kernel", ["linear", "rbf", "poly"])
@pytest.mark.parametrize("bound", [1.05, 1.5, 2.5])
@pytest.mark.parametrize("cost", [1e-3, 0.1, 10.0])
@pytest.mark.parametrize("intercept", [True, False])
def test_the_value_is_that_of_daqp(kernel: str, bound: float, cost: float, *, intercept: bool) -> None:
    """To 1e-7, with the rows of a factor of the kernel matrix as daqp's."""
    X, y = noisy(1, 50, 3)
    costs, K = cost * np.random.default_rng(2).uniform(0.5, 2.0, 50), matrix_of(X, kernel)
    side = Side(y, costs, "hinge", intercept, bound=bound)
    found = solve_within(K, side, np.zeros(50), 1e-9)
    check_by_definition(found, K, side)
    values, vectors = np.linalg.eigh(K)
    kept = values > 1e-12 * values[-1]
    features = vectors[:, kept] * np.sqrt(values[kept])
    assert found.value == pytest.approx(value_by_daqp(features, y, costs, bound, intercept=intercept), rel=1e-7)
    assert found.value - found.bound <= 1e-9 * found.value


@pytest.mark.parametrize("intercept", [True, False])
def test_a_wide_bound_is_none(*, intercept: bool) -> None:
    """The machine is that of the hinge loss alone."""
    X, y = noisy(2, 80, 3)
    K, side = matrix_of(X, "rbf"), Side(y, np.full(80, 3.0), "hinge", intercept, bound=1e3)
    found, plain = solve_within(K, side, np.zeros(80), 1e-9), solve(K, side, np.zeros(80), 1e-9)
    assert found.value == pytest.approx(plain.value, rel=2e-9)
    assert found.scale == 1.0


@pytest.mark.parametrize("dtype", [np.float64, np.float32])
def test_rows_that_take_no_part_cost_nothing_and_equal_rows_cost_twice(dtype: type) -> None:
    """Rows of sign 0 and of cost 0, which only has to keep the bound; equal rows of both classes; a warm start."""
    X, y = noisy(3, 60, 2)
    X[30:40], y[35:40] = X[:10], -y[:5]
    signs, costs = y.copy(), np.full(60, 0.5)
    signs[50:], costs[50:], costs[45:50] = 0.0, 0.0, 0.0
    K = matrix_of(X, "rbf").astype(dtype)
    side = Side(signs, costs, "hinge", intercept=True, bound=1.2)
    found = solve_within(K, side, np.zeros(60), 1e-6)
    check_by_definition(found, K.astype(float), side)
    assert found.value - found.bound <= 1e-6 * found.value
    again = solve_within(K, side, found.duals, 1e-6)
    assert again.value == pytest.approx(found.value, rel=1e-6)
    few = np.arange(50)
    alone = Side(signs[few], costs[few], "hinge", intercept=True, bound=1.2)
    rest = solve_within(K[:50, :50], alone, np.zeros(50), 1e-6)
    assert rest.value == pytest.approx(found.value, rel=1e-6)
