"""Rankings: pairs of rows of the same group, of which one is to have a higher score than the other.

    P(w) = 1/2 ||w||^2 + C L(w),      L(w) = sum_g c_g sum_(i, j) max(0, 1 - w.(x_i - x_j))

over all pairs (i, j) of rows of the group g in which i has the higher level; c_g is the weight of the group. For any
set A of pairs, b = sum_A c_g and s = sum_A c_g (x_i - x_j) bound the loss from below: L(w) >= b - w.s for all w. Such a
cut is exact at u if A has the pairs whose difference of scores at u is below 1 (Joachims 2006). With cuts k and weights
a >= 0 of sum at most C, no w has a value below

    D(a) = sum_k a_k b_k - 1/2 ||sum_k a_k s_k||^2

(Teo, Vishwanathan, Smola, Le 2010). Sums need no list of pairs: sorting the scores of a group counts those of each row.

A cut is kept as the point u at which it was made, and made again from all rows. Many pairs have a difference of just 1
at a solution, and which of these belong to A would depend on rounding. So A has the pairs below ``THRESHOLD``, a little
more than 1; those in between add at most that little, and pairs within rounding errors of it are counted.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from coremargin.maths.breakdown import exact_sum
from coremargin.maths.margin import gamma
from coremargin.maths.rows import Rows, lengths
from coremargin.maths.stopping import may_stop

Array = NDArray[np.float64]
Counts = NDArray[np.int64]

#: Pairs whose scores differ by less belong to a cut.
THRESHOLD = 1.0 + 1e-9
#: Steps of a solve over cuts, at most.
MOST_STEPS = 50_000
UNIT = float(np.finfo(np.float64).eps) / 2


@dataclass(frozen=True)
class PairSums:
    """Sums over the pairs of some groups at u.

    loss: L, rounded up; count: b; direction (d,): s; doubtful: the weight of the pairs that rounding may move into the
    cut or out of it; reach: the sum over its pairs of c_g (||x_i|| + ||x_j||), to which the error of s is proportional.
    """

    loss: float
    count: float
    direction: Array
    doubtful: float
    reach: float


def count_pairs(scores: Array, levels: NDArray[np.int32], groups: Counts, threshold: float) -> tuple[Counts, Counts]:
    """How many pairs with a difference of scores below a threshold each row has as the better and as the worse one.

    scores, levels, groups (n,): a pair has rows of one group and of two levels. O(n log n) for each level.
    """
    better, worse = np.zeros(len(scores), np.int64), np.zeros(len(scores), np.int64)
    for level in np.unique(levels)[1:]:
        high, low = np.flatnonzero(levels == level), np.flatnonzero(levels < level)
        rows, is_high = np.concatenate([high, low]), np.arange(len(high) + len(low)) < len(high)
        values = np.concatenate([scores[high] - threshold, scores[low]])
        order = np.lexsort((is_high, values, groups[rows]))
        rows, is_high = rows[order], is_high[order]
        group, place = groups[rows], np.arange(len(rows))
        begins, ends = np.searchsorted(group, group, "left"), np.searchsorted(group, group, "right")
        highs = np.concatenate([[0], np.cumsum(is_high)])
        lows = np.concatenate([[0], np.cumsum(~is_high)])
        above, below = lows[ends] - lows[place + 1], highs[place] - highs[begins]
        better[rows[is_high]] += above[is_high]
        worse[rows[~is_high]] += below[~is_high]
    return better, worse


def pair_sums(rows: Rows, levels: NDArray[np.int32], groups: Counts, weights: Array, u: Array) -> PairSums:
    """The sums over rows (n, d) of whole groups at u (d,); levels, groups and weights (n,) are those of the rows."""
    if not len(levels):
        return PairSums(0.0, 0.0, np.zeros(len(u)), 0.0, 0.0)
    sizes, scores = lengths(rows), np.asarray(rows @ u, np.float64)
    # four times the bound on the error of a difference, so that other float64 code finds no more
    error = 8.0 * gamma(len(u) + 8) * float(sizes.max()) * float(np.linalg.norm(u)) + 8.0 * UNIT
    better, worse = count_pairs(scores, levels, groups, 1.0 + error)
    terms = weights * (better * (1.0 - scores) + worse * scores)
    size = float(weights @ (better * (1.0 + np.abs(scores)) + worse * np.abs(scores)))
    loss = exact_sum(terms) + error * float(weights @ better) + 16.0 * UNIT * size
    better, worse = count_pairs(scores, levels, groups, THRESHOLD)
    share = weights * (better - worse)
    bounds = [float(weights @ count_pairs(scores, levels, groups, THRESHOLD + e)[0]) for e in (-error, error)]
    return PairSums(
        max(0.0, loss),
        exact_sum(weights * better),
        np.asarray(share @ rows, np.float64),
        (bounds[1] - bounds[0]) * (1 + 1e-12),
        float((weights * (better + worse)) @ sizes),
    )


def weigh_cuts(counts: Array, directions: Array, C: float, weights: Array, tolerance: float) -> Array:
    """Weights (k,) of cuts for which D is within ``tolerance`` of its maximum, from those that they have.

    counts (k,), directions (k, d). Weight moves from the cut with the least value at w to that with the largest; an
    additional cut of zeros has the weight that is left of C.
    """
    b = np.append(counts, 0.0)
    gram = np.zeros((len(b), len(b)))
    gram[:-1, :-1] = directions @ directions.T
    a = np.append(weights, max(0.0, C - float(weights.sum())))
    values = b - gram @ a
    for step in range(MOST_STEPS):
        if step % 1024 == 0:
            may_stop()
            values = b - gram @ a
        i = int(np.argmax(values))
        if C * values[i] - float(a @ values) <= tolerance:
            break
        j = int(np.argmin(np.where(a > 0, values, np.inf)))
        curve = gram[i, i] + gram[j, j] - 2.0 * gram[i, j]
        move = a[j] if curve <= 0 else min(a[j], (values[i] - values[j]) / curve)
        if not move > 0:
            break
        a[i] += move
        a[j] = a[j] - move if move < a[j] else 0.0
        values -= move * (gram[:, i] - gram[:, j])
    found = a[:-1]
    total = float(found.sum())
    return found * ((C / total if total > C else 1.0) * (1 - 1e-14))
