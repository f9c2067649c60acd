"""Published bounds: against the recursions that they are made of, and against what really happens."""

from __future__ import annotations

import math

import numpy as np
import pytest
from scipy.stats import binom

from coremargin.maths.coreset_svm import coreset_svm
from coremargin.maths.hard_margin import solve_hard_margin
from coremargin.maths.published_bounds import (
    any_row,
    compression,
    coreset_rows,
    guaranteed_risk,
    labels_asked,
    log10_leaves,
    log10_subsets,
    perceptron_updates,
    sharp_coreset_rows,
    simple_vc_bound,
    slab_steps,
    vc_dimension,
)


@pytest.mark.parametrize("ratio", [3.0, 30.0])
@pytest.mark.parametrize("epsilon", [0.5, 0.1])
def test_the_margin_cannot_fall_for_more_steps(ratio: float, epsilon: float) -> None:
    """The slowest fall that (2) allows, from R to the margin: its steps are within the bounds, and no tenth of them.

    Lemma 3.1: alpha is the larger of rho_i - rho and epsilon rho_i. Corollary 3.2: epsilon rho_i.
    """
    R, rho = 1.0, 1.0 / ratio

    def steps(least: bool) -> int:
        now, count = R, 0
        while now > rho:
            alpha = max(epsilon * now, now - rho if least else 0.0)
            now, count = now * math.sqrt(1 - alpha**2 / (4 * R**2)), count + 1
        return count

    assert steps(least=True) <= sharp_coreset_rows(R, rho, epsilon) < coreset_rows(R, rho, epsilon)
    assert sharp_coreset_rows(R, rho, epsilon) < 27 * (R / rho) ** 2 / epsilon + 2  # Jaggi 2013
    assert any_row(R, rho, epsilon) / 10 <= steps(least=False) <= any_row(R, rho, epsilon)


def test_the_slab_cannot_shrink_for_more_steps() -> None:
    """The slowest fall that (1.1) allows ends within the bound; the bound is not larger than that by a tenth."""
    diameter, distance, epsilon = 1.0, 0.04, 0.2
    width, count = diameter, 0
    while width > distance:
        width, count = width * math.sqrt(1 - (epsilon * width / 2 / diameter) ** 2), count + 1
    assert 0.9 * slab_steps(diameter, distance, epsilon) <= count - 1 <= slab_steps(diameter, distance, epsilon)


def test_the_coreset_is_within_lemma_3_1(rng: np.random.Generator) -> None:
    """Rows that Figure 1 adds on data with all labels."""
    w = np.array([0.6, 0.8, 0.0])
    for epsilon in (0.3, 0.05):
        X = rng.standard_normal((500, 3))
        y = np.where(X @ w >= 0, 1, -1)
        X += 0.2 * y[:, None] * w
        rho = solve_hard_margin(X, y, intercept=False).upper
        longest = float(np.linalg.norm(X, axis=1).max())
        assert len(coreset_svm(X, y, epsilon)[1]) <= sharp_coreset_rows(longest, rho, epsilon) + 1


def test_the_figures_are_those_of_the_papers() -> None:
    """By hand: 64 (R / rho)^2 / epsilon, 1 / gamma^2, |C| / e (ln |C| + ln 1 / delta) beside |C|."""
    assert coreset_rows(2.0, 0.5, 0.1) == pytest.approx(64 * 16 / 0.1)
    assert sharp_coreset_rows(2.0, 0.5, 0.1) == pytest.approx(16 * 16 / 0.1)
    assert log10_subsets(1000, 4.0) == pytest.approx(15)
    assert log10_leaves(98, 5) == pytest.approx(10)
    assert any_row(2.0, 0.5, 0.1) == pytest.approx(4 * 16 / 0.01)
    assert slab_steps(4.0, 1.0, 0.5) == pytest.approx(4 * 15 / 0.25)
    assert perceptron_updates(1.0, 0.1) == pytest.approx(100)
    assert labels_asked(100, 0.01, 0.05) == pytest.approx(100 + 10_000 * (math.log(100) + math.log(20)))


@pytest.mark.parametrize(("rows", "kept"), [(30, 2), (200, 5), (1000, 40)])
def test_with_nothing_wrong_the_compression_bound_is_that_of_counting(rows: int, kept: int) -> None:
    """All choices of the kept rows, each right on the others with probability (1 - p)^(N - k): together delta / N."""
    delta = 0.05
    p = compression(rows, kept, delta)
    assert math.comb(rows, kept) * (1 - p) ** (rows - kept) == pytest.approx(delta / rows, rel=1e-6)
    ordered = compression(rows, kept, delta, ordered=True)
    assert math.perm(rows, kept) * (1 - ordered) ** (rows - kept) == pytest.approx(delta / rows, rel=1e-6)


@pytest.mark.parametrize("wrong", [0, 3, 20])
def test_with_some_wrong_the_bound_is_above_that_of_the_binomial(wrong: int) -> None:
    """Chernoff's is never below what the distribution itself would give; so few wrong are unlikely at the bound."""
    rows, kept, delta = 500, 4, 0.05
    p = compression(rows, kept, delta, wrong)
    assert wrong / (rows - kept) < p < 1
    assert math.comb(rows, kept) * binom.cdf(wrong, rows - kept, p) <= delta / rows * (1 + 1e-9)


def test_what_cannot_be_bounded_is_bounded_by_one() -> None:
    """All rows kept, or none of the others right."""
    assert compression(10, 10, 0.05) == 1.0
    assert compression(10, 2, 0.05, wrong=8) == 1.0


#: Rows, features, R, rho, and what a prototype found: h, J, the compression bound of k support rows.
TABLE = [
    (100, 4, 1.61, 0.564, 5, 1.11, 0.20, 3),
    (12170, 9, 2.07, 0.232, 10, 0.030, 0.0045, 5),
    (48853, 9, 1.85, 0.182, 10, 0.009, 0.0013, 5),
    (1125, 52, 5.36, 0.713, 53, 0.91, 0.09, 18),
    (1116, 56, 5.19, 0.196, 57, 0.97, 0.15, 35),
    (2199, 254, 13.1, 2.31, 34, 0.37, 0.056, 20),
    (12665, 617, 18.2, 0.850, 458, 0.73, 0.041, 85),
]


@pytest.mark.parametrize(("rows", "features", "R", "rho", "h", "J", "error", "kept"), TABLE)
def test_bounds_of_real_pairs_are_those_of_a_prototype(
    rows: int, features: int, R: float, rho: float, h: int, J: float, error: float, kept: int
) -> None:
    """To the digits that it printed; it stopped at neither 1 nor the exponential of the compression bound."""
    dimension = vc_dimension(R, rho, features)
    assert dimension == pytest.approx(h, rel=0.01, abs=1)  # R and rho were rounded
    assert guaranteed_risk(rows, h, 0.05) == pytest.approx(min(1.0, J), rel=0.1)
    assert -math.log1p(-compression(rows, kept, 0.05)) == pytest.approx(error, rel=0.1)


def test_the_guaranteed_risk_is_that_of_the_formula() -> None:
    """By hand, with errors and without; nothing is promised of fewer rows than the dimension, nor more than 1."""
    a = 10 * math.log(2 * math.e * 1e6 / 10) + math.log(80)
    assert guaranteed_risk(10**6, 10, 0.05) == pytest.approx(4 * a / 1e6)
    assert guaranteed_risk(10**6, 10, 0.05, 0.05) == pytest.approx(0.05 + 2 * a / 1e6 * (1 + math.sqrt(1 + 5e4 / a)))
    assert guaranteed_risk(9, 10, 0.05) == guaranteed_risk(20, 10, 0.05) == 1.0
    assert simple_vc_bound(1000, 10, 0.05) == pytest.approx(10 * math.log(20) / 1000)
    assert simple_vc_bound(10, 10, 0.05) == 1.0
    assert vc_dimension(2.0, 0.5, 100) == 17
    assert vc_dimension(2.0, 0.5, 3) == 4
