"""Compare two classifiers on the same rows: an exact test of whether one is worse, and bounds on the accuracy change.

Only rows that exactly one of them predicts correctly show a difference. If both are equally good, each such row is a
fair coin toss: McNemar's test (1947), with the exact binomial distribution.
"""

from __future__ import annotations

import math

import numpy as np


def lower_tail(successes: int, trials: int) -> float:
    """The probability of at most ``successes`` heads in ``trials`` tosses of a fair coin.

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
    """The p-value of the one-sided test: the chance of at least ``lost`` lost rows if both classifiers are equally
    good.

    lost: rows that only the first classifier predicts correctly; won: rows that only the second does.
    """
    return lower_tail(won, lost + won)


def different_by_chance(lost: int, won: int) -> float:
    """The p-value of the two-sided test: the chance of a difference at least as large in either direction."""
    return min(1.0, 2.0 * lower_tail(min(lost, won), lost + won))


def moved_between(lost: int, won: int, rows: int, confidence: float) -> tuple[float, float]:
    """Bounds on the accuracy of the second classifier minus that of the first.

    Those of Clopper and Pearson (1934) for the share of won rows, given the number of rows that differ.
    """
    from scipy.special import betaincinv

    decisive, half = lost + won, (1.0 - confidence) / 2.0
    if not decisive:
        return 0.0, 0.0
    low = float(betaincinv(won, lost + 1, half)) if won else 0.0
    high = float(betaincinv(won + 1, lost, 1.0 - half)) if lost else 1.0
    return (2.0 * low - 1.0) * decisive / rows, (2.0 * high - 1.0) * decisive / rows
