"""Trying a user-defined kernel on a few rows before a run: whether it is a kernel, and how fast it is."""

from __future__ import annotations

import time
from typing import TYPE_CHECKING

import numpy as np
from numpy.typing import NDArray

from coremargin.models.user_kernel import faults_named
from coremargin.problems.common.driver_rows import read_labelled_rows

if TYPE_CHECKING:
    from coremargin.data.source import Source
    from coremargin.maths.kernel.callables import CallableKernel
    from coremargin.maths.kernel.functions import Points
    from coremargin.problems.common.driver_rows import ClassRows

#: Rows of the first trial, and the most rows and seconds of the second, whose size follows from the first.
FEW, MANY, SECONDS = 8, 256, 0.5


def measure_kernel(kernel: CallableKernel, source: Source, class_of: NDArray[np.int32], chunk: int) -> float:
    """Values per second on one core, measured on rows of a chunk, which are also checked.

    Raises UsageError if the function is no kernel.
    """
    rows = read_labelled_rows(source, chunk, class_of)
    some = _spread(rows, FEW)
    with faults_named(kernel, source.name, some.ids, chunk):
        rate = _rate(kernel, kernel.points(some.rows))
        kernel.check_values(kernel.points(some.rows))
    some = _spread(rows, int(np.clip(np.sqrt(SECONDS * rate / 8), FEW, MANY)))
    with faults_named(kernel, source.name, some.ids, chunk):
        points = kernel.points(some.rows)
        kernel.check_values(points)
        return _rate(kernel, points)


def _spread(rows: ClassRows, most: int) -> ClassRows:
    return rows.take(np.unique(np.linspace(0, len(rows) - 1, min(most, len(rows))).astype(np.intp)))


def _rate(kernel: CallableKernel, points: Points) -> float:
    began = time.perf_counter()
    kernel.block(points, points)
    return len(points) ** 2 / max(1e-9, time.perf_counter() - began)
