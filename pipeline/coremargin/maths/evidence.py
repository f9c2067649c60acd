"""Bounds on the number of wrongly labelled rows among all, from a random sample.

Draws are without replacement, so that the number of wrong rows among them has a hypergeometric distribution; bounds are
those of Clopper and Pearson (1934) for it. With none wrong this is VERIFY of Har-Peled, Roth, Zimak 2006, Figure 2:
ln(1 / delta) / share draws, if the number of rows is very large.
"""

from __future__ import annotations

import math
from bisect import bisect_left
from functools import partial

import numpy as np

#: Probabilities are increased by this share, which is more than the rounding error of their sums.
SLACK = 1e-9


def most_wrong(rows: int, draws: int, wrong: int, delta: float) -> int:
    """The most rows of ``rows`` that can be wrong, unless an event of probability at most ``delta`` has happened.

    The largest K for which ``wrong`` or fewer wrong ones among so many draws have a probability above ``delta``.
    """
    if not 0 <= wrong <= draws <= rows:
        raise ValueError(f"expected 0 <= wrong <= draws <= rows, found {wrong}, {draws}, {rows}")
    least, most = wrong, rows - (draws - wrong)
    while least < most:
        middle = (least + most + 1) // 2
        if probability(rows, middle, draws, wrong) * (1.0 + SLACK) > delta:
            least = middle
        else:
            most = middle - 1
    return least


def draws_needed(rows: int, share: float, delta: float) -> int:
    """The number of draws, none of them wrong, that proves that at most ``share`` of the rows are; at most all rows."""
    allowed = min(math.floor(share * rows), rows)
    if allowed == rows:
        return 0
    least, most = 0, 1
    while most < rows and not _shows(rows, most, allowed, delta):  # keeps sums over the draws short
        least, most = most + 1, min(2 * most, rows)
    while least < most:
        middle = (least + most) // 2
        if _shows(rows, middle, allowed, delta):
            most = middle
        else:
            least = middle + 1
    return least


def _shows(rows: int, draws: int, allowed: int, delta: float, wrong: int = 0) -> bool:
    """Whether these draws, ``wrong`` of them wrong, rule out that more than ``allowed`` rows are wrong."""
    return allowed >= rows or probability(rows, allowed + 1, draws, wrong) * (1.0 + SLACK) <= delta


#: Trials are large enough for this attempt to certify a hypothesis with half of the allowed errors.
ATTEMPTS = 5


def trial_size(error: float, confidence: float, *, strata: int = 1, rows: int) -> int:
    """The default number of draws from each stratum in a trial with a loss; fixed before any answer is known.

    The least T such that floor(error / 2 T) wrong draws prove a share of at most ``error`` of ``rows`` rows, with half
    of the delta of attempt ``ATTEMPTS`` for a stratum, as the other half is for the lower bound; at most all rows.
    """
    delta, wrong = share_of(1.0 - confidence, ATTEMPTS) / (2 * strata), 0
    allowed = min(math.floor(error * rows), rows)
    while (first := max(1, math.ceil(min(2 * wrong / error, rows)))) < rows:
        last = max(first, math.ceil(min(2 * (wrong + 1) / error, rows + 1)) - 1)
        if _shows(rows, last, allowed, delta, wrong):
            shows = partial(_shows, rows, allowed=allowed, delta=delta, wrong=wrong)
            return bisect_left(range(last), True, first, key=shows)
        wrong += 1
    return rows


def least_trial(error: float, confidence: float, *, strata: int, rows: int) -> int:
    """The least number of draws with which a trial can prove the claim, even the first one with no wrong draw.

    The largest stratum has at least rows / strata rows; if it is slightly larger, so that one more row may be wrong,
    fewer draws can be enough.
    """
    each, delta = -(-rows // strata), share_of(1.0 - confidence, 1) / (2 * strata)
    next_one = math.ceil(min((math.floor(error * each) + 1) / error, rows))
    return min(draws_needed(each, error, delta), draws_needed(max(each, next_one), error, delta))


def share_of(delta: float, attempt: int) -> float:
    """The share of ``delta`` for attempt 1, 2, ...; the shares of all attempts sum to less than ``delta``."""
    return delta / (attempt * (attempt + 1))


def probability(rows: int, bad: int, draws: int, wrong: int) -> float:
    """The probability of at most ``wrong`` bad rows among ``draws``, from ``rows`` rows of which ``bad`` are bad."""
    first = max(0, draws + bad - rows)
    if first > wrong:
        return 0.0
    logs = [_log_least(rows, bad, draws)]
    for k in range(first, min(wrong, bad, draws)):
        ahead = math.log(bad - k) + math.log(draws - k) - math.log(k + 1) - math.log(rows - bad - draws + k + 1)
        logs.append(logs[-1] + ahead)
    return min(1.0, math.fsum(math.exp(value) for value in logs))


def _log_least(rows: int, bad: int, draws: int) -> float:
    """Logarithm of the probability of the least possible number of bad draws: none, or draws minus all good rows."""
    good = rows - bad
    if draws <= good:  # prod (good - i) / (rows - i) over the draws; symmetric in draws and bad rows
        few, many = min(draws, bad), max(draws, bad)
        return math.fsum(np.log1p(-many / (rows - np.arange(few, dtype=np.float64))))
    few, many = min((good, draws), (rows - draws, bad))  # all good rows are drawn: all other rows are bad
    return math.fsum(np.log((many - np.arange(few, dtype=np.float64)) / (rows - np.arange(few, dtype=np.float64))))
