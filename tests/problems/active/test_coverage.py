"""What is claimed of a hypothesis is false as seldom as is said, by draws as they are drawn; with half, it is not."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
from asking import scan, source_of
from scipy.stats import hypergeom

from coremargin.maths.evidence import draws_needed
from coremargin.problems.active.draws import Trial
from coremargin.problems.active.model import evidence_of
from coremargin.problems.active.problem import ActiveMargin

#: Attempts, each from another seed, of one hypothesis.
SEEDS = 400


def world(bad: tuple[int, int], rows: tuple[int, int] = (240, 80)) -> tuple[np.ndarray, np.ndarray]:
    """Rows -3 and 3 and beyond, so many that are given each class, of which the last ``bad`` are of the other one; two
    examples at -1 and 1 stand before them.
    """
    along = np.linspace(0.0, 1.0, rows[0] + rows[1])
    side = np.repeat([-1.0, 1.0], rows)
    X = np.column_stack([np.append([-1.0, 1.0], side * (3.0 + along)), np.append([0.0, 0.0], along)])
    codes = np.append([0, 1], np.repeat([0, 1], rows))
    for k, end in enumerate((2 + rows[0], 2 + sum(rows))):
        codes[end - bad[k] : end] = 1 - k
    return X, codes


@pytest.mark.slow
@pytest.mark.parametrize("bad", [0, 1])
def test_strata_are_false_as_seldom_as_they_say(bad: int) -> None:
    """One row more than is allowed is wrong in one of two strata: attempts that see none of them are as many as the
    hypergeometric distribution of the draws of that stratum has, which is at most delta; half the draws have more.
    """
    rows = (240, 80)
    wrong = [int(0.06 * n) + 1 if k == bad else 0 for k, n in enumerate(rows)]
    X, codes = world((wrong[0], wrong[1]))
    problem = ActiveMargin(source_of(X, 400), error=0.06, confidence=0.6, by_class=True, resident_rows=2)
    begun = problem.answered(problem.start(), {0: 0, 1: 1})
    false, delta = 0, 0.4 / 2 / 2
    for seed in range(SEEDS):
        other = replace(problem, seed=seed)
        state = scan(other, replace(begun, wanted=np.zeros(0, np.int64)))
        assert state.attempt == 1
        assert len(state.draws) == sum(draws_needed(n, 0.06, delta) for n in rows)
        state = other.answered(state, {int(row): int(codes[row]) for row in state.draws.ids})
        false += state.status == "certified"
    needed = draws_needed(rows[bad], 0.06, delta)
    chance = hypergeom.pmf(0, rows[bad], wrong[bad], needed)
    assert chance <= delta < hypergeom.pmf(0, rows[bad], wrong[bad], needed // 2)
    spread = 4 * np.sqrt(SEEDS * chance * (1 - chance))
    assert abs(false - SEEDS * chance) <= spread
    half = SEEDS * hypergeom.pmf(0, rows[bad], wrong[bad], needed // 2)
    assert half > SEEDS * chance + spread  # so that half the draws would be found out


@pytest.mark.slow
def test_intervals_of_trials_hold_as_often_as_they_say() -> None:
    """Of all rows of each stratum, some are wrong: the interval misses their number as seldom as is said."""
    X, codes = world((48, 8))
    problem = ActiveMargin(
        source_of(X, 400), error=0.5, confidence=0.6, by_class=True, loss="hinge", cost=100.0, trial=30,
        resident_rows=2,
    )  # fmt: skip
    begun = problem.answered(problem.start(), {0: 0, 1: 1})
    true, missed, seen = (48, 8), np.zeros(2), np.zeros(2)
    for seed in range(SEEDS):
        other = replace(problem, seed=seed)
        state = scan(other, replace(begun, wanted=np.zeros(0, np.int64)))
        state = other.answered(state, {int(row): int(codes[row]) for row in state.draws.ids})
        evidence = evidence_of(other, state, "ab")
        assert evidence is not None
        for k, one in enumerate(evidence["strata"]):
            assert one["draws"] == 30
            seen[k] += one["wrong"]
            missed[k] += not one["error_least"] <= true[k] <= one["error_bound"]
    delta = 0.4 / 2 / 2
    assert (missed <= SEEDS * delta + 4 * np.sqrt(SEEDS * delta * (1 - delta))).all()
    means = np.array([30 * 48 / 240, 30 * 8 / 80])
    assert (np.abs(seen / SEEDS - means) <= 4 * np.sqrt(means / SEEDS)).all()  # each row as likely as any other


@pytest.mark.parametrize("rows", [60, 200, 400])
@pytest.mark.parametrize("draws", [20, 50])
def test_bounds_of_both_sides_hold_for_any_number_of_wrong_rows(rows: int, draws: int) -> None:
    """Enumerated: however many are wrong, the numbers of wrong draws for which the interval misses them have less than
    delta together; as bounds of twice the draws that were seen they would have more.
    """
    trial = Trial(0.1, 0.8, 2, size=draws)
    delta = 0.2 / 2
    shown = [trial._shown(rows, draws, wrong, 1) for wrong in range(draws + 1)]
    worst, halved = 0.0, 0.0
    for bad in range(rows + 1):
        missed = np.array([not one["error_least"] <= bad <= one["error_bound"] for one in shown])
        worst = max(worst, float(hypergeom.pmf(np.arange(draws + 1), rows, bad, draws)[missed].sum()))
        some = np.arange(draws // 2 + 1)
        halved = max(halved, float(hypergeom.pmf(some, rows, bad, draws // 2)[missed[2 * some]].sum()))
    assert worst <= delta < halved
