"""The climb: concentration from many starts, each a task, for a better incumbent.

The heuristic climbs before it looks for an upper bound, a search once it turns out to be long. Starts are the
soft-margin directions of the pool's lowest rows and perturbed incumbents, from a seed. The best answer of each k is
measured by one scan. Answers come in the order of the tasks: the same for any number of workers.
"""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING, Any

import numpy as np

from coremargin.maths.outliers.certificates import SearchRows
from coremargin.maths.outliers.heuristic import Found, climb, soft_directions
from coremargin.maths.outliers.tasks import one_by_one
from coremargin.problems.outliers.state import OutlierPool, OutlierState, unit

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from coremargin.maths.margin import Array
    from coremargin.maths.outliers.search import Search
    from coremargin.maths.outliers.tasks import Map

#: Perturbed incumbents, and how far they are from it: a share of its length, expected.
PERTURBED, SHARES = 8, (0.1, 0.3)
#: Work of a search after which it is long: a better incumbent would save more than the climb takes.
LONG = 10_000
#: Numbers of rows whose heuristic is dealt to workers.
WORTH_SENDING = 100_000


def lowest(pool: OutlierPool, searches: tuple[Search, ...], rows: int) -> OutlierPool:
    """So many rows of each class that are lowest under each incumbent."""
    chosen = np.zeros(0, np.intp)
    for search in searches:
        margins = pool.signs * (pool.x @ search.best.w + search.best.b)
        for sign in (1, -1):
            mine = np.flatnonzero(pool.signs == sign)
            chosen = np.union1d(chosen, mine[np.argsort(margins[mine], kind="stable")][:rows])
    return pool.take(chosen)


def climbed(
    state: OutlierState, rows: int, intercept: bool, run: Map, is_news: Callable[[Found, Search], bool]
) -> Array:
    """Directions (m, d) worth measuring on all rows, one for each k at most; ``rows``: of each class."""
    searches = tuple(search for search in state.searches if search.status == "open")
    pool, next_directions = lowest(state.pool, searches, rows), []
    search_rows = SearchRows(pool.x, pool.signs, state.centre, intercept=intercept, compiled=True)
    soft = soft_directions(search_rows)
    for search in searches:
        starts = [*soft, *_perturbed(search.best.w)]
        best = climb(search_rows, search.k, starts, where_worth(run, search_rows))
        if is_news(best, search):
            next_directions.append(best.w)
    return unit(next_directions) if next_directions else np.zeros((0, pool.x.shape[1]))


def where_worth(run: Map, search_rows: SearchRows) -> Map:
    """``run``, or a plain loop where tasks of the heuristic take milliseconds: sending them would take longer."""

    def here(function: Callable[..., Any], tasks: Sequence[tuple[Any, ...]]) -> Sequence[Any]:
        run(function, ())  # whoever wants to end the job may do so there
        return one_by_one(function, tasks)

    return run if search_rows.x.size >= WORTH_SENDING else here


def is_due(state: OutlierState) -> bool:
    """Whether the climb comes next: the heuristic begins with it, a search that is long has one."""
    if state.phase == "climb":
        return True
    long = any(search.status == "open" and search.work >= LONG for search in state.searches)
    # Candidates of a search wait for a scan of their own.
    return long and not state.climbed and not any(search.candidates for search in state.searches)


def over(state: OutlierState) -> OutlierState:
    """The same, with the climb behind it."""
    return replace(state, phase="search", climbed=True)


def _perturbed(w: Array) -> list[Array]:
    random = np.random.default_rng(0)
    noise = random.standard_normal((PERTURBED, len(w))) / np.sqrt(len(w))
    return [w + SHARES[k % len(SHARES)] * noise[k] for k in range(PERTURBED)]
