"""Several classes beside very long rows: margins, bounds and proofs that there are none, judged in exact numbers."""

from __future__ import annotations

from fractions import Fraction

import numpy as np
import pytest

from coremargin.maths import kesler_apart
from coremargin.maths import multiclass as mc
from coremargin.maths.kesler_apart import solve_apart, upper_apart


def table(seed: int, long: float, K: int = 3, d: int = 3, n: int = 40) -> tuple[np.ndarray, np.ndarray]:
    """Rows of K classes with a margin, and one of length ``long`` in the class that its direction has."""
    rng = np.random.default_rng(seed)
    V, b, X = rng.standard_normal((K, d)), 0.3 * rng.standard_normal(K), rng.standard_normal((20 * n, d))
    best = np.sort(X @ V.T + b, axis=1)
    X = X[best[:, -1] - best[:, -2] > 0.3][:n]
    far = rng.standard_normal(d)
    X = np.vstack([X, far * long / np.linalg.norm(far)])
    return X, (X @ V.T + b).argmax(axis=1)


def exact(values: np.ndarray) -> list[Fraction]:
    """Floats as the fractions that they are."""
    return [Fraction(v) for v in values.ravel().tolist()]


def smallest_margin(X: np.ndarray, y: np.ndarray, V: np.ndarray, constant: float) -> Fraction:
    """min over rows and rivals of (v_y - v_r).(x, constant), in exact numbers."""
    planes = [exact(v) for v in V]
    found = []
    for x, own in zip(X, y.tolist(), strict=True):
        row = [*exact(x), Fraction(constant)]
        scores = [sum((a * c for a, c in zip(v, row, strict=True)), Fraction(0)) for v in planes]
        found += [scores[own] - s for r, s in enumerate(scores) if r != own]
    return min(found)


def square_of_sum(X: np.ndarray, y: np.ndarray, weights: np.ndarray, constant: float) -> Fraction:
    """|| sum a z ||^2 of weights divided by their sum, in exact numbers."""
    K, d = weights.shape[1], X.shape[1] + 1
    total = [[Fraction(0)] * d for _ in range(K)]
    for i, r in np.argwhere(weights).tolist():
        a, row = Fraction(float(weights[i, r])), [*exact(X[i]), Fraction(constant)]
        for j in range(d):
            total[int(y[i])][j] += a * row[j]
            total[r][j] -= a * row[j]
    square = sum((v * v for block in total for v in block), Fraction(0))
    return square / sum(exact(weights)) ** 2


@pytest.mark.parametrize("long", [1e9, 1e14, 1e30])
@pytest.mark.parametrize("seed", range(4))
def test_the_margin_beside_a_very_long_row_is_found(seed: int, long: float) -> None:
    """Margin and bound hold in exact numbers, and are within a millionth of each other."""
    X, y = table(seed, long)
    constant = mc.constant(long, intercept=True)
    found = solve_apart(X, y, 3, constant, tolerance=1e-9)
    reached = smallest_margin(X, y, found.at, constant)
    length = float(np.linalg.norm(found.at))
    assert length == pytest.approx(1.0, abs=1e-12)
    assert Fraction(found.upper) ** 2 >= square_of_sum(X, y, found.weights, constant)
    assert float(reached) / length >= (1 - 1e-6) * found.upper > 0.0
    assert float(reached) / length <= found.upper


def test_rows_far_from_the_origin_have_the_margin_of_rows_about_it() -> None:
    """Where the origin is makes no difference to rows and intercepts that are measured apart."""
    X, y = table(1, 3.0)
    X = np.round(X * 2.0**20) / 2.0**20  # so that moving them is exact
    near = solve_apart(X, y, 3, 2.0**40, tolerance=1e-9)
    far = solve_apart(X + 2.0**30, y, 3, 2.0**40, tolerance=1e-9)
    assert far.upper == pytest.approx(near.upper, rel=1e-6)
    assert float(smallest_margin(X + 2.0**30, y, far.at, 2.0**40)) >= (1 - 1e-3) * near.upper


@pytest.mark.parametrize("seed", range(4))
def test_wide_rows_are_solved_in_their_span(seed: int) -> None:
    """More features than rows: the same proofs."""
    X, y = table(seed, 1e14, d=60, n=20)
    constant = mc.constant(1e14, intercept=True)
    found = solve_apart(X, y, 3, constant, tolerance=1e-9)
    assert float(smallest_margin(X, y, found.at, constant)) >= (1 - 1e-6) * found.upper
    assert Fraction(found.upper) ** 2 >= square_of_sum(X, y, found.weights, constant)


@pytest.mark.parametrize("seed", range(4))
def test_rows_that_contradict_each_other_beside_a_very_long_one_are_found(seed: int) -> None:
    """A row that stands in two classes: few weights whose sum is nothing, and whose classes balance exactly."""
    X, y = table(seed, 1e14)
    X, y = np.vstack([X, X[:1]]), np.append(y, (y[0] + 1) % 3)
    found = solve_apart(X, y, 3, mc.constant(1e14, intercept=True), tolerance=1e-9)
    assert found.status == "zero"
    assert mc.meets(X, y, found.weights, intercept=True)
    assert square_of_sum(X, y, found.weights, 0.0) <= Fraction(1, 10**24)
    assert np.abs(mc.class_balance(found.weights, y)).max() <= 2.0**-53


def test_no_intercepts_leave_the_classes_unbalanced() -> None:
    """Through the origin weights need not give each class what they take from it."""
    rng = np.random.default_rng(3)
    V, X = rng.standard_normal((3, 4)), rng.standard_normal((200, 4))
    best = np.sort(X @ V.T, axis=1)
    X = X[best[:, -1] - best[:, -2] > 0.3]
    X[0] *= 1e14
    y = (X @ V.T).argmax(axis=1)
    found = solve_apart(X, y, 3, 0.0, tolerance=1e-9)
    assert not found.at[:, -1].any()
    assert float(smallest_margin(X, y, found.at, 0.0)) >= (1 - 1e-6) * found.upper
    assert Fraction(found.upper) ** 2 >= square_of_sum(X, y, found.weights, 0.0)


@pytest.mark.parametrize("constant", [0.0, 1.0, 2.0**47])
@pytest.mark.parametrize("seed", range(3))
def test_the_bound_is_true_of_any_weights(seed: int, constant: float) -> None:
    """Balanced or not, of sum 1 or not quite: never below the exact length."""
    X, y = table(seed, 1e14)
    weights = np.random.default_rng(seed).random((len(X), 3)) ** 6
    weights[np.arange(len(X)), y] = 0.0
    weights /= weights.sum() * (1.0 + 1e-14)
    assert Fraction(upper_apart(X, y, weights, constant)) ** 2 >= square_of_sum(X, y, weights, constant)


@pytest.mark.parametrize("seed", range(6))
def test_weights_sum_to_one_whatever_balances_small_ones(seed: int) -> None:
    """Rows of sizes from 1e-8 to 1e8, whose small weights have counterparts: sum 1, and classes balance."""
    rng = np.random.default_rng(seed)
    y = np.arange(20) % 4
    X = rng.standard_normal((20, 6)) * 10.0 ** rng.integers(-8, 9, (20, 1)) * (rng.random((20, 6)) < 0.5)
    found = solve_apart(X, y, 4, mc.constant(float(np.linalg.norm(X, axis=1).max()), intercept=True), tolerance=1e-9)
    if np.isfinite(found.upper):
        assert found.weights.sum() == pytest.approx(1.0, abs=1e-12)
        assert np.abs(mc.class_balance(found.weights, y)).max() <= 2.0**-53


def test_weights_of_one_half_balance() -> None:
    """A row that carries half of all weight: what rounding took from the others is not lost in it."""
    rng, y = np.random.default_rng(0), np.array([0, 1, 0])
    for _ in range(20):
        low, middle, high = np.sort(rng.random(3)) * 1e-66
        found = solve_apart(np.array([[high], [middle], [low]]), y, 2, 2.0, tolerance=1e-9)
        assert found.status == "zero"
        assert not mc.class_balance(found.weights, y).any()


def test_all_rows_in_one_place_have_no_margin() -> None:
    """Two classes at one point, which is the median and the span of all."""
    found = solve_apart(np.ones((4, 2)), np.array([0, 1, 0, 1]), 2, 4.0, tolerance=1e-9)
    assert found.status == "zero"
    assert found.upper <= 1e-12


def test_weights_that_cannot_balance_prove_nothing() -> None:
    """One class that only gives: no weights, no bound, and no claim that nothing separates the rows."""
    X, y = np.array([[0.0, 1.0], [1.0, 0.0], [1e14, 1e14]]), np.zeros(3, np.int64)
    found = solve_apart(X, y, 2, 2.0**48, tolerance=1e-9)
    assert (found.status, found.upper) == ("stalled", np.inf)
    assert not found.at.any()


def test_pairs_that_no_table_holds_are_left_alone(monkeypatch: pytest.MonkeyPatch) -> None:
    """Where the driver would make too large a table, nothing is claimed."""
    monkeypatch.setattr(kesler_apart, "TABLE", 10)
    X, y = table(0, 1e14)
    found = solve_apart(X, y, 3, mc.constant(1e14, intercept=True), tolerance=1e-9)
    assert (found.status, found.upper) == ("stalled", np.inf)


def _tables(monkeypatch: pytest.MonkeyPatch) -> list[int]:
    """How many pairs each step had a table for, as it goes on."""
    sizes, shortest = [], kesler_apart._Pairs._shortest

    def counted(self: kesler_apart._Pairs, row: np.ndarray, rival: np.ndarray) -> np.ndarray | None:
        sizes.append(len(row))
        return shortest(self, row, rival)

    monkeypatch.setattr(kesler_apart._Pairs, "_shortest", counted)
    return sizes


def _in_columns(seed: int, n: int) -> tuple[np.ndarray, np.ndarray]:
    """Rows of three classes, of which all carry the margin, in columns above three corners; a long one beside them."""
    rng = np.random.default_rng(seed)
    y = np.append(np.arange(n) % 3, 1)
    corners = np.array([[0.0, 0.0], [1.0, 0.0], [0.3, 1.0]])
    X = np.hstack([corners[y], np.exp(1.5 * rng.standard_normal((n + 1, 3)))])
    X[-1] = [1e6, 0.0, 0.0, 0.0, 0.0]
    return X, y


def test_equal_rows_are_weighed_as_one(monkeypatch: pytest.MonkeyPatch) -> None:
    """Copies of the rows that carry the margin, in any order, make no table larger, and the bound is the same."""
    X, y = table(1, 1e6)
    once = solve_apart(X, y, 3, 2.0**20, tolerance=1e-9)
    place = np.random.default_rng(0).permutation(np.repeat(np.arange(len(X)), 50))
    pairs = kesler_apart._Pairs(X[place], y[place], 3, 2.0**20)
    sizes = _tables(monkeypatch)
    weights = pairs.shortest_weights(once.weights[place])
    assert weights is not None
    assert max(sizes) == np.count_nonzero(once.weights)
    assert upper_apart(X[place], y[place], weights, 2.0**20) == pytest.approx(once.upper, rel=1e-9)


@pytest.mark.parametrize("seed", range(3))
def test_pairs_that_are_too_many_leave_in_few_steps(seed: int, monkeypatch: pytest.MonkeyPatch) -> None:
    """Of 600 pairs that all carry the margin some dozen stay, after less than thirty steps, and the sum is as short."""
    X, y = _in_columns(seed, 300)
    best = solve_apart(X, y, 3, 2.0**20, tolerance=1e-9)
    guess = np.ones((len(X), 3))
    guess[np.arange(len(X)), y] = 0.0
    guess[-1] = 0.0
    sizes = _tables(monkeypatch)
    weights = kesler_apart._Pairs(X, y, 3, 2.0**20).shortest_weights(guess)
    assert sizes[0] == 600
    assert len(sizes) < 30
    assert weights is not None
    assert upper_apart(X, y, weights, 2.0**20) == pytest.approx(best.upper, rel=1e-6)


def test_a_table_of_pairs_by_pairs_is_bounded_too(monkeypatch: pytest.MonkeyPatch) -> None:
    """Pairs of few coordinates, so many that a table of pairs by pairs would be too large, are left alone."""
    X, y = _in_columns(0, 300)
    guess = np.ones((len(X), 3))
    guess[np.arange(len(X)), y] = 0.0
    monkeypatch.setattr(kesler_apart, "TABLE", 602 * 601)
    sizes = _tables(monkeypatch)
    assert kesler_apart._Pairs(X, y, 3, 2.0**20).shortest_weights(guess) is None
    assert not sizes
