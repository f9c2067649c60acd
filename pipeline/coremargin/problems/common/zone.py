"""The zone near the margin: how many rows a scan sends, when it sends more, and when the job ends.

The driver's model is exact while no row beyond the zone changes sides. If a step was too long for that, or gained
little, the next scan has a wider zone. If memory limits the zone, the next scan may repeat the best hypothesis.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np
from numpy.typing import NDArray

from coremargin.problems.common.result import STOPPED

if TYPE_CHECKING:
    from coremargin.data.source import Source

Array = NDArray[np.float64]

#: Reasons for the end of a job about a value, by status.
REASONS = STOPPED | {
    "stalled": "more scans would not narrow the gap, more memory may; where features or weights are many powers of "
    "ten apart float64 is at its end: scale the features, or use weights and a C that differ less from 1"
}

#: A zone is widened when the gap fell by less than the factor SLOW, up to MOST_WIDE times its first width.
SLOW, MOST_WIDE = 3.0, 64
#: A job ends after IDLE_SCANS scans in a row that each left more than IDLE_SHARE of the gap.
IDLE_SCANS, IDLE_SHARE = 8, 0.9


@dataclass(frozen=True)
class NearRows:
    """The number of rows, of ``row_bytes`` each, that a scan sends.

    share: of all rows, for a zone that is not widened; inf: as many as fit. least, most: limits in bytes. grows: False
    if a wider zone has the same share.
    """

    source: Source
    row_bytes: int
    share: float
    least: int
    most: float
    grows: bool = True

    def of_chunk(self, widen: int) -> int:
        """The number of rows of each chunk, for a zone ``widen`` times as wide as at first."""
        share = self.share * widen if self.grows else self.share
        size = min(max(share * self.source.rows * self.row_bytes, self.least), self.most)
        return min(self.source.chunk_rows, max(1, int(size / self.row_bytes / self.source.chunks)))

    def capped(self, widen: int) -> bool:
        """Whether a wider zone would have no more rows."""
        return self.of_chunk(2 * widen) == self.of_chunk(widen)


@dataclass(frozen=True)
class Progress:
    """The gain of a scan and the step after it.

    gaps: before and after. values: upper bounds before and after. rose: the hypothesis of the scan was worse than the
    best one before. same: the step did not change the hypothesis.
    """

    gaps: tuple[float, float]
    values: tuple[float, float]
    rose: bool
    same: bool

    def gained(self, epsilon: float) -> bool:
        """Whether the gain is enough to continue; infinite sums, after an overflow, are no gain, and end the job."""
        narrower = self.gaps[1] <= IDLE_SHARE * self.gaps[0]
        better = self.values[1] <= (1.0 - 0.1 * epsilon) * self.values[0]
        return bool((narrower or better) and np.isfinite(self.gaps[1]))


@dataclass(frozen=True)
class Zone:
    """widen: factor of the zone's first width; idle: number of scans in a row that hardly narrowed the gap."""

    widen: int
    idle: int

    def after(self, found: Progress, epsilon: float) -> Zone:
        """The zone of the next scan."""
        idle = 0 if found.gained(epsilon) else self.idle + 1
        slow = found.rose or found.gaps[1] * SLOW > found.gaps[0]
        widen = self.widen * (8 if found.same else 2) if found.same or slow else self.widen
        return Zone(min(widen, MOST_WIDE), idle)

    def stuck(self, found: Progress, epsilon: float, rows: NearRows) -> bool:
        """Whether further scans would gain nothing: too many were idle, or no wider zone has more rows."""
        if self.after(found, epsilon).idle >= IDLE_SCANS:
            return True
        return found.same and rows.of_chunk(MOST_WIDE) <= rows.of_chunk(self.widen)


def has_moved(newest: Array, best: Array | None) -> bool:
    """Whether the newest hypothesis differs from the best one so far, if there is one."""
    return best is not None and not np.array_equal(best, newest)


def smallest_positions(values: Array, keep: int) -> NDArray[np.intp]:
    """Positions (increasing) of the ``keep`` smallest values, ties by position."""
    if len(values) <= keep:
        return np.arange(len(values))
    cut = np.partition(values, keep - 1)[keep - 1] if keep else -np.inf
    certain = np.flatnonzero(values < cut)
    ties = np.flatnonzero(values == cut)[: keep - len(certain)]
    return np.sort(np.concatenate([certain, ties]))
