"""The upper bound of a margin of several classes: the length of what its weights of pairs leave of rows and constant.

Where nothing separates the classes, nothing is left: neither of the rows nor of the constant. Both are measured apart,
for whether classes can be separated does not depend on the constant, nor on where the rows' origin is: with weights
that give each class as much as they take from it, sum a z is the same for rows about any point c, and for
F = sum a z of the rows about c, and r_k = what class k is given, a hypothesis (W, b) of margins rho > 0 has
rho <= ||W|| ||F|| + sum |b_k| |r_k|. So F has to be zero for the rows that carry weight, about their mean, each feature
for itself, and r for the weights, which sum to 1.

That is not enough, for b may be as long as the longest of these rows, R from their mean. Weights are what flows between
classes: what one is given beyond what is taken from it, T = sum |r| / 2 in all, goes by paths of at most K - 1 pairs to
those that lack it. Without these paths weights balance, and F is another by no more than sqrt(2) (K - 1) T R. So T R
has to be zero too, as F has. One long row elsewhere, and the constant above it, have no say.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np
from scipy.sparse import csr_array, issparse, vstack

from coremargin.verify.checks import CLOSE, Check
from coremargin.verify.margins import bounded_above, overlap, uncancelled, zero
from coremargin.verify.sums import (
    UNIT,
    combination,
    length,
    lift,
    rounded_sum,
    sparse_rows,
    true_lengths,
)

if TYPE_CHECKING:
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
    lifted = lift(claim.x, claim.constant)
    x, constant = _used(claim.x) * lifted, claim.constant * lifted
    pairs = _Pairs(x, row, own, rival, len(claim.labels))
    sums, given = pairs.combined(a)  # as claimed: weights divided by their sum no longer balance to the last bit
    blocks = np.concatenate([sums.ravel(), constant * given])
    found = length(blocks) / lifted / rounded_sum(a.tolist())
    proof = f"{len(claim.ids):,} coreset rows prove at most"
    left = _left(claim, pairs, a, np.bincount(row, weights=a / a.sum(), minlength=len(claim.ids)), lifted)
    return found, [check, bounded_above(claim.upper, found, proof), *left]


@dataclass(frozen=True)
class _Pairs:
    """Pairs (n,) with weight: their rows of x (m, d), their classes and rivals, of K classes."""

    x: Any
    row: np.ndarray
    own: np.ndarray
    rival: np.ndarray
    classes: int

    def mixes(self, a: np.ndarray) -> list[tuple[np.ndarray, np.ndarray]]:
        """Of each class its signed weights of the pairs, as sums of two numbers."""
        signs = [(self.own == k) * 1.0 - (self.rival == k) for k in range(self.classes)]
        return [(sign * a, np.zeros_like(a)) for sign in signs]

    def combined(self, a: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        """F (K, d) and r (K,) of weights (n,), each value rounded once."""
        sums, given = [], []
        for k in range(self.classes):
            mine = np.flatnonzero((self.own == k) | (self.rival == k))
            sign = np.where(self.own[mine] == k, 1.0, -1.0)
            given.append(rounded_sum((sign * a[mine]).tolist()))
            sums.append(combination(self.x[self.row[mine]], sign * a[mine], np.zeros(len(mine))))
        return np.stack(sums), np.array(given)


def _left(claim: ClassesClaim, pairs: _Pairs, a: np.ndarray, shares: np.ndarray, lifted: float) -> list[Check]:
    """Whether the weights leave nothing, where it is claimed that nothing separates the rows.

    pairs: of rows times ``lifted``; a (n,): their weights; shares (m,): weights of the rows, sum 1.
    """
    if claim.status != "not_separable":
        return []
    sums, given = pairs.combined(a)
    if not claim.intercept:
        size = math.sqrt(2) * rounded_sum((shares * true_lengths(pairs.x)).tolist())
        checks = overlap(claim, length(sums.ravel()) / lifted, size / lifted)
        if not all(check.ok for check in checks):
            return checks
        return [*checks, *uncancelled(claim, pairs.x[pairs.row], pairs.mixes(a), a, centred=False)]
    mean = combination(pairs.x, shares, np.zeros(len(shares)))
    about = _lengths_about(pairs.x, mean)
    size = math.sqrt(2) * rounded_sum((shares * about).tolist())
    moved = given[:, None] * mean
    # Each number is rounded, which of equal rows may be all that is left.
    kept = np.maximum(np.abs(sums - moved) - 4 * UNIT * np.abs(moved), 0.0)
    checks = overlap(claim, length(kept.ravel()) / lifted, size / lifted)
    checks += _unbalanced(claim, given, float(about[shares > 0].max()) / lifted, size / lifted)
    if not all(check.ok for check in checks):
        return checks
    if not issparse(pairs.x):
        return [*checks, *uncancelled(claim, (pairs.x - mean)[pairs.row], pairs.mixes(a), a, centred=False)]
    # What classes are given too much takes part with the mean, as a row of its own.
    rows = csr_array(vstack([pairs.x[pairs.row], mean[None, :]]))
    mixes = [
        (np.append(high, -more), np.append(low, 0.0)) for (high, low), more in zip(pairs.mixes(a), given, strict=True)
    ]
    return [*checks, *uncancelled(claim, rows, mixes, np.append(a, 0.0), centred=False)]


def _unbalanced(claim: ClassesClaim, given: np.ndarray, longest: float, size: float) -> list[Check]:
    """A failed check if classes are given (K,) more than is taken from them, by more than rounding.

    longest: of the rows that carry weight, from their mean; size: the weighed length of these rows.
    """
    excess = 0.5 * rounded_sum(np.abs(given).tolist())
    limit = zero(claim, 1.0) * min(1.0, size / longest if longest > 0 else 1.0)
    if excess <= limit:
        return []
    k = int(np.abs(given).argmax())
    text = (
        f"model claims that nothing separates the rows; its weights give class {claim.labels[k]!r} {given[k]:.3g} more "
        f"than they take from it, of 1 in all; for rows up to {longest:.3g} from their mean zero is at most {limit:.3g}"
    )
    return [Check("overlap", ok=False, text=text)]


def _used(x: Any) -> Any:
    """Rows x (m, d) without the columns in which sparse ones have no values: all that is asked of those is zero."""
    if not issparse(x):
        return x
    columns, places = np.unique(x.indices, return_inverse=True)
    return csr_array((x.data, places.reshape(-1), x.indptr), shape=(x.shape[0], len(columns)))


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
