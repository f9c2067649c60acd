"""The first read: lower bounds that hold for any store and however wrong forecasts are; what is read."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

import numpy as np
import pytest

from coremargin.data.arrays import ArraySource
from coremargin.maths.outliers.certificates import SearchRows
from coremargin.maths.outliers.heuristic import Hyperplane, measure
from coremargin.maths.outliers.search import run_serially, solve_in_memory
from coremargin.maths.outliers.trimmed import trimmed_margin
from coremargin.problems.hard import forecast
from coremargin.problems.outliers.cached_rows import apply_lower_bounds, measure_cached
from coremargin.problems.outliers.outlier_margin import OutlierMargin
from coremargin.problems.outliers.state import unit_directions
from outlier_loop import bits, noisy, proceed

if TYPE_CHECKING:
    from collections.abc import Callable

    from coremargin.problems.outliers.state import OutlierState

CHUNK = 40
Rows = tuple[np.ndarray, np.ndarray]


def plain(seed: int) -> Rows:
    """Twelve wrong labels anywhere."""
    return noisy(1200, 4, 12, seed)


def together(seed: int) -> Rows:
    """All wrong labels in one chunk, of a late stage."""
    x, y = noisy(1200, 4, 0, seed)
    y[29 * CHUNK : 29 * CHUNK + 12] *= -1
    return x, y


def stranger(seed: int) -> Rows:
    """The last chunk lies elsewhere, and right at the hyperplane of the others, which it turns."""
    x, y = noisy(1200, 4, 6, seed)
    last = np.arange(1200) >= 1200 - CHUNK
    x[last] = 5 * x[last] + np.float32(20)
    good = (y * (x @ solve_in_memory(x[~last], y[~last], 6, epsilon=0.5).best.w) > 0) | ~last
    return x, np.where(good, y, -y)


def copies(seed: int) -> Rows:
    """Every row four times, the wrong labels too."""
    x, y = noisy(300, 4, 3, seed)
    return np.tile(x, (4, 1)), np.tile(y, 4)


STORES = (plain, together, stranger, copies)


def sides(problem: OutlierMargin) -> tuple[np.ndarray, np.ndarray]:
    """All rows (float64) and signs."""
    rows, codes = problem.source.rows_at(np.arange(problem.source.rows))
    return rows, np.where(codes == problem.codes[0], 1, -1).astype(np.int8)


def assert_true(problem: OutlierMargin, state: OutlierState, seed: int) -> None:
    """Lower bounds hold for every row that is not cached; no margin from them, or of an incumbent, is too large."""
    rows, signs = sides(problem)
    rng = np.random.default_rng([seed, 1])
    main = state.main.best.w if state.main.best.w.any() else state.next_directions[0]
    directions = unit_directions(
        [*(main + scale * rng.normal(size=4) for scale in (1e-3, 1e-2, 0.1)), *rng.normal(size=(3, 4))]
    )
    bounds = state.block_bounds.screen(problem.source, directions.T, np.arange(problem.source.chunks))
    away = np.isin(np.arange(len(rows)), state.cached.ids, invert=True)
    values, chunk = signs[:, None] * (rows @ directions.T), np.arange(len(rows)) // problem.source.chunk_rows
    for column, sign in enumerate((1, -1)):
        mine = away & (signs == sign)
        assert (values[mine] >= bounds[:, column, :].T[chunk[mine]]).all()
    found = apply_lower_bounds(measure_cached(state.cached, directions, problem.keep, 1e3), bounds.min(axis=2))
    search_rows = SearchRows(rows, signs, np.zeros(4), intercept=problem.intercept)
    for j, w in enumerate(directions):
        for k in problem.ks:
            assert trimmed_margin(found.lowest(j), w, k, problem.intercept)[0] <= measure(search_rows, w, k).margin
    for search in state.searches:
        assert search.best.margin <= measure(search_rows, search.best.w, search.k).margin


def assert_answer(problem: OutlierMargin, state: OutlierState, rows: Rows) -> None:
    """Proven, by the best there is, with the rows that lie below the margin."""
    direct = solve_in_memory(*rows, problem.ks[-1], intercept=problem.intercept, epsilon=problem.epsilon)
    assert state.status == "certified"
    assert state.lower <= direct.upper * (1 + 1e-12)
    assert direct.lower <= state.upper * (1 + 1e-12)
    assert state.lower >= (1 - problem.epsilon) * state.upper
    x, signs = sides(problem)
    margins = signs * (x @ state.main.best.w + state.main.best.b)
    below = np.flatnonzero(margins < state.lower)
    assert set(below) <= set(state.excluded[-1].ids) <= set(np.flatnonzero(margins < state.lower + 1e-9))
    assert len(below) <= problem.ks[-1]


def followed(problem: OutlierMargin) -> tuple[list[OutlierState], list[int]]:
    """Every state at which a stage or a scan ends, the last one too; how many chunks each of these read."""
    states, read = [problem.start()], []
    while not problem.done(states[-1]):
        waiting = [*problem.work(states[-1], run_serially)][-1:] or [states[-1]]
        if problem.done(waiting[0]):
            states.append(waiting[0])
            break
        read.append(int(np.count_nonzero(~problem.skip(waiting[0]))))
        state = waiting[0]
        states.append(proceed(problem, state, stop=1)[0])
    return states, read


@pytest.mark.specimens(2)
@pytest.mark.parametrize("seed", range(3))
@pytest.mark.parametrize("store", STORES)
def test_bounds_are_true_at_every_stage(store: Callable[[int], Rows], seed: int) -> None:
    """Whatever the store is made of, and with and without an intercept."""
    x, y = store(seed)
    problem = OutlierMargin(
        ArraySource(x, y, chunk_rows=CHUNK), (3, 12), 1e-3, intercept=seed != 1, sample_bytes=2 * CHUNK * 16
    )  # fmt: skip
    assert problem.stages.count >= 3
    states, read = followed(problem)
    for state in states[1:]:
        assert_true(problem, state, seed)
    assert_answer(problem, states[-1], (x, y))
    assert sum(read[: problem.stages.count]) == problem.source.chunks


@pytest.mark.specimens(2)
@pytest.mark.parametrize("seed", range(2))
@pytest.mark.parametrize("store", STORES)
def test_forecasts_that_are_far_too_small_cost_reads(
    store: Callable[[int], Rows], seed: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Hypotheses that are said to stay where they are: chunks are read again, and the proof is as true."""
    monkeypatch.setattr(forecast, "SAFETY", 0.0)
    monkeypatch.setattr(forecast, "LEAST", 0.0)
    x, y = store(seed)
    problem = OutlierMargin(ArraySource(x, y, chunk_rows=CHUNK), (12,), 1e-3, sample_bytes=CHUNK * 16)
    states, read = followed(problem)
    for state in states[1:]:
        assert_true(problem, state, seed)
    assert_answer(problem, states[-1], (x, y))
    assert sum(read) > problem.source.chunks


@pytest.mark.parametrize("seed", range(3))
def test_a_scan_of_some_chunks_claims_no_more_than_all_have(seed: int, monkeypatch: pytest.MonkeyPatch) -> None:
    """Any directions, and any chunks read for them: few cached rows and lower bounds stand in for the others."""
    monkeypatch.setattr(forecast, "SAFETY", 0.0)
    monkeypatch.setattr(forecast, "LEAST", 0.0)
    x, y = together(seed)
    rng = np.random.default_rng([seed, 2])
    problem = OutlierMargin(ArraySource(x, y, chunk_rows=CHUNK), (3, 12), 1e-3, sample_bytes=CHUNK * 16)
    state, _ = proceed(problem, problem.start(), stop=problem.stages.count)
    forgotten = tuple(replace(search, best=Hyperplane.none(4)) for search in state.searches)
    directions = unit_directions([w + rng.normal(size=4) for w in [state.main.best.w] * 3])
    wanted = np.flatnonzero(rng.random(problem.source.chunks) < 0.5)
    state = replace(
        state, status="running", phase="search", searches=forgotten, next_directions=directions, chunks_to_read=wanted
    )  # fmt: skip
    assert_true(problem, proceed(problem, state, stop=1)[0], seed)


@pytest.mark.specimens(1)
@pytest.mark.parametrize("store", STORES)
def test_a_memory_of_few_rows_costs_reads(store: Callable[[int], Rows]) -> None:
    """Rows that do not fit stay in the store with low bounds: they are read again, never taken for proven."""
    x, y = store(7)
    problem = OutlierMargin(ArraySource(x, y, chunk_rows=CHUNK), (12,), 1e-3, memory_bytes=400 * 16)
    states, read = followed(problem)
    for state in states[1:]:
        assert_true(problem, state, 7)
    assert_answer(problem, states[-1], (x, y))
    assert sum(read) > problem.source.chunks


def test_an_even_store_is_read_once() -> None:
    """Wrong labels among many rows: by the end of the stages all is proven."""
    x, y = noisy(60_000, 5, 6, 1)
    problem = OutlierMargin(ArraySource(x, y, chunk_rows=1000), (6,), 1e-3, sample_bytes=60_000)
    states, read = followed(problem)
    assert_answer(problem, states[-1], (x, y))
    assert problem.stages.count >= 3
    assert sum(read) == problem.source.chunks


def test_a_small_store_is_read_once_whatever_the_search_needs() -> None:
    """All rows are cached: candidates are measured without a scan."""
    x, y = noisy(150, 5, 0, seed=11)
    problem = OutlierMargin(ArraySource(x, y, chunk_rows=10), (7,), 0.0)
    states, read = followed(problem)
    assert states[-1].status == "certified"
    assert read == [problem.source.chunks]


@pytest.mark.specimens(1)
@pytest.mark.parametrize("stop", [1, 3, 5])
def test_restored_between_stages_it_ends_with_the_same_bits(stop: int) -> None:
    """From the arrays of any state on the way."""
    x, y = together(3)
    problem = OutlierMargin(ArraySource(x, y, chunk_rows=CHUNK), (3, 12), 1e-3, sample_bytes=CHUNK * 16)
    whole, _ = proceed(problem, problem.start())
    half, _ = proceed(problem, problem.start(), stop=stop)
    restored = problem.restore(half.to_arrays())
    assert bits(restored) == bits(half)
    assert bits(proceed(problem, restored)[0]) == bits(whole)


def test_a_stage_that_sends_nothing() -> None:
    """All of its rows lie far from where they could matter: directions stay, and the answer is the best there is."""
    rng = np.random.default_rng(147)
    x = rng.standard_normal((600, 2))
    y = np.where(x[:, 0] >= 0, 1, -1)
    x[:, 0] += 2.0 * y
    y[rng.integers(0, 600, 3)] *= -1
    problem = OutlierMargin(ArraySource(x.astype(np.float32), y, chunk_rows=10), (5,), 1e-2, sample_bytes=80)
    states, _ = followed(problem)
    assert any(not len(state.cached) for state in states[1:])
    assert_answer(problem, states[-1], (x.astype(np.float32), y))
