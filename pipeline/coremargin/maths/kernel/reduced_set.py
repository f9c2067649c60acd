"""A smaller expansion in place of a larger one: the choice of its rows, and their weights.

For functions f_c = sum_j beta_jc k(z_j, .) and a subset S of the rows, the nearest functions that S can carry are the
projections P f_c, with weights K_SS^-1 f_c(S). Rows are chosen one at a time: the next one leaves the least

    sum_c ||f_c - P f_c||^2 / ||f_c||^2

A row z lowers a term by (f_c - P f_c)(z)^2 / p(z)^2, p(z) being the distance of k(z, .) from the span of the chosen
rows (the f/P-greedy choice: Mueller, Schaback 2009; Wenzel, Santin, Haasdonk 2021). The residuals follow from a pivoted
Cholesky factorisation of the kernel matrix, to which each choice adds a column. No jitter is added; a row within NEAR
of the span is not chosen.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import partial
from typing import TYPE_CHECKING

import numpy as np
from numpy.typing import NDArray
from scipy.linalg import solve_triangular

from coremargin.maths.kernel.functions import relocate_faults
from coremargin.maths.stopping import may_stop

if TYPE_CHECKING:
    from coremargin.maths.kernel.expansion import Expansion

Array = NDArray[np.float64]

#: Least squared distance of a chosen row from the span, relative to k(z, z): below, weights become so large that their
#: sum loses too many digits.
NEAR = 1e-11
#: The same as a multiple of the error of kernel values, below which distances are noise.
NOISE = 16.0
#: The choice ends when this share of the squared norms is left.
NOTHING = 1e-24
#: Refinements of the weights by their residuals at the chosen rows.
CORRECTIONS = 2


@dataclass(frozen=True)
class ReducedSet:
    """places (r,): increasing positions of the chosen rows; weights (r, k)."""

    places: NDArray[np.int64]
    weights: Array


def reduce_expansion(whole: Expansion, most: int) -> ReducedSet:
    """The nearest functions on at most ``most`` of their own rows; on fewer where further rows would add nothing."""
    points, kernel = whole.points, whole.kernel
    values = kernel.sums(points, points, whole.weights)
    squares = (whole.weights * values).sum(axis=0)
    worth = np.divide(1.0, squares, out=np.zeros_like(squares), where=squares > 0)
    factor, chosen, parts = _choose_rows(whole, values.copy(), worth, min(most, len(points)))
    places = np.array(chosen, np.int64)
    lower = factor[places]
    weights = solve_triangular(lower, parts, lower=True, trans="T")
    own = points.take(places)
    for _ in range(CORRECTIONS):
        left = values[places] - relocate_faults(partial(kernel.sums, own, own, weights), places)
        weights += solve_triangular(lower, solve_triangular(lower, left, lower=True), lower=True, trans="T")
    order = np.argsort(places)
    return ReducedSet(places[order], np.asarray(weights[order]))


def _choose_rows(whole: Expansion, left: Array, worth: Array, most: int) -> tuple[Array, list[int], Array]:
    """Columns (m, r) of the Cholesky factor, the positions in the order of choice, and coefficients (r, k).

    left (m, k): values of the functions at their rows, overwritten with the residuals; worth (k,): 1 / ||f||^2.
    """
    points, kernel = whole.points, whole.kernel
    rest = kernel.diagonal(points)
    least, enough = max(NEAR, NOISE * kernel.relative_error) * rest, NOTHING * np.count_nonzero(worth)
    factor, parts = np.zeros((len(points), most), order="F"), np.zeros((most, left.shape[1]))
    chosen: list[int] = []
    whole_left = float(np.count_nonzero(worth))
    while len(chosen) < most and whole_left > enough:
        may_stop()
        step, known = len(chosen), slice(0, len(chosen))
        with np.errstate(divide="ignore", invalid="ignore"):
            gains = np.where(rest > least, (left * left) @ worth / rest, 0.0)
        row = int(gains.argmax())
        if not gains[row] > 0:
            break
        column = kernel.block(points, points.take([row]))[:, 0] - factor[:, known] @ factor[row, known]
        column /= np.sqrt(column[row])
        parts[step] = left[row] / column[row]
        factor[:, step], rest = column, rest - column * column
        rest[row] = 0.0
        left -= column[:, None] * parts[step]
        whole_left -= float(gains[row])
        chosen.append(row)
    return factor[:, : len(chosen)], chosen, parts[: len(chosen)]
