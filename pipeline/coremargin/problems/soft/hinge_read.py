"""The first read with the hinge: far rows as if none of them could change sides, and what those add that do.

A stage at hypothesis w0 sums up its far rows: c times the slack of those that lose there, 0 of the others. These lines
never lie above the hinge. With the rows near the margin, as they are, they are a model that underestimates the value
everywhere, and the dual of its minimum is one of all rows: c or 0 by side at the hypothesis of a row's stage, and what
is best for the rows near the margin.

How far the value of another hypothesis is above its model: with s = y (dw.x + db), t = |1 - margin| at w0, and M no
less than any |s|, a row that has crossed the margin is above its line by

    c max(0, |s| - t)  <=  c s^2 / t * (M < 2 t ? (t / M) (1 - t / M) : 1 / 4)

so that the rows of a ring, t in [t0, t1), are known well enough by one matrix: sum c / t (x, 1)(x, 1)^T.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

import numpy as np
from numpy.typing import NDArray

from coremargin.maths import soft_margin as soft
from coremargin.maths.interior import HingeModel, minimise_hinge
from coremargin.maths.margin import gamma
from coremargin.maths.rows import weighted_sum
from coremargin.problems.common.driver_rows import isin_ids
from coremargin.problems.common.zone import smallest_positions
from coremargin.problems.soft.bounds import DualSums, dual_bound
from coremargin.problems.soft.first_read import CLEAR, LEFT, NIGHTS, FirstRead
from coremargin.problems.soft.steps import balances, filled, guarded

if TYPE_CHECKING:
    from coremargin.problems.soft.far_rows import FarRows
    from coremargin.problems.soft.objective import Objective
    from coremargin.problems.soft.rows_with_c import RowsWithC
    from coremargin.problems.soft.state import Reading, SoftState

Array = NDArray[np.float64]

#: What solutions may leave of the gap that is asked for: on the way, and at last.
ON_THE_WAY, AT_LAST = 0.1, 0.002
#: Rows at home that are farther from the margin than so many times their expected move keep to their sides while the
#: others are solved; at last, they may lose no more than this share of the gap asked for by that, after so many tries.
PARKED, LOST, TRIES = 5.0, 0.05, 3
#: Rows of a sample that cross the margin, though far from it, count where they stand for this share of the value.
ASTRAY = 1.0


@dataclass(frozen=True)
class HingeRead(FirstRead):
    """``FirstRead`` with the hinge."""

    #: Measured on 1e6 x 100 with 2, 5 and 10 % noise: 0.06 leaves gaps up to 9.9e-4, 0.08 up to 9.0e-4.
    NEAR_SHARE = 0.08
    BEYOND = np.zeros(0)

    def minimum(self, reading: Reading, near: Array, sample: RowsWithC, *, last: bool) -> tuple[Array, Array]:
        """The minimiser (d + 1,) of the model, and the duals (m,) of the rows at home, none where it has no minimum.

        near: the hypothesis before. last: all rows were read; else those that were stand for all. Where rows of a
        sample say that far ones cross the margin, they stand for those, so that the hypothesis stays where it is true.
        """
        home, at, turn, spread = reading.home, near, 0, reading.spread
        while True:
            margins = home.margins(at)
            some, sides = self._live(margins, spread), np.where(margins < 1.0, home.row_c, 0.0)
            model = self._model(reading, some, sides, last=last)
            found, duals = self._solved(model, some, sides, last=last)
            if not len(duals):
                if not last or some.all() or np.isinf(spread):
                    break
                spread = np.inf  # so few rows cannot make up for the far ones' duals: as many as can be solved may
                continue
            at, lost, turn = found, self._lost(home, margins, found, some), turn + 1
            if turn == TRIES or not last or lost <= LOST * self.objective.epsilon:
                break
        away = sample.take(np.flatnonzero(~isin_ids(sample.ids, home.ids)))
        far_c = float(self.total_c.sum() - model.right.sum())
        if len(duals) and not self._astray(away, far_c, near, at):
            return at, duals
        ahead = guarded(self.objective, model, away, far_c, near, at if len(duals) else None)
        return at if ahead is None else ahead, duals

    def of_one_night(self, reading: Reading) -> Reading:
        """As ``FirstRead`` has it: fewer rows are solved, and again where those lose too much that are not."""
        return replace(reading, spread=reading.spread / NIGHTS)

    def _live(self, margins: Array, spread: float) -> NDArray[np.bool_]:
        """Which rows at home (m,) are solved: those that may move across the margin, the nearest of too many."""
        away = np.abs(margins - 1.0)
        some = away < PARKED * spread
        if np.count_nonzero(some) > self.live:
            some[:] = False
            some[smallest_positions(away, self.live)] = True
        return np.asarray(some)

    def _astray(self, away: RowsWithC, far_c: float, near: Array, at: Array) -> bool:
        """Whether so many far rows, by those of a sample, cross the margin on the way that the model is wrong."""
        before, after = away.margins(near), away.margins(at)
        crossed = (before < 1.0) != (after < 1.0)
        if not crossed.any():
            return False
        whole = float(self.total_c.sum()) / float(away.row_c.sum()) * float(away.row_c @ np.maximum(1.0 - after, 0.0))
        lost = far_c / float(away.row_c.sum()) * float(away.row_c[crossed] @ np.abs(after[crossed] - 1.0))
        return lost > ASTRAY * self.objective.epsilon * (whole + soft.penalty(at, self.objective.metric))

    def _model(
        self, reading: Reading, some: NDArray[np.bool_], sides: Array, *, last: bool
    ) -> HingeModel:  # fmt: skip
        """Of some of the rows at home, the duals of others being their sides' (m,).

        Until the last stage the rows seen of a class stand for all of it.
        """
        objective, every, home = self.objective, reading.home, reading.home.take(np.flatnonzero(some))
        seen_c = reading.far.total_c.sum(axis=0)
        scale: Array = np.where((seen_c > 0) & (not last), self.total_c / np.where(seen_c > 0, seen_c, 1.0), 1.0)
        each: Array = np.where(every.signs > 0, scale[0], scale[1])
        signed: Array = np.where(some, 0.0, sides) * each * every.signs
        linear = scale @ reading.far.dual_sum.sum(axis=0) + np.append(weighted_sum(every.rows, signed), signed.sum())
        if not objective.intercept:
            linear[-1] = 0.0
        rows = filled(home.rows, home.signs, objective.intercept)
        return HingeModel(objective.metric, linear, rows, home.row_c * each[some], np.zeros(len(rows)))

    def _solved(
        self, model: HingeModel, some: NDArray[np.bool_], sides: Array, *, last: bool
    ) -> tuple[Array, Array]:  # fmt: skip
        """The minimiser, and the duals of all rows at home; at last in the problem's own c."""
        if not len(model.rows) or (self.objective.intercept and not balances(model)):
            return np.zeros(len(model.metric)), np.zeros(0)
        at, found = minimise_hinge(model, tolerance=(AT_LAST if last else ON_THE_WAY) * self.objective.epsilon)
        duals = np.where(some, 0.0, sides)
        duals[some] = found
        return at, duals

    def _lost(self, home: RowsWithC, before: Array, at: Array, some: NDArray[np.bool_]) -> float:
        """What rows that are not among some and have crossed the margin add to the value, as a share of the home's."""
        after = home.margins(at)
        crossed = ~some & ((before < 1.0) != (after < 1.0))
        whole = float(home.row_c @ np.maximum(1.0 - after, 0.0)) + soft.penalty(at, self.objective.metric)
        return float(home.row_c[crossed] @ np.abs(after[crossed] - 1.0)) / whole if crossed.any() else 0.0

    # when all chunks were read

    def losses(self, reading: Reading, at: Array) -> float:
        """Of all far rows at a hypothesis, as if none had changed sides, rounded up."""
        return losses(reading.far, self.objective, at)

    def crossed(self, reading: Reading, at: Array) -> Array:
        """What far rows of each stage (s,) that have changed sides add to the model, at most."""
        return crossed(reading.far, self.objective, at, self.moved(reading, at))

    def with_dual(self, state: SoftState, reading: Reading, duals: Array) -> SoftState:
        """As ``FirstRead`` has it: that of the model's minimum."""
        objective, home, far = self.objective, reading.home, reading.far
        linear = far.dual_sum.sum(axis=(0, 1))
        if len(duals) < len(home):
            return state
        if objective.intercept:
            moved = soft.balanced(duals, home.signs, home.row_c, float(linear[-1] + duals @ home.signs))
            if moved is None:
                return state
            duals = moved
        v = linear[:-1] + weighted_sum(home.rows, duals * home.signs)
        sums = DualSums(float(far.duals.sum()), v, len(home), float(far.taken[:, 1].sum()))
        return dual_bound(objective, state, sums, (home.ids, home.signs, duals), (far.at, reading.of))

    def loosest(self, state: SoftState, reading: Reading) -> Reading | None:
        """As ``FirstRead`` has it, until the others leave little of the gap that is asked for."""
        there = np.unique(reading.of)
        each = self.crossed(reading, state.newest)[there]
        order = np.argsort(-each, kind="stable")
        left = np.cumsum(each[order][::-1])[::-1]  # of each and all tighter ones
        many = int(np.count_nonzero(left > LEFT * self.objective.epsilon * state.lower))
        if state.lower <= 0 or not many:
            return None
        again = np.zeros(len(reading.again), bool)
        again[there[order[:many]]] = True
        return replace(reading, again=again)


def losses(far: FarRows, objective: Objective, at: Array) -> float:
    """Of all far rows at a hypothesis, as if none had changed sides, rounded up."""
    size = objective.magnitudes.reach(np.abs(at[:-1])) + abs(float(at[-1])) + 1.0
    total = float(far.duals.sum())
    value = total - float((far.dual_sum @ at).sum())
    summed = total + 2.0 * float(far.taken[:, 1].sum())
    return value + 16.0 * objective.magnitudes.sum_error * summed * (size + 1.0)


def crossed(far: FarRows, objective: Objective, at: Array, most: Array) -> Array:
    """What far rows of each stage (s,) that have changed sides at a hypothesis add to that, at most.

    most (s,): no margin of a row of that stage has moved by more since.
    """
    found = np.zeros(len(far.at))
    for stage in range(len(far.at)):
        move = at - far.at[stage]
        if far.total_c[stage].any() and move.any():
            found[stage] = _crossed(far, objective, stage, move, float(most[stage]))
    return found


def _crossed(far: FarRows, objective: Objective, stage: int, move: Array, most: float) -> float:
    edges, least = far.edges[stage], float(far.least[stage])
    at, magnitudes = far.at[stage], objective.magnitudes
    error = gamma(len(at) + 2) * (magnitudes.reach(np.abs(at[:-1])) + abs(float(at[-1])) + 1.0)
    total_c = float(far.total_c[stage].sum())
    whatever = total_c * (most + 4.0 * error)  # no row has moved farther
    beyond = total_c * max(0.0, most + 4.0 * error - float(edges[-1]))  # rows beyond the last edge are in no ring
    nearest = np.maximum(edges[:-1], min(least, edges[-1])) * (1.0 - 8.0 / CLEAR) / most
    shares = np.where(nearest > 0.5, np.maximum(nearest * (1.0 - nearest), 0.0), 0.25)
    if least < CLEAR * error and shares[0] > 0:
        return whatever
    total = 0.0
    for k in np.flatnonzero(shares):
        weight, spread = float(far.ring_weight[stage, k]), float(far.ring_spread[stage, k])
        body, edge = magnitudes.curve_errors(weight, spread)
        square = max(0.0, float(move @ far.rings[stage, k] @ move)) + (body + 2.0 * edge) * float(move @ move)
        total += float(shares[k]) * square
    total *= 1.0 + 4.0 / CLEAR  # how far a row was away is known up to its rounding error, which is little
    return min(total + beyond, whatever)
