"""An upper bound for any number of outliers, quickly: disjoint certificates only.

Excluding k rows spoils at most k disjoint certificates, so no choice of k rows allows more than the (k + 1)-th smallest
value of disjoint certificates: the root of the tree search, without the tree. Rows of the working set are dealt to
parts, each a task that packs certificates of its own, first one for each suspicious row: a certificate that used two of
them would waste one. The remaining rows are packed together. Thresholds rise from the target until there are enough
certificates; those found stay.
"""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING, NamedTuple

import numpy as np
from numpy.typing import NDArray

from coremargin.maths.outliers.certificates import Certificates, Rows, SearchRows
from coremargin.maths.outliers.explore import Leaves
from coremargin.maths.outliers.ragged import Ragged
from coremargin.maths.outliers.trimmed import lowest_rows

if TYPE_CHECKING:
    from coremargin.maths.outliers.search import Search
    from coremargin.maths.outliers.tasks import TaskRunner

#: Rows of a certificate and their weights.
Packed = tuple[Rows, NDArray[np.float64]]

#: Thresholds to try, as shares of the way from the target to the radius.
SHARES = (0.0, 1e-3, 3e-3, 0.01, 0.03, 0.1, 0.3, 1.0)
#: Outliers per part, so that time grows with their number, not its square. It is part of the answer.
EACH = 50


def bound_by_packing(search: Search, search_rows: SearchRows, run: TaskRunner) -> Search:
    """End a search with an upper bound from disjoint certificates, however far from the lower bound.

    Low thresholds take many rows: when rows run out, packing begins again at the next threshold.
    """
    margins = search_rows.signs * (search_rows.x @ search.best.w + search.best.b)
    suspects = lowest_rows(margins, search.k)
    parts = _deal_rows(search_rows, margins, suspects, max(1, search.k // EACH))
    span = max(0.0, search.radius - search.target)
    thresholds = [search.target + share * span for share in SHARES]
    packed: list[Packed] = []
    for first in range(len(thresholds)):
        packed = _pack_rising(search.k, search_rows, parts, suspects, thresholds[first:], run)
        if len(packed) > search.k:
            break
    search = replace(search, nodes=search.nodes + 1, status="bounded")
    found = _certify(search_rows, packed, np.inf)
    best = found.take(np.argsort(found.values, kind="stable")[: search.k + 1])
    if len(best) <= search.k or best.values[-1] >= search.upper:
        return search
    proof = Leaves(Ragged.from_lists([()]), Ragged.from_lists([range(len(best))]))
    return replace(search, certificates=best, upper=float(best.values[-1]), proof=proof)


class PackingLimits(NamedTuple):
    """The number of parts that are packed separately, of contradictions that are enough, and of most to pack."""

    parts: int
    enough: int
    most: int


def pack_contradictions(
    search_rows: SearchRows,
    margins: NDArray[np.float64],
    suspects: Rows,
    limits: PackingLimits,
    threshold: float,
    run: TaskRunner,
) -> Certificates:
    """Disjoint certificates of one threshold, first one for each suspect.

    margins (n,): those that the suspects were chosen by. When the parts do not find enough, the remaining rows are
    packed together until there are.
    """
    parts, enough, most = limits
    dealt, each = _deal_rows(search_rows, margins, suspects, parts), -(-most // parts)
    tasks = [(_select(search_rows, rows), np.flatnonzero(np.isin(rows, suspects)), threshold, each) for rows in dealt]
    answers = zip(dealt, run(pack, tasks), strict=True)
    packed = [(rows[mine], share) for rows, found in answers for mine, share in found]
    if parts > 1 and 0 < len(packed) < enough:
        used = [mine for mine, _ in packed]
        remaining = np.setdiff1d(np.arange(len(search_rows)), np.concatenate(used))
        task = _select(search_rows, remaining), np.zeros(0, np.intp), threshold, enough - len(packed)
        packed += [(remaining[mine], share) for found in run(pack, [task]) for mine, share in found]
    return _certify(search_rows, packed, threshold)


def _certify(search_rows: SearchRows, packed: list[Packed], threshold: float) -> Certificates:
    rows = Ragged.from_lists(mine for mine, _ in packed)
    weights = Ragged.from_lists((share for _, share in packed), np.float64)
    return search_rows.certificates(rows, weights, threshold)


def _pack_rising(
    k: int, search_rows: SearchRows, parts: list[Rows], suspects: Rows, thresholds: list[float], run: TaskRunner
) -> list[Packed]:
    """Disjoint certificates of rising thresholds, until there are more than k."""
    used, none = np.zeros(len(search_rows), bool), np.zeros(0, np.intp)
    packed: list[Packed] = []
    for threshold in thresholds:
        for dealt, alone in ((parts, suspects), ([np.arange(len(search_rows))], none)):
            free = [rows[~used[rows]] for rows in dealt]
            tasks = [(_select(search_rows, rows), np.flatnonzero(np.isin(rows, alone)), threshold) for rows in free]
            for rows, found in zip(free, run(pack, tasks), strict=True):
                packed += [(rows[mine], weights) for mine, weights in found]
            for mine, _ in packed:
                used[mine] = True
            if len(packed) > k:
                return packed
    return packed


def pack(search_rows: SearchRows, suspects: Rows, threshold: float, most: int | None = None) -> list[Packed]:
    """At most ``most`` disjoint certificates of a threshold. One task. suspects: positions, lowest row first."""
    packed: list[Packed] = []
    free = np.ones(len(search_rows), bool)
    free[suspects] = False
    for row in suspects:
        if len(packed) == most:
            return packed
        free[row] = True
        found = _find_certificate(search_rows, free, threshold)
        if found is None:
            free[row] = False
        else:
            packed.append(found)
            free[found[0]] = False
    free[suspects] = True
    for rows, _ in packed:
        free[rows] = False
    while len(packed) != most and (found := _find_certificate(search_rows, free, threshold)) is not None:
        packed.append(found)
        free[found[0]] = False
    return packed


def _find_certificate(search_rows: SearchRows, free: NDArray[np.bool_], threshold: float) -> Packed | None:
    solution = search_rows.decide(free, threshold)
    return None if solution is None or not solution.too_small else (solution.rows, solution.weights)


def _deal_rows(search_rows: SearchRows, margins: NDArray[np.float64], suspects: Rows, parts: int) -> list[Rows]:
    """The rows dealt evenly to parts: suspects, and the others of each class in order of their margins."""
    ordinary = np.setdiff1d(np.arange(len(search_rows)), suspects)
    ordinary = ordinary[np.lexsort((margins[ordinary], search_rows.signs[ordinary]))]
    order = np.concatenate([suspects, ordinary])
    return [order[part::parts] for part in range(parts)]


def _select(search_rows: SearchRows, rows: Rows) -> SearchRows:
    return search_rows.with_rows(search_rows.x[rows], search_rows.signs[rows])
