"""The squared hinge."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np

from coremargin.maths.smooth import minimise_squared_hinge
from coremargin.problems.soft.losses.loss import Array, Loss

if TYPE_CHECKING:
    from coremargin.maths.row_model import RowModel


@dataclass(frozen=True)
class SquaredHinge(Loss):
    """max(0, 1 - m)^2: the best dual of a row is 2 c times its slack."""

    word = "squared_hinge"
    formula = "max(0, 1 \u2212 m)\u00b2"
    curves = True
    names_duals = False
    solve_cost = 5e9
    crossed = -1.0  # whatever the share is: steps out of a small zone lead too far

    def value(self, slack: Array) -> Array:
        """Squares."""
        return slack * slack

    def slack(self, value: float) -> float:
        """The root."""
        return math.sqrt(value)

    def slopes(self, slack: Array, row_c: Array) -> Array:
        """2 c times the slack."""
        return np.asarray(2.0 * row_c * slack)

    def contradictions(self, margins: Array, duals: Array, row_c: Array) -> Array:
        """How far the slack is from that of the dual; duals have no upper end."""
        ahead = 1.0 - margins - duals / (2.0 * row_c)
        return np.where((duals == 0) & (ahead < 0), 0.0, np.abs(ahead))

    def dual_total(self, duals: Array, row_c: Array) -> float:
        """Sum of a - a^2 / (4 c)."""
        return float(duals.sum() - 0.25 * duals @ (duals / row_c))

    def bends(self, row_c: Array) -> tuple[Array, Array]:
        """2 c; none."""
        return 2.0 * row_c, np.full(len(row_c), np.inf)

    def lost(self, margin: float, value: float, row_c: float) -> float:
        """By Cauchy and Schwarz, with the square of the error."""
        return 2.0 * margin * float(np.sqrt(row_c * max(value, 0.0))) + margin * margin * row_c

    def minimum(self, model: RowModel, near: Array, duals: Array | None, tolerance: float) -> tuple[Array, Array]:
        """By Newton's method; duals follow from it."""
        return minimise_squared_hinge(model, near, tolerance), np.zeros(len(model.signs))
