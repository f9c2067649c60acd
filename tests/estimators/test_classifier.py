"""The estimator keeps scikit-learn's contract and finds what scikit-learn's exact machine finds."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest
from sklearn.base import clone
from sklearn.datasets import load_breast_cancer, load_digits
from sklearn.preprocessing import StandardScaler
from sklearn.svm import SVC, LinearSVC
from sklearn.utils.estimator_checks import parametrize_with_checks

import coremargin
from coremargin.errors import NotCertified
from coremargin.estimators import MarginCoresetClassifier


@parametrize_with_checks([MarginCoresetClassifier(), MarginCoresetClassifier(loss="hinge")])
def test_scikit_learn_finds_nothing_to_object_to(estimator: Any, check: Any) -> None:
    """Every check of scikit-learn passes, with none excused."""
    check(estimator)


@pytest.mark.slow
@parametrize_with_checks(
    [
        MarginCoresetClassifier(class_weight="balanced"),
        MarginCoresetClassifier(columns={}),
        MarginCoresetClassifier(loss="hinge", scaling="rownorm"),
        # weighted rows are compared with repeated ones to 1e-7: two answers are as near as epsilon says
        MarginCoresetClassifier(loss="hinge", multi_class="crammer_singer", epsilon=1e-7),
    ]
)
def test_nor_with_other_parameters(estimator: Any, check: Any) -> None:
    """Every check passes, with none excused, also where there is no ``partial_fit``."""
    check(estimator)


@pytest.fixture(scope="module")
def cancer() -> tuple[np.ndarray, np.ndarray]:
    """The breast cancer rows in standard deviations, and their labels."""
    X, y = load_breast_cancer(return_X_y=True)
    return StandardScaler().fit_transform(X), y


def hinge_value(X: np.ndarray, y: np.ndarray, w: np.ndarray, b: float, C: float) -> float:
    """1/2 ||w||^2 + C sum max(0, 1 - y (w.x + b))."""
    return float(0.5 * w @ w + C * np.maximum(0.0, 1.0 - np.where(y == 1, 1, -1) * (X @ w + b)).sum())


@pytest.mark.parametrize("C", [0.01, 1.0, 100.0])
def test_hinge_agrees_with_svc(cancer: tuple[np.ndarray, np.ndarray], C: float) -> None:
    """The objective's value is that of SVC with a linear kernel, to the gap that is claimed."""
    X, y = cancer
    ours = MarginCoresetClassifier(loss="hinge", C=C, epsilon=1e-6).fit(X, y)
    theirs = SVC(kernel="linear", C=C, tol=1e-8).fit(X, y)
    value = hinge_value(X, y, ours.coef_[0], float(ours.intercept_[0]), C)
    best = hinge_value(X, y, theirs.coef_[0], float(theirs.intercept_[0]), C)
    assert ours.certificate_.upper >= value * (1 - 1e-12)
    assert ours.certificate_.lower <= best
    assert value <= best * (1 + 1e-6)


def test_squared_hinge_without_intercept_agrees_with_linear_svc(cancer: tuple[np.ndarray, np.ndarray]) -> None:
    """Without an intercept LinearSVC solves the same problem: the coefficients agree."""
    X, y = cancer
    ours = MarginCoresetClassifier(C=0.1, epsilon=1e-9, fit_intercept=False).fit(X, y)
    theirs = LinearSVC(C=0.1, fit_intercept=False, dual=False, tol=1e-10, max_iter=10_000).fit(X, y)
    np.testing.assert_allclose(ours.coef_, theirs.coef_, atol=1e-5)


def test_hard_margin_agrees_with_svc() -> None:
    """With loss=None the margin is that of SVC at a large C, and the coreset carries it."""
    X, y = load_digits(return_X_y=True)
    pair = (y == 3) | (y == 5)
    ours = MarginCoresetClassifier(loss=None).fit(X[pair], y[pair])
    theirs = SVC(kernel="linear", C=1e10, tol=1e-8).fit(X[pair], y[pair])
    margin = 1.0 / np.linalg.norm(theirs.coef_)
    assert ours.certificate_.lower <= margin * (1 + 1e-6)
    assert ours.certificate_.lower >= margin * (1 - 1e-3)
    assert len(ours.coreset_) == len(ours.support_) <= X.shape[1] + 2


@pytest.mark.parametrize("C", [0.01, 1.0, 100.0])
def test_support_is_that_of_svc(cancer: tuple[np.ndarray, np.ndarray], C: float) -> None:
    """With the hinge, solved sharply, support rows are SVC's support vectors, and the coreset holds their values."""
    X, y = cancer
    ours = MarginCoresetClassifier(loss="hinge", C=C, epsilon=1e-6).fit(X, y)
    theirs = SVC(kernel="linear", C=C, tol=1e-10).fit(X, y)
    np.testing.assert_array_equal(ours.support_, np.sort(theirs.support_))
    np.testing.assert_array_equal(ours.coreset_, X[ours.support_])


def test_support_rows_alone_give_the_same_answer(cancer: tuple[np.ndarray, np.ndarray]) -> None:
    """With the squared hinge the rows that have no loss may go: what is left has the same minimum."""
    X, y = cancer
    whole = MarginCoresetClassifier(C=0.1, epsilon=1e-9).fit(X, y)
    assert len(whole.support_) < len(X) / 2
    part = MarginCoresetClassifier(C=0.1, epsilon=1e-9).fit(whole.coreset_, y[whole.support_])
    np.testing.assert_allclose(part.coef_, whole.coef_, atol=1e-5)
    assert part.certificate_.lower <= whole.certificate_.upper * (1 + 1e-12)


def test_overlapping_classes_refuse_a_hard_margin() -> None:
    """A hard margin on rows that no hyperplane separates says so, and what to choose instead."""
    X = np.array([[0.0], [1.0], [2.0], [3.0]])
    said = "no hyperplane .* hulls .*; choose loss='auto' or loss='hinge' or loss='squared_hinge'$"
    with pytest.raises(NotCertified, match=said):
        MarginCoresetClassifier(loss=None).fit(X, [0, 1, 0, 1])
    with pytest.raises(AttributeError, match="partial_fit"):
        MarginCoresetClassifier(loss="auto").partial_fit(X, [0, 1, 0, 1])


def test_a_loss_is_taken_where_classes_overlap() -> None:
    """With loss "auto" separable classes have the hard margin, and others, or more than two, the squared hinge."""
    X = np.array([[0.0], [1.0], [2.0], [3.0]])
    apart = MarginCoresetClassifier(loss="auto").fit(X, [0, 0, 1, 1])
    assert (apart.certificate_.kind, apart.support_.tolist()) == ("margin", [1, 2])
    mixed = MarginCoresetClassifier(loss="auto", C=0.5).fit(X, [0, 1, 0, 1])
    alone = MarginCoresetClassifier(C=0.5).fit(X, [0, 1, 0, 1])
    assert mixed.certificate_ == alone.certificate_
    assert mixed.support_.tolist() == alone.support_.tolist()
    assert len(MarginCoresetClassifier(loss="auto").fit(X, [0, 1, 2, 0]).certificate_) == 3


def test_overlapping_classes_refuse_one_margin_of_all_of_them() -> None:
    """A hard margin of all classes at once is refused in its own words, with the one loss that it can have."""
    X, y = np.array([[0.0], [1.0], [2.0], [3.0], [4.0], [5.0]]), [0, 1, 2, 0, 1, 2]
    said = r"no hypothesis gives all rows their own class: rows \[[\d, ]+\] contradict each other; choose loss='hinge'$"
    with pytest.raises(NotCertified, match=said):
        MarginCoresetClassifier(loss=None, multi_class="crammer_singer").fit(X, y)


def test_words_as_labels_and_weights_by_label(cancer: tuple[np.ndarray, np.ndarray]) -> None:
    """Labels may be words; a class weight by label is the price of that class's rows."""
    X, y = cancer
    words = np.where(y == 1, "benign", "malignant")
    ours = MarginCoresetClassifier(loss="hinge", class_weight={"malignant": 10.0}, epsilon=1e-6).fit(X, words)
    theirs = SVC(kernel="linear", class_weight={"malignant": 10.0}, tol=1e-8).fit(X, words)
    assert set(ours.predict(X)) == {"benign", "malignant"}
    np.testing.assert_allclose(ours.coef_, theirs.coef_, atol=5e-3)


def test_a_weight_for_a_label_that_is_not_there_is_refused() -> None:
    """A misspelt label in class_weight is named, not passed over."""
    with pytest.raises(ValueError, match=r"labels \['ham', 'spam'\], found 'smap', .*none for 'spam'"):
        MarginCoresetClassifier(class_weight={"ham": 1.0, "smap": 5.0}).fit([[0.0], [1.0]], ["ham", "spam"])


def test_a_store_is_trained_by_its_path(make_store: Any, cancer: tuple[np.ndarray, np.ndarray]) -> None:
    """``fit`` takes the path of a store, and finds what it finds in memory."""
    X, y = cancer
    path = make_store(X.astype(np.float32), y)
    stored = MarginCoresetClassifier(C=0.1).fit(path)
    in_memory = MarginCoresetClassifier(C=0.1).fit(X.astype(np.float32), y)
    np.testing.assert_allclose(stored.coef_, in_memory.coef_, rtol=1e-3, atol=1e-4)


def test_a_relative_margin_bounds_the_decision_values(cancer: tuple[np.ndarray, np.ndarray], tmp_path: Path) -> None:
    """The value is that of ``train``; rows at the bound are support vectors; other uses are refused by name."""
    X, y = cancer
    bounded = clone(MarginCoresetClassifier(loss="hinge", C=0.1, relative_margin=2.0)).fit(X, y)
    assert bounded.get_params()["relative_margin"] == 2.0
    decisions = bounded.decision_function(X)
    assert np.abs(decisions).max() <= 2.0 * (1 + 1e-12)
    value = hinge_value(X, y, bounded.coef_[0], bounded.intercept_[0], 0.1)
    assert bounded.certificate_.lower <= value <= bounded.certificate_.upper
    at_bound = bounded.model_.coreset_ids[bounded.model_.alpha < 0]
    assert len(at_bound)
    assert set(at_bound.tolist()) <= set(bounded.support_.tolist())
    bounded.model_.save(tmp_path / "m")
    again: Any = coremargin.load(tmp_path / "m")
    np.testing.assert_array_equal(again.predict(X), bounded.predict(X))
    np.testing.assert_allclose(bounded.to_sklearn().decision_function(X), decisions, atol=1e-9)
    with pytest.raises(ValueError, match="loss: a relative margin has only 'hinge', found 'squared_hinge'"):
        MarginCoresetClassifier(relative_margin=2.0).fit(X, y)
    with pytest.raises(ValueError, match="relative_margin: is for two classes and multi_class 'ovr', found 3 classes"):
        MarginCoresetClassifier(loss="hinge", relative_margin=2.0).fit(X, np.arange(len(X)) % 3)
    assert not hasattr(bounded, "partial_fit")
