"""What far rows prove of a hypothesis with the squared hinge: their curves, how wrong they are where rows have crossed.

A stage at hypothesis w0 sums up its far rows that lose, at xi = 1 - margin > 0. With s = y (dw.x + db), the move of a
row's margin since, t = |1 - margin| at w0, and M no less than any |s|, the model of the value counts at another one

    c (xi - s)^2 for rows that lost at w0, which is too much by at most c max(0, |s| - t)^2 of those that have crossed,
    0 for all others, which is too little by at most that

    c max(0, |s| - t)^2  <=  c s^2 max(0, 1 - t / M)^2

so that a matrix of each ring, sum c (x, 1)(x, 1)^T, bounds the value from both sides. The model's minimiser has nearly
the slopes of a dual point: they miss by a gradient g, that of rows that have crossed, 2 c (|s| - t) y (x, 1) each. All
rows make up for it together (verify/soft/correction.py): with r = min(1, xi / ramp), H = R + 2 sum c r (x, 1)(x, 1)^T,
the dual is at least the value less g.H^-1 g / 2. With E the sum of c (|s| - t)^2 of a ring, A its matrix, lambda the
largest eigenvalue, and any tau > 0 for each ring, by Cauchy and Schwarz

    g.H^-1 g  <=  4 (sum E / tau) lambda(H^-1 sum tau A)

H is known from below: a row has not less slack than t - M.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property
from typing import TYPE_CHECKING

import numpy as np
import scipy.linalg
from numpy.typing import NDArray

from coremargin.maths.margin import gamma
from coremargin.problems.soft.first_read import CROSSING

if TYPE_CHECKING:
    from coremargin.problems.soft.far_rows import FarRows
    from coremargin.problems.soft.objective import Magnitudes, Objective

Array = NDArray[np.float64]

#: Of a ramp, no row's margin may change by more than a share by the correction.
SHARE = 0.9
#: Turns in which the weights tau of rings are improved.
TURNS = 2


def losing_rings(far: FarRows) -> Array:
    """The matrices (s, k, d + 1, d + 1) of rows that lose, by ring."""
    return far.rings[:, : far.edges.shape[1]]


def losing_curves(far: FarRows) -> Array:
    """sum c (x, 1)(x, 1)^T (s, d + 1, d + 1) of each stage's far rows that lose."""
    return np.asarray(losing_rings(far).sum(axis=1))


@dataclass(frozen=True)
class Known:
    """What far rows say of another hypothesis; most (s,): no margin of a stage's rows has moved by more since."""

    objective: Objective
    far: FarRows
    at: Array
    most: Array

    @cached_property
    def moves(self) -> Array:
        """(s, d + 1), of the hypothesis since each stage."""
        return np.asarray(self.at - self.far.at)

    @property
    def losses(self) -> float:
        """Of rows that lost, by their curves."""
        far, moves = self.far, self.moves
        bent = np.einsum("si,sij,sj->", moves, losing_curves(far), moves)
        return float(far.value.sum() - np.einsum("sci,si->", far.dual_sum, moves) + bent)

    @cached_property
    def _curve_errors(self) -> Array:
        """How far the matrix of a ring (s, k) may be off, as the length of what it makes of a move."""
        far, magnitudes = self.far, self.objective.magnitudes
        found = np.zeros(far.ring_weight.shape)
        for place, weight in np.ndenumerate(far.ring_weight):
            if weight:
                body, edge = magnitudes.curve_errors(float(weight), float(far.ring_spread[place]))
                found[place] = body + 2.0 * edge
        return found

    @property
    def _lengths(self) -> Array:
        return np.asarray(np.linalg.norm(self.moves, axis=1))

    @property
    def _losing_errors(self) -> Array:
        """Of the curve of a stage (s,)."""
        return np.asarray(self._curve_errors[:, : self.far.edges.shape[1]].sum(axis=1))

    @property
    def error(self) -> float:
        """How far ``losses`` may be off."""
        far = self.far
        value = far.value + 2.0 * far.taken[:, 0]
        sizes = value + 2.0 * self._ways * self._summed + self._ways**2 * far.total_c.sum(axis=1)
        sums = 32.0 * self.objective.magnitudes.sum_error * float(sizes.sum())
        slacks = float(self._rounding @ self._summed)
        return sums + slacks + float(self._losing_errors @ self._lengths**2)

    @property
    def _summed(self) -> Array:
        """Duals of each stage (s,), those included that were taken out again."""
        return np.asarray(self.far.duals.sum(axis=1) + 2.0 * self.far.taken[:, 1])

    @cached_property
    def _ways(self) -> Array:
        magnitudes = self.objective.magnitudes
        return np.array([magnitudes.reach(np.abs(move[:-1])) + abs(float(move[-1])) for move in self.moves])

    @property
    def gradient(self) -> Array:
        """(d + 1,) of ``losses``."""
        return np.asarray(
            -self.far.dual_sum.sum(axis=(0, 1)) + 2.0 * np.einsum("sij,sj->i", losing_curves(self.far), self.moves)
        )

    @property
    def gradient_error(self) -> float:
        """How long what is missing of it may be."""
        far, magnitudes = self.far, self.objective.magnitudes
        sizes = self._summed + 2.0 * self._ways * far.total_c.sum(axis=1)
        slacks = 2.0 * float(self._rounding @ far.total_c.sum(axis=1))
        sums = (32.0 * magnitudes.sum_error * float(sizes.sum()) + slacks) * (magnitudes.longest + 1.0)
        return sums + 2.0 * float(self._losing_errors @ self._lengths)

    @property
    def _rounding(self) -> Array:
        """Of a margin (s,) at the hypothesis of its stage."""
        far, magnitudes = self.far, self.objective.magnitudes
        sizes = [magnitudes.reach(np.abs(at[:-1])) + abs(float(at[-1])) + 1.0 for at in far.at]
        return 4.0 * gamma(far.at.shape[1] + 2) * np.array(sizes)

    @cached_property
    def excess(self) -> Array:
        """sum c (|s| - t)^2 (s, 2, k) of rows that have crossed, at most: that lost, and that did not; by ring."""
        far, edges = self.far, self.far.edges.shape[1]
        found = np.zeros((len(far.at), 2, edges))
        for stage in np.flatnonzero(self._lengths > 0):
            most, move, total_c = float(self.most[stage]), self.moves[stage], float(far.total_c[stage].sum())
            nearest = np.maximum(far.edges[stage], far.least[stage]) - self._rounding[stage]
            shares = np.clip(1.0 - np.maximum(nearest, 0.0) / most, 0.0, 1.0) ** 2 if most > 0 else np.zeros(edges)
            whatever = total_c * most**2 * shares  # no row has moved farther
            squares = np.einsum("i,kij,j->k", move, far.rings[stage], move)
            squares = np.maximum(squares, 0.0) + self._curve_errors[stage] * float(move @ move)
            found[stage, 0] = np.minimum(shares * squares[:edges], whatever)
            found[stage, 1, :CROSSING] = np.minimum(shares[:CROSSING] * squares[edges:], whatever[:CROSSING])
            found[stage, 1, CROSSING] = whatever[CROSSING]  # beyond that edge they are in no ring
        return found

    def curve_at_least(self, ramp: float, settled: NDArray[np.bool_]) -> Array:
        """2 sum c min(1, xi / ramp) (x, 1)(x, 1)^T (d + 1, d + 1) of far rows that lose here, at least."""
        far, edges = self.far, self.far.edges.shape[1]
        most = np.where(settled, 0.0, self.most) + self._rounding
        shares = np.clip((far.edges - most[:, None]) / ramp, 0.0, 1.0) * (1.0 - 1e-9)
        loose = float((shares * self._curve_errors[:, :edges]).sum())
        found = np.einsum("sk,skij->ij", shares, losing_rings(far))
        return np.asarray(2.0 * (found - loose * np.eye(len(found))))


@dataclass(frozen=True)
class Missing:
    """How far slopes at a hypothesis miss a dual point, and what correcting them costs.

    gradient (d + 1,): of the model; its error as a length; curve (d + 1, d + 1): 2 G, no more than it is, without R;
    excess (s, 2, k): of rings, of rows that have crossed.
    """

    objective: Objective
    at: Array
    gradient: Array
    error: float
    curve: Array
    excess: Array
    far: FarRows

    def dual(self, least: float, ramp: float, total_c: float) -> float:
        """The bound, 0 where there is none; least: no value here is below it; total_c: sum of c of all rows."""
        found = self._factor()
        if found is None or not least > 0:
            return 0.0
        inverse, length = found
        weights = inverse[: len(self.at) - 1, : len(self.at) - 1]
        shift = float(np.sqrt(inverse[-1, -1])) if self.objective.intercept else 0.0
        turn = float(np.sqrt(max(0.0, np.linalg.eigvalsh(weights)[-1])))
        ball = length * (turn * self._magnitudes.longest + shift)
        most = min(ball, length * self._box(inverse))
        if not most <= SHARE * ramp:
            return 0.0
        return least - 0.5 * length * length - self._given_away(least, ball, ramp, total_c, length * turn)

    @property
    def _magnitudes(self) -> Magnitudes:
        return self.objective.magnitudes

    def _factor(self) -> tuple[Array, float] | None:
        """H^-1, and the length of the gradient by it, at most; None where H is not known to be positive."""
        used = len(self.at) if self.objective.intercept else len(self.at) - 1
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
            whole = np.zeros((len(self.at), len(self.at)))
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
        """Of a ring in some directions (p, k)."""
        matrix, loose = self._ring(*place)
        used = len(ahead)
        return float(np.einsum("ij,ij->", ahead, matrix[:used, :used] @ ahead) + loose * float((ahead * ahead).sum()))

    def _ring(self, stage: int, side: int, ring: int) -> tuple[Array, float]:
        """The matrix of a ring, and how far it may be off; of rows in no ring, what all of the stage can have."""
        far, edges = self.far, self.far.edges.shape[1]
        if side and ring == CROSSING:
            nothing = np.zeros((len(self.at), len(self.at)))
            return nothing, float(far.total_c[stage].sum()) * (self._magnitudes.longest**2 + 1.0)
        place = side * edges + ring
        weight, spread = float(far.ring_weight[stage, place]), float(far.ring_spread[stage, place])
        body, edge = self._magnitudes.curve_errors(weight, spread) if weight else (0.0, 0.0)
        return far.rings[stage, place], body + 2.0 * edge

    def _box(self, inverse: Array) -> float:
        """No row's margin changes by more for a move of length 1: by the box that all rows lie in."""
        columns, d = self._magnitudes.columns, len(self.at) - 1
        middle, half = 0.5 * (columns.high + columns.low), 0.5 * (columns.high - columns.low)
        centre = np.append(middle, 1.0)[: len(inverse)]
        sides = half[:, None] * inverse[:d, :d] * half
        if not np.isfinite(sides).all():
            return np.inf
        largest = min(float(np.sqrt(np.diag(sides)).sum()), float(np.sqrt(d * max(0.0, np.linalg.eigvalsh(sides)[-1]))))
        return float(np.sqrt(centre @ inverse @ centre)) + largest

    def _given_away(self, value: float, size: float, ramp: float, total_c: float, turn: float) -> float:
        """What whoever checks this in float64 may lose once more; size: of the terms of a row's correction."""
        magnitudes, p = self._magnitudes, len(self.at)
        error = 2.0 * magnitudes.sum_error + gamma(64 * p)
        losses, more = float(np.sqrt(value * total_c)), size / ramp
        sums = error * (2.0 * losses + value + losses * (2.0 * (size + more) + size * more))
        each = error * losses * (1.0 + more)
        off = 2.0 * each * magnitudes.longest * 2.0
        length = float(np.linalg.norm(self.at[:-1])) + turn
        reach = magnitudes.reach(np.abs(self.at[:-1])) + abs(float(self.at[-1])) + 1.0
        slack = gamma(p + 8) * reach * total_c * (1.0 + reach + size)
        return 4.0 * (sums + 2.0 * each + off * length + off * off + 2.0 * slack)
