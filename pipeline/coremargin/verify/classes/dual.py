"""The upper bound of a margin of several classes: the length of what its weights of pairs leave of rows and constant.

Where nothing separates the classes, nothing is left: neither of the rows nor of the constant. Both are measured apart,
for whether classes can be separated does not depend on the constant, nor on where the rows' origin is: with weights
that give each class as much as they take from it, sum a z is the same for rows about any point c, and for
F = sum a z of the rows about c and r_k = what class k is given, a hypothesis (W, b) of margins rho > 0 has
rho <= ||W|| ||F|| + sum |b_k| |r_k|. So F has to be zero for the rows that carry weight, about their mean, and r for
the weights, which sum to 1. One long row elsewhere, and the constant above it, have no say.
"""

from __future__ import annotations

import math
from typing import TYPE_CHECKING

import numpy as np
from scipy.sparse import issparse

from coremargin.verify.checks import CLOSE, Check
from coremargin.verify.margins import bounded_above, overlap, zero
from coremargin.verify.sums import (
    combination,
    length,
    lift,
    normalised_weights,
    rounded_sum,
    sparse_rows,
    true_lengths,
)

if TYPE_CHECKING:
    from typing import Any

    from coremargin.verify.classes.claim import ClassesClaim


def dual(claim: ClassesClaim) -> tuple[float | None, list[Check]]:
    """The upper bound that the coreset proves, and whether the claimed one is at least that."""
    if claim.upper is None:
        return None, overlap(claim, None, 0.0)
    row, rival = np.nonzero(claim.duals)
    a, own = claim.duals[row, rival], claim.y[row] - 1
    total = float(a.sum())
    ok = bool((a >= 0).all() and (rival != own).all() and abs(total - 1) <= CLOSE)
    text = f"{len(a):,} weights of pairs of row and rival, each at least 0, that sum to 1"
    check = Check("dual weights", ok, text if ok else f"expected {text}; found a sum of {total:.12g}")
    if not ok:
        return None, [check, *overlap(claim, None, 0.0)]
    high, low = normalised_weights(a, [np.ones(len(a), dtype=bool)])
    lifted = lift(claim.x, claim.constant)
    x, constant = claim.x * lifted, claim.constant * lifted
    sums, given = [], []
    for k in range(len(claim.labels)):
        mine = np.flatnonzero((own == k) | (rival == k))
        sign = np.where(own[mine] == k, 1.0, -1.0)
        given.append(rounded_sum([*(sign * high[mine]).tolist(), *(sign * low[mine]).tolist()]))
        sums.append(combination(x[row[mine]], sign * high[mine], sign * low[mine]))
    blocks = [part for F, r in zip(sums, given, strict=True) for part in (F, [constant * r])]
    found = length(np.concatenate(blocks)) / lifted
    proof = f"{len(claim.ids):,} coreset rows prove at most"
    shares = np.bincount(row, weights=high, minlength=len(claim.ids))
    left = _left(claim, x, shares, np.stack(sums), np.array(given), lifted)
    return found, [check, bounded_above(claim.upper, found, proof), *left]


def _left(
    claim: ClassesClaim, x: Any, shares: np.ndarray, sums: np.ndarray, given: np.ndarray, lifted: float
) -> list[Check]:
    """Whether the weights leave nothing, where it is claimed that nothing separates the rows.

    x (m, d): the rows times ``lifted``; shares (m,): their weights; sums (K, d), given (K,): F and r.
    """
    if claim.status != "not_separable":
        return []
    if not claim.intercept:
        size = math.sqrt(2) * rounded_sum((shares * true_lengths(x)).tolist())
        return overlap(claim, length(sums.ravel()) / lifted, size / lifted)
    mean = combination(x, shares, np.zeros(len(shares)))
    size = math.sqrt(2) * rounded_sum((shares * _lengths_about(x, mean)).tolist())
    checks = overlap(claim, length((sums - given[:, None] * mean).ravel()) / lifted, size / lifted)
    most, limit = float(np.abs(given).max()), zero(claim, 1.0)
    if most <= limit:
        return checks
    k = int(np.abs(given).argmax())
    text = (
        f"model claims that nothing separates the rows; its weights give class {claim.labels[k]!r} {given[k]:.3g} more "
        f"than they take from it, of 1 in all: zero is at most {limit:.3g}"
    )
    return [Check("overlap", ok=False, text=text)]


def _lengths_about(x: Any, mean: np.ndarray) -> np.ndarray:
    """||x - mean|| (m,) of rows x (m, d); sparse ones are filled in one at a time."""
    if not issparse(x):
        return true_lengths(x - mean)
    lengths = np.empty(x.shape[0])
    for k, (columns, row) in enumerate(sparse_rows(x)):
        away = -mean
        away[columns] += row
        lengths[k] = true_lengths(away[None, :])[0]
    return lengths
