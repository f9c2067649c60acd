"""What a search that goes on may be expected to come to: the last fall of its gap, drawn on.

The upper bound falls in steps, and each takes several times the work of the one before. So the fall of the last step,
counted from the work at the one before it to the work so far, is drawn on as a power of the work. It is a guess, said
to be one, and proves nothing; and it knows nothing of the target itself, whose tree may end before.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from coremargin.maths.outliers.search import Step

#: A step is a fall of the gap by at least this share.
STEP = 0.05
#: How many times the work so far the expectation is about.
AHEAD = 10


@dataclass(frozen=True)
class Outlook:
    """gap: of now, as a share of the upper bound; later: the one to expect after ``AHEAD`` times the work so far."""

    gap: float
    later: float


def outlook(steps: Sequence[Step], work: int) -> Outlook | None:
    """The expectation of a search whose bounds went these steps, and that has done so much work; None: too early."""
    falls: list[tuple[int, float]] = []
    for at, lower, upper in steps:
        gap = 1.0 - lower / upper if 0 < lower <= upper < math.inf else math.inf
        if math.isfinite(gap) and at > 0 and (not falls or gap <= (1 - STEP) * falls[-1][1]):
            falls.append((at, gap))
    if len(falls) < 2 or not falls[-1][1] > 0 or work <= falls[-2][0]:
        return None
    (before, wide), (_, narrow) = falls[-2:]
    slope = math.log(narrow / wide) / math.log(work / before)
    return Outlook(narrow, narrow * AHEAD**slope)
