"""Bounds from draws, against SciPy's hypergeometric distribution and against counting every case."""

from __future__ import annotations

import math
from itertools import combinations

import numpy as np
import pytest
from scipy.stats import hypergeom

from coremargin.maths.evidence import draws_needed, least_trial, most_wrong, probability, share_of, trial_size


@pytest.mark.parametrize(("rows", "bad", "draws", "wrong"), [(6, 2, 3, 0), (6, 2, 3, 1), (7, 5, 4, 2), (7, 5, 4, 3)])
def test_the_probability_is_that_of_counting(rows: int, bad: int, draws: int, wrong: int) -> None:
    """Of all ways to draw, so many have no more bad rows; rows below ``bad`` are bad."""
    ways = list(combinations(range(rows), draws))
    few = sum(sum(row < bad for row in way) <= wrong for way in ways)
    assert probability(rows, bad, draws, wrong) == pytest.approx(few / len(ways), rel=1e-14)


def test_the_probability_is_scipys(rng: np.random.Generator) -> None:
    """For any numbers, up to rounding."""
    for _ in range(300):
        rows = int(rng.integers(1, 400))
        bad, draws = int(rng.integers(0, rows + 1)), int(rng.integers(0, rows + 1))
        wrong = int(rng.integers(0, draws + 1))
        known = float(hypergeom.cdf(wrong, rows, bad, draws))
        assert probability(rows, bad, draws, wrong) == pytest.approx(known, rel=1e-9, abs=1e-300)


def test_the_bound_is_the_last_that_is_likely_enough(rng: np.random.Generator) -> None:
    """One bad row more would have a probability of at most delta, by SciPy; so many have more."""
    for _ in range(200):
        rows = int(rng.integers(1, 3000))
        draws = int(rng.integers(0, rows + 1))
        wrong = int(rng.integers(0, min(draws, 5) + 1))
        delta = float(10.0 ** -rng.uniform(0.1, 6))
        most = most_wrong(rows, draws, wrong, delta)
        assert hypergeom.cdf(wrong, rows, most, draws) * (1 + 2e-9) > delta
        if most < rows - (draws - wrong):
            assert hypergeom.cdf(wrong, rows, most + 1, draws) * (1 + 1e-10) <= delta


def test_the_published_number_of_draws() -> None:
    """459 draws, none wrong, show at most 1 % wrong with confidence 99 %, where rows are without end."""
    assert draws_needed(10**12, 0.01, 0.01) == 459
    assert most_wrong(10**12, 459, 0, 0.01) <= 10**10 < most_wrong(10**12, 458, 0, 0.01)
    assert draws_needed(500, 0.01, 0.01) < 459


def test_all_rows_drawn_leave_no_doubt() -> None:
    """Without a draw nothing is known; with all of them all is."""
    assert most_wrong(50, 0, 0, 0.01) == 50
    assert most_wrong(50, 50, 3, 0.01) == 3
    assert draws_needed(50, 0.0, 0.01) == 50
    assert draws_needed(0, 0.5, 0.01) == 0
    with pytest.raises(ValueError, match="expected 0 <= wrong <= draws"):
        most_wrong(5, 6, 0, 0.1)


def test_attempts_together_stay_below_delta() -> None:
    """The shares of a million attempts."""
    assert sum(share_of(0.01, attempt) for attempt in range(1, 10**6)) < 0.01


def test_claims_hold_as_often_as_they_say(rng: np.random.Generator) -> None:
    """Drawn from 300 rows of which 12 are bad, the bound is below 12 in at most a share delta of 4,000 trials."""
    wrong = rng.hypergeometric(12, 288, 60, size=4000)
    bounds = np.array([most_wrong(300, 60, int(found), 0.05) for found in range(13)])
    assert (bounds[wrong] < 12).mean() < 0.05 + 3 * np.sqrt(0.05 * 0.95 / 4000)


@pytest.mark.parametrize("rows", [60, 400, 100_000])
@pytest.mark.parametrize(("error", "confidence"), [(0.05, 0.99), (0.1, 0.9), (0.3, 0.95), (0.5, 0.5), (0.9, 0.9)])
def test_a_trial_is_the_least_that_certifies_with_half_of_what_is_allowed(
    error: float, confidence: float, rows: int
) -> None:
    """By trying every number of draws in turn, with half of the fifth attempt's part; or it is all rows."""
    delta, allowed = (1 - confidence) / 30 / 2, int(error * rows)
    tried = (
        draws
        for draws in range(1, rows + 1)
        if hypergeom.cdf(int(error / 2 * draws), rows, allowed + 1, draws) <= delta
    )
    assert trial_size(error, confidence, rows=rows) == next(tried, rows)


def test_a_trial_certifies_a_million_rows() -> None:
    """With as many wrong draws as it is made for, the bound of a fifth attempt is within what was asked for."""
    draws = trial_size(0.02, 0.99, rows=10**6)
    wrong = int(0.01 * draws)
    assert most_wrong(10**6, draws, wrong, share_of(0.01, 5) / 2) <= 0.02 * 10**6
    assert most_wrong(10**6, draws, wrong + 4, share_of(0.01, 5) / 2) > 0.02 * 10**6


@pytest.mark.parametrize(("error", "rows"), [(1e-9, 600), (1e-9, 2**31 - 1), (1e-12, 10**12), (0.01, 10**12)])
def test_a_trial_of_many_rows_is_found_at_once(error: float, rows: int) -> None:
    """Whatever may be wrong of however many rows, half of it in the trial certifies, and no table is made of them."""
    draws, allowed = trial_size(error, 0.99, rows=rows), math.floor(error * rows)
    assert probability(rows, allowed + 1, draws, math.floor(error / 2 * draws)) <= share_of(0.01, 5) / 2


@pytest.mark.parametrize(("rows", "bad", "draws"), [(40, 30, 25), (40, 6, 38), (40, 38, 6), (40, 20, 30), (7, 7, 3)])
def test_probabilities_are_those_of_scipy(rows: int, bad: int, draws: int) -> None:
    """Where all good rows are drawn, and where none has to be."""
    for wrong in range(min(bad, draws) + 1):
        expected = hypergeom.cdf(wrong, rows, bad, draws)
        assert probability(rows, bad, draws, wrong) == pytest.approx(expected, rel=1e-9, abs=1e-300)


@pytest.mark.parametrize(("rows", "strata"), [(3000, 1), (3000, 2), (3000, 5), (200, 4), (600, 3), (41, 2)])
def test_fewer_draws_than_the_least_trial_cannot_show_what_is_asked_for(rows: int, strata: int) -> None:
    """With none wrong in a first attempt, by the bound itself: of no size that the largest stratum can have are fewer
    enough, and of some size so many are.
    """
    least, delta = least_trial(0.05, 0.9, strata=strata, rows=rows), share_of(0.1, 1) / (2 * strata)
    sizes = range(-(-rows // strata), rows + 1)
    assert all(most_wrong(n, min(n, least - 1), 0, delta) > 0.05 * n for n in sizes)
    assert any(most_wrong(n, min(n, least), 0, delta) <= 0.05 * n for n in sizes)
    assert trial_size(0.05, 0.9, strata=strata, rows=rows) >= least
