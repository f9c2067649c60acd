"""Kesler's vectors, written out: the judges of what works without them."""

from __future__ import annotations

import numpy as np


def kesler_vectors(X: np.ndarray, y: np.ndarray, K: int) -> tuple[np.ndarray, list[tuple[int, int]]]:
    """All z in R^(K p), and which (row, rival) each is."""
    pairs = [(i, r) for i in range(len(X)) for r in range(K) if r != y[i]]
    eye = np.eye(K)
    return np.stack([np.kron(eye[y[i]] - eye[r], X[i]) for i, r in pairs]), pairs
