"""What a scan proves about the squared hinge at another hypothesis than its own, where its model is the objective.

Far rows are a quadratic around the scan's hypothesis. On a way so short that none of them reaches the margin this is
exact, and the dual bound of the model's minimiser holds before any scan has seen it. It is rounded down by what the
sums may be off, those in float32 too, and by what whoever checks it may lose once more.
"""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

import numpy as np
from numpy.typing import NDArray

from coremargin.maths import soft_margin as soft
from coremargin.maths.margin import gamma
from coremargin.problems.soft.bounds import slack_error
from coremargin.problems.soft.state import Bounds

if TYPE_CHECKING:
    from coremargin.maths.newton import Rows
    from coremargin.problems.soft.objective import Magnitudes, Objective
    from coremargin.problems.soft.state import SoftState
    from coremargin.problems.soft.summary import NearMarginSummary

Array = NDArray[np.float64]


def bound_ahead(
    objective: Objective, state: SoftState, summary: NearMarginSummary, rows: Rows, curve: Array, ahead: Array
) -> SoftState:
    """With the dual bound that ``ahead`` (d + 1,) suggests, where no far row is on another side there.

    rows: those near the margin, with margins at the newest hypothesis; curve (d + 1, d + 1): that of the far rows.
    """
    move = ahead - state.newest
    if not _short(objective.magnitudes, state.newest, move, float(summary.far_least[0])):
        return state
    before, slack = np.maximum(1.0 - rows.margins, 0.0), np.maximum(1.0 - rows.signed @ ahead, 0.0)
    share, length = 16.0 * objective.magnitudes.sum_error, objective.magnitudes.longest
    most = float(summary.slack.sum() + rows.weights @ slack) + float(summary.far_c[0]) * _way(length, move)
    loose = share * most * (length + 1.0)
    body, edge = objective.magnitudes.curve_errors(float(summary.far_c[0]), float(summary.far_spread[0]))
    moved = float(np.linalg.norm(move))
    off = loose + (body + 2.0 * edge) * moved
    total = float(summary.slack.sum() - rows.weights @ before - summary.far_linear @ move + rows.weights @ slack)
    squares = float(summary.far_value[0] - 2.0 * summary.far_slope @ move + move @ curve @ move)
    squares += float(rows.weights @ (slack * slack)) + off * moved + loose
    dual_sum = summary.far_slope - curve @ move + rows.signed.T @ (rows.weights * slack)
    total -= share * most
    if objective.intercept:  # each class has half of the total, up to what it lacks of balance
        lack = abs(float(dual_sum[-1])) + share * most + edge * moved
        total, off = 0.5 * (total - lack), off + length * lack
    if not total > 0.0:
        return state
    both = np.array([total, total if objective.intercept else 0.0])
    sums = both, np.array([squares, 0.0]), np.stack([dual_sum[:-1], np.zeros(len(dual_sum) - 1)])
    size = objective.magnitudes.reach(np.abs(ahead[:-1])) + abs(float(ahead[-1])) + 1.0
    otherwise = slack_error(size, float(summary.total_c.sum()), total)
    error = off / total + 2.0 * otherwise * length
    dual = soft.squared_hinge_dual(*sums, objective.metric[:-1], objective.intercept, error=error, share=share)
    dual *= max(0.0, 1.0 - otherwise)
    if not dual > state.lower:
        return state
    return replace(state, bounds=Bounds.at(ahead, state.upper, dual))


def _way(length: float, move: Array) -> float:
    """No margin of a row of at most this length changes by more."""
    return length * float(np.linalg.norm(move[:-1])) + abs(float(move[-1]))


def _short(magnitudes: Magnitudes, at: Array, move: Array, least: float) -> bool:
    """Whether no row whose margin is ``least`` or more away from 1 changes sides, margins being rounded."""
    size = magnitudes.reach(np.abs(at[:-1])) + abs(float(at[-1])) + 1.0
    change = min(_way(magnitudes.longest, move), magnitudes.reach(np.abs(move[:-1])) + abs(float(move[-1])))
    return change + 4.0 * gamma(len(at) + 8) * size < least
