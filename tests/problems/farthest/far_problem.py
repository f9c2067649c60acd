"""A throw-away problem: the longest row, proven by a scan of all."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

import numpy as np

from coremargin.engine.problem import BaseProblem, Round
from coremargin.maths.margin import gamma
from coremargin.maths.rows import lengths
from coremargin.problems.common.state_arrays import state_from_arrays, state_to_arrays

if TYPE_CHECKING:
    from coremargin.data.source import Source
    from coremargin.engine.protocols import Block

STATUSES = ("running", "certified")


@dataclass(frozen=True)
class Longest:
    """The longest row of some: its length and id; the first of equal ones."""

    length: float
    id: int

    def merge(self, later: Longest) -> Longest:
        """Of these and later ones."""
        return later if later.length > self.length else self

    def to_arrays(self) -> dict[str, np.ndarray]:
        """For checkpoints."""
        return {"length": np.array(self.length), "id": np.array(self.id)}


@dataclass(frozen=True)
class FarthestProbe:
    """How long is the longest row of a block?"""

    def narrow(self, block: Block) -> FarthestProbe:
        """The same for all."""
        return self

    def __call__(self, source: Source, block: Block) -> Longest:
        """Answer for one block."""
        found = self.empty()
        for chunk in block.chunks:
            sizes = lengths(source.read(chunk)[0].astype(np.float64))
            row = int(np.argmax(sizes))
            found = found.merge(Longest(float(sizes[row]), source.span(chunk)[0] + row))
        return found

    def empty(self) -> Longest:
        """No row is shorter than this."""
        return Longest(-1.0, 0)

    def from_arrays(self, arrays: Mapping[str, np.ndarray]) -> Longest:
        """Inverse of ``Longest.to_arrays``."""
        return Longest(float(arrays["length"]), int(arrays["id"]))


@dataclass(frozen=True)
class FarthestState:
    """lower: of the length of row ``id``; upper: of those of all rows; both infinite before the scan."""

    round: int
    status: str
    lower: float
    upper: float
    id: int
    sample_bytes: int

    def to_arrays(self) -> dict[str, np.ndarray]:
        """For checkpoints."""
        return state_to_arrays(self, STATUSES)


@dataclass(frozen=True)
class FarthestRow(BaseProblem[FarthestState, Longest]):
    """Which row is the longest?"""

    @property
    def sample_chunks(self) -> list[int]:
        """The first one."""
        return [0]

    def check(self) -> None:
        """Any rows will do."""

    def start(self) -> FarthestState:
        """The longest row of the first chunk."""
        from coremargin.engine.protocols import Block

        found = FarthestProbe()(self.source, Block(0, (0,)))
        read = self.source.nbytes // self.source.chunks
        return FarthestState(0, "running", -np.inf, np.inf, found.id, read)

    def unsolved(self) -> FarthestState:
        """That of the start, which solves nothing."""
        return self.start()

    def probe(self, state: FarthestState) -> FarthestProbe:
        """The only question."""
        return FarthestProbe()

    def update(self, state: FarthestState, summary: Longest) -> FarthestState:
        """After a scan everything is known, but for the rounding of the lengths: it goes outward."""
        room = gamma(self.source.features + 3)
        lower, upper = (math.nextafter(summary.length * (1 + room * way), math.inf * way) for way in (-1, 1))
        return replace(state, round=state.round + 1, status="certified", lower=lower, upper=upper, id=summary.id)

    def round_of(self, state: FarthestState) -> Round:
        """What is told of a state."""
        return Round(
            number=state.round, status=state.status, lower=state.lower, lower_now=state.lower, upper=state.upper,
            pool_rows=1, coreset_rows=1, new_rows=1,
        )  # fmt: skip

    def restore(self, arrays: Mapping[str, np.ndarray]) -> FarthestState:
        """A state from a checkpoint."""
        return FarthestState(**state_from_arrays(FarthestState, arrays, {}, STATUSES))
