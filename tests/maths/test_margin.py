from __future__ import annotations

from fractions import Fraction

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.extra import numpy as hnp
from scipy.sparse import csr_array

from coremargin.maths import margin
from coremargin.maths.margin import (
    best_offset,
    gamma,
    is_certified,
    lower_bound,
    normalised_weights,
    projection_error,
    projections,
    ratio,
    resolution,
    safe_projections,
    upper_bound,
)
from margin_judges import exact_dot, is_above_exact, is_below_exact

numbers = st.floats(-1e6, 1e6, allow_subnormal=False)
wild = st.floats(-1e140, 1e140)


def smallest_of(rows: np.ndarray, signs: np.ndarray, w: np.ndarray) -> np.ndarray:
    """Smallest safe projections (2, 1) of the two classes."""
    safe = safe_projections(rows, signs, w[:, None])[:, 0]
    return np.array([[safe[signs > 0].min(initial=np.inf)], [safe[signs < 0].min(initial=np.inf)]])


@st.composite
def problems(draw: st.DrawFn, values: st.SearchStrategy[float] = numbers) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Rows (n, d), signs (n,) of both classes, a direction (d,)."""
    n, d = draw(st.integers(2, 6)), draw(st.integers(1, 5))
    rows = draw(hnp.arrays(np.float64, (n, d), elements=values))
    signs = np.array(draw(st.lists(st.sampled_from([-1, 1]), min_size=n, max_size=n)))
    signs[:2] = 1, -1
    return rows, signs, draw(hnp.arrays(np.float64, d, elements=st.floats(-1, 1, allow_subnormal=False)))


def test_gamma_follows_higham() -> None:
    """gamma_n is n u / (1 - n u) with u half the machine epsilon, in the precision that is asked for."""
    u = Fraction(1, 2**53)
    assert gamma(100) == pytest.approx(float(100 * u / (1 - 100 * u)), rel=1e-15)
    assert gamma(3, np.float32) == pytest.approx(3 * 2.0**-24, rel=1e-6)


def test_gamma_says_nothing_for_sums_too_long() -> None:
    """gamma is infinite once n u reaches one half."""
    assert gamma(2**23, np.float32) == np.inf
    assert gamma(2**22, np.float32) < np.inf


@pytest.mark.parametrize("d", [1, 2, 3, 7, 16, 100, 785, 4097])
@pytest.mark.parametrize("dtype", ["float32", "float64"])
def test_projections_do_not_depend_on_other_rows(rng: np.random.Generator, d: int, dtype: str) -> None:
    """A row gives the same bits alone, in a batch, in any order, in a strided view and beside other directions."""
    rows, directions = rng.standard_normal((37, d)).astype(dtype), rng.standard_normal((d, 3))
    together = projections(rows, directions)
    assert all((projections(rows[k : k + 1], directions) == together[k]).all() for k in range(37))
    assert (projections(rows[::-1], directions)[::-1] == together).all()
    assert (projections(np.repeat(rows, 2, axis=0)[::2], directions) == together).all()
    assert (projections(np.asfortranarray(rows), directions) == together).all()
    assert (projections(rows, directions[:, 1:2])[:, 0] == together[:, 1]).all()


@given(problems())
def test_projection_error_bounds_the_rounding(case: tuple[np.ndarray, np.ndarray, np.ndarray]) -> None:
    """The computed projection differs from the exact one by no more than the stated error."""
    rows, _, w = case
    found, error = projections(rows, w[:, None])[:, 0], projection_error(rows, w[:, None])[:, 0]
    assert all(abs(Fraction(p) - exact_dot(x, w)) <= Fraction(e) for x, p, e in zip(rows, found, error, strict=True))


@given(problems(wild))
def test_safe_projections_are_below_the_exact_value(case: tuple[np.ndarray, np.ndarray, np.ndarray]) -> None:
    """No safe projection exceeds y w.x in rational arithmetic, from the smallest to the largest numbers."""
    rows, signs, w = case
    safe = safe_projections(rows, signs, w[:, None])[:, 0]
    assert all(Fraction(s) <= int(y) * exact_dot(x, w) for s, x, y in zip(safe, rows, signs, strict=True))


@pytest.mark.parametrize("d", [1, 5, 100, 1000])
def test_safe_projections_are_confirmed_by_any_float64_evaluation(rng: np.random.Generator, d: int) -> None:
    """No order of summation in float64, forwards, backwards, by BLAS or in halves, falls below a safe projection."""
    rows, w = rng.standard_normal((200, d)) * 10.0 ** rng.integers(-6, 7, d), rng.standard_normal(d)
    rows -= np.outer(rows @ w, w) / (w @ w)  # nearly orthogonal: all digits cancel
    safe = safe_projections(rows, np.ones(200, int), w[:, None])[:, 0]
    order = rng.permutation(d)
    half = d // 2
    others = (
        rows @ w, np.cumsum(rows * w, axis=1)[:, -1], np.cumsum((rows * w)[:, ::-1], axis=1)[:, -1],
        rows[:, order] @ w[order], rows[:, :half] @ w[:half] + rows[:, half:] @ w[half:],
    )  # fmt: skip
    assert all((value >= safe).all() for value in others)


def test_safe_projections_that_overflow_prove_nothing() -> None:
    """Sums that leave float64 give -inf, never NaN or a number, and give no warning."""
    rows = np.array([[1.7e308, 1.7e308, -1.7e308, -1.7e308], [1e308, 1e308, 1e308, 1e308], [1.0, 0, 0, 0]])
    safe = safe_projections(rows, np.array([1, 1, 1]), np.ones((4, 1)))[:, 0]
    assert (safe[:2] == -np.inf).all()
    assert 1 - 1e-14 < safe[2] < 1


def test_safe_projections_survive_underflow() -> None:
    """Products that round up to the smallest subnormal number do not count as a proven margin."""
    tiny = 5e-324
    safe = safe_projections(np.array([[tiny]]), np.array([1]), np.array([[0.6]]))
    assert Fraction(float(safe[0, 0])) <= exact_dot([tiny], [0.6])


@given(problems(), st.booleans())
def test_lower_bounds_are_outward(case: tuple[np.ndarray, np.ndarray, np.ndarray], intercept: bool) -> None:
    """The stored hypothesis (w / ||w||, b / ||w||), itself rounded, has exactly at least the margin that is claimed."""
    rows, signs, w = case
    smallest = smallest_of(rows, signs, w)
    claim = float(lower_bound(smallest, w[:, None], intercept)[0])
    length = float(np.linalg.norm(w))
    if length <= margin.SHORTEST:
        assert claim == -np.inf
        return
    stored, b = w / length, float(best_offset(smallest, intercept)[0]) / length
    assert is_below_exact(claim, rows, signs, stored, b)
    assert claim <= (signs * (rows @ stored + b)).min()


def test_lower_bound_is_tight(rng: np.random.Generator) -> None:
    """On ordinary rows the claim gives away no more than some hundred units in the last place."""
    rows, w = rng.standard_normal((50, 10)), rng.standard_normal(10)
    signs = np.where(rows @ w > 0, 1, -1)
    true = np.abs(rows @ w).min() / np.linalg.norm(w)
    assert lower_bound(smallest_of(rows, signs, w), w[:, None], intercept=False)[0] == pytest.approx(true, abs=1e-13)


@pytest.mark.parametrize("size", [0.0, 1e-300])
def test_lower_bound_of_no_direction_is_nothing(size: float) -> None:
    """A direction of (nearly) no length proves -inf, whatever the projections are said to be."""
    for intercept in (True, False):
        assert lower_bound(np.ones((2, 1)), np.full((3, 1), size), intercept)[0] == -np.inf


def test_lower_bound_of_a_missing_class_is_nothing() -> None:
    """With an intercept a class without rows (infinite smallest projection) gives no bound, and no warning."""
    smallest = np.array([[1.0, np.inf], [np.inf, np.inf]])
    assert (lower_bound(smallest, np.eye(2), intercept=True) == -np.inf).all()


def test_lower_bound_of_unproven_rows_is_nothing() -> None:
    """A smallest projection of -inf makes the bound -inf."""
    assert lower_bound(np.array([[-np.inf], [1.0]]), np.ones((1, 1)), intercept=True)[0] == -np.inf
    assert lower_bound(np.array([[-np.inf], [1.0]]), np.ones((1, 1)), intercept=False)[0] == -np.inf


@given(st.floats(-1e9, 1e9), st.floats(-1e9, 1e9), st.floats(-1e9, 1e9))
def test_best_offset_is_best(p: float, n: float, other: float) -> None:
    """No other offset gives a larger smallest margin than (n - p) / 2."""
    b = float(best_offset(np.array([[p], [n]]), intercept=True)[0])
    assert min(p + b, n - b) >= min(p + other, n - other) - 1e-6


def test_offset_is_zero_without_intercept() -> None:
    """Without an intercept the offset is zero."""
    assert (best_offset(np.array([[1.0, 2.0], [5.0, np.inf]]), intercept=False) == 0).all()


@given(problems(), st.booleans(), st.data())
def test_upper_bounds_are_outward(
    case: tuple[np.ndarray, np.ndarray, np.ndarray], intercept: bool, data: st.DataObject
) -> None:  # fmt: skip
    """Any weights, rounded as they are, give a number no smaller than what they prove in rational arithmetic."""
    rows, signs, _ = case
    weights = data.draw(hnp.arrays(np.float64, len(rows), elements=st.floats(1e-12, 1e3)))
    a = normalised_weights(weights, signs, intercept)
    assert is_above_exact(upper_bound(rows, signs, a, intercept), rows, signs, a, intercept=intercept)


def test_upper_bound_holds_at_big_offsets(rng: np.random.Generator) -> None:
    """Rows 1e7 from the origin, where the weighted sums cancel nearly all digits, still give a bound that is true."""
    for seed in range(50):
        rng = np.random.default_rng(seed)
        rows = rng.standard_normal((8, 3)) + 1e7
        signs = np.array([1, -1] * 4)
        a = normalised_weights(rng.random(8), signs, intercept=True)
        found = upper_bound(rows, signs, a, intercept=True)
        assert is_above_exact(found, rows, signs, a, intercept=True)
        assert found == pytest.approx(np.linalg.norm((a * signs) @ (rows - 1e7)) / 2, abs=1e-5)


def test_upper_bound_of_one_class() -> None:
    """With an intercept one class alone has an unbounded margin; without, its distance from the origin bounds it."""
    rows, signs, weights = np.array([[3.0, 4.0]]), np.array([1]), np.ones(1)
    assert upper_bound(rows, signs, weights, intercept=True) == np.inf
    assert upper_bound(rows, signs, weights, intercept=False) == pytest.approx(5)


def test_upper_bound_of_zeros_is_zero() -> None:
    """Rows of zeros prove exactly zero, with nothing added for rounding."""
    for intercept in (True, False):
        a = normalised_weights(np.ones(4), np.array([1, 1, -1, -1]), intercept)
        assert upper_bound(np.zeros((4, 3)), np.array([1, 1, -1, -1]), a, intercept) == 0


def test_weights_are_normalised_by_class_or_by_all(rng: np.random.Generator) -> None:
    """Weights are clipped at zero and sum to 1 in each class with an intercept, in all without."""
    weights, signs = rng.standard_normal(40), np.where(rng.random(40) < 0.3, 1, -1)
    by_class = normalised_weights(weights, signs, intercept=True)
    of_all = normalised_weights(weights, signs, intercept=False)
    assert by_class.min() == of_all.min() == 0
    assert [by_class[signs == s].sum() for s in (1, -1)] == pytest.approx([1, 1], abs=1e-15)
    assert of_all.sum() == pytest.approx(1, abs=1e-15)


@pytest.mark.parametrize(
    ("lower", "upper", "epsilon", "certified"),
    [
        (0.9, 1.0, 0.1, True), (0.89, 1.0, 0.1, False), (1.0, 1.0, 1e-12, True), (0.0, 0.0, 0.5, False),
        (0.75, 1.0, 0.25, True), (np.nextafter(0.75, 0), 1.0, 0.25, False), (3e8, 4e8, 0.25, True),
        (0.0, 1.0, 0.999, False), (-1.0, -2.0, 0.5, False), (1.0, np.inf, 0.5, False), (np.inf, np.inf, 0.5, False),
        (np.nan, 1.0, 0.5, False), (1.0, np.nan, 0.5, False), (-np.inf, 1.0, 0.5, False), (2.0, 1.0, 0.1, True),
    ],
)  # fmt: skip
def test_certified_needs_a_positive_finite_pair(lower: float, upper: float, epsilon: float, *, certified: bool) -> None:
    """A margin is certified exactly when it is positive, its bound finite and their ratio at least 1 - epsilon."""
    assert is_certified(lower, upper, epsilon) is certified


@pytest.mark.parametrize(
    ("lower", "upper", "share"),
    [(1.0, 2.0, 0.5), (2.0, 1.0, 1.0), (0.0, 1.0, 0.0), (-1.0, 1.0, 0.0), (1.0, np.inf, 0.0), (-np.inf, np.inf, 0.0)],
)
def test_ratio_is_the_proven_share(lower: float, upper: float, share: float) -> None:
    """The ratio is lower / upper within [0, 1], and 0 when nothing is proven."""
    assert ratio(lower, upper) == share


def test_resolution_grows_with_the_radius() -> None:
    """The smallest margin that can be told from zero is proportional to the rows' length and tiny beside it."""
    assert resolution(2.0, 10, 10) == 2 * resolution(1.0, 10, 10)
    assert 0 < resolution(1.0, 1000, 1000) < 1e-11
    assert resolution(0.0, 10, 10) == 0


@pytest.mark.parametrize("sparse", [False, True])
@pytest.mark.parametrize("size", [1.0, 1e-170, 1e-300])
def test_rows_meet_only_where_they_are_the_same(size: float, sparse: bool) -> None:
    """Of rows that differ by 1e-170 something is left, though its square is not."""
    rows, signs, weights = np.array([[0.0, size], [0.0, -size]]), np.array([1, -1]), np.ones(2)
    assert not margin.meets(csr_array(rows) if sparse else rows, signs, weights, intercept=True)
    same = rows[[0, 0]]
    assert margin.meets(csr_array(same) if sparse else same, signs, weights, intercept=True)


def test_short_rows_have_lengths() -> None:
    """From the least float to the largest squares, and none for a row of zeros, in both forms of rows."""
    rows = np.array([[3.0, 0.0, 4.0], [0.0, 0.0, 0.0], [3e-300, 0.0, 4e-300], [0.0, 5e-324, 0.0], [3e130, 4e130, 0.0]])
    for form in (rows, csr_array(rows)):
        np.testing.assert_allclose(margin.true_lengths(form), [5.0, 0.0, 5e-300, 5e-324, 5e130], rtol=1e-15)
