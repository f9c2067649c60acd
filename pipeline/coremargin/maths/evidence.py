"""What some rows, drawn from all of them, say about all: how many can be labelled wrongly.

Draws are without replacement, so that the number of wrong rows among them has a hypergeometric distribution; bounds are
those of Clopper and Pearson (1934) for it. With none wrong this is VERIFY of Har-Peled, Roth, Zimak 2006, Figure 2:
ln(1 / delta) / share draws where the rows are very many.
"""

from __future__ import annotations

import math
from bisect import bisect_left
from functools import partial

import numpy as np

#: Probabilities are taken for larger by this share: more than the rounding of their sums.
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
    """How many draws, none of them wrong, prove that at most ``share`` of the rows are: at most all rows."""
    allowed = min(math.floor(share * rows), rows)
    if allowed == rows:
        return 0
    least, most = 0, 1
    while most < rows and not _shows(rows, most, allowed, delta):  # sums over the draws stay as short as they can be
        least, most = most + 1, min(2 * most, rows)
    while least < most:
        middle = (least + most) // 2
        if _shows(rows, middle, allowed, delta):
            most = middle
        else:
            least = middle + 1
    return least


def _shows(rows: int, draws: int, allowed: int, delta: float, wrong: int = 0) -> bool:
    """Whether so many draws, ``wrong`` of them wrong, rule out that one more than ``allowed`` is."""
    return allowed >= rows or probability(rows, allowed + 1, draws, wrong) * (1.0 + SLACK) <= delta


#: Attempts that a trial is made for: the fifth one still certifies where half of what is allowed is wrong.
ATTEMPTS = 5


def trial_size(error: float, confidence: float, *, strata: int = 1, rows: int) -> int:
    """How many rows a trial with a loss draws of each stratum by default: fixed before any answer is known.

    The least T of which floor(error / 2 T) wrong ones prove a share of at most ``error`` of so many rows, with half of
    what attempt ``ATTEMPTS`` may spend on a stratum, as the other half is for the bound from below; all rows where
    that is more.
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
    """Of fewer draws than this no trial shows what is asked for, not the first one, and if none is wrong.

    The largest stratum has rows / strata at least; where it is a little larger, so that one row more may be wrong, less
    draws can do.
    """
    each, delta = -(-rows // strata), share_of(1.0 - confidence, 1) / (2 * strata)
    next_one = math.ceil(min((math.floor(error * each) + 1) / error, rows))
    return min(draws_needed(each, error, delta), draws_needed(max(each, next_one), error, delta))


def share_of(delta: float, attempt: int) -> float:
    """What attempt 1, 2, ... may spend of ``delta``: all attempts together stay below it."""
    return delta / (attempt * (attempt + 1))


def probability(rows: int, bad: int, draws: int, wrong: int) -> float:
    """Of ``wrong`` or fewer bad rows among ``draws`` without replacement from ``rows``, of which ``bad`` are."""
    first = max(0, draws + bad - rows)
    if first > wrong:
        return 0.0
    logs = [_log_least(rows, bad, draws)]
    for k in range(first, min(wrong, bad, draws)):
        ahead = math.log(bad - k) + math.log(draws - k) - math.log(k + 1) - math.log(rows - bad - draws + k + 1)
        logs.append(logs[-1] + ahead)
    return min(1.0, math.fsum(math.exp(value) for value in logs))


def _log_least(rows: int, bad: int, draws: int) -> float:
    """Of the least number of bad rows that there can be: none, or all good rows are drawn."""
    good = rows - bad
    if draws <= good:  # prod (good - i) / (rows - i) over the draws; draws and bad rows may change places
        few, many = min(draws, bad), max(draws, bad)
        return math.fsum(np.log1p(-many / (rows - np.arange(few, dtype=np.float64))))
    few, many = min((good, draws), (rows - draws, bad))  # all good rows are drawn: all that are not drawn are bad
    return math.fsum(np.log((many - np.arange(few, dtype=np.float64)) / (rows - np.arange(few, dtype=np.float64))))
