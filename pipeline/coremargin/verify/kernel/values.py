"""Kernels as ``verify`` evaluates them, with what its arithmetic may lose: code of its own, float64 throughout.

    linear x.z,   poly (gamma x.z + coef0)^degree,   rbf exp(-gamma ||x - z||^2)

Rows x of the rbf kernel are moved by -m first, m being the mean of the rows that carry the function, which changes no
distance, and leaves ||x||^2 + ||z||^2 - 2 x.z its digits. With L = ||x|| + ||z|| of moved rows, moving costs 4 u L^2 of
the squared distance, lengths and product gamma_(d + 4) L^2; exp(-v) moves by no more than v does.
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

    def lost(self, left: np.ndarray, right: float, terms: int) -> np.ndarray:
        """What values (n,) may be off by; terms: of a dot product."""
        if self.name == "rbf":
            return np.asarray(self.scale * (gamma(terms + 4) + 4 * UNIT) * (left + right) ** 2 + _LIBRARY)
        product = gamma(terms + 1) * left * right + terms * TINY
        if self.name == "linear":
            return product
        base = self.scale * left * right + self.constant
        moved = self.scale * product + 3 * UNIT * base
        return self.degree * (base + moved) ** (self.degree - 1) * moved + _LIBRARY * (base + moved) ** self.degree


class Expansion:
    """k functions sum_j weights_jc k(z_j, .) of rows z (m, d) with weights (m, k)."""

    def __init__(self, function: Function, z: Any, weights: np.ndarray) -> None:
        self.function, self.weights = function, weights
        moves = function.name == "rbf" and not issparse(z) and len(z) > 0
        self._mean = z.mean(axis=0) if moves else None
        self._z = self._moved(z)
        self._lengths = true_lengths(self._z)
        self._squares = self._lengths * self._lengths
        self.longest = float(self._lengths.max(initial=0.0))
        self.size = np.abs(weights).sum(axis=0)

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
        return found, self._lost(lengths, x.shape[1])[:, None] * self.size[None, :]

    def _lost(self, lengths: np.ndarray, terms: int) -> np.ndarray:
        each = self.function.lost(lengths, self.longest, terms)
        return np.asarray(each + gamma(self.weights.shape[0] + 2) * self.function.bound(lengths, self.longest))

    def _parts(self, rows: int) -> Iterator[slice]:
        step = max(8, _VALUES // max(1, self.weights.shape[0]))
        for start in range(0, rows, step):
            yield slice(start, start + step)
