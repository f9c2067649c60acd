"""Starting points for both losses on many sparse rows, by dual coordinate descent: a few passes over all rows.

    minimise over 0 <= a_i <= limit_i   1/2 ||w||^2 + 1/2 b^2 / s^2 + sum_i a_i^2 / (2 curvature_i) - sum_i a_i target_i
    where (w, b / s) = linear + sum_i a_i y_i (x_i, s)

which is the dual of the model (row_model.py), except that the intercept is penalised; s is about the length of a row.
Its minimum is near that of the model, from where Newton's method (smooth.py) needs few systems. Far from it, Newton's
method needs most of its systems, each of which takes dozens of products; a pass of this costs as much as two.

Dual coordinate descent in random order (Hsieh, Chang, Lin, Keerthi, Sundararajan, ICML 2008: LIBLINEAR's), with its
shrinking: weights at a bound whose gradient keeps them there are skipped until the others have converged.
"""

from __future__ import annotations

from functools import cache
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from coremargin.maths.jit import Compiled, jit
from coremargin.maths.rows import lengths
from coremargin.maths.stopping import may_stop

if TYPE_CHECKING:
    from coremargin.maths.row_model import RowModel

Array = NDArray[np.float64]

#: Most passes over all rows, and further ones if the gradients are nearly small enough.
TURNS, MORE = 25, 15
#: Gradients, which are 0 at the minimum or point to an end, where margins are 1: how far they are from each other where
#: that is near; where it is near enough for duals to be worth something, at the end; where it may soon be near.
VIOLATION, CLOSE, PROMISING = 0.03, 0.5, 1.0
#: Range of gradients outside which weights at a bound are skipped: none.
NO_ENDS = (-np.inf, np.inf)


def descended(model: RowModel) -> tuple[Array, Array | None]:
    """p (d + 1,) and duals a (m,) near the minimum of a model of sparse rows; deterministic.

    Duals are None if they are not near it by then, for example for a large C; the point is still a useful start.
    """
    rows: Any = model.rows
    parts, count, squares = (rows.data, rows.indices, rows.indptr), len(model.signs), lengths(rows) ** 2
    edge = float(np.sqrt(squares.mean())) if model.intercept else 0.0
    point, ridge = np.append(model.linear[:-1], edge * model.linear[-1]), np.zeros(count)
    bends = np.isinf(model.limit) & (model.curvatures > 0)
    ridge[bends] = 1.0 / model.curvatures[bends]
    limit = np.where(np.isinf(model.limit) & ~bends, 0.0, model.limit)  # rows of weight 0
    terms = np.stack([model.signs, model.target, limit, ridge, squares + edge**2 + ridge, np.zeros(count)])
    order, rng, active, ends, visits, near = np.arange(count), np.random.default_rng(0), count, NO_ENDS, 0, False
    spread = np.inf
    while not near and visits < (TURNS + (MORE if spread <= PROMISING else 0)) * count:
        may_stop()
        visits += active
        order[:active] = rng.permutation(order[:active])
        left, low, high = _compiled()(parts, terms, edge, order[:active], ends, point)
        spread = high - low
        if spread > VIOLATION:
            active, ends = left, (low if low < 0 else -np.inf, high if high > 0 else np.inf)
        else:
            near, active, ends = active == count, count, NO_ENDS
    point[-1] *= edge
    return point, terms[-1] if spread <= CLOSE else None


@cache
def _compiled() -> Compiled:
    return jit(turn)


def turn(rows, terms, edge, order, ends, point):  # type: ignore[no-untyped-def]
    """Minimise over each weight of ``order`` in turn, with all others fixed; written in loops for numba.

    rows: values, features and starts of CSR rows; terms (6, m): signs, targets, limits, ridges, second derivatives and
    duals; edge: s. Duals and point (d + 1,) change in place, and skipped weights move to the end of ``order``. Returns
    the number of the others, and the least and the largest of their projected gradients.
    """
    data, indices, starts = rows
    duals = terms[5]
    active, k, low, high = len(order), 0, np.inf, -np.inf
    while k < active:
        i = order[k]
        sign, limit, weight = terms[0, i], terms[2, i], duals[i]
        value = point[-1] * edge
        for at in range(starts[i], starts[i + 1]):
            value += data[at] * point[indices[at]]
        gradient = sign * value - terms[1, i] + terms[3, i] * weight
        if (weight == 0.0 and gradient > ends[1]) or (weight == limit and gradient < ends[0]):
            active -= 1
            order[k], order[active] = order[active], i
            continue
        k += 1
        if (weight == 0.0 and gradient > 0.0) or (weight == limit and gradient < 0.0):
            low, high = min(low, 0.0), max(high, 0.0)
            continue
        low, high = min(low, gradient), max(high, gradient)
        if terms[4, i] > 0.0:
            duals[i] = min(max(weight - gradient / terms[4, i], 0.0), limit)
            change = (duals[i] - weight) * sign
            for at in range(starts[i], starts[i + 1]):
                point[indices[at]] += change * data[at]
            point[-1] += change * edge
    return active, low, high
