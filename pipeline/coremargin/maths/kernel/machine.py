"""A support vector machine between two classes on rows held in memory, given all their kernel values.

    1/2 ||f||^2 + sum_i c_i loss(1 - y_i (f(x_i) + b)),   f = sum_j a_j y_j k(x_j, .)

with the hinge or the squared hinge, or without a loss the f of least length with y_i (f(x_i) + b) >= 1 for all rows.
The dual is solved (pairs.py) until its value proves that nothing is below (1 - tolerance) of the primal one.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import cache
from typing import Any

import numpy as np
from numpy.linalg import LinAlgError
from numpy.typing import NDArray
from scipy.linalg import cho_factor, cho_solve

from coremargin.formats.choices import Loss
from coremargin.maths.jit import Compiled, jit
from coremargin.maths.kernel import pairs
from coremargin.maths.stopping import may_stop

Array = NDArray[np.float64]

#: What the worst pair may violate at first, and by what it is divided until the gap is what was asked for.
VIOLATION, SHARPER, LEAST_VIOLATION = 1e-2, 8.0, 1e-14
#: So many steps that gain a smaller share than this, or than this part of what is asked for, are in vain.
GAIN, PART = 1e-13, 0.01
#: Steps between two looks at whether the answer is still wanted, and how often these may be made: four times
#: the 10^7 steps of LIBSVM, but of few rows no more often than there are rows. Kernel values of too many sizes let the
#: dual grow for years, by a share each time.
STEPS, SWEEPS, FEW_SWEEPS = 20_000, 2000, 50
#: Newton's steps move no more weights than this at a time; their matrix gets so much of its diagonal more.
MOST_FREE, REGULAR = 4000, 1e-13
#: A weight of a hard margin beyond this, over the largest k(x, x), is one that grows without end: nothing separates the
#: rows.
ENDLESS = 1e9


@dataclass(frozen=True)
class Side:
    """One column of a problem: signs (p,) of the rows, 0 for those that it is not about, and their costs (p,)."""

    signs: Array
    costs: Array
    loss: Loss | None
    intercept: bool

    @property
    def most(self) -> Array:
        """The largest dual weight (p,) of each row."""
        return self.costs if self.loss == "hinge" else np.where(self.signs == 0, 0.0, np.inf)

    @property
    def ridge(self) -> Array:
        """What is added to the diagonal (p,): the squared hinge is a hard margin with a slack in its rows."""
        if self.loss != "squared_hinge":
            return np.zeros(len(self.signs))
        return np.divide(0.5, self.costs, out=np.zeros(len(self.signs)), where=self.signs != 0)

    def losses(self, slack: Array) -> Array:
        """c loss (p,) of rows that lack so much of a margin of 1; 0 without a loss."""
        return losses(self.loss, self.costs, slack)


@dataclass(frozen=True)
class Solved:
    """duals (p,), the intercept; value and bound: what the primal and the dual one are on these rows.

    separable: false where the weights of a hard margin grow without end.
    """

    duals: Array
    offset: float
    value: float
    bound: float
    separable: bool = True


def losses(loss: Loss | None, costs: Array, slack: Array) -> Array:
    """c loss of slacks, arrays that broadcast; nothing without a loss, infinite where it overflows."""
    if loss is None:
        return np.zeros(np.broadcast_shapes(np.shape(costs), np.shape(slack)))
    short = np.maximum(slack, 0.0)
    with np.errstate(over="ignore", invalid="ignore"):
        return np.asarray(np.where(costs > 0, costs * (short if loss == "hinge" else short * short), 0.0))


def solve(matrix: NDArray[Any], side: Side, duals: Array, tolerance: float) -> Solved:
    """The machine on p rows, begun at dual weights (p,) that are feasible; matrix[:p, :p]: their kernel values."""
    duals, signs, ridge, violation = duals.copy(), side.signs, side.ridge, VIOLATION
    unit = float(matrix.diagonal()[: len(duals)].max(initial=0.0)) or 1.0
    while True:
        went = _until(matrix, side, duals, unit, violation, max(GAIN, PART * tolerance))
        gradient = _gradient(matrix, side, duals)
        found = _told(side, duals, signs * (gradient + 1.0 - ridge * duals), gradient, ENDLESS / unit)
        good = found.value - found.bound <= tolerance * found.value
        if good or not went or not found.separable or violation <= LEAST_VIOLATION:
            return found
        violation /= SHARPER


def _until(matrix: NDArray[Any], side: Side, duals: Array, unit: float, violation: float, least: float) -> bool:
    """Moves weights in place until the worst pair violates no more than that; Newton's steps between a few of theirs.

    Pairs find out which weights lie between their ends, and are slow to say where: that is a linear system. Returns
    False where that gained a smaller share than ``least`` in the end, or took too long. unit: of kernel values.
    """
    step = _compiled("pairwise" if side.intercept else "singly")
    rows = np.stack([side.signs, side.most, side.ridge, duals, _gradient(matrix, side, duals)])
    cost = _cost(rows)
    for _ in range(min(SWEEPS, max(FEW_SWEEPS, len(duals)))):
        may_stop()
        made, _ = step(matrix, rows, unit, violation, STEPS)
        duals[:] = rows[3]
        if made < STEPS or (side.loss is None and duals.max(initial=0.0) > ENDLESS / unit):
            return True
        _newton(matrix, side, rows[3], rows[4])
        before, cost = cost, _cost(rows)
        if not cost < before - least * abs(before):
            return False
    return False


def _cost(rows: Array) -> float:
    """What is minimised, from weights and their gradient."""
    return float(0.5 * rows[3] @ (rows[4] - 1.0))


def _newton(matrix: NDArray[Any], side: Side, duals: Array, gradient: Array) -> None:
    """Moves weights between their ends to where the dual is least among such, or as far as the first end; in place.

    Those that reach an end stay there, and the others move on. The dual grows with every step, whatever rounding and
    the ridge that makes singular matrices regular do to its direction.
    """
    most = side.most
    free = np.flatnonzero((duals > 0) & (duals < most))
    while 0 < len(free) <= MOST_FREE:
        may_stop()
        move = _direction(matrix, side, free, gradient[free])
        if move is None:
            return
        with np.errstate(divide="ignore", invalid="ignore"):
            room = np.where(
                move < 0, -duals[free] / move, np.where(move > 0, (most[free] - duals[free]) / move, np.inf)
            )
        step = min(1.0, float(room.min()))
        stop = room <= step
        duals[free] = np.where(stop, np.where(move < 0, 0.0, most[free]), duals[free] + step * move)
        gradient[:] = _gradient(matrix, side, duals)
        if step == 1.0:
            return
        free = free[~stop]


def _direction(matrix: NDArray[Any], side: Side, free: NDArray[np.intp], slope: Array) -> Array | None:
    """Where the free weights would go (m,) if they had no ends; None where the matrix does not say."""
    signs = side.signs[free]
    hessian = matrix[np.ix_(free, free)].astype(np.float64) * signs[:, None] * signs[None, :]
    hessian[np.diag_indices_from(hessian)] += side.ridge[free] + REGULAR * float(hessian.diagonal().max())
    try:
        factor = cho_factor(hessian, lower=True, overwrite_a=True, check_finite=False)
    except LinAlgError:
        return None
    move = cho_solve(factor, -slope, check_finite=False)
    if side.intercept:
        across = cho_solve(factor, signs, check_finite=False)
        move -= across * float(signs @ move) / float(signs @ across)
    return np.asarray(move) if np.isfinite(move).all() else None


def _gradient(matrix: NDArray[Any], side: Side, duals: Array) -> Array:
    """Of the dual (p,), from its weights: what steps have added up to has rounding in it."""
    used = np.flatnonzero(duals)
    weights = (duals * side.signs)[used]
    sums = np.zeros(len(duals))
    for first in range(0, len(used), 1024):
        part = slice(first, first + 1024)
        sums += matrix[used[part], : len(duals)].T.astype(np.float64, copy=False) @ weights[part]
    return np.asarray(side.signs * sums + side.ridge * duals - 1.0)


def _told(side: Side, duals: Array, sums: Array, gradient: Array, endless: float) -> Solved:
    """What weights are worth; sums (p,): f of the rows without the intercept; endless: what no weight is beyond."""
    offset = _offset(side, duals, gradient) if side.intercept else 0.0
    margins = side.signs * (sums + offset)
    square = float((duals * side.signs) @ sums)
    bound = float(duals.sum()) - 0.5 * square - 0.5 * float((side.ridge * duals) @ duals)
    if side.loss is None:
        least = float(margins.min(initial=np.inf, where=side.signs != 0))
        value = 0.5 * square / least**2 if least > 0 else np.inf
        return Solved(duals, offset, value, bound, separable=least > 0 or duals.max(initial=0.0) <= endless)
    value = 0.5 * square + float(side.losses(1.0 - margins).sum())
    return Solved(duals, offset, value, bound)


def _offset(side: Side, duals: Array, gradient: Array) -> float:
    """The intercept between the two ends that the conditions of optimality leave it."""
    values, most = -side.signs * gradient, side.most
    up = ((side.signs > 0) & (duals < most)) | ((side.signs < 0) & (duals > 0))
    down = ((side.signs > 0) & (duals > 0)) | ((side.signs < 0) & (duals < most))
    high, low = values[up].max(initial=-np.inf), values[down].min(initial=np.inf)
    if not np.isfinite(high) or not np.isfinite(low):
        return float(high if np.isfinite(high) else low if np.isfinite(low) else 0.0)
    return float(0.5 * (high + low))


@cache
def _compiled(name: str) -> Compiled:
    return jit(getattr(pairs, name))
