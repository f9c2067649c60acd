from __future__ import annotations

from functools import reduce
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from coremargin.data.arrays import ArraySource
from coremargin.engine.protocols import Block
from coremargin.maths import rows as maths_rows
from coremargin.problems.hard import probe as margin_probe
from coremargin.problems.hard.probe import NO_ROW, MarginProbe, MarginSummary
from margin_judges import exact_dot


def ask(source: ArraySource, w: np.ndarray, **changes: Any) -> MarginProbe:
    """The question about direction w, of codes 0 (positive) and 1 (negative)."""
    options: dict[str, Any] = {
        "base": w[:, None], "mix": np.ones((1, 1)), "offset": 0.0, "codes": (0, 1), "level": 1.0, "keep": 5,
        "known_ids": np.zeros(0, np.int64), "low": -5.0, "high": 5.0, "bins": 10, "dtype": source.dtype.name,
        "chunk_rows": source.chunk_rows,
    }  # fmt: skip
    return MarginProbe(**(options | changes))


def answer(source: ArraySource, probe: MarginProbe, together: int = 1) -> MarginSummary:
    """The merged summary of blocks of ``together`` chunks each."""
    starts = range(0, source.chunks, together)
    blocks = [Block(k, tuple(range(c, min(c + together, source.chunks)))) for k, c in enumerate(starts)]
    return reduce(MarginSummary.merge, (probe.narrow(block)(source, block) for block in blocks), probe.empty())


def rows_and_labels(
    rng: np.random.Generator, n: int = 300, d: int = 6, dtype: str = "float32"
) -> tuple[np.ndarray, np.ndarray]:
    """Random rows and labels "a", "b", with one in ten unlabelled."""
    y = rng.choice(np.array(["a", "b", None], object), n, p=[0.5, 0.4, 0.1])
    y[:2] = "a", "b"
    return rng.standard_normal((n, d)).astype(dtype), y


def unit(rng: np.random.Generator, d: int) -> np.ndarray:
    """A random direction."""
    w = rng.standard_normal(d)
    return np.asarray(w / np.linalg.norm(w))


def assert_proven(X: np.ndarray, y: np.ndarray, source: ArraySource, probe: MarginProbe, found: MarginSummary) -> None:
    """Against a dense float64 evaluation: smallest values are true, tight and have their rows; bounds are true."""
    X = X.astype(np.float64)
    size = np.abs(X).max() * X.shape[1]
    ids = np.arange(len(X))
    free = np.isin(ids, np.concatenate([probe.known_ids, found.sent.ids]), invert=True)
    for k, (label, sign) in enumerate((("a", 1), ("b", -1))):
        mine = ids[y == label]
        values = sign * (X[mine] @ probe.directions)
        assert (found.smallest[k] <= values.min(axis=0)).all()
        assert (found.smallest[k] >= values.min(axis=0) - 1e-13 * size - 1e-300).all()
        at = found.smallest_id[k]
        assert np.isin(at, mine).all()
        worst = sign * np.einsum("ij,ji->i", X[at], probe.directions)
        assert (worst <= values.min(axis=0) + 1e-13 * size + 1e-300).all()
        for chunk, floor in zip(found.chunks, found.chunk_lower[:, k], strict=True):
            start, stop = source.span(int(chunk))
            left = values[free[mine] & (mine >= start) & (mine < stop), 0]
            assert floor <= left.min(initial=np.inf)
            assert floor > -np.inf
            if not len(left):
                assert floor == np.inf
    assert found.histogram.sum(axis=1).tolist() == [(y == "a").sum(), (y == "b").sum()]


@pytest.mark.parametrize("dtype", ["float32", "float64"])
@pytest.mark.parametrize("d", [1, 2, 7, 100])
def test_answers_equal_a_dense_evaluation(rng: np.random.Generator, dtype: str, d: int) -> None:
    """Smallest values, their rows, bounds and counts agree with float64 on all rows, unlabelled ones left out."""
    for together in (1, 3, 100):
        X, y = rows_and_labels(rng, d=d, dtype=dtype)
        source = ArraySource(X, y, classes=("a", "b"), chunk_rows=37)
        known = np.sort(rng.choice(300, 40, replace=False))
        probe = ask(source, unit(rng, d), known_ids=known)
        found = answer(source, probe, together)
        assert_proven(X, y, source, probe, found)
        assert not np.isin(found.sent.ids, known).any()
        assert (found.sent.rows == X[found.sent.ids]).all()
        assert (found.sent.signs == np.where(y[found.sent.ids] == "a", 1, -1)).all()


def test_columns_of_a_segment_are_proven(rng: np.random.Generator) -> None:
    """Every point of the segment between two hypotheses gets its own true smallest values."""
    X, y = rows_and_labels(rng, n=2000, d=20)
    source = ArraySource(X, y, classes=("a", "b"), chunk_rows=128)
    t = np.array([1.0, 0.25, 0.5, 0.75, 0.9])
    for angle in (1e-9, 1e-3, 1.0):
        w = unit(rng, 20)
        other = w + angle * unit(rng, 20)
        base = np.column_stack([w, other / np.linalg.norm(other)])
        probe = ask(source, w, base=base, mix=np.stack([t, 1 - t]))
        found = answer(source, probe, 4)
        assert found.smallest.shape == (2, 5)
        assert_proven(X, y, source, probe, found)


@pytest.mark.parametrize("dtype", ["float32", "float64"])
def test_bounds_do_not_depend_on_blocks(rng: np.random.Generator, dtype: str) -> None:
    """However chunks are grouped, smallest values, their rows, histograms and counts have the same bits; bounds too,
    when no rows are sent.
    """  # fmt: skip
    X, y = rows_and_labels(rng, n=3000, d=11, dtype=dtype)
    source = ArraySource(X, y, classes=("a", "b"), chunk_rows=64)
    w = unit(rng, 11)
    for keep in (0, 7):
        probe = ask(source, w, keep=keep)
        ones, others = answer(source, probe, 1), [answer(source, probe, n) for n in (2, 5, 1000)]
        for other in others:
            for name in ("smallest", "smallest_id", "histogram", "below", "chunks"):
                assert getattr(ones, name).tobytes() == getattr(other, name).tobytes()
            assert keep or ones.chunk_lower.tobytes() == other.chunk_lower.tobytes()
            assert len(other.sent) <= len(ones.sent)


def test_rows_sent_are_the_lowest_of_each_class_and_block(rng: np.random.Generator) -> None:
    """Each block sends the ``keep`` rows of each class with the smallest y w.x that are not known yet."""
    X, y = rows_and_labels(rng, dtype="float64")
    source = ArraySource(X, y, classes=("a", "b"), chunk_rows=25)
    w, known = unit(rng, 6), np.arange(0, 300, 3)
    found = answer(source, ask(source, w, known_ids=known, keep=4), 3)
    expected = []
    for start in range(0, 300, 75):
        ids = np.setdiff1d(np.arange(start, start + 75), known)
        for label, sign in (("a", 1), ("b", -1)):
            mine = ids[y[ids] == label]
            expected += mine[np.argsort(sign * (X[mine] @ w))[:4]].tolist()
    assert sorted(found.sent.ids.tolist()) == sorted(expected)
    assert all(np.diff(found.sent.ids) > 0)


def test_a_class_missing_in_a_chunk_has_no_floor_to_hold(rng: np.random.Generator) -> None:
    """Label-sorted rows: a chunk without a class has the bound infinity for it, and the answer is right."""
    X, y = rows_and_labels(rng, n=200)
    y = np.sort(np.where(y == "b", "b", "a")).astype(object)
    source = ArraySource(X, y, classes=("a", "b"), chunk_rows=20)
    probe = ask(source, unit(rng, 6), keep=2)
    found = answer(source, probe, 2)
    assert_proven(X, y, source, probe, found)
    assert (found.chunk_lower == np.inf).any(axis=1).sum() >= 9


def test_an_unlabelled_chunk_is_passed_over(rng: np.random.Generator) -> None:
    """A chunk without labels is read, proves nothing and holds nothing back."""
    X = rng.standard_normal((60, 3)).astype(np.float32)
    y = np.array(["a", "b"] * 10 + [None] * 40, object)
    source = ArraySource(X, y, classes=("a", "b"), chunk_rows=20)
    found = ask(source, unit(rng, 3))(source, Block(0, (1, 2)))
    assert (found.smallest == np.inf).all()
    assert (found.smallest_id == NO_ROW).all()
    assert (found.chunk_lower == np.inf).all()
    assert found.chunks.tolist() == [1, 2]
    assert not len(found.sent.ids)
    assert found.histogram.sum() == found.below.sum() == 0


@pytest.mark.parametrize("offset", [1e4, 1e6, 1e8])
def test_rows_that_float32_cannot_tell_apart_are_told_apart(rng: np.random.Generator, offset: float) -> None:
    """Features around 1e4 to 1e8, with differences near float32's resolution, still give exact answers."""
    X = (rng.standard_normal((2000, 4)) * max(1.0, offset * 1e-7) + offset).astype(np.float32)
    y = rng.choice(np.array(["a", "b"], object), 2000)
    source = ArraySource(X, y, classes=("a", "b"), chunk_rows=1000)
    w = unit(rng, 4)
    probe = ask(source, np.asarray((w - w.mean()) / np.linalg.norm(w - w.mean())))
    assert_proven(X, y, source, probe, answer(source, probe))


def test_float64_is_used_where_float32_overflows(rng: np.random.Generator) -> None:
    """Rows whose products leave float32 are multiplied in float64: finite, true, and without a warning."""
    X = (rng.uniform(0.5, 1, (200, 8)) * 3.4e38).astype(np.float32)
    y = rng.choice(np.array(["a", "b"], object), 200)
    source = ArraySource(X, y, classes=("a", "b"), chunk_rows=64)
    probe = ask(source, np.full(8, 8**-0.5), low=-1e39, high=1e39, offset=1e39)
    found = answer(source, probe)
    assert np.isfinite(found.smallest).all()
    assert_proven(X, y, source, probe, found)


def test_tiny_float32_rows_are_proven(rng: np.random.Generator) -> None:
    """Rows of subnormal float32 numbers, where products round to nothing, give true bounds."""
    for seed in range(50):
        rng = np.random.default_rng(seed)
        X = (rng.standard_normal((20, 30)) * 1e-44).astype(np.float32)
        y = rng.choice(np.array(["a", "b"], object), 20)
        y[:2] = "a", "b"
        source = ArraySource(X, y, classes=("a", "b"), chunk_rows=20)
        w = unit(rng, 30)
        found = answer(source, ask(source, w))
        for k, (label, sign) in enumerate((("a", 1), ("b", -1))):
            exact = min(sign * exact_dot(x, w) for x in X[y == label])
            assert float(found.smallest[k, 0]) <= exact


def test_float64_rows_that_overflow_prove_nothing() -> None:
    """Rows whose float64 products are not numbers count as unproven, in their chunk and in the whole summary."""
    for pattern in ([1, 1, -1, -1], [1, -1], [1] * 8 + [-1] * 8, [-1] * 8 + [1] * 8):  # whichever lanes BLAS sums first
        X = np.ones((4, 32))
        X[2] = 1.7e308 * np.resize(pattern, 32)
        source = ArraySource(X, np.array(["a", "b", "a", "b"]), classes=("a", "b"), chunk_rows=2)
        found = answer(source, ask(source, np.ones(32)))
        assert found.smallest[0, 0] == -np.inf
        assert found.smallest_id[0, 0] == 2
        assert found.smallest[1, 0] == pytest.approx(-32)


def test_ties_and_thousands_of_copies(rng: np.random.Generator) -> None:
    """Rows repeated by the thousand: the smallest value is proven by its first row, one copy is sent, bounds hold."""
    few = rng.integers(-3, 4, (30, 5)).astype(np.float32)
    pick = rng.integers(0, 30, 20_000)
    X, y = few[pick], np.where(pick % 2, "a", "b").astype(object)
    source = ArraySource(X, y, classes=("a", "b"), chunk_rows=4096)
    probe = ask(source, unit(rng, 5), keep=6)
    found = answer(source, probe, 5)
    assert_proven(X, y, source, probe, found)
    assert len(np.unique(found.sent.rows, axis=0)) == len(found.sent.rows) == 12
    for k in range(2):
        value = X[found.smallest_id[k, 0]]
        assert found.smallest_id[k, 0] == np.flatnonzero((value == X).all(axis=1))[0]


def test_margins_are_counted(rng: np.random.Generator) -> None:
    """The histogram holds every labelled row once, clipped into its range; ``below`` counts margins under the level."""
    X, y = rows_and_labels(rng, n=1000, dtype="float64")
    source = ArraySource(X, y, classes=("a", "b"), chunk_rows=99)
    w = unit(rng, 6)
    found = answer(source, ask(source, w, offset=0.3, level=0.2, low=-1.0, high=1.5, bins=10), 3)
    margins = [(X[y == "a"] @ w + 0.3), -(X[y == "b"] @ w + 0.3)]
    assert found.below[0] == sum((m < 0.2).sum() for m in margins)
    for k in range(2):
        expected = np.histogram(np.clip(margins[k], -1 + 1e-9, 1.5 - 1e-9), bins=10, range=(-1, 1.5))[0]
        assert (found.histogram[k] == expected).all()


def test_first_violator_only(rng: np.random.Generator) -> None:
    """Asked for any violator, a block sends the first row of each class below the level, and leaves no bounds."""
    X, y = rows_and_labels(rng, n=400, dtype="float64")
    source = ArraySource(X, y, classes=("a", "b"), chunk_rows=50)
    w = unit(rng, 6)
    probe = ask(source, w, offset=0.1, level=-0.5, keep=1, first_only=True, known_ids=np.arange(0, 400, 2))
    found = answer(source, probe, 8)
    sign = np.where(y == "a", 1, -1)
    breaks = (sign * (X @ w + 0.1) < -0.5) & (np.arange(400) % 2 == 1)
    expected = [int(np.flatnonzero(breaks & (y == label))[0]) for label in ("a", "b")]
    assert found.sent.ids.tolist() == sorted(expected)
    assert (found.chunk_lower == -np.inf).all()


def test_an_infinite_level_is_above_every_row(rng: np.random.Generator) -> None:
    """Before there is an upper bound every row counts as a violator, in float32 without a warning, too."""
    X, y = rows_and_labels(rng, n=50)
    source = ArraySource(X, y, classes=("a", "b"), chunk_rows=50)
    found = answer(source, ask(source, unit(rng, 6), level=1e300, first_only=True, keep=1))
    assert found.below[0] == (y != None).sum()  # noqa: E711
    assert len(found.sent.ids) == 2


def test_narrowing_keeps_what_the_block_knows(rng: np.random.Generator) -> None:
    """A narrowed probe holds the known ids of its chunks only and gets the same summary."""
    X, y = rows_and_labels(rng)
    source = ArraySource(X, y, classes=("a", "b"), chunk_rows=30)
    probe = ask(source, unit(rng, 6), known_ids=np.arange(0, 300, 7))
    for block in (Block(0, (0,)), Block(1, (2, 3, 5)), Block(2, (9,))):
        narrow = probe.narrow(block)
        assert all(30 * block.chunks[0] <= k < 30 * block.chunks[-1] + 30 for k in narrow.known_ids)
        whole, part = probe(source, block), narrow(source, block)
        assert all(whole.to_arrays()[name].tobytes() == value.tobytes() for name, value in part.to_arrays().items())


@settings(max_examples=60)
@given(st.integers(0, 2**32 - 1), st.sampled_from(["float32", "float64"]), st.sampled_from([1, 4, 1000]))
def test_any_rows_are_proven(seed: int, dtype: str, tile: int) -> None:
    """Rows of mixed sizes, offsets, copies and ties, in tiles of any size: answers agree with a dense evaluation."""
    rng = np.random.default_rng(seed)
    n, d = int(rng.integers(2, 120)), int(rng.integers(1, 9))
    X, y = rows_and_labels(rng, n, d, "float64")
    X = X * 10.0 ** rng.integers(-4, 5, d) + rng.choice([0.0, 1e5])
    X = (np.round(X) if rng.random() < 0.3 else X).astype(dtype)
    X[rng.integers(0, n, n // 2)] = X[0]
    source = ArraySource(X, y, classes=("a", "b"), chunk_rows=int(rng.integers(1, n + 1)))
    known = np.sort(rng.choice(n, n // 4, replace=False))
    t = np.array([1.0, 0.5])
    base = np.column_stack([unit(rng, d), unit(rng, d)])
    probe = ask(source, base[:, 0], base=base, mix=np.stack([t, 1 - t]), keep=int(rng.integers(0, 9)), known_ids=known)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(maths_rows, "TILE_BYTES", tile * d * 4)
        patch.setattr(margin_probe, "MANY_CANDIDATES", int(rng.integers(1, 50)))
        found = answer(source, probe, int(rng.integers(1, 5)))
    assert_proven(X, y, source, probe, found)
