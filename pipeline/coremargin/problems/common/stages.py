"""One read of a store in stages of growing size: which chunk is read in which.

What a scan learns about a chunk proves later hypotheses too, if they lie near enough. So the read of a store is made in
stages, each asked with the hypothesis of those before it: by the time that most rows are read it hardly moves any
more. The first stage is the sample. The stage of a chunk depends on the store and on the sample only, never on what
arrives when, so that the bits of a result do not either.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

#: How many times as large as the stage before a stage is, of many rows per feature and of few: hypotheses move about as
#: 1 / (rows seen), and each stage needs a solve, which for few rows takes longer than reading them. Measured: 1e6 x 100
#: at 2 takes 12 % more than at 3, and at 10 sends so many rows that it takes 10 % more; 3e5 x 300 at 3 takes 14 % more
#: than at 6.
GROWTH, GROWTH_OF_FEW, MANY_ROWS = 3, 6, 3000
SLOW_GROWTH = 1.5
#: A last stage of less than this share of the one before is read with it.
LEAST_LAST = 0.25


@dataclass(frozen=True)
class Stages:
    """of (c,): the stage in which each chunk is read, from 0."""

    of: NDArray[np.int64]

    @property
    def count(self) -> int:
        """How many there are."""
        return int(self.of.max(initial=-1)) + 1

    @property
    def sizes(self) -> tuple[int, ...]:
        """How many chunks each has."""
        return tuple(np.bincount(self.of, minlength=self.count).tolist())

    def skipping(self, stage: int) -> NDArray[np.bool_]:
        """The chunks (c,) that a stage leaves out."""
        return np.asarray(self.of != stage)

    def chunks(self, stage: int) -> NDArray[np.intp]:
        """The chunks of a stage, increasing."""
        return np.flatnonzero(self.of == stage)

    def pace(self, stage: int) -> float:
        """The share of the chunks read by the end of a stage that were read in it."""
        return float(np.count_nonzero(self.of == stage) / np.count_nonzero(self.of <= stage))


def place_of(number: int, stage: int, stages: int, *, going_on: bool) -> dict[str, Any]:
    """Which scan the last of so many questions was, for a ``Round``: those of ``stages`` are one scan, the first."""
    if not stages:
        return {"number": number}
    if number > stages:
        return {"number": 1 + number - stages, "part": 0}
    if number == 0:
        return {"number": 0, "part": 0, "stage": 0, "stages": stages}
    return {"number": 1, "part": stage if going_on else 0, "stage": stage, "stages": stages}


def growth_of(rows: int, features: int) -> int:
    """How many times as large as the stage before a stage of a store of this shape is."""
    return GROWTH if rows >= MANY_ROWS * features else GROWTH_OF_FEW


def stages_of(chunks: int, first: Sequence[int], growth: int = GROWTH, *, slowly: int = 0) -> Stages:
    """The stages of a store of so many chunks, of which those in ``first`` are read first; ``slowly`` more grow less.

    The others are dealt out in the order of their bit-reversed numbers, which spreads each stage over the store: stores
    are often sorted.
    """
    of = np.full(chunks, -1)
    of[np.asarray(first, np.intp)] = 0
    left = np.flatnonzero(of < 0)
    left = left[np.argsort(_bits_reversed(left), kind="stable")]
    size, stage = _grown(max(1, len(first)), growth, slowly), 1
    while len(left):
        if len(left) - size < LEAST_LAST * size:
            size = len(left)
        of[left[:size]] = stage
        left, size, stage = left[size:], _grown(size, growth, slowly - stage), stage + 1
    return Stages(of)


def _grown(size: int, growth: int, slowly: int) -> int:
    return math.ceil(SLOW_GROWTH * size) if slowly > 0 else growth * size


def _bits_reversed(numbers: NDArray[np.intp]) -> NDArray[np.uint64]:
    """Each number's bits from the last to the first (van der Corput's sequence, scaled)."""
    given, found = numbers.astype(np.uint64), np.zeros(len(numbers), np.uint64)
    one = np.uint64(1)
    for _ in range(int(numbers.max(initial=0)).bit_length()):
        found, given = (found << one) | (given & one), given >> one
    return found
