"""The best margin with k outliers of rows in memory, from start to proof."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from coremargin.maths.margin import Array, safe_projections
from coremargin.maths.outliers.certificates import SearchRows
from coremargin.maths.outliers.heuristic import Found, good_hyperplane, soft_directions
from coremargin.maths.outliers.rounds import advance, believed, verified
from coremargin.maths.outliers.search import Search
from coremargin.maths.outliers.tasks import one_by_one
from coremargin.maths.outliers.trimmed import trimmed_margin


def solve_in_memory(
    x: NDArray[np.floating],
    signs: NDArray[np.integer],
    k: int,
    *,
    intercept: bool = True,
    epsilon: float = 0.0,
    most_nodes: int | None = None,
) -> Search:
    """Best margin of rows x (n, d) with signs (n,) in {-1, +1}, up to k of which may be left out; with its proof.

    Every class has more than k rows (with an intercept the margin has no bound otherwise). epsilon: share of the best
    that may be missed, 0 for as much as float64 can tell. most_nodes: stop after about so many, with what is proven.
    """
    exact = np.asarray(x, np.float64)
    search_rows = SearchRows(exact, signs.astype(np.int8), exact.mean(axis=0), intercept=intercept)
    start = good_hyperplane(search_rows, k, soft_directions(search_rows))
    radius = float(np.sqrt(np.einsum("ij,ij->i", search_rows.z, search_rows.z).max()))
    search = Search(k, epsilon, radius, prove(search_rows, start.w, k), np.inf)
    while search.status == "open" and (most_nodes is None or search.nodes < most_nodes):
        if search.wants_scan:
            found = max(
                (prove(search_rows, c.verdict.point, k) for c in search.candidates), key=lambda found: found.margin
            )
            better = found.margin > search.best.margin
            search = verified(search, found) if better else believed(search, search_rows)
        else:
            search = advance(search, search_rows, one_by_one)
    return search


def prove(search_rows: SearchRows, w: Array, k: int) -> Found:
    """The direction w (d,) with its best offset and the margin that it provably has with k outliers."""
    length = float(np.linalg.norm(w))
    w = w / length if length > 0 else w
    values = safe_projections(search_rows.x, search_rows.signs, w[:, None])[:, 0]
    margin, b = trimmed_margin(search_rows.lowest(values, k), w, k, search_rows.intercept)
    return Found(w, b, margin)
