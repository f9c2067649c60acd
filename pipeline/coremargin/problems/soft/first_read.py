"""The first read with the hinge, in stages: how wide zones and rings are, the next hypothesis, what the read proves.

Each stage asks with the hypothesis of those before it, and sends the rows near the margin; all others are sums
(``far_rows.py``). When all chunks were read the minimum of the model is a dual bound, and its hypothesis a bound from
above, if it is not too far from those that the sums were made at. Stages that leave too much open are read again.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

import numpy as np
from numpy.typing import NDArray

from coremargin.maths import soft_margin as soft
from coremargin.maths.interior import HingeModel, minimise_hinge
from coremargin.maths.margin import gamma
from coremargin.maths.rows import weighted_sum
from coremargin.maths.screening import reach
from coremargin.problems.common.balls import balls_of
from coremargin.problems.common.zone import least
from coremargin.problems.soft.bounds import DualSums, dual_bound, rounded_up
from coremargin.problems.soft.rows_with_c import RowsWithC
from coremargin.problems.soft.steps import balances, filled, guarded

if TYPE_CHECKING:
    from coremargin.data.source import Source
    from coremargin.problems.common.stages import Stages
    from coremargin.problems.soft.objective import Objective
    from coremargin.problems.soft.stage_summary import StageSummary
    from coremargin.problems.soft.state import Reading, SoftState

Array = NDArray[np.float64]

#: Edges of rings, as shares of the move that is expected.
RINGS = np.array([0.0, 0.125, 0.25, 0.375, 0.5, 0.75, 1.0])
#: A forecast is so many times what is expected, more where features are few, and at least so much of the one before.
#: Measured on 1e6 x 100 with 2, 5 and 10 % noise: rows move by 1 / 1.3 to 1 / 1.9 of 1.5 times what is expected; at 2.0
#: times the gap after one read is a tenth wider.
SAFETY, LEAST = 1.35, 0.25
#: Share of all rows that come home. Measured there: 0.06 leaves gaps up to 9.9e-4, 0.08 up to 9.0e-4.
NEAR_SHARE = 0.08
#: What solutions may leave of the gap that is asked for: on the way, and at last.
ON_THE_WAY, AT_LAST = 0.1, 0.002
#: Rows at home that are farther from the margin than so many times their expected move keep to their sides while the
#: others are solved; at last, they may lose no more than this share of the gap asked for by that, after so many tries.
PARKED, LOST, TRIES = 5.0, 0.05, 3
#: Rows of a sample that cross the margin, though far from it, count where they stand for this share of the value.
ASTRAY = 1.0
#: Edges are at least so far apart that they are apart.
LEAST_EDGE = 1e-6
#: Stages are read again until those that are not leave at most this share of the gap that is asked for.
LEFT = 0.5


@dataclass(frozen=True)
class FirstRead:
    """objective: what is minimised; total_c (2,): sums of c of all rows of each class; stages: what is read when.

    least, room: rows at home, of small stores at least and of all at most; live: of them, that are solved at a time.
    """

    objective: Objective
    total_c: Array
    stages: Stages
    least: int
    room: int
    live: int

    # before a stage

    def keep(self, reading: Reading, chunks: int) -> int:
        """Rows that each of so many chunks sends at most.

        Zones are as wide as their rows are expected to move: those of a stage are as many of its rows as the hypothesis
        was made of few, by the root of their number.
        """
        room = self.room - len(reading.home)
        if reading.stage < self.stages.count:
            sizes = np.array(self.stages.sizes, float)
            before = np.cumsum(sizes) - sizes
            zones = sizes / np.sqrt(np.maximum(before, sizes[0]))
            wanted = max(NEAR_SHARE * self._source.rows, self.least)
            room = min(room, int(min(wanted, self.room) * zones[reading.stage] / zones.sum()))
        return max(1, min(room // chunks, self._source.chunk_rows))

    def edges(self, reading: Reading, chunks: NDArray[np.intp]) -> Array:
        """Of the rings (r + 1,) for rows of these chunks: none beyond the last one is expected to cross the margin."""
        return max(self.reach(chunks, reading.move), LEAST_EDGE) * RINGS

    def reach(self, chunks: NDArray[np.intp], move: Array) -> float:
        """No margin of a row of these chunks changes by more when the hypothesis moves by (d + 1,)."""
        found = max((float(reach(balls, move).max()) for _, balls in balls_of(self._source, chunks)), default=0.0)
        magnitudes = self.objective.magnitudes
        error = gamma(len(move) + 8) * (magnitudes.reach(np.abs(move[:-1])) + abs(float(move[-1])))
        return found + 8.0 * error

    def seen(self, stage: int) -> float:
        """Share of the chunks that are read when a stage is over."""
        return float(np.mean(self.stages.of <= stage))

    @property
    def _source(self) -> Source:
        return self.objective.magnitudes.source

    # after a stage

    def recorded(
        self, reading: Reading, chunks: NDArray[np.intp], at: Array, edges: Array, found: StageSummary
    ) -> Reading:  # fmt: skip
        """With what was found at a hypothesis about these chunks, which are those of one stage from now on."""
        of, stage = reading.of.copy(), int(reading.of[chunks].max())
        of[chunks] = stage
        home = RowsWithC(found.row_id, found.row_x, found.row_sign, found.row_c)
        return replace(
            reading, far=reading.far.without(reading.again).record(stage, at, edges, found), of=of,
            home=RowsWithC.joined([reading.home, home]).in_order(), stage=max(reading.stage, stage + 1),
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

    def minimum(self, reading: Reading, near: Array, sample: RowsWithC, *, last: bool) -> tuple[Array, Array]:
        """The minimiser (d + 1,) of the model, and the duals (m,) of the rows at home, none where it has no minimum.

        near: the hypothesis before. last: all rows were read; else those that were stand for all. Where rows of a
        sample say that far ones cross the margin, they stand for those, so that the hypothesis stays where it is true.
        """
        home, at, turn = reading.home, near, 0
        while True:
            margins = home.margins(at)
            some, sides = self._live(margins, reading.spread), np.where(margins < 1.0, home.row_c, 0.0)
            model = self._model(reading, some, sides, last=last)
            found, duals = self._solved(model, some, sides, last=last)
            if not len(duals):
                break
            at, lost, turn = found, self._lost(home, margins, found, some), turn + 1
            if turn == TRIES or not last or lost <= LOST * self.objective.epsilon:
                break
        away = sample.take(np.flatnonzero(np.isin(sample.ids, home.ids, invert=True)))
        far_c = float(self.total_c.sum() - model.right.sum())
        if len(duals) and not self._astray(away, far_c, near, at):
            return at, duals
        ahead = guarded(self.objective, model, away, far_c, near, at if len(duals) else None)
        return at if ahead is None else ahead, duals

    def _live(self, margins: Array, spread: float) -> NDArray[np.bool_]:
        """Which rows at home (m,) are solved: those that may move across the margin, the nearest of too many."""
        away = np.abs(margins - 1.0)
        some = away < PARKED * spread
        if np.count_nonzero(some) > self.live:
            some[:] = False
            some[least(away, self.live)] = True
        return np.asarray(some)

    def _astray(self, away: RowsWithC, far_c: float, near: Array, at: Array) -> bool:
        """Whether so many far rows, by those of a sample, cross the margin on the way that the model is wrong."""
        before, after = away.margins(near), away.margins(at)
        crossed = (before < 1.0) != (after < 1.0)
        if not crossed.any():
            return False
        whole = float(self.total_c.sum()) / float(away.row_c.sum()) * float(away.row_c @ np.maximum(1.0 - after, 0.0))
        lost = far_c / float(away.row_c.sum()) * float(away.row_c[crossed] @ np.abs(after[crossed] - 1.0))
        return lost > ASTRAY * self.objective.epsilon * (whole + soft.penalty(at, self.objective.metric))

    def _model(
        self, reading: Reading, some: NDArray[np.bool_], sides: Array, *, last: bool
    ) -> HingeModel:  # fmt: skip
        """Of some of the rows at home, the duals of others being their sides' (m,).

        Until the last stage the rows seen of a class stand for all of it.
        """
        objective, every, home = self.objective, reading.home, reading.home.take(np.flatnonzero(some))
        seen_c = reading.far.total_c.sum(axis=0)
        scale: Array = np.where((seen_c > 0) & (not last), self.total_c / np.where(seen_c > 0, seen_c, 1.0), 1.0)
        each: Array = np.where(every.signs > 0, scale[0], scale[1])
        signed: Array = np.where(some, 0.0, sides) * each * every.signs
        linear = scale @ reading.far.dual_sum.sum(axis=0) + np.append(weighted_sum(every.rows, signed), signed.sum())
        if not objective.intercept:
            linear[-1] = 0.0
        rows = filled(home.rows, home.signs, objective.intercept)
        return HingeModel(objective.metric, linear, rows, home.row_c * each[some], np.zeros(len(rows)))

    def _solved(
        self, model: HingeModel, some: NDArray[np.bool_], sides: Array, *, last: bool
    ) -> tuple[Array, Array]:  # fmt: skip
        """The minimiser, and the duals of all rows at home; at last in the problem's own c."""
        if not len(model.rows) or (self.objective.intercept and not balances(model)):
            return np.zeros(len(model.metric)), np.zeros(0)
        at, found = minimise_hinge(model, tolerance=(AT_LAST if last else ON_THE_WAY) * self.objective.epsilon)
        duals = np.where(some, 0.0, sides)
        duals[some] = found
        return at, duals

    def _lost(self, home: RowsWithC, before: Array, at: Array, some: NDArray[np.bool_]) -> float:
        """What rows that are not among some and have crossed the margin add to the value, as a share of the home's."""
        after = home.margins(at)
        crossed = ~some & ((before < 1.0) != (after < 1.0))
        whole = float(home.row_c @ np.maximum(1.0 - after, 0.0)) + soft.penalty(at, self.objective.metric)
        return float(home.row_c[crossed] @ np.abs(after[crossed] - 1.0)) / whole if crossed.any() else 0.0

    # when all chunks were read

    def proven(self, state: SoftState, reading: Reading, duals: Array) -> SoftState:
        """With the bounds of the newest hypothesis, the minimum of the model; duals (m,): of the rows at home."""
        for at in (state.newest,) if state.best is None else (state.newest, state.best):
            value = self.value(reading, at)
            if value < state.upper:
                state = replace(state, best=at, bounds=replace(state.bounds, primal=value))
        return self._with_dual(state, reading, duals)

    def crossed(self, reading: Reading, at: Array) -> Array:
        """What far rows of each stage (s,) that have changed sides add to the model, at most."""
        most = np.zeros(len(reading.again))
        for stage in np.unique(reading.of):
            move = at - reading.far.at[stage]
            if move.any():
                most[stage] = self.reach(np.flatnonzero(reading.of == stage), move)
        return reading.far.crossed(self.objective, at, most)

    def value(self, reading: Reading, at: Array) -> float:
        """The value of a hypothesis, rounded up."""
        objective, home = self.objective, reading.home
        losses = reading.far.losses(objective, at) + float(self.crossed(reading, at).sum())
        losses += float(home.row_c @ np.maximum(1.0 - home.margins(at), 0.0))
        return rounded_up(objective, soft.penalty(at, objective.metric) + losses, np.abs(at), float(self.total_c.sum()))

    def _with_dual(self, state: SoftState, reading: Reading, duals: Array) -> SoftState:
        objective, home, far = self.objective, reading.home, reading.far
        linear = far.dual_sum.sum(axis=(0, 1))
        if len(duals) < len(home):
            return state
        if objective.intercept:
            moved = soft.balanced(duals, home.signs, home.row_c, float(linear[-1] + duals @ home.signs))
            if moved is None:
                return state
            duals = moved
        v = linear[:-1] + weighted_sum(home.rows, duals * home.signs)
        sums = DualSums(float(far.duals.sum()), v, len(home))
        return dual_bound(objective, state, sums, (home.ids, home.signs, duals), (far.at, reading.of))

    def loosest(self, state: SoftState, reading: Reading) -> Reading | None:
        """With the stages marked that are to be read again: the loosest, until the others leave little of the gap.

        None where that would not help: what they leave is little of it.
        """
        there = np.unique(reading.of)
        each = self.crossed(reading, state.newest)[there]
        order = np.argsort(-each, kind="stable")
        left = np.cumsum(each[order][::-1])[::-1]  # of each and all tighter ones
        many = int(np.count_nonzero(left > LEFT * self.objective.epsilon * state.lower))
        if state.lower <= 0 or not many:
            return None
        again = np.zeros(len(reading.again), bool)
        again[there[order[:many]]] = True
        return replace(reading, again=again)
