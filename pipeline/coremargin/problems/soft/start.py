"""Which rows of a sample a soft margin starts from, and which margins its histogram shows."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np
from numpy.typing import NDArray

from coremargin.maths.rows import as_float64, take
from coremargin.problems.common.pool import Pool

if TYPE_CHECKING:
    from coremargin.problems.common.start import Sample

Array = NDArray[np.float64]

#: Bins of the histogram.
BINS = 200


def histogram_range(margins: Array) -> tuple[float, float]:
    """A range of BINS bins around nearly all margins with an edge at 0 and, unless bins are wider, at 1.

    So rows on the wrong side can be counted from it; what lies beyond the range is in the outermost bins.
    """
    least, most = np.quantile(margins, [0.002, 0.998])
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


def weighted_pool(found: Sample, few: NDArray[np.intp] | None, class_c: Array) -> Pool:
    """Some rows of the sample in float64 with their C as weights; None: all of them, just as they are.

    class_c (2,): C of rows of weight 1 of each class.
    """
    each = np.where(found.signs > 0, class_c[0], class_c[1])
    if found.weights is not None:
        each = each * found.weights
    if few is None:
        return Pool(found.ids, found.rows, found.signs, each)
    return Pool(found.ids[few], as_float64(take(found.rows, few)), found.signs[few], each[few])
