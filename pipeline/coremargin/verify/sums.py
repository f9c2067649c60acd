"""The verifier's arithmetic: sums of products that are rounded once.

A product of two float64 numbers is the sum of two of them, exactly (Dekker 1971, with Veltkamp's splitting), and
``math.fsum`` rounds a sum of any length once; ``rounded_sums`` does so for many rows at a time. So every number that
decides about a claim is known to a few units in the last place, however long the rows are and whatever cancels.
Underflow aside (values below 1e-150) this holds for all rows whose squares do not overflow.

Sums over all rows of a store (the value of a soft margin, its dual vector) are computed for slabs of at most SLAB_ROWS
rows in plain float64, with an error of at most gamma(SLAB_ROWS + 16) of the sum of the terms' sizes; slabs and chunks
are added by ``Total``, whose own error is negligible. If such a sum decides about a claim, the error counts against it.

Rows are arrays (n, d) or, of a sparse store, csr arrays with ascending columns; values that a sparse row does not store
are zero and are in no sum.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Iterator
from fractions import Fraction
from typing import Any

import numpy as np
from scipy.sparse import csr_array, issparse

UNIT = 2.0**-53  #: relative rounding error of one operation
_SPLITTER = 2.0**27 + 1
TINY = 1e-307  #: error of a product in plain float64 by underflow
LOST = 2.0**-1070  #: the same of an exact product
VANISHED = 1.5e-154  #: numbers below this have squares that underflow
SLAB_ROWS = 1024  #: rows whose terms are added in plain float64
SLAB_VALUES = 1 << 17  #: numbers converted to float64 at a time: 1 MiB, stays in the cache
_TERMS = 1 << 20  # products at a time: bounds the memory of long sums


def quiet() -> np.errstate:
    """Suppress warnings: numbers that overflow are not finite, and comparisons with them prove nothing."""
    return np.errstate(over="ignore", invalid="ignore", divide="ignore", under="ignore")


def gamma(n: int) -> float:
    """Bound on the relative error of a sum of ``n`` products, in any order (Higham 2002, section 3.1)."""
    return n * UNIT / (1 - n * UNIT)


class Total:
    """A sum of many arrays: error of one rounding, and of n^2 UNIT^2 of the terms' sizes (Neumaier 1974)."""

    def __init__(self, shape: tuple[int, ...] = ()) -> None:
        self.high, self.low = np.zeros(shape), np.zeros(shape)

    def add(self, values: np.ndarray) -> None:
        """Add an array of the same shape."""
        total = self.high + values
        part = total - self.high
        self.low = self.low + ((self.high - (total - part)) + (values - part))
        self.high = total

    def add_columns(self, columns: np.ndarray, values: np.ndarray) -> None:
        """Add an array (k, m) to these columns (m,), each of which is named once."""
        high = self.high[:, columns]
        total = high + values
        part = total - high
        self.low[:, columns] += (high - (total - part)) + (values - part)
        self.high[:, columns] = total

    @property
    def value(self) -> np.ndarray:
        """The sum."""
        return np.asarray(self.high + self.low)


def exact_products(a: np.ndarray, b: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """(p, e), broadcast: a b = p + e exactly."""
    with np.errstate(over="ignore", invalid="ignore"):  # numbers that overflow are not finite, and rejected later
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


def slabs(x: Any, most: int | None = None) -> Iterator[tuple[slice, Any]]:
    """Rows x (n, d) in float64, in slabs of at most ``most`` rows: the slice of each, and its rows."""
    n, d = x.shape
    width = max(1, x.nnz // max(1, n)) if issparse(x) else d
    step = max(1, min(SLAB_VALUES // width, most or n))
    for start in range(0, n, step):
        part = slice(start, min(n, start + step))
        yield part, x[part].astype(np.float64)


def sparse_rows(X: csr_array) -> Iterator[tuple[np.ndarray, np.ndarray]]:
    """Columns and values of each row."""
    for start, stop in zip(X.indptr[:-1].tolist(), X.indptr[1:].tolist(), strict=True):
        yield X.indices[start:stop], X.data[start:stop]


def same_rows(X: Any, Z: Any) -> np.ndarray:
    """Which rows (n,) of X and Z, both (n, d) float64 and both dense or both sparse, are equal bit for bit."""
    if issparse(X) != issparse(Z):
        return np.zeros(X.shape[0], dtype=bool)
    if issparse(X):
        pairs = zip(sparse_rows(X), sparse_rows(Z), strict=True)
        return np.array([i.tolist() == j.tolist() and u.tobytes() == v.tobytes() for (i, u), (j, v) in pairs], bool)
    return np.asarray((X.view(np.int64) == np.ascontiguousarray(Z).view(np.int64)).all(axis=1))


def dot_products(X: Any, w: np.ndarray, b: float) -> np.ndarray:
    """w.x + b (n,) of rows X (n, d) float64, each rounded once."""
    values = np.empty(X.shape[0])
    for part, x, columns in _slots(X, 2):
        products, errors = exact_products(x, w[columns])
        values[part] = rounded_sums(np.column_stack([products, np.full(len(x), b)]), errors)
    return values


def differences(X: Any, w: np.ndarray, b: np.ndarray, own: np.ndarray, rival: int) -> np.ndarray:
    """The score w_k.x + b_k of k = own (n,) minus that of a rival (n,), for rows X (n, d); w (K, d), b (K,).

    Rounded once as a whole: two scores that are each rounded may differ by an ulp even if the scores do not.
    """
    values = np.empty(X.shape[0])
    for part, x, columns in _slots(X, 4):
        first, other = w[own[part][:, None], columns], -w[rival, columns]
        (p, e), (q, f) = exact_products(x, first), exact_products(x, other)
        offsets = b[own[part]], np.full(len(x), -b[rival])
        values[part] = rounded_sums(np.column_stack([p, q, *offsets]), np.column_stack([e, f]))
    return values


def _slots(X: Any, share: int) -> Iterator[tuple[slice, np.ndarray, Any]]:
    """Slices of rows X (n, d), with their values (k, m), and the columns of these, (k, m) or (d,).

    Sparse rows are padded with zeros to the width of the longest. share: by which SLAB_VALUES is divided.
    """
    n, d = X.shape
    ends = X.indptr if issparse(X) else None
    width = d if ends is None else int(np.diff(ends).max(initial=0))
    step = max(1, SLAB_VALUES // share // max(1, width))
    for start in range(0, n, step):
        part = slice(start, min(n, start + step))
        if ends is None:
            yield part, X[part], np.arange(d)
            continue
        bounds = ends[start : part.stop + 1]
        counts, stored = np.diff(bounds), slice(int(bounds[0]), int(bounds[-1]))
        there = np.arange(int(counts.max(initial=0)))[None, :] < counts[:, None]
        x, columns = np.zeros(there.shape), np.zeros(there.shape, np.int64)
        x[there], columns[there] = X.data[stored], X.indices[stored]
        yield part, x, columns


def rounded_sums(terms: np.ndarray, small: np.ndarray) -> np.ndarray:
    """The sums (n,) of terms (n, m) and small ones (n, l), each rounded once, as by ``rounded_sum``.

    Terms are added in pairs without error (Knuth): a + b = s + e. The sum of all e and the small terms in plain float64
    is off by no more than gamma of the sum of their sizes. If the total rounds to the same number within that error,
    this is the sum rounded once (Ziv); ``math.fsum`` computes the few others.
    """
    left, count = terms, terms.shape[1] + small.shape[1]
    with quiet():
        lost, size = small.sum(axis=1), np.abs(small).sum(axis=1)
        while left.shape[1] > 1:
            half = left.shape[1] // 2
            a, b = left[:, :half], left[:, half : 2 * half]
            added = a + b
            other = added - a
            errors = (a - (added - other)) + (b - other)
            lost += errors.sum(axis=1)
            size += np.abs(errors).sum(axis=1)
            left = np.column_stack([added, left[:, 2 * half :]])
        slack = 4 * gamma(count + 16) * size + 4 * LOST
        values = left[:, 0] + (lost - slack)
        same = values == left[:, 0] + (lost + slack)
    for k in np.flatnonzero(~same):
        values[k] = rounded_sum([*terms[k].tolist(), *small[k].tolist()])
    return np.asarray(values)


def rounded_sum(values: Iterable[float]) -> float:
    """A sum of any length, rounded once; NaN, which proves nothing, if it overflows."""
    try:
        return math.fsum(values)
    except (OverflowError, ValueError):
        return math.nan


def nearest(value: Fraction) -> float:
    """The float nearest to a fraction; infinity if it overflows."""
    try:
        return float(value)
    except OverflowError:
        return math.inf if value > 0 else -math.inf


def length(v: np.ndarray) -> float:
    """||v||, to a few units in the last place, without overflow."""
    largest = float(np.abs(v).max(initial=0.0))
    if largest == 0.0:
        return 0.0
    scale = 2.0 ** -max(-1000, min(1000, math.frexp(largest)[1]))
    products, errors = exact_products(v * scale, v * scale)
    square = rounded_sum([*products.tolist(), *errors.tolist()])
    return math.sqrt(square) / scale if square >= 0 else math.nan


def normalised_weights(alpha: np.ndarray, groups: list[np.ndarray]) -> tuple[np.ndarray, np.ndarray]:
    """(h, l): alpha divided by the sum of its group, as a sum of two numbers; groups: masks (m,) of all rows."""
    high, low = np.zeros_like(alpha), np.zeros_like(alpha)
    for group in groups:
        part = alpha[group]
        total = rounded_sum(part)
        rest = rounded_sum([*part.tolist(), -total])  # the sum is total + rest
        quotient = part / total
        products, errors = exact_products(quotient, np.asarray(total))
        high[group] = quotient
        low[group] = ((part - products) - errors - quotient * rest) / total
    return high, low


def combination(X: Any, high: np.ndarray, low: np.ndarray) -> np.ndarray:
    """sum_i (h_i + l_i) x_i (d,) over rows X (m, d), each feature rounded once."""
    m, d = X.shape
    values = np.zeros(d)
    if issparse(X):
        row = np.repeat(np.arange(m), np.diff(X.indptr))
        order = np.argsort(X.indices, kind="stable")
        products, errors = exact_products(X.data[order], high[row[order]])
        errors += X.data[order] * low[row[order]]
        used, first = np.unique(X.indices[order], return_index=True)
        last = np.append(first, len(order))[1:]  # rows of zeros have no columns
        for j, start, stop in zip(used, first, last, strict=True):
            values[j] = rounded_sum([*products[start:stop].tolist(), *errors[start:stop].tolist()])
        return values
    step = max(1, _TERMS // max(1, m))
    for start in range(0, d, step):
        columns = np.ascontiguousarray(X[:, start : start + step].T)
        products, errors = exact_products(columns, high)
        errors += columns * low
        for k in range(len(columns)):
            values[start + k] = rounded_sum([*products[k].tolist(), *errors[k].tolist()])
    return values


def lift(X: Any, other: float = 0.0) -> float:
    """A power of two that makes rows X (m, d), and another number, so large that no product by a weight underflows.

    1 unless all of them are tiny.
    """
    largest = max(float(abs(X).max()) if X.size else 0.0, other)
    return 2.0 ** min(1000, -math.frexp(largest)[1]) if 0 < largest < VANISHED else 1.0


def row_lengths(X: Any) -> np.ndarray:
    """||x|| (n,) of rows X (n, d) float64: relative error below (d + 4) units, no overflow.

    Not too small by underflow either: what squares that underflow could add is added to every row.
    """
    return _lengths(X) + math.sqrt(X.shape[1]) * VANISHED


def true_lengths(X: Any) -> np.ndarray:
    """||x|| (n,) of rows X (n, d) float64, to (d + 4) units, however short; for relative tolerances."""
    n = X.shape[0]
    if issparse(X):
        row, largest = np.repeat(np.arange(n), np.diff(X.indptr)), np.zeros(n)
        np.maximum.at(largest, row, np.abs(X.data))
        scale = _scales(largest)
        return np.asarray(np.sqrt(np.bincount(row, weights=np.square(X.data * scale[row]), minlength=n)) / scale)
    scale = _scales(np.abs(X).max(axis=1, initial=0.0))
    scaled = X * scale[:, None]
    return np.asarray(np.sqrt(np.einsum("ij,ij->i", scaled, scaled)) / scale)


def _scales(largest: np.ndarray) -> np.ndarray:
    """Powers of two that make numbers of these sizes about 1."""
    return np.asarray(np.ldexp(1.0, -np.clip(np.frexp(largest)[1], -1000, 1000)))


def _lengths(X: Any) -> np.ndarray:
    if issparse(X):
        if 1e150 < float(np.abs(X.data).max(initial=0.0)) < math.inf:
            return true_lengths(X)
        row = np.repeat(np.arange(X.shape[0]), np.diff(X.indptr))
        return np.asarray(np.sqrt(np.bincount(row, weights=np.square(X.data), minlength=X.shape[0])))
    if 1e150 < max(float(X.max(initial=0.0)), -float(X.min(initial=0.0))) < math.inf:
        return true_lengths(X)  # one scale for all would leave the others no length
    return np.asarray(np.sqrt(np.einsum("ij,ij->i", X, X)))
