"""A forecast of the gap of a running search.

The upper bound falls in steps, and each takes several times the work of the one before. The last fall, from the work at
the step before it to the work so far, is extrapolated as a power of the work. This is an estimate and proves nothing;
it does not know the target, whose tree may end earlier.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from coremargin.maths.outliers.search import TraceEntry

#: A step is a fall of the gap by at least this share.
STEP = 0.05
#: The forecast is for this multiple of the work so far.
AHEAD = 10


@dataclass(frozen=True)
class GapForecast:
    """gap: the current one, as a share of the upper bound; later: the one expected after ``AHEAD`` times the work."""

    gap: float
    later: float


def forecast_gap(trace: Sequence[TraceEntry], work: int) -> GapForecast | None:
    """Forecast the gap of a search from its trace and the work so far; None when it is too early."""
    falls: list[tuple[int, float]] = []
    for at, lower, upper in trace:
        gap = 1.0 - lower / upper if 0 < lower <= upper < math.inf else math.inf
        if math.isfinite(gap) and at > 0 and (not falls or gap <= (1 - STEP) * falls[-1][1]):
            falls.append((at, gap))
    if len(falls) < 2 or not falls[-1][1] > 0 or work <= falls[-2][0]:
        return None
    (before, wide), (_, narrow) = falls[-2:]
    slope = math.log(narrow / wide) / math.log(work / before)
    return GapForecast(narrow, narrow * AHEAD**slope)
