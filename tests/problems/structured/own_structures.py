"""Structures as users write them, right ones and wrong ones."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np

K = 3


class Chain:
    """Sequences of three labels, with transitions and a constant feature."""

    def size(self, features: int) -> int:
        """Emissions and transitions."""
        return K * (features + 1) + K * K

    def joint(self, X: np.ndarray, y: np.ndarray) -> tuple[Any, Any]:
        """Rows by their labels, and pairs of labels."""
        Z = np.column_stack([X, np.ones(len(X))])
        d = Z.shape[1]
        places = [np.arange(d) * K + k for k in y] + [d * K + y[:-1] * K + y[1:]]
        return np.concatenate(places), np.concatenate([*Z, np.ones(len(y) - 1)])

    def argmax(self, w: np.ndarray, X: np.ndarray, y: np.ndarray | None = None) -> np.ndarray:
        """Viterbi."""
        d = X.shape[1] + 1
        scores = np.column_stack([X, np.ones(len(X))]) @ w[: d * K].reshape(d, K)
        if y is not None:
            scores += 1.0
            scores[np.arange(len(y)), y] -= 1.0
        moves, best, back = w[d * K :].reshape(K, K), scores[0], []
        for line in scores[1:]:
            ahead = best[:, None] + moves
            back.append(ahead.argmax(axis=0))
            best = ahead.max(axis=0) + line
        path = [int(best.argmax())]
        for before in back[::-1]:
            path.append(int(before[path[-1]]))
        return np.array(path[::-1])

    def loss(self, y: np.ndarray, other: np.ndarray) -> float:
        """Wrong labels."""
        return float((y != other).sum())


class Greedy(Chain):
    """Takes label after label: no maximum."""

    def argmax(self, w: np.ndarray, X: np.ndarray, y: np.ndarray | None = None) -> np.ndarray:
        """Ignores transitions."""
        flat = w.copy()
        flat[-K * K :] = 0
        return super().argmax(flat, X, y)


class Restless(Chain):
    """Gives another labelling every second time."""

    calls = 0

    def argmax(self, w: np.ndarray, X: np.ndarray, y: np.ndarray | None = None) -> np.ndarray:
        """Turns labels around."""
        self.calls += 1
        found = super().argmax(w, X, y)
        return found if self.calls % 2 else (found + 1) % K


class Beyond(Chain):
    """Labels that there are not."""

    def argmax(self, w: np.ndarray, X: np.ndarray, y: np.ndarray | None = None) -> np.ndarray:
        """Label 3."""
        return np.full(len(X), K)


class Endless(Chain):
    """Features that are not finite."""

    def joint(self, X: np.ndarray, y: np.ndarray) -> tuple[Any, Any]:
        """NaN."""
        places, values = super().joint(X, y)
        return places, values * np.nan


class Outside(Chain):
    """Features beyond its size."""

    def size(self, features: int) -> int:
        """Too few."""
        return super().size(features) - 1

    def argmax(self, w: np.ndarray, X: np.ndarray, y: np.ndarray | None = None) -> np.ndarray:
        """Of as many as there would be."""
        return super().argmax(np.append(w, 0.0), X, y)


class Free(Chain):
    """Wrong labels that cost nothing."""

    def loss(self, y: np.ndarray, other: np.ndarray) -> float:
        """None."""
        return 0.0


class Changing(Chain):
    """Other features at each call."""

    calls = 0

    def joint(self, X: np.ndarray, y: np.ndarray) -> tuple[Any, Any]:
        """The same places, growing values."""
        self.calls += 1
        places, values = super().joint(X, y)
        return places, values + self.calls


class Failing(Chain):
    """Raises."""

    def loss(self, y: np.ndarray, other: np.ndarray) -> float:
        """KeyError."""
        raise KeyError("cost")


def as_chain(record: Mapping[str, Any], arrays: Mapping[str, np.ndarray]) -> tuple[dict[str, Any], dict[str, Any]]:
    """Record and arrays as of a chain, for the judge that enumerates."""
    w, classes = arrays["weights"], len(record["classes"])
    split = len(w) - classes * classes
    own = {
        "hypothesis": w[:split].reshape(-1, classes).T,
        "transitions": w[split:].reshape(classes, classes),
        "costs": 1.0 - np.eye(classes),
    }
    return dict(record) | {"constant": 1.0}, dict(arrays) | own
