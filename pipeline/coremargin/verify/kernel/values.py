"""Kernels as ``verify`` evaluates them, with what its arithmetic may lose: code of its own, float64 throughout.

    linear x.z,   poly (gamma x.z + coef0)^degree,   rbf exp(-gamma ||x - z||^2)

Rows x of the rbf kernel are moved by -m first, m being the mean of the rows that carry the functions by their weights,
which changes no distance, and leaves ||x||^2 + ||z||^2 - 2 x.z its digits. With L = ||x|| + ||z|| of moved rows, moving
costs 4 u L^2 of the squared distance, lengths and product gamma_(d + 8) L^2; exp(-v) moves by no more than v does. Of
weighted sums that is a mean of L^2 by weights: of ||x||^2 + 2 ||x|| ||z|| + ||z||^2 three sums.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import numpy as np
from scipy.sparse import issparse

from coremargin.verify.sums import TINY, UNIT, gamma, true_lengths

_LIBRARY = 8 * UNIT  # of exp and powers, at most
_VALUES = 1 << 21  # kernel values that are there at a time, in each thread


@dataclass(frozen=True)
class Function:
    """A kernel with its numbers, of which it uses those that it has."""

    name: str
    scale: float
    degree: int
    constant: float

    def of_products(self, products: np.ndarray, left: np.ndarray, right: np.ndarray) -> np.ndarray:
        """Values (n, m) from dot products (n, m), and squares of the lengths (n,), (m,)."""
        if self.name == "linear":
            return np.asarray(products)
        if self.name == "poly":
            return np.asarray((self.scale * products + self.constant) ** self.degree)
        apart = (left[:, None] + right[None, :]) - 2.0 * products
        return np.asarray(np.exp(-self.scale * np.maximum(apart, 0.0)))

    def bound(self, left: np.ndarray | float, right: float) -> np.ndarray:
        """No value of rows of these lengths (n,) with rows no longer than ``right`` is larger."""
        if self.name == "rbf":
            return np.ones(np.shape(left))
        most = np.asarray(left) * right
        return np.asarray(most if self.name == "linear" else (self.scale * most + self.constant) ** self.degree)

    def lost_apart(self, squares: np.ndarray, terms: np.ndarray) -> np.ndarray:
        """What values of rbf may be off by where (||x|| + ||z||)^2 is this, or a mean of both; terms: of a product."""
        apart = (_gamma(terms + 8) + 4 * UNIT) * squares + (terms + 8) * TINY  # squares underflow, too
        return np.asarray(self.scale * apart + _LIBRARY)

    def lost(self, left: np.ndarray, right: float, terms: np.ndarray) -> np.ndarray:
        """What values (n,) of the others may be off by, of rows of these lengths with rows no longer than ``right``."""
        product = _gamma(terms + 1) * left * right + terms * TINY
        if self.name == "linear":
            return np.asarray(product)
        base = self.scale * left * right + self.constant
        moved = self.scale * product + 3 * UNIT * base
        most = base + moved
        return np.asarray(self.degree * most ** (self.degree - 1) * moved + _LIBRARY * most**self.degree)


class Expansion:
    """k functions sum_j weights_jc k(z_j, .) of rows z (m, d) with weights (m, k)."""

    def __init__(self, function: Function, z: Any, weights: np.ndarray) -> None:
        self.function, self.weights = function, weights
        moves = function.name == "rbf" and not issparse(z) and len(z) > 0
        self._mean = _mean(z, np.abs(weights).sum(axis=1)) if moves else None
        self._z = self._moved(z)
        self._lengths = true_lengths(self._z)
        self._squares = self._lengths * self._lengths
        self.longest = float(self._lengths.max(initial=0.0))
        sizes = np.abs(weights)
        self.size = sizes.sum(axis=0)
        self._terms = int(_terms(z).max(initial=0))
        shares = sizes / np.where(self.size > 0, self.size, 1.0)
        self._means = self._lengths @ shares, self._squares @ shares

    def _moved(self, x: Any) -> Any:
        return x if self._mean is None else x - self._mean

    def values(self, x: Any) -> tuple[np.ndarray, np.ndarray]:
        """The functions (n, k) at rows x (n, d) float64, and what they may be off by (n, k)."""
        x = self._moved(x)
        lengths = true_lengths(x)
        found = np.empty((len(lengths), self.weights.shape[1]))
        for part in self._parts(len(lengths)):
            product = x[part] @ self._z.T
            products = np.asarray(product.toarray() if issparse(product) else product)
            squares = lengths[part] * lengths[part]
            found[part] = self.function.of_products(products, squares, self._squares) @ self.weights
        return found, self._lost(lengths, np.maximum(_terms(x), self._terms))

    def reach(self, x: Any, longest: float) -> float:
        """No sqrt(k(x, x)) of rows x (n, d), none of which is longer than that, is larger."""
        return float(np.sqrt(self.function.bound(longest, longest)))

    def _lost(self, lengths: np.ndarray, terms: np.ndarray) -> np.ndarray:
        """What sums (n, k) at rows of these lengths, with so many terms, may be off by."""
        summed = gamma(self.weights.shape[0] + 2) * self.function.bound(lengths, self.longest)
        if self.function.name != "rbf":
            return np.asarray((self.function.lost(lengths, self.longest, terms) + summed)[:, None] * self.size)
        own, (once, twice) = lengths[:, None], self._means
        return np.asarray(
            (self.function.lost_apart(own * own + 2.0 * own * once + twice, terms[:, None]) + summed[:, None])
            * self.size
        )

    def _parts(self, rows: int) -> Iterator[slice]:
        step = max(8, _VALUES // max(1, self.weights.shape[0]))
        for start in range(0, rows, step):
            yield slice(start, start + step)


def _terms(x: Any) -> np.ndarray:
    """How many products (n,) a sum over each row of x has that are not 0 exactly."""
    return np.asarray(np.diff(x.indptr) if issparse(x) else np.full(len(x), x.shape[1]))


def _gamma(terms: np.ndarray) -> np.ndarray:
    """``gamma`` of each of these (n,), or a little more."""
    most = int(terms.max(initial=1))
    return np.asarray(gamma(most) * (terms / most))


def _mean(z: np.ndarray, weights: np.ndarray) -> np.ndarray:
    """The mean (d,) of rows z (m, d) by weights (m,); of no weights, or of some that are not finite, the plain one.

    Taken about the first of them: of equal rows it is that row, to the bit, and all distances from it are 0.
    """
    total = weights.sum()
    away = z - z[0]
    return np.asarray(z[0] + ((weights / total) @ away if 0 < total < np.inf else away.mean(axis=0)))
