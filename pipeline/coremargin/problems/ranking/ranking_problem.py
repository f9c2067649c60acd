"""Rankings by cutting planes: every scan sums up the pairs at one hypothesis, and adds a cut.

maths/structures/pairs.py has the objective P, the cuts and the dual value D. After a scan at w, P(w) is known and a cut
is made there; the next w is sum a s of the best weights of all cuts so far (Joachims 2006). Groups are whole in a block
of rows, so that a summary has one vector, whatever the number of pairs.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from functools import cached_property
from typing import TYPE_CHECKING, Any, Literal

import numpy as np
from numpy.typing import NDArray

from coremargin.data.group_parts import group_parts, groups_of
from coremargin.engine.problem import BaseProblem, Round
from coremargin.errors import LabelError, UsageError
from coremargin.maths.margin import gamma, is_certified
from coremargin.maths.structures.pairs import pair_sums, weigh_cuts
from coremargin.problems.common.classes import check_scale, class_codes, class_index, class_weights, mask_zero_weights
from coremargin.problems.common.result import STOPPED
from coremargin.problems.common.state_arrays import state_from_arrays, state_to_arrays
from coremargin.spec import format_size

if TYPE_CHECKING:
    from coremargin.data.source import Source
    from coremargin.engine.protocols import Block

Array = NDArray[np.float64]
Status = Literal["running", "certified", "stalled", "unfinished"]
STATUSES: tuple[Status, ...] = ("running", "certified", "stalled", "unfinished")

#: The job ends after so many cuts without a proof.
MOST_CUTS = 500
#: Cuts that most jobs need; the memory has to hold two vectors of each.
CUTS = 30
#: The weights of cuts are within this share of epsilon of the best.
WEIGHED = 0.05


@dataclass(frozen=True)
class RankingSummary:
    """Sums over the groups of some blocks, as ``PairSums`` has them: numbers (4,) loss, count, doubtful, reach."""

    numbers: Array
    direction: Array

    def merge(self, later: RankingSummary) -> RankingSummary:
        """The summary of both."""
        return RankingSummary(self.numbers + later.numbers, self.direction + later.direction)

    def to_arrays(self) -> dict[str, NDArray[Any]]:
        """Plain arrays for checkpoints."""
        return state_to_arrays(self)


@dataclass(frozen=True)
class RankingProbe:
    """The sums over pairs at w (d,); level: of each label code, -1 for rows without a label."""

    w: Array
    level: NDArray[np.int32]

    def narrow(self, block: Block) -> RankingProbe:
        """The same for all blocks."""
        return self

    def empty(self) -> RankingSummary:
        """No pairs."""
        return RankingSummary(np.zeros(4), np.zeros(len(self.w)))

    def from_arrays(self, arrays: Mapping[str, NDArray[Any]]) -> RankingSummary:
        """A summary from a checkpoint."""
        return RankingSummary(**state_from_arrays(RankingSummary, arrays, {}))

    def __call__(self, source: Source, block: Block) -> RankingSummary:
        """The summary of the groups that begin in one block."""
        found = self.empty()
        for part in group_parts(source, block.chunks):
            levels = self.level[mask_zero_weights(part.codes, part.weights)]
            groups = np.repeat(np.arange(len(part.offsets) - 1), np.diff(part.offsets))
            mine = np.flatnonzero(levels >= 0)
            weights = np.ones(len(mine)) if part.weights is None else part.weights[mine]
            sums = pair_sums(part.rows[mine].astype(np.float64), levels[mine], groups[mine], weights, self.w)
            numbers = np.array([sums.loss, sums.count, sums.doubtful, sums.reach])
            found = found.merge(RankingSummary(numbers, sums.direction))
        return found


@dataclass(frozen=True)
class RankingState:
    """The state between two scans.

    lower, upper: of the value. w (d,): of the next scan. best (d,): that with the value ``upper``, None at first.
    points (k, d): where cuts were made; counts, doubtful, reach (k,) and directions (k, d): of the cuts, as in
    ``PairSums``; weights (k,): a.
    """

    round: int
    status: Status
    w: Array
    best: Array | None
    lower: float
    upper: float
    points: Array
    counts: Array
    directions: Array
    doubtful: Array
    reach: Array
    weights: Array
    sample_bytes: int = 0

    def to_arrays(self) -> dict[str, NDArray[Any]]:
        """Plain arrays, exact."""
        return state_to_arrays(self, STATUSES)


@dataclass(frozen=True)
class RankingProblem(BaseProblem[RankingState, RankingSummary]):
    """Minimise P until the gap between both bounds is at most epsilon of its value; C: of the loss."""

    epsilon: float
    C: float
    memory_bytes: int = 256 << 20

    @cached_property
    def codes(self) -> tuple[int, ...]:
        """Label codes from the lowest level to the highest. Raises StoreError, LabelError."""
        words = [label for label in self.source.classes if isinstance(label, str)]
        if words:
            raise LabelError(
                f"{self.source.name}: expected labels that are numbers, the higher the better, found {words[0]!r}; "
                "ingest a column of numbers as labels"
            )
        return class_codes(self.source)

    @property
    def sample_chunks(self) -> list[int]:
        """None: the first scan is at 0."""
        return []

    def check(self) -> None:
        """Check the job before any row is read. Raises StoreError, LabelError; UsageError: no groups, little memory."""
        groups_of(self.source)
        if len(self.codes) < 2:
            raise LabelError(f"{self.source.name}: expected labels of two levels, found one; nothing would be ranked")
        need = 2 * CUTS * 8 * self.source.features
        if need > max(self.memory_bytes, 32 << 20):
            raise UsageError(
                f"{self.source.name}: {CUTS} cuts of {self.source.features:,} features take {format_size(need)}, more "
                f"than memory = {format_size(self.memory_bytes)}: give more memory, or fewer features"
            )

    def unsolved(self) -> RankingState:
        """No cuts."""
        d = self.source.features
        none, vectors = np.zeros(0), np.zeros((0, d))
        return RankingState(
            0, "running", np.zeros(d), None, 0.0, np.inf, vectors, none, vectors, none, none, none
        )  # fmt: skip

    def start(self) -> RankingState:
        """The same; checks the scale of C and rows. Raises BadRow, UsageError."""
        class_c = np.full(len(self.codes), self.C)
        check_scale(self.source, class_c, class_weights(self.source, self.codes))
        return self.unsolved()

    def restore(self, arrays: Mapping[str, NDArray[Any]]) -> RankingState:
        """A state from a checkpoint."""
        return RankingState(**state_from_arrays(RankingState, arrays, {}, STATUSES, may_lack=("best",)))

    def probe(self, state: RankingState) -> RankingProbe:
        """The sums at w."""
        return RankingProbe(state.w, class_index(self.codes))

    def update(self, state: RankingState, summary: RankingSummary) -> RankingState:
        """The state after a scan: with the value there, one cut more, and the next w."""
        loss, count, doubtful, reach = summary.numbers.tolist()
        w, upper, best, room = state.w, state.upper, state.best, 1 + gamma(self.source.chunks + 64)
        value = (0.5 * float(w @ w) * (1 + gamma(len(w) + 4)) + self.C * loss * room) * (1 + 1e-15)
        if value < upper:
            upper, best = value, w
        cuts = replace(
            state,
            points=np.vstack([state.points, w]),
            counts=np.append(state.counts, count),
            directions=np.vstack([state.directions, summary.direction]),
            doubtful=np.append(state.doubtful, doubtful),
            reach=np.append(state.reach, reach),
        )
        tolerance = WEIGHED * self.epsilon * max(state.lower, 1e-6 * upper)
        weights = weigh_cuts(cuts.counts, cuts.directions, self.C, np.append(state.weights, 0.0), tolerance)
        w = weights @ cuts.directions
        lower = max(0.0, self._dual(cuts, weights, w))
        status: Status = "unfinished" if len(weights) == MOST_CUTS else "running"
        if np.array_equal(w, state.w):
            status = "stalled"
        if upper == 0 or is_certified(lower, upper, self.epsilon):
            status = "certified"
        return replace(
            cuts, round=state.round + 1, status=status, w=w, best=best, lower=lower, upper=upper, weights=weights
        )

    def _dual(self, cuts: RankingState, weights: Array, w: Array) -> float:
        """D, rounded down; w = sum a s. Pairs in doubt may be missing, or be there, in the cuts of other code."""
        longest = 2.0 * float(self.source.scalars().max_norm.max())
        error = 8.0 * gamma(max(2 * self.source.chunk_rows, 4096) + self.source.chunks + len(weights) + 64)
        off = float(weights @ (error * cuts.reach + longest * cuts.doubtful))
        size = float(np.linalg.norm(w)) * (1 + gamma(len(w) + len(weights) + 4)) + off
        off_count = gamma(len(weights) + self.source.chunks + 64)
        loss = float(weights @ (cuts.counts * (1 - 4 * off_count) - cuts.doubtful))
        return loss * (1 - 1e-13) - 0.5 * size * size * (1 + 1e-13)

    def round_of(self, state: RankingState) -> Round:
        """The report of a state."""
        known = np.isfinite(state.upper)
        return Round(
            number=state.round,
            status=state.status,
            lower=state.lower if known else -np.inf,
            lower_now=state.lower if known else -np.inf,
            upper=state.upper,
            working_set_rows=0,
            coreset_rows=0,
            new_rows=0,
            more={"cuts": len(state.weights)},
        )

    def reason(self, state: RankingState) -> str:
        """Why a run has ended, for people."""
        if state.status != "unfinished":
            return STOPPED.get(state.status, state.status)
        gap = (state.upper - state.lower) / state.upper
        return f"the gap is still {gap:.3g} of the value after {MOST_CUTS} cuts; take a larger epsilon or a smaller C"
