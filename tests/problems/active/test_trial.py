"""What draws show, counted over every sample that there can be: claims are false no more often than they say."""

from __future__ import annotations

from collections import Counter
from fractions import Fraction
from itertools import combinations, product
from math import comb
from typing import Any

import numpy as np
import pytest

from coremargin.maths.evidence import share_of
from coremargin.problems.active.draws import Trial
from coremargin.problems.active.state import Draws

SIZES = (24, 18)  #: rows of two strata


def sample(rows: tuple[int, ...], wrong: tuple[int, ...]) -> Draws:
    """So many rows of each stratum are drawn and answered, of which so many wrongly."""
    sides = np.repeat(np.arange(len(rows)), rows).astype(np.int32)
    codes = sides.copy()
    for k, some in enumerate(wrong):
        codes[np.flatnonzero(sides == k)[:some]] = 1 - k
    return Draws(np.arange(len(sides)), sides, codes)


def false_share(trial: Trial, bad: tuple[int, ...], shown: dict[tuple[int, ...], list[Any]]) -> Fraction:
    """In what share of all samples a bound is false; bad: so many rows of each stratum are wrong."""
    total = Fraction(0)
    for wrong, parts in shown.items():
        true = zip(parts, bad, strict=True)
        if all(part.get("error_least", 0) <= one <= part["error_bound"] for part, one in true):
            continue
        ways = [
            Fraction(comb(one, some) * comb(part["population"] - one, part["draws"] - some))
            / comb(part["population"], part["draws"])
            for part, one, some in zip(parts, bad, wrong, strict=True)
        ]
        total += ways[0] * ways[1]
    return total


def all_shown(trial: Trial, attempt: int) -> dict[tuple[int, ...], list[Any]]:
    """What is shown by so many wrong draws of each stratum; without a loss nothing is where one is wrong."""
    draws = tuple(trial.needed(rows, attempt) for rows in SIZES)
    found = {}
    for wrong in product(*(range(one + 1) for one in draws)):
        if trial.size is not None or not any(wrong):
            parts = trial.parts(np.array([*SIZES, 0]), sample(draws, wrong), attempt)
            assert [(part["draws"], part["wrong"]) for part in parts] == list(zip(draws, wrong, strict=True))
            found[wrong] = parts
    return found


@pytest.mark.parametrize("attempt", [1, 2])
@pytest.mark.parametrize("size", [None, 6, 9])
def test_claims_by_class_are_false_no_more_often_than_they_say(size: int | None, attempt: int) -> None:
    """Whatever is wrong in two strata, a bound of either is false in at most what the attempt spends of all samples.

    With a loss the two strata and both sides together come to more than one of them may spend: less is not to be had.
    """
    trial = Trial(error=0.3, confidence=0.4, classes=2, by_class=True, size=size)
    spent = share_of(1 - 0.4, attempt)
    shown = all_shown(trial, attempt)
    shares = [false_share(trial, bad, shown) for bad in product(range(SIZES[0] + 1), range(SIZES[1] + 1))]
    assert 0 < max(shares) <= spent
    if size is not None:
        assert max(shares) > spent / 4


def test_samples_are_all_that_there_are() -> None:
    """The shares that are added up are those of counting every sample of each stratum, one by one."""
    trial, bad = Trial(error=0.3, confidence=0.4, classes=2, by_class=True, size=3), (19, 3)
    shown = all_shown(trial, 1)
    tally = [
        Counter(sum(row < some for row in rows) for rows in combinations(range(size), 3))
        for size, some in zip(SIZES, bad, strict=True)
    ]
    found = 0
    for wrong in product(*tally):
        true = zip(shown[wrong], bad, strict=True)
        if not all(part["error_least"] <= one <= part["error_bound"] for part, one in true):
            found += tally[0][wrong[0]] * tally[1][wrong[1]]
    assert false_share(trial, bad, shown) == Fraction(found, comb(24, 3) * comb(18, 3)) > 0
