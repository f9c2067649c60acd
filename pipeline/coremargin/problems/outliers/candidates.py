"""What waits to be measured on all rows, and what searches make of the answer."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

import numpy as np

from coremargin.maths.outliers.heuristic import measure
from coremargin.maths.outliers.rounds import believed, verified
from coremargin.maths.outliers.search import improved
from coremargin.problems.outliers.base import OutlierBase
from coremargin.problems.outliers.path import how_it_ended, shared
from coremargin.problems.outliers.state import unit

if TYPE_CHECKING:
    from coremargin.maths.margin import Array
    from coremargin.maths.outliers.certificates import Certificates
    from coremargin.maths.outliers.heuristic import Found
    from coremargin.maths.outliers.search import Search
    from coremargin.problems.outliers.state import OutlierState


@dataclass(frozen=True)
class OutlierCandidates(OutlierBase):
    """The searches of all values of k, as far as directions that wait for a scan are concerned."""

    def _evaluated(self, state: OutlierState) -> OutlierState:
        """What comes next: more search, a scan for the candidates, or the end."""
        longest = float(self.source.scalars().max_norm.max())
        state = shared(state, longest, intercept=self.intercept)
        open_ = [search for search in state.searches if search.status == "open"]
        if not open_:
            return replace(state, status=how_it_ended(state, longest, intercept=self.intercept))
        if any(not search.wants_scan for search in open_):
            return state
        return self._with_directions(state, self._to_measure(state)[1])

    def _to_measure(self, state: OutlierState) -> tuple[list[int], Array]:
        """The searches whose candidates the next scan measures, and these as directions (m, d)."""
        places: list[int] = []
        next_directions = np.zeros((0, self.source.features))
        for place, search in enumerate(state.searches):
            mine = unit([candidate.verdict.point for candidate in search.candidates])
            if len(mine) and (not places or len(next_directions) + len(mine) <= self.batch):
                places.append(place)
                next_directions = np.concatenate([next_directions, mine])
        return places, next_directions

    def _with_directions(self, state: OutlierState, next_directions: Array) -> OutlierState:
        """With directions for the next scan to measure, and the first one's offset."""
        return replace(
            state,
            next_directions=next_directions,
            offset=measure(self.search_rows(state), next_directions[0], self.ks[-1]).b,
        )

    def _answered(
        self, state: OutlierState, measured: list[tuple[Found, int]], *, grown: bool, scanned: list[int]
    ) -> OutlierState:
        """After directions were measured, with the best for each k.

        grown: whether the pool has; scanned: the searches whose candidates were among the directions.
        """
        search_rows, searches = self.search_rows(state), list(state.searches)
        certificates = state.main.certificates
        for place, (found, _) in enumerate(measured):
            search = replace(searches[place], certificates=certificates) if self.exact else searches[place]
            better = found.margin > search.best.margin
            if place in scanned:
                searches[place] = verified(search, found) if better or grown else believed(search, search_rows)
                certificates = searches[place].certificates
            elif better:
                searches[place] = improved(search, found)
        return replace(state, searches=self._sharing(searches, certificates))

    def _sharing(self, searches: list[Search], certificates: Certificates) -> tuple[Search, ...]:
        """Certificates are those of the pool: what one k found serves all. The heuristic's are of one k each."""
        if not self.exact:
            return tuple(searches)
        return tuple(replace(search, certificates=certificates) for search in searches)
