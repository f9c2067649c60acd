"""A soft margin's first read, in stages: how wide zones and rings are, and what the read proves, whatever the loss.

Each stage asks with the hypothesis of those before it, and sends the rows near the margin; all others are sums
(``far_rows.py``). When all chunks were read the minimum of a model of them, which the loss has, gives a dual bound, and
its hypothesis a bound from above, if it is not too far from those that the sums were made at. Stages that leave too
much open are read again.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, ClassVar

import numpy as np
from numpy.typing import NDArray

from coremargin.maths import soft_margin as soft
from coremargin.maths.margin import gamma, is_certified
from coremargin.maths.screening import reach
from coremargin.problems.common.balls import balls_of
from coremargin.problems.soft.bounds import rounded_up
from coremargin.problems.soft.rows_with_c import RowsWithC

if TYPE_CHECKING:
    from coremargin.data.source import Source
    from coremargin.problems.common.stages import Stages
    from coremargin.problems.soft.objective import Objective
    from coremargin.problems.soft.stage_summary import StageSummary
    from coremargin.problems.soft.state import Reading, SoftState

Array = NDArray[np.float64]

#: Edges of rings, as shares of the move that is expected.
RINGS = np.array([0.0, 0.125, 0.25, 0.375, 0.5, 0.75, 1.0])
CROSSING = len(RINGS) - 1
#: A forecast is so many times what is expected, more where features are few, and at least so much of the one before.
#: Measured on 1e6 x 100 with 2, 5 and 10 % noise: rows move by 1 / 1.3 to 1 / 1.9 of 1.5 times what is expected; at 2.0
#: times the gap after one read is a tenth wider.
SAFETY, LEAST = 1.35, 0.25
#: Where stores have changed, zones are made for so many moves like the last one, and for this share of the one before.
NIGHTS, LESS = 3.0, 0.95
#: Once all rows were read rings are so many times as wide as the zone that comes home: hypotheses of later nights, one
#: after the other, are farther away than the next one, and rows beyond all rings count as if all of them could cross.
WIDE = 8.0
#: Where the newest hypothesis leaves too much open, so many on the way to it are tried, from that of most rows, too.
#: Half of the way has three quarters of what the move gains, and a quarter of what rows cost that may have crossed.
BETWEEN = 7
#: Of n rows of d features, whose hypothesis all of them made, so many times sqrt(n (d + 1)) come home. Six nights of
#: 5 % new rows on 200,000 x 30: with half of that nothing is read again, but for 10 classes x 10 hinges once nearly
#: all; with this no row is, and what is kept of these hundred is twice the store.
OF_ALL = 3.0
#: Rows for each feature that come home at most. Measured: 1e7 x 100 certifies with both losses (the hinge to 1.2e-4;
#: 3,200 leave 0.9e-4); three classes of 3e6 x 20 take 3.1 s where 12,000 take 6.5, and with 1,200 need a second read.
NEAR_ROWS = 2500
#: Edges are at least so far apart that they are apart.
LEAST_EDGE = 1e-6
#: Stages are read again until those that are not leave at most this share of the gap that is asked for.
LEFT = 0.5
#: A row whose distance from the margin is less than so many times its rounding error may be on either side of it.
CLEAR = 1e6


@dataclass(frozen=True)
class FirstRead(ABC):
    """objective: what is minimised; total_c (2,): sums of c of all rows of each class; stages: what is read when.

    least, room: rows at home, of small stores at least and of all at most; live: of them, that are solved at a time.
    sharing: so many problems are read together, and share the room.
    """

    NEAR_SHARE: ClassVar[float]  #: of all rows comes home
    #: Edges of rings beyond those that rows may cross the margin from, as |margin - 1| more than the last of these.
    BEYOND: ClassVar[Array]

    objective: Objective
    total_c: Array
    stages: Stages
    least: int
    room: int
    live: int
    sharing: int = 1

    # before a stage

    def keep(self, reading: Reading, chunks: int, *, first: bool) -> tuple[int, int]:
        """Rows that each of so many chunks sends at most, to this problem, and to all that are read together.

        first: in the first read. Zones are as wide as their rows are expected to move: those of a stage are as many of
        its rows as the hypothesis was made of few, by the root of their number.
        """
        if not reading.seen and reading.over:  # nothing is known of any row, whose hypothesis is that of all
            share = chunks / max(1, len(reading.of))
            room, together = int(self.at_home_of_all * share), int(self.room * share)
        elif reading.over:
            share = chunks / max(1, len(reading.of))
            room = max(self.room // self.sharing - len(reading.home), int(self.at_home * share))
            together = max(room * self.sharing, int(self.room * share))
            if not first:  # what is kept for later nights is no second store
                room = min(room, int(max(self.at_home, self.at_home_of_all) * share))
        else:
            sizes = np.array(self.stages.sizes, float)
            before = np.cumsum(sizes) - sizes
            zones = sizes / np.sqrt(np.maximum(before, sizes[0]))
            zone = zones[reading.stage] / zones.sum()
            together = int(self.room * zone)
            room = min(self.room - len(reading.home), int(self.at_home * zone))
        each, every = (max(1, min(rows // max(1, chunks), self._source.chunk_rows)) for rows in (room, together))
        return each, every

    @property
    def at_home(self) -> int:
        """Rows that one read brings home, about."""
        rows = self._source.rows
        share = min(self.NEAR_SHARE * rows, NEAR_ROWS * self._source.features)
        return min(int(max(share, self.least)), self.room, rows)

    @property
    def at_home_of_all(self) -> int:
        """Rows that come home where all have made the hypothesis, which moves as means do when more rows come."""
        rows, p = self._source.rows, self._source.features + 1
        return max(1, min(self.room, int(OF_ALL * np.sqrt(p * rows)), rows // 2))

    def zone(self, reading: Reading, chunks: NDArray[np.intp]) -> float:
        """How near to the margin rows of these chunks are that come home, if they are not too many: no other one is
        expected to change sides.
        """
        return max(self.reach(chunks, reading.move), LEAST_EDGE)

    def edges(self, reading: Reading, chunks: NDArray[np.intp]) -> Array:
        """Of the rings (k + 1,) for rows of these chunks; rows beyond CROSSING of them are not to change sides."""
        most = (WIDE if reading.over else 1.0) * self.zone(reading, chunks)
        return np.append(most * RINGS, most + self.BEYOND)

    def reach(self, chunks: NDArray[np.intp], move: Array) -> float:
        """No margin of a row of these chunks changes by more when the hypothesis moves by (d + 1,)."""
        found = max((float(reach(balls, move).max()) for _, balls in balls_of(self._source, chunks)), default=0.0)
        magnitudes = self.objective.magnitudes
        error = gamma(len(move) + 8) * (magnitudes.reach(np.abs(move[:-1])) + abs(float(move[-1])))
        return found + 8.0 * error

    def seen(self, stage: int) -> float:
        """Share of the chunks that are read when a stage is over."""
        return float(np.mean(self.stages.stage_of_chunk <= stage))

    @property
    def _source(self) -> Source:
        return self.objective.magnitudes.source

    # after a stage

    def recorded(
        self, reading: Reading, chunks: NDArray[np.intp], at: Array, edges: Array, found: StageSummary
    ) -> Reading:  # fmt: skip
        """With what was found at a hypothesis about these chunks, which are those of one stage from now on."""
        if not len(chunks):  # nothing was asked: rows that have changed were known
            return reading
        of, stage = reading.of.copy(), int(reading.of[chunks].max())
        of[chunks] = stage
        home = RowsWithC(found.row_id, found.row_x, found.row_sign, found.row_c)
        return replace(
            reading, far=reading.far.without(reading.again).record(stage, at, edges, found), of=of,
            home=RowsWithC.concatenate([reading.home, home]).in_order(), stage=max(reading.stage, stage + 1),
            again=np.zeros(len(reading.again), bool),
        )  # fmt: skip

    def forecast(self, reading: Reading, before: Array, after: Array, seen: float, some: RowsWithC) -> Reading:
        """With the move that is to be reckoned with; before, after: hypotheses of ``reading.seen`` and of more chunks.

        Of some of the rows a hypothesis is as far from that of all as their number's root is small: errors of nested
        samples differ by independent parts, whose squares add up. some: rows, to say how far margins move.
        """
        then = reading.seen
        share = (1.0 / seen - 1.0) / (1.0 / then - 1.0 / seen) if 0 < then < seen else 1.0
        length = 1.0 + np.sqrt(2.0 / (len(after) - 1))  # how much longer than the mean a random move may be
        move: Array = SAFETY * length * np.sqrt(share) * (after - before)
        if np.linalg.norm(move) < LEAST * np.linalg.norm(reading.move):
            move = LEAST * reading.move
        moved = some.margins(after) - some.margins(before)
        spread = float(np.sqrt(share * np.mean(moved * moved))) if len(some) else np.inf
        return replace(reading, move=move, spread=max(spread, LEAST * reading.spread), seen=seen)

    def as_moved(self, reading: Reading, before: Array, after: Array, some: RowsWithC) -> Reading:
        """With a move to be reckoned with like that between two hypotheses of all rows, and not much less than so far.

        some: rows, to say how far margins move.
        """
        move, moved = NIGHTS * (after - before), NIGHTS * (some.margins(after) - some.margins(before))
        if np.linalg.norm(move) < LESS * np.linalg.norm(reading.move):
            move = LESS * reading.move
        spread = float(np.sqrt(np.mean(moved * moved))) if len(some) else np.inf
        return replace(reading, move=move, spread=max(spread, LESS * reading.spread))

    def of_one_night(self, reading: Reading) -> Reading:
        """With moves of one night, for a minimum that finds out itself where rows have moved farther."""
        return reading

    def as_far_as_home(self, reading: Reading, at: Array, some: RowsWithC) -> Reading:
        """With a move to be reckoned with, of a hypothesis of which no move is known: along itself, so far that as many
        rows come home as there is to be; some: rows, which say how far that is.
        """
        away = np.abs(some.margins(at) - 1.0)
        zone = float(np.quantile(away, self.at_home_of_all / self._source.rows))
        whole = self.reach(np.arange(self._source.chunks), at)
        move: Array = (zone / whole if whole else 0.0) * at
        moved = WIDE * some.margins(move)
        return replace(reading, move=move, spread=float(np.sqrt(np.mean(moved * moved))))

    @abstractmethod
    def minimum(self, reading: Reading, near: Array, sample: RowsWithC, *, last: bool) -> tuple[Array, Array]:
        """The minimiser (d + 1,) of the model, and the duals (m,) of the rows at home, none where there are none.

        near: the hypothesis before. last: all rows were read; else those that were stand for all. sample: rows that
        say where the model is true.
        """

    # when all chunks were read

    @abstractmethod
    def losses(self, reading: Reading, at: Array) -> float:
        """Of all far rows at a hypothesis, as if none had changed sides, rounded up."""

    @abstractmethod
    def crossed(self, reading: Reading, at: Array) -> Array:
        """What far rows of each stage (s,) that have changed sides add to the model, at most."""

    def left_open(self, reading: Reading, at: Array) -> Array:
        """How much of the gap at a hypothesis is due to the far rows of each stage (s,), at most."""
        return self.crossed(reading, at)

    @abstractmethod
    def with_dual(self, state: SoftState, reading: Reading, duals: Array) -> SoftState:
        """With the dual bound of the newest hypothesis; duals (m,): of the rows at home."""

    @abstractmethod
    def loosest(self, state: SoftState, reading: Reading) -> Reading | None:
        """With the stages marked that are to be read again: those that leave most of the gap open.

        None where that would not help.
        """

    def proven(self, state: SoftState, reading: Reading, duals: Array) -> SoftState:
        """With the bounds of the newest hypothesis, the minimum of the model; duals (m,): of the rows at home."""
        before = state.best
        for at in (state.newest,) if before is None else (state.newest, before):
            state = self._no_worse(state, reading, at)
        state = self.with_dual(state, reading, duals)
        if before is None or is_certified(state.lower, state.upper, self.objective.epsilon):
            return state
        most = reading.far.at[np.bincount(reading.of).argmax()]  # where least have crossed
        for start in (before, most):
            for share in np.arange(1, BETWEEN + 1) / (BETWEEN + 1):
                state = self._no_worse(state, reading, start + share * (state.newest - start))
        return state

    def _no_worse(self, state: SoftState, reading: Reading, at: Array) -> SoftState:
        """With this hypothesis as the best one, where it is."""
        value = self.value(reading, at)
        return replace(state, best=at, bounds=replace(state.bounds, primal=value)) if value < state.upper else state

    def moved(self, reading: Reading, at: Array) -> Array:
        """No margin of a row of a stage (s,) has changed by more since."""
        most = np.zeros(len(reading.again))
        for stage in np.unique(reading.of):
            move = at - reading.far.at[stage]
            if move.any():
                most[stage] = self.reach(np.flatnonzero(reading.of == stage), move)
        return most

    def value(self, reading: Reading, at: Array) -> float:
        """The value of a hypothesis, rounded up."""
        objective, home = self.objective, reading.home
        losses = self.losses(reading, at) + float(self.crossed(reading, at).sum())
        losses += float(home.row_c @ objective.loss.value(np.maximum(1.0 - home.margins(at), 0.0)))
        return rounded_up(objective, soft.penalty(at, objective.metric) + losses, np.abs(at), float(self.total_c.sum()))
