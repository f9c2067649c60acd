"""What measured directions say about incumbents, and which of their rows are worth having."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from coremargin.maths.outliers.heuristic import Found
from coremargin.maths.outliers.trimmed import trimmed_margin
from coremargin.problems.outliers.state import LeftOut, OutlierPool

if TYPE_CHECKING:
    from coremargin.maths.margin import Array
    from coremargin.problems.outliers.state import OutlierState
    from coremargin.problems.outliers.summary import OutlierSummary

#: Directions that are measured first whose rows are kept: of a small store soft ones are, some of them far off.
BEST = 4


def measured_best(directions: Array, summary: OutlierSummary, k: int, intercept: bool) -> tuple[Found, int]:
    """The best of the directions (m, d) of a scan for k outliers, proven on all rows, and which it is."""
    best, which = Found.nothing(directions.shape[1]), 0
    for j, w in enumerate(directions):
        margin, b = trimmed_margin(summary.lowest(j), w, k, intercept)
        if margin > best.margin:
            best, which = Found(w, b, margin), j
    return best, which


def left_out_of(summary: OutlierSummary, w: Array, j: int, found: Found, k: int) -> LeftOut:
    """The rows below the margin of direction j of a scan, at most k, lowest first."""
    length = float(np.linalg.norm(w))
    signs = np.repeat(np.array([1, -1], np.int8), summary.ids.shape[2])
    values, ids = summary.values[:, j].ravel(), summary.ids[:, j].ravel()
    margins = values / length + signs * found.b
    order = np.lexsort((ids, margins))[:k]
    order = order[margins[order] < found.margin]
    return LeftOut(ids[order], margins[order], signs[order])


def worth_having(state: OutlierState, summary: OutlierSummary, k: int, intercept: bool) -> OutlierPool:
    """The rows that the pool takes when directions were measured.

    Of the first ones, those of the best directions; while incumbents settle, all; then, for each candidate and class,
    the lowest few: they show what is wrong with it, and more would only slow the search down.
    """
    kept = np.ones(len(summary.row_id), bool)
    if state.phase != "settle":
        few = 2 * (len(state.centre) + 2)
        fresh = np.isin(summary.ids, summary.row_id)
        lowest = fresh & (np.cumsum(fresh, axis=2) <= few)
        kept = np.isin(summary.row_id, summary.ids[lowest])
    elif not len(state.pool) and len(state.next_directions) > BEST:
        margins = [trimmed_margin(summary.lowest(j), w, k, intercept)[0] for j, w in enumerate(state.next_directions)]
        best = np.argsort(-np.array(margins), kind="stable")[:BEST]
        kept = np.isin(summary.row_id, summary.ids[:, best])
    return OutlierPool(summary.row_id[kept], summary.row_x[kept], summary.row_sign[kept])
