"""Which of the rows that break a hypothesis join the pool, where not all may."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from coremargin.problems.common.driver_rows import thin_by_class

Array = NDArray[np.float64]

#: The golden ratio's part behind the point, in 64 bits: multiples of it are spread evenly (Knuth, 6.4).
_GOLDEN = np.uint64(0x9E3779B97F4A7C15)


def chosen(scores: Array, ids: NDArray[np.int64], places: NDArray[np.int32], most: int) -> NDArray[np.intp]:
    """Positions (m,), increasing, of at most ``most`` rows with these scores (n,), ids and classes.

    Half of them are the worst, half are spread over the others, by their ids and not by chance: the worst alone would
    be a pool of rows with wrong labels. Where all rows are as bad, as before anything is known, each class has
    its part.
    """
    if len(scores) <= most:
        return np.arange(len(scores))
    if scores.min() == scores.max():
        return thin_by_class(places, most)
    order = np.lexsort((ids, -scores))
    worst, others = order[: most - most // 2], order[most - most // 2 :]
    spread = np.argsort(ids[others].astype(np.uint64) * _GOLDEN, kind="stable")
    return np.sort(np.concatenate([worst, others[spread[: most // 2]]]))
