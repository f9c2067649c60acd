"""The summaries that workers send: sums over the rows far from the margin, and the rows near it themselves.

A scan at one hypothesis for all rows is answered by a ``NearMarginSummary``, a stage of the first read by a
``StageSummary``. Throughout, xi = max(0, 1 - y (w.x + b)) is the slack of a row and c its C (class weight times sample
weight times C).
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, fields, replace
from typing import Any, Self

import numpy as np
from numpy.typing import NDArray

from coremargin.maths import rows as row_ops
from coremargin.problems.common.state_arrays import state_from_arrays, state_to_arrays

Array = NDArray[np.float64]

#: Bins of the histogram of margins.
BINS = 200


def histogram_range(margins: Array) -> tuple[float, float]:
    """A range of BINS bins that covers nearly all margins, with an edge at 0 and, unless bins are wider, at 1.

    Rows on the wrong side can be counted from such a histogram. Margins outside the range go to the outermost bins.
    """
    least, most = np.quantile(margins, [0.002, 0.998]) if len(margins) else (0.0, 1.0)
    least, most = min(float(least), 0.0), max(float(most), 1.0)
    span = 1.2 * (most - least)
    width = 1.0 / max(1, int(BINS / span)) if span <= BINS else span / BINS
    low = width * np.floor((least - 0.1 * (most - least)) / width)
    return float(low), float(low + BINS * width)


@dataclass(frozen=True)
class RowsAndSums:
    """row_id (m,), row_x (m, d), row_sign (m,) int8, row_c (m,): the rows near the margin.

    The fields that subclasses add are sums, except those whose names end in ``least``, which are minima.
    """

    row_id: NDArray[np.int64]
    row_x: row_ops.Rows
    row_sign: NDArray[np.int8]
    row_c: Array

    def merge(self, later: Self) -> Self:
        """The summary of these blocks and of later ones."""
        merged: dict[str, Any] = {"row_x": row_ops.concatenate([self.row_x, later.row_x])}
        for field in fields(self):
            name = field.name
            mine, other = getattr(self, name), getattr(later, name)
            if name in ("row_id", "row_sign", "row_c"):
                merged[name] = np.concatenate([mine, other])
            elif name.endswith("least"):
                merged[name] = np.minimum(mine, other)
            elif name != "row_x":
                merged[name] = mine + other
        return type(self)(**merged)

    def with_rows(self, rows: row_ops.Rows) -> Self:
        """The same summary with these rows (m, d) as the rows near the margin."""
        return replace(self, row_x=rows)

    def to_arrays(self) -> dict[str, NDArray[Any]]:
        """Plain arrays for checkpoints."""
        return state_to_arrays(self)

    @classmethod
    def from_arrays(cls, arrays: Mapping[str, NDArray[Any]]) -> Self:
        """Inverse of ``to_arrays``."""
        return cls(**state_from_arrays(cls, arrays, {"row_x": row_ops.from_arrays}))


@dataclass(frozen=True)
class NearMarginSummary(RowsAndSums):
    """Sums over some blocks at a hypothesis; index 0 is the positive class, 1 the negative class.

    losses (k,): sum of c loss at k points of the segment from the best hypothesis (0) to the newest (1), newest first.
    slack, squares (2,), dual_sum (2, d): sums of c xi, c xi^2 and c xi x at the newest hypothesis.
    Far rows with slack: far_c (1,) sum c, far_value (1,) sum c xi^2, far_linear (d + 1,) sum c y (x, 1),
    far_slope (d + 1,) sum c xi y (x, 1), far_curve (d + 1, d + 1) sum c (x, 1)(x, 1)^T (0 x 0 unless requested),
    far_spread (1,) sum c ||x - z||^2, where z is the point around which the products of far_curve were formed.
    histogram (2, bins) of margins; total_c (2,): sums of c of each class; below (1,): rows with a margin below 1,
    below_c (1,): their sum of c. far_least (1,): the least |margin - 1| of the far rows, on both sides.
    """

    losses: Array
    slack: Array
    squares: Array
    dual_sum: Array
    far_c: Array
    far_value: Array
    far_linear: Array
    far_slope: Array
    far_curve: Array
    far_spread: Array
    histogram: NDArray[np.int64]
    total_c: Array
    below: NDArray[np.int64]
    below_c: Array
    far_least: Array

    @classmethod
    def empty(cls, points: int, bins: int, rows: row_ops.Rows, *, curve: bool) -> NearMarginSummary:
        """The identity of ``merge``; rows (0, d): an empty array of the kind of rows to come."""
        features = rows.shape[1]
        p = features + 1
        return cls(
            row_id=np.zeros(0, np.int64),
            row_x=rows,
            row_sign=np.zeros(0, np.int8),
            row_c=np.zeros(0),
            losses=np.zeros(points),
            slack=np.zeros(2),
            squares=np.zeros(2),
            dual_sum=np.zeros((2, features)),
            far_c=np.zeros(1),
            far_value=np.zeros(1),
            far_linear=np.zeros(p),
            far_slope=np.zeros(p),
            far_curve=np.zeros((p, p) if curve else (0, 0)),
            far_spread=np.zeros(1),
            histogram=np.zeros((2, bins), np.int64),
            total_c=np.zeros(2),
            below=np.zeros(1, np.int64),
            below_c=np.zeros(1),
            far_least=np.full(1, np.inf),
        )


@dataclass(frozen=True)
class StageSummary(RowsAndSums):
    """Sums over some blocks of a stage, at the hypothesis of that stage; a is the dual of a row (``Loss.dual``).

    Of far rows: value (1,) sum of losses, duals (2,) sum a, dual_sum (2, d + 1) sum a y (x, 1) of the rows with slack,
    of the positive (0) and of the negative class. rings (r, d + 1, d + 1): sum q (x, 1)(x, 1)^T over the rows of each
    ring (``StageProbe``), q being their weights there; ring_weight, ring_spread (r,): sum q and sum q ||x - z||^2, z
    being the point around which the products of the ring were formed. least (1,): the least |margin - 1|; below (1,):
    the number of rows with slack; histogram (2, bins) of the margins of both classes. total_c (2,): sums of c of all
    rows of each class.
    """

    value: Array
    duals: Array
    dual_sum: Array
    rings: Array
    ring_weight: Array
    ring_spread: Array
    least: Array
    below: NDArray[np.int64]
    histogram: NDArray[np.int64]
    total_c: Array

    @classmethod
    def empty(cls, rings: int, bins: int, rows: row_ops.Rows) -> StageSummary:
        """The identity of ``merge``; rows (0, d): an empty array of the kind of rows to come."""
        p = rows.shape[1] + 1
        return cls(
            row_id=np.zeros(0, np.int64),
            row_x=rows,
            row_sign=np.zeros(0, np.int8),
            row_c=np.zeros(0),
            value=np.zeros(1),
            duals=np.zeros(2),
            dual_sum=np.zeros((2, p)),
            rings=np.zeros((rings, p, p)),
            ring_weight=np.zeros(rings),
            ring_spread=np.zeros(rings),
            least=np.full(1, np.inf),
            below=np.zeros(1, np.int64),
            histogram=np.zeros((2, bins), np.int64),
            total_c=np.zeros(2),
        )
