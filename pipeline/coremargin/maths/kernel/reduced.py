"""A smaller expansion in the place of a larger one: which of its rows carry it, and with what weights.

Of functions f_c = sum_j beta_jc k(z_j, .) and rows S, the nearest that S can carry are the projections P f_c; their
weights are K_SS^-1 f_c(S). Rows are chosen one at a time: the next is the one that leaves least of

    sum_c ||f_c - P f_c||^2 / ||f_c||^2

which falls by (f_c - P f_c)(z)^2 / p(z)^2 with the row z, p(z) being the distance of k(z, .) from the span of those
chosen before (the f/P-greedy choice: Mueller, Schaback 2009; Wenzel, Santin, Haasdonk 2021). The residuals follow from
a pivoted Cholesky factorisation of the kernel values, a column of which each choice adds: no jitter is in it, and a row
that those before say already within NEAR is not chosen.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import partial
from typing import TYPE_CHECKING

import numpy as np
from numpy.typing import NDArray
from scipy.linalg import solve_triangular

from coremargin.maths.kernel.functions import located
from coremargin.maths.stopping import may_stop

if TYPE_CHECKING:
    from coremargin.maths.kernel.expansion import Expansion

Array = NDArray[np.float64]

#: The part of k(z, z) that is to be new in a row, as a square: beyond that weights are larger than what they add up to
#: by a few digits more than can be spared.
NEAR = 1e-11
#: And no less than so many times what values may be off by, below which nothing is known of what is new.
NOISE = 16.0
#: What may be left of all functions, as a share of their squared lengths, for another row to be of use.
NOTHING = 1e-24
#: Weights are corrected so often by what they leave of the values at their own rows.
CORRECTIONS = 2


@dataclass(frozen=True)
class Reduced:
    """places (r,): increasing, of the rows that carry it; weights (r, k)."""

    places: NDArray[np.int64]
    weights: Array


def reduced(whole: Expansion, most: int) -> Reduced:
    """The functions on at most so many of their own rows; on fewer where these leave nothing."""
    points, kernel = whole.points, whole.kernel
    values = kernel.sums(points, points, whole.weights)
    squares = (whole.weights * values).sum(axis=0)
    worth = np.divide(1.0, squares, out=np.zeros_like(squares), where=squares > 0)
    factor, chosen, parts = _chosen(whole, values.copy(), worth, min(most, len(points)))
    places = np.array(chosen, np.int64)
    lower = factor[places]
    weights = solve_triangular(lower, parts, lower=True, trans="T")
    own = points.take(places)
    for _ in range(CORRECTIONS):
        left = values[places] - located(partial(kernel.sums, own, own, weights), places)
        weights += solve_triangular(lower, solve_triangular(lower, left, lower=True), lower=True, trans="T")
    order = np.argsort(places)
    return Reduced(places[order], np.asarray(weights[order]))


def _chosen(whole: Expansion, left: Array, worth: Array, most: int) -> tuple[Array, list[int], Array]:
    """Columns (m, r) of the factor, the places of the rows in the order of their choice, and parts (r, k) of functions.

    left (m, k): the functions at their rows, which is changed to what is left of them; worth (k,): of a unit squared.
    """
    points, kernel = whole.points, whole.kernel
    rest = kernel.squares(points)
    least, enough = max(NEAR, NOISE * kernel.noise) * rest, NOTHING * np.count_nonzero(worth)
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
