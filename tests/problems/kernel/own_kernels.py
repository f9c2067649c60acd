"""Functions as kernels, as people may bring them: some that are none, too; modules that are imported by name."""

from __future__ import annotations

import itertools

import numpy as np
from scipy.spatial.distance import cdist

GAMMA = 0.7
WORDS = ["".join(word) for word in itertools.product("abc", repeat=4)]


def rbf(X: np.ndarray, Z: np.ndarray) -> np.ndarray:
    """exp(-0.7 ||x - z||^2), by differences."""
    return np.asarray(np.exp(-GAMMA * cdist(X, Z, "sqeuclidean")))


def other_rbf(X: np.ndarray, Z: np.ndarray) -> np.ndarray:
    """The same with another gamma."""
    return np.asarray(rbf(X, Z) ** 1.01)


def intersection(X: np.ndarray, Z: np.ndarray) -> np.ndarray:
    """What two histograms have in common."""
    return np.asarray(np.minimum(X[:, None], Z[None]).sum(axis=-1))


def spectrum(X: np.ndarray, Z: np.ndarray) -> np.ndarray:
    """How many pairs of letters two words have in common; rows hold the numbers of words."""
    pairs = ["".join(pair) for pair in itertools.product("abc", repeat=2)]
    counted = np.array([[sum(w[i : i + 2] == pair for i in range(3)) for pair in pairs] for w in WORDS], float)
    return np.asarray(counted[X[:, 0].astype(int)] @ counted[Z[:, 0].astype(int)].T)


def greedy(X: np.ndarray, Z: np.ndarray) -> np.ndarray:
    """A function that writes into what it gets."""
    found = X @ Z.T
    X *= np.nan
    Z *= np.nan
    return np.asarray(found)


def skew(X: np.ndarray, Z: np.ndarray) -> np.ndarray:
    """Not symmetric."""
    return rbf(X, Z) * (1 + 1e-3 * np.tanh(X[:, :1] - Z[:, :1].T))


def indefinite(X: np.ndarray, Z: np.ndarray) -> np.ndarray:
    """Symmetric, with 1 on the diagonal and nothing above it, and no kernel."""
    return np.asarray(np.cos(3.0 * cdist(X, Z, "sqeuclidean")))


def negative(X: np.ndarray, Z: np.ndarray) -> np.ndarray:
    """k(x, x) below 0."""
    return np.asarray(-(X @ Z.T))


def too_large(X: np.ndarray, Z: np.ndarray) -> np.ndarray:
    """More than Cauchy and Schwarz allow: the sigmoid."""
    return np.asarray(np.tanh(X @ Z.T))


def by_shape(X: np.ndarray, Z: np.ndarray) -> np.ndarray:
    """Values that depend on how many rows are asked about at once."""
    return rbf(X, Z) * (1 - 1e-8 * (len(X) != len(Z)))


def with_nan(X: np.ndarray, Z: np.ndarray) -> np.ndarray:
    """NaN of one row, which has a first feature above 5."""
    return np.asarray(np.where((X[:, :1] > 5) | (Z[:, :1].T > 5), np.nan, rbf(X, Z)))


def infinite(X: np.ndarray, Z: np.ndarray) -> np.ndarray:
    """Infinite with that row."""
    return np.asarray(np.where((X[:, :1] > 5) | (Z[:, :1].T > 5), np.inf, rbf(X, Z)))


def of_one_row(X: np.ndarray, Z: np.ndarray) -> np.ndarray:
    """Of another shape."""
    return np.asarray(rbf(X, Z)[0])


def words(X: np.ndarray, Z: np.ndarray) -> np.ndarray:
    """No numbers."""
    return np.full((len(X), len(Z)), "x")


def broken(X: np.ndarray, Z: np.ndarray) -> np.ndarray:
    """It fails."""
    raise ZeroDivisionError("no such thing")


class Failing:
    """The first one, of which so many questions are answered and no more; asked: how many there were."""

    def __init__(self) -> None:
        self.asked, self.answered = 0, 1 << 30

    def __call__(self, X: np.ndarray, Z: np.ndarray) -> np.ndarray:
        """Values, or an error."""
        self.asked += 1
        return rbf(X, Z) if self.asked <= self.answered else broken(X, Z)


NUMBER = 3
