"""Whether classes overlap by more than the rows that may be left out: told, and proven, before any search.

Rows that nothing separates, a contradiction, lose one of them at least. So as many rows have to go as there are
contradictions without a common row. They are packed one for each row on the wrong side of the best direction known;
more of them than rows that may go are the root of the search, and its end.
"""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

import numpy as np

from coremargin.maths.outliers.explore import Leaves
from coremargin.maths.outliers.heuristic import fewest_of, measure, soft_directions
from coremargin.maths.outliers.packing import Wanted, contradictions
from coremargin.maths.outliers.ragged import Ragged
from coremargin.maths.outliers.trimmed import outliers_of
from coremargin.problems.outliers.start import pooled

if TYPE_CHECKING:
    from collections.abc import Callable

    from coremargin.maths.outliers.certificates import Certificates, SearchRows
    from coremargin.maths.outliers.search import Search
    from coremargin.maths.outliers.tasks import Map
    from coremargin.problems.outliers.state import OutlierState

#: Contradictions that are looked for: so many times as many as rows may go, and at least so many, as long as the rows
#: of their proof take no more than these bytes. For each so many rows on the wrong side are tried.
TIMES, LEAST, BYTES, TRIED = 2, 100, 64 << 20, 5
#: Rows are dealt to parts of so many to try, and of so many times the rows of a contradiction at least.
EACH, ROOM = 50, 20
#: Products of numbers that this may take, some ten seconds; steps that a solve takes, about.
EFFORT, STEPS = 20_000_000_000, 50


def contradicted(state: OutlierState, rows_of: Callable[[OutlierState], SearchRows], run: Map) -> OutlierState:
    """With the contradictions that were found, where no incumbent separates anything.

    The pool is tried first; then all rows at home, which stay in it only where they are enough.
    """
    home, features = state.home, state.pool.x.shape[1]
    if state.main.best.margin > 0 or not _affordable(len(state.pool), features):
        return state
    state = _packed(state, rows_of(state), run)
    if not 0 < state.least <= state.main.k or not _affordable(len(state.pool) + len(home), features):
        return state
    wider = replace(state, pool=state.pool.add(pooled(home, np.arange(len(home)))))
    wider = _packed(wider, rows_of(wider), run)
    return wider if wider.least > state.main.k else state


def _packed(state: OutlierState, search_rows: SearchRows, run: Map) -> OutlierState:
    """With the contradictions among the rows of the pool, where there may be more of them than rows may go."""
    k, (rows, features) = state.main.k, search_rows.x.shape
    directions = [*(search.best.w for search in state.searches if search.best.w.any()), *soft_directions(search_rows)]
    best = min(directions, key=lambda w: fewest_of([w], search_rows))
    wrong = fewest_of([best], search_rows)
    most = max(k + 1, min(max(TIMES * (k + 1), LEAST), BYTES // (8 * features * (features + 2))))
    tried = min(wrong, TRIED * most)
    parts = max(1, min(tried // EACH, rows // (ROOM * (features + 2))))
    tried = min(tried, parts * _affordable(rows, features))
    if tried <= k:
        return state
    hyperplane = measure(search_rows, best, wrong)
    margins = search_rows.signs * (search_rows.x @ hyperplane.w + hyperplane.b)
    wanted = Wanted(parts, enough=k + 1, most=most)
    found = contradictions(search_rows, margins, outliers_of(margins, tried), wanted, state.main.target, run)
    searches = tuple(_known(search, found) for search in state.searches)
    return replace(state, least=len(found), wrong=wrong, searches=searches)


def _affordable(rows: int, features: int) -> int:
    """Solves of so many rows that there is time for."""
    return EFFORT // (STEPS * rows * features)


def _known(search: Search, found: Certificates) -> Search:
    """The search that knows these certificates; they are its end where they are enough."""
    search = replace(search, certificates=found)
    if len(found) <= search.k:
        return search
    proof = Leaves(Ragged.of([()]), Ragged.of([range(len(found))]))
    return replace(search, upper=float(found.values.max()), proof=proof, nodes=search.nodes + 1)
