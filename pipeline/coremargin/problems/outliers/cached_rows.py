"""What cached rows and lower bounds prove about a direction without reading.

Stages of the first read send the rows of each chunk that are low or may become low; block bounds lie below the values
of all other rows. So the lowest values of all rows are those of cached rows, up to the smallest bound; from there on
the bound stands in, as often as needed. A margin computed from these holds for all rows, and no unsent row lies below
it: all excluded rows are cached.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

import numpy as np
from numpy.typing import NDArray

from coremargin.maths.margin import NEGATIVE, POSITIVE
from coremargin.maths.outliers.heuristic import Hyperplane
from coremargin.maths.outliers.trimmed import best_removal, trimmed_margin
from coremargin.maths.rows import products
from coremargin.problems.hard.probe import binned
from coremargin.problems.outliers.probe import NO_ROW, OutlierProbe, OutlierSummary

if TYPE_CHECKING:
    from coremargin.maths.margin import Array
    from coremargin.problems.common.driver_rows import SignedRows

#: The part of what epsilon allows that a lower bound may cost a margin before its chunk is read again.
LOSS = 0.1


def measure_cached(
    rows: SignedRows, directions: Array, keep: int, longest: float, known: NDArray[np.int64] | None = None
) -> OutlierSummary:
    """The summary that a scan of these rows (ordered by id) would give about directions (m, d).

    longest: bounds the norms of the rows; known: ids of rows that need not be returned.
    """
    places = np.zeros(0, np.intp) if known is None else np.flatnonzero(np.isin(rows.ids, known))
    probe = OutlierProbe(
        directions=np.ascontiguousarray(directions.T),
        keep=keep,
        codes=(1, 0),
        known=places,
        offset=0.0,
        low=0.0,
        high=1.0,
        bins=1,
        chunk_rows=max(1, len(rows)),
    )
    found = probe.add_rows(probe.empty(), rows.rows, (rows.signs > 0).astype(np.int32), 0, longest)
    ids = np.append(rows.ids, NO_ROW)[np.minimum(found.ids, len(rows))]
    return replace(found, ids=ids, row_id=rows.ids[found.row_id])


def best_directions(
    rows: SignedRows, directions: Array, ks: Sequence[int], intercept: bool, longest: float
) -> list[Hyperplane]:
    """For each k the best of the unit directions (m, d) on these rows, with its offset and margin there.

    When a class has no more than k of the rows, all but one of them are excluded.
    """
    most = smaller_class_size(rows) - 1
    if most < 0:
        return [Hyperplane(directions[0], 0.0, 0.0) for _ in ks]
    summary = measure_cached(rows, directions, max(ks) + 1, longest)
    best = []
    for k in ks:
        measured = [best_removal(summary.lowest(j), min(k, most), intercept) for j in range(len(directions))]
        j = int(np.argmax([margin for margin, _ in measured]))
        best.append(Hyperplane(directions[j], measured[j][1], measured[j][0]))
    return best


def margin_histogram(rows: SignedRows, at: Hyperplane, low: float, high: float, bins: int) -> NDArray[np.int64]:
    """A histogram (2, bins) of the margins of each class."""
    margins = rows.signs * (products(rows.rows, at.w[:, None])[0] + at.b)
    return np.array([binned(margins[rows.signs == sign], low, high, bins) for sign in (1, -1)])


def smaller_class_size(rows: SignedRows) -> int:
    """The number of rows of the smaller class."""
    positive = int(np.count_nonzero(rows.signs > 0))
    return min(positive, len(rows) - positive)


def apply_lower_bounds(summary: OutlierSummary, bounds: Array) -> OutlierSummary:
    """Cut the values of a summary at lower bounds (m, 2) of the rows that it is not about."""
    bound = bounds.T[:, :, None]
    above = summary.values > bound
    values, ids = np.where(above, bound, summary.values), np.where(above, NO_ROW, summary.ids)
    return replace(summary, values=values, ids=ids)


@dataclass(frozen=True)
class Promise:
    """What a search expects: k, the margin proven so far, and the margins (m,) of directions on the working set."""

    k: int
    proven: float
    expected: Array


def undecided_chunks(
    summary: OutlierSummary,
    bounds: Array,
    directions: Array,
    promises: Sequence[Promise],
    intercept: bool,
    epsilon: float,
) -> NDArray[np.bool_]:
    """Chunks (c,) whose lower bounds (m, 2, c) do not confirm what cached rows promise of directions (m, d).

    summary: of the cached rows. A direction that these hold below its expected or the proven margin needs no reading:
    cached rows show what is wrong with it.
    """
    undecided = np.zeros(bounds.shape[2], bool)
    lower = apply_lower_bounds(summary, bounds.min(axis=2))
    for search in promises:
        proven = [trimmed_margin(lower.lowest(j), w, search.k, intercept)[0] for j, w in enumerate(directions)]
        known = max(0.0, search.proven, *proven)
        for j, expected in enumerate(search.expected.tolist()):
            margin, offset = best_removal(summary.lowest(j), search.k, intercept)
            if not np.isfinite(margin):  # no more than k cached rows of a class
                undecided |= (bounds[j] < np.inf).any(axis=0)
                continue
            loss = LOSS * max(epsilon, 1e-9) * abs(margin)
            if margin > known + loss and margin >= expected - loss:
                low = bounds[j, POSITIVE] + offset < margin - loss
                undecided |= low | (bounds[j, NEGATIVE] - offset < margin - loss)
    return undecided
