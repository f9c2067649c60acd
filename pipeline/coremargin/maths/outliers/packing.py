"""An upper bound for any number of outliers, quickly: certificates without a common row, and nothing else.

k rows left out spoil at most k of them, so that no set of k rows allows more than the (k + 1)-th smallest value of
certificates no two of which share a row: the root of the tree search, and no tree. Rows of the pool are dealt to
parts, each a task that packs certificates of its own, one for each suspicious row first: a certificate that used two of
these would waste one. What they leave is packed together. Thresholds rise from the target until there are enough
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
from coremargin.maths.outliers.trimmed import outliers_of

if TYPE_CHECKING:
    from coremargin.maths.outliers.search import Search
    from coremargin.maths.outliers.tasks import Map

#: A certificate in the making: rows and their weights.
Packed = tuple[Rows, NDArray[np.float64]]

#: Shares of the way from the target to the radius that thresholds are tried at.
SHARES = (0.0, 1e-3, 3e-3, 0.01, 0.03, 0.1, 0.3, 1.0)
#: Outliers that are worth a part: time grows with their number, not its square. It is part of the answer.
EACH = 50


def bounded(search: Search, search_rows: SearchRows, run: Map) -> Search:
    """With an upper bound by disjoint certificates, whatever its distance; the search has then come to its end.

    Low thresholds take many rows: where these run out, packing begins again at the next one.
    """
    margins = search_rows.signs * (search_rows.x @ search.best.w + search.best.b)
    suspects = outliers_of(margins, search.k)
    parts = _parts(search_rows, margins, suspects, max(1, search.k // EACH))
    further = max(0.0, search.radius - search.target)
    thresholds = [search.target + share * further for share in SHARES]
    packed: list[Packed] = []
    for first in range(len(thresholds)):
        packed = _packed(search.k, search_rows, parts, suspects, thresholds[first:], run)
        if len(packed) > search.k:
            break
    return _with_bound(search, search_rows, packed)


class Wanted(NamedTuple):
    """How contradictions are packed: in so many parts, each for itself; so many are enough, so many the most."""

    parts: int
    enough: int
    most: int


def contradictions(
    search_rows: SearchRows, margins: NDArray[np.float64], suspects: Rows, wanted: Wanted, threshold: float, run: Map
) -> Certificates:
    """Certificates of one threshold without a common row; one for each suspect is tried first.

    margins (n,): what says which rows are suspects. Where the parts have not found enough, what they leave is packed
    together until there are.
    """
    parts, enough, most = wanted
    dealt, each = _parts(search_rows, margins, suspects, parts), -(-most // parts)
    tasks = [(_part_of(search_rows, rows), np.flatnonzero(np.isin(rows, suspects)), threshold, each) for rows in dealt]
    answers = zip(dealt, run(pack, tasks), strict=True)
    packed = [(rows[mine], share) for rows, found in answers for mine, share in found]
    if parts > 1 and 0 < len(packed) < enough:
        used = [mine for mine, _ in packed]
        left = np.setdiff1d(np.arange(len(search_rows)), np.concatenate(used))
        task = _part_of(search_rows, left), np.zeros(0, np.intp), threshold, enough - len(packed)
        packed += [(left[mine], share) for found in run(pack, [task]) for mine, share in found]
    return _certified(search_rows, packed, threshold)


def _certified(search_rows: SearchRows, packed: list[Packed], threshold: float) -> Certificates:
    rows, weights = Ragged.of(mine for mine, _ in packed), Ragged.of((share for _, share in packed), np.float64)
    return search_rows.certificates(rows, weights, threshold)


def _packed(
    k: int, search_rows: SearchRows, parts: list[Rows], suspects: Rows, thresholds: list[float], run: Map
) -> list[Packed]:
    """Disjoint certificates of rising thresholds, until there are more than k."""
    used, none = np.zeros(len(search_rows), bool), np.zeros(0, np.intp)
    packed: list[Packed] = []
    for threshold in thresholds:
        for dealt, alone in ((parts, suspects), ([np.arange(len(search_rows))], none)):
            free = [rows[~used[rows]] for rows in dealt]
            tasks = [(_part_of(search_rows, rows), np.flatnonzero(np.isin(rows, alone)), threshold) for rows in free]
            for rows, found in zip(free, run(pack, tasks), strict=True):
                packed += [(rows[mine], weights) for mine, weights in found]
            for mine, _ in packed:
                used[mine] = True
            if len(packed) > k:
                return packed
    return packed


def pack(search_rows: SearchRows, suspects: Rows, threshold: float, most: int | None = None) -> list[Packed]:
    """Certificates of ``threshold`` without a common row, so many at most: one task.

    suspects: places of rows, lowest first.
    """
    packed: list[Packed] = []
    free = np.ones(len(search_rows), bool)
    free[suspects] = False
    for row in suspects:
        if len(packed) == most:
            return packed
        free[row] = True
        found = _certificate(search_rows, free, threshold)
        if found is None:
            free[row] = False
        else:
            packed.append(found)
            free[found[0]] = False
    free[suspects] = True
    for rows, _ in packed:
        free[rows] = False
    while len(packed) != most and (found := _certificate(search_rows, free, threshold)) is not None:
        packed.append(found)
        free[found[0]] = False
    return packed


def _certificate(search_rows: SearchRows, free: NDArray[np.bool_], threshold: float) -> Packed | None:
    verdict = search_rows.decide(free, threshold)
    return None if verdict is None or not verdict.too_small else (verdict.rows, verdict.weights)


def _parts(search_rows: SearchRows, margins: NDArray[np.float64], suspects: Rows, parts: int) -> list[Rows]:
    """The rows dealt out evenly: suspects, and the others of each class in order of their margins."""
    ordinary = np.setdiff1d(np.arange(len(search_rows)), suspects)
    ordinary = ordinary[np.lexsort((margins[ordinary], search_rows.signs[ordinary]))]
    order = np.concatenate([suspects, ordinary])
    return [order[part::parts] for part in range(parts)]


def _part_of(search_rows: SearchRows, rows: Rows) -> SearchRows:
    return search_rows.of(search_rows.x[rows], search_rows.signs[rows])


def _with_bound(search: Search, search_rows: SearchRows, packed: list[Packed]) -> Search:
    """The end of the search, with the bound of the k + 1 smallest certificates, if there are so many."""
    search = replace(search, nodes=search.nodes + 1, status="bounded")
    found = _certified(search_rows, packed, np.inf)
    best = found.take(np.argsort(found.values, kind="stable")[: search.k + 1])
    if len(best) <= search.k or best.values[-1] >= search.upper:
        return search
    proof = Leaves(Ragged.of([()]), Ragged.of([range(len(best))]))
    return replace(search, certificates=best, upper=float(best.values[-1]), proof=proof)
