"""Two classifiers on the same rows: an exact test of whether one is worse, and how much the share of right rows moved.

Only rows that one has right and the other wrong say which is better. Were both as good, each such row would be one or
the other with probability 1/2: McNemar (1947), with the binomial distribution in the place of its approximation.
"""

from __future__ import annotations

import math

import numpy as np


def lower_tail(successes: int, trials: int) -> float:
    """The probability of at most so many heads among so many tosses of a fair coin.

    The largest term comes from the gamma function, all others from it by ratios, which sum without cancellation.
    """
    if not 0 <= successes <= trials:
        raise ValueError(f"expected 0 <= successes <= trials, found {successes}, {trials}")
    if 2 * successes >= trials:
        return 1.0 if successes == trials else 1.0 - lower_tail(trials - successes - 1, trials)
    logs = math.lgamma(trials + 1) - math.lgamma(successes + 1) - math.lgamma(trials - successes + 1)
    k = np.arange(successes, 0, -1, dtype=np.float64)
    ratios = np.cumprod(k / (trials - k + 1))  # of the terms below the largest one to it
    return min(1.0, math.exp(logs - trials * math.log(2.0)) * (1.0 + float(ratios.sum())))


def worse_by_chance(lost: int, won: int) -> float:
    """Of losing at least so many rows, and winning at most so many, where both classifiers are as good as each other.

    lost: rows that the first has right and the second wrong; won: the other way round. The one-sided test.
    """
    return lower_tail(won, lost + won)


def different_by_chance(lost: int, won: int) -> float:
    """The two-sided test: of a difference at least as large in either direction."""
    return min(1.0, 2.0 * lower_tail(min(lost, won), lost + won))


def moved_between(lost: int, won: int, rows: int, confidence: float) -> tuple[float, float]:
    """Bounds on how much the second has more rows right than the first, as a share of all rows.

    Clopper and Pearson's (1934) for the share that is won, given how many rows say which is better.
    """
    from scipy.special import betaincinv

    decisive, half = lost + won, (1.0 - confidence) / 2.0
    if not decisive:
        return 0.0, 0.0
    low = float(betaincinv(won, lost + 1, half)) if won else 0.0
    high = float(betaincinv(won + 1, lost, 1.0 - half)) if lost else 1.0
    return (2.0 * low - 1.0) * decisive / rows, (2.0 * high - 1.0) * decisive / rows
