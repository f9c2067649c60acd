"""When a pass of selective block minimisation is followed by a proof, as the dual's gains and earlier gaps say."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING

import numpy as np
from numpy.typing import NDArray

if TYPE_CHECKING:
    from coremargin.problems.soft.block_state import BlockPass

Array = NDArray[np.float64]

#: What is left after a pass, as a multiple of what the gains foretell for the dual alone, and what these shrink by a
#: pass at least and at most, or as long as nothing is known.
BOTH_SIDES, SHRINK = 3.0, (0.1, 0.8, 0.4)
MOST_WAIT = 5
#: After so many passes there is a proof, whatever it proves: a job that is stopped then has something to say.
MOST_UNPROVEN = 10


def is_due(block_pass: BlockPass, epsilon: float, *, proven: bool) -> bool:
    """After a pass: whether it is time for a proof. proven: there was one before."""
    gains = np.diff(block_pass.values, prepend=0.0)
    due = block_pass.waited >= block_pass.wait and len(gains) > 1
    if due and not proven:
        shrink = _shrink(gains)
        left = BOTH_SIDES * float(gains[-1]) * shrink / (1.0 - shrink)
        due = left <= epsilon * abs(block_pass.value) or len(gains) >= MOST_UNPROVEN
    return due


def passes_to_wait(block_pass: BlockPass, epsilon: float, before: float, gap: float) -> int:
    """How many passes will close the gap, as the gaps of the last two proofs or else the gains say."""
    shrink = max(_shrink(np.diff(block_pass.values, prepend=0.0)), SHRINK[2])
    if np.isfinite(before) and block_pass.waited:
        shrink = min(max((gap / before) ** (1.0 / block_pass.waited), SHRINK[0]), SHRINK[1])
    return min(max(1, math.ceil(math.log(max(gap / epsilon, 1.0)) / -math.log(shrink))), MOST_WAIT)


def _shrink(gains: Array) -> float:
    """The factor from the gain of one pass to that of the next."""
    low, high, unknown = SHRINK
    if len(gains) < 2 or not gains[-2] > 0:
        return unknown
    return min(max(float(gains[-1] / gains[-2]), low), high)
