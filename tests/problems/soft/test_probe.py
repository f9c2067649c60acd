"""The question of a soft-margin scan, against a dense evaluation in float64."""

from __future__ import annotations

from dataclasses import fields
from functools import reduce
from typing import Any

import numpy as np
import pytest

from coremargin.data.arrays import ArraySource
from coremargin.engine.protocols import Block
from coremargin.problems.soft.losses.table import LOSSES
from coremargin.problems.soft.probe import NearMarginProbe
from coremargin.problems.soft.summary import NearMarginSummary

CLASS_C = np.array([2.0, 0.5])


def ask(source: ArraySource, base: np.ndarray, **changes: Any) -> NearMarginProbe:
    """The question about hypotheses (w, b) in columns, of codes 0 (positive) and 1 (negative)."""
    points = np.ones(1) if base.shape[1] == 1 else np.array([1.0, 0.25, 0.5, 0.9])
    options: dict[str, Any] = {
        "base": base, "points": points, "codes": (0, 1), "class_c": CLASS_C, "loss": "squared_hinge", "keep": 5,
        "cached": np.zeros(0, np.int64), "low": -3.0, "high": 5.0, "bins": 16, "dtype": source.dtype.name,
        "chunk_rows": source.chunk_rows, "sparse": source.sparse,
    }  # fmt: skip
    options |= changes
    options["loss"] = LOSSES[options["loss"]]
    options.setdefault("curve", options["loss"].curves)
    return NearMarginProbe(**options)


def answer(source: ArraySource, probe: NearMarginProbe, together: int = 1) -> NearMarginSummary:
    """The merged answer of blocks of ``together`` chunks each."""
    starts = range(0, source.chunks, together)
    blocks = [Block(k, tuple(range(c, min(c + together, source.chunks)))) for k, c in enumerate(starts)]
    return reduce(NearMarginSummary.merge, (probe.narrow(block)(source, block) for block in blocks), probe.empty())


def some(
    rng: np.random.Generator, n: int = 300, d: int = 6, dtype: str = "float32"
) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Rows, labels "a" and "b" with one in ten unlabelled, and two hypotheses (d + 1, 2)."""
    y = rng.choice(np.array(["a", "b", None], object), n, p=[0.5, 0.4, 0.1])
    y[:2] = "a", "b"
    return rng.standard_normal((n, d)).astype(dtype), y, rng.standard_normal((d + 1, 2))


def assert_true(
    X: np.ndarray, y: np.ndarray, source: ArraySource, probe: NearMarginProbe, found: NearMarginSummary
) -> None:
    """Every entry is what a dense evaluation in float64 says."""
    mine = np.flatnonzero((y == "a") | (y == "b"))
    rows, sign = X[mine].astype(np.float64), np.where(y[mine] == "a", 1, -1)
    c = np.where(sign > 0, probe.class_c[0], probe.class_c[1])
    points = np.column_stack([rows, np.ones(len(rows))])
    margins = sign[:, None] * (points @ probe.base)
    m = margins[:, 0]
    size = np.abs(margins).max() + 1
    for loss, t in zip(found.losses, probe.points, strict=True):
        at = t * m + (1 - t) * margins[:, -1]
        xi = np.maximum(0, 1 - at)
        assert loss == pytest.approx(c @ (xi**2 if probe.loss.curves else xi), rel=1e-10)
    xi = np.maximum(0, 1 - m)
    for k, group in enumerate((sign > 0, sign < 0)):
        assert found.slack[k] == pytest.approx(c[group] @ xi[group], rel=1e-10)
        assert found.squares[k] == pytest.approx(c[group] @ xi[group] ** 2, rel=1e-10)
        assert found.dual_sum[k] == pytest.approx((c * xi)[group] @ rows[group], rel=1e-10, abs=1e-10 * size * len(m))
    assert_band(found, probe, source, mine, margins)
    assert (found.row_x == X[found.row_id]).all()
    assert (found.row_sign == np.where(y[found.row_id] == "a", 1, -1)).all()
    far = np.isin(mine, found.row_id, invert=True) & (m < 1)
    weight = c * far
    assert found.far_c[0] == pytest.approx(weight.sum(), rel=1e-12)
    assert found.far_value[0] == pytest.approx(weight @ xi**2, rel=1e-10)
    assert found.far_linear == pytest.approx((weight * sign) @ points, rel=1e-10, abs=1e-10 * size * len(m))
    assert found.far_slope == pytest.approx((weight * xi * sign) @ points, rel=1e-10, abs=1e-10 * size * len(m))
    if probe.loss.curves:
        assert_curve(X, source, found, points, weight, mine, m)
    else:
        assert found.far_curve.shape == (0, 0)
    assert found.below[0] == (m < 1).sum()
    assert found.histogram.sum(axis=1).tolist() == [(sign > 0).sum(), (sign < 0).sum()]
    edges = np.concatenate([[-np.inf], np.linspace(probe.low, probe.high, probe.bins + 1)[1:-1], [np.inf]])
    for k, group in enumerate((sign > 0, sign < 0)):
        assert np.abs(found.histogram[k] - np.histogram(m[group], edges)[0]).sum() <= 2


def assert_curve(
    X: np.ndarray, source: ArraySource, found: NearMarginSummary, points: np.ndarray, weight: np.ndarray,
    mine: np.ndarray, m: np.ndarray,
) -> None:  # fmt: skip
    """The curve of the far rows that lose, what its rounding is bounded by, and the far row next to the margin."""
    curve = (points.T * weight) @ points
    rounding = 1e-5 if X.dtype == np.float32 else 1e-12
    scale = np.sqrt(np.outer(np.diag(curve), np.diag(curve))) + 1e-300
    assert (np.abs(found.far_curve - curve) <= rounding * scale).all()
    assert (found.far_curve == found.far_curve.T).all()
    away = np.abs(m[np.isin(mine, found.row_id, invert=True)] - 1)
    assert found.far_least[0] == pytest.approx(away.min(initial=np.inf), rel=1e-9, abs=1e-12 * (np.abs(m).max() + 1))
    rows, chunks = points[:, :-1], mine // source.chunk_rows
    least = 0.0  # around the mean of each chunk: no other point is better
    for chunk in set(chunks.tolist()):
        here = np.where(chunks == chunk, weight, 0.0)
        mean = here @ rows / max(here.sum(), 1e-300)
        least += float(here @ ((rows - mean) ** 2).sum(axis=1))
    most = weight.sum() * (2 * np.linalg.norm(rows, axis=1).max(initial=0)) ** 2
    assert least * (1 - 1e-5) <= found.far_spread[0] <= most * (1 + 1e-5)


def assert_band(
    found: NearMarginSummary, probe: NearMarginProbe, source: ArraySource, mine: np.ndarray, margins: np.ndarray
) -> None:
    """Each chunk sends, in row order, the rows that are nearest to margin 1.

    With the hinge those that change sides between both ends go first; with the squared hinge the newest counts alone.
    """
    nearest = np.abs(margins - 1).min(axis=1)
    distance = np.where((margins < 1).any(axis=1) & (margins >= 1).any(axis=1), -nearest, nearest)
    if probe.loss.curves:
        distance = np.abs(margins[:, 0] - 1)
    for chunk in range(source.chunks):
        start, stop = source.span(chunk)
        here = (mine >= start) & (mine < stop)
        home = np.isin(mine, found.row_id) & here
        assert home.sum() == min(probe.keep, here.sum())
        if home.any() and (here & ~home).any():
            assert distance[home].max() <= distance[here & ~home].min() + 1e-9
    assert (np.diff(found.row_id) > 0).all()


@pytest.mark.parametrize("loss", ["hinge", "squared_hinge"])
@pytest.mark.parametrize("dtype", ["float32", "float64"])
@pytest.mark.parametrize("d", [1, 7, 60])
def test_answers_equal_a_dense_evaluation(rng: np.random.Generator, d: int, dtype: str, loss: str) -> None:
    """Sums, far sums, band, losses along a segment, histogram and counts; unlabelled rows do not count."""
    X, y, base = some(rng, d=d, dtype=dtype)
    source = ArraySource(X, y, classes=("a", "b"), chunk_rows=37)
    for columns, keep in ((1, 0), (1, 5), (2, 5), (2, 1000)):
        probe = ask(source, base[:, :columns] / np.sqrt(d), loss=loss, keep=keep)
        for together in (1, 4, 100):
            assert_true(X, y, source, probe, answer(source, probe, together))


def test_the_grouping_of_chunks_changes_little(rng: np.random.Generator) -> None:
    """Rows and counts have the same bits however chunks are grouped; sums differ by rounding at most."""
    X, y, base = some(rng, n=2000)
    source = ArraySource(X, y, classes=("a", "b"), chunk_rows=64)
    probe = ask(source, base)
    one, other = answer(source, probe, 1), answer(source, probe, 7)
    for f in fields(NearMarginSummary):
        a, b = getattr(one, f.name), getattr(other, f.name)
        if a.dtype.kind == "f":
            assert a == pytest.approx(b, rel=1e-12, abs=1e-9)
        else:
            assert (a == b).all()


def test_ties_at_the_margin_go_by_position() -> None:
    """Of many rows at the same distance exactly ``keep`` are sent, the first ones."""
    X, y = np.ones((40, 2), np.float32), np.array(["a"] * 38 + ["b"] * 2, object)
    source = ArraySource(X, y, classes=("a", "b"), chunk_rows=20)
    probe = ask(source, np.array([[0.5], [0.5], [0.0]]), keep=3)
    found = answer(source, probe)
    assert found.row_id.tolist() == [0, 1, 2, 20, 21, 22]
    assert_true(X, y, source, probe, found)


def test_a_class_may_be_missing_and_chunks_may_be_unlabelled(rng: np.random.Generator) -> None:
    """Chunks of one class, of other classes or without labels give true answers, too."""
    X, _, base = some(rng, n=90)
    y = np.array(["a"] * 30 + [None] * 30 + ["c"] * 29 + ["b"], object)
    source = ArraySource(X, y, classes=("a", "b", "c"), chunk_rows=15)
    probe = ask(source, base[:, :1])
    assert_true(X, y, source, probe, answer(source, probe))
    only = ArraySource(X, np.array(["a"] * 90, object), classes=("a", "b"), chunk_rows=15)
    found = answer(only, ask(only, base[:, :1]))
    assert found.slack[1] == found.squares[1] == found.total_c[1] == 0


@pytest.mark.parametrize("scale", [1e-30, 1e-12, 1e12, 1e20, 1e30])
def test_no_size_of_rows_over_or_underflows(rng: np.random.Generator, scale: float) -> None:
    """Where float32 would square its way to infinity or to nothing, float64 is used: the curve is as exact as ever."""
    X, y, base = some(rng, d=4)
    X = (X * np.float32(scale)).astype(np.float32)
    base[:-1] /= scale
    source = ArraySource(X, y, classes=("a", "b"), chunk_rows=50)
    probe = ask(source, base[:, :1])
    with np.errstate(over="raise", invalid="raise"):
        assert_true(X, y, source, probe, answer(source, probe))


def test_rows_far_from_the_origin_keep_their_curve(rng: np.random.Generator) -> None:
    """Far from the origin the curve around the rows' middle is still right, where plain float32 would have lost it."""
    X, y, base = some(rng, n=2000, d=4)
    X = X + np.float32(1e4)
    base[-1] -= 1e4 * base[:-1].sum(axis=0)
    source = ArraySource(X, y, classes=("a", "b"), chunk_rows=500)
    probe = ask(source, base[:, :1], keep=0)
    found = answer(source, probe)
    sign = np.where(y == "a", 1, np.where(y == "b", -1, 0))
    m = sign * (np.column_stack([X.astype(float), np.ones(2000)]) @ base[:, 0])
    mine = (sign != 0) & (m < 1)
    weight = np.where(sign > 0, *CLASS_C)[mine]
    around = X[mine].astype(float) - 1e4
    shift = np.eye(5)
    shift[4, :4] = -1e4  # (x, 1) -> (x - 1e4, 1)
    centred = shift.T @ found.far_curve @ shift
    assert centred[:4, :4] == pytest.approx((around.T * weight) @ around, rel=1e-4, abs=1e-4 * weight.sum())


def test_summaries_are_read_back_as_they_were(rng: np.random.Generator) -> None:
    """A summary's arrays make the same summary again; merging with nothing changes nothing."""
    X, y, base = some(rng)
    source = ArraySource(X, y, classes=("a", "b"), chunk_rows=50)
    probe = ask(source, base)
    found = answer(source, probe)
    again = probe.from_arrays(found.to_arrays())
    for f in fields(NearMarginSummary):
        assert getattr(again, f.name).tobytes() == getattr(found, f.name).tobytes()
        assert getattr(found.merge(probe.empty()), f.name).tobytes() == getattr(found, f.name).tobytes()
