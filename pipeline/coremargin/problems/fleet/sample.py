"""The rows that a fleet reads before its first scan, for all members."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np
from numpy.typing import NDArray

from coremargin.maths.compact import compact, light
from coremargin.maths.rows import concatenate, take
from coremargin.maths.stopping import may_stop
from coremargin.problems.common.start import left_out

if TYPE_CHECKING:
    from coremargin.data.source import Source
    from coremargin.maths.rows import Rows

Array = NDArray[np.float64]


def read_rows(
    source: Source, chunks: list[int], *, stay: bool
) -> tuple[NDArray[np.int64], Rows, NDArray[np.int32], Array | None]:
    """Ids (m,), rows (m, d), codes (m,) and weights (m,), None: all 1, of rows of some chunks that count.

    stay: they are kept, in whatever form takes the least memory.
    """
    ids, rows, codes, weights = [], [], [], []
    for chunk in chunks:
        may_stop()
        x, code = source.read(chunk)
        weight = source.weights(chunk)
        code = left_out(code, weight)
        mine = np.flatnonzero(code >= 0)
        ids.append(mine + source.span(chunk)[0])
        rows.append(light(take(x, mine)) if stay else take(x, mine))
        codes.append(code[mine])
        if weight is not None:
            weights.append(weight[mine])
    every = np.concatenate(weights) if weights else None
    joined = compact(rows) if stay else concatenate(rows)
    return np.concatenate(ids), joined, np.concatenate(codes), every
