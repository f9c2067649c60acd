"""Noisy rows, and the value of a relative margin by a solver of others."""

from __future__ import annotations

import daqp
import numpy as np


def noisy(seed: int, n: int, d: int) -> tuple[np.ndarray, np.ndarray]:
    """Rows off the origin with columns of other scales, and noisy signs."""
    rng = np.random.default_rng(seed)
    X = rng.standard_normal((n, d)) * rng.uniform(0.3, 3.0, d) + 0.7
    return X, np.where((X - 0.7) @ rng.standard_normal(d) + rng.standard_normal(n) > 0, 1.0, -1.0)


def value_by_daqp(X: np.ndarray, y: np.ndarray, costs: np.ndarray, bound: float, *, intercept: bool = True) -> float:
    """The least value, by an active-set solver of others: variables w, b and a slack for each row."""
    n, d = X.shape
    z = np.column_stack([X, np.full(n, float(intercept))])
    H, f = np.diag([*np.ones(d), *np.zeros(n + 1)]), np.concatenate([np.zeros(d + 1), costs])
    free, large = np.full(d + 1, 1e6), np.full(n, 1e30)
    A = np.block([[z * y[:, None], np.eye(n)], [z, np.zeros((n, n))]])
    upper = np.concatenate([free, large, large, np.full(n, bound)])
    lower = np.concatenate([-free, np.zeros(n), np.ones(n), np.full(n, -bound)])
    found, _, flag, _ = daqp.solve(
        H, f, np.ascontiguousarray(A), upper, lower, np.zeros(len(upper), np.int32),
        primal_tol=1e-10, dual_tol=1e-12, iter_limit=100_000, eps_prox=1e-4,
    )  # fmt: skip
    assert flag == 1, f"daqp ended with {flag}"
    p = found[: d + 1]
    return float(0.5 * p[:d] @ p[:d] + costs @ np.maximum(1.0 - y * (z @ p), 0.0))
