from __future__ import annotations

import numpy as np
import pytest
from sklearn.datasets import load_breast_cancer, load_digits, load_iris
from sklearn.svm import SVC

from coremargin.maths.hard_margin import HardMarginSolution, solve_hard_margin
from margin_judges import hulls_meet, margin_by_daqp, shortest_by_supports, smallest_margin


def iris() -> tuple[np.ndarray, np.ndarray]:
    """Iris setosa and versicolor."""
    X, y = load_iris(return_X_y=True)
    return X[y < 2], np.where(y[y < 2] == 1, 1, -1)


def digits(a: int, b: int) -> tuple[np.ndarray, np.ndarray]:
    """Two of the handwritten digits."""
    X, y = load_digits(return_X_y=True)
    pair = (y == a) | (y == b)
    return X[pair], np.where(y[pair] == b, 1, -1)


def cancer() -> tuple[np.ndarray, np.ndarray]:
    """Breast cancer, scaled, without the rows that keep the classes from being separable."""
    X, y = load_breast_cancer(return_X_y=True)
    X, y = (X - X.mean(axis=0)) / X.std(axis=0), np.where(y == 1, 1, -1)
    keep = y * SVC(kernel="linear", C=1.0).fit(X, y).decision_function(X) > 0.1
    return X[keep], y[keep]


BUNDLED = {
    "iris": iris, "cancer": cancer, "digits 0-1": lambda: digits(0, 1), "digits 3-8": lambda: digits(3, 8),
    "digits 1-9": lambda: digits(1, 9),
}  # fmt: skip


def is_solution(
    X: np.ndarray, y: np.ndarray, found: HardMarginSolution, *, intercept: bool, share: float = 1e-8
) -> bool:
    """The conditions of an optimal separation, derived anew: w is the weighted sum's direction, support rows lie on the
    margin, no row lies inside it, and primal and dual agree.
    """  # fmt: skip
    X = np.asarray(X, np.float64)
    v = (found.weights * y) @ (X - X.mean(axis=0) * intercept)
    rho = float(np.linalg.norm(v)) / (2 if intercept else 1)
    margins = y * (X @ found.w + found.b)
    size = float(np.abs(X).max())
    return bool(
        abs(np.linalg.norm(found.w) - 1) < 1e-12
        and found.weights.min() >= 0
        and np.abs(v / np.linalg.norm(v) - found.w).max() < 1e-6
        and np.abs(margins[found.weights > 0] - rho).max() <= share * rho + 1e-13 * size
        and margins.min() >= (1 - share) * rho - 1e-13 * size
        and abs(found.upper - rho) <= share * rho + 1e-11 * size
    )


@pytest.mark.parametrize("intercept", [True, False])
@pytest.mark.parametrize("name", BUNDLED)
def test_bundled_data_equal_daqp_and_libsvm(name: str, *, intercept: bool) -> None:
    """On data that scikit-learn brings, the margin is that of daqp, and with an intercept that of SVC at C = 1e10."""
    X, y = BUNDLED[name]()
    if not intercept and name == "cancer":
        X = np.hstack([X, np.full((len(X), 1), 5.0)])  # centred rows need a plane away from the origin
    found = solve_hard_margin(X, y, intercept=intercept)
    assert found.status == "optimal"
    assert is_solution(X, y, found, intercept=intercept)
    assert found.upper == pytest.approx(margin_by_daqp(X, y, intercept=intercept), rel=1e-6)
    if intercept:
        peer = SVC(kernel="linear", C=1e10, tol=1e-6).fit(X, y)
        assert found.upper == pytest.approx(1 / np.linalg.norm(peer.coef_), rel=1e-3)
        assert found.upper >= smallest_margin(X, y, peer.coef_[0], float(peer.intercept_[0])) * (1 - 1e-12)


@pytest.mark.parametrize("intercept", [True, False])
@pytest.mark.parametrize(("n", "d"), [(2, 1), (2, 5), (3, 1), (50, 1), (40, 2), (300, 10), (20, 60), (6, 400)])
def test_shapes_of_all_kinds(rng: np.random.Generator, n: int, d: int, *, intercept: bool) -> None:
    """Two rows, one feature, more features than rows: the conditions hold and daqp agrees."""
    plane = rng.standard_normal(d)
    plane /= np.linalg.norm(plane)
    y = np.where(np.arange(n) % 2, 1, -1)
    X = rng.standard_normal((n, d))
    X += ((0.3 + rng.random(n)) * y - X @ plane)[:, None] * plane
    found = solve_hard_margin(X, y, intercept=intercept)
    assert is_solution(X, y, found, intercept=intercept)
    assert found.upper == pytest.approx(margin_by_daqp(X, y, intercept=intercept), rel=1e-6)
    assert (found.weights > 0).sum() <= d + 1 + intercept


def test_tiny_pools_equal_brute_force(rng: np.random.Generator) -> None:
    """With and without an intercept the upper bound is half the least distance, or the distance, over all supports."""
    for _ in range(40):
        X, y = np.round(rng.standard_normal((6, 2)) * 2) + 3, np.array([1, -1, 1, -1, 1, -1])
        for intercept in (True, False):
            groups = (y > 0).astype(int) * intercept
            best = shortest_by_supports(X * y[:, None], groups) / (2 if intercept else 1)
            assert solve_hard_margin(X, y, intercept=intercept).upper == pytest.approx(best, rel=1e-9, abs=1e-9)


@pytest.mark.parametrize("intercept", [True, False])
def test_scaled_features_are_solved(rng: np.random.Generator, *, intercept: bool) -> None:
    """Features of sizes 1e-6 to 1e6 are solved to the conditions."""
    for _ in range(10):
        X = rng.standard_normal((200, 6)) * 10.0 ** np.array([-6, -3, 0, 0, 3, 6])
        y = np.where(X[:, 3] > 0, 1, -1)
        X[:, 3] += y
        found = solve_hard_margin(X, y, intercept=intercept)
        assert is_solution(X, y, found, intercept=intercept, share=1e-6)
        assert 1 - 1e-6 <= found.upper < 5


def test_big_offsets_do_not_matter_with_an_intercept(rng: np.random.Generator) -> None:
    """Rows moved 1e7 away from the origin have the same margin to nine digits, and the same direction."""
    X, y = np.round(rng.standard_normal((300, 5)) * 1024) / 1024, np.where(np.arange(300) % 2, 1, -1)
    X[:, 0] += 6 * y
    near, far = solve_hard_margin(X, y, intercept=True), solve_hard_margin(X + 1e7, y, intercept=True)
    assert far.w == pytest.approx(near.w, abs=1e-9)
    assert far.upper == pytest.approx(near.upper, abs=1e-6)
    assert far.upper >= near.upper * (1 - 1e-9)


def test_duplicates_change_nothing(rng: np.random.Generator, separable: tuple[np.ndarray, np.ndarray]) -> None:
    """Every row a hundred times over gives the same hypothesis, with as few support rows."""
    X, y = separable
    once, often = (
        solve_hard_margin(X, y, intercept=True),
        solve_hard_margin(np.tile(X, (100, 1)), np.tile(y, 100), intercept=True),
    )
    assert often.w == pytest.approx(once.w, abs=1e-8)
    assert often.upper == pytest.approx(once.upper, rel=1e-9)
    assert (often.weights > 0).sum() <= X.shape[1] + 2


def test_collinear_rows_are_solved() -> None:
    """Rows on parallel lines, or all on one line, are solved; the direction is across, or along it."""
    t = np.linspace(-5, 5, 101)
    lines = np.vstack([np.column_stack([t, np.ones(101)]), np.column_stack([t, -np.ones(101)])])
    y = np.repeat([1, -1], 101)
    assert solve_hard_margin(lines, y, intercept=True).w == pytest.approx([0, 1], abs=1e-9)
    line, side = np.outer(t, [3.0, 4.0]), np.where(t > 0, 1, -1)
    found = solve_hard_margin(line, side, intercept=True)
    assert found.w == pytest.approx([0.6, 0.8])
    assert found.upper == pytest.approx(0.25)


@pytest.mark.parametrize("intercept", [True, False])
@pytest.mark.parametrize("d", [1, 2, 10])
def test_contradicting_rows_end_at_zero(rng: np.random.Generator, d: int, *, intercept: bool) -> None:
    """Two equal rows of different classes are the proof that nothing separates: zero, and at most d + 2 rows."""
    X, y = rng.standard_normal((50, d)), np.where(np.arange(50) % 2, 1, -1)
    X += 9 * y[:, None]
    X[7] = X[8]
    found = solve_hard_margin(X, y, intercept=intercept, zero=1e-12)
    support = np.flatnonzero(found.weights)
    assert found.status == "zero"
    assert found.upper < 1e-12
    assert not found.w.any()
    assert len(support) <= d + 2
    assert hulls_meet(X[support], y[support], intercept=intercept) < 1e-9


def test_touching_hulls_end_at_zero() -> None:
    """Classes that share one point only, inside an edge, are not separable."""
    X = np.array([[0.0, 0], [2, 0], [1, 0], [1, 1]])
    found = solve_hard_margin(X, np.array([1, 1, -1, -1]), intercept=True, zero=1e-14)
    assert found.status == "zero"
    assert found.weights == pytest.approx([0.5, 0.5, 1, 0])


@pytest.mark.parametrize("intercept", [True, False])
def test_warm_start_equals_cold_start(rng: np.random.Generator, *, intercept: bool) -> None:
    """Weights of a smaller pool, or any others, lead to the same bound and direction as no start at all."""
    for trial in range(10):
        X, y = rng.standard_normal((2000, 8)), np.where(rng.random(2000) < 0.5, 1, -1)
        X[:, 0] += 5 * y
        cold = solve_hard_margin(X, y, intercept=intercept)
        part = solve_hard_margin(X[:500], y[:500], intercept=intercept)
        start = np.concatenate([part.weights, np.zeros(1500)])
        if trial % 2:
            start = rng.random(2000)
        warm = solve_hard_margin(X, y, intercept=intercept, start=start)
        assert warm.upper == pytest.approx(cold.upper, rel=1e-9)
        assert warm.w == pytest.approx(cold.w, abs=1e-6)
        assert is_solution(X, y, warm, intercept=intercept)


def test_large_pools_are_solved_on_few_rows(rng: np.random.Generator) -> None:
    """A pool of 20,000 rows, label-sorted, is solved to the conditions over all of its rows."""
    X, y = rng.standard_normal((20_000, 20)), np.repeat([1, -1], 10_000)
    X[:, 0] += 7 * y
    assert is_solution(X, y, solve_hard_margin(X, y, intercept=True), intercept=True)


def test_label_flip_mirrors_the_hypothesis(separable: tuple[np.ndarray, np.ndarray]) -> None:
    """Exchanged classes give -w, -b and the same bound."""
    X, y = separable
    one, other = solve_hard_margin(X, y, intercept=True), solve_hard_margin(X, -y, intercept=True)
    assert other.w == pytest.approx(-one.w, abs=1e-8)
    assert other.b == pytest.approx(-one.b, abs=1e-8)
    assert other.upper == pytest.approx(one.upper, rel=1e-9)


def test_float32_rows_count_exactly(separable: tuple[np.ndarray, np.ndarray]) -> None:
    """Rows in float32 give the same bits as their exact copies in float64."""
    X, y = separable
    one, other = solve_hard_margin(X, y, intercept=True), solve_hard_margin(X.astype(np.float64), y, intercept=True)
    assert (one.w == other.w).all()
    assert (one.b, one.upper) == (other.b, other.upper)
