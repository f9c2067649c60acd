from __future__ import annotations

import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from coremargin.data.statistics import measure
from coremargin.maths.screening import Balls, reach, screened_floor
from margin_judges import exact_dot


@given(
    st.integers(0, 2**32 - 1), st.integers(1, 6), st.integers(1, 12), st.sampled_from([0.0, 1e-18, 1e-9, 1e-3, 1.0]),
    st.sampled_from([0.0, 1.0, 1e7]),
)  # fmt: skip
def test_screened_floors_are_true_bounds(seed: int, d: int, n: int, step: float, offset: float) -> None:
    """Floors carried to another direction stay below every y w.x, in rational arithmetic and in float64."""
    rng = np.random.default_rng(seed)
    rows = rng.standard_normal((n, d)) * 10.0 ** rng.integers(-3, 4, d) + offset
    found = measure(rows, np.zeros(n, np.int32), 1)
    old = rng.standard_normal(d)
    old /= np.linalg.norm(old)
    new = old + step * rng.standard_normal(d)
    before = [exact_dot(row, old) for row in rows]
    floor = np.nextafter([[float(min(before)), -float(max(before))]], -np.inf)  # as tight as a floor can be
    bound = screened_floor(floor, Balls(found.centre, found.radius), old, new)[0]
    exact = [exact_dot(row, new) for row in rows]
    assert bound[0] <= min(exact)
    assert bound[1] <= min(-value for value in exact)
    assert bound[0] <= (rows @ new).min()
    assert bound[1] <= -(rows @ new).max()


def test_screened_floor_gives_little_away_nearby() -> None:
    """At the same direction a floor keeps all but the rounding; an infinite floor stays infinite."""
    floor = np.array([[0.5, np.inf], [-np.inf, 2.0]])
    w = np.array([0.6, 0.8])
    bound = screened_floor(floor, Balls(np.ones((2, 2)), np.ones(2)), w, w)
    assert bound[0, 0] <= 0.5
    assert bound[0, 0] > 0.5 - 1e-13
    assert bound[0, 1] == np.inf
    assert bound[1, 0] == -np.inf


@given(st.integers(0, 2**32 - 1), st.integers(1, 6), st.integers(1, 12), st.sampled_from([0.0, 1.0, 1e3]))
def test_floors_hold_around_the_origin_and_reach_bounds_every_move(seed: int, d: int, n: int, offset: float) -> None:
    """Without a centre rows lie around the origin, as far as they are long; no decision moves beyond the reach."""
    rng = np.random.default_rng(seed)
    rows = rng.standard_normal((n, d)) + offset * rng.standard_normal(d)
    found = measure(rows, np.zeros(n, np.int32), 1)
    move, old = rng.standard_normal(d + 1), rng.standard_normal(d)
    floor = np.array([[(rows @ old).min(), (-rows @ old).min()]])
    for balls in (Balls(None, found.max_norm), Balls(found.centre, found.radius)):
        size = 1e-12 * (1 + np.abs(rows).max() * d)
        bound = screened_floor(floor, balls, old, old + move[:-1])[0]
        assert bound[0] <= (rows @ (old + move[:-1])).min() + size
        assert bound[1] <= (-rows @ (old + move[:-1])).min() + size
        assert np.abs(rows @ move[:-1] + move[-1]).max() <= reach(balls, move)[0] + size
