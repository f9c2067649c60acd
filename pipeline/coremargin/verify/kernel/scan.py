"""What ``verify`` asks of every row about a machine with a kernel: its decisions, and what they cost.

A decision is off by at most e (values.py). So a margin is at least y (f + b) - e, and a loss at most that of it. Where
fewer rows decide than carry the dual point, the functions of both are evaluated at once, and compared.
"""

from __future__ import annotations

from dataclasses import dataclass
from fractions import Fraction
from typing import TYPE_CHECKING, Any

import numpy as np

from coremargin.verify.checks import typed
from coremargin.verify.kernel.brought import NoKernel, expansion
from coremargin.verify.kernel.claim import sides
from coremargin.verify.spread import Spread
from coremargin.verify.store import Members, StoreFindings
from coremargin.verify.sums import SLAB_ROWS, UNIT, Total, nearest, rounded_sum, slabs
from coremargin.verify.view import held_out

if TYPE_CHECKING:
    from coremargin.verify.kernel.claim import KernelClaim
    from coremargin.verify.rows import Chunk, Rows


@dataclass(frozen=True)
class Apart:
    """How far decisions are from those of the whole coreset: the largest distance, and rows of other classes."""

    distance: float = 0.0
    changed: int = 0

    def joined(self, other: Apart) -> Apart:
        """Of more rows; a distance that nothing is known of stays so."""
        return Apart(float(np.maximum(self.distance, other.distance)), self.changed + other.changed)


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
    apart: Apart
    reach: float  #: no sqrt(k(x, x)) is larger
    fault: str  #: what shows that a function is no kernel


class KernelScan(StoreFindings):
    """One scan for the decisions of k functions."""

    claim: KernelClaim

    def __init__(self, claim: KernelClaim, rows: Rows) -> None:
        super().__init__(claim, rows)
        weights = claim.signs * claim.duals
        if claim.reduced is not None:
            weights = np.hstack([claim.reduced.weights, weights])
        self.expansion = expansion(claim.function, claim.x, weights)  # the hypothesis first, the dual point last
        place = {typed(label): k + 1 for k, label in enumerate(claim.labels)}
        self._places = np.array([*(place.get(typed(label), 0) for label in rows.classes), 0])
        columns = len(claim.offsets)
        self.class_c = side_costs(claim, rows)
        self.loss = Total((columns,))
        self.lowest: list[tuple[float, int]] = [(np.inf, -1)] * columns
        self.limits = np.zeros(claim.duals.shape)
        self.spread = Spread.nothing()
        self.apart = Apart()
        self.reach, self.fault = 0.0, ""

    def ask(self, chunk: Chunk) -> Answer:
        """One chunk, in slabs of float64."""
        place = self._places[chunk.codes]
        weights = np.ones(len(place)) if chunk.weights is None else chunk.weights
        out = held_out(self.claim.view, chunk.start, len(place))
        place = np.where((weights > 0) & ~out, place, 0)
        members, columns = self.members(chunk, place), len(self.claim.offsets)
        signs = sides(place, len(self.claim.labels))
        row_c = np.where(signs > 0, self.class_c[:, 0], self.class_c[:, 1]) * weights[:, None]
        lowest, loss, radius, apart = [(np.inf, -1)] * columns, Total((columns,)), 0.0, Apart()
        reach, fault = 0.0, ""
        for part, x in slabs(chunk.x, SLAB_ROWS):
            longest = float(self.lengths(x, chunk.start + part.start).max())
            radius = max(radius, longest)
            counted = np.flatnonzero(place[part])
            if not len(counted):
                continue
            try:
                values, error = self._decisions(x[counted])
                reach = max(reach, self.expansion.reach(x[counted], longest))
            except NoKernel as wrong:
                fault = fault or _told(wrong, chunk.start + part.start + counted)
                values = np.full((len(counted), self.expansion.weights.shape[1]), np.nan)
                error = np.zeros_like(values)
            apart = apart.joined(_apart(values, error, columns))
            margins = _margins(values[:, :columns], error[:, :columns], signs[part][counted])
            loss.add(self._lost(margins, row_c[part][counted]))
            least = margins.argmin(axis=0)
            found = [(float(margins[r, k]), chunk.start + part.start + int(counted[r])) for k, r in enumerate(least)]
            lowest = [min(pair) for pair in zip(lowest, found, strict=True)]
        limits = row_c[self.claim.ids[members.places] - chunk.start]
        uncounted = int((place == 0).sum())
        spread = Spread.of(chunk.x)
        return Answer(loss.value, tuple(lowest), limits, uncounted, radius, members, spread, apart, reach, fault)

    def _decisions(self, x: Any) -> tuple[np.ndarray, np.ndarray]:
        """Decision values of rows x (n, d), those of the hypothesis first, and what they may be off by."""
        values, error = self.expansion.values(x)
        offsets = np.tile(self.claim.offsets, values.shape[1] // len(self.claim.offsets))
        return values + offsets, error + 2 * UNIT * (np.abs(values) + np.abs(offsets) + 1.0)

    def _lost(self, margins: np.ndarray, row_c: np.ndarray) -> np.ndarray:
        """Sums (k,) of what rows cost at most, rounded up."""
        slack = np.maximum(1.0 - margins, 0.0)
        if not self.claim.loss:
            return np.zeros(len(self.claim.offsets))
        cost = row_c * (slack if self.claim.loss == "hinge" else slack * slack)
        return np.asarray(cost.sum(axis=0) * (1 + (len(margins) + 16) * UNIT))

    def add(self, answer: Answer) -> None:
        """Take one chunk's answer."""
        self.loss.add(answer.loss)
        self.lowest = [min(pair) for pair in zip(self.lowest, answer.lowest, strict=True)]
        self.limits[answer.members.places] = answer.limits
        self.spread = self.spread.joined(answer.spread)
        self.apart = self.apart.joined(answer.apart)
        self.reach, self.fault = max(self.reach, answer.reach), self.fault or answer.fault
        self.count(answer.uncounted, answer.radius, answer.members)


def _told(wrong: NoKernel, rows: np.ndarray) -> str:
    """What a function gave, with the row that it is about, or the first and last of these (n,) rows."""
    where = f"rows {rows[0]} to {rows[-1]}" if wrong.row < 0 else f"row {rows[wrong.row]}"
    return f"{where}: {wrong.text}"


def _margins(values: np.ndarray, error: np.ndarray, signs: np.ndarray) -> np.ndarray:
    """Margins (n, k) that rows with these decision values and sides have at least."""
    found = signs * values - error
    return np.where(np.isnan(found), -np.inf, found)  # what overflows proves nothing


def _apart(values: np.ndarray, error: np.ndarray, columns: int) -> Apart:
    """How far the first decisions are from the last ones, at most."""
    if values.shape[1] == columns:
        return Apart()
    far = np.abs(values[:, :columns] - values[:, columns:]) + error[:, :columns] + error[:, columns:]
    now, then = (_sure(values[:, part], error[:, part]) for part in (slice(columns), slice(columns, None)))
    return Apart(float((far * (1 + 4 * UNIT)).max()), int(((now < 0) | (now != then)).sum()))


def _sure(values: np.ndarray, error: np.ndarray) -> np.ndarray:
    """The class (n,) that decisions (n, k) name, -1 where what they may be off by names another one."""
    if values.shape[1] == 1:
        return np.where((np.abs(values) > error)[:, 0], values[:, 0] > 0, -1)
    first, rows = values.argmax(axis=1), np.arange(len(values))
    least, most = values[rows, first] - error[rows, first], values + error
    most[rows, first] = -np.inf
    return np.where((most < least[:, None]).all(axis=1), first, -1)


def side_costs(claim: KernelClaim, rows: Rows) -> np.ndarray:
    """c (k, 2) of a row of weight 1 on the positive and the other side of each column."""
    columns = len(claim.offsets)
    if claim.weight != "balanced":
        factors = (1.0, 1.0) if claim.weight is None else (float(claim.weight[1]), float(claim.weight[0]))
        return claim.cost * np.tile(factors, (columns, 1))
    sums = dict.fromkeys(map(typed, claim.labels), Fraction(0))
    start = 0
    for codes, weights in rows.labels():
        weights = np.where(held_out(claim.view, start, len(codes)), 0.0, weights)
        start += len(codes)
        for code, label in enumerate(rows.classes):
            if typed(label) in sums:
                sums[typed(label)] += Fraction(rounded_sum(weights[codes == code].tolist()))
    each, every = list(sums.values()), sum(sums.values())
    own = each[1:] if len(each) == 2 else each
    pairs = [(part, every - part) for part in own]
    costs = [[nearest(Fraction(claim.cost) * every / (2 * part)) if part else 0.0 for part in pair] for pair in pairs]
    return np.array(costs)
