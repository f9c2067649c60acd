"""What a worker does with a chunk in selective block minimisation. Plain functions on arrays; no Dask, no files."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Self

import numpy as np
from numpy.typing import NDArray

from coremargin.maths.rows import Rows, take, weighted_sums
from coremargin.problems.soft.probe import Counted, NearMarginProbe, decisions

if TYPE_CHECKING:
    from coremargin.engine.protocols import Block
    from coremargin.problems.soft.summary import NearMarginSummary

Array = NDArray[np.float64]


@dataclass(frozen=True)
class DualProbe(NearMarginProbe):
    """A question about rows whose duals are known: duals (m,) are a y of the rows from id ``first`` on."""

    duals: Array
    first: int

    def narrow(self, block: Block) -> Self:
        """The same question with what belongs to this block only."""
        first, stop = np.array([block.chunks[0], block.chunks[-1] + 1]) * self.chunk_rows
        cached = self.cached[np.searchsorted(self.cached, first) : np.searchsorted(self.cached, stop)]
        duals = self.duals[first - self.first : stop - self.first]
        return replace(self, cached=cached, duals=duals, first=int(first))

    def own(self, counted: Counted, start: int) -> Array:
        """The duals a (n,) of the rows that count."""
        return np.asarray(self.duals[counted.places + (start - self.first)] * counted.signs)


@dataclass(frozen=True)
class BlockProbe(DualProbe):
    """Which rows of a segment contradict their duals at the newest hypothesis; at most ``keep`` of a chunk are sent.

    least: what is less of a contradiction is none.
    """

    least: float

    def _ask(self, rows: Rows, counted: Counted, start: int, longest: float) -> NearMarginSummary:
        places, signs = counted.places, counted.signs
        if len(places) < rows.shape[0]:
            rows = take(rows, places)
        margins = decisions(rows, self.base[:, :1])[0] * signs
        wrong = contradictions(margins, self.own(counted, start), counted.row_c, squared=self.squared)
        wrong[counted.cached] = 0.0
        chosen = np.flatnonzero(wrong > self.least)
        if len(chosen) > self.keep:
            chosen = np.sort(chosen[np.argsort(-wrong[chosen], kind="stable")[: self.keep]])
        return replace(
            self.empty(), row_id=places[chosen] + start, row_x=take(rows, chosen), row_sign=signs[chosen],
            row_c=counted.row_c[chosen],
        )  # fmt: skip


@dataclass(frozen=True)
class ProofProbe(DualProbe):
    """What all rows say about a hypothesis and the hinge's duals.

    Rows whose dual is not that of their side are named, not sent; far_linear is the sum over all rows of a y (x, 1).
    """

    def _ask(self, rows: Rows, counted: Counted, start: int, longest: float) -> NearMarginSummary:
        places, signs, none = counted.places, counted.signs, np.zeros(0, np.intp)
        if len(places) < rows.shape[0]:
            rows = take(rows, places)
        margins = decisions(rows, self.base) * signs
        parts = self.near_far_split(lambda at: take(rows, at), counted, margins, none, longest)
        duals = self.own(counted, start)
        named = np.flatnonzero(duals != np.where(parts.losing, counted.row_c, 0.0))
        losing, columns = parts.losing.copy(), parts.columns.copy()
        losing[named], columns[:, 2] = False, duals * signs
        parts = replace(parts, near=named, losing=losing, columns=columns)
        return self.summary(parts, weighted_sums(rows, columns), places[named] + start, take(rows, none), rows[:0])


def contradictions(margins: Array, duals: Array, row_c: Array, *, squared: bool) -> Array:
    """By how much a row's margin (n,) would have to change for its dual (n,), from 0 to its c, to be best."""
    if squared:
        ahead = 1.0 - margins - duals / (2.0 * row_c)
        return np.where((duals == 0) & (ahead < 0), 0.0, np.abs(ahead))
    ahead = 1.0 - margins
    settled = ((duals == 0) & (ahead < 0)) | ((duals == row_c) & (ahead > 0))
    return np.where(settled, 0.0, np.abs(ahead))
