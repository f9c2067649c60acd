"""A store at a glance, from the statistics that ingest kept: no rows are read."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np

if TYPE_CHECKING:
    from coremargin.data.store import Store

_SLICE = 256  # chunks whose statistics are held at a time


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
    low, high = np.full(store.features, np.inf), np.full(store.features, -np.inf)
    total, squares = np.zeros(store.features), np.zeros(store.features)
    for start in range(0, store.chunks, _SLICE):
        part = store.statistics_of(start, min(store.chunks, start + _SLICE))
        low, high = np.minimum(low, part.low.min(axis=0)), np.maximum(high, part.high.max(axis=0))
        total, squares = total + part.total.sum(axis=0), squares + part.squares.sum(axis=0)
    with np.errstate(over="ignore", invalid="ignore"):
        mean = total / store.rows
        deviation = np.sqrt(np.maximum(squares / store.rows - mean * mean, 0.0))
    varying = deviation[high > low]
    return Overview(
        low=float(low.min()),
        high=float(high.max()),
        constant=int(np.count_nonzero(high == low)),
        deviation_low=float(varying.min()) if varying.size else 0.0,
        deviation_high=float(varying.max()) if varying.size else 0.0,
        largest_norm=float(store.scalars().max_norm.max()),
    )
