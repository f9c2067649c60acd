"""What others offer against outliers: a mixed-integer program by HiGHS, and cleanlab's search for wrong labels."""

from __future__ import annotations

import time
import warnings

import numpy as np
from scipy.optimize import Bounds, LinearConstraint, milp

#: Tangent planes to the unit ball are added until the direction is as long as this.
LENGTH = 1 + 1e-6


def by_milp(x: np.ndarray, y: np.ndarray, k: int, limit_s: float) -> tuple[float, float]:
    """Margin reached and proven bound with k outliers: big-M, ||w|| <= 1 by tangent planes as they are violated.

    max t with y (w.x + b) + M s >= t, s in {0, 1}, sum s <= k.
    """
    n, d = x.shape
    x = np.asarray(x, np.float64) - x.mean(axis=0, dtype=np.float64)
    big = 4.0 * float(np.linalg.norm(x, axis=1).max())
    # variables: w (d,), b, t, s (n,)
    rows = np.column_stack([y[:, None] * x, y, -np.ones(n), big * np.eye(n)])
    count = np.concatenate([np.zeros(d + 2), np.ones(n)])[None]
    cost = np.zeros(d + 2 + n)
    cost[d + 1] = -1.0
    bounds = Bounds([-1.0] * d + [-big, 0.0] + [0.0] * n, [1.0] * d + [big, big] + [1.0] * n)
    whole = np.concatenate([np.zeros(d + 2), np.ones(n)])
    tangents = np.zeros((0, d + 2 + n))
    best, bound, started = 0.0, np.inf, time.perf_counter()
    while (left := limit_s - (time.perf_counter() - started)) > 0:
        constraints = [LinearConstraint(rows, 0.0, np.inf), LinearConstraint(count, 0.0, k)]
        if len(tangents):
            constraints.append(LinearConstraint(tangents, -np.inf, 1.0))
        found = milp(cost, constraints=constraints, bounds=bounds, integrality=whole, options={"time_limit": left})
        if found.x is None:
            break
        bound = min(bound, -float(found.mip_dual_bound if found.mip_dual_bound is not None else -np.inf))
        w, b = found.x[:d], found.x[d]
        length = float(np.linalg.norm(w))
        if length == 0.0:
            break
        best = max(best, float(np.sort(y * (x @ w + b))[k]) / length)
        if length <= LENGTH:
            break
        tangents = np.vstack([tangents, np.concatenate([w / length, np.zeros(2 + n)])])
    return best, bound


def suspicious_by_cleanlab(x: np.ndarray, y: np.ndarray) -> set[int] | None:
    """Rows whose labels cleanlab doubts, from cross-validated logistic regression; None where it is not installed."""
    try:
        from cleanlab.filter import find_label_issues
    except ImportError:
        return None
    from sklearn.linear_model import LogisticRegression
    from sklearn.model_selection import cross_val_predict

    labels = (y > 0).astype(int)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        shares = cross_val_predict(LogisticRegression(max_iter=500), x, labels, cv=5, method="predict_proba")
        return set(find_label_issues(labels, shares, return_indices_ranked_by="self_confidence").tolist())
