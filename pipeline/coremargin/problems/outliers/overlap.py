"""Whether the classes overlap by more than k rows: reported, and proven, before any search.

Of each contradiction, a set of rows that nothing separates, at least one row must be excluded. So at least as many rows
must be excluded as there are disjoint contradictions. They are packed one for each row misclassified by the best known
direction. More than k of them are the root of the search, and its end.
"""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

import numpy as np

from coremargin.maths.outliers.explore import Leaves
from coremargin.maths.outliers.heuristic import fewest_misclassified, measure, soft_directions
from coremargin.maths.outliers.packing import PackingLimits, pack_contradictions
from coremargin.maths.outliers.ragged import Ragged
from coremargin.maths.outliers.trimmed import lowest_rows
from coremargin.problems.outliers.first_read import dense_rows

if TYPE_CHECKING:
    from collections.abc import Callable

    from coremargin.maths.outliers.certificates import Certificates, SearchRows
    from coremargin.maths.outliers.search import Search
    from coremargin.maths.outliers.tasks import TaskRunner
    from coremargin.problems.outliers.state import OutlierState

#: Contradictions to look for: TIMES (k + 1), at least LEAST, as long as the rows of their proof take at most BYTES. For
#: each of them, TRIED misclassified rows are tried.
TIMES, LEAST, BYTES, TRIED = 2, 100, 64 << 20, 5
#: Rows are dealt to parts of at least EACH rows to try, and of at least ROOM times the rows of a contradiction.
EACH, ROOM = 50, 20
#: Multiplications that this may take, about ten seconds; typical steps of a solve.
EFFORT, STEPS = 20_000_000_000, 50


def find_overlap(state: OutlierState, rows_of: Callable[[OutlierState], SearchRows], run: TaskRunner) -> OutlierState:
    """Look for contradictions when no incumbent separates anything.

    The working set comes first; then all cached rows, which join the working set only when they prove an overlap.
    """
    cached, features = state.cached, state.working_set.x.shape[1]
    if state.main.best.margin > 0 or not affordable_solves(len(state.working_set), features):
        return state
    state = pack_working_set(state, rows_of(state), run)
    wider_rows = len(state.working_set) + len(cached)
    if not 0 < state.least <= state.main.k or not affordable_solves(wider_rows, features):
        return state
    wider = replace(state, working_set=state.working_set.add(dense_rows(cached, np.arange(len(cached)))))
    wider = pack_working_set(wider, rows_of(wider), run)
    return wider if wider.least > state.main.k else state


def pack_working_set(state: OutlierState, search_rows: SearchRows, run: TaskRunner) -> OutlierState:
    """Pack contradictions among the rows of the working set, when more than k of them are possible."""
    k, (rows, features) = state.main.k, search_rows.x.shape
    directions = [*(search.best.w for search in state.searches if search.best.w.any()), *soft_directions(search_rows)]
    best = min(directions, key=lambda w: fewest_misclassified([w], search_rows))
    wrong = fewest_misclassified([best], search_rows)
    most = max(k + 1, min(max(TIMES * (k + 1), LEAST), BYTES // (8 * features * (features + 2))))
    tried = min(wrong, TRIED * most)
    parts = max(1, min(tried // EACH, rows // (ROOM * (features + 2))))
    tried = min(tried, parts * affordable_solves(rows, features))
    if tried <= k:
        return state
    hyperplane = measure(search_rows, best, wrong)
    margins = search_rows.signs * (search_rows.x @ hyperplane.w + hyperplane.b)
    limits = PackingLimits(parts, enough=k + 1, most=most)
    suspects = lowest_rows(margins, tried)
    found = pack_contradictions(search_rows, margins, suspects, limits, state.main.target, run)
    searches = tuple(with_contradictions(search, found) for search in state.searches)
    return replace(state, least=len(found), wrong=wrong, searches=searches)


def affordable_solves(rows: int, features: int) -> int:
    """Solves of this many rows that EFFORT allows."""
    return EFFORT // (STEPS * rows * features)


def with_contradictions(search: Search, found: Certificates) -> Search:
    """Give a search these certificates; more than k of them prove its bound."""
    search = replace(search, certificates=found)
    if len(found) <= search.k:
        return search
    proof = Leaves(Ragged.from_lists([()]), Ragged.from_lists([range(len(found))]))
    return replace(search, upper=float(found.values.max()), proof=proof, nodes=search.nodes + 1)
