"""The published algorithms as a phase of an outlier job: all rows are cached, and waves of subsets run as tasks.

Figure 4 of the paper (maths/outliers/published.py), once for each k. When a wave finds a better hyperplane than the
incumbent, that is measured on all rows like any direction: the model is the better of the algorithm's answer and what
the first read found, and ``run.json`` records what the algorithm alone found. Its guarantee is a theorem, not a
certificate: when all enumerations have ended, the bound that ``verify`` checks comes from packing.py.
"""

from __future__ import annotations

import math
from dataclasses import replace
from typing import TYPE_CHECKING, Any

import numpy as np

from coremargin.errors import UsageError
from coremargin.maths.outliers.published import MOST_SUBSETS, max_subsets, next_wave, start_enumeration
from coremargin.maths.rows import dense
from coremargin.problems.outliers.state import OutlierState, OutlierWorkingSet, unit_directions

if TYPE_CHECKING:
    from collections.abc import Sequence

    from coremargin.maths.margin import Array
    from coremargin.maths.outliers.certificates import SearchRows
    from coremargin.maths.outliers.published import Enumeration, Published
    from coremargin.maths.outliers.tasks import TaskRunner


def check_subsets(rows: int, features: int, ks: Sequence[int], epsilon: float, algorithm: Published) -> None:
    """Raise UsageError when there may be too many subsets to try."""
    subsets = sum(max_subsets(rows, features, k, epsilon, algorithm) for k in ks)
    if subsets > MOST_SUBSETS:
        found = f"{subsets:,}" if subsets < 10**15 else f"about 10^{len(str(subsets)) - 1}"
        raise UsageError(
            f"outlier_search: the published algorithm may have to try {found} subsets of {rows:,} rows of {features:,} "
            f"features, expected at most {MOST_SUBSETS:,}; --outlier-search exact answers the same question"
        )


def with_all_rows(state: OutlierState) -> OutlierState:
    """The state with all rows, which are cached, as the working set, ordered by id."""
    cached = state.cached
    return replace(state, working_set=OutlierWorkingSet(cached.ids, dense(cached.rows), cached.signs))


def start_enumerations(
    state: OutlierState, search_rows: SearchRows, epsilon: float, algorithm: Published
) -> OutlierState:
    """The state before the first subset of each k; ``search_rows``: all rows."""
    each = tuple(start_enumeration(search_rows, search.k, epsilon, algorithm) for search in state.searches)
    return replace(state, phase="enumerate", enumerations=each)


def with_next_wave(state: OutlierState, search_rows: SearchRows, run: TaskRunner) -> tuple[OutlierState, Array]:
    """Try a wave of subsets for the first k that has not ended; also return the direction (1, d) to measure, or (0, d).

    After the last wave of the last k the search for an upper bound comes next.
    """
    place = next(p for p, one in enumerate(state.enumerations) if not one.ended)
    before, incumbent = state.enumerations[place], state.searches[place].best
    after = next_wave(before, search_rows, run)
    each = (*state.enumerations[:place], after, *state.enumerations[place + 1 :])
    state = replace(state, enumerations=each, phase="search" if all(one.ended for one in each) else "enumerate")
    improved = after.best is not before.best and after.best.margin > incumbent.margin
    return state, unit_directions([after.best.w]) if improved else np.zeros((0, search_rows.x.shape[1]))


def enumeration_figures(state: OutlierState) -> dict[str, Any]:
    """Figures of a round: subsets tried and their largest number; k, size and best margin of the current one."""
    each = state.enumerations
    if not each:
        return {}
    now = next((one for one in each if not one.ended), each[-1])
    return {
        "subsets": sum(one.subsets for one in each),
        "subsets_at_most": sum(_most_subsets(one, state) for one in each),
        "subsets_k": now.k,
        "subset_rows": now.size,
        "subsets_margin": now.best.margin if math.isfinite(now.best.margin) else None,
    }


def enumeration_record(state: OutlierState) -> list[dict[str, Any]]:
    """The part of ``run.json`` about each enumeration; margin: of its best hyperplane, not rounded down."""
    return [
        {
            "k": one.k,
            "algorithm": one.algorithm,
            "subsets": one.subsets,
            "subsets_at_most": _most_subsets(one, state),
            "subset_rows": one.size,
            "ended": one.ended,
            "margin": one.best.margin if math.isfinite(one.best.margin) else None,
        }
        for one in state.enumerations
    ]


def _most_subsets(one: Enumeration, state: OutlierState) -> int:
    """The number of subsets tried by a finished enumeration, else the largest number that it may try."""
    return one.subsets if one.ended else sum(math.comb(len(state.working_set), size) for size in one.sizes)
