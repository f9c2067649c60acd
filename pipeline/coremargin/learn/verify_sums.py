"""The arithmetic of ``verify``: sums of products without rounding error that matters.

A product of two float64 numbers is the sum of two of them, exactly (Dekker 1971, with Veltkamp's splitting), and
``math.fsum`` rounds a sum of any length once. So every number that decides about a claim is known to a few units in
the last place, however long the rows are and whatever cancels. Underflow aside (values below 1e-150) this holds for all
rows whose squares do not overflow.
"""

from __future__ import annotations

import math

import numpy as np

UNIT = 2.0**-53  #: relative rounding error of one operation
_SPLITTER = 2.0**27 + 1
_TERMS = 1 << 20  # products at a time: bounds the memory of long sums


def exact_products(a: np.ndarray, b: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """(p, e), broadcast: a b = p + e exactly."""
    with np.errstate(over="ignore", invalid="ignore"):  # what overflows is not finite, and refused where it is used
        return _exact_products(a, b)


def _exact_products(a: np.ndarray, b: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    product = a * b
    a_high = _SPLITTER * a
    a_high = a_high - (a_high - a)
    b_high = _SPLITTER * b
    b_high = b_high - (b_high - b)
    a_low, b_low = a - a_high, b - b_high
    error = a_low * b_low - (((product - a_high * b_high) - a_low * b_high) - a_high * b_low)
    return product, error


def dot_products(X: np.ndarray, w: np.ndarray, b: float) -> np.ndarray:
    """w.x + b (n,) of rows X (n, d) float64, each rounded once."""
    values = np.empty(len(X))
    step = max(1, _TERMS // max(1, X.shape[1]))
    for start in range(0, len(X), step):
        parts = exact_products(X[start : start + step], w)
        for k, (products, errors) in enumerate(zip(*parts, strict=True)):
            values[start + k] = math.fsum([*products.tolist(), *errors.tolist(), b])
    return values


def length(v: np.ndarray) -> float:
    """||v||, to a few units in the last place, without overflow."""
    largest = float(np.abs(v).max(initial=0.0))
    if largest == 0.0:
        return 0.0
    scale = 2.0 ** -max(-1000, min(1000, math.frexp(largest)[1]))
    products, errors = exact_products(v * scale, v * scale)
    return math.sqrt(math.fsum([*products.tolist(), *errors.tolist()])) / scale


def normalised_weights(alpha: np.ndarray, groups: list[np.ndarray]) -> tuple[np.ndarray, np.ndarray]:
    """(h, l): alpha divided by the sum of its group, as the sum of two numbers; groups: masks (m,) that cover all."""
    high, low = np.zeros_like(alpha), np.zeros_like(alpha)
    for group in groups:
        part = alpha[group]
        total = math.fsum(part)
        rest = math.fsum([*part.tolist(), -total])  # the sum is total + rest
        quotient = part / total
        products, errors = exact_products(quotient, np.asarray(total))
        high[group] = quotient
        low[group] = ((part - products) - errors - quotient * rest) / total
    return high, low


def combination(X: np.ndarray, high: np.ndarray, low: np.ndarray) -> np.ndarray:
    """sum_i (h_i + l_i) x_i (d,) over rows X (m, d), each feature rounded once."""
    m, d = X.shape
    values = np.empty(d)
    step = max(1, _TERMS // max(1, m))
    for start in range(0, d, step):
        columns = np.ascontiguousarray(X[:, start : start + step].T)
        products, errors = exact_products(columns, high)
        errors += columns * low
        for k in range(len(columns)):
            values[start + k] = math.fsum([*products[k].tolist(), *errors[k].tolist()])
    return values


def row_lengths(X: np.ndarray) -> np.ndarray:
    """||x|| (n,) of rows X (n, d) float64: relative error below (d + 4) units, no overflow."""
    largest = max(float(X.max(initial=0.0)), -float(X.min(initial=0.0)))
    if 1e150 < largest < math.inf:
        scale = 2.0 ** -math.frexp(largest)[1]
        return np.asarray(row_lengths(X * scale) / scale)
    return np.asarray(np.sqrt(np.einsum("ij,ij->i", X, X)))
