"""Small stores of ranked groups, and judges that write out all pairs."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np
from sklearn.svm import LinearSVC
from structured_kit import write_sequences

THRESHOLD = 1.0 + 1e-9


class Ranked:
    """Rows in groups with labels from 0 to 3, some without; if weighted, groups 3 and 7 have a weight of 0."""

    def __init__(self, seed: int, *, groups: int = 12, d: int = 4, weighted: bool = False) -> None:
        rng = np.random.default_rng(seed)
        self.groups = np.repeat(np.arange(groups), rng.integers(1, 9, groups))
        n = len(self.groups)
        self.X = rng.normal(size=(n, d)).astype(np.float32)
        quality = self.X @ np.linspace(1, -1, d) + rng.normal(size=n)
        self.labels: list[Any] = np.digitize(quality, [-1, 0, 1]).tolist()
        for row in rng.choice(n, 3, replace=False).tolist():
            self.labels[row] = None
        weights = rng.choice([0.5, 1.0, 3.0], groups)
        weights[[3, 7]] = 0.0
        self.weights = weights[self.groups] if weighted else None

    def write(self, path: Path, *, sparse: bool = False, chunk_rows: int = 16) -> Path:
        """The store."""
        return write_sequences(
            path, self.X, self.labels, self.groups, self.weights, sparse=sparse, chunk_rows=chunk_rows
        )

    def pairs(self) -> tuple[np.ndarray, np.ndarray]:
        """Differences (m, d) of all pairs, one by one, and their weights (m,)."""
        found, weights = [], []
        for i, better in enumerate(self.labels):
            for j, worse in enumerate(self.labels):
                if better is not None and worse is not None and better > worse and self.groups[i] == self.groups[j]:
                    found.append(self.X[i].astype(float) - self.X[j].astype(float))
                    weights.append(1.0 if self.weights is None else float(self.weights[i]))
        return np.array(found), np.array(weights)

    def value(self, w: np.ndarray, C: float) -> float:
        """P at w."""
        psi, weights = self.pairs()
        return float(0.5 * w @ w + C * weights @ np.maximum(0.0, 1.0 - psi @ w))

    def dual(self, arrays: Mapping[str, np.ndarray], C: float) -> float:
        """D of the cuts of a model, its weights divided so that they are feasible."""
        psi, weights = self.pairs()
        r = max(1.0, float(arrays["cuts_weight"].sum()) / C)
        count, total = 0.0, np.zeros(self.X.shape[1])
        for u, a in zip(arrays["cuts_point"], arrays["cuts_weight"] / r, strict=True):
            below = weights * (psi @ u < THRESHOLD)
            count, total = count + a * below.sum(), total + a * below @ psi
        return float(count - 0.5 * total @ total)

    def best(self, C: float) -> float:
        """The least P, by LIBLINEAR on all pairs."""
        psi, weights = self.pairs()
        sign = np.where(np.arange(len(psi)) % 2, 1.0, -1.0)
        svm = LinearSVC(loss="hinge", C=C, fit_intercept=False, tol=1e-9, max_iter=1_000_000)
        svm.fit(psi * sign[:, None], sign, sample_weight=weights + 1e-300)
        return self.value(svm.coef_[0], C)
