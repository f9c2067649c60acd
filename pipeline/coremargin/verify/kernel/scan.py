"""What ``verify`` asks of every row about a machine with a kernel: its decisions, and what they cost.

A decision is off by at most e (values.py). So a margin is at least y (f + b) - e, and a loss at most that of it.
"""

from __future__ import annotations

from dataclasses import dataclass
from fractions import Fraction
from typing import TYPE_CHECKING, Any

import numpy as np

from coremargin.verify.checks import typed
from coremargin.verify.kernel.claim import sides
from coremargin.verify.kernel.spread import Spread
from coremargin.verify.kernel.values import Expansion
from coremargin.verify.store import Members, StoreFindings
from coremargin.verify.sums import SLAB_ROWS, UNIT, Total, nearest, rounded_sum, slabs

if TYPE_CHECKING:
    from coremargin.verify.kernel.claim import KernelClaim
    from coremargin.verify.rows import Chunk, Rows


@dataclass(frozen=True)
class Answer:
    """What one chunk says."""

    loss: np.ndarray  #: (k,)
    lowest: tuple[tuple[float, int], ...]  #: of each column the smallest margin, and its row
    limits: np.ndarray  #: (members, k): c of the coreset's rows
    uncounted: int
    radius: float
    members: Members
    spread: Spread


class KernelScan(StoreFindings):
    """One scan for the decisions of k functions."""

    claim: KernelClaim

    def __init__(self, claim: KernelClaim, rows: Rows) -> None:
        super().__init__(claim, rows)
        self.expansion = Expansion(claim.function, claim.x, claim.signs * claim.duals)
        place = {typed(label): k + 1 for k, label in enumerate(claim.labels)}
        self._places = np.array([*(place.get(typed(label), 0) for label in rows.classes), 0])
        columns = len(claim.offsets)
        self.class_c = side_costs(claim, rows)
        self.loss = Total((columns,))
        self.lowest: list[tuple[float, int]] = [(np.inf, -1)] * columns
        self.limits = np.zeros(claim.duals.shape)
        self.spread = Spread.nothing()

    def ask(self, chunk: Chunk) -> Answer:
        """One chunk, in slabs of float64."""
        place = self._places[chunk.codes]
        weights = np.ones(len(place)) if chunk.weights is None else chunk.weights
        place = np.where(weights > 0, place, 0)
        members, columns = self.members(chunk, place), len(self.claim.offsets)
        signs = sides(place, len(self.claim.labels))
        row_c = np.where(signs > 0, self.class_c[:, 0], self.class_c[:, 1]) * weights[:, None]
        lowest, loss, radius = [(np.inf, -1)] * columns, Total((columns,)), 0.0
        for part, x in slabs(chunk.x, SLAB_ROWS):
            radius = max(radius, float(self.lengths(x, chunk.start + part.start).max()))
            counted = np.flatnonzero(place[part])
            if not len(counted):
                continue
            margins = self._margins(x[counted], signs[part][counted])
            loss.add(self._lost(margins, row_c[part][counted]))
            least = margins.argmin(axis=0)
            found = [(float(margins[r, k]), chunk.start + part.start + int(counted[r])) for k, r in enumerate(least)]
            lowest = [min(pair) for pair in zip(lowest, found, strict=True)]
        limits = row_c[self.claim.ids[members.places] - chunk.start]
        uncounted = int((place == 0).sum())
        return Answer(loss.value, tuple(lowest), limits, uncounted, radius, members, Spread.of(chunk.x))

    def _margins(self, x: Any, signs: np.ndarray) -> np.ndarray:
        """Margins (n, k) that rows have at least."""
        values, error = self.expansion.values(x)
        error = error + 2 * UNIT * (np.abs(values) + np.abs(self.claim.offsets) + 1.0)
        found = signs * (values + self.claim.offsets) - error
        return np.where(np.isnan(found), -np.inf, found)  # what overflows proves nothing

    def _lost(self, margins: np.ndarray, row_c: np.ndarray) -> np.ndarray:
        """Sums (k,) of what rows cost at most, rounded up."""
        slack = np.maximum(1.0 - margins, 0.0)
        if not self.claim.loss:
            return np.zeros(len(self.claim.offsets))
        cost = row_c * (slack if self.claim.loss == "hinge" else slack * slack)
        return np.asarray(cost.sum(axis=0) * (1 + (SLAB_ROWS + 16) * UNIT))

    def add(self, answer: Answer) -> None:
        """Take one chunk's answer."""
        self.loss.add(answer.loss)
        self.lowest = [min(pair) for pair in zip(self.lowest, answer.lowest, strict=True)]
        self.limits[answer.members.places] = answer.limits
        self.spread = self.spread.joined(answer.spread)
        self.count(answer.uncounted, answer.radius, answer.members)


def side_costs(claim: KernelClaim, rows: Rows) -> np.ndarray:
    """c (k, 2) of a row of weight 1 on the positive and the other side of each column."""
    columns = len(claim.offsets)
    if claim.weight != "balanced":
        factors = (1.0, 1.0) if claim.weight is None else (float(claim.weight[1]), float(claim.weight[0]))
        return claim.cost * np.tile(factors, (columns, 1))
    sums = dict.fromkeys(map(typed, claim.labels), Fraction(0))
    for codes, weights in rows.labels():
        for code, label in enumerate(rows.classes):
            if typed(label) in sums:
                sums[typed(label)] += Fraction(rounded_sum(weights[codes == code].tolist()))
    each, every = list(sums.values()), sum(sums.values())
    own = each[1:] if len(each) == 2 else each
    pairs = [(part, every - part) for part in own]
    costs = [[nearest(Fraction(claim.cost) * every / (2 * part)) if part else 0.0 for part in pair] for pair in pairs]
    return np.array(costs)
