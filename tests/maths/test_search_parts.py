"""Parts of the outlier search: lists, bounds of many certificates, wrong labels, and what to expect."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from coremargin.maths import margin
from coremargin.maths.margin import normalised_weights, upper_bound, upper_bounds
from coremargin.maths.outliers.certificates import Certificates
from coremargin.maths.outliers.forecast import AHEAD, forecast_gap
from coremargin.maths.outliers.ragged import Ragged
from coremargin.maths.outliers.trimmed import count_misclassified
from margin_judges import is_above_exact

LISTS = st.lists(st.lists(st.integers(-9, 9), max_size=4), max_size=6)


@given(LISTS, LISTS, st.data())
def test_ragged_lists_are_lists(first: list[list[int]], second: list[list[int]], data: st.DataObject) -> None:
    """Made, joined, counted, taken by place and gone through, they are the lists that they were made of."""
    both, whole = Ragged.concatenate([Ragged.from_lists(first), Ragged.from_lists(second)]), [*first, *second]
    assert len(both) == len(whole)
    assert [part.tolist() for part in both] == whole
    assert [both[place].tolist() for place in range(len(both))] == whole
    assert both.lengths.tolist() == list(map(len, whole))
    places = data.draw(st.lists(st.integers(0, len(whole) - 1), max_size=5)) if whole else []
    assert [part.tolist() for part in both.take(np.array(places, int))] == [whole[place] for place in places]


@pytest.mark.parametrize("intercept", [True, False])
@pytest.mark.parametrize("entries", [1, 1 << 20])
def test_many_bounds_are_those_of_each(intercept: bool, entries: int, monkeypatch: pytest.MonkeyPatch) -> None:
    """The bound of every set is that of the set alone, and not below the one in exact numbers; rows of zeros are 0."""
    monkeypatch.setattr(margin, "_ENTRIES", entries)
    rng = np.random.default_rng(1)
    x, signs = rng.normal(size=(30, 3)) + 5.0, np.where(np.arange(30) % 2, 1, -1)
    x[:2] = 0.0
    sets = [np.array([0, 1]), *(np.append(rng.choice(28, size, replace=False) + 2, [28, 29]) for size in (1, 3, 6))]
    weights = [rng.random(len(rows)) + 0.1 for rows in sets]
    owner = np.repeat(np.arange(len(sets)), [len(rows) for rows in sets])
    shares, bounds = upper_bounds(x, signs, np.concatenate(sets), np.concatenate(weights), owner, intercept)
    for place, (rows, each) in enumerate(zip(sets, weights, strict=True)):
        normal = normalised_weights(each, signs[rows], intercept)
        assert shares[owner == place] == pytest.approx(normal)
        assert bounds[place] == pytest.approx(upper_bound(x[rows], signs[rows], normal, intercept), rel=1e-13)
        mine = shares[owner == place]
        assert is_above_exact(float(bounds[place]), x[rows], signs[rows], mine, intercept=intercept)
    assert bounds[0] == 0.0


@given(st.lists(st.integers(-4, 4), min_size=1, max_size=7), st.lists(st.integers(-4, 4), min_size=1, max_size=7))
def test_the_fewest_wrong_rows_are_those_of_the_best_offset(positive: list[int], negative: list[int]) -> None:
    """Over all offsets, tried on a grid finer than the values; without an intercept, those below zero."""
    p, q = np.array(positive, float), np.array(negative, float)
    offsets = np.arange(-10, 10.25, 0.25)
    tried = [int((p + b < 0).sum() + (q - b < 0).sum()) for b in offsets]
    assert count_misclassified(p, q, intercept=True) == min(tried)
    assert count_misclassified(p, q, intercept=False) == int((p < 0).sum() + (q < 0).sum())


def power_law(works: list[int], slope: float) -> list[tuple[int, float, float]]:
    """Steps of bounds whose gap is a power of the work."""
    return [(work, 1.0 - work**-slope, 1.0) for work in works]


def test_a_gap_that_falls_steadily_is_drawn_on() -> None:
    """Just after a step the gap after ten times the work is that of the law; waiting for the next makes it more."""
    steps = power_law([10, 100, 1000], 0.25)
    now = forecast_gap(steps, 1000)
    later = forecast_gap(steps, 5000)
    assert now is not None
    assert later is not None
    assert (now.gap, now.later) == pytest.approx((1000**-0.25, (AHEAD * 1000) ** -0.25))
    assert now.later < later.later < later.gap


@pytest.mark.parametrize(
    "steps",
    [[], [(10, 0.0, 1.0), (20, 0.0, 0.5)], [(10, 0.5, np.inf)], [(10, 0.5, 1.0)], [(10, 0.5, 1.0), (20, 0.5, 0.999)]],
)
def test_too_little_is_known_to_expect_anything(steps: list[tuple[int, float, float]]) -> None:
    """No step, no margin, no bound, one step, or a second that hardly is one."""
    assert forecast_gap(steps, 100) is None


def certificates(uses: list[int], since: list[float]) -> Certificates:
    """One row each."""
    rows, weights = (
        Ragged.from_lists([place] for place in range(len(uses))),
        Ragged.from_lists(([1.0] for _ in uses), float),
    )
    return Certificates(rows, weights, np.array(since), np.array(since), np.array(uses))


def test_the_newest_and_the_most_used_are_looked_through() -> None:
    """Of those that stand at the threshold, by number; all where there are few."""
    some = certificates([5, 0, 9, 1, 0, 0, 0], [1.0, 1.0, 1.0, 1.0, 3.0, 1.0, 1.0])
    assert some.valid_at(2.0, 10).tolist() == [0, 1, 2, 3, 5, 6]
    assert some.valid_at(2.0, 4).tolist() == [0, 2, 5, 6]
    assert some.valid_at(0.5, 4).tolist() == []
    assert [one.value for one in some.take(np.array([4]))] == [3.0]
