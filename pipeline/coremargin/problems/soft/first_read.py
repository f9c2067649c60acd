"""The first read of a soft margin, in stages: zone and ring widths, the model of all rows, and what it proves.

Each stage scans its chunks at the hypothesis that the stages before it gave. It sends the rows near the margin and sums
up all others (``FarRows``). After the last stage, the minimiser of a model of all rows, which depends on the loss,
gives a dual bound; its hypothesis gives an upper bound if it is close enough to the hypotheses of the stages. Stages
that leave too much of the gap open are read again.
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
from coremargin.problems.soft.rows_with_c import RowsWithC

if TYPE_CHECKING:
    from coremargin.data.source import Source
    from coremargin.problems.common.stages import Stages
    from coremargin.problems.soft.losses.loss import Objective
    from coremargin.problems.soft.state import Reading, SoftState
    from coremargin.problems.soft.summary import StageSummary

Array = NDArray[np.float64]

#: Edges of the rings, as shares of the expected move. Rows beyond the last one are not expected to cross the margin.
RINGS = np.array([0.0, 0.125, 0.25, 0.375, 0.5, 0.75, 1.0])
CROSSING = len(RINGS) - 1
#: A forecast is the expected move times this factor (more with few features), and at least this share of the forecast
#: before. On 1e6 x 100 with 2, 5 and 10 % noise, rows moved by 1 / 1.3 to 1 / 1.9 of 1.5 times the expected move; with
#: a factor of 2.0 the gap after one read is a tenth wider.
SAFETY, LEAST = 1.35, 0.25
#: After an update of the store, the forecast is so many times the last move, and at least this share of the one before.
UPDATE_SAFETY, UPDATE_LEAST = 3.0, 0.95
#: Once all rows were read, rings are so many times as wide as the zone of near rows: later updates move the hypothesis
#: farther than the next step does, and rows beyond all rings count as if each of them could cross.
WIDE = 8.0
#: If the newest hypothesis leaves too much of the gap open, this many points on the way to it are tried, also from the
#: hypothesis of most rows. Halfway, a move has three quarters of its gain and a quarter of the loss of crossing rows.
BETWEEN = 7
#: Of n rows of d features whose hypothesis all of them gave, this factor times sqrt(n (d + 1)) are sent. In six updates
#: of 5 % new rows on 200,000 x 30 nothing is read again with half of it; with 10 classes x 10 hinges nearly all rows
#: are once, and none with this factor, with warm-start states of twice the size of the store.
OF_ALL = 3.0
#: Upper limit of near rows per feature. 1e7 x 100 certifies with both losses (the hinge to 1.2e-4; 3,200 give 0.9e-4);
#: three classes of 3e6 x 20 take 3.1 s (6.5 s with 12,000; a second read with 1,200).
NEAR_ROWS = 2500
#: Least distance of the edges of rings.
LEAST_EDGE = 1e-6
#: Stages are read again until the others leave at most this share of the requested gap.
LEFT = 0.5
#: A row whose distance from the margin is less than so many times its rounding error may lie on either side.
CLEAR = 1e6


@dataclass(frozen=True)
class FirstRead(ABC):
    """The parts of the first read that do not depend on the loss.

    total_c (2,): sums of c of all rows of each class. least, room: near rows to collect at least, and that there is
    room for; live: near rows to solve at a time. sharing: number of problems that share the read and the room.
    """

    NEAR_SHARE: ClassVar[float]  #: share of all rows to send
    #: Edges of rings beyond those from which rows may cross the margin, as |margin - 1| in excess of the last of these.
    BEYOND: ClassVar[Array]

    objective: Objective
    total_c: Array
    stages: Stages
    least: int
    room: int
    live: int
    sharing: int = 1

    @property
    def _source(self) -> Source:
        return self.objective.magnitudes.source

    # before a stage

    def rows_to_send(self, reading: Reading, chunks: int, *, first: bool) -> tuple[int, int]:
        """Rows that each of so many chunks sends at most: to this problem, and to all problems that share the read.

        first: in the first read. There, zones are as wide as rows are expected to move: the hypothesis of a stage is
        uncertain by one over the root of the number of rows behind it.
        """
        if not reading.seen and reading.complete:  # no sums yet, and a hypothesis of all rows
            share = chunks / max(1, len(reading.stage_of))
            room, together = int(self.final_near_rows * share), int(self.room * share)
        elif reading.complete:
            share = chunks / max(1, len(reading.stage_of))
            room = max(self.room // self.sharing - len(reading.near), int(self.near_rows * share))
            together = max(room * self.sharing, int(self.room * share))
            if not first:  # the warm-start state must not become a second store
                room = min(room, int(max(self.near_rows, self.final_near_rows) * share))
        else:
            sizes = np.array(self.stages.sizes, float)
            before = np.cumsum(sizes) - sizes
            zones = sizes / np.sqrt(np.maximum(before, sizes[0]))
            zone = zones[reading.stage] / zones.sum()
            together = int(self.room * zone)
            room = min(self.room - len(reading.near), int(self.near_rows * zone))
        each, every = (max(1, min(rows // max(1, chunks), self._source.chunk_rows)) for rows in (room, together))
        return each, every

    @property
    def near_rows(self) -> int:
        """Near rows that one read collects, about."""
        rows = self._source.rows
        share = min(self.NEAR_SHARE * rows, NEAR_ROWS * self._source.features)
        return min(int(max(share, self.least)), self.room, rows)

    @property
    def final_near_rows(self) -> int:
        """Near rows to collect at a hypothesis of all rows, which moves as means do when rows are added."""
        rows, p = self._source.rows, self._source.features + 1
        return max(1, min(self.room, int(OF_ALL * np.sqrt(p * rows)), rows // 2))

    def zone_width(self, reading: Reading, chunks: NDArray[np.intp]) -> float:
        """Rows of these chunks nearer to the margin than this are sent, unless they are too many.

        No other row is expected to change sides.
        """
        return max(self.largest_change(chunks, reading.move), LEAST_EDGE)

    def ring_edges(self, reading: Reading, chunks: NDArray[np.intp]) -> Array:
        """Edges (k + 1,) of the rings for rows of these chunks; rows beyond edge CROSSING should not change sides."""
        most = (WIDE if reading.complete else 1.0) * self.zone_width(reading, chunks)
        return np.append(most * RINGS, most + self.BEYOND)

    def largest_change(self, chunks: NDArray[np.intp], move: Array) -> float:
        """Upper bound on the change of every margin of these chunks if the hypothesis moves by (d + 1,)."""
        found = max((float(reach(balls, move).max()) for _, balls in balls_of(self._source, chunks)), default=0.0)
        magnitudes = self.objective.magnitudes
        error = gamma(len(move) + 8) * (magnitudes.reach(np.abs(move[:-1])) + abs(float(move[-1])))
        return found + 8.0 * error

    def share_read(self, stage: int) -> float:
        """Share of the chunks that has been read after a stage."""
        return float(np.mean(self.stages.stage_of_chunk <= stage))

    # after a stage

    def recorded(
        self, reading: Reading, chunks: NDArray[np.intp], hypothesis: Array, edges: Array, found: StageSummary
    ) -> Reading:
        """The reading with the summary of these chunks at a hypothesis; from now on they belong to one stage."""
        if not len(chunks):  # nothing was scanned: all changed rows were known
            return reading
        stage_of, stage = reading.stage_of.copy(), int(reading.stage_of[chunks].max())
        stage_of[chunks] = stage
        near = RowsWithC(found.row_id, found.row_x, found.row_sign, found.row_c)
        return replace(
            reading,
            far=reading.far.cleared(reading.reread).record(stage, hypothesis, edges, found),
            stage_of=stage_of,
            near=RowsWithC.concatenate([reading.near, near]).in_order(),
            stage=max(reading.stage, stage + 1),
            reread=np.zeros(len(reading.reread), bool),
        )

    def with_forecast(self, reading: Reading, before: Array, after: Array, seen: float, some: RowsWithC) -> Reading:
        """The reading with the expected move to the next hypothesis.

        before, after: hypotheses of a share ``reading.seen`` of the chunks, and of ``seen``, a larger one. The distance
        of a hypothesis from that of all rows falls with the root of the number of its rows; errors of nested samples
        differ by independent parts, whose squares add up. some: rows by which the moves of margins are estimated.
        """
        then = reading.seen
        share = (1.0 / seen - 1.0) / (1.0 / then - 1.0 / seen) if 0 < then < seen else 1.0
        length = 1.0 + np.sqrt(2.0 / (len(after) - 1))  # a random move may be longer than its mean by this factor
        move: Array = SAFETY * length * np.sqrt(share) * (after - before)
        if np.linalg.norm(move) < LEAST * np.linalg.norm(reading.move):
            move = LEAST * reading.move
        moved = some.margins(after) - some.margins(before)
        spread = float(np.sqrt(share * np.mean(moved * moved))) if len(some) else np.inf
        return replace(reading, move=move, spread=max(spread, LEAST * reading.spread), seen=seen)

    def with_observed_move(self, reading: Reading, before: Array, after: Array, some: RowsWithC) -> Reading:
        """With an expected move like that between two hypotheses of all rows, and not much less than before.

        some: rows by which the moves of margins are estimated.
        """
        move = UPDATE_SAFETY * (after - before)
        moved = UPDATE_SAFETY * (some.margins(after) - some.margins(before))
        if np.linalg.norm(move) < UPDATE_LEAST * np.linalg.norm(reading.move):
            move = UPDATE_LEAST * reading.move
        spread = float(np.sqrt(np.mean(moved * moved))) if len(some) else np.inf
        return replace(reading, move=move, spread=max(spread, UPDATE_LEAST * reading.spread))

    def for_one_update(self, reading: Reading) -> Reading:
        """The reading with the expected moves of one update, if ``minimise`` detects rows that moved farther."""
        return reading

    def with_unknown_move(self, reading: Reading, hypothesis: Array, some: RowsWithC) -> Reading:
        """The reading with an expected move for a hypothesis of which no move is known.

        It points along the hypothesis and is so long that ``final_near_rows`` are sent; some: rows by which that is
        estimated.
        """
        away = np.abs(some.margins(hypothesis) - 1.0)
        zone = float(np.quantile(away, self.final_near_rows / self._source.rows))
        whole = self.largest_change(np.arange(self._source.chunks), hypothesis)
        move: Array = (zone / whole if whole else 0.0) * hypothesis
        moved = WIDE * some.margins(move)
        return replace(reading, move=move, spread=float(np.sqrt(np.mean(moved * moved))))

    @abstractmethod
    def minimise(self, reading: Reading, start: Array, sample: RowsWithC, *, last: bool) -> tuple[Array, Array]:
        """The minimiser (d + 1,) of the model, and the duals (m,) of the near rows, empty if there are none.

        start: the hypothesis before. last: all rows were read; otherwise those that were stand for all. sample: rows
        that show where the model holds.
        """

    # after the last stage

    @abstractmethod
    def far_losses(self, reading: Reading, hypothesis: Array) -> float:
        """Losses of all far rows at a hypothesis if none had changed sides, rounded up."""

    @abstractmethod
    def crossing_losses(self, reading: Reading, hypothesis: Array) -> Array:
        """Upper bounds (s,), by stage, on what far rows that changed sides add to ``far_losses``."""

    def open_gap(self, reading: Reading, hypothesis: Array) -> Array:
        """Upper bounds (s,) on the part of the gap at a hypothesis that is due to the far rows of each stage."""
        return self.crossing_losses(reading, hypothesis)

    @abstractmethod
    def with_dual(self, state: SoftState, reading: Reading, duals: Array) -> SoftState:
        """The state with the dual bound of the newest hypothesis; duals (m,): of the near rows."""

    @abstractmethod
    def marked_to_reread(self, state: SoftState, reading: Reading) -> Reading | None:
        """With the stages marked that leave most of the gap open, to be read again; None if that would not help."""

    def with_bounds(self, state: SoftState, reading: Reading, duals: Array) -> SoftState:
        """With the bounds of the newest hypothesis, the minimiser of the model; duals (m,): of the near rows."""
        before = state.best
        for point in (state.newest,) if before is None else (state.newest, before):
            state = self._with_better(state, reading, point)
        state = self.with_dual(state, reading, duals)
        if before is None or is_certified(state.lower, state.upper, self.objective.epsilon):
            return state
        most = reading.far.hypotheses[np.bincount(reading.stage_of).argmax()]  # where the fewest rows have crossed
        for start in (before, most):
            for share in np.arange(1, BETWEEN + 1) / (BETWEEN + 1):
                state = self._with_better(state, reading, start + share * (state.newest - start))
        return state

    def _with_better(self, state: SoftState, reading: Reading, point: Array) -> SoftState:
        value = self.value(reading, point)
        return replace(state, best=point, bounds=replace(state.bounds, primal=value)) if value < state.upper else state

    def largest_changes(self, reading: Reading, hypothesis: Array) -> Array:
        """Upper bounds (s,) on the change of every margin of a stage since that stage."""
        most = np.zeros(len(reading.reread))
        for stage in np.unique(reading.stage_of):
            move = hypothesis - reading.far.hypotheses[stage]
            if move.any():
                most[stage] = self.largest_change(np.flatnonzero(reading.stage_of == stage), move)
        return most

    def value(self, reading: Reading, point: Array) -> float:
        """The value of a hypothesis, rounded up."""
        objective, near = self.objective, reading.near
        losses = self.far_losses(reading, point) + float(self.crossing_losses(reading, point).sum())
        losses += float(near.row_c @ objective.loss.value(near.margins(point)))
        value = soft.penalty(point, objective.metric) + losses
        return objective.rounded_up(value, np.abs(point), float(self.total_c.sum()))
