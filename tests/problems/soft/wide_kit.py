"""What tests of soft margins on many features share: texts made from a seed, and a judge in plain float64."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np
import pytest
from scipy.sparse import csr_array

from coremargin.maths.margin import is_certified

if TYPE_CHECKING:
    from coremargin.problems.soft.problem import SoftProblem
    from coremargin.problems.soft.state import SoftState


def texts(seed: int, n: int = 600, d: int = 120, filled: int = 8) -> tuple[csr_array, np.ndarray]:
    """Rows of unit length with few values each, labels of which a twentieth are turned around."""
    rng = np.random.default_rng(seed)
    columns = np.concatenate([rng.choice(d, filled, replace=False, p=_zipf(d)) for _ in range(n)])
    X = csr_array((rng.uniform(0.2, 1, n * filled), columns, np.arange(n + 1) * filled), shape=(n, d))
    X.sort_indices()
    y = np.where(X @ rng.standard_normal(d) > 0, 1, -1) * np.where(rng.random(n) < 0.05, -1, 1)
    X.data /= np.repeat(np.sqrt((X * X).sum(axis=1)), filled)
    return X.astype(np.float32), y


def _zipf(d: int) -> np.ndarray:
    p = 1.0 / np.arange(3, d + 3)
    return np.asarray(p / p.sum())


def bounds(X: Any, y: np.ndarray, row_c: np.ndarray, problem: SoftProblem, state: SoftState) -> tuple[float, float]:
    """The dual and the primal value from scratch, the dual one of the explicit vector that the state names."""
    assert state.best is not None
    X, sign = csr_array(X).astype(np.float64), np.where(y > 0, 1, -1)
    xi = np.maximum(0, 1 - sign * (X @ state.best[:-1] + state.best[-1]))
    value = 0.5 * state.best[:-1] @ state.best[:-1] + row_c @ (xi if problem.loss.word == "hinge" else xi**2)
    margins = sign * (X @ state.bounds.reference[:-1] + state.bounds.reference[-1])
    if problem.loss.word == "hinge":
        a = np.where(margins < 1, row_c, 0.0)
        a[state.bounds.near_ids] = state.bounds.near_duals
        assert (a >= 0).all()
        assert (a <= row_c * (1 + 1e-12)).all()
        spread = 0.0
    else:
        a = row_c * np.maximum(0, 1 - margins)
        if problem.intercept:
            a = np.where(sign > 0, a / max(a[sign > 0].sum(), 1e-300), a / max(a[sign < 0].sum(), 1e-300))
        v, cached = X.T @ (a * sign), row_c > 0
        a *= a.sum() / (v @ v + (a[cached] ** 2 / (2 * row_c[cached])).sum())
        spread = float((a[cached] ** 2 / (4 * row_c[cached])).sum())
    if problem.intercept and abs(a @ sign) > 1e-9 * a.sum():
        return -np.inf, float(value)  # no dual point
    v = X.T @ (a * sign)
    return float(a.sum() - spread - 0.5 * v @ v), float(value)


def assert_true(X: Any, y: np.ndarray, row_c: np.ndarray, problem: SoftProblem, state: SoftState) -> None:
    """Both bounds hold by plain float64, and a certificate says no more than they do."""
    dual, value = bounds(X, y, row_c, problem, state)
    assert state.lower == 0 or dual > -np.inf
    assert value <= state.upper * (1 + 1e-12)
    assert state.upper == pytest.approx(value, rel=1e-6)
    if state.lower > 0:
        assert state.lower <= dual * (1 + 1e-9)
    assert state.lower <= value
    if state.status == "certified":
        assert is_certified(state.lower, state.upper, problem.epsilon)
