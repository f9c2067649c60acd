"""The first read with the squared hinge: its model, which stages are read again, and the best of its dual points.

The model counts rows that lost at the hypothesis of their stage by their curve, others as nothing, and those near the
margin as they are. What it proves, squared_bounds.py says.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

import numpy as np
from numpy.typing import NDArray

from coremargin.maths import soft_margin as soft
from coremargin.maths.newton import SMALL, Quadratic, Rows, minimise_squared_hinge
from coremargin.maths.rows import curvature, signed_points, weighted_sum
from coremargin.problems.soft.first_read import FirstRead
from coremargin.problems.soft.probe import tiled_curve
from coremargin.problems.soft.squared_bounds import Known, Missing, losing_curves
from coremargin.problems.soft.state import Bounds
from coremargin.problems.soft.steps import signed

if TYPE_CHECKING:
    from coremargin.problems.soft.rows_with_c import RowsWithC
    from coremargin.problems.soft.state import Reading, SoftState

Array = NDArray[np.float64]

#: Of the gap that is asked for, what solutions on the way may leave.
ON_THE_WAY = 1e-3
#: Rows at home that are farther from the margin than so many times their expected move keep to their sides while the
#: others are solved: the minimiser is then that of nearly the model, and what is proven of it is proven of all rows.
PARKED = 2.5
#: Ramps to choose from.
RAMPS = (0.0625, 0.125, 0.18, 0.25, 0.35, 0.5, 0.7, 1.0)
#: Rows at home of more slack than this count as if they had no more in the curve of a correction.
NEAR = 0.25
#: Stages are read again where that is expected to leave this share of the gap that is asked for.
ENOUGH = 0.8


@dataclass(frozen=True)
class SquaredRead(FirstRead):
    """``FirstRead`` with the squared hinge."""

    #: Measured on 1e6 x 100 with 2, 5 and 10 % noise: gaps of 9.2e-4, 2.4e-4 and 6.2e-5.
    NEAR_SHARE = 0.12
    BEYOND = np.array([0.125, 0.25, 0.5, 1.0])

    def minimum(self, reading: Reading, near: Array, sample: RowsWithC, *, last: bool) -> tuple[Array, Array]:
        """As ``FirstRead`` has it; all duals follow from hypotheses."""
        home, far, objective = reading.home, reading.far, self.objective
        seen = float(far.total_c.sum())
        scale = 1.0 if last or not seen else float(self.total_c.sum()) / seen  # those that were seen stand for all
        margins, curves = home.margins(near), losing_curves(far)
        live = np.abs(margins - 1.0) < PARKED * reading.spread
        losing = np.flatnonzero(~live & (margins < 1.0))
        parked = home.take(losing)
        slopes = objective.loss.slopes(1.0 - margins[losing], parked.row_c) * parked.signs
        slope = -far.dual_sum.sum(axis=(0, 1)) + 2.0 * np.einsum("sij,sj->i", curves, near - far.at)
        slope -= np.append(weighted_sum(parked.rows, slopes), slopes.sum())
        curve = curves.sum(axis=0) + tiled_curve(parked.rows, parked.row_c)[0]
        if not objective.intercept:
            slope[-1], curve[-1], curve[:, -1] = 0.0, 0.0, 0.0
        some = home.take(np.flatnonzero(live))
        rows = Rows(signed(some.rows, some.signs, objective.intercept), scale * some.row_c, margins[live])
        quadratic = Quadratic(0.0, scale * slope, scale * curve)
        tolerance = SMALL if last else ON_THE_WAY * objective.epsilon
        return minimise_squared_hinge(near, objective.metric, quadratic, rows, tolerance=tolerance)[0], np.zeros(0)

    def losses(self, reading: Reading, at: Array) -> float:
        """Of those that lose, by their curves."""
        known = self._known(reading, at)
        return known.losses + known.error

    def crossed(self, reading: Reading, at: Array) -> Array:
        """Of those that do not."""
        return np.asarray(self._known(reading, at).excess[:, 1].sum(axis=1))

    def left_open(self, reading: Reading, at: Array) -> Array:
        """Of both: those that lose are missing in the dual."""
        return np.asarray(self._known(reading, at).excess.sum(axis=(1, 2)))

    def _known(self, reading: Reading, at: Array) -> Known:
        return Known(self.objective, reading.far, at, self.moved(reading, at))

    def with_dual(self, state: SoftState, reading: Reading, duals: Array) -> SoftState:
        """Of the point that is corrected at the newest hypothesis, by the best ramp."""
        none = np.zeros(len(reading.again), bool)
        dual, ramp = self._dual(reading, state.newest, self._known(reading, state.newest), none)
        if not dual > state.lower:
            return state
        return replace(state, bounds=replace(Bounds.at(state.newest, state.upper, dual), ramp=ramp))

    def loosest(self, state: SoftState, reading: Reading) -> Reading | None:
        """As ``FirstRead`` has it: those of most excess by row, as few as are expected to be enough."""
        known, at = self._known(reading, state.newest), state.newest
        there = np.unique(reading.of)
        chunks = np.bincount(reading.of, minlength=len(reading.again))[there]
        order = there[np.argsort(-known.excess.sum(axis=(1, 2))[there] / chunks, kind="stable")]
        again = np.zeros(len(reading.again), bool)
        for stage in order[:-1]:
            again[stage] = True
            value = self.value(reading, at) - float(known.excess[again, 1].sum())
            if value - self._dual(reading, at, known, again)[0] <= ENOUGH * self.objective.epsilon * value:
                return replace(reading, again=again)
        return None

    def _dual(self, reading: Reading, at: Array, known: Known, settled: NDArray[np.bool_]) -> tuple[float, float]:
        """The largest dual bound of a hypothesis and its ramp; 0, 0 if no ramp leads to one.

        settled (s,): stages that are taken for exact.
        """
        home, objective = reading.home, self.objective
        slack = np.maximum(1.0 - home.margins(at), 0.0)
        excess = np.where(settled[:, None, None], 0.0, known.excess)
        losses = known.losses - known.error + float(home.row_c @ (slack * slack))
        least = soft.penalty(at, objective.metric) + losses - float(excess[:, 0].sum())
        gradient = objective.metric * at + known.gradient
        slopes = objective.loss.slopes(slack, home.row_c)
        gradient -= np.append(weighted_sum(home.rows, slopes * home.signs), slopes @ home.signs)
        magnitudes = objective.magnitudes
        error = known.gradient_error + 32.0 * magnitudes.sum_error * (magnitudes.longest + 1.0) * float(slopes.sum())
        few = home.take(np.flatnonzero(slack))  # less than their curve, but one matrix for all ramps
        points = signed_points(few.rows, np.ones(len(few), np.int8), 1.0)
        near = 2.0 * (1.0 - 1e-9) * curvature(points, few.row_c * np.minimum(slack[slack > 0], NEAR))
        best = 0.0, 0.0
        for ramp in RAMPS:
            curve = near / max(ramp, NEAR) + known.curve_at_least(ramp, settled)
            missing = Missing(objective, at, gradient, error, curve, excess, known.far)
            dual = missing.dual(least, ramp, float(self.total_c.sum()))
            best = max(best, (dual, ramp))
        return best
