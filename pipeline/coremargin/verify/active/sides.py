"""Which class a model gives a row, as predictions are made of decision values: also where rounding could decide.

Of two classes the second, where the decision value is not below 0. Of more without a loss the one that claims the row,
by a decision value above 0, if no other does; with a loss the one of the largest value, the first of equal ones.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np

from coremargin.verify.hard_margin import rounding
from coremargin.verify.sums import dot_products, length

if TYPE_CHECKING:
    from coremargin.verify.active.claim import ActiveClaim

NONE = -1  #: no class, or more than one


def sides_of(claim: ActiveClaim, x: Any, lengths: np.ndarray) -> np.ndarray:
    """The class (n,), by its place, that the model gives each of rows x (n, d) of these lengths, or NONE."""
    values = np.column_stack([x @ plane.w + plane.b for plane in claim.planes])
    errors = np.column_stack([rounding(plane, lengths, length(plane.w)) for plane in claim.planes])
    open_ones = np.flatnonzero(_open(claim, values, errors))
    if len(open_ones):
        exact = [dot_products(x[open_ones], plane.w, plane.b) for plane in claim.planes]
        values[open_ones] = np.column_stack(exact)
    return np.where(np.isnan(values).any(axis=1), NONE, _sides(claim, values))  # what overflows proves nothing


def left_open(claim: ActiveClaim, x: Any, lengths: np.ndarray) -> np.ndarray:
    """Of which rows x (n, d), as they are mapped here, the exact ones may be given another class: (n,) bool."""
    values, errors = [], []
    for plane in claim.planes:
        size = length(plane.w) * (1.0 + 1e-9)
        values.append(x @ plane.w + plane.b)
        errors.append(rounding(plane, lengths, size) + claim.moved * size)
    return _open(claim, np.column_stack(values), np.column_stack(errors))


def _open(claim: ActiveClaim, values: np.ndarray, errors: np.ndarray) -> np.ndarray:
    """Of which rows (n,) the errors (n, K) of the values (n, K) leave the class open."""
    if claim.several and claim.loss:
        largest = np.partition(values, -2, axis=1)[:, -2:]
        return np.asarray(~(largest[:, 1] - largest[:, 0] > 2 * errors.max(axis=1)))
    return np.asarray(~(np.abs(values) > errors).all(axis=1))


def _sides(claim: ActiveClaim, values: np.ndarray) -> np.ndarray:
    if not claim.several:
        return (values[:, 0] >= 0).astype(np.int64)
    if claim.loss:
        return np.asarray(values.argmax(axis=1), np.int64)
    above = values > 0
    return np.where(above.sum(axis=1) == 1, above.argmax(axis=1), NONE)
