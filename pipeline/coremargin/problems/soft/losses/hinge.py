"""The hinge: slack as it is."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np

from coremargin.maths.smooth import minimise_hinge
from coremargin.problems.soft.losses.loss import Array, Loss

if TYPE_CHECKING:
    from coremargin.maths.row_model import RowModel


@dataclass(frozen=True)
class Hinge(Loss):
    """max(0, 1 - m)."""

    word = "hinge"
    formula = "max(0, 1 \u2212 m)"
    curves = False
    names_duals = True
    solve_cost = 1.5e9
    crossed = 0.9  # where most of them did, others did, too

    def value(self, slack: Array) -> Array:
        """The slacks."""
        return slack

    def slack(self, value: float) -> float:
        """The value."""
        return value

    def slopes(self, slack: Array, row_c: Array) -> Array:
        """c."""
        return row_c

    def contradictions(self, margins: Array, duals: Array, row_c: Array) -> Array:
        """How far a margin is from 1, but for duals that are at their end on its side."""
        ahead = 1.0 - margins
        settled = ((duals == 0) & (ahead < 0)) | ((duals == row_c) & (ahead > 0))
        return np.where(settled, 0.0, np.abs(ahead))

    def dual_total(self, duals: Array, row_c: Array) -> float:
        """Their sum."""
        return float(duals.sum())

    def bends(self, row_c: Array) -> tuple[Array, Array]:
        """Of the smoothed hinge; c."""
        return row_c, row_c

    def lost(self, margin: float, value: float, row_c: float) -> float:
        """As each margin."""
        return margin * row_c

    def minimum(self, model: RowModel, near: Array, duals: Array | None, tolerance: float) -> tuple[Array, Array]:
        """With its duals."""
        return minimise_hinge(model, near, duals, tolerance)
