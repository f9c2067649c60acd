"""Whole jobs on hostile little data sets, judged in rational arithmetic: no claim may be false, whatever the end."""

from __future__ import annotations

from fractions import Fraction
from typing import Any
from unittest.mock import patch

import numpy as np
import pytest
from hypothesis import assume, given, settings
from hypothesis import strategies as st

from coremargin.problems.hard import forecast
from margin_judges import is_above_exact, is_below_exact
from plain_loop import Run, assert_bounds_hold, sides, solve


@st.composite
def hostile(draw: st.DrawFn) -> tuple[np.ndarray, np.ndarray]:
    """Rows (n, d) of mixed sizes, far from the origin, on grids, repeated, nearly touching; labels of two classes."""
    rng = np.random.default_rng(draw(st.integers(0, 2**32 - 1)))
    n, d = draw(st.integers(2, 40)), draw(st.integers(1, 5))
    w = rng.standard_normal(d)
    X = rng.standard_normal((n, d))
    y = np.where(X @ w > 0, 1, -1)
    X += draw(st.sampled_from([0.0, 1e-9, 1e-3, 1.0, 30.0])) * y[:, None] * w / (w @ w)
    X *= 10.0 ** (rng.integers(-6, 7, d) if draw(st.booleans()) else draw(st.sampled_from([-30, -3, 0, 3, 30])))
    X += draw(st.sampled_from([0.0, 0.0, 1.0, 1e7])) * np.abs(X).max()
    if draw(st.booleans()):
        step = 0.2 * np.abs(X).max()
        X = np.round(X / step) * step
    copies = rng.integers(0, n, n // 2)
    if draw(st.booleans()):
        X[: len(copies)], y[: len(copies)] = X[copies], y[copies]
    if draw(st.integers(0, 3)) == 0:
        y[rng.integers(0, n)] *= -1
    with np.errstate(over="ignore"):
        X = X.astype(draw(st.sampled_from(["float32", "float64"])))
    assume((y > 0).any() and (y < 0).any() and np.isfinite(X).all())
    return X, y


options = st.fixed_dictionaries(
    {
        "epsilon": st.sampled_from([0.5, 0.1, 1e-3, 1e-8]),
        "intercept": st.booleans(),
        "strategy": st.sampled_from(["fast", "fast", "fast", "paper", "any-violator"]),
        "chunk_rows": st.sampled_from([1, 3, 7, 100]),
        "block_chunks": st.sampled_from([1, 2, 100]),
        "working_set_bytes": st.sampled_from([1, 1 << 20]),
        "sample_bytes": st.sampled_from([1, 200, 1 << 20]),
    }
)


def assert_no_claim_is_false(run: Run) -> None:
    """Every bound that any round claimed holds in rational arithmetic, and so does the verdict."""
    _, rows, signs = sides(run.problem.source, run.problem.codes)
    intercept = run.problem.intercept
    for state in run.states:
        if state.best is not None:
            assert is_below_exact(state.lower, rows, signs, state.best.w, state.best.b)
            assert intercept or state.best.b == 0
        core = state.coreset
        if np.isfinite(state.upper):
            assert is_above_exact(state.upper, core.rows, core.signs, core.weights, intercept=intercept)
            assert len(core) <= rows.shape[1] + 1 + intercept
        assert max(state.lower, 0.0) <= state.upper
    last = run.last
    if last.status == "certified":
        assert last.lower > 0
        assert Fraction(last.lower) >= (1 - Fraction(run.problem.epsilon)) * Fraction(last.upper) * (
            1 - Fraction(1, 2**50)
        )
    if last.status == "not_separable":
        assert last.lower <= 0
        assert last.upper <= 1e-11 * np.linalg.norm(rows, axis=1).max()


@settings(max_examples=250)
@given(hostile(), options)
def test_no_claim_of_a_job_is_false(case: tuple[np.ndarray, np.ndarray], chosen: dict[str, Any]) -> None:
    """Whatever the rows, bounds of all rounds are outward, verdicts follow from them, and every job ends."""
    run = solve(*case, **chosen)
    assert run.last.status in ("certified", "not_separable", "stalled")
    assert_no_claim_is_false(run)


@settings(max_examples=80)
@given(hostile(), options)
def test_no_block_bound_of_a_job_is_false(case: tuple[np.ndarray, np.ndarray], chosen: dict[str, Any]) -> None:
    """Whatever the rows, floors of all rounds hold for every row outside the pool, at any direction."""
    assert_bounds_hold(solve(*case, **chosen), np.random.default_rng(7))


@settings(max_examples=80)
@given(hostile(), options)
def test_skipped_chunks_hold_no_violator(case: tuple[np.ndarray, np.ndarray], chosen: dict[str, Any]) -> None:
    """A chunk that a scan skips has no row outside the pool that breaks the bound asked for."""
    run = solve(*case, **(chosen | {"strategy": "fast"}))
    ids, rows, signs = sides(run.problem.source, run.problem.codes)
    for state, read in zip(run.states, run.chunks, strict=False):
        if state.reading:  # what a stage leaves out comes in another one
            continue
        margins = signs * (rows @ state.newest.w + state.newest.b)
        away = ~np.isin(ids // run.problem.source.chunk_rows, read) & ~np.isin(ids, state.working_set.ids)
        assert (margins[away] >= (1 - run.problem.epsilon) * state.upper).all()


@st.composite
def adversarial(draw: st.DrawFn) -> tuple[np.ndarray, np.ndarray, int]:
    """Rows of which those that come late are unlike those that came before, and rows per chunk.

    A chunk of its own kind, read in the first stage or in the last one; rows in the order of their margins, the worst
    ones last; the classes one after the other.
    """
    rng = np.random.default_rng(draw(st.integers(0, 2**32 - 1)))
    n, d, chunk_rows = draw(st.integers(100, 400)), draw(st.integers(1, 4)), draw(st.sampled_from([2, 5, 9]))
    w = rng.standard_normal(d)
    X = rng.standard_normal((n, d))
    y = np.where(X @ w > 0, 1, -1)
    apart = draw(st.sampled_from([0.0, 0.3, 3.0]))
    margins = np.abs(X @ w)
    X += apart * y[:, None] * w / (w @ w)
    match draw(st.sampled_from(["odd chunk", "worst last", "by class"])):
        case "odd chunk":
            start = chunk_rows * draw(st.integers(0, (n - 1) // chunk_rows))
            odd = slice(start, start + chunk_rows)
            scale, away = draw(st.sampled_from([1e-3, 1.0, 1e3])), rng.standard_normal(d)
            X[odd] = X[odd] * scale + 10.0 * away * draw(st.sampled_from([0.0, 1.0]))
            if draw(st.booleans()):
                y[odd] = np.where(X[odd] @ w > 0, 1, -1)
        case "worst last":
            order = np.argsort(-margins)
            X, y = X[order], y[order]
        case _:
            order = np.argsort(y, kind="stable")
            X, y = X[order], y[order]
    assume((y > 0).any() and (y < 0).any())
    return X.astype(np.float32), y, chunk_rows


@pytest.mark.slow
@settings(max_examples=120)
@given(
    adversarial(),
    st.sampled_from([1e-2, 1e-6]),
    st.booleans(),
    st.sampled_from([(3.0, 0.5), (0.0, 0.0), (1e3, 1.0)]),
    st.sampled_from([1, 1 << 20]),
)
def test_stores_that_deceive_stages_are_read_again(
    case: tuple[np.ndarray, np.ndarray, int], epsilon: float, intercept: bool, given: tuple[float, float], pool: int
) -> None:
    """Whatever comes late, and however wrong forecasts are: no claim is false, floors hold, and what is certified is.

    Too little that comes home in the first read, or too much for the pool, means more reads.
    """
    X, y, chunk_rows = case
    options: dict[str, Any] = {
        "sample_bytes": 1,
        "sample_share": 0.01,
        "working_set_bytes": pool,
        "intercept": intercept,
    }
    with patch.object(forecast, "SAFETY", given[0]), patch.object(forecast, "LEAST", given[1]):
        run = solve(X, y, epsilon, chunk_rows=chunk_rows, **options)
    assert run.states[0].stages >= 2
    assert_no_claim_is_false(run)
    assert_bounds_hold(run, np.random.default_rng(7))
    first_read = [chunk for state, read in zip(run.states, run.chunks, strict=False) if state.reading for chunk in read]
    if all(state.status == "running" for state in run.states[: run.states[0].stages]):
        assert sorted(first_read) == list(range(run.problem.source.chunks))
