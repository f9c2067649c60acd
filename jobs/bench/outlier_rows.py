"""Rows with outliers: a margin, and k rows of one kind that spoil it.

*flipped*: labels turned around; *planted*: deep on the wrong side; *close*: nearer to the plane than the margin; or
none, where trimming only pares *clean* rows.
"""

from __future__ import annotations

import numpy as np

Data = tuple[np.ndarray, np.ndarray]

KINDS = ("flipped", "planted", "close", "clean")


def rows_with_outliers(n: int, d: int, k: int, kind: str, seed: int = 1, margin: float = 0.5) -> Data:
    """Rows (n, d) float32 and labels (n,) in {-1, +1}."""
    rng = np.random.default_rng(seed)
    w = rng.normal(size=d)
    w /= np.linalg.norm(w)
    x, y = rng.normal(size=(n, d)), np.where(rng.random(n) < 0.5, 1, -1)
    x += np.outer(y * (margin + np.abs(x @ w)) - x @ w, w)
    out = rng.choice(n, k, replace=False)
    if kind == "flipped":
        y[out] *= -1
    elif kind in ("planted", "close"):
        depth = -2.0 * rng.random(k) if kind == "planted" else 0.4 * rng.random(k)
        x[out] += np.outer(y[out] * depth - x[out] @ w, w)
    return x.astype(np.float32), y
