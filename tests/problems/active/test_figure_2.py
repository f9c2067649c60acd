"""The paper's Figure 2, and the engine that goes by it with resident rows, scans and draws, ask the same questions."""

from __future__ import annotations

import numpy as np
import pytest
from asking import Person, apart, source_of, states

from coremargin.maths.active.coreset import active_coreset_svm
from coremargin.problems.active.problem import ActiveMargin


@pytest.mark.parametrize("seed", range(5))
def test_where_all_rows_are_resident_the_engine_asks_as_figure_2_does(seed: int) -> None:
    """Through the origin, from the same answers of two classes on: the same rows in the same order, and no others."""
    X, signs = apart(np.random.default_rng(seed), 400, 4, 0.3)
    X = X.astype(np.float32).astype(np.float64)
    figure = active_coreset_svm(X, lambda row: int(signs[row]), 0.1, T=300, seed=1)
    begun = next(k for k, row in enumerate(figure.C) if signs[row] != signs[figure.C[0]]) + 1
    problem = ActiveMargin(source_of(X), intercept=False, resident_rows=len(X), epsilon=0.1)
    person = Person(signs)
    first = problem.answered(problem.start(), {row: int(signs[row] > 0) for row in figure.C[:begun]})
    state = states(problem, person, first)[-1]
    assert (state.status, state.attempt) == ("certified", 1)
    assert person.asked[: len(figure.C) - begun] == figure.C[begun:]
    assert state.answered.ids.tolist() == sorted(figure.C)
    assert np.allclose(state.hypothesis.w[0] / np.linalg.norm(state.hypothesis.w), figure.h, atol=1e-6)
