"""A soft margin of few rows: the value of its hypothesis over them, and the bound that its dual weights prove.

As in soft_margin.py, every row answered weighing 1; the dual weights of all rows are given one by one here, no others
have any. Any that are at least 0, and with hinge at most C, prove a bound, so those are taken that lie nearest to what
is given. With an intercept they have to balance: taking what is too much, M in all, from the heavier class costs M of
their sum, and adds R M at most to the length of the combination, R being the longest of the rows. Mapped rows are off
by m at most (feature_map.py): ||w|| m is part of the error of a margin, m times the sum of the weights of the length.
"""

from __future__ import annotations

import math
from typing import TYPE_CHECKING, Any

import numpy as np

from coremargin.verify.checks import Check
from coremargin.verify.soft_margin import LOSSES, margins_within
from coremargin.verify.sums import SLAB_ROWS, UNIT, combination, gamma, length, lift, rounded_sum, true_lengths

if TYPE_CHECKING:
    from coremargin.verify.active.claim import ActiveClaim
    from coremargin.verify.claim import Claim

_FEW = 16 * UNIT  # of a handful of operations


def losses(claim: ActiveClaim, plane: Claim, x: Any, lengths: np.ndarray, signs: np.ndarray) -> float:
    """At least the sum of the losses of answered rows x (n, d), n at most SLAB_ROWS, but for the error of the sum."""
    margins, error = margins_within(x, signs, lengths, plane.w, plane.b)
    error = error + claim.moved * length(plane.w) * (1 + gamma(8))  # of mapped rows
    slack = np.maximum(1.0 - margins + error, 0.0)
    return float(LOSSES[claim.loss].value(slack).sum())


def value(claim: ActiveClaim, plane: Claim, loss: float) -> float:
    """The value of a hypothesis, rounded up; loss: the sums of the losses of slabs."""
    size = length(plane.w)
    found = (0.5 * size * size + claim.cost * loss) * (1 + gamma(SLAB_ROWS + 16))
    return found if math.isfinite(found) else math.inf


def dual_bound(claim: ActiveClaim, plane: Claim) -> float:
    """The lower bound on all values from the dual weights, rounded down."""
    a = _within(claim, plane)
    move = abs(_imbalance(plane, a)) * (1 + _FEW)
    lifted, signed = lift(plane.x), a * plane.y
    v = length(combination(plane.x * lifted, signed, np.zeros_like(signed))) / lifted
    radius = float(true_lengths(plane.x).max(initial=0.0)) * (1 + gamma(plane.features + 4))
    moved = claim.moved * (rounded_sum(a.tolist()) + move) * (1 + _FEW)  # of mapped rows: of those that are weighed
    longest = v * (1 + _FEW) + radius * move + moved
    curve = LOSSES[claim.loss].conjugate(rounded_sum((a * a).tolist()), claim.cost) * (1 + _FEW)
    total, square = rounded_sum(a.tolist()), 0.5 * longest * longest
    found = total - move - curve - square - _FEW * (total + curve + square)
    return found if 0 < found < math.inf else 0.0  # no weights at all prove 0


def _within(claim: ActiveClaim, plane: Claim) -> np.ndarray:
    return np.asarray(np.clip(plane.alpha, 0.0, LOSSES[claim.loss].limit(claim.cost)))


def _imbalance(plane: Claim, a: np.ndarray) -> float:
    return rounded_sum((a * plane.y).tolist()) if plane.intercept else 0.0


def weights_check(claim: ActiveClaim, k: int) -> Check:
    """Check the ranges and sums of the dual weights."""
    plane, prefix = claim.planes[k], claim.prefix(k)
    if plane.lower is None or plane.lower <= 0:
        return Check("dual weights", ok=True, text=f"{prefix}none are needed: no value is below 0")
    most = LOSSES[claim.loss].limit(claim.cost)
    bad, problems = np.flatnonzero(~((plane.alpha >= 0) & (plane.alpha <= most * (1 + _FEW)))), []
    if len(bad):
        text = f"the weight of row {plane.ids[bad[0]]} is {plane.alpha[bad[0]]:.12g}, expected from 0 to {most:.12g}"
        problems.append(text)
    apart, total = _imbalance(plane, plane.alpha), rounded_sum(np.abs(plane.alpha).tolist())
    if not abs(apart) <= 1e-9 * total:
        problems.append(f"the weights of both sides differ by {apart:.6g} of {total:.6g}, expected 0")
    text = f"{len(plane.alpha):,} weights from 0 to {most:g}{', in balance' * plane.intercept}"
    return Check("dual weights", not problems, prefix + ("; ".join(problems) or text))
