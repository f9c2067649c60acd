"""The interior-point method for the hinge: against other solvers, losses on both sides, and unkind numbers."""

from __future__ import annotations

import numpy as np
import pytest
import scipy.optimize as opt
from sklearn.svm import SVC

from coremargin.maths import interior
from coremargin.maths.interior import HingeModel, minimise_hinge
from test_newton import UNKIND, problem, signed


def value(model: HingeModel, p: np.ndarray) -> float:
    """The primal value by its definition."""
    s = model.rows @ p
    loss = model.right @ np.maximum(0, 1 - s) + model.left @ np.maximum(0, s - 1)
    return float(0.5 * model.metric @ p**2 - model.linear @ p + loss)


def violation(model: HingeModel, a: np.ndarray) -> float:
    """How far the linear term and duals are from leaving the columns without penalty in balance."""
    free = model.metric == 0
    return float(np.abs(model.linear[free] + a @ model.rows[:, free]).max(initial=0.0))


def dual(model: HingeModel, a: np.ndarray) -> float:
    """The dual value of duals in balance."""
    penalised = model.metric > 0
    v = (model.linear + a @ model.rows)[penalised]
    return float(a.sum() - 0.5 * (v**2 / model.metric[penalised]).sum())


def plain(X: np.ndarray, y: np.ndarray, C: float, intercept: bool) -> HingeModel:
    """All rows in the band."""
    K = signed(X, y, intercept)
    row_c = np.full(len(X), C)
    return HingeModel(np.append(np.ones(X.shape[1]), 0.0), np.zeros(K.shape[1]), K, row_c, 0 * row_c)


def assert_solved(model: HingeModel, share: float) -> None:
    """Duals lie in the box and in balance, and prove the value but for a share."""
    p, a = minimise_hinge(model)
    assert (a >= -model.left).all()
    assert (a <= model.right).all()
    size = float(model.right.sum() + model.left.sum())
    assert violation(model, a) <= 1e-6 * size
    assert value(model, p) - dual(model, a) <= share * max(abs(value(model, p)), 1e-9 * size)


@pytest.mark.parametrize("C", [0.01, 1.0, 50.0])
@pytest.mark.parametrize("seed", range(3))
def test_it_agrees_with_libsvm(seed: int, C: float) -> None:
    """SVC with a linear kernel has the same objective and no better value; its hyperplane is ours."""
    X, y = problem(seed, 150, 4)
    other = SVC(kernel="linear", C=C, tol=1e-8).fit(X, y)
    model = plain(X, y, C, intercept=True)
    p, _ = minimise_hinge(model)
    theirs = value(model, np.append(other.coef_[0], other.intercept_))
    assert value(model, p) <= theirs * (1 + 1e-8)
    assert p[:-1] == pytest.approx(other.coef_[0], rel=1e-3, abs=1e-4)


def reference(model: HingeModel) -> float:
    """The value by a general solver: one variable more per row and side."""
    p, m = len(model.metric), len(model.right)

    def goal(z: np.ndarray) -> float:
        x, low, high = z[:p], z[p : p + m], z[p + m :]
        return float(0.5 * model.metric @ x**2 - model.linear @ x + model.right @ low + model.left @ high)

    bounds = [(None, None)] * p + [(0, None)] * (2 * m)
    sides = [
        {"type": "ineq", "fun": lambda z: z[p : p + m] - 1 + model.rows @ z[:p]},
        {"type": "ineq", "fun": lambda z: z[p + m :] + 1 - model.rows @ z[:p]},
    ]
    start = np.concatenate([np.zeros(p), np.ones(m), np.zeros(m)])
    return float(opt.minimize(goal, start, bounds=bounds, constraints=sides, method="SLSQP", tol=1e-10).fun)


@pytest.mark.parametrize("seed", range(5))
def test_linear_terms_and_losses_on_both_sides(seed: int) -> None:
    """With a linear term, and rows with a loss on the left, the right or both, a general solver does no better."""
    rng = np.random.default_rng(seed)
    X, y = problem(seed, 10, 2)
    right = rng.choice([0.0, 0.5, 2.0], 10)
    left = np.where(right == 0, 1.0, rng.choice([0.0, 0.7], 10))
    right[:2], left[:2] = 3.0, 3.0  # rows enough to pay for whatever the linear term wants of the intercept
    model = HingeModel(np.array([1.0, 2.0, 0.0]), np.array([0.3, -0.2, 0.4]), signed(X, y, True), right, left)
    p, _ = minimise_hinge(model)
    assert value(model, p) == pytest.approx(reference(model), rel=1e-6, abs=1e-6)
    assert_solved(model, 1e-6)


@pytest.mark.parametrize("intercept", [True, False])
@pytest.mark.parametrize("C", [1e-4, 1.0, 1e6])
@pytest.mark.parametrize("name", UNKIND)
def test_it_solves_unkind_problems(name: str, C: float, intercept: bool) -> None:
    """Whatever the rows are, primal and dual meet."""
    X, y = UNKIND[name](*problem(3, 300, 5))
    assert_solved(plain(X, y, C, intercept), 1e-3 if name in {"odd units", "far from the origin"} else 1e-5)


@pytest.mark.parametrize("scale", [1e-25, 1e-6, 1e3, 1e6, 1e20])
@pytest.mark.parametrize("C", [1e-4, 1.0])
def test_units_do_not_matter(scale: float, C: float) -> None:
    """Rows a million times longer or shorter are solved as well; beyond float64's reach nothing turns into NaN."""
    X, y = problem(4, 200, 4)
    model = plain(X * scale, y, C, intercept=True)
    p, a = minimise_hinge(model)
    assert np.isfinite(p).all()
    assert np.isfinite(a).all()
    if scale < 1e6:
        assert_solved(model, 1e-5)


def test_prices_may_differ_by_much() -> None:
    """One row as dear as a thousand others together is solved as well."""
    X, y = problem(5, 1000, 3)
    y = np.where(np.arange(1000) == 5, 1, -1)
    model = plain(X, y, 1.0, intercept=True)
    row_c = np.where(y > 0, 500.0, 0.5005)
    assert_solved(HingeModel(model.metric, model.linear, model.rows, row_c, 0 * row_c), 1e-5)


@pytest.mark.parametrize("placed", [0.0, 0.01, 0.3, 0.45])
@pytest.mark.parametrize("dear", [1.0, 40.0])
def test_rows_that_left_too_early_come_back(placed: float, dear: float, monkeypatch: pytest.MonkeyPatch) -> None:
    """However soon rows leave the system, and whatever they cost, the end is the same."""
    X, y = problem(7, 1500, 6)
    model = plain(X, y, 1.0, intercept=True)
    row_c = np.where(np.arange(1500) % 3 == 0, dear, 1.0)
    left = np.where(np.arange(1500) % 9 == 0, dear, 0.0)
    model = HingeModel(model.metric, model.linear, model.rows, np.where(left > 0, 0.0, row_c), left)
    monkeypatch.setattr(interior, "PLACED", placed)
    assert_solved(model, 1e-7)


def test_the_same_model_gives_the_same_bits() -> None:
    """The method has no randomness."""
    X, y = problem(6, 100, 3)
    one, other = (minimise_hinge(plain(X, y, 1.0, True)) for _ in range(2))
    assert one[0].tobytes() == other[0].tobytes()
    assert one[1].tobytes() == other[1].tobytes()
