r"""Definitions of the margin with k outliers.

rho_k(h, D) is the margin of the hyperplane h over D once the k rows with the smallest margins are excluded: the (k +
1)-th smallest margin. rho*_k = max_h rho_k(h, D) = max over sets V of at most k rows of f(D \ V), where f(A) is the
best margin of the rows A: excluding the k lowest rows of h gives f >= rho_k(h), and the best h of D \ V has at most k
rows below f(D \ V). (Har-Peled, Roth, Zimak 2006, section 5.)

The best offset for a direction w is one of k + 1: with j rows of the positive class excluded and k - j of the negative
one, the margin is half the sum of the smallest remaining w.x and the smallest remaining -w.x.
"""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from coremargin.maths.margin import NEGATIVE, POSITIVE, SHORTEST, Array, gamma


def best_removal(lowest: tuple[Array, Array], k: int, intercept: bool) -> tuple[float, float]:
    """The margin with k outliers, times ||w||, and the offset b that attains it.

    Parameters
    ----------
    lowest: the smallest values of y w.x of the positive and the negative class, increasing: k + 1 of each, or all that
    there are. A class of k rows or fewer leaves the margin unbounded (inf).
    """
    if not intercept:
        every = np.sort(np.concatenate(lowest))
        return (float(every[k]) if k < len(every) else np.inf), 0.0
    j = np.arange(k + 1)
    p, q = _at(lowest[POSITIVE], j), _at(lowest[NEGATIVE], k - j)
    with np.errstate(invalid="ignore"):  # inf - inf: both classes excluded
        best = int(np.argmax(p + q))
        return float(p[best] + q[best]) / 2, float(q[best] - p[best]) / 2


def trimmed_margin(lowest: tuple[Array, Array], direction: Array, k: int, intercept: bool) -> tuple[float, float]:
    """rho_k proven for ``direction`` (d,) of any length, rounded down, and the offset for the direction as given.

    ``lowest``: lower bounds on y w.x (``margin.safe_projections``), in the form of ``best_removal``.
    """
    value, offset = best_removal(lowest, k, intercept)
    length = float(np.linalg.norm(direction))
    if not length > SHORTEST or not np.isfinite(value):
        return (value if value == np.inf else -np.inf), 0.0
    largest = max(float(np.abs(part[: k + 1]).max(initial=0.0)) for part in lowest)
    value = (value - 4 * float(np.finfo(np.float64).eps) * largest) / length
    return value - abs(value) * gamma(len(direction) + 8), offset


def count_misclassified(positive: Array, negative: Array, intercept: bool) -> int:
    """The number of rows that a direction misclassifies with its best offset.

    positive, negative: y w.x of the rows of each class; rows on the hyperplane count as correct.
    """
    if not intercept:
        return int(np.count_nonzero(positive < 0) + np.count_nonzero(negative < 0))
    # y (w.x + b): with -b at a value p of the positive class those below p are wrong, and negatives with -w.x < -p.
    p, q = np.sort(positive), np.sort(negative)
    cuts = np.concatenate([p, -q])
    return int((np.searchsorted(p, cuts) + np.searchsorted(q, -cuts)).min())


def lowest_rows(margins: Array, k: int) -> NDArray[np.intp]:
    """Positions of the k smallest margins (n,), smallest first; of equal ones the first."""
    return np.argsort(margins, kind="stable")[:k]


def _at(values: Array, places: NDArray[np.intp]) -> Array:
    """The values at these places, inf beyond the end."""
    padded = np.append(values, np.inf)
    return np.asarray(padded[np.minimum(places, len(values))])
