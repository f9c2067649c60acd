"""A store at a glance, from the statistics that ingest kept: no rows are read."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np

from coremargin.data.moments import moments

if TYPE_CHECKING:
    from coremargin.data.store import Store


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
