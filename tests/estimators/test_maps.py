"""Estimators whose rows are mapped as they are read: scikit-learn's pipelines judge."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from sklearn.base import clone
from sklearn.datasets import make_circles
from sklearn.model_selection import GridSearchCV
from sklearn.svm import SVC

from coremargin.errors import UsageError
from coremargin.estimators import MarginCoresetClassifier

ASKED: list[dict[str, Any]] = [
    {"map": "nystroem", "n_components": 20, "gamma": 1.0}, {"map": "fourier", "n_components": 40, "random_state": 3},
    {"map": "polynomial", "degree": 2, "coef0": 1.0, "scaling": "standard"},
]  # fmt: skip
X, Y = make_circles(300, noise=0.1, factor=0.4, random_state=0)


@pytest.mark.parametrize("asked", ASKED, ids=str)
def test_a_map_is_a_step_before_a_linear_machine(asked: dict[str, Any]) -> None:
    """The value is that of LIBSVM on the rows that scikit-learn's transform makes, whose weights these are."""
    machine = MarginCoresetClassifier(loss="hinge", epsilon=1e-6, **asked).fit(X, Y)
    assert machine.certificate_.ratio > 1 - 1e-6
    pipeline = machine.to_sklearn()
    np.testing.assert_allclose(pipeline.decision_function(X), machine.decision_function(X), atol=1e-9)
    rows = machine.model_.row_map.of_rows(X if len(pipeline) == 2 else pipeline[0].transform(X))
    judge = SVC(kernel="linear", C=1.0, tol=1e-9).fit(rows, Y)
    np.testing.assert_allclose(machine.decision_function(X), judge.decision_function(rows), atol=1e-2)
    assert machine.coef_.shape == (1, rows.shape[1])
    assert machine.n_features_in_ == 2
    assert machine.score(X, Y) > 0.98


def test_searches_choose_among_maps() -> None:
    """A grid over gamma, on clones that keep every word."""
    machine = MarginCoresetClassifier(map="nystroem", n_components=10, gamma=0.5, random_state=1)
    assert clone(machine).get_params() == machine.get_params()
    search = GridSearchCV(machine, {"gamma": [1e-3, 1.0], "map": ["nystroem", "fourier"]}, cv=3).fit(X, Y)
    assert search.best_params_["gamma"] == 1.0
    assert search.best_score_ > 0.95


def test_batches_have_no_map() -> None:
    """What is made of all rows is not known when the first of them come."""
    machine = MarginCoresetClassifier(map="fourier", n_components=4)
    assert not hasattr(machine, "partial_fit")
    with pytest.raises(ValueError, match="components"):
        MarginCoresetClassifier(map="fourier").fit(X, Y)
    with pytest.raises(UsageError, match="gamma: expected scale, or a number above 0"):
        MarginCoresetClassifier(map="fourier", n_components=3, gamma=-1.0).fit(X, Y)
