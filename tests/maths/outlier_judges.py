"""Judges of the outlier search: all sets of outliers one by one, by a solver of others; and instances to judge by."""

from __future__ import annotations

import itertools
from typing import Any

import numpy as np

from margin_judges import widest_by_daqp

KINDS = ("separable", "flipped", "noise", "grid", "contradicting")


def best_margin(x: np.ndarray, y: np.ndarray, *, intercept: bool) -> float:
    """The largest margin, 0 when there is none."""
    return widest_by_daqp(x, y, intercept=intercept) or 0.0


def best_by_all_sets(x: np.ndarray, y: np.ndarray, k: int, *, intercept: bool) -> float:
    """The best margin over every set of k rows left out."""
    sets = itertools.combinations(range(len(x)), k)
    return max(best_margin(np.delete(x, out, 0), np.delete(y, out), intercept=intercept) for out in map(list, sets))


def instance(kind: str, rng: Any) -> tuple[np.ndarray, np.ndarray, int]:
    """Rows, signs and k: a few rows, more than k of each class."""
    while True:
        n, d, k = int(rng.integers(6, 11)), int(rng.integers(1, 5)), int(rng.integers(0, 4))
        y = np.where(rng.random(n) < 0.5, 1, -1)
        x = rng.normal(size=(n, d))
        if kind == "grid":  # ties, duplicates, rows on one line
            x = rng.integers(-2, 3, size=(n, d)).astype(float)
        if kind in ("separable", "flipped"):
            x[:, 0] += 2.0 * y
        if kind == "flipped":
            y[: int(rng.integers(1, 3))] *= -1
        if kind == "contradicting":  # the same row with both labels, several times
            x[:, 0] += 1.5 * y
            x[1], y[1] = x[0], -y[0]
            x[3], y[3] = x[2], -y[2]
        if min((y > 0).sum(), (y < 0).sum()) > k:
            return x, y, k


def trimmed_by_hand(x: np.ndarray, y: np.ndarray, w: np.ndarray, k: int, *, intercept: bool) -> float:
    """The (k + 1)-th smallest margin of a direction, the best over all offsets half way between two rows."""
    values = x @ w / np.linalg.norm(w)
    offsets = [-(a + b) / 2 for a in values[y > 0] for b in values[y < 0]] if intercept else [0.0]
    return max(float(np.sort(y * (values + b))[k]) for b in offsets)
