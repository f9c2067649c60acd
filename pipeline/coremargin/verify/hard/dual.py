"""The upper bound of a hard margin: the distance that its coreset's combination by the dual weights leaves."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from coremargin.verify.checks import CLOSE, Check
from coremargin.verify.margins import bounded_above, overlap, uncancelled, weighed_length
from coremargin.verify.sums import combination, length, lift, normalised_weights

if TYPE_CHECKING:
    from coremargin.verify.claim import Claim


def dual(claim: Claim) -> tuple[float | None, list[Check]]:
    """The upper bound that the coreset proves, and whether the claimed one is at least that."""
    if claim.upper is None:
        return None, overlap(claim, None, 0.0)
    signs = (-1, 1) if claim.intercept else (0,)
    names = {-1: f"class {claim.negative!r}", 1: f"class {claim.positive!r}", 0: "the coreset"}
    groups = [claim.y == sign if sign else np.ones(len(claim.y), dtype=bool) for sign in signs]
    problems = []
    bad = np.flatnonzero(~(claim.alpha >= 0))
    if len(bad):
        row = int(claim.ids[bad[0]])
        problems.append(f"the weight of row {row} is {claim.alpha[bad[0]]:.6g}, expected a number >= 0")
    else:
        for sign, group in zip(signs, groups, strict=True):
            total = float(claim.alpha[group].sum())
            if not abs(total - 1) <= CLOSE:
                problems.append(f"the weights of {names[sign]} sum to {total:.12g}, expected 1")
    text = f"{len(claim.alpha):,} weights >= 0 that sum to 1"
    check = Check("dual weights", not problems, "; ".join(problems) or text)
    if problems:
        return None, [check, *overlap(claim, None, 0.0)]
    high, low = normalised_weights(claim.alpha, groups)
    share, lifted = 2 if claim.intercept else 1, lift(claim.x)
    found = length(combination(claim.x * lifted, high * claim.y, low * claim.y)) / lifted / share
    size = weighed_length(claim.x, high, centred=claim.intercept) / share
    text = f"{len(claim.alpha):,} coreset rows prove at most"
    left = overlap(claim, found, size)
    if left and left[0].ok:
        left += uncancelled(claim, claim.x, [(high * claim.y, low * claim.y)], high, centred=claim.intercept)
    return found, [check, bounded_above(claim.upper, found, text), *left]
