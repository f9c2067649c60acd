"""What ingest counts of a chunk of sparse rows: every number as for the same rows made dense, without making them so.

A feature that no row of the chunk mentions is zero in all of them: sums, extremes and centre need to be known on the
*support*, the features that occur. The vectors are CSR arrays of one row on that support, zero elsewhere.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np

from coremargin.data.sparse import csr_rows
from coremargin.data.support import centre_of

if TYPE_CHECKING:
    from collections.abc import Mapping

    from scipy.sparse import csr_array

_DIRECT = 1 << 22  # features up to which support is found through a table of all features
_UNIT = np.finfo(np.float64).eps


@dataclass(frozen=True)
class SparseSums:
    """Of n rows: values (u,) float64 of each vector on ``support`` (u,), and largest sums of ``scale``-d squares.

    norm: of a row; farthest: of its difference from the centre, an upper bound where sums cancel. terms: of the longest
    of these sums. varies: not all rows are equal.
    """

    support: np.ndarray
    vectors: Mapping[str, np.ndarray]
    norm: float
    farthest: float
    terms: int
    largest: float
    varies: bool


def sparse_sums(X: csr_array, scale_of: float) -> SparseSums:
    """Sums over canonical rows X (n, d), n >= 1, in float64 and in a fixed order.

    scale_of: values above this are scaled by a power of two before they are squared (see ``SparseSums``).
    """
    n = X.shape[0]
    support, place = _support(X)
    values, u = X.data.astype(np.float64), len(support)
    low, high = np.full(u, np.inf), np.full(u, -np.inf)
    np.minimum.at(low, place, values)
    np.maximum.at(high, place, values)
    counts = np.bincount(place, minlength=u)
    full = counts == n
    low, high = np.where(full, low, np.minimum(low, 0.0)), np.where(full, high, np.maximum(high, 0.0))
    largest = float(max(high.max(initial=0.0), -low.min(initial=0.0)))
    scale = scaling(largest, scale_of)
    with np.errstate(over="ignore"):
        total = np.bincount(place, values, minlength=u)
    centre = centre_of(total, n)
    scaled, middle = values * scale, centre * scale
    apart = scaled - middle[place]
    with np.errstate(over="ignore"):
        spread = np.bincount(place, apart * apart, minlength=u) + (n - counts) * (middle * middle)
        spread = np.where(low == high, 0.0, spread / scale / scale)
    norms = _row_sums(scaled * scaled, X.indptr)
    return SparseSums(
        support=support,
        vectors={"centre": centre, "low": low, "high": high, "total": total, "spread": spread},
        norm=float(norms.max()),
        farthest=_farthest(X.indptr, apart, middle, place),
        terms=u,
        largest=largest,
        varies=bool((low != high).any() or (centre != low).any()),
    )


def scaling(largest: float, limit: float) -> float:
    """A power of two that brings ``largest`` below 1 when it lies above ``limit``, else 1."""
    return float(2.0 ** -np.frexp(largest)[1]) if largest > limit else 1.0


def _support(X: csr_array) -> tuple[np.ndarray, np.ndarray]:
    """Features that occur (u,), ascending, and for each stored value which of them is its own."""
    if X.shape[1] > _DIRECT:
        support, place = np.unique(X.indices, return_inverse=True)
        return support, place.reshape(-1)
    occurs = np.zeros(X.shape[1], dtype=bool)
    occurs[X.indices] = True
    support = np.flatnonzero(occurs).astype(X.indices.dtype)
    table = np.empty(X.shape[1], dtype=np.int64)
    table[support] = np.arange(len(support))
    return support, table[X.indices]


def _row_sums(terms: np.ndarray, indptr: np.ndarray) -> np.ndarray:
    """Sums (n,) of the terms of each row, in their order."""
    rows = np.repeat(np.arange(len(indptr) - 1), np.diff(indptr))
    return np.bincount(rows, terms, minlength=len(indptr) - 1)


def _farthest(indptr: np.ndarray, apart: np.ndarray, centre: np.ndarray, place: np.ndarray) -> float:
    """An upper bound on the largest sum of squares of a row's difference from the centre.

    A row's own features are subtracted one by one. What the centre has elsewhere is the difference of two sums of at
    most u squares, each with a relative error of u units: that much is added.
    """
    squares = centre * centre
    whole = float(squares.sum())
    elsewhere = np.maximum(whole - _row_sums(squares[place], indptr), 0.0)
    elsewhere += 2 * (len(centre) + 8) * _UNIT * whole
    elsewhere[np.diff(indptr) == len(centre)] = 0.0  # the row has all features that occur
    return float((_row_sums(apart * apart, indptr) + elsewhere).max())


def on_support(values: np.ndarray, support: np.ndarray, features: int) -> csr_array:
    """One row (1, d) of these values on the support; zeros among them stay."""
    indices = support.astype(np.int32)
    return csr_rows(values, indices, np.array([0, len(support)], dtype=np.int32), features)
