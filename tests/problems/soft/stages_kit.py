"""Jobs of several stages on noisy rows, and what NumPy finds of their claims."""

from __future__ import annotations

from typing import Any

import numpy as np

from coremargin.data.arrays import ArraySource
from coremargin.data.difference import Difference
from coremargin.problems.soft.losses.table import LOSSES
from coremargin.problems.soft.near_margin import SoftMargin


def changes(old: np.ndarray, new: np.ndarray, weights: np.ndarray, weights_now: np.ndarray) -> Difference:
    """From label codes and weights (n,) as they were, and as they are of these rows and more."""
    n = len(old)
    ids = np.flatnonzero((old != new[:n]) | (weights != weights_now[:n]))
    return Difference(n, len(new), ids, old[ids], new[ids], weights[ids], weights_now[ids], 0)


def noisy(seed: int, n: int, d: int, share: float = 0.1) -> tuple[np.ndarray, np.ndarray]:
    """Two classes pushed apart, and a share of the labels turned around."""
    rng = np.random.default_rng(seed)
    X, w = rng.standard_normal((n, d)), rng.standard_normal(d)
    y = np.where(X @ w > 0, 1, -1)
    X += 0.5 * y[:, None] * w / np.linalg.norm(w)
    return X.astype(np.float32), np.where(rng.random(n) < share, -y, y)


def problem_of(X: Any, y: np.ndarray, chunk_rows: int = 100, weights: Any = None, **options: Any) -> SoftMargin:
    """A job of several stages."""
    source = ArraySource(X, y, weights=weights, classes=(-1, 1), chunk_rows=chunk_rows)
    given: dict[str, Any] = {"epsilon": 1e-3, "loss": LOSSES["hinge"], "cost": 1.0, "sample_bytes": 40_000}
    problem = SoftMargin(source, **(given | {"sample_share": 0.04, "in_stages": True} | options))
    assert problem.fits_stages
    assert problem.stages.count >= 2
    return problem


def value_of(problem: SoftMargin, X: np.ndarray, y: np.ndarray, at: np.ndarray, weights: Any = None) -> float:
    """The value of a hypothesis by NumPy."""
    c = np.where(y > 0, *problem.class_c) * (1.0 if weights is None else weights)
    slack = np.maximum(0.0, 1.0 - y * (X.astype(np.float64) @ at[:-1] + at[-1]))
    return float(0.5 * at[:-1] @ at[:-1] + c @ (slack if problem.loss.names_duals else slack**2))


def dual_of(problem: SoftMargin, X: np.ndarray, y: np.ndarray, state: Any, weights: Any = None) -> float:
    """The dual value of the point that a state claims, by NumPy, after it was checked to be one."""
    bounds = state.bounds
    if bounds.dual <= 0:  # no dual point is needed for that
        return 0.0
    c = np.where(y > 0, *problem.class_c) * (1.0 if weights is None else weights)
    duals = (_hinge_duals if problem.loss.names_duals else _squared_duals)(problem, X, y, bounds, c)
    assert (duals >= 0).all()
    assert (duals <= c * (1 + 1e-12)).all() or not problem.loss.names_duals
    if problem.intercept:
        assert abs(duals @ y) <= 1e-9 * duals.sum()
    v = X.astype(np.float64).T @ (duals * y)
    less = 0.0 if problem.loss.names_duals else 0.25 * duals[c > 0] @ (duals[c > 0] / c[c > 0])
    return float(duals.sum() - less - 0.5 * v @ v)


def _hinge_duals(problem: SoftMargin, X: np.ndarray, y: np.ndarray, bounds: Any, c: np.ndarray) -> np.ndarray:
    """Those of each row's side at its chunk's reference, but for the rows that are named."""
    reference, n = np.atleast_2d(bounds.reference), len(X)
    of = (
        bounds.reference_of[np.arange(n) // problem.source.chunk_rows] if len(bounds.reference_of) else np.zeros(n, int)
    )
    margins = y * (np.einsum("ij,ij->i", X.astype(np.float64), reference[of, :-1]) + reference[of, -1])
    duals = np.where(margins < 1.0, c, 0.0)
    duals[bounds.near_ids] = bounds.near_duals
    return duals


def _squared_duals(problem: SoftMargin, X: np.ndarray, y: np.ndarray, bounds: Any, c: np.ndarray) -> np.ndarray:
    """2 c (xi - r y z.p), p of the correction; without a ramp the best multiples of c xi."""
    at, z = bounds.reference, np.column_stack([X.astype(np.float64), np.full(len(X), float(problem.intercept))])
    slack = np.maximum(0.0, 1.0 - y * (z @ at))
    if not bounds.ramp:
        each = np.array([(c * slack)[y == sign].sum() for sign in (1, -1)])
        duals = c * slack / np.where(y > 0, *each) if problem.intercept else c * slack / each.sum()
        v = z.T @ (duals * y)
        curve = 0.25 * duals[c > 0] @ (duals[c > 0] / c[c > 0]) + 0.5 * v[:-1] @ v[:-1]
        return duals * (duals.sum() / (2.0 * curve))
    share = c * np.minimum(1.0, slack / bounds.ramp)
    metric = np.append(np.ones(X.shape[1]), 0.0)
    matrix = np.diag(metric) + 2.0 * (z.T * share) @ z
    gradient = metric * at - 2.0 * z.T @ (c * slack * y)
    move = -np.linalg.lstsq(matrix, gradient, rcond=None)[0]
    return 2.0 * (c * slack - share * y * (z @ move))
