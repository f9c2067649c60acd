"""One read of a store in stages of growing size: which chunks belong to which stage.

The bounds that a scan finds for a chunk also prove later hypotheses, if they are near enough. So the store is read in
stages, each with the hypothesis of the stages before it: when most rows are read, it hardly moves any more. The first
stage is the sample. The stage of a chunk depends on the store and the sample only, and not on the order in which
results arrive, so that the result does not depend on it either.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

#: The ratio of the sizes of successive stages, with many rows per feature and with few: hypotheses move by about 1 /
#: (rows seen), and each stage needs a solve, which for few rows takes longer than reading them. 1e6 x 100 takes 12 %
#: longer at 2 than at 3, and 10 % longer at 10, which sends more rows; 3e5 x 300 14 % longer at 3 than at 6.
GROWTH, GROWTH_OF_FEW, MANY_ROWS = 3, 6, 3000
SLOW_GROWTH = 1.5
#: A last stage of less than this share of the one before is read with it.
LEAST_LAST = 0.25


@dataclass(frozen=True)
class Stages:
    """stage_of_chunk (c,): the stage in which each chunk is read, from 0."""

    stage_of_chunk: NDArray[np.int64]

    @property
    def count(self) -> int:
        """The number of stages."""
        return int(self.stage_of_chunk.max(initial=-1)) + 1

    @property
    def sizes(self) -> tuple[int, ...]:
        """The number of chunks of each stage."""
        return tuple(np.bincount(self.stage_of_chunk, minlength=self.count).tolist())

    def skipping(self, stage: int) -> NDArray[np.bool_]:
        """Mask (c,) of the chunks that a stage skips."""
        return np.asarray(self.stage_of_chunk != stage)

    def chunks(self, stage: int) -> NDArray[np.intp]:
        """The chunks of a stage, increasing."""
        return np.flatnonzero(self.stage_of_chunk == stage)

    def pace(self, stage: int) -> float:
        """Of the chunks read by the end of a stage, the share that the stage itself reads."""
        return float(np.count_nonzero(self.stage_of_chunk == stage) / np.count_nonzero(self.stage_of_chunk <= stage))


def scan_position(number: int, stage: int, stages: int, *, going_on: bool) -> dict[str, Any]:
    """Fields of a ``Round`` for the last of ``number`` probes: all stages together are the first scan."""
    if not stages:
        return {"number": number}
    if number > stages:
        return {"number": 1 + number - stages, "part": 0}
    if number == 0:
        return {"number": 0, "part": 0, "stage": 0, "stages": stages}
    return {"number": 1, "part": stage if going_on else 0, "stage": stage, "stages": stages}


def stage_growth(rows: int, features: int) -> int:
    """The ratio of the sizes of successive stages, for a store of this shape."""
    return GROWTH if rows >= MANY_ROWS * features else GROWTH_OF_FEW


def plan_stages(chunks: int, first: Sequence[int], growth: int = GROWTH, *, slowly: int = 0) -> Stages:
    """The stages of a store with this number of chunks; those in ``first`` are the first stage. ``slowly``: number of
    later stages that grow less.

    The other chunks follow in the order of their bit-reversed numbers, which spreads each stage over the store: stores
    are often sorted.
    """
    stage_of_chunk = np.full(chunks, -1)
    stage_of_chunk[np.asarray(first, np.intp)] = 0
    left = np.flatnonzero(stage_of_chunk < 0)
    left = left[np.argsort(_bits_reversed(left), kind="stable")]
    size, stage = _grown(max(1, len(first)), growth, slowly), 1
    while len(left):
        if len(left) - size < LEAST_LAST * size:
            size = len(left)
        stage_of_chunk[left[:size]] = stage
        left, size, stage = left[size:], _grown(size, growth, slowly - stage), stage + 1
    return Stages(stage_of_chunk)


def _grown(size: int, growth: int, slowly: int) -> int:
    return math.ceil(SLOW_GROWTH * size) if slowly > 0 else growth * size


def _bits_reversed(numbers: NDArray[np.intp]) -> NDArray[np.uint64]:
    """Each number's bits from the last to the first (van der Corput's sequence, scaled)."""
    given, found = numbers.astype(np.uint64), np.zeros(len(numbers), np.uint64)
    one = np.uint64(1)
    for _ in range(int(numbers.max(initial=0)).bit_length()):
        found, given = (found << one) | (given & one), given >> one
    return found
