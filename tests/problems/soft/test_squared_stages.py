"""The squared hinge's first read in stages: sums, and what they prove of hypotheses that were never scanned."""

from __future__ import annotations

from functools import reduce
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy.sparse import csr_array

from coremargin.data.arrays import ArraySource
from coremargin.engine.protocols import Block
from coremargin.maths.newton import Quadratic, Rows, minimise_squared_hinge
from coremargin.problems.soft.first_read import CROSSING
from coremargin.problems.soft.losses.loss import Objective
from coremargin.problems.soft.losses.squared_hinge import Correction, FarModel
from coremargin.problems.soft.losses.table import LOSSES
from coremargin.problems.soft.magnitudes import Magnitudes
from coremargin.problems.soft.probe import NearMarginProbe, StageProbe
from coremargin.problems.soft.state import FarRows
from coremargin.problems.soft.summary import StageSummary
from coremargin.verify.corrected_dual import Slopes

CLASS_C = np.array([2.0, 0.5])
EDGES = np.array([0.0, 0.1, 0.2, 0.3, 0.4, 0.6, 0.8, 1.0, 1.5])
LAST = len(EDGES)


def scanned(X: Any, signs: np.ndarray, at: np.ndarray, keep: int = 3) -> tuple[ArraySource, StageSummary]:
    """The source of some rows, in chunks of 30, and its answer at a hypothesis."""
    labels = np.array(["a", None, "b"], object)[1 - signs]
    source = ArraySource(X, labels, classes=("a", "b"), chunk_rows=30)
    plain = NearMarginProbe(
        base=at[:, None], points=np.ones(1), codes=(0, 1), class_c=CLASS_C, loss=LOSSES["squared_hinge"], keep=keep,
        cached=np.zeros(0, np.int64), curve=False, low=-3.0, high=5.0, bins=16, chunk_rows=30,
        dtype=source.dtype.name, sparse=source.sparse,
    )  # fmt: skip
    probe = StageProbe(plain, EDGES, CROSSING, float(EDGES[CROSSING]), np.arange(source.chunks), keep)
    blocks = [Block(chunk, (chunk,)) for chunk in range(source.chunks)]
    return source, reduce(StageSummary.merge, (probe.narrow(one)(source, one) for one in blocks), probe.empty())


def some(rng: np.random.Generator, n: int = 240, d: int = 4) -> tuple[np.ndarray, np.ndarray]:
    """Rows and signs, 0 for one in ten without label."""
    signs = rng.choice([1, -1, 0], n, p=[0.5, 0.4, 0.1])
    signs[:2] = 1, -1
    return rng.standard_normal((n, d)).astype(np.float32), signs


@pytest.mark.parametrize("sparse", [False, True])
def test_sums_are_those_of_a_dense_evaluation(rng: np.random.Generator, sparse: bool) -> None:
    """Losing rows have a curve of each ring, the last of those beyond all edges; others of those that may cross."""
    X, signs = some(rng)
    at = rng.standard_normal(5)
    _, found = scanned(csr_array(X) if sparse else X, signs, at)
    points, c = np.column_stack([X.astype(float), np.ones(240)]), np.where(signs > 0, *CLASS_C) * np.abs(signs)
    margins = signs * (points @ at)
    far = (signs != 0) & ~np.isin(np.arange(240), found.row_id)
    losing, away = far & (margins < 1), np.abs(margins - 1.0)
    slack = np.where(losing, 1.0 - margins, 0.0)
    assert found.value == pytest.approx([c @ slack**2])
    assert found.duals.sum() == pytest.approx(2 * c @ slack)
    assert found.dual_sum.sum(axis=0) == pytest.approx((2 * c * slack * signs) @ points)
    assert found.rings.shape == (LAST + CROSSING, 5, 5)
    tops = np.append(EDGES[1:], np.inf)
    for k in range(LAST + CROSSING):
        side, j = (losing, k) if k < LAST else (far & ~losing, k - LAST)
        mine = side & (away >= EDGES[j]) & (away < tops[j])
        assert found.rings[k] == pytest.approx((points[mine].T * c[mine]) @ points[mine], rel=1e-4, abs=1e-3)
        assert found.ring_weight[k] == pytest.approx(c[mine].sum())
    assert found.rings[:LAST].sum(axis=0)[-1, -1] == pytest.approx(c[losing].sum())


def known_of(seed: int, size: float, keep: int) -> tuple[FarModel, dict[str, np.ndarray], float]:
    """What is known after a move of that size; the rows and their margins before and after; the longest move."""
    rng = np.random.default_rng(seed)
    X, signs = some(rng)
    at, move = rng.standard_normal(5), rng.standard_normal(5)
    move *= size / np.linalg.norm(move)
    source, found = scanned(X, signs, at, keep)
    far_rows = FarRows.empty(2, 4, LAST, LAST + CROSSING, 16).record(1, at, EDGES, found)
    points, c = np.column_stack([X.astype(float), np.ones(240)]), np.where(signs > 0, *CLASS_C)
    far = (signs != 0) & ~np.isin(np.arange(240), found.row_id)
    most = float(np.abs(points[far] @ move).max(initial=0.0)) * (1 + 1e-9)
    objective = Objective(LOSSES["squared_hinge"], CLASS_C, True, 1e-3, Magnitudes(source))
    known = FarModel(objective, far_rows, at + move, np.array([0.0, most]))
    z, before = (points * signs[:, None])[far], (signs * (points @ at))[far]
    rows = {"z": z, "c": c[far], "before": before, "after": before + z @ move}
    return known, rows, most


@settings(max_examples=80)
@given(st.integers(0, 2**32 - 1), st.floats(1e-3, 0.6), st.integers(0, 40))
def test_values_are_bounded_from_both_sides(seed: int, size: float, keep: int) -> None:
    """Losses at a hypothesis that was not scanned lie between the curves with and without what has crossed."""
    known, rows, most = known_of(seed, size, keep)
    true = float(rows["c"] @ np.maximum(1.0 - rows["after"], 0.0) ** 2)
    excess = known.excess
    assert (excess[0] == 0.0).all()
    slack = 1e-9 * (1 + true)
    assert true <= known.losses + known.error + float(excess[1, 1].sum()) + slack
    assert true >= known.losses - known.error - float(excess[1, 0].sum()) - slack
    lost = rows["before"] < 1
    gone = rows["c"] * np.maximum(rows["after"] - 1.0, 0.0) ** 2
    come = rows["c"] * np.maximum(1.0 - rows["after"], 0.0) ** 2
    assert float(gone[lost].sum()) <= float(excess[1, 0].sum()) + slack
    assert float(come[~lost].sum()) <= float(excess[1, 1].sum()) + slack
    if most < np.abs(rows["before"] - 1).min(initial=np.inf) * 0.999:
        assert not excess.any()
    curves = -2.0 * (rows["c"] * np.where(lost, 1.0 - rows["after"], 0.0)) @ rows["z"]
    assert np.linalg.norm(known.gradient - curves) <= known.gradient_error + 1e-9 * (1 + np.linalg.norm(curves))


@settings(max_examples=60)
@given(st.integers(0, 2**32 - 1), st.floats(1e-3, 0.3), st.sampled_from([0.0625, 0.25, 1.0]))
def test_the_curve_of_a_correction_is_above_its_lower_bound(seed: int, size: float, ramp: float) -> None:
    """All rows' curve, weighed by their slack at the new hypothesis, is that and something positive."""
    known, rows, _ = known_of(seed, size, 10)
    share = np.minimum(1.0, np.maximum(1.0 - rows["after"], 0.0) / ramp)
    true = 2.0 * (rows["z"].T * (rows["c"] * share)) @ rows["z"]
    bound = known.curve_at_least(ramp, np.zeros(2, bool))
    assert np.linalg.eigvalsh(true - bound)[0] >= -1e-9 * np.trace(true)


@pytest.mark.specimens(6)
@pytest.mark.parametrize("intercept", [True, False])
@pytest.mark.parametrize("ramp", [0.25, 0.5, 1.0])
@pytest.mark.parametrize("size", [0.0, 1e-3, 1e-2, 0.03, 3.0])
def test_the_correction_proves_its_bound(size: float, ramp: float, intercept: bool) -> None:
    """What a driver expects of the corrected dual point is never above what the point proves, and little below."""
    rng, proven = np.random.default_rng(5), 0
    for seed in range(10):
        known, rows, _ = known_of(seed, 0.1, 0)
        keep = np.append(np.ones(4), float(intercept))
        z, c, metric = rows["z"] * keep, rows["c"], np.append(np.ones(4), 0.0)
        zero = Quadratic.zero(5)
        minimum = minimise_squared_hinge(np.zeros(5), metric, zero, Rows(z, c, np.zeros(len(z))))[0] * keep
        at = minimum + size * rng.standard_normal(5) * keep
        slack = np.maximum(1.0 - z @ at, 0.0)
        value = float(0.5 * at[:-1] @ at[:-1] + c @ slack**2)
        curve = 2.0 * (z.T * (c * np.minimum(1.0, slack / ramp))) @ z
        gradient = metric * at - 2.0 * z.T @ (c * slack)
        objective = Objective(known.objective.loss, CLASS_C, intercept, 1e-3, known.objective.magnitudes)
        nothing = np.zeros_like(known.excess)
        missing = Correction(objective, at, gradient, 0.0, curve * (1 - 1e-9), nothing, known.far)
        bound = missing.dual_bound(value, ramp, float(c.sum()))
        found = slopes_of(z, c, at, ramp).dual(at, ramp, intercept=intercept)
        assert bound <= max(found, 0.0)
        if bound:
            proven += 1
            lowest = float(0.5 * minimum[:-1] @ minimum[:-1] + c @ np.maximum(1.0 - z @ minimum, 0.0) ** 2)
            assert found - bound <= 1e-5 * value
            assert found <= lowest * (1 + 1e-12)
    assert proven >= 8 or size > 1e-2
    assert proven == 0 or size < 3.0


def slopes_of(z: np.ndarray, c: np.ndarray, at: np.ndarray, ramp: float) -> Slopes:
    """The sums that ``verify`` makes of signed rows (n, d + 1)."""
    signs = np.where(z[:, -1] == 0, 1.0, z[:, -1])
    x = z[:, :-1] * signs[:, None]
    slack = np.maximum(1.0 - z @ at, 0.0)
    share = c * np.minimum(1.0, slack / ramp)
    points = np.column_stack([x, np.ones(len(x))])
    lengths, each = np.linalg.norm(x, axis=1), c * slack
    return Slopes(
        losses=float(each.sum()), squares=float(each @ slack),
        least=min(float(each[signs > 0].sum()), float(each[signs < 0].sum())),
        q=(each * signs) @ points, t=(share * (slack - 1.0) * signs) @ points, curve=(points.T * share) @ points,
        low=x.min(axis=0), high=x.max(axis=0), radius=float(lengths.max()), reach=float(each @ lengths),
        spread=np.zeros(x.shape[1]), error=1e-14, curve_error=1e-13, moved=0.0,
    )  # fmt: skip
