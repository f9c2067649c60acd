from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np
from hypothesis import given, settings
from hypothesis import strategies as st

from coremargin.data.arrays import ArraySource
from coremargin.problems.common import balls as balls_module
from coremargin.problems.hard.block_bounds import BlockBounds

if TYPE_CHECKING:
    import pytest


def bounds_of(source: ArraySource, w: np.ndarray, outside: np.ndarray) -> np.ndarray:
    """Bounds (c, 2) of the rows outside the working set, as tight as float64 allows."""
    rows, codes = source.rows_at(np.arange(source.rows))
    values, chunk = rows @ w, np.arange(source.rows) // source.chunk_rows
    error = 1e-14 * source.features * np.abs(rows).max()
    floor = np.full((source.chunks, 2), np.inf)
    for k, sign in enumerate((1, -1)):
        mine = outside & (codes == k)
        np.minimum.at(floor[:, k], chunk[mine], sign * values[mine] - error)
    return floor


def holds(source: ArraySource, bounds: BlockBounds, directions: np.ndarray, outside: np.ndarray) -> bool:
    """Whether screened bounds are below every row outside the working set."""
    rows, codes = source.rows_at(np.arange(source.rows))
    chunk = np.arange(source.rows) // source.chunk_rows
    bound = bounds.screen(source, directions, np.arange(source.chunks))
    values = rows @ directions
    return all(
        (sign * values[outside & (codes == k)] >= bound[:, k, :].T[chunk[outside & (codes == k)]]).all()
        for k, sign in enumerate((1, -1))
    )


@settings(max_examples=60)
@given(st.integers(0, 2**32 - 1), st.integers(1, 6), st.sampled_from([1e-12, 1e-3, 1.0, 1e3]))
def test_screened_bounds_hold_after_scans_and_evictions(seed: int, d: int, step: float) -> None:
    """Scans of some chunks at changing directions, rows leaving the working set between them: bounds stay true."""
    rng = np.random.default_rng(seed)
    n = int(rng.integers(4, 80))
    y = rng.integers(0, 2, n)
    y[:2] = 0, 1
    X = rng.standard_normal((n, d)) * 10.0 ** rng.integers(-2, 3) + rng.choice([0, 100.0])
    source = ArraySource(X, y, classes=(0, 1), chunk_rows=int(rng.integers(1, 20)))
    bounds, outside = BlockBounds.unknown(source.chunks, d), rng.random(n) < 0.7
    w = rng.standard_normal(d)
    for _ in range(4):
        w = w + step * rng.standard_normal(d)
        w /= np.linalg.norm(w)
        read = np.flatnonzero(rng.random(source.chunks) < 0.6)
        bounds = bounds.record(read, bounds_of(source, w, outside)[read], w)
        gone = np.flatnonzero(~outside & (rng.random(n) < 0.3))
        outside[gone] = True
        signs = np.where(y[gone] == 0, 1, -1).astype(np.int8)
        bounds = bounds.lowered(gone // source.chunk_rows, source.rows_at(gone)[0], signs)
        near = w[:, None] + step * rng.standard_normal((d, 2))
        assert holds(source, bounds, np.column_stack([w, near, rng.standard_normal(d)]), outside)


def test_unknown_chunks_have_no_bounds(rng: np.random.Generator) -> None:
    """Before any scan every screened bound is -inf."""
    source = ArraySource(rng.standard_normal((30, 2)), [0, 1] * 15, chunk_rows=7)
    bound = BlockBounds.unknown(source.chunks, 2).screen(source, np.eye(2), np.arange(source.chunks))
    assert bound.shape == (2, 2, source.chunks)
    assert (bound == -np.inf).all()


def test_only_directions_in_use_are_kept(rng: np.random.Generator) -> None:
    """A direction that no chunk refers to any more is dropped; the others keep their chunks."""
    bounds = BlockBounds.unknown(4, 2)
    for k, chunks in enumerate(([0, 1, 2, 3], [0, 1], [], [2, 3], [0])):
        bounds = bounds.record(np.array(chunks, np.int64), np.full((len(chunks), 2), float(k)), np.full(2, float(k)))
    assert bounds.directions[:, 0].tolist() == [1, 3, 4]
    assert bounds.directions[bounds.direction_index, 0].tolist() == bounds.lower[:, 0].tolist() == [4, 1, 3, 3]


def test_rows_of_unread_chunks_need_no_bound() -> None:
    """A row that leaves the working set from a chunk that was never scanned changes nothing: its bound is -inf."""
    blank = BlockBounds.unknown(3, 2)
    lowered = blank.lowered(np.array([1]), np.ones((1, 2)), np.ones(1, np.int8))
    assert (lowered.lower == -np.inf).all()


def test_slabs_of_centres_change_nothing(rng: np.random.Generator, monkeypatch: pytest.MonkeyPatch) -> None:
    """Centres loaded a few at a time, for some chunks only, give the same bounds."""
    source = ArraySource(rng.standard_normal((100, 3)), [0, 1] * 50, classes=(0, 1), chunk_rows=5)
    w = np.array([0.6, 0.8, 0.0])
    bounds = BlockBounds.unknown(20, 3).record(np.arange(15), bounds_of(source, w, np.ones(100, bool))[:15], w)
    whole = bounds.screen(source, np.eye(3), np.arange(20))
    monkeypatch.setattr(balls_module, "SLAB_BYTES", 3 * 8 * 3)
    some = np.array([1, 2, 7, 8, 9, 14, 19])
    assert (bounds.screen(source, np.eye(3), some) == whole[:, :, some]).all()


def test_arrays_hold_all_bounds(rng: np.random.Generator) -> None:
    """The arrays are the bounds, the directions, and which of them each chunk was read at."""
    bounds = BlockBounds.unknown(3, 2).record(np.array([1]), np.array([[0.5, 0.25]]), np.array([0.0, 1.0]))
    arrays = bounds.to_arrays("known")
    assert arrays["known_lower"].tolist() == [[-np.inf, -np.inf], [0.5, 0.25], [-np.inf, -np.inf]]
    assert arrays["known_direction_index"].tolist() == [-1, 0, -1]
    assert arrays["known_directions"].tolist() == [[0, 1]]
    back = BlockBounds.from_arrays("known", arrays)
    assert (back.lower == bounds.lower).all()
