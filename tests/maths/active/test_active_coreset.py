"""Figure 2: what is claimed holds, within the bounds; and Figure 3, where nothing helps."""

from __future__ import annotations

from typing import TypeAlias

import numpy as np
import pytest
from nightmare import Adversary, circle
from numpy.typing import NDArray

from coremargin.maths.active.coreset import active_coreset_svm, draws_of, share_shown
from coremargin.maths.hard_margin import solve_hard_margin
from coremargin.maths.published_bounds import any_row, labels_asked

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
    best = solve_hard_margin(X, signs, intercept=False).upper
    assert (signs * (X @ found.h)).min() >= (1 - epsilon) * best
    assert len(set(asked)) == len(asked) == found.asked
    assert len(found.C) <= any_row(float(np.linalg.norm(X, axis=1).max()), best, epsilon) + 1
    assert found.asked <= labels_asked(len(found.C), 0.01, 0.05)


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
        assert solve_hard_margin(X, signs, intercept=True).upper > 0.01


def test_how_long_a_hypothesis_has_to_last() -> None:
    """What is wrong on more than the error lasts for so many rows with a chance of delta_j at most, and a share that
    is said to be shown after t rows has that chance, too; the rows asked for show the error.
    """
    for attempt, error, delta in ((1, 0.05, 0.1), (2, 0.01, 0.01), (7, 0.3, 0.5)):
        spent, needed = delta / (attempt * (attempt + 1)), draws_of(attempt, error, delta)
        assert (1 - error) ** needed <= spent
        assert needed == np.ceil(np.log(1 / spent) / error)
        assert share_shown(needed, attempt, delta) <= error
        for rows in (1, 3, needed):
            assert (1 - share_shown(rows, attempt, delta)) ** rows == pytest.approx(spent)
    assert share_shown(0, 1, 0.1) == 1.0
