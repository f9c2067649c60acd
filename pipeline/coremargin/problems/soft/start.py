"""Which rows of a sample a soft margin starts from, and which margins its histogram shows."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

Array = NDArray[np.float64]

#: Bins of the histogram.
BINS = 200


def histogram_range(margins: Array) -> tuple[float, float]:
    """A range of BINS bins around nearly all margins with an edge at 0 and, unless bins are wider, at 1.

    So rows on the wrong side can be counted from it; what lies beyond the range is in the outermost bins.
    """
    least, most = np.quantile(margins, [0.002, 0.998]) if len(margins) else (0.0, 1.0)
    least, most = min(float(least), 0.0), max(float(most), 1.0)
    span = 1.2 * (most - least)
    width = 1.0 / max(1, int(BINS / span)) if span <= BINS else span / BINS
    low = width * np.floor((least - 0.1 * (most - least)) / width)
    return float(low), float(low + BINS * width)


def thinned(signs: NDArray[np.int8], most: int) -> NDArray[np.intp]:
    """At most ``most`` positions, evenly spread within each class; a rare class keeps up to half of them."""
    positive, negative = np.flatnonzero(signs > 0), np.flatnonzero(signs < 0)
    rare, common = (positive, negative) if len(positive) < len(negative) else (negative, positive)
    kept = rare[evenly(len(rare), max(1, most // 2))]
    return np.sort(np.concatenate([kept, common[evenly(len(common), max(1, most - len(kept)))]]))


def evenly(rows: int, most: int) -> NDArray[np.intp]:
    """At most ``most`` of the positions below ``rows``, evenly spread."""
    return np.unique(np.linspace(0, rows - 1, min(rows, most)).astype(np.intp))
