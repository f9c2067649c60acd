"""The squared hinge, max(0, 1 - m)^2: its steps, its dual bounds, and its first read in stages.

**The model.** At hypothesis w0, a stage sums up its far rows with slack xi = 1 - margin > 0. With s = y (dw.x + db),
the move of a row's margin since w0, t = |1 - margin| at w0, and M an upper bound on |s|, the model counts at another
hypothesis

    c (xi - s)^2 for rows that had slack, too much by at most c max(0, |s| - t)^2 of those that crossed the margin,
    0 for all others, too little by at most that

    c max(0, |s| - t)^2  <=  c s^2 max(0, 1 - t / M)^2

so that one matrix of each ring, sum c (x, 1)(x, 1)^T, bounds the value from both sides.

**The dual.** The duals 2 c xi at the minimiser of the model are nearly a dual point. They miss one by a gradient g,
that of rows that crossed, 2 c (|s| - t) y (x, 1) each. All rows together make up for it (verify/corrected_dual.py):
with r = min(1, xi / ramp) and H = R + 2 sum c r (x, 1)(x, 1)^T, the dual is at least the value less g.H^-1 g / 2. With
E the sum of c (|s| - t)^2 of a ring, A its matrix, lambda the largest eigenvalue, and any tau > 0 for each ring,
Cauchy-Schwarz gives

    g.H^-1 g  <=  4 (sum E / tau) lambda(H^-1 sum tau A)

H is bounded from below, as no row has less slack than t - M.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, replace
from functools import cached_property
from typing import TYPE_CHECKING

import numpy as np
import scipy.linalg
from numpy.typing import NDArray

from coremargin.maths import soft_margin as soft
from coremargin.maths.margin import gamma
from coremargin.maths.newton import SMALL, Quadratic, Rows
from coremargin.maths.newton import minimise_squared_hinge as minimise_by_sums
from coremargin.maths.rows import curvature, signed_points, weighted_sum
from coremargin.maths.smooth import minimise_squared_hinge
from coremargin.problems.soft.first_read import CROSSING, FirstRead
from coremargin.problems.soft.losses.loss import Array, Loss, Objective
from coremargin.problems.soft.magnitudes import LONG, Magnitudes, tiled_curve
from coremargin.problems.soft.state import Bounds

if TYPE_CHECKING:
    from coremargin.maths.row_model import RowModel
    from coremargin.problems.soft.rows_with_c import RowsWithC
    from coremargin.problems.soft.state import FarRows, Reading, SoftState
    from coremargin.problems.soft.summary import NearMarginSummary

#: Gaps of solutions before the last stage, relative to the requested gap.
ON_THE_WAY = 1e-3
#: Near rows farther from the margin than this many expected moves keep to their sides while the others are solved. The
#: minimiser is then that of nearly the model, and what is proven of it is proven of all rows.
PARKED = 2.5
#: Ramps to choose from.
RAMPS = (0.0625, 0.125, 0.18, 0.25, 0.35, 0.5, 0.7, 1.0)
#: Near rows of more slack count as if they had this much in the matrix of a correction.
NEAR = 0.25
#: Stages are read again if that is expected to leave this share of the requested gap.
ENOUGH = 0.8
#: The correction may change no margin by more than this share of the ramp.
SHARE = 0.9
#: Iterations in which the weights tau of rings are improved.
TURNS = 2


# Dual bounds of a scan, rounded down by what the verifier may lose once more in sums of its own


def scan_bound(objective: Objective, state: SoftState, summary: NearMarginSummary) -> SoftState:
    """The state with the dual bound of the duals that belong to the newest hypothesis."""
    share = 16.0 * objective.magnitudes.sum_error
    size = objective.magnitudes.margin_size(state.newest)
    least = float(summary.slack.min() if objective.intercept else summary.slack.sum())
    otherwise = slack_error(size, float(summary.below_c[0]), least)
    errors: list[Array | float] = [(share + 2.0 * otherwise) * objective.magnitudes.longest]
    if objective.magnitudes.longest > LONG and summary.slack.all():
        slack, squares = summary.slack, float(objective.class_c.max()) * summary.squares
        if not objective.intercept:
            slack, squares = slack.sum(keepdims=True), squares.sum(keepdims=True)
        each = [objective.magnitudes.sizes(1.0, square / unit**2) for unit, square in zip(slack, squares, strict=True)]
        below_c = float(summary.below_c[0])
        moved = otherwise / below_c * objective.magnitudes.sizes(below_c, float(objective.class_c.max()) * below_c)
        errors.append(np.asarray(share * np.sum(each, axis=0) + 2.0 * moved))
    sums = (summary.slack, summary.squares, summary.dual_sum)
    dual = max(
        soft.squared_hinge_dual(*sums, objective.metric[:-1], objective.intercept, error=error, share=share)
        for error in errors
    )
    dual *= max(0.0, 1.0 - otherwise)
    if not dual > state.lower:
        return state
    return replace(state, bounds=Bounds.of_hypothesis(state.newest, state.upper, dual))


def slack_error(size: float, below_c: float, slack: float) -> float:
    """Relative difference of duals that are made of slacks rounded in another way.

    Those are a dual point as well; its sum is less by no more than this share, and its combination of the rows is off
    by no more than this share of the longest row. size: of the terms of a margin; below_c: sum of c of the rows with
    slack; slack: their sum of c xi.
    """
    return 2.0**-48 * size * below_c / slack if slack > 0 else 0.0


def bound_ahead(
    objective: Objective, state: SoftState, summary: NearMarginSummary, rows: Rows, curve: Array, ahead: Array
) -> SoftState:
    """The state with the dual bound of another hypothesis, ``ahead`` (d + 1,), before any scan has seen it.

    Far rows are a quadratic around the hypothesis of the scan, which is exact on a way so short that none of them
    reaches the margin. rows: the near rows, with margins at the newest hypothesis; curve (d + 1, d + 1): of the far
    rows.
    """
    magnitudes = objective.magnitudes
    length, move = magnitudes.longest, ahead - state.newest
    way = length * float(np.linalg.norm(move[:-1])) + abs(float(move[-1]))  # no margin changes by more
    size = magnitudes.margin_size(state.newest)
    change = min(way, magnitudes.reach(np.abs(move[:-1])) + abs(float(move[-1])))
    if not change + 4.0 * gamma(len(move) + 8) * size < float(summary.far_least[0]):
        return state
    before, slack = np.maximum(1.0 - rows.margins, 0.0), np.maximum(1.0 - rows.signed @ ahead, 0.0)
    share = 16.0 * magnitudes.sum_error
    most = float(summary.slack.sum() + rows.weights @ slack) + float(summary.far_c[0]) * way
    loose = share * most * (length + 1.0)
    body, edge = magnitudes.curve_errors(float(summary.far_c[0]), float(summary.far_spread[0]))
    moved = float(np.linalg.norm(move))
    off = loose + (body + 2.0 * edge) * moved
    total = float(summary.slack.sum() - rows.weights @ before - summary.far_linear @ move + rows.weights @ slack)
    squares = float(summary.far_value[0] - 2.0 * summary.far_slope @ move + move @ curve @ move)
    squares += float(rows.weights @ (slack * slack)) + off * moved + loose
    dual_sum = summary.far_slope - curve @ move + rows.signed.T @ (rows.weights * slack)
    total -= share * most
    if objective.intercept:  # each class has half of the total, up to the imbalance
        lack = abs(float(dual_sum[-1])) + share * most + edge * moved
        total, off = 0.5 * (total - lack), off + length * lack
    if not total > 0.0:
        return state
    both = np.array([total, total if objective.intercept else 0.0])
    sums = both, np.array([squares, 0.0]), np.stack([dual_sum[:-1], np.zeros(len(dual_sum) - 1)])
    otherwise = slack_error(magnitudes.margin_size(ahead), float(summary.total_c.sum()), total)
    error = off / total + 2.0 * otherwise * length
    dual = soft.squared_hinge_dual(*sums, objective.metric[:-1], objective.intercept, error=error, share=share)
    dual *= max(0.0, 1.0 - otherwise)
    if not dual > state.lower:
        return state
    return replace(state, bounds=Bounds.of_hypothesis(ahead, state.upper, dual))


# The first read


@dataclass(frozen=True)
class SquaredHingeRead(FirstRead):
    """``FirstRead`` with the squared hinge: the model, the stages to read again, and the best of its dual points."""

    #: On 1e6 x 100 with 2, 5 and 10 % noise: gaps of 9.2e-4, 2.4e-4 and 6.2e-5.
    NEAR_SHARE = 0.12
    BEYOND = np.array([0.125, 0.25, 0.5, 1.0])

    def minimise(self, reading: Reading, start: Array, sample: RowsWithC, *, last: bool) -> tuple[Array, Array]:
        """See ``FirstRead``; all duals follow from hypotheses."""
        near, far, objective = reading.near, reading.far, self.objective
        seen = float(far.total_c.sum())
        scale = 1.0 if last or not seen else float(self.total_c.sum()) / seen  # the rows read stand for all
        margins, curves = near.margins(start), losing_curves(far)
        live = np.abs(margins - 1.0) < PARKED * reading.spread
        losing = np.flatnonzero(~live & (margins < 1.0))
        parked = near.take(losing)
        slopes = objective.loss.dual(margins[losing], parked.row_c) * parked.signs
        slope = -far.dual_sum.sum(axis=(0, 1)) + 2.0 * np.einsum("sij,sj->i", curves, start - far.hypotheses)
        slope -= np.append(weighted_sum(parked.rows, slopes), slopes.sum())
        curve = curves.sum(axis=0) + tiled_curve(parked.rows, parked.row_c)[0]
        if not objective.intercept:
            slope[-1], curve[-1], curve[:, -1] = 0.0, 0.0, 0.0
        some = near.take(np.flatnonzero(live))
        signed = signed_points(some.rows, some.signs, float(objective.intercept))
        rows = Rows(signed, scale * some.row_c, margins[live])
        quadratic = Quadratic(0.0, scale * slope, scale * curve)
        tolerance = SMALL if last else ON_THE_WAY * objective.epsilon
        return minimise_by_sums(start, objective.metric, quadratic, rows, tolerance=tolerance)[0], np.zeros(0)

    def far_losses(self, reading: Reading, hypothesis: Array) -> float:
        """See ``FirstRead``: of rows with slack, by their matrices."""
        known = self._known(reading, hypothesis)
        return known.losses + known.error

    def crossing_losses(self, reading: Reading, hypothesis: Array) -> Array:
        """See ``FirstRead``: of rows that had no slack."""
        return np.asarray(self._known(reading, hypothesis).excess[:, 1].sum(axis=1))

    def open_gap(self, reading: Reading, hypothesis: Array) -> Array:
        """See ``FirstRead``: of all rows that crossed, as those that had slack are missing in the dual."""
        return np.asarray(self._known(reading, hypothesis).excess.sum(axis=(1, 2)))

    def _known(self, reading: Reading, hypothesis: Array) -> FarModel:
        return FarModel(self.objective, reading.far, hypothesis, self.largest_changes(reading, hypothesis))

    def with_dual(self, state: SoftState, reading: Reading, duals: Array) -> SoftState:
        """See ``FirstRead``: of the point corrected at the newest hypothesis, with the best ramp."""
        none = np.zeros(len(reading.reread), bool)
        dual, ramp = self._dual(reading, state.newest, self._known(reading, state.newest), none)
        if not dual > state.lower:
            return state
        bounds = replace(Bounds.of_hypothesis(state.newest, state.upper, dual), ramp=ramp)
        return replace(state, bounds=bounds)

    def marked_to_reread(self, state: SoftState, reading: Reading) -> Reading | None:
        """See ``FirstRead``: the stages of most excess per row, as few as are expected to be enough."""
        known, point = self._known(reading, state.newest), state.newest
        present = np.unique(reading.stage_of)
        chunks = np.bincount(reading.stage_of, minlength=len(reading.reread))[present]
        order = present[np.argsort(-known.excess.sum(axis=(1, 2))[present] / chunks, kind="stable")]
        reread = np.zeros(len(reading.reread), bool)
        for stage in order[:-1]:
            reread[stage] = True
            value = self.value(reading, point) - float(known.excess[reread, 1].sum())
            if value - self._dual(reading, point, known, reread)[0] <= ENOUGH * self.objective.epsilon * value:
                return replace(reading, reread=reread)
        return None

    def _dual(self, reading: Reading, point: Array, known: FarModel, settled: NDArray[np.bool_]) -> tuple[float, float]:
        """The largest dual bound of a hypothesis and its ramp; (0, 0) if no ramp gives one.

        settled (s,): stages that are treated as exact.
        """
        near, objective = reading.near, self.objective
        margins = near.margins(point)
        slack = np.maximum(1.0 - margins, 0.0)
        excess = np.where(settled[:, None, None], 0.0, known.excess)
        losses = known.losses - known.error + float(near.row_c @ (slack * slack))
        least = soft.penalty(point, objective.metric) + losses - float(excess[:, 0].sum())
        gradient = objective.metric * point + known.gradient
        slopes = objective.loss.dual(margins, near.row_c)
        gradient -= np.append(weighted_sum(near.rows, slopes * near.signs), slopes @ near.signs)
        magnitudes = objective.magnitudes
        error = known.gradient_error + 32.0 * magnitudes.sum_error * (magnitudes.longest + 1.0) * float(slopes.sum())
        few = near.take(np.flatnonzero(slack))  # less than their curve, but one matrix for all ramps
        points = signed_points(few.rows, np.ones(len(few), np.int8), 1.0)
        near_curve = 2.0 * (1.0 - 1e-9) * curvature(points, few.row_c * np.minimum(slack[slack > 0], NEAR))
        best = 0.0, 0.0
        for ramp in RAMPS:
            curve = near_curve / max(ramp, NEAR) + known.curve_at_least(ramp, settled)
            correction = Correction(objective, point, gradient, error, curve, excess, known.far)
            dual = correction.dual_bound(least, ramp, float(self.total_c.sum()))
            best = max(best, (dual, ramp))
        return best


def losing_rings(far: FarRows) -> Array:
    """The matrices (s, k, d + 1, d + 1) of rows with slack, by ring."""
    return far.rings[:, : far.edges.shape[1]]


def losing_curves(far: FarRows) -> Array:
    """sum c (x, 1)(x, 1)^T (s, d + 1, d + 1) over the far rows with slack of each stage."""
    return np.asarray(losing_rings(far).sum(axis=1))


@dataclass(frozen=True)
class FarModel:
    """Bounds at another hypothesis from the sums of far rows; most (s,): on every margin's move since then."""

    objective: Objective
    far: FarRows
    point: Array
    most: Array

    @cached_property
    def moves(self) -> Array:
        """The move (s, d + 1) of the hypothesis since each stage."""
        return np.asarray(self.point - self.far.hypotheses)

    @property
    def losses(self) -> float:
        """Losses of rows that had slack, by their matrices."""
        far, moves = self.far, self.moves
        bent = np.einsum("si,sij,sj->", moves, losing_curves(far), moves)
        return float(far.value.sum() - np.einsum("sci,si->", far.dual_sum, moves) + bent)

    @property
    def error(self) -> float:
        """Error of ``losses``."""
        far = self.far
        value = far.value + 2.0 * far.removed[:, 0]
        sizes = value + 2.0 * self._ways * self._summed + self._ways**2 * far.total_c.sum(axis=1)
        sums = 32.0 * self.objective.magnitudes.sum_error * float(sizes.sum())
        slacks = float(self._rounding @ self._summed)
        return sums + slacks + float(self._losing_errors @ self._lengths**2)

    @property
    def gradient(self) -> Array:
        """Gradient (d + 1,) of ``losses``."""
        return np.asarray(
            -self.far.dual_sum.sum(axis=(0, 1)) + 2.0 * np.einsum("sij,sj->i", losing_curves(self.far), self.moves)
        )

    @property
    def gradient_error(self) -> float:
        """Error of ``gradient``, as a length."""
        far, magnitudes = self.far, self.objective.magnitudes
        sizes = self._summed + 2.0 * self._ways * far.total_c.sum(axis=1)
        slacks = 2.0 * float(self._rounding @ far.total_c.sum(axis=1))
        sums = (32.0 * magnitudes.sum_error * float(sizes.sum()) + slacks) * (magnitudes.longest + 1.0)
        return sums + 2.0 * float(self._losing_errors @ self._lengths)

    @cached_property
    def excess(self) -> Array:
        """Upper bounds (s, 2, k) on sum c (|s| - t)^2 over rows that crossed: that had slack or had none; by ring."""
        far, edges = self.far, self.far.edges.shape[1]
        found = np.zeros((len(far.hypotheses), 2, edges))
        for stage in np.flatnonzero(self._lengths > 0):
            most, move, total_c = float(self.most[stage]), self.moves[stage], float(far.total_c[stage].sum())
            nearest = np.maximum(far.edges[stage], far.least[stage]) - self._rounding[stage]
            shares = np.clip(1.0 - np.maximum(nearest, 0.0) / most, 0.0, 1.0) ** 2 if most > 0 else np.zeros(edges)
            ceiling = total_c * most**2 * shares  # no row has moved farther
            squares = np.einsum("i,kij,j->k", move, far.rings[stage], move)
            squares = np.maximum(squares, 0.0) + self._curve_errors[stage] * float(move @ move)
            found[stage, 0] = np.minimum(shares * squares[:edges], ceiling)
            found[stage, 1, :CROSSING] = np.minimum(shares[:CROSSING] * squares[edges:], ceiling[:CROSSING])
            found[stage, 1, CROSSING] = ceiling[CROSSING]  # rows beyond that edge are in no ring
        return found

    def curve_at_least(self, ramp: float, settled: NDArray[np.bool_]) -> Array:
        """Lower bound on 2 sum c min(1, xi / ramp) (x, 1)(x, 1)^T (d + 1, d + 1) over far rows with slack here."""
        far, edges = self.far, self.far.edges.shape[1]
        most = np.where(settled, 0.0, self.most) + self._rounding
        shares = np.clip((far.edges - most[:, None]) / ramp, 0.0, 1.0) * (1.0 - 1e-9)
        loose = float((shares * self._curve_errors[:, :edges]).sum())
        found = np.einsum("sk,skij->ij", shares, losing_rings(far))
        return np.asarray(2.0 * (found - loose * np.eye(len(found))))

    @cached_property
    def _curve_errors(self) -> Array:
        """Error of the matrix of each ring (s, k), as the length of what it makes of a move of length 1."""
        far, magnitudes = self.far, self.objective.magnitudes
        found = np.zeros(far.ring_weight.shape)
        for place, weight in np.ndenumerate(far.ring_weight):
            if weight:
                body, edge = magnitudes.curve_errors(float(weight), float(far.ring_spread[place]))
                found[place] = body + 2.0 * edge
        return found

    @property
    def _losing_errors(self) -> Array:
        return np.asarray(self._curve_errors[:, : self.far.edges.shape[1]].sum(axis=1))

    @property
    def _lengths(self) -> Array:
        return np.asarray(np.linalg.norm(self.moves, axis=1))

    @property
    def _summed(self) -> Array:
        """Sums of duals (s,), including twice those that were added and subtracted again."""
        return np.asarray(self.far.duals.sum(axis=1) + 2.0 * self.far.removed[:, 1])

    @cached_property
    def _ways(self) -> Array:
        magnitudes = self.objective.magnitudes
        return np.array([magnitudes.reach(np.abs(move[:-1])) + abs(float(move[-1])) for move in self.moves])

    @property
    def _rounding(self) -> Array:
        """Rounding of a margin (s,) at the hypothesis of its stage."""
        far = self.far
        sizes = [self.objective.magnitudes.margin_size(hypothesis) for hypothesis in far.hypotheses]
        return 4.0 * gamma(far.hypotheses.shape[1] + 2) * np.array(sizes)


@dataclass(frozen=True)
class Correction:
    """The distance of the duals at a hypothesis from a dual point, and the cost of correcting them.

    gradient (d + 1,): of the model; error: its error, as a length; curve (d + 1, d + 1): lower bound on H - R; excess
    (s, 2, k): as in ``FarModel``.
    """

    objective: Objective
    point: Array
    gradient: Array
    error: float
    curve: Array
    excess: Array
    far: FarRows

    def dual_bound(self, least: float, ramp: float, total_c: float) -> float:
        """The dual bound, 0 if there is none; least: lower bound on the value; total_c: sum of c of all rows."""
        found = self._factor()
        if found is None or not least > 0:
            return 0.0
        inverse, length = found
        weights = inverse[: len(self.point) - 1, : len(self.point) - 1]
        shift = float(np.sqrt(inverse[-1, -1])) if self.objective.intercept else 0.0
        turn = float(np.sqrt(max(0.0, np.linalg.eigvalsh(weights)[-1])))
        ball = length * (turn * self._magnitudes.longest + shift)
        most = min(ball, length * self._box(inverse))
        if not most <= SHARE * ramp:
            return 0.0
        return least - 0.5 * length * length - self._verifier_error(least, ball, ramp, total_c, length * turn)

    @property
    def _magnitudes(self) -> Magnitudes:
        return self.objective.magnitudes

    def _factor(self) -> tuple[Array, float] | None:
        """H^-1, and an upper bound on sqrt(g.H^-1 g); None if H may not be positive definite."""
        used = len(self.point) if self.objective.intercept else len(self.point) - 1
        matrix = self.curve[:used, :used] + np.diag(self.objective.metric[:used])
        if not all(np.isfinite(part).all() for part in (matrix, self.gradient, self.excess)):
            return None
        try:
            factor = np.linalg.cholesky(matrix)
        except np.linalg.LinAlgError:
            return None
        root = scipy.linalg.solve_triangular(factor, np.eye(used), lower=True, check_finite=False)
        inverse = root.T @ root
        known = float(np.linalg.norm(root @ self.gradient[:used]))
        loose = self.error * float(np.sqrt(np.linalg.eigvalsh(inverse)[-1]))
        whole = known + loose + 2.0 * float(np.sqrt(self._crossing(root, used)))
        return (inverse, whole * (1.0 + 1e-6)) if np.isfinite(whole) else None

    def _crossing(self, root: Array, used: int) -> float:
        """(sum E / tau) lambda(H^-1 sum tau A); root: L^-1, H = L L^T."""
        places = [
            (int(stage), int(side), int(ring)) for stage, side, ring in zip(*np.nonzero(self.excess), strict=True)
        ]
        excess = np.array([self.excess[place] for place in places])
        best, tau = np.inf if places else 0.0, np.sqrt(excess)
        for _ in range(TURNS if places else 0):
            whole = np.zeros((len(self.point), len(self.point)))
            for place, share in zip(places, tau, strict=True):
                matrix, loose = self._ring(*place)
                whole += share * matrix
                whole[np.diag_indices_from(whole)] += share * loose
            values, vectors = np.linalg.eigh(root @ whole[:used, :used] @ root.T)
            best = min(best, float((excess / tau).sum()) * max(0.0, float(values[-1])))
            ahead = root.T @ vectors[:, -4:]
            sizes = np.array([self._size(place, ahead) for place in places])
            tau = np.sqrt(excess / np.maximum(sizes, 1e-12 * sizes.max()))
        return best

    def _size(self, place: tuple[int, int, int], ahead: Array) -> float:
        """Size of a ring in some directions (p, k)."""
        matrix, loose = self._ring(*place)
        used = len(ahead)
        return float(np.einsum("ij,ij->", ahead, matrix[:used, :used] @ ahead) + loose * float((ahead * ahead).sum()))

    def _ring(self, stage: int, side: int, ring: int) -> tuple[Array, float]:
        """The matrix of a ring and its error; for rows in no ring, what all rows of the stage can amount to."""
        far, edges = self.far, self.far.edges.shape[1]
        if side and ring == CROSSING:
            nothing = np.zeros((len(self.point), len(self.point)))
            return nothing, float(far.total_c[stage].sum()) * (self._magnitudes.longest**2 + 1.0)
        place = side * edges + ring
        weight, spread = float(far.ring_weight[stage, place]), float(far.ring_spread[stage, place])
        body, edge = self._magnitudes.curve_errors(weight, spread) if weight else (0.0, 0.0)
        return far.rings[stage, place], body + 2.0 * edge

    def _box(self, inverse: Array) -> float:
        """Upper bound on the change of every margin for a move of length 1 in H, by the box that all rows lie in."""
        columns, d = self._magnitudes.columns, len(self.point) - 1
        middle, half = 0.5 * (columns.high + columns.low), 0.5 * (columns.high - columns.low)
        centre = np.append(middle, 1.0)[: len(inverse)]
        sides = half[:, None] * inverse[:d, :d] * half
        if not np.isfinite(sides).all():
            return np.inf
        largest = min(float(np.sqrt(np.diag(sides)).sum()), float(np.sqrt(d * max(0.0, np.linalg.eigvalsh(sides)[-1]))))
        return float(np.sqrt(centre @ inverse @ centre)) + largest

    def _verifier_error(self, value: float, size: float, ramp: float, total_c: float, turn: float) -> float:
        """The rounding error of the verifier's computation; size: of the terms of a row's correction."""
        magnitudes, p = self._magnitudes, len(self.point)
        error = 2.0 * magnitudes.sum_error + gamma(64 * p)
        losses, more = float(np.sqrt(value * total_c)), size / ramp
        sums = error * (2.0 * losses + value + losses * (2.0 * (size + more) + size * more))
        each = error * losses * (1.0 + more)
        off = 2.0 * each * magnitudes.longest * 2.0
        length = float(np.linalg.norm(self.point[:-1])) + turn
        reach = magnitudes.margin_size(self.point)
        slack = gamma(p + 8) * reach * total_c * (1.0 + reach + size)
        return 4.0 * (sums + 2.0 * each + off * length + off * off + 2.0 * slack)


# The loss


@dataclass(frozen=True)
class SquaredHinge(Loss):
    """max(0, 1 - m)^2; the best dual of a row is 2 c times its slack."""

    word = "squared_hinge"
    formula = "max(0, 1 \u2212 m)\u00b2"
    curves = True
    names_duals = False
    clipped_slope = 2.0
    solve_cost = 5e9
    most_crossed = -1.0  # any share: steps out of a small zone lead too far
    first_read = SquaredHingeRead

    def value(self, margins: Array) -> Array:
        """The squared slacks."""
        slack = np.maximum(1.0 - margins, 0.0)
        return np.asarray(slack * slack)

    def slack(self, value: float) -> float:
        """The root."""
        return math.sqrt(value)

    def dual(self, margins: Array, row_c: Array) -> Array:
        """2 c times the slack."""
        return np.asarray(2.0 * row_c * np.maximum(1.0 - margins, 0.0))

    def violations(self, margins: Array, duals: Array, row_c: Array) -> Array:
        """Distance of the slack from that of the dual; duals have no upper limit."""
        ahead = 1.0 - margins - duals / (2.0 * row_c)
        return np.where((duals == 0) & (ahead < 0), 0.0, np.abs(ahead))

    def dual_total(self, duals: Array, row_c: Array) -> float:
        """The sum of a - a^2 / (4 c)."""
        return float(duals.sum() - 0.25 * duals @ (duals / row_c))

    def curvature(self, row_c: Array) -> tuple[Array, Array]:
        """2 c, and no limit."""
        return 2.0 * row_c, np.full(len(row_c), np.inf)

    def value_error(self, margin: float, value: float, row_c: float) -> float:
        """By Cauchy-Schwarz, plus the square of the error."""
        return 2.0 * margin * float(np.sqrt(row_c * max(value, 0.0))) + margin * margin * row_c

    def minimise(self, model: RowModel, start: Array, duals: Array | None, tolerance: float) -> tuple[Array, Array]:
        """By Newton's method; the duals follow from the minimiser."""
        return minimise_squared_hinge(model, start, tolerance), np.zeros(len(model.signs))

    def minimise_sample(self, objective: Objective, some: RowsWithC, start: Array) -> Array:
        """By Newton's method."""
        rows = signed_points(some.rows, some.signs, float(objective.intercept))
        model = Rows(rows, some.row_c, rows @ start)
        return minimise_by_sums(start, objective.metric, Quadratic.zero(len(start)), model)[0]

    def next_step(self, objective: Objective, state: SoftState, summary: NearMarginSummary) -> tuple[Array, SoftState]:
        """See ``Loss``: by Newton's method, with the dual bounds of the scan's hypothesis and of the minimiser."""
        state = scan_bound(objective, state, summary)
        curve, slope = summary.far_curve.copy(), -2.0 * summary.far_slope
        if not objective.intercept:
            curve[-1], curve[:, -1], slope[-1] = 0.0, 0.0, 0.0
        rows = signed_points(summary.row_x, summary.row_sign, float(objective.intercept))
        model = Rows(rows, summary.row_c, rows @ state.newest)
        far = Quadratic(float(summary.far_value[0]), slope, curve)
        step, _ = minimise_by_sums(state.newest, objective.metric, far, model)
        return step, bound_ahead(objective, state, summary, model, curve, step)

    def cached_bound(self, objective: Objective, state: SoftState, summary: NearMarginSummary) -> SoftState:
        """See ``Loss``: all duals follow from the hypothesis."""
        return scan_bound(objective, state, summary)

    def proof_bound(
        self, objective: Objective, state: SoftState, summary: NearMarginSummary, duals: Array
    ) -> SoftState:
        """See ``Loss``: all duals follow from the hypothesis."""
        return scan_bound(objective, state, summary)

    def ring_count(self, edges: int, crossing: int) -> int:
        """Rings of rows with slack, the last one beyond all edges, then those of other rows that may cross."""
        return edges + crossing

    def rings(
        self, edges: Array, crossing: int, away: Array, losing: NDArray[np.bool_], row_c: Array
    ) -> tuple[NDArray[np.intp], Array]:
        """The rows of each side apart, each with weight c."""
        ring = np.searchsorted(edges, away, side="right") - 1
        crossers = ~losing & (away < edges[crossing])
        return np.where(losing, ring, np.where(crossers, len(edges) + ring, -1)), row_c
