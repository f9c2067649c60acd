"""The soft margin of several classes in memory: against other solvers, with rows summed up, with a C for each row."""

from __future__ import annotations

import warnings

import numpy as np
import pytest
from scipy.sparse import csr_array
from sklearn.datasets import load_digits, load_iris, load_wine
from sklearn.svm import SVC, LinearSVC

from coremargin.maths.multiclass import kesler_sum, simplex, violations
from coremargin.maths.simplex_newton import ClassesModel, Minimum, minimise_classes


def model(X: np.ndarray, y: np.ndarray, row_c: np.ndarray | float, classes: int | None = None) -> ClassesModel:
    """The whole problem, nothing summed up."""
    K = classes or int(y.max()) + 1
    violations0 = violations(np.zeros((len(X), K)), y)
    return ClassesModel(0.0, violations0, X, y, np.broadcast_to(np.asarray(row_c, float), len(y)))


def objective(X: np.ndarray, y: np.ndarray, row_c: np.ndarray | float, V: np.ndarray) -> float:
    """Written out, row by row."""
    scores, losses = X @ V.T, np.zeros(len(X))
    for i in range(len(X)):
        losses[i] = max(0.0, *(1 - scores[i, y[i]] + scores[i, r] for r in range(len(V)) if r != y[i]))
    return float(0.5 * (V * V).sum() + np.sum(row_c * losses))


def solve(problem: ClassesModel, tolerance: float = 1e-9) -> Minimum:
    """From zero; the duals are feasible and prove what they say."""
    found = minimise_classes(problem, tolerance)
    assert (found.duals >= 0).all()
    assert (found.duals.sum(axis=1) <= problem.row_c * (1 + 1e-12)).all()
    assert (found.duals[np.arange(len(problem.codes)), problem.codes] == 0).all()
    at = kesler_sum(problem.rows, problem.codes, found.duals, 0.0)
    value = problem.fixed_loss + (found.duals * problem.violations0).sum() - 0.5 * (at * at).sum()
    assert found.dual == pytest.approx(float(value), rel=1e-9, abs=1e-12)
    assert found.value - found.dual <= tolerance * found.value
    return found


def blobs(seed: int, n: int, d: int, K: int) -> tuple[np.ndarray, np.ndarray]:
    """Rows of K classes that overlap."""
    rng = np.random.default_rng(seed)
    y = rng.integers(0, K, n)
    return rng.standard_normal((n, d)) + rng.standard_normal((K, d))[y], y


@pytest.mark.specimens(3)
@pytest.mark.parametrize("C", [0.01, 1.0])
@pytest.mark.parametrize("data", [load_iris, load_wine, load_digits])
def test_it_finds_what_liblinear_finds(data: object, C: float) -> None:
    """The objective of LinearSVC(multi_class="crammer_singer") at tight tolerance lies within the claimed gap."""
    X, y = data(return_X_y=True)  # type: ignore[operator]
    X, y = (X - X.mean(axis=0))[:700] / (X.std(axis=0) + 1e-9), y[:700]
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # of their own deprecations, and of their iteration limit
        other = LinearSVC(multi_class="crammer_singer", fit_intercept=False, C=C, tol=1e-8, random_state=0)
        theirs = objective(X, y, C, other.fit(X, y).coef_)
    found = solve(model(X, y, C), 1e-6)
    assert found.value == pytest.approx(objective(X, y, C, found.at[:, :-1]), rel=1e-12)
    assert found.dual <= theirs
    assert found.value <= theirs * (1 + 1e-6)


@pytest.mark.parametrize("seed", range(3))
def test_two_classes_are_the_hinge_at_twice_the_price(seed: int) -> None:
    """V = (-w, w) / 2 of the hyperplane w at 2 C; the value is half of its value."""
    X, y = blobs(seed, 60, 3, 2)
    found = solve(model(X, y, 0.7), 1e-10)
    np.testing.assert_allclose(found.at[0], -found.at[1], atol=1e-6)
    w = (found.at[1] - found.at[0])[:-1]
    signs = 2 * y - 1
    value = 0.5 * w @ w + 1.4 * np.maximum(0, 1 - signs * (X @ w)).sum()
    assert found.value == pytest.approx(value / 2, rel=1e-9)
    # A hinge through the origin is that of rows and their mirror images, with any intercept.
    both, sides = np.vstack([X, -X]), np.concatenate([signs, -signs])
    other = SVC(kernel="linear", C=0.7, tol=1e-10).fit(both, sides)
    np.testing.assert_allclose(w, other.coef_[0], rtol=1e-3, atol=1e-4)


def test_prices_of_rows_are_repetitions() -> None:
    """A row with three times the C is three rows."""
    X, y = blobs(3, 40, 4, 3)
    times = 1 + np.arange(40) % 3
    heavy = solve(model(X, y, 0.2 * times, 3))
    many = solve(model(np.repeat(X, times, axis=0), np.repeat(y, times), 0.2, 3))
    assert heavy.value == pytest.approx(many.value, rel=2e-9)


def test_rows_that_keep_their_side_may_be_summed_up() -> None:
    """Rows clear about their worst rival count as a constant and a sum: the minimum stays, and never rises."""
    X, y = blobs(4, 200, 4, 4)
    whole = solve(model(X, y, 0.1), 1e-10)
    scores = X @ whole.at[:, :-1].T
    t = scores + 1.0 - scores[np.arange(200), y][:, None]
    t[np.arange(200), y] = 0.0
    order = np.sort(t, axis=1)
    far = order[:, -1] - order[:, -2] > 0.3
    losing = far & (t.argmax(axis=1) != y)
    assert losing.any()
    assert (far & ~losing).any()
    weights = np.zeros((200, 4))
    weights[losing, t[losing].argmax(axis=1)] = 0.1
    linear = kesler_sum(X, y, weights, 0.0)[:, :-1]
    fixed_loss = 0.1 * losing.sum() - 0.5 * (linear * linear).sum()
    part = ClassesModel(
        fixed_loss, violations(X @ linear.T, y)[~far], X[~far], y[~far], np.full(int((~far).sum()), 0.1)
    )
    found = solve(part, 1e-10)
    assert found.value == pytest.approx(whole.value, rel=1e-8)
    np.testing.assert_allclose(found.at + np.pad(linear, ((0, 0), (0, 1))), whole.at, atol=1e-4)


def test_it_goes_on_from_an_earlier_answer() -> None:
    """At a smaller tolerance, or with another C, the minimum is that of a fresh start."""
    X, y = blobs(5, 80, 5, 3)
    rough = minimise_classes(model(X, y, 1.0), 1e-2)
    for C in (1.0, 7.0):
        again = minimise_classes(model(X, y, C), 1e-9, rough)
        assert again.value - again.dual <= 1e-9 * again.value
        assert again.value == pytest.approx(solve(model(X, y, C)).value, rel=2e-9)


@pytest.mark.specimens(1)
@pytest.mark.parametrize(("narrow", "direct", "copied"), [(1000, 0, 0), (0, 2500, 0), (0, 20, 0), (0, 20, 1 << 20)])
def test_rows_of_any_kind_with_a_constant(
    narrow: int, direct: int, copied: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    """float32 rows and sparse ones with a constant are the rows with one more column, by all ways of solving."""
    import coremargin.maths.simplex_step as module

    X, y = blobs(6, 300, 6, 4)
    X = np.where(np.abs(X) < 0.5, 0.0, X).astype(np.float32)
    whole = solve(model(np.column_stack([X, np.full(300, 4.0)]), y, 0.1))
    monkeypatch.setattr(module, "NARROW", narrow)
    monkeypatch.setattr(module, "BLOCK", 100)
    monkeypatch.setattr(module, "DIRECT", direct)
    monkeypatch.setattr(module, "COPIED_SHARE", 4)
    monkeypatch.setattr(module, "COPIED_BYTES", copied)
    for rows in (X, csr_array(X), csr_array(X.astype(np.float64))):
        found = minimise_classes(
            ClassesModel(0.0, violations(np.zeros((300, 4)), y), rows, y, np.full(300, 0.1), 4.0), 1e-9
        )
        assert found.value - found.dual <= 1e-9 * found.value
        assert found.value == pytest.approx(whole.value, rel=2e-9)
        np.testing.assert_allclose(4.0 * found.at[:, -1], 4.0 * whole.at[:, -2], atol=1e-3)


def test_all_ways_take_the_same_step(monkeypatch: pytest.MonkeyPatch) -> None:
    """By the Hessian, by pairs, by conjugate gradients: the equations that are written out here are solved."""
    import coremargin.maths.simplex_step as module

    X, _ = blobs(7, 60, 3, 4)
    rng = np.random.default_rng(7)
    shares, weights = simplex(rng.standard_normal((60, 4))), rng.uniform(0.1, 2.0, 60)
    gradient, Z = rng.standard_normal((4, 4)), np.column_stack([X, np.full(60, 2.0)])
    H = np.eye(16)
    for z, a, w in zip(Z, shares, weights, strict=True):
        held = (a > 0).astype(float)
        H += w * np.kron(np.diag(held) - np.outer(held, held) / held.sum(), np.outer(z, z))
    wanted = -np.linalg.solve(H, gradient.ravel()).reshape(4, 4)
    monkeypatch.setattr(module, "CG_SHARE", 1e-24)
    for narrow, direct in ((1000, 0), (0, 2500), (0, 0)):
        monkeypatch.setattr(module, "NARROW", narrow)
        monkeypatch.setattr(module, "DIRECT", direct)
        np.testing.assert_allclose(module.newton_step(X, 2.0, weights, shares, gradient), wanted, rtol=1e-7, atol=1e-9)


def test_nothing_but_summed_rows() -> None:
    """Without rows of its own the model is a parabola."""
    nothing = ClassesModel(3.0, np.zeros((0, 2)), np.zeros((0, 2)), np.zeros(0, int), np.zeros(0))
    found = minimise_classes(nothing, 1e-9)
    assert not found.at.any()
    assert found.value == found.dual == 3.0
