"""Means, variances and ranges of all rows of a source, from the statistics of its chunks: no rows are read."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np

from coremargin.maths.rows import is_sparse

if TYPE_CHECKING:
    from collections.abc import Iterator

    from coremargin.data.source import Source
    from coremargin.data.store import Store


_SLICE = 256  # chunks whose statistics are held at a time
_SPARSE_SLICE = 4  # of sparse rows: each may mention a million features


@dataclass(frozen=True)
class Moments:
    """Of each feature over all rows, labelled or not: (d,) float64.

    ``variance`` divides by the number of rows, as scikit-learn's scalers do; it is 0 exactly where the feature never
    varies, and infinite where squares overflow.
    """

    low: np.ndarray
    high: np.ndarray
    mean: np.ndarray
    variance: np.ndarray

    @property
    def constant(self) -> np.ndarray:
        """Features (d,) bool that never vary; one that no row has a value of is 0 throughout."""
        return np.asarray(self.low == self.high)


def moments(source: Source) -> Moments:
    """Chunks are combined pair by pair (Chan, Golub, LeVeque 1979): large means cost small spreads no digits.

    Means are kept as distances from the first chunk's, which are small where spreads are.
    """
    if source.sparse:
        return _sparse_moments(source)
    d = source.features
    origin = source.centres(0, 1)[0]
    low, high = np.full(d, np.inf), np.full(d, -np.inf)
    mean, spread, rows = np.zeros(d), np.zeros(d), 0
    with np.errstate(over="ignore", invalid="ignore"):
        for start in range(0, source.chunks, _SLICE):
            part = source.statistics(start, min(source.chunks, start + _SLICE))
            low, high = np.minimum(low, part.low.min(axis=0)), np.maximum(high, part.high.max(axis=0))
            for count, centre, own in zip(part.rows.tolist(), part.centre, part.spread, strict=True):
                share = count / (rows + count)
                move = (centre - origin) - mean
                mean = mean + move * share
                spread = spread + own + move * move * (share * rows)
                rows += count
        constant = low == high
        variance = np.where(constant, 0.0, spread / max(rows, 1))
    variance[np.isnan(variance)] = np.inf
    return Moments(low, high, np.where(constant, low, origin + mean), variance)


def _sparse_moments(source: Source) -> Moments:
    """The same for sparse chunks, whose vectors are zero but for the features that occur: first means, then variances.

    The spread of all rows is that of each chunk about its centre and that of the centres about the mean: sums of terms
    that are not negative, so that nothing cancels.
    """
    d = source.features
    low, high, total = np.full(d, np.inf), np.full(d, -np.inf), np.zeros(d)
    for part in _slices(source):
        low, high = np.minimum(low, _column(part.low.min(axis=0))), np.maximum(high, _column(part.high.max(axis=0)))
        total += _column(part.total.sum(axis=0))
    mean = total / source.rows
    spread, rest = np.zeros(d), np.full(d, source.rows, dtype=np.float64)
    with np.errstate(over="ignore", invalid="ignore"):
        for part in _slices(source):
            centre, counts = part.centre, np.repeat(part.rows, np.diff(part.centre.indptr)).astype(np.float64)
            move = centre.data - mean[centre.indices]
            spread += np.bincount(centre.indices, counts * move * move + part.spread.data, minlength=d)
            rest -= np.bincount(centre.indices, counts, minlength=d)
        constant = low == high
        variance = np.where(constant, 0.0, (spread + rest * mean * mean) / source.rows)
    variance[np.isnan(variance)] = np.inf
    return Moments(low, high, np.where(constant, low, mean), variance)


def _slices(source: Source) -> Iterator[Any]:
    for start in range(0, source.chunks, _SPARSE_SLICE):
        yield source.statistics(start, min(source.chunks, start + _SPARSE_SLICE))


def _column(values: Any) -> np.ndarray:
    """A vector (d,), dense, of what SciPy gives for a sum or an extreme over rows."""
    return np.asarray(values.toarray() if is_sparse(values) else values).reshape(-1)


@dataclass(frozen=True)
class Overview:
    """Values over all rows: features where nothing else is said."""

    low: float  #: smallest value
    high: float  #: largest value
    constant: int  #: features that never vary
    deviation_low: float  #: smallest standard deviation of a feature that varies, 0 when none does
    deviation_high: float  #: largest standard deviation of a feature
    largest_norm: float  #: of a row, rounded up


def overview(store: Store) -> Overview:
    """Range, spread and norms of the rows of a store."""
    found = moments(store)
    varying = np.sqrt(found.variance[~found.constant])
    return Overview(
        low=float(found.low.min()),
        high=float(found.high.max()),
        constant=int(np.count_nonzero(found.constant)),
        deviation_low=float(varying.min()) if varying.size else 0.0,
        deviation_high=float(varying.max()) if varying.size else 0.0,
        largest_norm=float(store.scalars().max_norm.max()),
    )
