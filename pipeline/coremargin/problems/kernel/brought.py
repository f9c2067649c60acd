"""A kernel that somebody brought as a function: tried before a run, with its rate, and looked at before a solve."""

from __future__ import annotations

import time
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from coremargin.maths.kernel.callables import CallableKernel, check_semidefinite
from coremargin.models.brought import faults_named
from coremargin.problems.common.driver_rows import read_labelled_rows

if TYPE_CHECKING:
    from coremargin.data.source import Source
    from coremargin.maths.kernel.functions import Points
    from coremargin.problems.common.driver_rows import ClassRows

Array = NDArray[np.float64]

#: Rows that are tried: the first few tell how many more there is time for.
FEW, MANY, SECONDS = 8, 256, 0.5
#: Values of the pool's rows that are looked at before it is solved.
LOOKED = 512


def tried(kernel: CallableKernel, source: Source, place: NDArray[np.int32], chunk: int) -> float:
    """How many values a second it gives, on one core; it is judged on some rows of a chunk by the way.

    Raises UsageError for what is no kernel.
    """
    rows = read_labelled_rows(source, chunk, place)
    some = _spread(rows, FEW)
    with faults_named(kernel, source.name, some.ids, chunk):
        rate = _rate(kernel, kernel.points(some.rows))
        kernel.judge(kernel.points(some.rows))
    some = _spread(rows, int(np.clip(np.sqrt(SECONDS * rate / 8), FEW, MANY)))
    with faults_named(kernel, source.name, some.ids, chunk):
        points = kernel.points(some.rows)
        kernel.judge(points)
        return _rate(kernel, points)


def _spread(rows: ClassRows, most: int) -> ClassRows:
    return rows.take(np.unique(np.linspace(0, len(rows) - 1, min(most, len(rows))).astype(np.intp)))


def _rate(kernel: CallableKernel, points: Points) -> float:
    began = time.perf_counter()
    kernel.block(points, points)
    return len(points) ** 2 / max(1e-9, time.perf_counter() - began)


def check_pool(kernel: CallableKernel, name: str, ids: NDArray[np.int64], points: Points, values: NDArray[Any]) -> None:
    """Raises UsageError for values (p, p) of a pool's rows, as they are held, that are of no kernel.

    Of many rows some are looked at, spread over all: a solve cannot go on with what has no best answer.
    """
    some = np.unique(np.linspace(0, len(ids) - 1, min(len(ids), LOOKED)).astype(np.intp))
    with faults_named(kernel, name, ids[some]):
        check_semidefinite(values[np.ix_(some, some)], points.lengths[some], kernel.eta)
