"""Figure 1 as it is printed finds what it promises, and what the strategy for stores finds, row by row."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
import pytest

from coremargin.maths.coreset_svm import coreset_svm
from margin_judges import margin_by_daqp
from plain_loop import assert_certificate, solve

Maker = Callable[..., tuple[np.ndarray, np.ndarray]]


@pytest.mark.parametrize("epsilon", [0.3, 0.03, 1e-4])
def test_the_margin_is_what_the_paper_promises(make_separable: Maker, epsilon: float) -> None:
    """At least 1 - epsilon of the best possible, which a solver of quadratic programs finds."""
    X, y = make_separable(500, 6, margin=0.3, dtype="float64")
    h, C = coreset_svm(X, y, epsilon)
    assert np.linalg.norm(h) == pytest.approx(1.0, abs=1e-12)
    assert (y * (X @ h)).min() >= (1 - epsilon) * margin_by_daqp(X, y, intercept=False) - 1e-9
    assert len(set(C)) == len(C)


@pytest.mark.parametrize("epsilon", [0.1, 0.01, 1e-6])
@pytest.mark.parametrize("margin", [0.1, 0.5])
def test_a_store_is_scanned_as_the_figure_says(make_separable: Maker, margin: float, epsilon: float) -> None:
    """``strategy="paper"`` takes the same rows in the same order.

    It may end before the figure: it keeps the best hypothesis so far, the figure looks at the newest only.
    """
    X, y = make_separable(400, 5, margin=margin, dtype="float64")
    _, C = coreset_svm(X, y, epsilon)
    run = solve(X, y, epsilon, intercept=False, strategy="paper")
    order = [0]
    for before, after in zip(run.states, run.states[1:], strict=False):
        order += np.setdiff1d(after.working_set.ids, before.working_set.ids).tolist()
    assert order == C[: len(order)]
    assert len(order) > 2
    assert_certificate(run)


def test_no_more_rows_than_asked_for(make_separable: Maker) -> None:
    """With few steps the answer is the SVM of the rows so far; of rows that contradict each other, 0."""
    X, y = make_separable(300, 4, margin=0.05, dtype="float64")
    _, C = coreset_svm(X, y, 1e-6, T=3)
    assert len(C) == 4
    h, C = coreset_svm(np.array([[1.0, 0.0], [1.0, 0.0]]), np.array([1, -1]), 0.1)
    assert (h == 0).all()
    assert C == [0, 1]
