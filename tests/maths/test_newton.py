"""Newton's method for the squared hinge: against other solvers, with far rows, and where numbers are unkind."""

from __future__ import annotations

import numpy as np
import pytest
import scipy.optimize as opt
from scipy.sparse import csr_array
from sklearn.svm import LinearSVC

from coremargin.maths import newton
from coremargin.maths import soft_margin as soft
from coremargin.maths.newton import Quadratic, Rows, minimise_squared_hinge


def problem(seed: int, n: int, d: int, flip: float = 0.1) -> tuple[np.ndarray, np.ndarray]:
    """Rows and signs; a share is on the wrong side."""
    rng = np.random.default_rng(seed)
    y = np.where(np.arange(n) % 2 == 0, 1, -1)
    X = rng.standard_normal((n, d)) + 0.8 * y[:, None] / np.sqrt(d)
    return X, np.where(rng.random(n) < flip, -y, y)


def signed(X: np.ndarray, y: np.ndarray, intercept: bool) -> np.ndarray:
    """y (x, 1), the last column zero without an intercept."""
    return y[:, None] * np.column_stack([X, np.full(len(X), float(intercept))])


def solve(X: np.ndarray, y: np.ndarray, c: np.ndarray, intercept: bool) -> tuple[np.ndarray, float]:
    """The whole problem from zero."""
    K, metric = signed(X, y, intercept), np.append(np.ones(X.shape[1]), 0.0)
    rows = Rows(K, c, np.zeros(len(K)))
    return minimise_squared_hinge(np.zeros(K.shape[1]), metric, Quadratic.zero(K.shape[1]), rows)


def gap(X: np.ndarray, y: np.ndarray, c: np.ndarray, intercept: bool, point: np.ndarray) -> float:
    """The duality gap of a hypothesis, from its own dual."""
    xi = np.maximum(0, 1 - y * (X @ point[:-1] + point[-1]))
    groups, cost = (y > 0, y < 0), c * xi
    dual = soft.squared_hinge_dual(
        np.array([cost[g].sum() for g in groups]), np.array([(cost * xi)[g].sum() for g in groups]),
        np.stack([cost[g] @ X[g] for g in groups]), np.ones(X.shape[1]), intercept, share=0.0,
    )  # fmt: skip
    return soft.relative_gap(float(0.5 * point[:-1] @ point[:-1] + cost @ xi), dual)


@pytest.mark.parametrize("intercept", [True, False])
@pytest.mark.parametrize("seed", range(4))
def test_it_finds_what_a_general_minimiser_finds(seed: int, intercept: bool) -> None:
    """On tiny problems the value is that of BFGS, and not above it."""
    X, y = problem(seed, 25, 3)
    c = np.where(y > 0, 2.0, 0.3)
    K = signed(X, y, intercept)

    def value(p: np.ndarray) -> float:
        return float(0.5 * p[:-1] @ p[:-1] + c @ np.maximum(0, 1 - K @ p) ** 2)

    point, found = solve(X, y, c, intercept)
    other = opt.minimize(value, np.zeros(4), method="BFGS", options={"gtol": 1e-9}).fun
    assert found == pytest.approx(value(point), rel=1e-13)
    assert found <= other * (1 + 1e-12)
    assert found == pytest.approx(other, rel=1e-7)


@pytest.mark.parametrize("C", [1e-3, 1.0, 100.0])
def test_it_agrees_with_liblinear(C: float) -> None:
    """Without an intercept LinearSVC solves the same problem and finds the same hyperplane."""
    X, y = problem(1, 400, 6)
    other = LinearSVC(C=C, fit_intercept=False, dual=False, tol=1e-12, max_iter=10_000).fit(X, y)
    point, _ = solve(X, y, np.full(400, C), intercept=False)
    assert point[:-1] == pytest.approx(other.coef_[0], rel=1e-6, abs=1e-8)


@pytest.mark.parametrize("share", [0.0, 0.3, 1.0])
def test_far_rows_count_as_their_quadratic(share: float) -> None:
    """Rows given as value, slope and curve lead to the minimiser of the sum of both, from any starting point."""
    X, y = problem(2, 200, 4, flip=0.4)
    K, rng = signed(X, y, intercept=True), np.random.default_rng(0)
    start, metric = 0.1 * rng.standard_normal(5), np.append(np.ones(4), 0.0)
    far = (K @ start < 0.8) & (rng.random(200) < share)
    slack = 1 - K[far] @ start
    quadratic = Quadratic(float(slack @ slack), -2 * K[far].T @ slack, K[far].T @ K[far])
    rows = Rows(K[~far], np.ones(int((~far).sum())), K[~far] @ start)
    point, found = minimise_squared_hinge(start, metric, quadratic, rows)

    def value(p: np.ndarray) -> float:
        near = np.maximum(0, 1 - K[~far] @ p)
        return float(0.5 * p[:-1] @ p[:-1] + ((1 - K[far] @ p) ** 2).sum() + near @ near)

    assert found == pytest.approx(value(point), rel=1e-12)
    assert found <= opt.minimize(value, start, method="BFGS").fun * (1 + 1e-9)


UNKIND = {
    "as it is": lambda X, y: (X, y),
    "columns thrice": lambda X, y: (np.column_stack([X, X, X]), y),
    "constant columns": lambda X, y: (np.column_stack([X, np.full(len(X), 7.0), np.zeros(len(X))]), y),
    "rows repeated": lambda X, y: (np.repeat(X[:20], 15, axis=0), np.repeat(y[:20], 15)),
    "zero rows": lambda X, y: (0 * X, y),
    "one column": lambda X, y: (X[:, :1], y),
    "one row of a class": lambda X, y: (X, np.where(np.arange(len(X)) == 3, 1, -1)),
    "separable": lambda X, y: (X + 4 * y[:, None], y),
    "far from the origin": lambda X, y: (X + 1e4, y),
    "odd units": lambda X, y: (X * np.geomspace(1e-5, 1e5, X.shape[1]), y),
    "zero and one": lambda X, y: ((X > 0).astype(float), y),
    "two rows": lambda X, y: (X[:2], np.array([1, -1])),
}


@pytest.mark.parametrize("intercept", [True, False])
@pytest.mark.parametrize("C", [1e-4, 1.0, 1e6])
@pytest.mark.parametrize("name", UNKIND)
def test_it_ends_at_the_minimum_of_unkind_problems(name: str, C: float, intercept: bool) -> None:
    """Whatever the rows are, the duality gap at the end is nothing."""
    X, y = UNKIND[name](*problem(3, 300, 5))
    c = np.full(len(X), C)
    point, _ = solve(X, y, c, intercept)
    assert gap(X, y, c, intercept, point) < (1e-3 if name in {"odd units", "far from the origin"} else 1e-6)


@pytest.mark.parametrize("scale", [1e-6, 1e-3, 1e3, 1e6])
def test_units_do_not_matter(scale: float) -> None:
    """Rows times a factor with C divided by its square is the same problem."""
    X, y = problem(4, 200, 4)
    one, _ = solve(X, y, np.ones(200), intercept=True)
    other, _ = solve(X * scale, y, np.full(200, scale**-2), intercept=True)
    direct, _ = solve(X * scale, y, np.ones(200), intercept=True)
    assert gap(X * scale, y, np.ones(200), True, direct) < 1e-4
    assert np.isfinite(other).all()
    assert (X @ one[:-1] + one[-1] > 0).mean() == pytest.approx(
        (X * scale @ other[:-1] + other[-1] > 0).mean(), abs=0.1
    )


@pytest.mark.parametrize("few", [0.0, 2.0, 1e18])
def test_a_hessian_that_follows_its_rows_is_as_good(few: float, monkeypatch: pytest.MonkeyPatch) -> None:
    """Whether the matrix is always, at times or never made of the rows that came and went, the gap closes."""
    monkeypatch.setattr(newton, "FEW", few)
    X, y = problem(8, 3000, 8)
    c = np.where(y > 0, 3.0, 0.2)
    assert gap(X, y, c, True, solve(X, y, c, True)[0]) <= 1e-11


def test_rows_without_loss_leave_only_the_penalty() -> None:
    """Where no row is below 1 at the start, the step is the one that shortens w, not a division by zero."""
    K = signed(np.array([[3.0], [-3.0]]), np.array([1, -1]), intercept=True)
    start = np.array([2.0, 0.0])
    rows = Rows(K, np.ones(2), K @ start)
    point, value = minimise_squared_hinge(start, np.array([1.0, 0.0]), Quadratic.zero(2), rows)
    assert value < 0.5 * (1 / 3) ** 2
    assert point[1] == pytest.approx(0, abs=1e-12)


def test_sparse_rows_have_the_same_minimum() -> None:
    """Band rows that are kept sparse, beside far rows in a quadratic, lead to the same point."""
    X, y = problem(5, 400, 12)
    X *= np.random.default_rng(5).random(X.shape) < 0.2
    K, c, metric = signed(X, y, True), np.linspace(0.1, 2.0, 400), np.append(np.ones(12), 0.0)
    far = K[:100]
    at = np.random.default_rng(6).standard_normal(13)
    slack = 1.0 - far @ at
    quadratic = Quadratic(float(c[:100] @ slack**2), -2.0 * far.T @ (c[:100] * slack), (far.T * c[:100]) @ far)
    kinds = (Rows(rows, c[100:], rows @ at) for rows in (K[100:], csr_array(K[100:])))
    found = [minimise_squared_hinge(at, metric, quadratic, rows) for rows in kinds]
    assert found[0][0] == pytest.approx(found[1][0], rel=1e-9, abs=1e-11)
    assert found[0][1] == pytest.approx(found[1][1], rel=1e-13)
