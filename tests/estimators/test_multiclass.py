"""Several classes, one against the rest, in the same scans; weights of rows and classes."""

from __future__ import annotations

import warnings
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import pytest
from sklearn.datasets import load_digits, load_wine
from sklearn.exceptions import ConvergenceWarning
from sklearn.preprocessing import StandardScaler
from sklearn.svm import SVC, LinearSVC
from sklearn.utils.class_weight import compute_sample_weight

import coremargin
from coremargin.errors import UsageError
from coremargin.estimators import MarginCoresetClassifier

if TYPE_CHECKING:
    from coremargin.data.store import Store


@pytest.fixture(scope="module")
def wine() -> tuple[np.ndarray, np.ndarray]:
    """178 wines in standard deviations, and three words as labels."""
    X, y = load_wine(return_X_y=True)
    return StandardScaler().fit_transform(X), np.array(["red", "amber", "white"])[y]


def hinge(X: np.ndarray, sides: np.ndarray, w: np.ndarray, b: float, prices: np.ndarray | float) -> float:
    """1/2 ||w||^2 + sum of prices times max(0, 1 - side (w.x + b))."""
    return float(0.5 * w @ w + (prices * np.maximum(0.0, 1.0 - sides * (X @ w + b))).sum())


def test_each_class_agrees_with_svc(wine: tuple[np.ndarray, np.ndarray]) -> None:
    """Every row of ``coef_`` is the machine of its class against the rest: SVC finds no better one."""
    X, y = wine
    ours = MarginCoresetClassifier(loss="hinge", C=0.05, epsilon=1e-6).fit(X, y)
    assert ours.classes_.tolist() == ["amber", "red", "white"]
    assert (ours.coef_.shape, ours.intercept_.shape) == ((3, X.shape[1]), (3,))
    found = set()
    for k, label in enumerate(ours.classes_):
        sides = np.where(y == label, 1, -1)
        theirs = SVC(kernel="linear", C=0.05, tol=1e-10).fit(X, sides)
        best = hinge(X, sides, theirs.coef_[0], float(theirs.intercept_[0]), 0.05)
        claims = ours.certificate_[k]
        assert claims.lower <= best
        assert hinge(X, sides, ours.coef_[k], ours.intercept_[k], 0.05) <= claims.upper <= best * (1 + 1e-6)
        found |= set(theirs.support_.tolist())
    assert ours.support_.tolist() == sorted(found)
    np.testing.assert_array_equal(ours.coreset_, X[ours.support_])


def test_hard_margins_of_digits() -> None:
    """Each digit of a few hundred stands apart from all others by a margin proven to epsilon."""
    X, y = load_digits(return_X_y=True)
    X, y = X[:300], y[:300]
    ours = MarginCoresetClassifier(loss=None).fit(X, y)
    values = ours.decision_function(X)
    for k, claims in enumerate(ours.certificate_):
        margin = float((np.where(y == k, 1, -1) * values[:, k]).min())
        assert 0.999 * claims.upper <= claims.lower <= margin * (1 + 1e-9)
    assert ours.score(X, y) == 1.0


def test_predictions_are_those_of_the_largest_value(wine: tuple[np.ndarray, np.ndarray]) -> None:
    """In memory and as Dask arrays, labels follow the largest of the decision values, which have a column a class."""
    da = pytest.importorskip("dask.array")
    X, y = wine
    machine = MarginCoresetClassifier().fit(da.from_array(X, chunks=(50, 7)), y)
    values = machine.decision_function(X)
    assert values.shape == (len(X), 3)
    assert machine.predict(X).tolist() == machine.classes_[values.argmax(axis=1)].tolist()
    lazy = da.from_array(X, chunks=(50, 7))
    np.testing.assert_allclose(machine.decision_function(lazy).compute(), values, rtol=1e-12)
    assert machine.decision_function(lazy).chunks == ((50, 50, 50, 28), (3,))
    assert machine.predict(lazy).compute().tolist() == machine.predict(X).tolist()


def test_a_store_of_several_classes(wine: tuple[np.ndarray, np.ndarray], make_store: Callable[..., Store]) -> None:
    """A store gives what arrays give; the model is a fleet that `train` would have made."""
    X, y = wine
    store = make_store(X, y)
    stored = MarginCoresetClassifier().fit(store)
    np.testing.assert_allclose(stored.coef_, MarginCoresetClassifier().fit(X, y).coef_, rtol=1e-2, atol=1e-3)
    np.testing.assert_array_equal(stored.predict(store), stored.model_.predict(X))
    with pytest.raises(UsageError, match="expected none with several classes in a store"):
        MarginCoresetClassifier(class_weight="balanced").fit(store)


def test_exports_of_several_classes_agree(wine: tuple[np.ndarray, np.ndarray]) -> None:
    """LinearSVC and onnxruntime give the decision values and labels of all classes."""
    pytest.importorskip("onnx")
    runtime = pytest.importorskip("onnxruntime")
    X, y = wine
    machine = MarginCoresetClassifier().fit(X, y)
    np.testing.assert_allclose(machine.to_sklearn().decision_function(X), machine.decision_function(X), rtol=1e-9)
    assert machine.to_sklearn().predict(X).tolist() == machine.predict(X).tolist()
    session = runtime.InferenceSession(machine.to_onnx().SerializeToString(), providers=["CPUExecutionProvider"])
    label, decision = session.run(["label", "decision"], {"X": X})
    np.testing.assert_allclose(decision, machine.decision_function(X), rtol=1e-9, atol=1e-12)
    assert label.tolist() == machine.predict(X).tolist()


@pytest.mark.parametrize("weights", ["balanced", {"red": 5.0, "white": 0.2}])
def test_class_weights_are_prices_of_rows(weights: Any, wine: tuple[np.ndarray, np.ndarray]) -> None:
    """With several classes each row's loss costs the factor of its own class, as scikit-learn computes it."""
    X, y = wine
    ours = MarginCoresetClassifier(loss="hinge", C=0.05, epsilon=1e-6, class_weight=weights).fit(X, y)
    factors = compute_sample_weight(weights if weights == "balanced" else {"amber": 1.0, **weights}, y)
    by_row = MarginCoresetClassifier(loss="hinge", C=0.05, epsilon=1e-6).fit(X, y, factors)
    np.testing.assert_array_equal(ours.coef_, by_row.coef_)
    for k, label in enumerate(ours.classes_):
        sides = np.where(y == label, 1, -1)
        theirs = SVC(kernel="linear", C=0.05, tol=1e-10).fit(X, sides, sample_weight=factors)
        best = hinge(X, sides, theirs.coef_[0], float(theirs.intercept_[0]), 0.05 * factors)
        assert ours.certificate_[k].lower <= best
        assert ours.certificate_[k].upper <= best * (1 + 1e-6)


def test_a_factor_for_a_class_that_is_not_there_is_refused(wine: tuple[np.ndarray, np.ndarray]) -> None:
    """A misspelt label is named, and the one without a factor, as scikit-learn does; one factor too many is told."""
    labels = np.unique(wine[1]).tolist()
    with pytest.raises(UsageError, match=f"found 'rose', which no row has, and none for '{labels[-1]}'"):
        MarginCoresetClassifier(class_weight=dict.fromkeys([*labels[:-1], "rose"], 2.0)).fit(*wine)
    with pytest.warns(UserWarning, match="no row has the label 'rose'; the factor is not used"):
        MarginCoresetClassifier(class_weight=dict.fromkeys([*labels, "rose"], 2.0)).fit(*wine)


@pytest.mark.parametrize("loss", ["hinge", "squared_hinge"])
def test_sample_weights_agree_with_svc(loss: str, wine: tuple[np.ndarray, np.ndarray], rng: Any) -> None:
    """Of two classes, weighted: SVC finds no better value, and rows of weight 0 are as good as gone."""
    X, y = wine[0], wine[1] == "red"
    weights = rng.integers(0, 4, len(X)).astype(float)
    ours = MarginCoresetClassifier(loss=loss, C=0.1, epsilon=1e-7).fit(X, y, sample_weight=weights)
    repeated = np.repeat(np.arange(len(X)), weights.astype(int))
    again = MarginCoresetClassifier(loss=loss, C=0.1, epsilon=1e-7).fit(X[repeated], y[repeated])
    np.testing.assert_allclose(ours.coef_, again.coef_, atol=2e-4)
    assert not set(ours.support_) & set(np.flatnonzero(weights == 0))
    if loss == "hinge":
        theirs = SVC(kernel="linear", C=0.1, tol=1e-10).fit(X, y, sample_weight=weights)
        best = hinge(X, np.where(y, 1, -1), theirs.coef_[0], float(theirs.intercept_[0]), 0.1 * weights)
        assert ours.certificate_.lower <= best
        assert ours.certificate_.upper <= best * (1 + 1e-6)


def test_weights_that_cannot_be_used_are_refused(
    wine: tuple[np.ndarray, np.ndarray], make_store: Callable[..., Store]
) -> None:
    """Negative weights are named by row; a store has its own."""
    X, y = wine
    with pytest.raises(ValueError, match="row 3: found weight -1.0"):
        MarginCoresetClassifier().fit(X, y, np.where(np.arange(len(X)) == 3, -1.0, 1.0))
    with pytest.raises(UsageError, match="sample_weight: a store has its own labels and weights"):
        MarginCoresetClassifier().fit(make_store(X, y), sample_weight=np.ones(len(X)))


@pytest.mark.parametrize("loss", ["hinge", "squared_hinge"])
def test_batches_of_several_classes_are_a_fit(
    loss: str, wine: tuple[np.ndarray, np.ndarray], make_store: Callable[..., Store], tmp_path: Path
) -> None:
    """In batches, weighted or not, the answer and what is claimed are those of ``fit`` on all rows; `verify` agrees."""
    X, y = wine
    turn = np.random.default_rng(3).permutation(len(X))
    X, y, weights = X[turn], y[turn], 1.0 + np.arange(len(X)) % 3
    weighted, plain = (MarginCoresetClassifier(loss=loss, C=0.1) for _ in range(2))
    for part in (slice(0, 60), slice(60, 61), slice(61, None)):
        weighted.partial_fit(X[part], y[part], ["white", "red", "amber"], weights[part])
        plain.partial_fit(X[part], y[part])
    for machine, given in ((weighted, weights), (plain, None)):
        whole = MarginCoresetClassifier(loss=loss, C=0.1).fit(X, y, given)
        np.testing.assert_array_equal(machine.coef_, whole.coef_)
        np.testing.assert_array_equal(machine.support_, whole.support_)
    assert plain.certificate_ == whole.certificate_
    plain.model_.save(tmp_path / "wine.model")
    assert coremargin.verify(tmp_path / "wine.model", make_store(X, y).path).ok
    with pytest.raises(UsageError, match="expected none, as the first batch had none"):
        plain.partial_fit(X[:5], y[:5], sample_weight=np.ones(5))


def test_claims_of_all_classes_stay_true_when_rows_are_let_go(rng: np.random.Generator) -> None:
    """With little room each class's bounds hold for all rows seen, those of ``fit`` on them included."""
    centres = np.array([[4.0, 0.0, 0.0], [-2.0, 3.5, 0.0], [-2.0, -3.5, 0.0]])
    y = rng.integers(0, 3, 900)
    X = centres[y] + rng.normal(size=(900, 3))
    machine = MarginCoresetClassifier(loss="hinge", C=0.1, memory=2 * 150 * 8 * 3)
    for start in range(0, 900, 300):
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", ConvergenceWarning)
            machine.partial_fit(X[start : start + 300], y[start : start + 300])
        seen, labels = X[: start + 300], y[: start + 300]
        best = MarginCoresetClassifier(loss="hinge", C=0.1).fit(seen, labels)
        for k, claims in enumerate(machine.certificate_):
            sides = np.where(labels == k, 1, -1)
            assert claims.upper >= hinge(seen, sides, machine.coef_[k], machine.intercept_[k], 0.1)
            assert claims.lower <= best.certificate_[k].upper
    assert machine._partial_fit_state.history.dropped
    assert machine.model_.rows == 900


def lead(scores: np.ndarray, given: np.ndarray) -> np.ndarray:
    """By how much the score of the given class is ahead of all others."""
    rows, others = np.arange(len(given)), scores.copy()
    others[rows, given] = -np.inf
    return np.asarray(scores[rows, given] - others.max(axis=1))


@pytest.mark.parametrize("weighted", [False, True])
def test_all_classes_at_once_agree_with_liblinear(wine: tuple[np.ndarray, np.ndarray], weighted: bool) -> None:
    """Crammer and Singer's value is that of LIBLINEAR, which knows it without intercepts as the same problem."""
    X, places = wine[0], np.unique(wine[1], return_inverse=True)[1]
    weights = 1.0 + np.arange(len(X)) % 3 if weighted else None
    C = 0.02
    ours = MarginCoresetClassifier(loss="hinge", C=C, multi_class="crammer_singer", fit_intercept=False, epsilon=1e-5)
    ours.fit(X, wine[1], weights)
    theirs = LinearSVC(C=C, multi_class="crammer_singer", fit_intercept=False, tol=1e-10, max_iter=100_000)
    theirs.fit(X, places, weights)
    values = [
        0.5 * (coef**2).sum() + C * ((1.0 if weights is None else weights) * np.maximum(0.0, 1.0 - found)).sum()
        for coef in (ours.coef_, theirs.coef_)
        for found in [lead(X @ coef.T, places)]
    ]
    assert values[0] <= ours.certificate_.upper
    assert ours.certificate_.lower <= values[1]
    assert ours.certificate_.upper <= values[1] * (1 + 1e-5)
    assert set(np.flatnonzero(lead(X @ theirs.coef_.T, places) < 1 - 1e-6)) <= set(ours.support_)
    np.testing.assert_array_equal(ours.coreset_, X[ours.support_])


def test_one_model_of_all_classes(wine: tuple[np.ndarray, np.ndarray], make_store: Any, tmp_path: Path) -> None:
    """Crammer and Singer's model is one: scores, exports, a proof that `verify` checks; batches are not for it."""
    X, y = wine
    machine = MarginCoresetClassifier(loss=None, multi_class="crammer_singer").fit(X, y)
    assert machine.score(X, y) == 1.0
    assert (machine.coef_.shape, machine.certificate_.kind) == ((3, X.shape[1]), "margin")
    assert machine.certificate_.ratio >= 0.999
    np.testing.assert_allclose(machine.to_sklearn().decision_function(X), machine.decision_function(X), rtol=1e-9)
    machine.model_.save(tmp_path / "wine.model")
    assert coremargin.verify(tmp_path / "wine.model", make_store(X, y).path).ok
    assert not hasattr(machine, "partial_fit")
    with pytest.raises(UsageError, match="expected 'ovr' or 'crammer_singer', found 'ovo'"):
        MarginCoresetClassifier(multi_class="ovo").fit(X, y)
    with pytest.raises(UsageError, match="loss: .* has only 'hinge', found 'squared_hinge'"):
        MarginCoresetClassifier(multi_class="crammer_singer").fit(X, y)
