"""Per-chunk statistics: what ingest counts so that later scans can skip, scale and sample."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np


@dataclass(frozen=True)
class ChunkStatistics:
    """One entry per chunk, in chunk order; all float64 unless noted.

    rows (c,) int64; counts (c, classes) int64 rows of each class code; unlabelled (c,) int64;
    centre (c, d): the mean row; radius (c,): max ||x - centre||, rounded up; max_norm (c,): max ||x||, rounded up;
    low, high (c, d): smallest and largest value of each feature; total, squares (c, d): sums of x and of x * x;
    digest (c,) uint64: crc32c of the rows' bytes in the high half, of the labels' bytes in the low half
    (little-endian, committed rows only, so that a chunk that grows keeps the proof of its older rows).
    """

    rows: np.ndarray
    counts: np.ndarray
    unlabelled: np.ndarray
    centre: np.ndarray
    radius: np.ndarray
    max_norm: np.ndarray
    low: np.ndarray
    high: np.ndarray
    total: np.ndarray
    squares: np.ndarray
    digest: np.ndarray
