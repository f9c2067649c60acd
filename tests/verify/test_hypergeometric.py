"""The verifier's bound on wrong rows against exact fractions, scipy, and the bound of who claims it."""

from __future__ import annotations

import math
from fractions import Fraction

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from scipy.stats import hypergeom

from coremargin.maths import evidence
from coremargin.verify.active.hypergeometric import (
    UpperNumber,
    at_least_wrong,
    at_most_wrong,
    least_bound,
    most_least,
    ruled_out,
    share_of,
)


def chance(rows: int, bad: int, draws: int, wrong: int = 0) -> Fraction:
    """That at most so many of the bad rows are drawn, by counting all ways to draw."""
    ways = sum(math.comb(bad, k) * math.comb(rows - bad, draws - k) for k in range(min(wrong, draws) + 1))
    return Fraction(ways, math.comb(rows, draws))


def most(rows: int, draws: int, delta: Fraction) -> int:
    """The most bad rows whose chance is above delta, by trying all."""
    return max(bad for bad in range(rows - draws + 1) if bad == 0 or chance(rows, bad, draws) > delta)


def test_all_small_cases_are_as_counted() -> None:
    """Whatever 14 rows or fewer are drawn from: what is ruled out is what counting all ways to draw rules out."""
    for rows in range(1, 15):
        for draws in range(rows + 1):
            for delta in (Fraction(123, 10_007), Fraction(4567, 10_007)):  # no chance is equal to these
                assert least_bound(rows, draws, delta) == most(rows, draws, delta), (rows, draws, delta)
            for bad in range(rows + 1):
                exact = chance(rows, bad, draws)
                assert ruled_out(rows, bad, draws, exact * (1 + Fraction(1, 2**200)))
                if exact:
                    assert not ruled_out(rows, bad, draws, exact * (1 - Fraction(1, 2**200)))


def test_all_small_cases_with_wrong_draws_are_as_counted() -> None:
    """Whatever 11 rows or fewer are drawn from, however many draws are wrong: both bounds are those of counting, and
    what is ruled out is what all ways to draw rule out.
    """
    delta = Fraction(1234, 10_007)
    for rows in range(1, 12):
        for draws in range(rows + 1):
            for wrong in range(draws + 1):
                some = range(wrong, rows - draws + wrong + 1)  # so many can be bad at all
                most = max(bad for bad in some if bad == wrong or chance(rows, bad, draws, wrong) > delta)
                least = min(bad for bad in some if bad == some[-1] or 1 - chance(rows, bad, draws, wrong - 1) > delta)
                assert least_bound(rows, draws, delta, wrong) == most, (rows, draws, wrong)
                assert most_least(rows, draws, delta, wrong) == least, (rows, draws, wrong)
                for bad in range(rows + 1):
                    assert at_most_wrong(rows, draws, bad, delta, wrong) == (bad >= most), (rows, draws, wrong, bad)
                    assert at_least_wrong(rows, draws, bad, delta, wrong) == (bad <= least), (rows, draws, wrong, bad)
                    exact = chance(rows, bad, draws, wrong)
                    assert ruled_out(rows, bad, draws, exact * (1 + Fraction(1, 2**200)), wrong)
                    if exact:
                        assert not ruled_out(rows, bad, draws, exact * (1 - Fraction(1, 2**200)), wrong)


@given(st.integers(15, 300), st.floats(0, 1), st.floats(0, 1), st.floats(0, 1), st.floats(1e-12, 0.9))
def test_bounds_with_wrong_draws_are_as_counted(
    rows: int, bad: float, draws: float, wrong: float, delta: float
) -> None:
    """A case of some hundred rows, of which some draws are wrong, is ruled out where its exact chance says so."""
    some, drawn = round(bad * rows), round(draws * rows)
    seen = round(wrong * drawn)
    assert ruled_out(rows, some, drawn, Fraction(delta), seen) == (chance(rows, some, drawn, seen) <= delta)
    if some <= rows:
        right = chance(rows, rows - some, drawn, drawn - seen)  # so few are right: so many are wrong
        assert at_least_wrong(rows, drawn, some + 1, Fraction(delta), seen) == (some < seen or right <= delta)


@pytest.mark.parametrize("rows", [10**4, 10**6, 10**9])
def test_scipy_has_the_same_chances_of_wrong_draws(rows: int) -> None:
    """For many rows the limits lie where scipy's distribution has them, to the digits that scipy has of so many."""
    near = Fraction(rows, 10**13) + Fraction(1, 10**9)
    for draws, bad, wrong in ((459, rows // 50, 3), (3000, rows // 100, 20), (90, rows // 3, 35), (2000, 40, 0)):
        found = float(hypergeom.cdf(wrong, rows, bad, draws))
        assert ruled_out(rows, bad, draws, Fraction(found) * (1 + near), wrong)
        assert not ruled_out(rows, bad, draws, Fraction(found) * (1 - near), wrong)
        above = float(hypergeom.sf(wrong - 1, rows, bad, draws))
        assert at_least_wrong(rows, draws, bad + 1, Fraction(above) * (1 + near), wrong)
        assert (
            bad < wrong or wrong == 0 or not at_least_wrong(rows, draws, bad + 1, Fraction(above) * (1 - near), wrong)
        )


@given(st.integers(15, 400), st.floats(0, 1), st.floats(0, 1), st.floats(1e-12, 0.9))
def test_bounds_are_as_counted(rows: int, bad: float, draws: float, delta: float) -> None:
    """A case of some hundred rows is ruled out where its exact chance says so, and nowhere else."""
    some, drawn = round(bad * rows), round(draws * rows)
    assert ruled_out(rows, some, drawn, Fraction(delta)) == (chance(rows, some, drawn) <= delta)


@pytest.mark.parametrize("rows", [10**4, 10**6, 10**9])
@pytest.mark.parametrize("draws", [90, 459, 3000])
def test_scipy_has_the_same_chances(rows: int, draws: int) -> None:
    """For many rows the limit lies where scipy's distribution has it, to the digits that scipy has of so many."""
    near = Fraction(rows, 10**14)
    for bad in (1, 50, rows // 100, rows // 3):
        found = float(hypergeom.cdf(0, rows, bad, draws))
        if 1e-200 < found < 1:
            assert ruled_out(rows, bad, draws, Fraction(found) * (1 + near))
            assert not ruled_out(rows, bad, draws, Fraction(found) * (1 - near))


@given(st.integers(1, 10**10), st.integers(1, 2000), st.floats(0.01, 0.999), st.integers(1, 9))
def test_what_is_claimed_is_confirmed(rows: int, draws: int, confidence: float, attempt: int) -> None:
    """The bound that campaigns claim is proven, and none that is smaller by two."""
    draws = min(draws, rows)
    claimed = evidence.most_wrong(rows, draws, 0, evidence.share_of(1.0 - confidence, attempt))
    delta = share_of(confidence, attempt)
    assert at_most_wrong(rows, draws, claimed, delta)
    assert claimed - least_bound(rows, draws, delta) <= max(1, 1e-7 * rows)


@given(st.integers(1, 10**9), st.floats(0.001, 0.9), st.floats(0.5, 0.9999), st.integers(1, 5))
def test_as_many_draws_as_are_needed_are_enough(rows: int, error: float, confidence: float, attempt: int) -> None:
    """So many draws as a campaign makes show, none being wrong, the share that was asked for."""
    draws = evidence.draws_needed(rows, error, evidence.share_of(1.0 - confidence, attempt))
    assert at_most_wrong(rows, draws, math.floor(error * rows), share_of(confidence, attempt))


def test_all_attempts_together_stay_below_what_is_asked_for() -> None:
    """The shares of ever so many attempts sum up to less than 1 - confidence, and none is rounded to nothing."""
    assert sum(share_of(0.99, attempt) for attempt in range(1, 2000)) < 1 - Fraction(0.99)
    assert share_of(0.99, 10**400) > 0


def test_sums_are_never_below_the_truth() -> None:
    """Numbers of any sizes, added, none among them: at least what fractions say, and hardly more."""
    rng = np.random.default_rng(2)
    for _ in range(200):
        found, exact = UpperNumber(0, 0), Fraction(0)
        for _ in range(20):
            one, value = UpperNumber(), Fraction(1)
            for _ in range(int(rng.integers(0, 12))):
                above, below = (int(rng.integers(1, 2**62)) for _ in range(2))
                one.times(above, below << int(rng.integers(0, 200)))
                value = Fraction(one.whole) * Fraction(2) ** one.exponent
            found.plus(one)
            exact += value
        total = Fraction(found.whole) * Fraction(2) ** found.exponent
        assert exact <= total <= exact * (1 + Fraction(1, 2**240))
    tiny = UpperNumber()
    tiny.times(1, 2**5000)
    one = UpperNumber()
    one.plus(tiny)
    assert Fraction(one.whole) * Fraction(2) ** one.exponent > 1
    tiny.plus(UpperNumber(0, 0))
    assert Fraction(tiny.whole) * Fraction(2) ** tiny.exponent == Fraction(1, 2**5000)


def test_products_are_never_below_the_truth() -> None:
    """Numbers of any sizes, multiplied: at least what fractions say, and hardly more."""
    rng = np.random.default_rng(1)
    for _ in range(200):
        found, exact = UpperNumber(), Fraction(1)
        for _ in range(40):
            above, below = (int(rng.integers(1, 2**62)) for _ in range(2))
            found.times(above, below)
            exact *= Fraction(above, below)
        value = Fraction(found.whole) * Fraction(2) ** found.exponent
        assert exact <= value <= exact * (1 + Fraction(1, 2**240))


def test_quotients_are_rounded_up() -> None:
    """Divided by 3, 5 or 7 again and again: never below the truth, whatever bits are left over."""
    for below in (3, 5, 7):
        found, exact = UpperNumber(), Fraction(1)
        for _ in range(300):
            found.times(1, below)
            exact /= below
            assert exact < Fraction(found.whole) * Fraction(2) ** found.exponent <= exact * (1 + Fraction(1, 2**240))


def test_more_rows_than_there_are_are_refused() -> None:
    """More draws than rows, more bad rows than rows, less than none: ValueError."""
    for numbers in ((5, 1, 6), (5, 6, 2), (5, -1, 2), (5, 1, -1)):
        with pytest.raises(ValueError, match="expected"):
            ruled_out(*numbers, Fraction(1, 2))
    for wrong in (-1, 3):
        with pytest.raises(ValueError, match="expected"):
            ruled_out(5, 1, 2, Fraction(1, 2), wrong)
