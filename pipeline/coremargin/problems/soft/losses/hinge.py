"""The hinge, max(0, 1 - m): its steps, its dual bounds, and its first read in stages.

**The model.** Far rows count at a hypothesis w0 as if none of them could change sides: c times the slack of those with
slack, nothing for the others. These lines never lie above the hinge. With the rows near the margin as they are, they
form a model that underestimates the value everywhere, so that the dual of its minimum is one of all rows: c or 0 by the
side of a far row at the hypothesis of its stage, and the best duals of the near rows.

**What far rows can lose.** Rows that crossed the margin are above their lines: rings.py bounds by how much, with
s = y (dw.x + db), the move of a row's margin since w0, and t = |1 - margin| at w0.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

import numpy as np
from numpy.typing import NDArray

from coremargin.maths import soft_margin as soft
from coremargin.maths.interior import HingeModel
from coremargin.maths.interior import minimise_hinge as minimise_by_sums
from coremargin.maths.margin import gamma, is_certified
from coremargin.maths.rows import dense, products, signed_points, weighted_sum
from coremargin.maths.smooth import minimise_hinge
from coremargin.problems.common.driver_rows import isin_ids
from coremargin.problems.common.rings import crossing_loss, rings_of
from coremargin.problems.common.zone import smallest_positions
from coremargin.problems.soft.first_read import LEFT, UPDATE_SAFETY, FirstRead
from coremargin.problems.soft.losses.loss import Array, Loss, Objective
from coremargin.problems.soft.magnitudes import LONG
from coremargin.problems.soft.state import Bounds

if TYPE_CHECKING:
    from coremargin.maths import rows as row_ops
    from coremargin.maths.row_model import RowModel
    from coremargin.problems.soft.magnitudes import Magnitudes
    from coremargin.problems.soft.rows_with_c import RowsWithC
    from coremargin.problems.soft.state import FarRows, Reading, SoftState
    from coremargin.problems.soft.summary import NearMarginSummary

#: Share of the sum of the duals that may have to be moved to balance them, in sums of another order.
BALANCE = 2.0**-46
#: Gaps of solutions of the first read, relative to the requested gap: before the last stage, and after it.
ON_THE_WAY, AT_LAST = 0.1, 0.002
#: Near rows farther from the margin than this many expected moves keep to their sides while the others are solved.
#: After the last stage, that may cost at most the share LOST of the requested gap; the solve is tried up to TRIES
#: times.
PARKED, LOST, TRIES = 5.0, 0.05, 3
#: Rows of a sample that cross the margin, though far from it, count if they stand for this share of the value.
ASTRAY = 1.0


# Dual bounds, rounded down by what the verifier may lose once more in sums of its own


@dataclass(frozen=True)
class DualSums:
    """Sums over duals a: others, of rows that are not named; dual_sum (d,): a y x over all rows.

    terms: number of rows summed up in the driver; removed: duals of rows that were added and subtracted again.
    """

    others: float
    dual_sum: Array
    terms: int
    removed: float = 0.0


def dual_bound(
    objective: Objective,
    state: SoftState,
    sums: DualSums,
    named: tuple[NDArray[np.int64], NDArray[np.int8], Array],
    reference: tuple[Array, NDArray[np.int64]] | None = None,
) -> SoftState:
    """The state with the dual bound of balanced duals: those of the sides at a hypothesis, except for the rows named.

    named: ids, signs, duals. reference: the hypotheses (s, d + 1) and which of them belongs to each chunk (c,); None:
    the newest one, for all chunks.
    """
    ids, signs, duals = named
    hypothesis, reference_of = reference or (state.newest, np.zeros(0, np.int64))
    total, v = sums.others + float(duals.sum()), sums.dual_sum
    value = soft.hinge_dual(total, v, objective.metric[:-1])
    error = 8.0 * (objective.magnitudes.sum_error + gamma(sums.terms))
    summed = total + 2.0 * sums.removed
    value -= error * summed + _dual_sum_error(objective, v, summed, error)
    moved = BALANCE * total * objective.magnitudes.longest
    value -= moved * (float(np.linalg.norm(v)) + moved)
    if not value > state.lower:
        return state
    return replace(state, bounds=Bounds(state.upper, value, hypothesis, ids, signs, duals, reference_of))


def _dual_sum_error(objective: Objective, v: Array, total: float, error: float) -> float:
    """Error of 1/2 ||v||^2, v (d,) being a sum of rows whose duals sum up to ``total``, each off by a share ``error``.

    Bounded by the longest row or, if that is large, feature by feature. Squares of errors count, because v may vanish
    next to long rows; they count twice, so that another error may be added.
    """
    length = error * total * objective.magnitudes.longest
    by_length = length * (float(np.linalg.norm(v)) + length)
    if by_length <= error * total * LONG:
        return by_length
    each = error * objective.magnitudes.sizes(total, float(objective.class_c.max()) * total)
    return min(by_length, float(np.abs(v) @ each + each @ each))


def model_bound(
    objective: Objective,
    state: SoftState,
    summary: NearMarginSummary,
    near: tuple[NDArray[np.int64], NDArray[np.int8], Array],
    duals: Array,
    dual_sum: Callable[[Array], Array],
    also: tuple[float, Array, int] | None = None,
) -> SoftState:
    """The state with the dual bound of the model of a scan, which holds for all rows however far a step leads.

    near: ids, signs and row_c (m,) of the rows that are not far; duals (m,): theirs, within their limits; dual_sum:
    sum a y x (d,). also: of far rows that are not in the summary, their sums of c and c y (x, 1), and their number.
    """
    ids, signs, row_c = near
    far_c, linear, terms = float(summary.far_c[0]), summary.far_linear, len(duals)
    if also is not None:
        far_c, linear, terms = far_c + also[0], linear + also[1], terms + also[2]
    if objective.intercept:
        moved = soft.balanced(duals, signs, row_c, float(linear[-1] + duals @ signs))
        if moved is None:
            return state
        duals = moved
    return dual_bound(objective, state, DualSums(far_c, linear[:-1] + dual_sum(duals), terms), (ids, signs, duals))


# The model by d x d sums


def filled(rows: row_ops.Rows, signs: NDArray[np.int8], intercept: bool) -> Array:
    """y (x, 1) (m, d + 1), dense; the last column is zero without an intercept."""
    return dense(signed_points(rows, signs, float(intercept)))


def balances(free: HingeModel) -> bool:
    """Whether the duals of the near rows can balance the linear term of the intercept; else there is no minimum."""
    needed = -float(free.linear[-1])
    room = float(free.right[free.rows[:, -1] * needed > 0].sum())
    return abs(needed) <= room


def guarded(
    objective: Objective, free: HingeModel, away: RowsWithC, far_c: float, start: Array, step: Array | None
) -> Array | None:
    """The step again, with a loss for far rows that change sides, if rows of a sample show that some would.

    away: far rows of the sample, which stand for all far rows, with sum of c ``far_c``; start (d + 1,): the hypothesis
    at which the model was made; step: its minimiser, None if it has no minimum.
    """
    rows = filled(away.rows, away.signs, objective.intercept)
    was = rows @ start < 1.0
    if not len(rows) or (step is not None and np.array_equal(was, rows @ step < 1.0)):
        return None
    row_c = away.row_c * (far_c / float(away.row_c.sum()))
    nothing = np.zeros(len(row_c))
    guard = HingeModel(
        free.metric,
        free.linear,
        np.vstack([free.rows, rows]),
        np.concatenate([free.right, np.where(was, nothing, row_c)]),
        np.concatenate([free.left, np.where(was, row_c, nothing)]),
    )
    return minimise_by_sums(guard, tolerance=1e-7)[0]


# The first read


@dataclass(frozen=True)
class HingeRead(FirstRead):
    """``FirstRead`` with the hinge."""

    #: On 1e6 x 100 with 2, 5 and 10 % noise, 0.06 leaves gaps up to 9.9e-4, 0.08 up to 9.0e-4.
    NEAR_SHARE = 0.08
    BEYOND = np.zeros(0)

    def minimise(self, reading: Reading, start: Array, sample: RowsWithC, *, last: bool) -> tuple[Array, Array]:
        """The minimiser (d + 1,) of the model, and the duals (m,) of the near rows, empty if it has no minimum.

        If rows of the sample say that far rows cross the margin, they stand for those, so that the hypothesis stays
        where the model holds.
        """
        near, point, turn, spread = reading.near, start, 0, reading.spread
        while True:
            margins = near.margins(point)
            some, sides = self._live(margins, spread), np.where(margins < 1.0, near.row_c, 0.0)
            model = self._model(reading, some, sides, last=last)
            found, duals = self._solved(model, some, sides, last=last)
            if not len(duals):
                if not last or some.all() or np.isinf(spread):
                    break
                spread = np.inf  # too few rows to balance the duals of the far rows: solve as many as possible
                continue
            point, lost, turn = found, self._lost(near, margins, found, some), turn + 1
            if turn == TRIES or not last or lost <= LOST * self.objective.epsilon:
                break
        away = sample.take(np.flatnonzero(~isin_ids(sample.ids, near.ids)))
        far_c = float(self.total_c.sum() - model.right.sum())
        if len(duals) and not self._astray(away, far_c, start, point):
            return point, duals
        ahead = guarded(self.objective, model, away, far_c, start, point if len(duals) else None)
        return point if ahead is None else ahead, duals

    def for_one_update(self, reading: Reading) -> Reading:
        """See ``FirstRead``: fewer rows are solved, and solved again if the others lose too much."""
        return replace(reading, spread=reading.spread / UPDATE_SAFETY)

    def _live(self, margins: Array, spread: float) -> NDArray[np.bool_]:
        """The near rows (m,) to solve: those that may cross the margin; if these are too many, the nearest."""
        away = np.abs(margins - 1.0)
        some = away < PARKED * spread
        if np.count_nonzero(some) > self.live:
            some[:] = False
            some[smallest_positions(away, self.live)] = True
        return np.asarray(some)

    def _model(self, reading: Reading, some: NDArray[np.bool_], sides: Array, *, last: bool) -> HingeModel:
        """The model of some of the near rows; the others have the duals of their sides (m,).

        Before the last stage, the rows of a class that were read stand for all of it.
        """
        objective, every, live = self.objective, reading.near, reading.near.take(np.flatnonzero(some))
        seen_c = reading.far.total_c.sum(axis=0)
        scale: Array = np.where((seen_c > 0) & (not last), self.total_c / np.where(seen_c > 0, seen_c, 1.0), 1.0)
        each: Array = np.where(every.signs > 0, scale[0], scale[1])
        signed: Array = np.where(some, 0.0, sides) * each * every.signs
        linear = scale @ reading.far.dual_sum.sum(axis=0) + np.append(weighted_sum(every.rows, signed), signed.sum())
        if not objective.intercept:
            linear[-1] = 0.0
        rows = filled(live.rows, live.signs, objective.intercept)
        return HingeModel(objective.metric, linear, rows, live.row_c * each[some], np.zeros(len(rows)))

    def _solved(self, model: HingeModel, some: NDArray[np.bool_], sides: Array, *, last: bool) -> tuple[Array, Array]:
        """The minimiser, and the duals of all near rows; after the last stage, in the problem's own c."""
        if not len(model.rows) or (self.objective.intercept and not balances(model)):
            return np.zeros(len(model.metric)), np.zeros(0)
        tolerance = (AT_LAST if last else ON_THE_WAY) * self.objective.epsilon
        point, found = minimise_by_sums(model, tolerance=tolerance)
        duals = np.where(some, 0.0, sides)
        duals[some] = found
        return point, duals

    def _lost(self, near: RowsWithC, before: Array, point: Array, some: NDArray[np.bool_]) -> float:
        """The losses of near rows that were not solved and crossed the margin, relative to the value of near rows."""
        after = near.margins(point)
        crossed = ~some & ((before < 1.0) != (after < 1.0))
        whole = float(near.row_c @ np.maximum(1.0 - after, 0.0)) + soft.penalty(point, self.objective.metric)
        return float(near.row_c[crossed] @ np.abs(after[crossed] - 1.0)) / whole if crossed.any() else 0.0

    def _astray(self, away: RowsWithC, far_c: float, start: Array, point: Array) -> bool:
        """Whether so many far rows cross the margin, judging by those of a sample, that the model is wrong."""
        before, after = away.margins(start), away.margins(point)
        crossed = (before < 1.0) != (after < 1.0)
        if not crossed.any():
            return False
        whole = float(self.total_c.sum()) / float(away.row_c.sum()) * float(away.row_c @ np.maximum(1.0 - after, 0.0))
        lost = far_c / float(away.row_c.sum()) * float(away.row_c[crossed] @ np.abs(after[crossed] - 1.0))
        return lost > ASTRAY * self.objective.epsilon * (whole + soft.penalty(point, self.objective.metric))

    def far_losses(self, reading: Reading, hypothesis: Array) -> float:
        """See ``FirstRead``."""
        return far_losses(reading.far, self.objective, hypothesis)

    def crossing_losses(self, reading: Reading, hypothesis: Array) -> Array:
        """See ``FirstRead``."""
        return crossing_losses(reading.far, self.objective, hypothesis, self.largest_changes(reading, hypothesis))

    def with_dual(self, state: SoftState, reading: Reading, duals: Array) -> SoftState:
        """See ``FirstRead``: the dual bound of the minimum of the model."""
        objective, near, far = self.objective, reading.near, reading.far
        linear = far.dual_sum.sum(axis=(0, 1))
        if len(duals) < len(near):
            return state
        if objective.intercept:
            moved = soft.balanced(duals, near.signs, near.row_c, float(linear[-1] + duals @ near.signs))
            if moved is None:
                return state
            duals = moved
        v = linear[:-1] + weighted_sum(near.rows, duals * near.signs)
        sums = DualSums(float(far.duals.sum()), v, len(near), float(far.removed[:, 1].sum()))
        return dual_bound(objective, state, sums, (near.ids, near.signs, duals), (far.hypotheses, reading.stage_of))

    def marked_to_reread(self, state: SoftState, reading: Reading) -> Reading | None:
        """See ``FirstRead``: until the other stages leave little of the requested gap."""
        present = np.unique(reading.stage_of)
        each = self.crossing_losses(reading, state.newest)[present]
        order = np.argsort(-each, kind="stable")
        left = np.cumsum(each[order][::-1])[::-1]  # of each stage and all tighter ones
        many = int(np.count_nonzero(left > LEFT * self.objective.epsilon * state.lower))
        if state.lower <= 0 or not many:
            return None
        reread = np.zeros(len(reading.reread), bool)
        reread[present[order[:many]]] = True
        return replace(reading, reread=reread)


def far_losses(far: FarRows, objective: Objective, hypothesis: Array) -> float:
    """Losses of all far rows at a hypothesis if none had changed sides, rounded up."""
    size = objective.magnitudes.margin_size(hypothesis)
    total = float(far.duals.sum())
    value = total - float((far.dual_sum @ hypothesis).sum())
    summed = total + 2.0 * float(far.removed[:, 1].sum())
    return value + 16.0 * objective.magnitudes.sum_error * summed * (size + 1.0)


def crossing_losses(far: FarRows, objective: Objective, hypothesis: Array, most: Array) -> Array:
    """Upper bounds (s,) on what far rows of each stage that changed sides add to ``far_losses``.

    most (s,): upper bound on the change of every margin of a stage.
    """
    found = np.zeros(len(far.hypotheses))
    for stage in range(len(far.hypotheses)):
        move = hypothesis - far.hypotheses[stage]
        if far.total_c[stage].any() and move.any():
            found[stage] = _crossing_loss(far, objective, stage, move, float(most[stage]))
    return found


def _crossing_loss(far: FarRows, objective: Objective, stage: int, move: Array, most: float) -> float:
    hypothesis, magnitudes = far.hypotheses[stage], objective.magnitudes
    error = gamma(len(hypothesis) + 2) * magnitudes.margin_size(hypothesis)

    def square(k: int) -> float:
        weight, spread = float(far.ring_weight[stage, k]), float(far.ring_spread[stage, k])
        body, edge = magnitudes.curve_errors(weight, spread)
        return max(0.0, float(move @ far.rings[stage, k] @ move)) + (body + 2.0 * edge) * float(move @ move)

    total_c = float(far.total_c[stage].sum())
    return crossing_loss(far.edges[stage], float(far.least[stage]), most, total_c, square, error)


# The loss


@dataclass(frozen=True)
class Hinge(Loss):
    """max(0, 1 - m); the dual of a row is between 0 and its c."""

    word = "hinge"
    formula = "max(0, 1 \u2212 m)"
    curves = False
    names_duals = True
    clipped_slope = 1.0
    solve_cost = 1.5e9
    most_crossed = 0.9  # where most near rows crossed, far rows did too
    first_read = HingeRead

    def value(self, margins: Array) -> Array:
        """The slacks."""
        return np.asarray(np.maximum(1.0 - margins, 0.0))

    def slack(self, value: float) -> float:
        """The value."""
        return value

    def dual(self, margins: Array, row_c: Array) -> Array:
        """The c of rows with slack, 0 for all others."""
        return np.where(margins < 1.0, row_c, 0.0)

    def violations(self, margins: Array, duals: Array, row_c: Array) -> Array:
        """Distance of the margin from 1, except for duals at the limit on its side."""
        ahead = 1.0 - margins
        settled = ((duals == 0) & (ahead < 0)) | ((duals == row_c) & (ahead > 0))
        return np.where(settled, 0.0, np.abs(ahead))

    def dual_total(self, duals: Array, row_c: Array) -> float:
        """The sum of the duals."""
        return float(duals.sum())

    def curvature(self, row_c: Array) -> tuple[Array, Array]:
        """The curvature of the smoothed hinge; the limit of a dual is c."""
        return row_c, row_c

    def value_error(self, margin: float, value: float, row_c: float) -> float:
        """The error of each margin times the sum of c."""
        return margin * row_c

    def minimise(self, model: RowModel, start: Array, duals: Array | None, tolerance: float) -> tuple[Array, Array]:
        """By the method of multipliers, which gives the duals too."""
        return minimise_hinge(model, start, duals, tolerance)

    def minimise_sample(self, objective: Objective, some: RowsWithC, start: Array) -> Array:
        """By an interior point method."""
        every = filled(some.rows, some.signs, objective.intercept)
        hinge = HingeModel(objective.metric, np.zeros(len(start)), every, some.row_c, np.zeros(len(some)))
        return minimise_by_sums(hinge, tolerance=1e-9 if len(some) <= 1000 else 1e-6)[0]  # few may be all there are

    def next_step(self, objective: Objective, state: SoftState, summary: NearMarginSummary) -> tuple[Array, SoftState]:
        """See ``Loss``; the minimiser is found again if rows of the sample show that far rows would cross."""
        rows = filled(summary.row_x, summary.row_sign, objective.intercept)
        row_c = summary.row_c
        linear = summary.far_linear.copy()
        if not objective.intercept:
            linear[-1] = 0.0
        free = HingeModel(objective.metric, linear, rows, row_c, np.zeros(len(rows)))
        sample = state.rows.sample
        away = sample.take(np.flatnonzero(np.isin(sample.ids, summary.row_id, invert=True)))
        far_c = float(summary.total_c.sum() - row_c.sum())
        if objective.intercept and not balances(free):
            ahead = guarded(objective, free, away, far_c, state.newest, None)
            return ahead if ahead is not None else minimise_by_sums(free)[0], state
        step, duals = minimise_by_sums(free)
        near = (summary.row_id, summary.row_sign, row_c)
        state = model_bound(objective, state, summary, near, duals, lambda a: rows[:, :-1].T @ a)
        if is_certified(state.lower, state.upper, objective.epsilon):
            return step, state
        ahead = guarded(objective, free, away, far_c, state.newest, step)
        return ahead if ahead is not None else step, state

    def cached_bound(self, objective: Objective, state: SoftState, summary: NearMarginSummary) -> SoftState:
        """See ``Loss``; rows with the dual of their side are not named."""
        cached, duals = state.rows.cached, state.rows.cached_duals

        def bound(unnamed: NDArray[np.bool_]) -> SoftState:
            near = cached.take(np.flatnonzero(~unnamed))
            linear: Array = np.where(unnamed, duals * cached.signs, 0.0)
            return model_bound(
                objective,
                state,
                summary,
                (near.ids, near.signs, near.row_c),
                duals[~unnamed],
                lambda a: weighted_sum(near.rows, a * near.signs),
                (float(duals[unnamed].sum()), np.append(weighted_sum(cached.rows, linear), linear.sum()), len(cached)),
            )

        far = _on_their_sides(objective.magnitudes, state.newest, cached, duals)
        better = bound(far)
        if better is state and far.any():  # the others alone may have no room to balance the duals
            better = bound(np.zeros(len(far), bool))
        return better

    def proof_bound(
        self, objective: Objective, state: SoftState, summary: NearMarginSummary, duals: Array
    ) -> SoftState:
        """See ``Loss``: the bound of the duals of all rows, if they are balanced."""
        linear, signs = summary.far_linear, summary.row_sign
        named = duals[summary.row_id] * signs
        total = float(summary.far_c[0] + named.sum())
        if objective.intercept and abs(float(linear[-1])) > BALANCE * total:
            return state
        sums = DualSums(float(summary.far_c[0]), linear[:-1], len(named))
        return dual_bound(objective, state, sums, (summary.row_id, signs, named))

    def ring_count(self, edges: int, crossing: int) -> int:
        """One ring between two edges."""
        return edges - 1

    def rings(
        self, edges: Array, crossing: int, away: Array, losing: NDArray[np.bool_], row_c: Array
    ) -> tuple[NDArray[np.intp], Array]:
        """Rows on both sides together, each with weight c / t."""
        return rings_of(edges, away, row_c)


def _on_their_sides(magnitudes: Magnitudes, point: Array, cached: RowsWithC, duals: Array) -> NDArray[np.bool_]:
    """Cached rows (m,) that need not be named: far enough from the margin at ``point``, with the dual of their side."""
    margins = cached.signs * (products(cached.rows, point[:-1, None])[0] + point[-1])
    length = magnitudes.longest * float(np.linalg.norm(point[:-1]))
    error = gamma(len(point) + 2) * (length + abs(float(point[-1])) + 1.0)
    side = np.where(margins < 1.0, cached.row_c, 0.0)
    return np.asarray((np.abs(margins - 1.0) > 4.0 * error) & (duals == side))
