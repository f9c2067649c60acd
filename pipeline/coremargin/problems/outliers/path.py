"""Several numbers of outliers in one job: what is proven for one of them says something about the others.

Who may leave out k rows may leave out fewer, so the best margin does not fall as k grows. A hyperplane with k outliers
is one for every larger number, and no set of fewer than k rows allows more than the upper bound for k.
"""

from __future__ import annotations

from dataclasses import replace
from itertools import accumulate
from typing import TYPE_CHECKING

import numpy as np

from coremargin.maths.margin import is_nothing, meets
from coremargin.maths.outliers.levels import lowered
from coremargin.maths.outliers.search import ended, improved, is_near

if TYPE_CHECKING:
    from coremargin.maths.outliers.search import Search
    from coremargin.problems.outliers.state import LeftOut, OutlierState, Status

Known = tuple["Search", "LeftOut"]


def shared(state: OutlierState, longest: float, *, intercept: bool) -> OutlierState:
    """The state with the best bounds that any k gives for each; what is proven by them is at its end.

    longest: the largest norm of a row as it is, not of one that was centred.
    """
    below = list(accumulate(zip(state.searches, state.left_out, strict=True), _with_margin_of))
    searches = list(accumulate((search for search, _ in reversed(below)), _with_bound_of))[::-1]
    state = replace(state, searches=tuple(searches), left_out=tuple(out for _, out in below))
    proven = [is_proven(state, place, longest, intercept=intercept) for place in range(len(searches))]
    return replace(
        state, searches=tuple(ended(one) if done else one for one, done in zip(searches, proven, strict=True))
    )


def is_proven(state: OutlierState, place: int, longest: float, *, intercept: bool) -> bool:
    """The incumbent of a k is within epsilon of the best, or no k rows left out make the others separable.

    The latter where each certificate of the bound's proof, its own or that of a larger k, is zero for its own rows: one
    long row somewhere else makes no margin zero.
    """
    search, pool = state.searches[place], state.pool
    if is_near(search) or search.best.margin > 0 or not is_nothing(search.upper, longest, len(search.best.w)):
        return is_near(search)
    for one in state.searches[place:]:
        if one.proof and one.upper <= search.upper:
            used = (one.certificates[number] for number in np.unique(one.proof.proofs.values))
            return all(meets(pool.x[c.rows], pool.signs[c.rows], c.weights, intercept) for c in used)
    return False


def next_place(searches: tuple[Search, ...]) -> int:
    """The open search that is to go on: that with least work so far, so that what is easy is done first."""
    open_ = [place for place, search in enumerate(searches) if search.status == "open" and not search.wants_scan]
    return min(open_, key=lambda place: (searches[place].work, place))


def how_it_ended(state: OutlierState, longest: float, *, intercept: bool) -> Status:
    """With every search at its end: proven for every k; or as far as it goes."""
    if all(is_proven(state, place, longest, intercept=intercept) for place in range(len(state.searches))):
        return "certified"
    if any(search.status == "bounded" for search in state.searches):
        return "published" if state.enumerated else "heuristic"
    return "stalled"


def _with_margin_of(smaller: Known, own: Known) -> Known:
    """One k with the incumbent of the next smaller one, where that is better, and the rows that it leaves out."""
    search = improved(own[0], smaller[0].best)
    return own if search is own[0] else (search, smaller[1])


def _with_bound_of(larger: Search, own: Search) -> Search:
    """One k with the upper bound of the next larger one, where that is lower; its proof stays with the larger one."""
    return lowered(own, larger.upper) if larger.upper < own.upper else own
