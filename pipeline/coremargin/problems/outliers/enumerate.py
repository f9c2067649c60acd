"""The published algorithms as a phase of an outlier job: all rows are at home, and waves of subsets are tasks.

The paper's Figure 4 (maths/outliers/published.py), once for each k. A wave that gives a better hyperplane than the
incumbent has it measured on all rows, as any direction is: the model is the better of the algorithm's answer and of
what the first read found, the record of the run says what the algorithm alone found. Its guarantee is a theorem and no
certificate: when all enumerations have ended, the bound that ``verify`` checks is that of packing.py.
"""

from __future__ import annotations

import math
from dataclasses import replace
from typing import TYPE_CHECKING, Any

import numpy as np

from coremargin.errors import UsageError
from coremargin.maths.outliers.published import MOST_SUBSETS, begun, further, most_subsets_of
from coremargin.maths.rows import dense
from coremargin.problems.outliers.state import OutlierPool, OutlierState, unit

if TYPE_CHECKING:
    from collections.abc import Sequence

    from coremargin.maths.margin import Array
    from coremargin.maths.outliers.certificates import SearchRows
    from coremargin.maths.outliers.published import Enumerated, Published
    from coremargin.maths.outliers.tasks import Map


def check_subsets(rows: int, features: int, ks: Sequence[int], epsilon: float, algorithm: Published) -> None:
    """Refuse more subsets than anyone wants to wait for. Raises UsageError, with their number."""
    subsets = sum(most_subsets_of(rows, features, k, epsilon, algorithm) for k in ks)
    if subsets > MOST_SUBSETS:
        found = f"{subsets:,}" if subsets < 10**15 else f"some 10^{len(str(subsets)) - 1}"
        raise UsageError(
            f"outlier_search: the published algorithm may have to try {found} subsets of {rows:,} rows of {features:,} "
            f"features, expected at most {MOST_SUBSETS:,}; --outlier-search exact answers the same question"
        )


def pooled(state: OutlierState) -> OutlierState:
    """With all rows, which are at home, as the pool, in the order of their ids."""
    home = state.home
    return replace(state, pool=OutlierPool(home.ids, dense(home.rows), home.signs))


def enumerating(state: OutlierState, search_rows: SearchRows, epsilon: float, algorithm: Published) -> OutlierState:
    """Before the first subset of each k; ``search_rows``: all rows."""
    each = tuple(begun(search_rows, search.k, epsilon, algorithm) for search in state.searches)
    return replace(state, phase="enumerate", enumerated=each)


def wave(state: OutlierState, search_rows: SearchRows, run: Map) -> tuple[OutlierState, Array]:
    """After a wave of subsets for the first k that has not ended; and the direction (1, d) to measure, or none (0, d).

    When the last one has ended, what comes next is the search for an upper bound.
    """
    place = next(p for p, one in enumerate(state.enumerated) if not one.ended)
    before, best = state.enumerated[place], state.searches[place].best
    after = further(before, search_rows, run)
    each = (*state.enumerated[:place], after, *state.enumerated[place + 1 :])
    state = replace(state, enumerated=each, phase="search" if all(one.ended for one in each) else "enumerate")
    news = after.found is not before.found and after.found.margin > best.margin
    return state, unit([after.found.w]) if news else np.zeros((0, search_rows.x.shape[1]))


def subsets_told(state: OutlierState) -> dict[str, Any]:
    """Figures of the enumerations: subsets tried, how many there may be; k, size and best margin of the present one."""
    each = state.enumerated
    if not each:
        return {}
    now = next((one for one in each if not one.ended), each[-1])
    return {
        "subsets": sum(one.subsets for one in each), "subsets_at_most": sum(_at_most(one, state) for one in each),
        "subsets_k": now.k, "subset_rows": now.size,
        "subsets_margin": now.found.margin if math.isfinite(now.found.margin) else None,
    }  # fmt: skip


def record_of(state: OutlierState) -> list[dict[str, Any]]:
    """What each enumeration came to, for ``run.json``; margin: of its own best hyperplane, not rounded down."""
    return [
        {
            "k": one.k, "algorithm": one.algorithm, "subsets": one.subsets, "subsets_at_most": _at_most(one, state),
            "subset_rows": one.size, "ended": one.ended,
            "margin": one.found.margin if math.isfinite(one.found.margin) else None,
        }
        for one in state.enumerated
    ]  # fmt: skip


def _at_most(one: Enumerated, state: OutlierState) -> int:
    """What an enumeration has tried, where it has ended; else what it may have to try."""
    return one.subsets if one.ended else sum(math.comb(len(state.pool), size) for size in one.sizes)
