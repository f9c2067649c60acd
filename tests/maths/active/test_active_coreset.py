"""Figure 2 and its variant for streams: what is claimed holds, within the bounds; and Figure 3, where nothing helps."""

from __future__ import annotations

from itertools import count
from typing import TYPE_CHECKING, TypeAlias

import numpy as np
import pytest
from nightmare import Adversary, circle
from numpy.typing import NDArray

from coremargin.maths.active.bounds import any_row, labels_asked
from coremargin.maths.active.coreset import active_coreset_stream, active_coreset_svm, draws_of
from coremargin.maths.pool import solve_pool

if TYPE_CHECKING:
    from collections.abc import Iterator

Labelled: TypeAlias = tuple[NDArray[np.float64], NDArray[np.int64]]


def through_origin(rng: np.random.Generator, rows: int, features: int, margin: float) -> Labelled:
    """Rows pushed apart by a plane through the origin, and their signs."""
    w = rng.standard_normal(features)
    w /= np.linalg.norm(w)
    X = rng.standard_normal((rows, features))
    signs = np.where(X @ w >= 0, 1, -1)
    return X + margin * signs[:, None] * w, signs


@pytest.mark.parametrize("epsilon", [0.4, 0.1])
def test_figure_2_finds_the_margin_of_all_rows(rng: np.random.Generator, epsilon: float) -> None:
    """At least 1 - epsilon of the best where all labels are as h says, within Corollary 3.2 and Lemma 4.2."""
    X, signs = through_origin(rng, 2000, 4, 0.3)
    asked: list[int] = []

    def oracle(row: int) -> int:
        asked.append(row)
        return int(signs[row])

    found = active_coreset_svm(X, oracle, epsilon, T=300, seed=1)
    best = solve_pool(X, signs, intercept=False).upper
    assert (signs * (X @ found.h)).min() >= (1 - epsilon) * best
    assert len(set(asked)) == len(asked) == found.asked
    assert len(found.C) <= any_row(float(np.linalg.norm(X, axis=1).max()), best, epsilon) + 1
    assert found.asked <= labels_asked(len(found.C), 0.01, 0.05)


def test_a_stream_ends_with_few_labels_and_few_errors(rng: np.random.Generator) -> None:
    """In 20 runs at delta = 0.1 at most 5 have more than the error wrong, or within the slab; no row comes twice."""
    error, bad = 0.05, 0
    for _ in range(20):
        X, signs = through_origin(rng, 6000, 3, 0.2)
        seen: list[int] = []

        def oracle(row: int, signs: NDArray[np.int64] = signs, seen: list[int] = seen) -> int:
            assert not seen or row > seen[-1]
            seen.append(row)
            return int(signs[row])

        found = active_coreset_stream(X, oracle, 0.2, error, delta=0.1)
        assert found.halted
        assert found.asked == len(seen) < 400
        rho = float(np.abs(X[found.C] @ found.h).min())
        bad += (np.sign(X @ found.h) != signs).mean() > error or (np.abs(X @ found.h) < 0.8 * rho).mean() > error
    assert bad <= 5


def test_any_row_within_the_slab_is_asked_about_and_none_beyond_before_the_trial(rng: np.random.Generator) -> None:
    """On rows that come round and round it asks for those in the slab only, until all rows lie outside."""
    X, signs = through_origin(rng, 60, 3, 0.4)
    asked: list[int] = []

    def oracle(row: int) -> int:
        asked.append(row)
        return int(signs[row % 60])

    found = active_coreset_stream((X[k % 60] for k in count()), oracle, 0.3, 0.05, 0.1)
    trial = asked[len(found.C) :]
    assert trial == list(range(trial[0], trial[0] + draws_of(len(found.C), 0.05, 0.1)))
    assert np.abs(X @ found.h).min() >= 0.7 * (signs * (X @ found.h))[[k % 60 for k in found.C]].min() - 1e-12


def test_a_stream_that_ends_too_early_has_not_halted(rng: np.random.Generator) -> None:
    """And says so; what it learned is there."""
    X, signs = through_origin(rng, 50, 3, 0.4)
    found = active_coreset_stream(X, lambda k: int(signs[k]), 0.3, 0.05, 0.1)
    assert not found.halted
    assert found.asked == len(found.C) > 0


def test_on_a_circle_every_label_is_needed() -> None:
    """An adversary answers + until the last row: the one - is found by whoever asks about all rows, and only then."""
    rows = 24
    X = np.column_stack([circle(rows), np.ones(rows)])  # lines with an offset
    adversary = Adversary(rows)
    found = active_coreset_svm(X, adversary, 0.1, T=20 * rows, seed=3)
    assert sorted(adversary.asked) == list(range(rows))
    truth = np.array([adversary(row) for row in range(rows)])
    assert (truth == -1).sum() == 1
    assert (np.sign(X @ found.h) == truth).all()


def test_any_row_of_the_circle_can_be_cut_off() -> None:
    """So every labelling with one - is one that a line separates: no answer before the last says which."""
    X = circle(24)
    for row in (0, 5, 23):
        signs = np.where(np.arange(24) == row, -1, 1)
        assert solve_pool(X, signs, intercept=True).upper > 0.01


def test_after_a_wrong_row_the_trial_begins_anew() -> None:
    """One row amid the first trial is of the other class; the second hypothesis lasts as long as it must."""
    needed = draws_of(1, 0.05, 0.1)
    asked: list[int] = []

    def rows() -> Iterator[NDArray[np.float64]]:
        for k in count():
            yield np.array([2.0, 50.0]) if k == 1 + needed + needed // 2 else np.array([1.0 - 2.0 * (k % 2), 0.0])

    def oracle(row: int) -> int:
        asked.append(row)
        return -1 if row == 1 + needed + needed // 2 else 1 - 2 * (row % 2)

    found = active_coreset_stream(rows(), oracle, 0.3, 0.05, 0.1)
    last = draws_of(2, 0.05, 0.1)
    wrong = 1 + needed + needed // 2
    assert [0, wrong] == found.C
    assert asked == [0, *range(1 + needed, wrong + 1), *range(wrong + 1 + last, wrong + 1 + 2 * last)]
