"""What a worker does with a chunk in selective block minimisation. Plain functions on arrays; no Dask, no files."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Self

import numpy as np
from numpy.typing import NDArray

from coremargin.problems.soft.probe import Counted, NearFarSplit, NearMarginProbe

if TYPE_CHECKING:
    from coremargin.engine.protocols import Block
    from coremargin.maths.rows import Rows
    from coremargin.problems.soft.probe import Pick
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

    def own(self, counted: Counted) -> Array:
        """The duals a (n,) of the rows that count."""
        return np.asarray(self.duals[counted.places + (counted.start - self.first)] * counted.signs)


@dataclass(frozen=True)
class BlockProbe(DualProbe):
    """Which rows of a segment contradict their duals at the newest hypothesis; at most ``keep`` of a chunk are sent.

    least: what is less of a contradiction is none.
    """

    least: float

    def urgency(self, counted: Counted, margins: Array) -> Array:
        """The largest contradiction first."""
        wrong = self.loss.contradictions(margins[0], self.own(counted), counted.row_c)
        return np.where(counted.cached | (wrong <= self.least), np.inf, -wrong)

    def near_far_split(
        self, pick: Pick, counted: Counted, margins: Array, near: NDArray[np.intp], longest: float
    ) -> NearFarSplit:
        """Only the rows that are sent: nothing is summed up."""
        none, rows = np.zeros(0), len(counted.places)
        return NearFarSplit(
            counted.signs, margins, near, counted.row_c, none, np.zeros(rows, bool), np.zeros((rows, 0)), 0.0
        )  # fmt: skip

    def summary(
        self, parts: NearFarSplit, total: Array, ids: NDArray[np.int64], near: Rows, losing: Rows
    ) -> NearMarginSummary:
        """The rows that are sent."""
        return replace(
            self.empty(), row_id=ids, row_x=near, row_sign=parts.signs[parts.near], row_c=parts.row_c[parts.near]
        )  # fmt: skip


@dataclass(frozen=True)
class ProofProbe(DualProbe):
    """What all rows say about a hypothesis and the hinge's duals.

    Rows whose dual is not that of their side are named, not sent; far_linear is the sum over all rows of a y (x, 1).
    """

    def urgency(self, counted: Counted, margins: Array) -> Array:
        """None is sent."""
        return np.full(len(counted.places), np.inf)

    def near_far_split(
        self, pick: Pick, counted: Counted, margins: Array, near: NDArray[np.intp], longest: float
    ) -> NearFarSplit:
        """Rows with their margins and duals; losing are those that are not named."""
        parts, duals = super().near_far_split(pick, counted, margins, near, longest), self.own(counted)
        named = np.flatnonzero(duals != np.where(parts.losing, counted.row_c, 0.0))
        losing, columns = parts.losing.copy(), parts.columns.copy()
        losing[named], columns[:, 2] = False, duals * counted.signs
        return replace(parts, near=named, losing=losing, columns=columns)
