"""The machine on rows in memory: against LIBSVM, against a general minimiser, and its own gap."""

from __future__ import annotations

import numpy as np
import pytest
from scipy.optimize import minimize
from sklearn.svm import SVC

from coremargin.formats.choices import Loss
from coremargin.maths.kernel import machine
from coremargin.maths.kernel.functions import Kernel
from coremargin.maths.kernel.machine import Side, solve


def _noisy(rows: int, seed: int) -> tuple[np.ndarray, np.ndarray]:
    rng = np.random.default_rng(seed)
    x = rng.normal(size=(rows, 4))
    return x, np.where(x[:, 0] * x[:, 1] + 0.4 * rng.normal(size=rows) > 0, 1.0, -1.0)


def _matrix(x: np.ndarray, gamma: float = 0.4) -> np.ndarray:
    kernel = Kernel("rbf", gamma=gamma)
    return kernel.block(kernel.points(x), kernel.points(x))


@pytest.mark.parametrize("cost", [0.01, 1.0, 100.0])
def test_the_hinge_is_the_one_of_libsvm(cost: float) -> None:
    """Decision values and the dual's value, with weights of rows."""
    x, y = _noisy(150, 0)
    shares = np.random.default_rng(1).choice([0.5, 1.0, 2.0], 150)
    found = solve(_matrix(x), Side(y, cost * shares, "hinge", intercept=True), np.zeros(150), 1e-10)
    judge = SVC(C=cost, gamma=0.4, tol=1e-10).fit(x, y, sample_weight=shares)
    values = _matrix(x) @ (found.duals * y) + found.offset
    np.testing.assert_allclose(values, judge.decision_function(x), atol=1e-5 * max(1.0, cost))
    assert found.value - found.bound <= 1e-10 * found.value


@pytest.mark.specimens(1)
@pytest.mark.parametrize("loss", ["hinge", "squared_hinge"])
@pytest.mark.parametrize("intercept", [True, False])
def test_nothing_is_better_by_another_minimiser(loss: Loss, intercept: bool) -> None:
    """The primal, handed to a general method, ends no lower than the bound and no higher than the value."""
    x, y = _noisy(25, 2)
    matrix, costs = _matrix(x), np.full(25, 3.0)
    found = solve(matrix, Side(y, costs, loss, intercept), np.zeros(25), 1e-9)

    def value(at: np.ndarray) -> float:
        slack = np.maximum(0.0, 1.0 - y * (matrix @ at[:-1] + at[-1] * intercept))
        return float(0.5 * at[:-1] @ matrix @ at[:-1] + (costs * slack ** (1 if loss == "hinge" else 2)).sum())

    best = min(
        float(minimize(value, start, method=method, options={"maxiter": 20_000, "maxfev": 200_000}).fun)
        for start, method in ((np.zeros(26), "Powell"), (np.append(found.duals * y, found.offset), "Powell"))
    )
    assert best >= found.bound * (1 - 1e-9)
    assert found.value <= best * (1 + 1e-6)


def test_a_hard_margin_is_the_limit_of_large_costs() -> None:
    """Of rows that a narrow kernel separates."""
    x, y = _noisy(120, 3)
    matrix = _matrix(x, 3.0)
    found = solve(matrix, Side(y, np.ones(120), None, intercept=True), np.zeros(120), 1e-8)
    judge = SVC(C=1e9, gamma=3.0, tol=1e-9).fit(x, y)
    values = matrix @ (found.duals * y) + found.offset
    np.testing.assert_allclose(values, judge.decision_function(x), rtol=1e-4, atol=1e-4)
    assert (y * values).min() > 1 - 1e-6


def test_equal_rows_of_two_classes_have_no_hard_margin() -> None:
    """Their weights grow without end, and the solve ends all the same."""
    x, y = _noisy(60, 4)
    x[1], y[0], y[1] = x[0], 1.0, -1.0
    for intercept in (True, False):
        assert not solve(_matrix(x), Side(y, np.ones(60), None, intercept), np.zeros(60), 1e-6).separable


@pytest.mark.parametrize("intercept", [True, False])
def test_values_of_nothing_have_no_hard_margin_either(intercept: bool) -> None:
    """Rows of zeros under a kernel without a constant: no step leads anywhere, and the solve ends."""
    y = np.array([1.0, -1.0] * 5)
    assert not solve(np.zeros((10, 10)), Side(y, np.ones(10), None, intercept), np.zeros(10), 1e-6).separable


@pytest.mark.parametrize("loss", ["hinge", "squared_hinge", None])
@pytest.mark.parametrize("intercept", [True, False])
@pytest.mark.parametrize("size", [1e-60, 1e-14, 1e12])
def test_the_size_of_kernel_values_does_not_matter(loss: Loss | None, intercept: bool, size: float) -> None:
    """Of values times s and costs over s the answer is that over s, and what nothing separates is told."""
    x, y = _noisy(40, 8)
    matrix = _matrix(x, 0.4 if loss else 3.0)
    one = solve(matrix, Side(y, np.full(40, 2.0), loss, intercept), np.zeros(40), 1e-8)
    other = solve(matrix * size, Side(y, np.full(40, 2.0 / size), loss, intercept), np.zeros(40), 1e-8)
    assert (other.value * size, other.bound * size) == pytest.approx((one.value, one.bound), rel=1e-7)
    x[1], y[0], y[1] = x[0], 1.0, -1.0
    assert not solve(_matrix(x) * size, Side(y, np.ones(40), None, intercept), np.zeros(40), 1e-6).separable


@pytest.mark.parametrize("loss", ["hinge", "squared_hinge"])
def test_a_solve_may_begin_anywhere(loss: Loss) -> None:
    """At weights that are feasible, of another problem."""
    x, y = _noisy(100, 5)
    matrix = _matrix(x)
    cold = solve(matrix, Side(y, np.full(100, 2.0), loss, intercept=True), np.zeros(100), 1e-9)
    before = solve(matrix, Side(y, np.full(100, 0.5), loss, intercept=True), np.zeros(100), 1e-3)
    warm = solve(matrix, Side(y, np.full(100, 2.0), loss, intercept=True), before.duals, 1e-9)
    assert warm.bound == pytest.approx(cold.bound, rel=1e-8)
    assert abs(float(warm.duals @ y)) < 1e-10


def test_rows_of_one_class_need_no_function() -> None:
    """An intercept does."""
    x, _ = _noisy(10, 6)
    found = solve(_matrix(x), Side(np.ones(10), np.ones(10), "hinge", intercept=True), np.zeros(10), 1e-6)
    assert (found.value, found.offset, found.duals.any()) == (0.0, 1.0, False)


def test_what_grows_for_years_is_given_up(monkeypatch: pytest.MonkeyPatch) -> None:
    """With what is proven then, by weights that are feasible."""
    x, y = _noisy(60, 9)
    side = Side(y, np.full(60, 2.0), "hinge", intercept=True)
    monkeypatch.setattr(machine, "STEPS", 1)
    monkeypatch.setattr(machine, "MOST_FREE", 0)  # nor by Newton's steps
    monkeypatch.setattr(machine, "SWEEPS", 3)
    found = solve(_matrix(x), side, np.zeros(60), 1e-6)
    assert 0 < np.count_nonzero(found.duals) <= 6
    assert abs(float(found.duals @ y)) < 1e-12
    assert found.bound < 0.9 * found.value


def test_few_rows_are_given_up_after_few_sweeps(monkeypatch: pytest.MonkeyPatch) -> None:
    """Nothing that 20 rows need takes millions of steps."""
    looks = []
    monkeypatch.setattr(machine, "may_stop", lambda: looks.append(None))
    monkeypatch.setattr(machine, "VIOLATION", 0.0)
    monkeypatch.setattr(machine, "GAIN", -1e300)  # no sweep is in vain
    monkeypatch.setattr(machine, "STEPS", 1)
    monkeypatch.setattr(machine, "MOST_FREE", 0)
    x, y = _noisy(20, 9)
    solve(_matrix(x), Side(y, np.full(20, 1e6), "hinge", intercept=True), np.zeros(20), -np.inf)
    assert len(looks) == machine.FEW_SWEEPS


@pytest.mark.parametrize("name", ["pairwise_step", "single_step"])
def test_compiled_and_as_it_stands_it_does_the_same(name: str) -> None:
    """Step by step, but for the last bits."""
    from coremargin.maths.jit import jit

    x, y = _noisy(30, 7)
    matrix, plain = _matrix(x), getattr(machine, name)
    made = [np.stack([y, np.full(30, 1.0), np.zeros(30), np.zeros(30), -np.ones(30)]) for _ in range(2)]
    steps = [step(matrix, rows, 1.0, 1e-6, 10_000)[0] for step, rows in zip((plain, jit(plain)), made, strict=True)]
    assert steps[0] == pytest.approx(steps[1], abs=3)
    np.testing.assert_allclose(made[0][3], made[1][3], atol=1e-5)
