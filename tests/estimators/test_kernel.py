"""``KernelCoresetClassifier``: what scikit-learn asks of an estimator, and its SVC as the judge."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest
from sklearn.base import clone
from sklearn.datasets import load_iris, make_moons
from sklearn.exceptions import ConvergenceWarning
from sklearn.model_selection import GridSearchCV
from sklearn.svm import SVC
from sklearn.utils.estimator_checks import parametrize_with_checks

import coremargin
from coremargin.errors import UsageError
from coremargin.estimators import KernelCoresetClassifier, MarginCoresetClassifier
from model_kit import store_of


@pytest.mark.slow
@parametrize_with_checks(
    [  # "scale" is another one of repeated rows
        KernelCoresetClassifier(epsilon=1e-6, gamma=0.1),
        KernelCoresetClassifier(epsilon=1e-6, gamma=0.1, relative_margin=1.5),
    ]
)
def test_scikit_learn_finds_nothing_to_object_to(estimator: Any, check: Any) -> None:
    """Every check of scikit-learn passes, with none excused."""
    check(estimator)


def test_it_is_the_machine_of_svc() -> None:
    """The same rows carry it, with the same weights, signs included."""
    X, y = make_moons(300, noise=0.3, random_state=0)
    machine, judge = KernelCoresetClassifier(epsilon=1e-8, C=2.0).fit(X, y), SVC(C=2.0, tol=1e-9).fit(X, y)
    np.testing.assert_allclose(machine.decision_function(X), judge.decision_function(X), atol=1e-5)
    np.testing.assert_allclose(machine.intercept_, judge.intercept_, atol=1e-5)
    dual = np.zeros((2, len(X)))
    dual[0, machine.support_], dual[1, judge.support_] = machine.dual_coef_[0], judge.dual_coef_[0]
    np.testing.assert_allclose(*dual, atol=1e-3)
    assert (machine.support_vectors_ == X[machine.support_]).all()


def test_factors_of_classes_are_those_of_svc() -> None:
    """By label, and "balanced"."""
    X, y = make_moons(200, noise=0.4, random_state=1)
    X, y = X[40:], y[40:]
    for weight in ({0: 1.0, 1: 4.0}, "balanced"):
        machine = KernelCoresetClassifier(epsilon=1e-8, class_weight=weight).fit(X, y)
        judge = SVC(tol=1e-9, class_weight=weight).fit(X, y)
        np.testing.assert_allclose(machine.decision_function(X), judge.decision_function(X), atol=1e-5)


def test_a_search_takes_its_parameters() -> None:
    """As it takes those of SVC, of three classes."""
    X, y = load_iris(return_X_y=True)
    found = GridSearchCV(KernelCoresetClassifier(), {"gamma": ["scale", 0.1], "C": [1.0, 10.0]}, cv=3).fit(X, y)
    assert found.best_score_ > 0.95
    assert found.best_estimator_.decision_function(X).shape == (150, 3)


@pytest.mark.parametrize(
    ("asked", "message"),
    [
        ({"gamma": "auto"}, "gamma: invalid enum value 'auto'; expected 'scale' or a number"),
        ({"kernel": "precomputed"}, "linear, poly, rbf, or a function as module:function, or from Python a function k"),
        ({"kernel": "sigmoid"}, "'sigmoid' is not positive .* expected linear, poly, rbf, or a function"),
        ({"kernel": None}, "kernel: expected 'rbf', 'poly', 'linear' or a function .*, found None"),
        ({"gamma": [0.1, 1.0]}, "gamma: expected one value, found .* GridSearchCV"),
        ({"C": [0.1, 1.0]}, "C: expected one value, found .* GridSearchCV"),
    ],
)
def test_what_it_does_not_take_is_refused_with_what_it_does(asked: dict[str, Any], message: str) -> None:
    """Words of SVC that are none here, and several values where one model is asked for."""
    with pytest.raises(UsageError, match=message):
        KernelCoresetClassifier(**asked).fit([[0.0], [1.0], [2.0], [3.0]], [0, 0, 1, 1])


@pytest.mark.parametrize("asked", [{"C": (0.1, 1.0)}, {"gamma": [0.1, 1.0], "map": "fourier", "n_components": 3}])
def test_nor_does_that_of_hyperplanes_take_several_values(asked: dict[str, Any]) -> None:
    """Before it trains one of each."""
    with pytest.raises(UsageError, match="expected one value, found .* GridSearchCV"):
        MarginCoresetClassifier(**asked).fit([[0.0], [1.0], [2.0], [3.0]], [0, 0, 1, 1])


@pytest.mark.specimens(1)
@pytest.mark.parametrize(
    ("asked", "why"),
    [
        ({"loss": None, "kernel": "linear"}, "nothing separates .* with a loss"),
        ({"memory": "10 KiB"}, "working set is full"),
        ({"kernel": "poly", "degree": 60, "gamma": 20.0}, "scale the features, use a smaller degree or gamma"),
    ],
)
def test_why_nothing_is_proven_is_said(asked: dict[str, Any], why: str) -> None:
    """And what helps: a loss where nothing separates the rows, memory where the working set is full."""
    X, y = make_moons(200, noise=0.4, random_state=3)
    with pytest.warns(ConvergenceWarning, match=why):
        KernelCoresetClassifier(**asked).fit(X, y)


def test_its_model_is_one_that_verify_takes(tmp_path: Path) -> None:
    """Fitted on a store, saved, verified."""
    X, y = make_moons(400, noise=0.2, random_state=2)
    store = store_of(tmp_path / "s.zarr", X, y.tolist(), 100)
    machine = KernelCoresetClassifier(loss="squared_hinge").fit(store)
    machine.model_.save(tmp_path / "m")
    assert coremargin.verify(tmp_path / "m", store).ok
    assert (machine.predict(X) == y).mean() > 0.9


def test_a_relative_margin_bounds_the_decision_values(tmp_path: Path) -> None:
    """Of all rows, in each of several classes too; the parameter is cloned, searched and saved as others are."""
    X, y = make_moons(200, noise=0.3, random_state=0)
    plain, bounded = KernelCoresetClassifier(C=10.0).fit(X, y), KernelCoresetClassifier(C=10.0, relative_margin=1.2)
    bounded = clone(bounded).fit(X, y)
    assert bounded.get_params()["relative_margin"] == 1.2
    assert np.abs(plain.decision_function(X)).max() > 1.2
    assert np.abs(bounded.decision_function(X)).max() <= 1.2
    bounded.model_.save(tmp_path / "m")
    again: Any = coremargin.load(tmp_path / "m")
    np.testing.assert_array_equal(again.decision_function(X), bounded.decision_function(X))
    three = KernelCoresetClassifier(relative_margin=1.5).fit(X, np.arange(200) % 3)
    assert np.abs(three.decision_function(X)).max() <= 1.5
    with pytest.raises(UsageError, match="relative_margin: expected a number above 1"):
        KernelCoresetClassifier(relative_margin=0.5).fit(X, y)
    with pytest.raises(UsageError, match="loss: a relative margin has only 'hinge', found 'squared_hinge'"):
        KernelCoresetClassifier(relative_margin=2.0, loss="squared_hinge").fit(X, y)
