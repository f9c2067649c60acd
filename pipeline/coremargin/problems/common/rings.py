"""What rows far from a border may lose when it moves, bounded by one matrix for each ring of them.

A row with coefficient c loses c max(0, m), and m, of size t, is linear in the row: it moves by s when the border does.
Only if the row crosses the border is its loss above the line along which it was, by no more than

    c max(0, |s| - t)  <=  c s^2 / t * (M < 2 t ? (t / M) (1 - t / M) : 1 / 4),    M >= |s|

so that sum c / t (x, 1)(x, 1)^T summarises the rows of a ring, t in [t0, t1).
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING

import numpy as np
from numpy.typing import NDArray

if TYPE_CHECKING:
    from coremargin.maths.margin import Array

#: A row whose distance from the border is less than so many times its rounding error may lie on either side.
CLEAR = 1e6


def rings_of(edges: Array, away: Array, row_c: Array) -> tuple[NDArray[np.intp], Array]:
    """The ring (n,) of each row, -1: none; and its weight c / t there.

    edges (k + 1,), increasing, from 0; away (n,): t.
    """
    ring = np.searchsorted(edges, away, side="right") - 1
    ring[(away <= 0) | (ring == len(edges) - 1)] = -1
    return ring, np.divide(row_c, away, out=np.zeros(len(away)), where=ring >= 0)


def crossing_loss(
    edges: Array, nearest: float, most: float, total_c: float, square: Callable[[int], float], error: float
) -> float:
    """Upper bound on what rows that cross the border add to the lines of their losses.

    nearest: least t of all rows. most: M. total_c: sum of c. square: of a ring by its number, an upper bound on
    sum c / t s^2. error: of t, of rows near to the border.
    """
    ceiling = total_c * (most + 4.0 * error)  # no row has moved farther
    beyond = total_c * max(0.0, most + 4.0 * error - float(edges[-1]))  # rows beyond the last edge are in no ring
    near = np.maximum(edges[:-1], min(nearest, edges[-1])) * (1.0 - 8.0 / CLEAR) / most
    shares = np.where(near > 0.5, np.maximum(near * (1.0 - near), 0.0), 0.25)
    if nearest < CLEAR * error and shares[0] > 0:
        return ceiling
    total = 0.0
    for k in np.flatnonzero(shares):
        total += float(shares[k]) * square(int(k))
    total *= 1.0 + 4.0 / CLEAR  # distances are known up to their rounding error, which is small
    return min(total + beyond, ceiling)
