"""The longest row of a store, whatever the labels; rows of weight 0 do not count.

One scan finds it. Lengths are computed in float64; the lower bound is rounded down, the upper one up.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from coremargin.engine.problem import BaseProblem, CannotWarmStart, Round
from coremargin.errors import StoreError
from coremargin.maths.margin import gamma, is_certified
from coremargin.maths.rows import lengths
from coremargin.problems.common.classes import check_scale
from coremargin.problems.common.state_arrays import state_from_arrays, state_to_arrays

if TYPE_CHECKING:
    from coremargin.data.difference import Difference
    from coremargin.data.source import Source
    from coremargin.engine.allowance import Allowance
    from coremargin.engine.protocols import Block

STATUSES = ("running", "certified", "stalled")


@dataclass(frozen=True)
class Longest:
    """The longest row of some chunks: its id (1,) and its length (1,), or none (0,)."""

    ids: NDArray[np.int64]
    lengths: NDArray[np.float64]

    def merge(self, later: Longest) -> Longest:
        """That of these chunks and of later ones; of equal ones the first."""
        every = Longest(np.append(self.ids, later.ids), np.append(self.lengths, later.lengths))
        best = np.argsort(-every.lengths, kind="stable")[:1]
        return Longest(every.ids[best], every.lengths[best])

    def to_arrays(self) -> dict[str, NDArray[Any]]:
        """For checkpoints."""
        return state_to_arrays(self)


@dataclass(frozen=True)
class LengthProbe:
    """Which row is the longest?"""

    def narrow(self, block: Block) -> LengthProbe:
        """The same for all blocks."""
        return self

    def __call__(self, source: Source, block: Block) -> Longest:
        """The longest row of a block."""
        found = self.empty()
        for chunk in block.chunks:
            long, weights = lengths(source.read(chunk)[0]), source.weights(chunk)
            counted = np.arange(len(long)) if weights is None else np.flatnonzero(weights > 0)
            found = found.merge(Longest(source.span(chunk)[0] + counted, long[counted]))
        return found

    def empty(self) -> Longest:
        """No row."""
        return Longest(np.zeros(0, np.int64), np.zeros(0))

    def from_arrays(self, arrays: Mapping[str, NDArray[Any]]) -> Longest:
        """Inverse of ``Longest.to_arrays``."""
        return Longest(**state_from_arrays(Longest, arrays, {}))


@dataclass(frozen=True)
class LongestState:
    """The row so far; known_chunks: so many chunks need not be read."""

    round: int
    status: str
    ids: NDArray[np.int64]
    lengths: NDArray[np.float64]
    lower: float
    upper: float
    known_chunks: int = 0
    sample_bytes: int = 0

    def to_arrays(self) -> dict[str, NDArray[Any]]:
        """For checkpoints."""
        return state_to_arrays(self, STATUSES)


@dataclass(frozen=True)
class LongestRow(BaseProblem[LongestState, Longest]):
    """The longest row; two scans, so that a job can be stopped between them."""

    epsilon: float

    @property
    def sample_chunks(self) -> list[int]:
        """The first one."""
        return [0]

    def check(self) -> None:
        """Refuse a store without rows, and rows whose squares overflow. Raises StoreError, BadRow."""
        if self.source.rows == 0:
            raise StoreError(f"{self.source.name}: expected rows, found an empty store; ingest some first")
        check_scale(self.source)

    def unsolved(self) -> LongestState:
        """No row is known."""
        nothing = LengthProbe().empty()
        return LongestState(0, "running", nothing.ids, nothing.lengths, 0.0, np.inf)

    def start(self) -> LongestState:
        """The same."""
        return self.unsolved()

    def probe(self, state: LongestState) -> LengthProbe:
        """The same in all scans."""
        return LengthProbe()

    def skip(self, state: LongestState) -> NDArray[np.bool_]:
        """Chunks whose longest row is known."""
        return np.arange(self.source.chunks) < state.known_chunks

    def update(self, state: LongestState, summary: Longest) -> LongestState:
        """Bounds after a scan; the second one proves it."""
        found = Longest(state.ids, state.lengths).merge(summary)
        state = replace(state, round=state.round + 1, ids=found.ids, lengths=found.lengths)
        if not len(found.ids):
            return replace(state, status="stalled")
        room = 4 * gamma(self.source.features + 16)
        state = replace(state, lower=float(found.lengths[0]) * (1 - room))
        if state.round < 2 and not state.known_chunks:
            return state
        state = replace(state, upper=float(found.lengths[0]) * (1 + room))
        certified = is_certified(state.lower, state.upper, self.epsilon)
        return replace(state, status="certified" if certified else "stalled")

    def round_of(self, state: LongestState) -> Round:
        """The report of a round."""
        one = len(state.ids)
        return Round(
            number=state.round,
            status=state.status,
            lower=state.lower,
            lower_now=state.lower,
            upper=state.upper,
            working_set_rows=one,
            coreset_rows=one,
            new_rows=one,
        )

    def restore(self, arrays: Mapping[str, NDArray[Any]]) -> LongestState:
        """A state from a checkpoint."""
        return LongestState(**state_from_arrays(LongestState, arrays, {}, STATUSES))

    def warm_start_state(self, state: LongestState, allowance: Allowance) -> Mapping[str, Any]:
        """All of the state."""
        return state.to_arrays()

    def warm_start(self, arrays: Mapping[str, Any], difference: Difference) -> LongestState:
        """Only chunks with appended rows are read."""
        old = self.restore(arrays)
        if not np.array_equal(difference.weights_before > 0, difference.weights_after > 0):
            raise CannotWarmStart("rows were removed or returned")
        known = difference.before // self.source.chunk_rows
        return replace(old, round=0, status="running", upper=np.inf, known_chunks=known, sample_bytes=difference.nbytes)
